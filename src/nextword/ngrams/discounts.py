"""Discounts: how much of each count is set aside for unseen words, from the counts of counts.

    n_r = number of distinct n-grams that occur r times        Y = n1 / (n1 + 2 n2)

    absolute, Kneser-Ney     D(r) = Y                                                   Ney, Essen & Kneser (1994)
    modified Kneser-Ney      D(r) = r − (r + 1) Y n_{r+1} / n_r for r = 1, 2, 3+        Chen & Goodman (1998)
    Good-Turing (Katz)       D(r) = r (1 − d_r), d_r = Katz's ratio for r ≤ cutoff      Katz (1987)

Each function returns D by count, and a note if the counts of counts were not usable and a fallback was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nextword.core.errors import invalid

FALLBACK = (0.5, 1.0, 1.5)  # as KenLM's --discount_fallback
MAX_COUNT = 16  # the longest table: its last entry holds for all higher counts

Table = tuple[np.ndarray, str]  # D(0), D(1), …, and a note about a fallback


def absolute_discount(n: np.ndarray, cutoff: int, interpolated: bool) -> Table:
    """One discount for all counts, of absolute discounting and Kneser-Ney: D = n1 / (n1 + 2 n2)."""
    if n[1] and n[2]:
        return _table([n[1] / (n[1] + 2 * n[2])]), ""
    return _table([0.5]), f"no n-gram occurs {'once' if not n[1] else 'twice'}: the discount is set to 0.5"


def modified_kneser_ney_discounts(n: np.ndarray, cutoff: int, interpolated: bool) -> Table:
    """Three discounts, for counts 1, 2 and 3+.

    The fallback is taken if a count of counts is 0, or if a discount is negative or exceeds its count: a real text does
    not do that. Without interpolation a discount may not equal its count either (3, if n4 = 0), because nothing would
    be left.
    """
    if not (n[1] and n[2] and n[3]):
        missing = next(r for r in (1, 2, 3) if not n[r])
        times = ("once", "twice", "three times")[missing - 1]
        return _table(FALLBACK), f"no n-gram occurs {times}: the discounts are set to 0.5, 1, 1.5"
    y = n[1] / (n[1] + 2 * n[2])
    discounts = [r - (r + 1) * y * n[r + 1] / n[r] for r in (1, 2, 3)]
    for r, discount in enumerate(discounts, 1):
        if not 0 <= discount <= r or (discount == r and not interpolated):
            return _table(FALLBACK), (
                f"the discount for count {r} would be {discount:.2f}: the discounts are set to 0.5, 1, 1.5"
            )
    return _table(discounts), ""


def good_turing_discounts(n: np.ndarray, cutoff: int, interpolated: bool) -> Table:
    """Discounts for counts 1 … cutoff.

    The cutoff is lowered until all of Katz's ratios lie between 0 and 1; if none works, 0.5 is taken off count 1.
    """
    for k in range(min(cutoff, MAX_COUNT - 2), 0, -1):
        if not n[1 : k + 2].all():
            continue
        common = (k + 1) * n[k + 1] / n[1]
        ratios = [
            ((r + 1) * n[r + 1] / n[r] / r - common) / (1 - common) if common != 1 else -1 for r in range(1, k + 1)
        ]
        if all(0 < ratio <= 1 for ratio in ratios):
            note = f"counts up to {k} are discounted instead of {cutoff}: higher ones are too rare"
            discounts = [*(r * (1 - ratio) for r, ratio in enumerate(ratios, 1)), 0.0]
            return _table(discounts), "" if k == cutoff else note
    return _table([0.5, 0.0]), "the counts of counts do not fall as Good-Turing assumes: 0.5 is taken off count 1"


DISCOUNTS: dict[str, Callable[[np.ndarray, int, bool], Table]] = {
    "absolute": absolute_discount,
    "kneser-ney": absolute_discount,
    "modified-kneser-ney": modified_kneser_ney_discounts,
    "good-turing": good_turing_discounts,
}


def check_discounts(discounts: Sequence[Sequence[float]], kind: str) -> None:
    """Check a recipe's own discounts: a list per order, D of counts 1, 2, …; the last of both holds for all beyond."""
    if not discounts:
        return
    is_valid = all(
        isinstance(row, list | tuple)
        and row
        and all(isinstance(d, int | float) and 0 <= d <= r for r, d in enumerate(row, 1))
        for row in discounts
    )
    if kind not in DISCOUNTS or not is_valid:
        expected = "a list per order with D of counts 1, 2, …, each from 0 to its count, such as [[0.5, 1, 1.5]]"
        raise invalid("estimator.discounts", list(discounts), f"must be {expected}, for {', '.join(DISCOUNTS)}.")


def discounts_of_order(discounts: Sequence[Sequence[float]], k: int) -> np.ndarray:
    """The table of level k from a recipe's own discounts."""
    return _table(discounts[min(k, len(discounts) - 1)])


def _table(discounts: Sequence[float]) -> np.ndarray:
    """D by count, zero for count 0; the last one holds for all counts beyond."""
    return np.array([0.0, *discounts])
