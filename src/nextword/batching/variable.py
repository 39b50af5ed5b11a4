"""Rows read in pieces of varying length, so that no token always stands at the edge of what the gradient sees.

    with probability 0.95 the piece is about `length` tokens, otherwise about half; around that, normally distributed

Merity, Keskar & Socher (2018). Every token of a row is read once an epoch, whatever the lengths. A longer piece is a
mean over more tokens, so its rate is scaled by its length. Lengths of an epoch are drawn from (seed, epoch) alone.

    rotate = true: each row begins an epoch at a place of its own and goes round    b c d a | f g h e | …

Press (2019), "Partially shuffling": which words stand side by side in a batch changes, what precedes a word does not,
but for one place a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from nextword.batching.rows import Rows, check_counts
from nextword.contract import Batch, Inputs
from nextword.contract_errors import NextwordError


@dataclass(frozen=True)
class Variable:
    rows: int = 20
    length: int = 70
    spread: float = 5.0  # standard deviation
    half: float = 0.05  # how often a piece is about half as long
    least: int = 5
    rotate: bool = False

    def __post_init__(self) -> None:
        check_counts(Rows(self.rows, self.length))
        if self.least < 1 or self.spread < 0 or not 0 <= self.half <= 1:
            raise NextwordError(
                f"batches: least = {self.least} must be at least 1, spread = {self.spread} not negative, and half = "
                f"{self.half} a share."
            )

    def per_epoch(self, ids: np.ndarray) -> int:
        """How many pieces there are in an epoch, on average."""
        columns = self._columns(ids)
        mean = self.length * (1 - self.half / 2) - (0.5 if self.spread else 0)  # what is drawn is rounded down
        return max(1, round((columns - 1) / mean))

    def _columns(self, ids: np.ndarray) -> int:
        Rows(self.rows, self.length).per_epoch(ids)  # says so where the text is too short
        return len(ids) // self.rows

    def pieces(self, columns: int, seed: int, epoch: int) -> list[tuple[int, int]]:
        """Where each piece of an epoch begins, and its length."""
        draw = np.random.default_rng([seed, epoch])
        out, at = [], 0
        while at < columns - 1:
            base = self.length / 2 if draw.random() < self.half else self.length
            n = min(max(self.least, int(draw.normal(base, self.spread))), columns - 1 - at)
            out.append((at, n))
            at += n
        return out

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        columns = self._columns(ids)
        table = ids[: columns * self.rows].reshape(self.rows, -1)
        epoch = 0
        pieces = self.pieces(columns, seed, epoch)
        while step >= len(pieces):
            step -= len(pieces)
            epoch += 1
            pieces = self.pieces(columns, seed, epoch)
        while True:
            turned = self._turned(table, seed, epoch)
            for at, n in pieces[step:]:
                part = torch.from_numpy(turned[:, at : at + n + 1].astype(np.int64))
                yield Batch(Inputs(part[:, :-1]), part[:, 1:], fresh=at == 0, epoch=epoch, scale=n / self.length)
            step, epoch = 0, epoch + 1
            pieces = self.pieces(columns, seed, epoch)

    def _turned(self, table: np.ndarray, seed: int, epoch: int) -> np.ndarray:
        """The rows as this epoch reads them."""
        if not self.rotate:
            return table
        first = np.random.default_rng([seed, epoch, 1]).integers(0, table.shape[1], len(table))
        return np.stack([np.roll(row, -by) for row, by in zip(table, first.tolist(), strict=True)])
