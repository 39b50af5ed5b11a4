"""How much each count gives up, by estimator: read off the counts of counts, with a fallback that says so.

n_r: how many different n-grams occur r times        Y = n1 / (n1 + 2 n2)

absolute, Kneser-Ney     D(r) = Y                                                   Ney, Essen & Kneser (1994)
modified Kneser-Ney      D(r) = r − (r + 1) Y n_{r+1} / n_r for r = 1, 2, 3+        Chen & Goodman (1998)
Good-Turing (Katz)       D(r) = r (1 − d_r), d_r Katz's ratio for r ≤ cut-off       Katz (1987)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nextword.contract_errors import NextwordError

FALLBACK = (0.5, 1.0, 1.5)  # as KenLM's --discount_fallback
HIGHEST = 16  # the longest table: its last entry holds for all higher counts

Table = tuple[np.ndarray, str]  # D(0 …), and a note where the counts of counts would not do


def absolute(n: np.ndarray, cutoff: int, interpolated: bool) -> Table:
    if n[1] and n[2]:
        return _table([n[1] / (n[1] + 2 * n[2])]), ""
    return _table([0.5]), f"no n-gram occurs {'once' if not n[1] else 'twice'}: the discount is set to 0.5"


def modified(n: np.ndarray, cutoff: int, interpolated: bool) -> Table:
    """Counts of counts that are zero, or give a discount below 0 or above its count, are not those of a real text.

    Nor may it be the count itself (3, where n4 = 0) unless a shorter context adds something to what is left.
    """
    if not (n[1] and n[2] and n[3]):
        lacking = next(r for r in (1, 2, 3) if not n[r])
        return _table(FALLBACK), f"no n-gram occurs {_times(lacking)}: the discounts are set to 0.5, 1, 1.5"
    y = n[1] / (n[1] + 2 * n[2])
    found = [r - (r + 1) * y * n[r + 1] / n[r] for r in (1, 2, 3)]
    for r, discount in enumerate(found, 1):
        if not 0 <= discount <= r or (discount == r and not interpolated):
            return _table(FALLBACK), (
                f"the discount for count {r} would be {discount:.2f}: the discounts are set to 0.5, 1, 1.5"
            )
    return _table(found), ""


def good_turing(n: np.ndarray, cutoff: int, interpolated: bool) -> Table:
    """The cut-off is lowered until all ratios lie between 0 and 1; where none does, the discount is 0.5 of count 1."""
    for k in range(min(cutoff, HIGHEST - 2), 0, -1):
        if not n[1 : k + 2].all():
            continue
        common = (k + 1) * n[k + 1] / n[1]
        ratios = [
            ((r + 1) * n[r + 1] / n[r] / r - common) / (1 - common) if common != 1 else -1 for r in range(1, k + 1)
        ]
        if all(0 < ratio <= 1 for ratio in ratios):
            note = (
                "" if k == cutoff else f"counts up to {k} are discounted instead of {cutoff}: beyond, they are too rare"
            )
            return _table([*(r * (1 - ratio) for r, ratio in enumerate(ratios, 1)), 0.0]), note
    return _table([0.5, 0.0]), "the counts of counts do not fall as Good and Turing assume: 0.5 is taken off count 1"


DISCOUNTS: dict[str, Callable[[np.ndarray, int, bool], Table]] = {
    "absolute": absolute,
    "kneser-ney": absolute,
    "modified-kneser-ney": modified,
    "good-turing": good_turing,
}


def check_given(discounts: Sequence[Any], kind: str) -> None:
    """Discounts that a recipe gives: a list for each order, D of counts 1, 2, …; the last of both holds beyond."""
    if not discounts:
        return
    fine = all(
        isinstance(row, list | tuple)
        and row
        and all(isinstance(d, int | float) and 0 <= d <= r for r, d in enumerate(row, 1))
        for row in discounts
    )
    if kind not in DISCOUNTS or not fine:
        raise NextwordError(
            f"[phase] estimator discounts = {list(discounts)}: lists by order, D of counts 1, 2, … each from 0 to its "
            f"count, such as [[0.5, 1, 1.5]], for one of {', '.join(DISCOUNTS)}."
        )


def given_table(discounts: Sequence[Any], k: int) -> np.ndarray:
    return _table(discounts[min(k, len(discounts) - 1)])


def _table(discounts: Sequence[float]) -> np.ndarray:
    """D by count, zero for count 0; the last one holds for all counts beyond."""
    return np.array([0.0, *discounts])


def _times(r: int) -> str:
    return ("once", "twice", "three times")[r - 1]
