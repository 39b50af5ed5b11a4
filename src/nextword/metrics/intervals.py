"""95 % confidence intervals.

wilson                    a proportion, such as accuracy: right also for few examples and near 0 and 1
bootstrap_metric          any metric of gold labels and predictions: resample the examples with replacement
bootstrap_mean            a mean of scores: resample the scores with replacement
bootstrap_difference      the difference of two methods on the same examples: resample the examples with replacement
confidence_interval       a mean over a few runs: Student's t
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

NUM_RESAMPLES = 1000
NORMAL_QUANTILE = 1.959963984540054  # 97.5 % of a normal distribution lie below
# Student's t, two-sided 95 %, for 1, 2, … degrees of freedom; beyond the table the normal quantile is close enough
STUDENT_QUANTILES: tuple[float, ...] = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(right: int, total: int) -> tuple[float, float]:
    """Interval of the proportion right / total (Wilson 1927)."""
    if not total:
        return 0.0, 1.0
    share, square = right / total, NORMAL_QUANTILE**2
    middle = (share + square / (2 * total)) / (1 + square / total)
    half = NORMAL_QUANTILE * math.sqrt(share * (1 - share) / total + square / (4 * total**2)) / (1 + square / total)
    return max(0.0, middle - half), min(1.0, middle + half)


def accuracy_with_interval(is_right: Sequence[bool]) -> Estimate:
    """Accuracy with Wilson's interval."""
    num_right = sum(is_right)
    return Estimate(num_right / len(is_right) if is_right else 0.0, *wilson(num_right, len(is_right)))


def bootstrap_metric(
    metric: Callable[[np.ndarray, np.ndarray], float], gold: Sequence[int], predicted: Sequence[int]
) -> Estimate:
    """A metric of (gold, predicted) with its bootstrap interval."""
    a, b = np.asarray(gold), np.asarray(predicted)
    random = np.random.default_rng(0)
    values = []
    for _ in range(NUM_RESAMPLES):
        rows = random.integers(0, len(a), len(a))
        values.append(metric(a[rows], b[rows]))
    low, high = np.quantile(values, [0.025, 0.975])
    return Estimate(metric(a, b), float(low), float(high))


def bootstrap_mean(values: np.ndarray) -> tuple[float | None, float | None]:
    """Bootstrap interval of the mean of these values; (None, None) for fewer than two."""
    if len(values) < 2:
        return None, None
    random = np.random.default_rng(0)
    means = [values[random.integers(0, len(values), len(values))].mean() for _ in range(NUM_RESAMPLES)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def bootstrap_difference(
    size: int, first: Callable[[np.ndarray], float], second: Callable[[np.ndarray], float]
) -> Estimate:
    """First minus second score with its paired bootstrap interval.

    Both functions score a sample of the same `size` examples, given as indices with repetitions.
    """
    random = np.random.default_rng(0)
    values = []
    for _ in range(NUM_RESAMPLES):
        rows = random.integers(0, size, size)
        values.append(first(rows) - second(rows))
    low, high = np.quantile(values, [0.025, 0.975])
    everything = np.arange(size)
    return Estimate(first(everything) - second(everything), float(low), float(high))


def confidence_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean over a few runs and the half-width of its interval (Student's t); None for a single run."""
    mean, n = math.fsum(values) / len(values), len(values)
    if n < 2:
        return mean, None
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
    quantile = STUDENT_QUANTILES[n - 2] if n - 2 < len(STUDENT_QUANTILES) else 1.96
    return mean, quantile * deviation / math.sqrt(n)
