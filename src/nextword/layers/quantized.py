"""Int8 weights, for inference: a quarter of the memory, and of the time where memory bandwidth is the bottleneck.

    W[i, j] ≈ scale[i] · Q[i, j]        Q integers from −127 to 127, scale[i] = max |W[i, ·]| / 127

Each row has its own scale (vector-wise quantization, Dettmers et al. 2022). The input stays in float32, or in sixteen
bits, so the only noticeable error is that of W. For a few rows on a CPU, a compiled loop reads each byte once
(kernels/cpu_matmul.py); otherwise the matrix is dequantized piece by piece. A quantized network cannot be trained.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import TrainingDiverged
from nextword.core.types import IGNORE
from nextword.kernels.cpu_int8 import (
    LANES,
    ROWS,
    has_byte_products,
    has_pair_products,
    limit,
    pack_matrix,
    pack_rows,
    run_int8_lstm,
)
from nextword.kernels.cpu_matmul import multiply, multiply_buffers
from nextword.layers.output.base import Readout
from nextword.layers.recurrent import CellState, RecurrentLayer, Weights

FEW = 64 if has_byte_products() else 8  # at most so many rows go through the compiled loop
PIECE = 1 << 22  # entries that are dequantized at once


def quantize_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(N, D) → int8 (N, D), and the scale of each row (N,)."""
    if not weight.is_meta and not torch.isfinite(weight).all():
        raise TrainingDiverged(
            "A weight is infinite or NaN, so it cannot be quantized: training diverged. Train again with a lower "
            "learning rate."
        )
    scale = weight.detach().float().abs().amax(1).clamp(min=1e-12) / 127
    return (weight.detach().float() / scale.unsqueeze(1)).round().to(torch.int8), scale


class RowSums:
    """The sum of each row of an int8 matrix, cached until the matrix changes."""

    def __init__(self) -> None:
        self.version: tuple[int, int] | None = None
        self.sums = torch.zeros(0, dtype=torch.int32)

    def __call__(self, q: Tensor) -> Tensor:
        version = (q.data_ptr(), q._version)
        if self.version != version:
            self.version, self.sums = version, q.sum(1, dtype=torch.int32)
        return self.sums


def int8_linear(x: Tensor, q: Tensor, scale: Tensor, sums: RowSums, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b: (…, D), (N, D), (N,) → (…, N)."""
    flat = x.reshape(-1, x.shape[-1])
    is_small = 0 < len(flat) <= FEW and not q.shape[1] % (4 * LANES) and len(q) >= ROWS
    if is_small and x.device.type == "cpu":
        y = _multiply_compiled(flat, q, scale, sums(q))
    else:
        y = _multiply_dequantized(flat, q, scale)
    if bias is not None:
        y = y + bias
    return y.view(*x.shape[:-1], -1).to(x.dtype)


def _multiply_compiled(x: Tensor, q: Tensor, scale: Tensor, sums: Tensor) -> Tensor:
    out = torch.empty(len(x), len(q))
    matrix = np.array([q.data_ptr(), scale.data_ptr(), sums.data_ptr(), 0])
    rows, width = q.shape
    values, to = x.detach().float().contiguous().numpy(), out.numpy()
    # On this thread only: torch's threads spin for a while after their work, and ours would wait for them
    multiply(matrix, rows, width, 0, 1, values, multiply_buffers(len(values), width), True, to)
    return out


def _multiply_dequantized(x: Tensor, q: Tensor, scale: Tensor) -> Tensor:
    step = max(1, PIECE // q.shape[1])
    parts = [F.linear(x, q[i : i + step].to(x.dtype)) for i in range(0, len(q), step)]
    return torch.cat(parts, -1).float() * scale


class Int8Linear(nn.Module):
    """In place of nn.Linear."""

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
    """In place of nn.Embedding: rows are dequantized when they are looked up."""

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
        """All rows, dequantized."""
        return self.weight * self.scale.unsqueeze(-1)


class Int8TiedSoftmax(Readout):
    """In place of TiedSoftmax, over an Int8Embedding."""

    def __init__(self, embedding: Int8Embedding, bias: Tensor | None = None) -> None:
        super().__init__()
        self.tied: tuple[Int8Embedding] = (embedding,)  # in a tuple, so that it is registered with the network only
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)

    def logits(self, h: Tensor) -> Tensor:
        return int8_linear(h, self.tied[0].weight, self.tied[0].scale, self.tied[0].sums, self.bias).float()

    def log_probs(self, h: Tensor) -> Tensor:
        return F.log_softmax(self.logits(h), -1)

    def nll(self, h: Tensor, targets: Tensor) -> Tensor:
        step = max(1, (PIECE << 3) // self.tied[0].num_embeddings)  # rows whose logits are in memory at once
        parts = [
            F.cross_entropy(self.logits(h[i : i + step]), targets[i : i + step], ignore_index=IGNORE, reduction="none")
            for i in range(0, len(h), step)
        ]
        return torch.cat(parts) if parts else h.new_zeros(0)


class Int8LSTM(RecurrentLayer):
    """An LSTM layer with int8 matrices. It computes with dequantized matrices, or, without gradients on a CPU, with a
    compiled function (kernels/cpu_int8.py). Gradients reach its input, but never its weights.
    """

    scale_ih: Tensor
    scale_hh: Tensor

    def __init__(self, layer: RecurrentLayer) -> None:
        nn.Module.__init__(self)
        self.kind, self.width, self.leak, self.drop = layer.kind, layer.width, layer.leak, layer.drop
        for name, weight, bias in (
            ("ih", layer.weight_ih, layer.bias_ih),
            ("hh", layer.weight_hh, layer.bias_hh),
        ):
            q, scale = quantize_rows(weight)
            self.register_buffer(f"weight_{name}", q)
            self.register_buffer(f"scale_{name}", scale)
            self.register_parameter(f"bias_{name}", nn.Parameter(bias.detach().clone(), requires_grad=False))
        self._packed: tuple[Any, tuple[Any, ...]] = (None, ())

    def weights(self) -> Weights:
        return (
            self.weight_ih * self.scale_ih.unsqueeze(1),
            self.weight_hh * self.scale_hh.unsqueeze(1),
            self.bias_ih,
            self.bias_hh,
        )

    def start(self, batch: int) -> CellState:
        return tuple(self.scale_hh.new_zeros(batch, self.width) for _ in range(self.kind.memories))

    def forward(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *state))
        if x.device.type == "cpu" and has_pair_products() and x.numel() and not needs_grad:
            return self.compiled(x, state)
        return super().forward(x, state)

    def compiled(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        h, c = state
        y, c = run_int8_lstm(x, self._pack(), h, c, self.width)
        return y, (y[-1], c)

    def _pack(self) -> tuple[Any, ...]:
        """The matrices as the kernel reads them, the scales and biases, and the ranges; kept until a matrix changes."""
        version = [(t.data_ptr(), t._version) for t in self.state_dict().values()]
        if self._packed[0] != version:
            ranges = limit(self.weight_ih.shape[1]), limit(self.width)
            lists = self.scale_ih, self.scale_hh / ranges[1], self.bias_ih + self.bias_hh
            rows = [pack_rows(values.detach(), self.width) for values in lists]
            matrices = (pack_matrix(q, self.width) for q in (self.weight_ih, self.weight_hh))
            self._packed = version, (*matrices, torch.stack(rows, 1).contiguous().numpy(), ranges)
        return self._packed[1]


def quantize_network(network: Any) -> None:
    """Replace all linear layers, the token embedding and the tied readout; positions and norms stay."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))
    network.embedding = Int8Embedding(network.embedding)
    network.readout = Int8TiedSoftmax(network.embedding)
