"""An int8 LSTM layer on a CPU as one compiled function.

Reference: `Int8LSTM.forward` of layers/quantized.py with dequantized matrices (tests/unit/kernels/test_int8_lstm.py).
Selected in `Int8LSTM.forward`, on CPUs with AVX2, where no gradient is needed.

    W ≈ scale · Q        one scale per row; x and h are quantized to up to sixteen bits

    for each step                                     quantize x and the previous h
      for UNITS units, i f g o side by side           their weights stay in the cache for all rows
        for up to TILE_ROWS rows                      integer sums of W x and of U h, exact (cpu_int8.py)
          i f g o → c, h                              while the sums are in registers

|h| < 1, so its scale is known beforehand; each row of x is scaled by its own largest number. Each thread takes some of
the texts through all steps and waits for nobody.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.core.jit import OPTIONS, numba_jit, run_concurrently
from nextword.kernels.cpu_int8 import (
    COLUMNS,
    GATES,
    TILE_ROWS,
    UNITS,
    multiply_tile,
    pass_gates,
)

fast: Any = numba_jit(**OPTIONS, fastmath=True)
FEW = 3  # texts of a thread: for fewer, all of the weights are read by one more thread


@fast
def round_int16(x: float) -> np.int32:
    """The nearest, of numbers from −32767 to 32767."""
    return np.int32(np.int32(x + np.float32(32768.5)) - 32768)


@fast
def multiply_rows(rows: int, panel: int, pairs: int, x: np.ndarray, sums: int) -> None:
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
            out[r, j] = round_int16(x[r, j] * up)
        scales[r] = top / np.float32(most)


@fast
def run_lstm(
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
            before[r, j] = round_int16(h[begin + r, j] * one)
    for t in range(len(x)):
        round_rows(x[t, begin:end], most[0], xs, scales)
        for b in range(blocks):
            for g in range(groups):
                first, rows = n * g // groups, n * (g + 1) // groups - n * g // groups
                for half in range(2):
                    to = sums[0, half].ctypes.data, sums[1, half].ctypes.data
                    multiply_rows(rows, from_input[b, half].ctypes.data, pairs[0], xs[first:], to[0])
                    multiply_rows(rows, from_state[b, half].ctypes.data, pairs[1], before[first:], to[1])
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


def pack_matrix(q: Tensor, width: int) -> np.ndarray:
    """(4 · width, inputs) bytes → (blocks, 2, pairs, COLUMNS, 2), with zeros where there is no unit or input."""
    blocks, pairs = -(-width // UNITS), -(-q.shape[1] // 2)
    room = q.new_zeros(GATES, blocks * UNITS, 2 * pairs)
    room[:, :width, : q.shape[1]] = q.view(GATES, width, -1)
    laid = room.view(2, 2, blocks, UNITS, pairs, 2).permute(2, 0, 4, 1, 3, 5)
    return np.ascontiguousarray(laid.reshape(blocks, 2, pairs, COLUMNS, 2).numpy())


def pack_rows(values: Tensor, width: int) -> Tensor:
    """(4 · width,) → (blocks, 4 · UNITS), in the order of the packed columns."""
    blocks = -(-width // UNITS)
    room = values.new_zeros(GATES, blocks * UNITS)
    room[:, :width] = values.view(GATES, width)
    return room.view(GATES, blocks, UNITS).transpose(0, 1).reshape(blocks, -1)


def run_threads(x: Tensor, tables: tuple[Any, ...], h: Tensor, c: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """(T, B, I), packed matrices, h and c (B, D) → outputs (T, B, D) and the last c (B, D)."""
    values = x.detach().float().contiguous().numpy()
    rows, padded = x.shape[1], -(-width // UNITS) * UNITS
    h, cells, out = h.float().contiguous(), torch.zeros(rows, padded), torch.empty(len(x), rows, padded)
    cells[:, :width] = c
    arguments = values, *tables, h.numpy(), cells.numpy(), out.numpy()
    threads = min(torch.get_num_threads(), -(-rows // FEW))
    edges = [rows * t // threads for t in range(threads + 1)]
    run_concurrently(threads, lambda t: run_lstm(edges[t], edges[t + 1], *arguments))
    return out[..., :width], cells[:, :width]
