"""Matrices in eight bits, for reading: a quarter of the memory, and where memory is what a step waits for, the time.

    W[i, j] ≈ scale[i] · Q[i, j]        Q whole numbers from −127 to 127, scale[i] the largest |W[i, ·]| over 127

Each row has a scale of its own (Dettmers et al. 2022 call it vector-wise). Products are summed in 32 bits with x as it
is, so the only error is the rounding of W. A few rows at a time on a CPU go through a compiled loop that reads each
byte once; otherwise the matrix is widened piece by piece and multiplied as usual. Such a network cannot be trained.
"""

from __future__ import annotations

import threading
from typing import Any

import numba
import numpy as np
import torch
import torch.nn.functional as F
from numba import prange
from torch import Tensor, nn

from nextword.compiled import make
from nextword.contract import IGNORE

_one_at_a_time = threading.Lock()  # one of numba's ways to share work among threads bears no second caller
FEW = 8  # rows that the compiled loop takes
PIECE = 1 << 22  # entries widened at once


@make(fastmath=True, nogil=True, cache=True, parallel=True, error_model="numpy")
def _few(q: np.ndarray, scale: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """out[r, i] = scale[i] · Σ_j q[i, j] x[r, j]; four rows of q at a time, so that x is read once for them."""
    size, width = q.shape
    for block in prange((size + 3) // 4):
        i = 4 * block
        if i + 4 <= size:
            for r in range(len(x)):
                a = b = c = d = np.float32(0)
                for j in range(width):
                    v = x[r, j]
                    a += np.float32(q[i, j]) * v
                    b += np.float32(q[i + 1, j]) * v
                    c += np.float32(q[i + 2, j]) * v
                    d += np.float32(q[i + 3, j]) * v
                out[r, i] = a * scale[i]
                out[r, i + 1] = b * scale[i + 1]
                out[r, i + 2] = c * scale[i + 2]
                out[r, i + 3] = d * scale[i + 3]
        else:
            for r in range(len(x)):
                for k in range(i, size):
                    a = np.float32(0)
                    for j in range(width):
                        a += np.float32(q[k, j]) * x[r, j]
                    out[r, k] = a * scale[k]


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(N, D) → whole numbers (N, D) in eight bits, and the scale of each row (N,)."""
    scale = weight.detach().float().abs().amax(1).clamp(min=1e-12) / 127
    return (weight.detach().float() / scale.unsqueeze(1)).round().to(torch.int8), scale


def product(x: Tensor, q: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """(…, D), (N, D), (N,) → (…, N)."""
    flat = x.reshape(-1, x.shape[-1])
    y = _compiled(flat, q, scale) if not x.is_cuda and len(flat) <= FEW else _widened(flat, q, scale)
    if bias is not None:
        y = y + bias
    return y.view(*x.shape[:-1], -1).to(x.dtype)


def _compiled(x: Tensor, q: Tensor, scale: Tensor) -> Tensor:
    out = torch.empty(len(x), len(q))
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(min(torch.get_num_threads(), most))
    with _one_at_a_time:
        _few(q.numpy(), scale.numpy(), x.float().contiguous().numpy(), out.numpy())
    return out


def _widened(x: Tensor, q: Tensor, scale: Tensor) -> Tensor:
    step = max(1, PIECE // q.shape[1])
    parts = [F.linear(x, q[i : i + step].to(x.dtype)) for i in range(0, len(q), step)]
    return torch.cat(parts, -1).float() * scale


class EightBits(nn.Module):
    """In place of a linear layer."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, scale = rounded(layer.weight)
        self.weight: Tensor
        self.scale: Tensor
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return product(x, self.weight, self.scale, self.bias)


class EightBitsEmbedding(nn.Module):
    """In place of an embedding: its rows are widened when they are looked up."""

    def __init__(self, layer: nn.Embedding) -> None:
        super().__init__()
        self.num_embeddings = layer.num_embeddings
        weight, scale = rounded(layer.weight)
        self.weight: Tensor
        self.scale: Tensor
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight).float() * self.scale[ids].unsqueeze(-1)


class EightBitsTied(nn.Module):
    """The readout over such an embedding."""

    def __init__(self, embedding: EightBitsEmbedding) -> None:
        super().__init__()
        self.tied = (embedding,)  # the network's own
        self.bias = None

    def logits(self, h: Tensor) -> Tensor:
        return product(h, self.tied[0].weight, self.tied[0].scale).float()

    def log_probs(self, h: Tensor) -> Tensor:
        return F.log_softmax(self.logits(h), -1)

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        step = max(1, (PIECE << 3) // self.tied[0].num_embeddings)  # rows whose logits are held at once
        parts = [
            F.cross_entropy(self.logits(h[i : i + step]), targets[i : i + step], ignore_index=IGNORE, reduction="none")
            for i in range(0, len(h), step)
        ]
        return torch.cat(parts) if parts else h.new_zeros(0)

    def total(self, h: Tensor, targets: Tensor) -> Tensor:
        return self.nll(h, targets).sum()


def narrow(network: Any) -> None:
    """Replace every linear layer, the embedding of tokens and the readout over it; positions and norms stay."""
    network.stored = sum(p.numel() for p in network.parameters())  # how many numbers it has, in whatever form
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, EightBits(child))
    network.embedding = EightBitsEmbedding(network.embedding)
    network.readout = EightBitsTied(network.embedding)
