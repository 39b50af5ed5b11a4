"""Spherical k-means (Dhillon & Modha 2001): cluster vectors by cosine similarity.

    centroid of a cluster    the mean of its unit vectors, normalized
    assignment               each vector joins the centroid with which it has the largest cosine

The two steps alternate until no assignment changes. Initial centroids are k-means++ (Arthur & Vassilvitskii 2007); of
several restarts, the one with the largest sum of cosines wins.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.errors import InvalidSetting

NUM_RESTARTS = 10
MAX_ITERATIONS = 100


def cluster(vectors: Tensor, k: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(N, D) → the cluster of each vector (N,), largest cluster first, and its cosine with the centroid (N,)."""
    if not 1 <= k <= len(vectors):
        raise InvalidSetting(
            f"Cannot put {len(vectors):,} texts into {k:,} groups. Ask for 1 to {len(vectors):,}.",
            key="groups",
            value=k,
        )
    unit = F.normalize(vectors.float(), dim=1)
    generator = torch.Generator().manual_seed(seed)
    restarts = (_iterate(unit, _initial_centroids(unit, k, generator)) for _ in range(NUM_RESTARTS))
    assignment, cosines = max(restarts, key=lambda restart: restart[1].sum().item())
    by_size = torch.bincount(assignment, minlength=k).argsort(descending=True, stable=True)
    return by_size.argsort()[assignment], cosines


def _initial_centroids(unit: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k-means++: one random vector, then each with probability proportional to its distance from those chosen."""
    chosen = [int(torch.randint(len(unit), (1,), generator=generator))]
    for _ in range(k - 1):
        distance = (1 - (unit @ unit[chosen].T).amax(1)).clamp(min=0)
        distance[chosen] = 0
        if distance.sum() > 0:
            odds = distance
        else:  # only duplicates are left: any of the others
            odds = torch.ones(len(unit)).index_fill(0, torch.tensor(chosen), 0.0)
        chosen.append(int(torch.multinomial(odds, 1, generator=generator)))
    return unit[chosen]  # (k, D)


def _iterate(unit: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    k, assignment = len(centroids), torch.full((len(unit),), -1)
    for _ in range(MAX_ITERATIONS):
        cosines, new = (unit @ centroids.T).max(1)
        for empty in (torch.bincount(new, minlength=k) == 0).nonzero().flatten().tolist():
            # restart an empty cluster with the vector that fits its own cluster worst
            is_alone = torch.bincount(new, minlength=k)[new] <= 1
            worst = int(torch.where(is_alone, torch.inf, cosines).argmin())
            new[worst], cosines[worst] = empty, 1.0
        if torch.equal(new, assignment):
            break
        assignment = new
        centroids = F.normalize(torch.zeros_like(centroids).index_add(0, assignment, unit), dim=1)
    return assignment, (unit * centroids[assignment]).sum(1)
