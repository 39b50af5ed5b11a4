"""An LSTM from both sides over padded rows, each as long as it is: padding is never read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nextword.layers.both_ways import each_row
from nextword.layers.recurrent import Memory


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

    def _read(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Memory]:
        if not self.lstm.proj_size:
            return each_row(self.lstm, x, lengths)
        with warnings.catch_warnings():
            # that torch has no faster way for it on a CPU is nothing that a user could mend
            warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
            return each_row(self.lstm, x, lengths)
