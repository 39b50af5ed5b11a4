"""Sums that studies share: what to say of several seeds, how fast something grows, and how to write a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nextword.studies.study import Cell


@dataclass(frozen=True)
class Growth:
    """y ∝ x^exponent, fitted on logarithms."""

    exponent: float
    r2: float


def growth(x: Sequence[float], y: Sequence[float]) -> Growth:
    """Least squares on log-log; an R² of 1 is a power law, and a flat y counts as one with exponent 0."""
    a, b = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    slope, offset = np.polyfit(a, b, 1)
    total = ((b - b.mean()) ** 2).sum()
    left = ((b - offset - slope * a) ** 2).sum()
    return Growth(float(slope), float(1 - left / total) if total > 1e-12 else 1.0)


def marginal(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """What one more x costs, between neighbours: all equal exactly where y = a + b·x."""
    return [float(d) for d in np.diff(np.asarray(y, dtype=float)) / np.diff(np.asarray(x, dtype=float))]


def over_seeds(values: Sequence[float]) -> list[float]:
    """[median, smallest, largest]: of a few seeds the range says more than a standard error. Counts stay whole."""
    found = [float(np.median(values)), float(min(values)), float(max(values))]
    whole = all(isinstance(value, int) for value in values) and found[0].is_integer()
    return [int(value) for value in found] if whole else found


def written(value: Cell) -> str:
    """A cell for a reader: counts grouped in thousands, long ones as powers of ten, seeds as median and range."""
    if value is None:
        return "–"
    if isinstance(value, (list, tuple)):
        middle, low, high = map(written, value)
        return middle if low == high else f"{middle} ({low}–{high})"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**9 else f"{value:.1e}"
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 100 <= abs(value) < 10**6:
        return f"{value:,.0f}"
    return f"{value:#.3g}" if 0.01 <= abs(value) < 100 else f"{value:.1e}"


# Student's t at 97.5 % for 1, 2, 3 … degrees of freedom; beyond them 1.96 + 2.4 / n is right to two digits
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


def interval(values: np.ndarray) -> tuple[float, float, float] | None:
    """Their mean and its 95 % interval, as of few independent draws; None for a single one."""
    n = len(values)
    if n < 2:
        return None
    times = STUDENT[n - 2] if n - 2 < len(STUDENT) else 1.96 + 2.4 / (n - 1)
    middle, half = float(values.mean()), times * float(values.std(ddof=1)) / n**0.5
    return middle, middle - half, middle + half


def in_pairs(these: Sequence[float], those: Sequence[float]) -> list[float]:
    """How far these are above those, seed by seed: mean and 95 % interval. A single seed has no interval: it is
    everything."""
    differences = np.asarray(these, dtype=float) - np.asarray(those, dtype=float)
    found = interval(differences)
    return [float(differences[0]), -np.inf, np.inf] if found is None else list(found)


def widest(middle: float, by_seed: np.ndarray, text: tuple[float, float]) -> list[float]:
    """[middle, low, high]: the wider of two 95 % intervals, Student's t over seeds and the one found over the text.

    A single seed has no interval: it is everything.
    """
    seeds = interval(by_seed)
    if seeds is None:
        return [middle, -np.inf, np.inf]
    return [middle, min(text[0], seeds[1]), max(text[1], seeds[2])]


NO_INTERVAL = "one seed has no interval"


def bounded(cell: Sequence[Any]) -> bool:
    """Has it an interval? Without one it is infinite, or None once it has been JSON, which has no infinity."""
    return cell[1] is not None and bool(np.isfinite(cell[1]))


def above(cell: Sequence[float], bound: float = 0.0) -> bool | None:
    """Is it above the bound, the whole interval? None: the bound lies inside."""
    _, low, high = (np.inf if value is None else value for value in cell)  # JSON has no infinity
    if cell[1] is None:
        return None
    return True if low > bound else False if high < bound else None


def below(cell: Sequence[float], bound: float = 0.0) -> bool | None:
    """Is it below the bound, the whole interval? None: the bound lies inside."""
    found = above(cell, bound)
    return None if found is None else not found
