"""An LSTM layer whose matrices are in eight bits, read on a CPU as one compiled function.

    W ≈ scale · Q        a scale for each row (layers/eight_bits.py); x and h keep up to sixteen bits

    for each step                                   x and the h before it as whole numbers
      for UNITS units, i f g o beside each other    their weights stay in the cache for all rows
        for up to ROWS rows                         sums of W x and of U h, exact (layers/byte_tiles.py)
          i f g o → c, h                            while they are there (layers/byte_gates.py)

|h| < 1, so what stands for 1 is known beforehand; a row of x is scaled by its own greatest number. Each thread takes
some of the texts through all of the steps, and waits for nobody. Where the machine or the tensors are of another kind,
the matrices are widened, and the layer is an ordinary one: so its gradients reach what it reads, but never itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.core.jit import OPTIONS, numba_jit, run_concurrently
from nextword.kernels.cpu_int8 import (
    COLUMNS,
    GATES,
    TILE_ROWS,
    UNITS,
    has_pair_products,
    limit,
    multiply_tile,
    pass_gates,
)
from nextword.layers.quantized import quantize_rows
from nextword.layers.recurrent import CellState, RecurrentLayer, Weights

fast: Any = numba_jit(**OPTIONS, fastmath=True)
FEW = 3  # texts of a thread: for fewer, all of the weights are read by one more thread


@fast
def whole(x: float) -> np.int32:
    """The nearest, of numbers from −32767 to 32767."""
    return np.int32(np.int32(x + np.float32(32768.5)) - 32768)


@fast
def multiply(rows: int, panel: int, pairs: int, x: np.ndarray, sums: int) -> None:
    """The first rows of x with a panel."""
    multiply_tile(rows, panel, pairs, x.ctypes.data, x.shape[1], sums)


@fast
def round_rows(x: np.ndarray, most: int, out: np.ndarray, scales: np.ndarray) -> None:
    """x ≈ scale · out, whole numbers up to `most`, a scale for each row."""
    for r in range(len(x)):
        top = np.float32(1e-30)
        for j in range(x.shape[1]):
            top = max(top, abs(x[r, j]))
        up = np.float32(most) / top
        for j in range(x.shape[1]):
            out[r, j] = whole(x[r, j] * up)
        scales[r] = top / np.float32(most)


@fast
def read(
    begin: int,  # these texts are this thread's
    end: int,
    x: np.ndarray,  # (T, B, inputs)
    from_input: np.ndarray,  # (blocks, 2, pairs, COLUMNS, 2) bytes
    from_state: np.ndarray,
    table: np.ndarray,  # (blocks, 3, 4 · UNITS): what a one of W x and of U h stands for, and the bias
    most: tuple[int, int],  # of the whole numbers of x and of h
    h: np.ndarray,  # (B, width) before
    c: np.ndarray,  # (B, padded) before, and then after
    out: np.ndarray,  # (T, B, padded)
) -> None:
    n, blocks = end - begin, len(table)
    groups = (n + TILE_ROWS - 1) // TILE_ROWS  # nearly equal
    pairs, one = (from_input.shape[2], from_state.shape[2]), np.float32(most[1])
    xs, scales = np.zeros((n, 2 * pairs[0]), np.int16), np.zeros(n, np.float32)
    before, after = np.zeros((n, blocks * UNITS), np.int16), np.zeros((n, blocks * UNITS), np.int16)
    sums = np.zeros((2, 2, TILE_ROWS, COLUMNS), np.int32)
    for r in range(n):
        for j in range(h.shape[1]):
            before[r, j] = whole(h[begin + r, j] * one)
    for t in range(len(x)):
        round_rows(x[t, begin:end], most[0], xs, scales)
        for b in range(blocks):
            for g in range(groups):
                first, rows = n * g // groups, n * (g + 1) // groups - n * g // groups
                for half in range(2):
                    to = sums[0, half].ctypes.data, sums[1, half].ctypes.data
                    multiply(rows, from_input[b, half].ctypes.data, pairs[0], xs[first:], to[0])
                    multiply(rows, from_state[b, half].ctypes.data, pairs[1], before[first:], to[1])
                for r in range(first, first + rows):
                    pass_gates(
                        table[b].ctypes.data,
                        sums[0, 0, r - first].ctypes.data,
                        scales[r],
                        one,
                        c[begin + r, b * UNITS :].ctypes.data,
                        out[t, begin + r, b * UNITS :].ctypes.data,
                        after[r, b * UNITS :].ctypes.data,
                    )
        before, after = after, before


def packed(q: Tensor, width: int) -> np.ndarray:
    """(4 · width, inputs) bytes → (blocks, 2, pairs, COLUMNS, 2), with zeros where there is no unit or input."""
    blocks, pairs = -(-width // UNITS), -(-q.shape[1] // 2)
    room = q.new_zeros(GATES, blocks * UNITS, 2 * pairs)
    room[:, :width, : q.shape[1]] = q.view(GATES, width, -1)
    laid = room.view(2, 2, blocks, UNITS, pairs, 2).permute(2, 0, 4, 1, 3, 5)
    return np.ascontiguousarray(laid.reshape(blocks, 2, pairs, COLUMNS, 2).numpy())


def listed(values: Tensor, width: int) -> Tensor:
    """(4 · width,) → (blocks, 4 · UNITS), in the order of the packed columns."""
    blocks = -(-width // UNITS)
    room = values.new_zeros(GATES, blocks * UNITS)
    room[:, :width] = values.view(GATES, width)
    return room.view(GATES, blocks, UNITS).transpose(0, 1).reshape(blocks, -1)


class Int8LSTM(RecurrentLayer):
    """In place of a layer of kind "lstm"."""

    scale_ih: Tensor
    scale_hh: Tensor

    def __init__(self, layer: RecurrentLayer) -> None:
        nn.Module.__init__(self)
        self.kind, self.width, self.leak, self.drop = layer.kind, layer.width, layer.leak, layer.drop
        for name in ("ih", "hh"):
            q, scale = quantize_rows(getattr(layer, f"weight_{name}"))
            self.register_buffer(f"weight_{name}", q)
            self.register_buffer(f"scale_{name}", scale)
            bias = getattr(layer, f"bias_{name}").detach().clone()
            self.register_parameter(f"bias_{name}", nn.Parameter(bias, requires_grad=False))
        self._laid: tuple[Any, ...] = (None, ())

    def weights(self) -> Weights:
        return (
            self.weight_ih * self.scale_ih.unsqueeze(1),
            self.weight_hh * self.scale_hh.unsqueeze(1),
            self.bias_ih,
            self.bias_hh,
        )

    def start(self, batch: int) -> CellState:
        return tuple(self.scale_hh.new_zeros(batch, self.width) for _ in range(self.kind.memories))

    def forward(self, x: Tensor, memory: CellState) -> tuple[Tensor, CellState]:
        learns = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *memory))
        if x.device.type == "cpu" and has_pair_products() and x.numel() and not learns:
            return self.compiled(x, memory)
        return super().forward(x, memory)

    def compiled(self, x: Tensor, memory: CellState) -> tuple[Tensor, CellState]:
        values = x.detach().float().contiguous().numpy()
        rows, padded = x.shape[1], -(-self.width // UNITS) * UNITS
        h, c, out = memory[0].float().contiguous(), torch.zeros(rows, padded), torch.empty(len(x), rows, padded)
        c[:, : self.width] = memory[1]
        given = values, *self.laid(), h.numpy(), c.numpy(), out.numpy()
        threads = min(torch.get_num_threads(), -(-rows // FEW))
        edges = [rows * t // threads for t in range(threads + 1)]
        run_concurrently(threads, lambda t: read(edges[t], edges[t + 1], *given))
        out = out[..., : self.width]
        return out, (out[-1], c[:, : self.width])

    def laid(self) -> tuple[Any, ...]:
        """The matrices as the tiles read them, the table and what numbers may be; kept until a matrix changes."""
        now = [(t.data_ptr(), t._version) for t in self.state_dict().values()]
        if self._laid[0] != now:
            most = limit(self.weight_ih.shape[1]), limit(self.width)
            lists = self.scale_ih, self.scale_hh / most[1], self.bias_ih + self.bias_hh
            table = torch.stack([listed(one.detach(), self.width) for one in lists], 1).contiguous().numpy()
            matrices = (packed(q, self.width) for q in (self.weight_ih, self.weight_hh))
            self._laid = now, (*matrices, table, most)
        return tuple(self._laid[1])
