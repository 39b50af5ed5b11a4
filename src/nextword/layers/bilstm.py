"""An LSTM from both sides over padded rows, each as long as it is: padding is never read.

LSTMs whose state is a short projection of many cells, with limits on both; one side of a text, or both at once.

    i, f, g, o = W x_t + U h_{t−1} + b                       H cells, h of width P
    c_t = clip(σ(f) c_{t−1} + σ(i) tanh(g))                  to ±cell_clip
    h_t = clip(R (σ(o) tanh(c_t)))                           to ±projection_clip

Sak, Senior & Beaufays (2014); limits as in Jozefowicz et al. (2016) and ELMo. What is cut off has no gradient. Gates
lie in torch's order, so that without limits a side is `nn.LSTM(I, H, proj_size=P)` with one bias.

Sides (forward, backward: any number that know nothing of each other) are stacked, each with weights of its own, so that
one product serves all of them at each step:

    weight_ih (S, 4H, I)   weight_hh (S, 4H, P)   bias (S, 4H)   weight_hr (S, P, H)
    x (S, T, B, I) → y (S, T, B, P)

`stepwise` is the definition. `at_once` (projected_run.py) computes the same in training, its gradients written out.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nextword.kernels import lstm as projected_run
from nextword.kernels.lstm import each_row
from nextword.layers.recurrent import CellState


class BiLSTM(nn.Module):
    """(B, T, I) → (B, T, 2 width), with zeros where there is nothing; what was read from the left comes first.

    A `projection` below the width narrows what a step gives, to the outside and to the next step (Sak et al. 2014).
    """

    def __init__(self, inputs: int, width: int, projection: int = 0) -> None:
        super().__init__()
        narrow = projection if projection < width else 0
        self.lstm = nn.LSTM(inputs, width, batch_first=True, bidirectional=True, proj_size=narrow)
        self.width = 2 * (narrow or width)

    def forward(self, x: Tensor, there: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
        """`there` (B, T) is True at the beginning of each row, for at least one word; `sizes`, for how many, is known
        to who need not ask a GPU."""
        return self._read(x, there.sum(1) if sizes is None else torch.tensor(sizes))[0]

    def ends(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, 2 width): what each direction has at its end; lengths of at least 1."""
        return self._read(x, lengths)[1][0]

    def _read(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, CellState]:
        if not self.lstm.proj_size:
            return each_row(self.lstm, x, lengths)
        with warnings.catch_warnings():
            # that torch has no faster way for it on a CPU is nothing that a user could mend
            warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
            return each_row(self.lstm, x, lengths)


ProjectedState = tuple[Tensor, Tensor]  # h (S · B, P), c (S · B, H): rows first, as all states
Weights = tuple[Tensor, Tensor, Tensor, Tensor]


def clipped(x: Tensor, most: float) -> Tensor:
    """0 is no limit."""
    return x.clamp(-most, most) if most else x


class ProjectedLSTM(nn.Module):
    """One layer, over texts that each side reads in the order given: a side that goes backward is given them turned."""

    def __init__(
        self, inputs: int, cells: int, width: int, sides: int = 1, cell_clip: float = 0.0, projection_clip: float = 0.0
    ) -> None:
        super().__init__()
        self.cells, self.width, self.sides = cells, width, sides
        self.limits = float(cell_clip), float(projection_clip)
        self.weight_ih = nn.Parameter(torch.empty(sides, 4 * cells, inputs))
        self.weight_hh = nn.Parameter(torch.empty(sides, 4 * cells, width))
        self.bias = nn.Parameter(torch.zeros(sides, 4 * cells))
        self.weight_hr = nn.Parameter(torch.empty(sides, width, cells))
        for weight in (self.weight_ih, self.weight_hh, self.weight_hr):
            bound = (3 / weight.shape[-1]) ** 0.5  # variance 1 / fan-in: with H cells far from P, torch's 1/√H is small
            nn.init.uniform_(weight, -bound, bound)
        nn.init.ones_(self.bias[:, cells : 2 * cells])  # at first it remembers, as TensorFlow's cell does
        self.quick = projected_run.Quick(self.limits)

    def weights(self, side: int | None = None) -> Weights:
        """Of all sides, or of one."""
        found = (self.weight_ih, self.weight_hh, self.bias, self.weight_hr)
        return found if side is None else tuple(w[side : side + 1] for w in found)  # type: ignore[return-value]

    def start(self, rows: int) -> ProjectedState:
        return self.bias.new_zeros(rows, self.width), self.bias.new_zeros(rows, self.cells)

    def forward(
        self, x: Tensor, memory: ProjectedState, side: int | None = None, inside: Tensor | None = None
    ) -> tuple[Tensor, ProjectedState]:
        """(S, T, B, I), memory → (S, T, B, P), memory after the last step. With `side`, S is 1 and it is that one.

        `inside` (T, B) is true where a row still goes on: its memory is then the one at its own end. While learning it
        is not heeded, and the memory of rows that have ended must not be used.
        """
        weights = self.weights(side)
        h, c = (m.view(len(x), x.shape[2], -1) for m in memory)
        if x.shape[1] > 1 and (torch.is_grad_enabled() or (x.is_cuda and inside is None)):
            y, h, c = self.at_once(x, h, c, weights)
        else:
            y, h, c = self.stepwise(x, h, c, weights, inside)
        kind = self.bias.dtype
        return y, (h.to(kind).flatten(0, 1), c.to(kind).flatten(0, 1))

    def stepwise(
        self, x: Tensor, h: Tensor, c: Tensor, weights: Weights, inside: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The definition, one step after the other; the product with the input is one for all of them."""
        from_input, from_state, bias, project = weights
        cell_clip, projection_clip = self.limits
        z = (x.flatten(1, 2) @ from_input.mT).unflatten(1, x.shape[1:3]) + bias[:, None, None]
        outputs = []
        for t in range(x.shape[1]):
            before = h, c
            i, f, g, o = (z[:, t] + h.to(z.dtype) @ from_state.mT).chunk(4, -1)
            c = clipped(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g), cell_clip)
            h = clipped((torch.sigmoid(o) * torch.tanh(c)) @ project.mT, projection_clip)
            outputs.append(h)
            if inside is not None:
                h, c = (torch.where(inside[t, :, None], new, old) for new, old in zip((h, c), before, strict=True))
        return torch.stack(outputs, 1), h, c

    def at_once(self, x: Tensor, h: Tensor, c: Tensor, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
        return self.quick(x, h, c, weights)
