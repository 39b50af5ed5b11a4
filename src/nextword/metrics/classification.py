"""Metrics for classification and regression: functions of gold values and predictions.

| metric     | predictions | range  |                                                                     |
| ---------- | ----------- | ------ | ------------------------------------------------------------------- |
| `accuracy` | classes     | 0, 1   | the share of right predictions                                      |
| `f1`       | two classes | 0, 1   | harmonic mean of precision and recall of class 1                    |
| `macro_f1` | classes     | 0, 1   | the mean of every class's F1, however rare the class                |
| `micro_f1` | classes     | 0, 1   | F1 over all classes; with one label per example, the accuracy       |
| `mcc`      | classes     | −1, 1  | Matthews correlation coefficient: 0 for a constant prediction       |
| `pearson`  | numbers     | −1, 1  | linear correlation                                                  |
| `spearman` | numbers     | −1, 1  | correlation of the ranks                                            |

A division by zero (no example was predicted to be of the class; all numbers are equal) gives 0, as in scikit-learn;
scipy would give nan for a constant. A correlation with non-finite numbers is nan. At least one example is required.

Below them: the confusion matrix, precision and recall of every class, and the expected calibration error,

    ECE = Σ_bins n_b / n · |accuracy in bin b − mean probability in bin b|       (Naeini et al. 2015; Guo et al. 2017)

over bins of equal width of the predicted class's probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Metric = Callable[[np.ndarray, np.ndarray], float]
MEAN = "mean"  # of the main metrics of several tasks
NUM_BINS = 10


# ------------------------------------------------------------------------------------------------ classes


def accuracy(gold: np.ndarray, predicted: np.ndarray) -> float:
    return float(np.mean(gold == predicted))


def f1(gold: np.ndarray, predicted: np.ndarray, positive: int = 1) -> float:
    """2 · true positives / (gold positives + predicted positives)."""
    true_positives = float(np.sum((gold == positive) & (predicted == positive)))
    return _ratio(2.0 * true_positives, float(np.sum(gold == positive) + np.sum(predicted == positive)))


def macro_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Over the classes that occur in either array."""
    return float(np.mean([f1(gold, predicted, label) for label in np.union1d(gold, predicted).tolist()]))


def micro_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """2 · Σ true positives / Σ (gold positives + predicted positives), summed over all classes."""
    a, b = _one_hot(gold, predicted)
    return _ratio(2.0 * float((a & b).sum()), float(a.sum() + b.sum()))


def mcc(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Gorodkin's generalization to any number of classes: the correlation of the two one-hot matrices."""
    a, b = _one_hot(gold, predicted)
    a, b = a - a.mean(0), b - b.mean(0)
    return _ratio(float((a * b).sum()), math.sqrt(float((a * a).sum()) * float((b * b).sum())))


def _one_hot(gold: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    classes = np.union1d(gold, predicted)
    return gold[:, None] == classes, predicted[:, None] == classes  # (N, K) each


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else 0.0


# ------------------------------------------------------------------------------------------------ numbers


def pearson(gold: np.ndarray, predicted: np.ndarray) -> float:
    if not (np.isfinite(gold).all() and np.isfinite(predicted).all()):
        return math.nan
    return float(np.clip(_standardize(gold) @ _standardize(predicted), -1.0, 1.0))


def spearman(gold: np.ndarray, predicted: np.ndarray) -> float:
    if not (np.isfinite(gold).all() and np.isfinite(predicted).all()):
        return math.nan
    return pearson(ranks(gold), ranks(predicted))


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of their ranks: 3 1 3 → 2.5 1 2.5."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place.reshape(-1)]


def _standardize(values: np.ndarray) -> np.ndarray:
    """Subtract the mean and scale to length 1; all 0 for a constant. Scales first, so that squares do not overflow."""
    x = values.astype(np.float64)
    if (x == x[0]).all():
        return np.zeros(len(x))
    x = x / np.abs(x).max()
    x = x - x.mean()
    x = x / np.abs(x).max()
    return x / math.sqrt(float(x @ x))


CLASSIFICATION_METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "mcc": mcc,
}
REGRESSION_METRICS: dict[str, Metric] = {"pearson": pearson, "spearman": spearman}
METRICS = CLASSIFICATION_METRICS | REGRESSION_METRICS


def combine_tasks(names: Sequence[str], metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of several tasks: the mean of their main (first) metrics, then the main metric of each task by name."""
    main = [next(iter(task.values())) for task in metrics]
    return {MEAN: float(np.mean(main)), **dict(zip(names, main, strict=True))}


# ------------------------------------------------------------------------------------------------ error analysis


def confusion_matrix(gold: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """(gold class, predicted class) → count."""
    return np.bincount(gold * num_classes + predicted, minlength=num_classes**2).reshape(num_classes, num_classes)


def score_classes(counts: np.ndarray, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Precision, recall and F1 of every class of a confusion matrix."""
    right, gold, predicted = np.diag(counts), counts.sum(1), counts.sum(0)
    return [
        {
            "label": label,
            "precision": float(_ratio(right[i], predicted[i])),
            "recall": float(_ratio(right[i], gold[i])),
            "f1": float(_ratio(2 * right[i], gold[i] + predicted[i])),
            "examples": int(gold[i]),
            "predicted": int(predicted[i]),
        }
        for i, label in enumerate(labels)
    ]


def most_confused(counts: np.ndarray, labels: Sequence[str], limit: int) -> list[dict[str, Any]]:
    """The most frequent confusions, each with its share of the gold class's examples."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    gold = counts.sum(1)
    order = np.argsort(-wrong, axis=None, kind="stable")[:limit]
    cells = [divmod(int(cell), len(labels)) for cell in order]
    return [
        {
            "label": labels[i],
            "predicted": labels[j],
            "count": int(wrong[i, j]),
            "share": float(_ratio(wrong[i, j], gold[i])),
        }
        for i, j in cells
        if wrong[i, j]
    ]


@dataclass(frozen=True)
class Bin:
    """Examples whose predicted class has a probability in (low, high]; the first bin includes 0."""

    low: float
    high: float
    examples: int
    confidence: float  # mean probability
    accuracy: float


def calibration(probability: np.ndarray, is_right: np.ndarray, num_bins: int = NUM_BINS) -> tuple[float, list[Bin]]:
    """Expected calibration error and its bins (also the empty ones), from each prediction's probability."""
    edges = np.linspace(0, 1, num_bins + 1)
    bin_of = np.clip(np.ceil(probability * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    bins, error = [], 0.0
    for b in range(num_bins):
        inside = bin_of == b
        n = int(inside.sum())
        confidence, right = (float(probability[inside].mean()), float(is_right[inside].mean())) if n else (0.0, 0.0)
        bins.append(Bin(float(edges[b]), float(edges[b + 1]), n, confidence, right))
        error += n / max(len(probability), 1) * abs(right - confidence)
    return error, bins
