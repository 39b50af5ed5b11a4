"""ROUGE for summaries (Lin 2004): F1 of the words that a summary shares with its reference.

    rouge1, rouge2   single words and word pairs
    rougeL           longest common subsequence of words
    rougeLsum        the same, sentence by sentence: the usual number for summaries of several sentences

Computed by the rouge-score package: lower case, letters and digits only, Porter stemmer. Scores are means over the
summaries, from 0 to 100, with a bootstrap interval.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from nextword.data.segmentation import sentence_spans
from nextword.metrics.intervals import bootstrap_mean

TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_GLUED = re.compile(r"(?<=[a-z0-9)\"'”’][.!?])(?=[A-Z\"“‘])")  # sentences joined without a space: "profit.The firm"


def rouge_scores(written: Sequence[str], targets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Score, interval and signature of each ROUGE type; {} if rouge-score is not installed."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        return {}
    scorer = RougeScorer(list(TYPES), use_stemmer=True)
    pairs = zip(map(one_sentence_per_line, targets), map(one_sentence_per_line, written), strict=True)
    scores = [scorer.score(target, text) for target, text in pairs]
    results = {}
    for name in TYPES:
        values = 100 * np.array([score[name].fmeasure for score in scores])
        low, high = bootstrap_mean(values)
        signature = f"F1, stemmed, mean of {len(values):,}, rouge-score {version('rouge-score')}"
        results[name] = {"score": float(values.mean()), "low": low, "high": high, "signature": signature}
    return results


def one_sentence_per_line(text: str) -> str:
    """Split a text into sentences, one per line, as rougeLsum expects."""
    spaced = _GLUED.sub(" ", text)
    return "\n".join(" ".join(spaced[start:end].split()) for start, end in sentence_spans(spaced))
