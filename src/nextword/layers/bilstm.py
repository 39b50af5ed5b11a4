"""An LSTM from both sides over padded rows, each as long as it is: padding is never read."""

from __future__ import annotations

from torch import Tensor, nn

from nextword.layers.both_ways import each_row


class BiLSTM(nn.Module):
    """(B, T, I) → (B, T, 2 width), with zeros where there is nothing."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """`there` (B, T) is True at the beginning of each row, for at least one word."""
        return each_row(self.lstm, x, there.sum(1))[0]

    def ends(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, 2 width): what each direction has at its end; lengths of at least 1."""
        return each_row(self.lstm, x, lengths)[1][0]
