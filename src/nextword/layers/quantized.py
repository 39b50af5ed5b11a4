"""Matrices in eight bits, for reading: a quarter of the memory, and where memory is what a step waits for, the time.

    W[i, j] ≈ scale[i] · Q[i, j]        Q whole numbers from −127 to 127, scale[i] the largest |W[i, ·]| over 127

Each row has a scale of its own (Dettmers et al. 2022 call it vector-wise). x is as it is, or in sixteen bits, so the
only error that can be felt is the rounding of W. A few rows at a time go, on a CPU, through a compiled loop that reads
each byte once (layers/dots.py); otherwise the matrix is widened piece by piece and multiplied as usual. Such a network
cannot be trained.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import IGNORE
from nextword.kernels.cpu_int8 import LANES, ROWS, has_byte_products
from nextword.kernels.cpu_matmul import multiply, room
from nextword.layers.output.base import Readout

FEW = 64 if has_byte_products() else 8  # rows that the compiled loop takes
PIECE = 1 << 22  # entries widened at once


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(N, D) → whole numbers (N, D) in eight bits, and the scale of each row (N,)."""
    if not torch.isfinite(weight).all():
        raise NextwordError(
            "A weight of this run is infinite or no number, which eight bits cannot hold: training went astray. Train "
            "it again, at a smaller rate."
        )
    scale = weight.detach().float().abs().amax(1).clamp(min=1e-12) / 127
    return (weight.detach().float() / scale.unsqueeze(1)).round().to(torch.int8), scale


class RowSums:
    """Of each row of a matrix of bytes, kept until the matrix changes."""

    def __init__(self) -> None:
        self.of: tuple[int, int] | None = None
        self.sums = torch.zeros(0, dtype=torch.int32)

    def __call__(self, q: Tensor) -> Tensor:
        now = (q.data_ptr(), q._version)
        if self.of != now:
            self.of, self.sums = now, q.sum(1, dtype=torch.int32)
        return self.sums


def int8_linear(x: Tensor, q: Tensor, scale: Tensor, sums: RowSums, bias: Tensor | None = None) -> Tensor:
    """(…, D), (N, D), (N,) → (…, N)."""
    flat = x.reshape(-1, x.shape[-1])
    suits = 0 < len(flat) <= FEW and not q.shape[1] % (4 * LANES) and len(q) >= ROWS
    if suits and x.device.type == "cpu":
        y = _multiplied(flat, q, scale, sums(q))
    else:
        y = _widened(flat, q, scale)
    if bias is not None:
        y = y + bias
    return y.view(*x.shape[:-1], -1).to(x.dtype)


def _multiplied(x: Tensor, q: Tensor, scale: Tensor, sums: Tensor) -> Tensor:
    out = torch.empty(len(x), len(q))
    matrix = np.array([q.data_ptr(), scale.data_ptr(), sums.data_ptr(), 0])
    rows, width = q.shape
    values, to = x.detach().float().contiguous().numpy(), out.numpy()
    # on this thread alone: torch's own wait for more work for a while, and others would wait for them
    multiply(matrix, rows, width, 0, 1, values, room(len(values), width), True, to)
    return out


def _widened(x: Tensor, q: Tensor, scale: Tensor) -> Tensor:
    step = max(1, PIECE // q.shape[1])
    parts = [F.linear(x, q[i : i + step].to(x.dtype)) for i in range(0, len(q), step)]
    return torch.cat(parts, -1).float() * scale


class Int8Linear(nn.Module):
    """In place of a linear layer."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, scale = quantize_rows(layer.weight)
        self.weight: Tensor
        self.scale: Tensor
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.sums = RowSums()
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return int8_linear(x, self.weight, self.scale, self.sums, self.bias)


class Int8Embedding(nn.Module):
    """In place of an embedding: its rows are widened when they are looked up."""

    def __init__(self, layer: nn.Embedding) -> None:
        super().__init__()
        self.num_embeddings = layer.num_embeddings
        self.sums = RowSums()
        weight, scale = quantize_rows(layer.weight)
        self.weight: Tensor
        self.scale: Tensor
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)

    def forward(self, ids: Tensor) -> Tensor:
        return self.weight[ids] * self.scale[ids].unsqueeze(-1)

    def table(self) -> Tensor:
        """All rows, widened."""
        return self.weight * self.scale.unsqueeze(-1)


class Int8TiedSoftmax(Readout):
    """The readout over such an embedding."""

    def __init__(self, embedding: Int8Embedding, bias: Tensor | None = None) -> None:
        super().__init__()
        self.tied = (embedding,)  # the network's own
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)

    def logits(self, h: Tensor) -> Tensor:
        return int8_linear(h, self.tied[0].weight, self.tied[0].scale, self.tied[0].sums, self.bias).float()

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


def quantize_network(network: Any) -> None:
    """Replace every linear layer, the embedding of tokens and the readout over it; positions and norms stay."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))
    network.embedding = Int8Embedding(network.embedding)
    network.readout = Int8TiedSoftmax(network.embedding)
