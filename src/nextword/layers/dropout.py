"""Dropout that stays in place over time, as a recurrent network needs it: one mask for a whole sequence.

    locked      one mask for all time steps of a row, so that a unit is there or not there (Gal & Ghahramani 2016)
    words       whole words: every occurrence of a word in the batch loses its vector, or none does
    connections single weights of a matrix (DropConnect, Wan et al. 2013), one mask for forward and backward together

What is kept is scaled up, so that the expectation is what it was. Nothing is dropped in evaluation.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

MANY = 1 << 16  # entries: on the CPU, from here on masks are drawn from bits


def locked(x: Tensor, share: float, training: bool) -> Tensor:
    """(T, B, D): the mask is (1, B, D)."""
    if not training or not share:
        return x
    kept, scale = _mask(x.new_empty(1, *x.shape[1:]), share), 1 / (1 - share)
    return x * kept.mul_(scale) if kept.element_size() > 2 else x * kept * scale


def words(embedding: Any, ids: Tensor, share: float, training: bool) -> Tensor:
    """Vectors of the ids, from a matrix some of whose rows are zero for this batch; an embedding of any kind."""
    vectors = embedding(ids)
    if not training or not share:
        return vectors
    kept = _mask(embedding.weight.new_empty(embedding.num_embeddings, 1), share)
    return vectors * F.embedding(ids, kept) * (1 / (1 - share))


def connections(weight: Tensor, share: float, training: bool) -> Tensor:
    """The weight with some entries zero; its gradient reaches the entries that were there."""
    if not training or not share:
        return weight
    if weight.device.type != "cpu" or weight.numel() < MANY:
        return F.dropout(weight, share)
    return weight * _kept(weight, share)


def dropped(x: Tensor, share: float, training: bool) -> Tensor:
    """Single numbers, each by itself: `F.dropout`, and on the CPU faster."""
    if not training or not share or x.device.type != "cpu" or x.numel() < MANY:
        return F.dropout(x, share, training)
    return x * _kept(x, share)


def _kept(like: Tensor, share: float) -> Tensor:
    """From random bits on the CPU: 0, or what keeps the expectation."""
    return (_bits(like.shape) >= share * 2**16 - 2**15).to(like.dtype).mul_(1 / (1 - share))


def _mask(like: Tensor, share: float) -> Tensor:
    """Ones and zeros; the scale comes apart, for in 16 bits it would be rounded, and the rounding would add up."""
    return like.bernoulli_(1 - share)


def _bits(shape: torch.Size) -> Tensor:
    """Sixteen random bits each, so that a share is true to 1 in 65,536.

    On the CPU `bernoulli_` takes a number of its own for each entry: with millions of them, a twentieth of a step.
    """
    n = shape.numel()
    drawn = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    return drawn.view(torch.int16)[:n].view(shape)
