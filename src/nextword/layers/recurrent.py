"""Recurrent layers: the readable cell is the definition, torch's fused kernel is the fast path, tested equal to it.

A cell is a function (x, state, weights) → state, one time step. `Layer` runs one over time, either step by step with
the cell or at once with the fused kernel; both read the same four tensors, named as torch names them:

    weight_ih (G·D, I)   weight_hh (G·D, D)   bias_ih (G·D,)   bias_hh (G·D,)      G gates: 1 tanh, 3 GRU, 4 LSTM
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.layers.dropout import drop_connections

Weights = tuple[Tensor, Tensor, Tensor, Tensor]
CellState = tuple[Tensor, ...]  # (h,), or (h, c) for the LSTM; each (B, D)


def tanh_cell(x: Tensor, memory: CellState, w: Weights) -> CellState:
    """Elman 1990: h' = tanh(W x + U h + b)."""
    (h,) = memory
    return (torch.tanh(F.linear(x, w[0], w[2]) + F.linear(h, w[1], w[3])),)


def relu_cell(x: Tensor, memory: CellState, w: Weights) -> CellState:
    (h,) = memory
    return (torch.relu(F.linear(x, w[0], w[2]) + F.linear(h, w[1], w[3])),)


def gru_cell(x: Tensor, memory: CellState, w: Weights) -> CellState:
    """Cho et al. 2014, in the form torch and cuDNN compute: the reset gate acts after the product with U."""
    return gru_gates(F.linear(x, w[0], w[2]), F.linear(memory[0], w[1], w[3]), memory)


def gru_gates(from_input: Tensor, from_state: Tensor, memory: CellState) -> CellState:
    """What is left to do once both products are there, each (B, 3 D)."""
    (h,) = memory
    rx, zx, nx = from_input.chunk(3, -1)
    rh, zh, nh = from_state.chunk(3, -1)
    reset, update = torch.sigmoid(rx + rh), torch.sigmoid(zx + zh)
    candidate = torch.tanh(nx + reset * nh)
    return (candidate + update * (h - candidate),)


def lstm_cell(x: Tensor, memory: CellState, w: Weights) -> CellState:
    """Hochreiter & Schmidhuber 1997 with the forget gate of Gers 2000. The cell state is changed by addition alone."""
    return lstm_gates(F.linear(x, w[0], w[2]), F.linear(memory[0], w[1], w[3]), memory)


def lstm_gates(from_input: Tensor, from_state: Tensor, memory: CellState) -> CellState:
    """What is left to do once both products are there, each (B, 4 D)."""
    _, c = memory
    i, f, g, o = (from_input + from_state).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@dataclass(frozen=True)
class Cell:
    cell: Callable[[Tensor, CellState, Weights], CellState]
    gates: int
    memories: int  # tensors in its memory
    fused: str  # torch's kernel


CELLS = {
    "tanh": Cell(tanh_cell, 1, 1, "rnn_tanh"),
    "relu": Cell(relu_cell, 1, 1, "rnn_relu"),
    "gru": Cell(gru_cell, 3, 1, "gru"),
    "lstm": Cell(lstm_cell, 4, 2, "lstm"),
}


@contextlib.contextmanager
def rounding_as_products(x: Tensor) -> Iterator[None]:
    """By itself torch lets cuDNN round the operands of recurrent layers to tf32, but not those of matrix products."""
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
    """One recurrent layer over time-major input. `leak` α mixes old state in: h = α h' + (1 − α) cell(x, h').

    `drop` is the share of connections (from input, from state) that are cut while training, anew for each sequence.
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
        """As they are for one sequence: asking again draws other connections to cut."""
        matrices = zip((self.weight_ih, self.weight_hh), self.drop, strict=True)
        from_input, from_state = (drop_connections(weight, share, self.training) for weight, share in matrices)
        return from_input, from_state, self.bias_ih, self.bias_hh

    def start(self, batch: int) -> CellState:
        return tuple(self.weight_hh.new_zeros(batch, self.width) for _ in range(self.kind.memories))

    def forward(self, x: Tensor, memory: CellState) -> tuple[Tensor, CellState]:
        """(T, B, I), memory → (T, B, D), memory after the last step."""
        # For a single step on the CPU the kernel's set-up costs up to ten times the step
        single = len(x) == 1 and not x.is_cuda
        return self.stepwise(x, memory) if self.leak or single else self.fused(x, memory)

    def stepwise(self, x: Tensor, memory: CellState) -> tuple[Tensor, CellState]:
        """The definition, one step after the other."""
        outputs, weights = [], self.weights()
        for x_t in x:
            new = self.kind.cell(x_t, memory, weights)
            if self.leak:
                new = tuple(self.leak * old + (1 - self.leak) * now for old, now in zip(memory, new, strict=True))
            memory = new
            outputs.append(memory[0])
        return torch.stack(outputs), memory

    def fused(self, x: Tensor, memory: CellState) -> tuple[Tensor, CellState]:
        kernel = getattr(torch, self.kind.fused)
        weights = self.weights()
        if x.is_cuda and torch.is_autocast_enabled("cuda"):
            # torch would take its weights to float16, whatever it is told
            narrow = torch.get_autocast_dtype("cuda")
            x, weights = x.to(narrow), tuple(w.to(narrow) for w in weights)  # type: ignore[assignment]
        else:
            x = x.to(weights[0].dtype)  # on a CPU in 16 bits, the layer before may have a product as its output
        past = [m.unsqueeze(0).to(x.dtype) for m in memory]
        with torch.autocast(x.device.type, enabled=False), rounding_as_products(x), warnings.catch_warnings():
            # cuDNN wants the weights in one block and copies them there at each call: a few microseconds, and no reason
            # to keep them in a form that the optimizer and the file do not have
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            # arguments: has biases, layers, dropout, training, bidirectional, batch first
            y, *after = kernel(
                x, past if len(past) == 2 else past[0], list(weights), True, 1, 0.0, self.training, False, False
            )
        return y, tuple(m.squeeze(0) for m in after)


def reverse_padded(x: Tensor, lengths: Tensor) -> Tensor:
    """(B, S, …) with the first `length` entries of each row in reverse order; padding stays at the end."""
    at = torch.arange(x.shape[1], device=x.device)
    back = lengths.unsqueeze(1) - 1 - at
    at = torch.where(back >= 0, back, at)
    return x.gather(1, at.view(*at.shape, *[1] * (x.dim() - 2)).expand(x.shape))
