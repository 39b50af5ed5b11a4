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


def bleu_and_chrf(written: Sequence[str], targets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Score, interval and signature of each metric; {} if sacrebleu is not installed."""
    try:
        from sacrebleu import metrics
    except ImportError:
        return {}
    results = {}
    for name, (class_name, options) in METRICS.items():
        metric = getattr(metrics, class_name)(**options)
        texts = list(written), [list(targets)]
        resamples = {"n_bootstrap": NUM_RESAMPLES} if len(written) > 1 else {}
        try:
            score: Any = metric.corpus_score(*texts, **resamples)
        except TypeError:  # sacrebleu cannot average resamples that score exactly 0
            resamples = {}
            score = metric.corpus_score(*texts)
        low = high = None
        if resamples:  # sacrebleu keeps the interval in two private fields
            low, high = float(score._mean) - float(score._ci), float(score._mean) + float(score._ci)
        results[name] = {
            "score": float(score.score),
            "low": low,
            "high": high,
            "signature": str(metric.get_signature()),
        }
    return results


def bleu_with_interval(written: Sequence[str], targets: Sequence[str]) -> tuple[Estimate, str]:
    """Corpus BLEU from 0 to 100, and sacrebleu's signature, without which the number is not comparable."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise MissingDependency(
            "BLEU needs sacrebleu, which is not installed: pip install sacrebleu.", package="sacrebleu"
        ) from None
    metric = BLEU()
    score: Any = metric.corpus_score(list(written), [list(targets)], n_bootstrap=NUM_RESAMPLES)
    half, mean, value = float(score._ci), float(score._mean), float(score.score)
    estimate = Estimate(value, max(0.0, min(mean - half, value)), max(mean + half, value))
    return estimate, str(metric.get_signature())
