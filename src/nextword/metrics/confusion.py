"""Which classes are taken for which, how good each is, and whether probabilities mean what they say.

    counts      rows: the right class, columns: what was said                (N, N)
    each class  precision, recall and F1, with how often it is right and how often it was said
    ECE         Σ_bins n_b / n · |share right in b − mean probability in b|

The expected calibration error (Naeini et al. 2015; Guo et al. 2017) puts examples into bins of equal width by the
probability of the class that was said, the highest of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
