"""Dropout whose mask stays the same over time, as recurrent networks need it.

    locked_dropout     one mask for all time steps of a row (Gal & Ghahramani 2016)
    drop_words         whole words: every occurrence of a word in the batch loses its vector, or none does
    drop_connections   single weights of a matrix (DropConnect, Wan et al. 2013), the same in forward and backward pass
    dropout            single numbers, as F.dropout, but faster on a CPU

What remains is scaled up, so that the expectation stays the same. Nothing is dropped in evaluation.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

MANY = 1 << 16  # on a CPU, masks with more entries than this are drawn from random bits


def locked_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """(T, B, D) with a mask (1, B, D)."""
    if not training or not p:
        return x
    mask, scale = _bernoulli(x.new_empty(1, *x.shape[1:]), p), 1 / (1 - p)
    # In 16 bits the scaled mask would be rounded, and the error would add up: scale separately
    return x * mask.mul_(scale) if mask.element_size() > 2 else x * mask * scale


def drop_words(embedding: Any, ids: Tensor, p: float, training: bool) -> Tensor:
    """Vectors of the ids, some words' vectors being zero in this batch; for any kind of embedding."""
    vectors = embedding(ids)
    if not training or not p:
        return vectors
    mask = _bernoulli(embedding.weight.new_empty(embedding.num_embeddings, 1), p)
    return vectors * F.embedding(ids, mask) * (1 / (1 - p))


def drop_connections(weight: Tensor, p: float, training: bool) -> Tensor:
    """The weight with some entries zero; gradients reach the others."""
    if not training or not p:
        return weight
    if weight.device.type != "cpu" or weight.numel() < MANY:
        return F.dropout(weight, p)
    return weight * _scaled_mask(weight, p)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    if not training or not p or x.device.type != "cpu" or x.numel() < MANY:
        return F.dropout(x, p, training)
    return x * _scaled_mask(x, p)


def _bernoulli(like: Tensor, p: float) -> Tensor:
    """Fill a tensor with zeros (probability p) and ones."""
    return like.bernoulli_(1 - p)


def _scaled_mask(like: Tensor, p: float) -> Tensor:
    """Zeros (probability p) and 1 / (1 − p), from random bits."""
    return (_random_int16(like.shape) >= p * 2**16 - 2**15).to(like.dtype).mul_(1 / (1 - p))


def _random_int16(shape: torch.Size) -> Tensor:
    """Sixteen random bits per entry, so that a probability is exact to 1 in 65,536.

    On a CPU `bernoulli_` draws a random number per entry: with millions of entries, 5 % of a training step.
    """
    n = shape.numel()
    bits = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    return bits.view(torch.int16)[:n].view(shape)
