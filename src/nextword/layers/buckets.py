"""Distances in buckets: near ones have one each, far ones share, more and more (Raffel et al. 2020, section 2.1).

distance   0  1  2 … 7   8–9  10–12 …   ≥ 128        of 32 buckets: 16 for what follows, 16 for what came before;
bucket     0  1  2 … 7    8     9   …     15         where nothing that follows is seen, all 32 look back
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def bucket(distance: Tensor, buckets: int = 32, most: int = 128, both: bool = True) -> Tensor:
    """Of key minus query, any shape. From `most` on all are in the last one."""
    first = torch.zeros_like(distance)
    if both:
        buckets //= 2
        first = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    far = torch.log(distance.clamp(min=1).float() / exact) / math.log(most / exact) * (buckets - exact)
    far = (exact + far.long()).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, far)


class DistanceBias(nn.Module):
    """What is added to attention scores, one number for each bucket and head."""

    def __init__(self, heads: int, buckets: int, most: int, both: bool) -> None:
        super().__init__()
        self.most, self.both = most, both
        self.weight = nn.Parameter(torch.empty(buckets, heads))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, queries: int, keys: int) -> Tensor:
        """(H, queries, keys), the queries being the last of the keys."""
        # one number a distance, from −(keys − 1) to queries − 1; each query sees a stretch of them, one further left
        distance = torch.arange(1 - keys, queries, device=self.weight.device)
        which = bucket(distance, len(self.weight), self.most, self.both)
        return nn.functional.embedding(which, self.weight).t().contiguous().unfold(1, keys, 1).flip(1)
