"""Recurrent layers: the readable cell is the reference; torch's fused kernel is the fast path, tested equal to it.

A cell is a function (x, state, weights) → state of one time step. `RecurrentLayer` runs it over time, step by step or
with the fused kernel. Both use the same four tensors, named as torch names them:

    weight_ih (G·D, I)   weight_hh (G·D, D)   bias_ih (G·D,)   bias_hh (G·D,)      G gates: 1 tanh, 3 GRU, 4 LSTM
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.layers.dropout import drop_connections

Weights = tuple[Tensor, Tensor, Tensor, Tensor]
CellState = tuple[Tensor, ...]  # (h,), or (h, c) for the LSTM; each (B, D)


def tanh_cell(x: Tensor, state: CellState, w: Weights) -> CellState:
    """Elman 1990: h' = tanh(W x + U h + b)."""
    (h,) = state
    return (torch.tanh(F.linear(x, w[0], w[2]) + F.linear(h, w[1], w[3])),)


def relu_cell(x: Tensor, state: CellState, w: Weights) -> CellState:
    (h,) = state
    return (torch.relu(F.linear(x, w[0], w[2]) + F.linear(h, w[1], w[3])),)


def gru_cell(x: Tensor, state: CellState, w: Weights) -> CellState:
    """Cho et al. 2014, as torch and cuDNN compute it: the reset gate acts after the product with U."""
    return gru_gates(F.linear(x, w[0], w[2]), F.linear(state[0], w[1], w[3]), state)


def gru_gates(from_input: Tensor, from_state: Tensor, state: CellState) -> CellState:
    """The gates, given both products (B, 3 D)."""
    (h,) = state
    rx, zx, nx = from_input.chunk(3, -1)
    rh, zh, nh = from_state.chunk(3, -1)
    reset, update = torch.sigmoid(rx + rh), torch.sigmoid(zx + zh)
    candidate = torch.tanh(nx + reset * nh)
    return (candidate + update * (h - candidate),)


def lstm_cell(x: Tensor, state: CellState, w: Weights) -> CellState:
    """Hochreiter & Schmidhuber 1997 with the forget gate of Gers 2000. The cell state changes by addition only."""
    return lstm_gates(F.linear(x, w[0], w[2]), F.linear(state[0], w[1], w[3]), state)


def lstm_gates(from_input: Tensor, from_state: Tensor, state: CellState) -> CellState:
    """The gates, given both products (B, 4 D)."""
    _, c = state
    i, f, g, o = (from_input + from_state).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@dataclass(frozen=True)
class Cell:
    cell: Callable[[Tensor, CellState, Weights], CellState]
    gates: int
    memories: int  # tensors in its state
    fused: str  # name of torch's kernel


CELLS = {
    "tanh": Cell(tanh_cell, 1, 1, "rnn_tanh"),
    "relu": Cell(relu_cell, 1, 1, "rnn_relu"),
    "gru": Cell(gru_cell, 3, 1, "gru"),
    "lstm": Cell(lstm_cell, 4, 2, "lstm"),
}


GATES = {"gru": gru_gates, "lstm": lstm_gates}


@contextlib.contextmanager
def same_tf32_as_matmul(x: Tensor) -> Iterator[None]:
    """Round to tf32 only where matrix products do; by default torch lets cuDNN do so in recurrent layers anyway."""
    if not x.is_cuda:
        yield
        return
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


class RecurrentLayer(nn.Module):
    """One recurrent layer over time-major input. `leak` α averages states: h = α h' + (1 − α) cell(x, h').

    `drop` is DropConnect of (input weights, recurrent weights), with one mask per sequence.
    """

    def __init__(
        self, kind: str, inputs: int, width: int, leak: float = 0.0, drop: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        super().__init__()
        self.kind, self.width, self.leak, self.drop = CELLS[kind], width, leak, drop
        rows = self.kind.gates * width
        self.weight_ih = nn.Parameter(torch.empty(rows, inputs))
        self.weight_hh = nn.Parameter(torch.empty(rows, width))
        self.bias_ih = nn.Parameter(torch.zeros(rows))
        self.bias_hh = nn.Parameter(torch.zeros(rows))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)

    def weights(self) -> Weights:
        """The weights for one sequence; each call draws new DropConnect masks."""
        matrices = zip((self.weight_ih, self.weight_hh), self.drop, strict=True)
        from_input, from_state = (drop_connections(weight, share, self.training) for weight, share in matrices)
        return from_input, from_state, self.bias_ih, self.bias_hh

    def start(self, batch: int) -> CellState:
        return tuple(self.weight_hh.new_zeros(batch, self.width) for _ in range(self.kind.memories))

    def forward(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """(T, B, I), state → (T, B, D), state after the last step."""
        # For a single step on a CPU, setting up the kernel costs up to ten times the step
        single = len(x) == 1 and not x.is_cuda
        return self.stepwise(x, state) if self.leak or single else self.fused(x, state)

    def stepwise(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """The reference, step by step."""
        outputs, weights = [], self.weights()
        for x_t in x:
            new = self.kind.cell(x_t, state, weights)
            if self.leak:
                new = tuple(self.leak * old + (1 - self.leak) * now for old, now in zip(state, new, strict=True))
            state = new
            outputs.append(state[0])
        return torch.stack(outputs), state

    def fused(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        kernel: Any = vars(torch)[self.kind.fused]
        weights = self.weights()
        if x.is_cuda and torch.is_autocast_enabled("cuda"):
            # torch would cast its weights to float16, whatever the autocast type
            narrow = torch.get_autocast_dtype("cuda")
            x, weights = x.to(narrow), tuple(w.to(narrow) for w in weights)  # type: ignore[assignment]
        else:
            x = x.to(weights[0].dtype)  # on a CPU under autocast, the layer below may return 16 bits
        before = [m.unsqueeze(0).to(x.dtype) for m in state]
        with torch.autocast(x.device.type, enabled=False), same_tf32_as_matmul(x), warnings.catch_warnings():
            # cuDNN wants the weights in one block and copies them at each call. That takes microseconds, and is no
            # reason to store them in a form that neither the optimizer nor the file has.
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            # arguments: has biases, layers, dropout, training, bidirectional, batch first
            y, *after = kernel(
                x, before if len(before) == 2 else before[0], list(weights), True, 1, 0.0, self.training, False, False
            )
        return y, tuple(m.squeeze(0) for m in after)


def reverse_padded(x: Tensor, lengths: Tensor) -> Tensor:
    """(B, S, …) with the first `length` entries of each row in reverse order; padding stays at the end."""
    at = torch.arange(x.shape[1], device=x.device)
    back = lengths.unsqueeze(1) - 1 - at
    at = torch.where(back >= 0, back, at)
    return x.gather(1, at.view(*at.shape, *[1] * (x.dim() - 2)).expand(x.shape))
