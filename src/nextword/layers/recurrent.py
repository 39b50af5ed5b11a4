"""Recurrent layers: plain ones, LSTMs over rows of unequal length, and LSTMs with a projection.

**`RecurrentLayer`**. The readable cell is the reference; torch's fused kernel is the fast path, tested equal to it. A
cell is a function (x, state, weights) → state of one time step. The layer runs it over time, step by step or with the
fused kernel. Both use the same four tensors, named as torch names them:

    weight_ih (G·D, I)   weight_hh (G·D, D)   bias_ih (G·D,)   bias_hh (G·D,)      G gates: 1 tanh, 3 GRU, 4 LSTM

**`BiLSTM`** reads rows of unequal length from both sides; padding is never read.

**`ProjectedLSTM`** has many cells and a narrow state, with limits on both (Sak, Senior & Beaufays 2014; limits as in
Jozefowicz et al. 2016 and ELMo):

    i, f, g, o = W x_t + U h_{t−1} + b                       H cells, h of width P
    c_t = clip(σ(f) c_{t−1} + σ(i) tanh(g))                  to ±cell_clip
    h_t = clip(R (σ(o) tanh(c_t)))                           to ±projection_clip

Where a limit cuts, there is no gradient. Gates are in torch's order, so that without limits a side is `nn.LSTM(I, H,
proj_size=P)` with one bias. Several sides (forward and backward) are stacked, each with its own weights, so that one
product serves all of them at each step:

    weight_ih (S, 4H, I)   weight_hh (S, 4H, P)   bias (S, 4H)   weight_hr (S, P, H)
    x (S, T, B, I) → y (S, T, B, P)
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nextword.kernels.projected_lstm import ProjectedLoops
from nextword.layers.dropout import drop_connections

Weights = tuple[Tensor, Tensor, Tensor, Tensor]
CellState = tuple[Tensor, ...]  # (h,), or (h, c) for the LSTM; each (B, D)


@dataclass(frozen=True)
class CellTrace:
    """What a recurrent layer computed at each time step; tensors (B, D) that gradients can be taken of."""

    gates: tuple[dict[str, Tensor], ...]  # of each step; empty dictionaries for a layer without gates
    states: tuple[CellState, ...]  # after each step: (h,), or (h, c)
    name: str = ""  # such as "backward", where a layer has several parts


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
    _, update, candidate = gru_activations(from_input, from_state)
    return (candidate + update * (h - candidate),)


def gru_activations(from_input: Tensor, from_state: Tensor) -> tuple[Tensor, ...]:
    """Reset gate, update gate and candidate, (B, D) each."""
    rx, zx, nx = from_input.chunk(3, -1)
    rh, zh, nh = from_state.chunk(3, -1)
    reset, update = torch.sigmoid(rx + rh), torch.sigmoid(zx + zh)
    return reset, update, torch.tanh(nx + reset * nh)


def lstm_cell(x: Tensor, state: CellState, w: Weights) -> CellState:
    """Hochreiter & Schmidhuber 1997 with the forget gate of Gers 2000. The cell state changes by addition only."""
    return lstm_gates(F.linear(x, w[0], w[2]), F.linear(state[0], w[1], w[3]), state)


def lstm_gates(from_input: Tensor, from_state: Tensor, state: CellState) -> CellState:
    """The gates, given both products (B, 4 D)."""
    _, c = state
    input, forget, candidate, output = lstm_activations(from_input, from_state)
    c = forget * c + input * candidate
    return output * torch.tanh(c), c


def lstm_activations(from_input: Tensor, from_state: Tensor) -> tuple[Tensor, ...]:
    """Input gate, forget gate, candidate and output gate, (B, D) each."""
    i, f, g, o = (from_input + from_state).chunk(4, -1)
    return torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)


def no_activations(from_input: Tensor, from_state: Tensor) -> tuple[Tensor, ...]:
    """An Elman network has no gates."""
    return ()


@dataclass(frozen=True)
class Cell:
    cell: Callable[[Tensor, CellState, Weights], CellState]
    gates: int
    memories: int  # tensors in its state
    fused: str  # name of torch's kernel
    names: tuple[str, ...] = ()  # of the gates, and
    activations: Callable[[Tensor, Tensor], tuple[Tensor, ...]] = no_activations  # their values, from both products


LSTM_NAMES = ("input", "forget", "candidate", "output")
GRU_NAMES = ("reset", "update", "candidate")
CELLS = {
    "tanh": Cell(tanh_cell, 1, 1, "rnn_tanh"),
    "relu": Cell(relu_cell, 1, 1, "rnn_relu"),
    "gru": Cell(gru_cell, 3, 1, "gru", GRU_NAMES, gru_activations),
    "lstm": Cell(lstm_cell, 4, 2, "lstm", LSTM_NAMES, lstm_activations),
}
TORCH_CELLS = {"RNN_TANH": "tanh", "RNN_RELU": "relu", "GRU": "gru", "LSTM": "lstm"}  # `mode` of torch's layers


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

    def trace(self, x: Tensor) -> CellTrace:
        """Read (T, B, I) from an empty state, step by step, and keep everything."""
        return trace_cell(self.kind, x, self.start(x.shape[1]), self.weights(), self.leak)

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


def trace_cell(kind: Cell, x: Tensor, state: CellState, weights: Weights, leak: float = 0.0) -> CellTrace:
    """As `RecurrentLayer.stepwise`, with the gates and the state of every step."""
    gates, states = [], []
    for x_t in x:
        products = F.linear(x_t, weights[0], weights[2]), F.linear(state[0], weights[1], weights[3])
        gates.append(dict(zip(kind.names, kind.activations(*products), strict=True)))
        new = kind.cell(x_t, state, weights)
        if leak:
            new = tuple(leak * old + (1 - leak) * now for old, now in zip(state, new, strict=True))
        state = new
        states.append(state)
    return CellTrace(tuple(gates), tuple(states))


def trace_torch_layer(layer: nn.RNNBase, x: Tensor) -> list[CellTrace]:
    """A layer of torch over (T, B, I), in one direction or both; the backward one's steps in the order of the text."""
    kind, traces = CELLS[TORCH_CELLS[layer.mode]], []
    for side, suffix in (("forward", ""), ("backward", "_reverse"))[: 1 + layer.bidirectional]:
        parameters = dict(layer.named_parameters())
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        w_ih, w_hh, b_ih, b_hh = (parameters[f"{name}_l0{suffix}"] for name in names)
        start = tuple(x.new_zeros(x.shape[1], layer.hidden_size) for _ in range(kind.memories))
        trace = trace_cell(kind, x.flip(0) if suffix else x, start, (w_ih, w_hh, b_ih, b_hh))
        order = -1 if suffix else 1
        traces.append(CellTrace(trace.gates[::order], trace.states[::order], side if layer.bidirectional else ""))
    return traces


def trace_layers(layers: Iterable[Any], x: Tensor) -> tuple[list[CellTrace], Tensor]:
    """Layers that read each other, over (T, B, I): the trace of each, and the output of the last."""
    traces = []
    for layer in layers:
        traces.append(layer.trace(x))
        x = torch.stack([state[0] for state in traces[-1].states])
    return traces, x


def reverse_padded(x: Tensor, lengths: Tensor) -> Tensor:
    """(B, S, …) with the first `length` entries of each row in reverse order; padding stays at the end."""
    at = torch.arange(x.shape[1], device=x.device)
    back = lengths.unsqueeze(1) - 1 - at
    at = torch.where(back >= 0, back, at)
    return x.gather(1, at.view(*at.shape, *[1] * (x.dim() - 2)).expand(x.shape))


# ------------------------------------------------------------------------------------------------ unequal rows


def run_padded(layer: nn.RNNBase, x: Tensor, lengths: Tensor) -> tuple[Tensor, CellState]:
    """Run a torch layer over padded rows: (B, S, I), (B,) → (B, S, K·D), zero at padding, and the state at each end.

    K is the number of directions. The state at the end of each row and direction is (B, K·D) for h, and for c of an
    LSTM.
    """
    y, end = layer(pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False))
    y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
    ends = end if isinstance(end, tuple) else (end,)
    return y, tuple(m.transpose(0, 1).flatten(1) for m in ends)  # both directions side by side


class BiLSTM(nn.Module):
    """(B, T, I) → (B, T, 2 width), the forward direction first; zero at padding.

    A `projection` below the width narrows the output of each step, also to the next step (Sak et al. 2014).
    """

    def __init__(self, inputs: int, width: int, projection: int = 0) -> None:
        super().__init__()
        narrow = projection if projection < width else 0
        self.lstm = nn.LSTM(inputs, width, batch_first=True, bidirectional=True, proj_size=narrow)
        self.width = 2 * (narrow or width)

    def forward(self, x: Tensor, token_mask: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """`token_mask` (B, T) is True at the beginning of each row, for at least one word.

        `sizes`, the number of words per row, saves asking a GPU for it.
        """
        return self._run(x, token_mask.sum(1) if sizes is None else torch.tensor(sizes))[0]

    def ends(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, 2 width): the output of each direction at its end; lengths (B,) of at least 1."""
        return self._run(x, lengths)[1][0]

    def _run(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, CellState]:
        if not self.lstm.proj_size:
            return run_padded(self.lstm, x, lengths)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
            return run_padded(self.lstm, x, lengths)


# ------------------------------------------------------------------------------------------------ projections

ProjectedState = tuple[Tensor, Tensor]  # h (S · B, P), c (S · B, H): batch first, as all states
ProjectedWeights = tuple[Tensor, Tensor, Tensor, Tensor]


def clip(x: Tensor, limit: float) -> Tensor:
    """Clamp to ±limit; 0 is no limit."""
    return x.clamp(-limit, limit) if limit else x


class ProjectedLSTM(nn.Module):
    """One layer. Each side reads its rows in the order given; reverse the rows of a backward side beforehand."""

    def __init__(
        self, inputs: int, cells: int, width: int, sides: int = 1, cell_clip: float = 0.0, projection_clip: float = 0.0
    ) -> None:
        super().__init__()
        self.cells, self.width, self.sides = cells, width, sides
        self.limits = float(cell_clip), float(projection_clip)
        self.weight_ih = nn.Parameter(torch.empty(sides, 4 * cells, inputs))  # W
        self.weight_hh = nn.Parameter(torch.empty(sides, 4 * cells, width))  # U
        self.bias = nn.Parameter(torch.zeros(sides, 4 * cells))  # b
        self.weight_hr = nn.Parameter(torch.empty(sides, width, cells))  # R
        for weight in (self.weight_ih, self.weight_hh, self.weight_hr):
            bound = (3 / weight.shape[-1]) ** 0.5  # variance 1 / fan-in; torch's 1/√H would be too small for H ≫ P
            nn.init.uniform_(weight, -bound, bound)
        nn.init.ones_(self.bias[:, cells : 2 * cells])  # forget gates start open, as in TensorFlow
        self.loops = ProjectedLoops(self.limits)

    def weights(self, side: int | None = None) -> ProjectedWeights:
        """Of all sides, or of one."""
        weights = (self.weight_ih, self.weight_hh, self.bias, self.weight_hr)
        return weights if side is None else tuple(w[side : side + 1] for w in weights)  # type: ignore[return-value]

    def start(self, rows: int) -> ProjectedState:
        return self.bias.new_zeros(rows, self.width), self.bias.new_zeros(rows, self.cells)

    def forward(
        self, x: Tensor, state: ProjectedState, side: int | None = None, token_mask: Tensor | None = None
    ) -> tuple[Tensor, ProjectedState]:
        """(S, T, B, I), state → (S, T, B, P), state after the last step. With `side`, S is 1: that side only.

        With `token_mask` (T, B), the returned state of a row is that at its own end; in training it is ignored, and the
        state of padded rows must not be used.
        """
        weights = self.weights(side)
        h, c = (m.view(len(x), x.shape[2], -1) for m in state)
        if x.shape[1] > 1 and (torch.is_grad_enabled() or (x.is_cuda and token_mask is None)):
            y, h, c = self.loops(x, h, c, weights)
        else:
            y, h, c = self.stepwise(x, h, c, weights, token_mask)
        dtype = self.bias.dtype
        return y, (h.to(dtype).flatten(0, 1), c.to(dtype).flatten(0, 1))

    def trace(self, x: Tensor, side: int) -> CellTrace:
        """One side over (T, B, I) from an empty state, step by step; h is the narrow state, c has all cells."""
        w, u, bias, r = (weight[0] for weight in self.weights(side))
        h, c = self.start(x.shape[1])
        gates, states = [], []
        for x_t in x:
            values = lstm_activations(F.linear(x_t, w, bias), F.linear(h, u))
            input, forget, candidate, output = values
            c = clip(forget * c + input * candidate, self.limits[0])
            h = clip(F.linear(output * torch.tanh(c), r), self.limits[1])
            gates.append(dict(zip(LSTM_NAMES, values, strict=True)))
            states.append((h, c))
        return CellTrace(tuple(gates), tuple(states))

    def stepwise(
        self, x: Tensor, h: Tensor, c: Tensor, weights: ProjectedWeights, token_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The reference, step by step; the product with the input is one for all steps."""
        w, u, bias, r = weights
        cell_clip, projection_clip = self.limits
        z = (x.flatten(1, 2) @ w.mT).unflatten(1, x.shape[1:3]) + bias[:, None, None]  # (S, T, B, 4H)
        outputs = []
        for t in range(x.shape[1]):
            before = h, c
            i, f, g, o = (z[:, t] + h.to(z.dtype) @ u.mT).chunk(4, -1)
            c = clip(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g), cell_clip)
            h = clip((torch.sigmoid(o) * torch.tanh(c)) @ r.mT, projection_clip)
            outputs.append(h)
            if token_mask is not None:
                h, c = (torch.where(token_mask[t, :, None], new, old) for new, old in zip((h, c), before, strict=True))
        return torch.stack(outputs, 1), h, c
