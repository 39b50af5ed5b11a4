"""How good predictions are: functions of two arrays, what is right and what was said. Thin, and without a library.

| metric     | of             | from, to |                                                                          |
| ---------- | -------------- | -------- | ------------------------------------------------------------------------ |
| `accuracy` | classes        | 0, 1     | the share that is right                                                  |
| `f1`       | two classes    | 0, 1     | harmonic mean of precision and recall of class 1                         |
| `macro_f1` | classes        | 0, 1     | the mean of every class's F1, however rare it is                         |
| `micro_f1` | classes        | 0, 1     | F1 of all classes together: of one label an example it is the accuracy   |
| `mcc`      | classes        | −1, 1    | Matthews' correlation: 0 for a guess that does not look                  |
| `pearson`  | numbers        | −1, 1    | how straight a line the pairs lie on                                     |
| `spearman` | numbers        | −1, 1    | the same of their ranks: only the order counts                           |

Where a formula divides by zero (nothing was said to be of the class; all numbers are equal) the result is 0, as with
scikit-learn; scipy says nan of equal numbers, and here a guess that does not look is worth nothing. A correlation with
numbers that are not finite is nan. There has to be one example at least.

Which classes are taken for which, how good each is, and whether probabilities mean what they say.

    counts      rows: the right class, columns: what was said                (N, N)
    each class  precision, recall and F1, with how often it is right and how often it was said
    ECE         Σ_bins n_b / n · |share right in b − mean probability in b|

The expected calibration error (Naeini et al. 2015; Guo et al. 2017) puts examples into bins of equal width by the
probability of the class that was said, the highest of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Metric = Callable[[np.ndarray, np.ndarray], float]


def accuracy(gold: np.ndarray, said: np.ndarray) -> float:
    return float(np.mean(gold == said))


def f1(gold: np.ndarray, said: np.ndarray, positive: int = 1) -> float:
    """2 · both / (right ones + said ones)."""
    both = float(np.sum((gold == positive) & (said == positive)))
    return _ratio(2.0 * both, float(np.sum(gold == positive) + np.sum(said == positive)))


def macro_f1(gold: np.ndarray, said: np.ndarray) -> float:
    """Over the classes that occur, among what is right or among what was said."""
    return float(np.mean([f1(gold, said, one) for one in np.union1d(gold, said).tolist()]))


def micro_f1(gold: np.ndarray, said: np.ndarray) -> float:
    """2 · Σ both / Σ (right ones + said ones), over all classes."""
    classes = np.union1d(gold, said)
    a, b = gold[:, None] == classes, said[:, None] == classes  # (N, K)
    return _ratio(2.0 * float((a & b).sum()), float(a.sum() + b.sum()))


def mcc(gold: np.ndarray, said: np.ndarray) -> float:
    """Gorodkin's form for any number of classes: the correlation of two tables of zeros and ones."""
    classes = np.union1d(gold, said)
    a, b = gold[:, None] == classes, said[:, None] == classes  # (N, K)
    a, b = a - a.mean(0), b - b.mean(0)
    return _ratio(float((a * b).sum()), math.sqrt(float((a * a).sum()) * float((b * b).sum())))


def pearson(gold: np.ndarray, said: np.ndarray) -> float:
    if not (np.isfinite(gold).all() and np.isfinite(said).all()):
        return math.nan
    a, b = _centered(gold), _centered(said)
    return float(np.clip(a @ b, -1.0, 1.0))


def _centered(values: np.ndarray) -> np.ndarray:
    """Less their mean, and of length 1; all 0 where they are equal. Scaled first, so that squares fit."""
    x = values.astype(np.float64)
    if (x == x[0]).all():
        return np.zeros(len(x))
    x = x / np.abs(x).max()
    x = x - x.mean()
    x = x / np.abs(x).max()
    return x / math.sqrt(float(x @ x))


def spearman(gold: np.ndarray, said: np.ndarray) -> float:
    if not (np.isfinite(gold).all() and np.isfinite(said).all()):
        return math.nan
    return pearson(ranks(gold), ranks(said))


def ranks(values: np.ndarray) -> np.ndarray:
    """Places from the least on; equal values share the mean of theirs: 3 1 3 → 2.5 1 2.5."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place.reshape(-1)]


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else 0.0


MEAN = "mean"  # of what decides in each of several tasks


def together(names: Sequence[str], each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Task → what decides in it, after the mean of them."""
    first = [next(iter(one.values())) for one in each]
    return {MEAN: float(np.mean(first)), **dict(zip(names, first, strict=True))}


OF_CLASSES: dict[str, Metric] = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "micro_f1": micro_f1, "mcc": mcc}
OF_NUMBERS: dict[str, Metric] = {"pearson": pearson, "spearman": spearman}
METRICS = OF_CLASSES | OF_NUMBERS


# ------------------------------------------------------------------------------------------------ over several runs

# Student's t, two-sided 95 %, for 1, 2, … degrees of freedom; beyond them the normal distribution's is near enough
STUDENT: tuple[float, ...] = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean of a few runs, and how far the 95 % interval goes to either side; None for a single run."""
    mean, n = math.fsum(values) / len(values), len(values)
    if n < 2:
        return mean, None
    spread = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
    return mean, (STUDENT[n - 2] if n - 2 < len(STUDENT) else 1.96) * spread / math.sqrt(n)


BINS = 10


def confusion(gold: np.ndarray, said: np.ndarray, classes: int) -> np.ndarray:
    """(classes, classes): how often the class of the row was taken for that of the column."""
    return np.bincount(gold * classes + said, minlength=classes * classes).reshape(classes, classes)


def of_each(counts: np.ndarray, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Precision, recall and F1 of every class; 0 where there is nothing to divide by."""
    right, there, found = np.diag(counts), counts.sum(1), counts.sum(0)
    return [
        {
            "label": label,
            "precision": _share(right[i], found[i]),
            "recall": _share(right[i], there[i]),
            "f1": _share(2 * right[i], there[i] + found[i]),
            "examples": int(there[i]),
            "said": int(found[i]),
        }
        for i, label in enumerate(labels)
    ]


def worst(counts: np.ndarray, labels: Sequence[str], most: int) -> list[dict[str, Any]]:
    """The commonest mistakes, with the share of the right class's examples that they are."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    there = counts.sum(1)
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = [divmod(int(place), len(labels)) for place in order]
    return [
        {"label": labels[i], "said": labels[j], "count": int(wrong[i, j]), "share": _share(wrong[i, j], there[i])}
        for i, j in pairs
        if wrong[i, j]
    ]


@dataclass(frozen=True)
class Bin:
    """Examples whose class was said with a probability above `low` and up to `high` (the first from 0 on)."""

    low: float
    high: float
    examples: int
    confidence: float  # the mean of those probabilities
    accuracy: float  # the share that is right


def calibration(probability: np.ndarray, right: np.ndarray, bins: int = BINS) -> tuple[float, list[Bin]]:
    """ECE and the bins, empty ones included, of the probabilities of what was said and whether that was right."""
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.ceil(probability * bins).astype(np.int64) - 1, 0, bins - 1)
    found, error = [], 0.0
    for b in range(bins):
        here = place == b
        n = int(here.sum())
        sure, share = (float(probability[here].mean()), float(right[here].mean())) if n else (0.0, 0.0)
        found.append(Bin(float(edges[b]), float(edges[b + 1]), n, sure, share))
        error += n / max(len(probability), 1) * abs(share - sure)
    return error, found


def _share(above: float, below: float) -> float:
    return float(above / below) if below else 0.0
