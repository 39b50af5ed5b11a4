"""Vectors that point the same way, in groups: k-means on the sphere (Dhillon & Modha 2001).

    centre of a group   the mean of its unit vectors, of length one
    a vector belongs    to the centre that it has the largest cosine with

Both in turn until nothing moves. It begins with vectors drawn far from each other (k-means++, Arthur & Vassilvitskii
2007), several times, and the tightest grouping counts: the one with the largest sum of cosines.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.errors import NextwordError

TIMES, MOST = 10, 100  # beginnings, and rounds of each


def grouped(vectors: Tensor, k: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(N, D) → the group of each (N,), the largest group being 0, and its cosine with the centre (N,)."""
    if not 1 <= k <= len(vectors):
        raise NextwordError(f"{len(vectors):,} texts cannot be put into {k:,} groups: expected 1 to {len(vectors):,}.")
    unit = F.normalize(vectors.float(), dim=1)
    draw = torch.Generator().manual_seed(seed)
    found = max((_settled(unit, _far_apart(unit, k, draw)) for _ in range(TIMES)), key=lambda one: one[1].sum().item())
    order = torch.bincount(found[0], minlength=k).argsort(descending=True, stable=True)
    return order.argsort()[found[0]], found[1]


def _far_apart(unit: Tensor, k: int, draw: torch.Generator) -> Tensor:
    """(k, D): one vector at random, then each with a chance as large as its distance to those that were chosen."""
    chosen = [int(torch.randint(len(unit), (1,), generator=draw))]
    for _ in range(k - 1):
        away = (1 - (unit @ unit[chosen].T).amax(1)).clamp(min=0)
        away[chosen] = 0
        odds = away if away.sum() > 0 else torch.ones(len(unit)).index_fill(0, torch.tensor(chosen), 0.0)
        chosen.append(int(torch.multinomial(odds, 1, generator=draw)))
    return unit[chosen]


def _settled(unit: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    k, belongs = len(centres), torch.full((len(unit),), -1)
    for _ in range(MOST):
        cosines, now = (unit @ centres.T).max(1)
        for empty in (torch.bincount(now, minlength=k) == 0).nonzero().flatten().tolist():
            alone = int(torch.where(torch.bincount(now, minlength=k)[now] > 1, cosines, torch.inf).argmin())
            now[alone], cosines[alone] = empty, 1.0  # the vector that fits worst begins a group anew
        if torch.equal(now, belongs):
            break
        belongs = now
        centres = F.normalize(torch.zeros_like(centres).index_add(0, belongs, unit), dim=1)
    return belongs, (unit * centres[belongs]).sum(1)
