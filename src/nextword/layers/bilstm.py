"""Recurrent layers over padded rows: bidirectional LSTMs, and LSTMs with a projection.

`BiLSTM` reads rows of unequal length from both sides; padding is never read.

`ProjectedLSTM` has many cells and a narrow state, with limits on both (Sak, Senior & Beaufays 2014; limits as in
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

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nextword.kernels.projected_lstm import ProjectedLoops
from nextword.layers.recurrent import CellState

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
Weights = tuple[Tensor, Tensor, Tensor, Tensor]


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

    def weights(self, side: int | None = None) -> Weights:
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

    def stepwise(
        self, x: Tensor, h: Tensor, c: Tensor, weights: Weights, token_mask: Tensor | None = None
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
