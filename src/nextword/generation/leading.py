"""The greatest of many scores, the first of equals first, on any device.

`topk` breaks ties as it likes, and then a beam of one would not be greedy. A long row is looked at in blocks first: the
k greatest lie in the k blocks with the greatest maxima, if of equal blocks the first counts as well.

    scores (R, V) ──maxima──▶ (R, V / 128) ──k blocks──▶ scores (R, k · 128) ──▶ k ids
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BLOCK = 128
SHORT = 4  # a row of fewer blocks for each of the k is looked at as it is


def waits(tensor: Tensor) -> bool:
    """Whether to ask a tensor for its values holds up what comes after it: everywhere but on a CPU."""
    return tensor.device.type != "cpu"


def leading(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Of each row (..., V), the k greatest scores and their ids (..., k), in the order of the ids."""
    size = scores.shape[-1]
    if k >= size:
        return scores, torch.arange(size, device=scores.device).expand(scores.shape)
    if size < SHORT * BLOCK * k:
        ids = _chosen(scores, k)
        return scores.gather(-1, ids), ids
    whole = size // BLOCK * BLOCK
    maxima = scores[..., :whole].unflatten(-1, (-1, BLOCK)).amax(-1)
    if whole < size:
        maxima = torch.cat([maxima, scores[..., whole:].amax(-1, keepdim=True)], -1)
    blocks = _chosen(maxima, k)
    ids = (blocks.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=scores.device)).flatten(-2)
    few = scores.gather(-1, ids.clamp(max=size - 1)).masked_fill_(ids >= size, -math.inf)
    at = _chosen(few, k)
    return few.gather(-1, at), ids.gather(-1, at).clamp_(max=size - 1)


def _chosen(scores: Tensor, k: int) -> Tensor:
    """Where the k greatest stand, in the order of their places."""
    if not waits(scores):  # elsewhere, to ask whether there are ties costs more than to settle them
        found = scores.topk(k + 1)
        last, next_one = found.values[..., k - 1], found.values[..., k]
        if not bool(((last == next_one) & (last > -math.inf)).any()):
            return found.indices[..., :k].sort(-1).values
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :k].sort(-1).values


def top(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k greatest of (..., N), or all if they are fewer, and where they stand: greatest first, the first of equals
    first.
    """
    k = min(k, values.shape[-1])
    if k < 1:
        return values[..., :0], values[..., :0].long()
    found, at = leading(values, k)
    ordered = found.sort(dim=-1, descending=True, stable=True)
    return ordered.values, at.gather(-1, ordered.indices)
