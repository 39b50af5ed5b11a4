"""Windows of one fixed length, advanced by one token: what Rogerspy's "LSTMLM" (2021) proposes for varying lengths.

    text 0 1 2 3 4 5 6 7 8 9, one row, length = 4         the list that is proposed:  0 1 2 3   1 2 3 4   2 3 4 5   …

    epoch 0   0 1 2 3 | 4 5 6 7 | 8                       each window of the list is read once in `length` epochs,
    epoch 1   0 | 1 2 3 4 | 5 6 7 8                       right after the one that ends where it begins: so the state
    epoch 2   0 1 | 2 3 4 5 | 6 7 8                       carried to it is that of the token before it, and an epoch
    epoch 3   0 1 2 | 3 4 5 6 | 7 8                       costs what it costs with rows
    epoch 4   as epoch 0

Every token is read once an epoch, and in `length` epochs stands once at every place of the window. What is left over at
the two ends of a row is shorter, and its rate is scaled by its length. `by` is how far windows move each epoch: with
fewer than `length` epochs a larger one spreads a token's places better (27 for 70, 13 for 35, say).

`overlapping = true` is the list as it stands, in an order shuffled every epoch. The state that one window ends with is
not that of the token before any other, so each begins with none, and an epoch reads every token `length / by` times: at
by = 1 it is `length` times the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from nextword.batching.rows import Rows, check_counts
from nextword.batching.windows import permuted
from nextword.contract import Batch, Inputs
from nextword.contract_errors import NextwordError


@dataclass(frozen=True)
class Shifted:
    rows: int = 20
    length: int = 70
    by: int = 1  # tokens that the windows move: from epoch to epoch, or from window to window where they overlap
    overlapping: bool = False

    def __post_init__(self) -> None:
        check_counts(Rows(self.rows, self.length))
        if not isinstance(self.overlapping, bool):
            raise NextwordError(f"batches: overlapping = {self.overlapping!r} must be true or false.")
        if not isinstance(self.by, int) or isinstance(self.by, bool) or not 1 <= self.by <= self.length:
            raise NextwordError(
                f"batches: by = {self.by!r} must be a whole number from 1 to length = {self.length}: windows that move "
                "further leave tokens out."
            )
        common = math.gcd(self.by, self.length)
        if not self.overlapping and common > 1:
            raise NextwordError(
                f"batches: by = {self.by} and length = {self.length} have the factor {common} in common, so a token "
                f"would only ever stand at {self.length // common} of the {self.length} places. Choose a `by` without "
                "one (1 always does), or overlapping = true."
            )

    def per_epoch(self, ids: np.ndarray) -> int:
        """How many batches there are in an epoch: where they do not overlap, on average over the shifts."""
        if self.overlapping:
            return self._windows(ids) // self.rows
        return max(1, round(self._cycle(self._columns(ids)) / self.length))

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        return self._overlapping(ids, seed, step) if self.overlapping else self._in_turn(ids, step)

    # -------------------------------------------------------------------------------------- one shift an epoch

    def _columns(self, ids: np.ndarray) -> int:
        Rows(self.rows, self.length).per_epoch(ids)  # says so where the text is too short
        return len(ids) // self.rows

    def pieces(self, columns: int, epoch: int) -> list[tuple[int, int]]:
        """Where each piece of an epoch begins, and its length."""
        end, first = columns - 1, epoch * self.by % self.length
        begins = [*([0] if first else []), *range(first, end, self.length)]
        return [(at, min(then, end) - at) for at, then in zip(begins, [*begins[1:], end], strict=True)]

    def _count(self, columns: int, epoch: int) -> int:
        """len(pieces), without making them."""
        first = epoch * self.by % self.length
        return bool(first) + max(0, -(-(columns - 1 - first) // self.length))

    def _cycle(self, columns: int) -> int:
        """Pieces in `length` epochs, after which the windows stand where they stood."""
        return sum(self._count(columns, epoch) for epoch in range(self.length))

    def _in_turn(self, ids: np.ndarray, step: int) -> Iterator[Batch]:
        columns = self._columns(ids)
        table = ids[: columns * self.rows].reshape(self.rows, -1)
        turns, step = divmod(step, self._cycle(columns))
        epoch = turns * self.length
        while step >= (count := self._count(columns, epoch)):
            step -= count
            epoch += 1
        while True:
            for at, n in self.pieces(columns, epoch)[step:]:
                part = torch.from_numpy(table[:, at : at + n + 1].astype(np.int64))
                yield Batch(Inputs(part[:, :-1]), part[:, 1:], fresh=at == 0, epoch=epoch, scale=n / self.length)
            step, epoch = 0, epoch + 1

    # -------------------------------------------------------------------------------------- all shifts in an epoch

    def _windows(self, ids: np.ndarray) -> int:
        """How many windows there are in the text, each with the token after it."""
        found = max(0, (len(ids) - 1 - self.length) // self.by + 1)
        if found < self.rows:
            raise NextwordError(
                f"The text has {found} windows of {self.length} tokens and a next one, fewer than a batch of "
                f"{self.rows}. Give more text, or fewer rows (--set phase.0.batches.rows=…)."
            )
        return found

    def _overlapping(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        windows, per_epoch = self._windows(ids), self.per_epoch(ids)
        places = np.arange(self.length + 1)
        while True:
            epoch, i = divmod(step, per_epoch)
            chosen = permuted(np.arange(i * self.rows, (i + 1) * self.rows), windows, key=seed * 1_000_003 + epoch)
            part = torch.from_numpy(ids[self.by * chosen[:, None] + places].astype(np.int64))
            yield Batch(Inputs(part[:, :-1]), part[:, 1:], fresh=True, epoch=epoch)
            step += 1
