"""Contiguous rows: the whole text laid out as B parallel rows, read from left to right T tokens at a time.

    text   0 1 2 3 4 5 6 7 8 9 10 11       rows = 2, length = 2
    row 0  0 1 2 3 4 5      batch 0: 0 1 → 1 2     batch 1: 2 3 → 3 4     batch 2: 4 → 5
    row 1  6 7 8 9 10 11             6 7 → 7 8              8 9 → 9 10            10 → 11

A network that carries its state from batch to batch reads each row as one long sequence (truncated BPTT). Batch k
depends on k alone, so training can begin again anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nextword.contract import Batch, Inputs
from nextword.contract_errors import NextwordError


def check_counts(layout: Any) -> None:
    """Every size of a layout is a whole number of at least 1."""
    for name, value in vars(layout).items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise NextwordError(f"batches: {name} = {value!r} must be a whole number of at least 1.")


@dataclass(frozen=True)
class Rows:
    rows: int = 20
    length: int = 35

    def __post_init__(self) -> None:
        check_counts(self)

    def per_epoch(self, ids: np.ndarray) -> int:
        columns = len(ids) // self.rows
        if columns < 2:
            raise NextwordError(
                f"The text has {len(ids)} tokens, fewer than the {2 * self.rows} that {self.rows} rows need. "
                "Give more text, or fewer rows (--set phase.0.batches.rows=…)."
            )
        return -(-(columns - 1) // self.length)

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        per_epoch = self.per_epoch(ids)
        table = ids[: len(ids) // self.rows * self.rows].reshape(self.rows, -1)
        while True:
            epoch, i = divmod(step, per_epoch)
            part = torch.from_numpy(table[:, i * self.length : (i + 1) * self.length + 1].astype(np.int64))
            yield Batch(Inputs(part[:, :-1]), part[:, 1:], fresh=i == 0, epoch=epoch)
            step += 1
