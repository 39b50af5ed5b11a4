"""Scores of generated text against target text, from 0 to 100, each with a bootstrap interval and a signature.

    bleu, bleu_lowercase, chrf   translations, as sacrebleu computes them: detokenized text against detokenized text
    rouge1, rouge2               summaries (Lin 2004): F1 of the words, and of the word pairs, that both texts share
    rougeL                       longest common subsequence of words
    rougeLsum                    the same, sentence by sentence: the usual number for summaries of several sentences

ROUGE is computed by the rouge-score package: lower case, letters and digits only, Porter stemmer; scores are means over
the summaries. The signature says how a score was computed; without it the number is not comparable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from nextword.core.errors import MissingDependency
from nextword.data.segmentation import sentence_spans
from nextword.metrics.intervals import NUM_RESAMPLES, Estimate, bootstrap_mean

BLEU_METRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "bleu": ("BLEU", {}),
    "bleu_lowercase": ("BLEU", {"lowercase": True}),
    "chrf": ("CHRF", {}),
}
ROUGE_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_GLUED = re.compile(r"(?<=[a-z0-9)\"'”’][.!?])(?=[A-Z\"“‘])")  # sentences joined without a space: "profit.The firm"


def bleu_and_chrf(outputs: Sequence[str], targets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Score, interval and signature of each metric; {} if sacrebleu is not installed."""
    try:
        return {name: _score(name, outputs, targets) for name in BLEU_METRICS}
    except ImportError:
        return {}


def bleu_with_interval(outputs: Sequence[str], targets: Sequence[str]) -> tuple[Estimate, str]:
    """Corpus BLEU from 0 to 100, and sacrebleu's signature, without which the number is not comparable."""
    try:
        result = _score("bleu", outputs, targets)
    except ImportError:
        message = "BLEU needs sacrebleu, which is not installed: pip install sacrebleu."
        raise MissingDependency(message, package="sacrebleu") from None
    value = result["score"]
    low, high = (value if end is None else end for end in (result["low"], result["high"]))
    return Estimate(value, max(0.0, min(low, value)), max(high, value)), result["signature"]


def _score(name: str, outputs: Sequence[str], targets: Sequence[str]) -> dict[str, Any]:
    from sacrebleu import metrics

    class_name, options = BLEU_METRICS[name]
    metric = getattr(metrics, class_name)(**options)
    texts = list(outputs), [list(targets)]
    low = high = None
    resamples = {"n_bootstrap": NUM_RESAMPLES} if len(outputs) > 1 else {}
    try:
        score = metric.corpus_score(*texts, **resamples)
    except TypeError:  # sacrebleu cannot average resamples that score exactly 0
        resamples = {}
        score = metric.corpus_score(*texts)
    if resamples:  # sacrebleu keeps the interval in two private fields
        low, high = float(score._mean) - float(score._ci), float(score._mean) + float(score._ci)
    return {"score": float(score.score), "low": low, "high": high, "signature": str(metric.get_signature())}


def rouge_scores(written: Sequence[str], targets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Score, interval and signature of each ROUGE type; {} if rouge-score is not installed."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        return {}
    scorer = RougeScorer(list(ROUGE_TYPES), use_stemmer=True)
    pairs = zip(map(one_sentence_per_line, targets), map(one_sentence_per_line, written), strict=True)
    scores = [scorer.score(target, text) for target, text in pairs]
    results = {}
    for name in ROUGE_TYPES:
        values = 100 * np.array([score[name].fmeasure for score in scores])
        low, high = bootstrap_mean(values)
        signature = f"F1, stemmed, mean of {len(values):,}, rouge-score {version('rouge-score')}"
        results[name] = {"score": float(values.mean()), "low": low, "high": high, "signature": signature}
    return results


def one_sentence_per_line(text: str) -> str:
    """Split a text into sentences, one per line, as rougeLsum expects."""
    spaced = _GLUED.sub(" ", text)
    return "\n".join(" ".join(spaced[start:end].split()) for start, end in sentence_spans(spaced))
