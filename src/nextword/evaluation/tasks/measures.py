"""From answers to one number with an interval, and what one gets without any model.

Shares have Wilson's interval, which keeps its 95 % for few answers and near 0 and 1, where others do not. Numbers that
are no mean of answers (Matthews correlation, F1, BLEU) are computed again on answers drawn with replacement.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nextword.contract_errors import NextwordError

DRAWS = 1000
NORMAL = 1.959963984540054  # 97.5 % of a normal distribution lie below


@dataclass(frozen=True)
class Measured:
    value: float
    low: float
    high: float


def wilson(right: int, total: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    if not total:
        return 0.0, 1.0
    share, square = right / total, NORMAL**2
    middle = (share + square / (2 * total)) / (1 + square / total)
    half = NORMAL * math.sqrt(share * (1 - share) / total + square / (4 * total**2)) / (1 + square / total)
    return max(0.0, middle - half), min(1.0, middle + half)


def accuracy(right: Sequence[bool]) -> Measured:
    count = sum(right)
    return Measured(count / len(right) if right else 0.0, *wilson(count, len(right)))


def resampled(measure: Callable[[np.ndarray, np.ndarray], float], gold: Sequence[int], said: Sequence[int]) -> Measured:
    a, b = np.asarray(gold), np.asarray(said)
    draw = np.random.default_rng(0)
    values = []
    for _ in range(DRAWS):
        rows = draw.integers(0, len(a), len(a))
        values.append(measure(a[rows], b[rows]))
    low, high = np.quantile(values, [0.025, 0.975])
    return Measured(measure(a, b), float(low), float(high))


def bleu(written: Sequence[str], wanted: Sequence[str]) -> tuple[Measured, str]:
    """Corpus BLEU from 0 to 100, and sacrebleu's signature, without which such a number says nothing."""
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise NextwordError("BLEU is counted by sacrebleu, which is not installed: pip install sacrebleu.") from None
    metric = BLEU()
    found = metric.corpus_score(list(written), [list(wanted)], n_bootstrap=DRAWS)
    half, mean = float(found._ci), float(found._mean)
    value = float(found.score)
    return Measured(value, max(0.0, min(mean - half, value)), max(mean + half, value)), str(metric.get_signature())


def commonest(answers: Sequence[str]) -> float:
    """The share of answers that always saying the commonest one gets right."""
    return Counter(answers).most_common(1)[0][1] / len(answers) if answers else 0.0
