"""BLEU and chrF, as sacrebleu computes them: detokenized text against detokenized text.

Every score comes with sacrebleu's signature, which says how it was computed, and a bootstrap interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nextword.core.errors import MissingDependency
from nextword.metrics.intervals import NUM_RESAMPLES, Estimate

METRICS: dict[str, tuple[str, dict[str, Any]]] = {
    "bleu": ("BLEU", {}),
    "bleu_lowercase": ("BLEU", {"lowercase": True}),
    "chrf": ("CHRF", {}),
}


def bleu_and_chrf(outputs: Sequence[str], targets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Score, interval and signature of each metric; {} if sacrebleu is not installed."""
    try:
        return {name: _score(name, outputs, targets) for name in METRICS}
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

    class_name, options = METRICS[name]
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
