"""Blocks of a packed stream, for networks that look back over a window and carry nothing from batch to batch.

    documents end to end   a a a . b b b b b . c c .     length = 4: blocks of 4 inputs and their 4 targets

    order "random"      each block begins anywhere (nanoGPT): an epoch reads as many tokens as there are, not each once
    order "shuffled"    the text cut into blocks at a place that changes from epoch to epoch, in random order: each once
    order "sequential"  the same cut at the beginning, in the text's order

Batch k is made of (seed, k) alone. Held-out text is cut at its beginning and read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from nextword.contract import Batch, Inputs
from nextword.contract_errors import NextwordError

HELD_OUT = 8192  # tokens of held-out text read at once
ORDERS = ("shuffled", "random", "sequential")


@dataclass(frozen=True)
class Blocks:
    rows: int = 8
    length: int = 1024
    order: str = "shuffled"

    def __post_init__(self) -> None:
        for name in ("rows", "length"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise NextwordError(f"batches: {name} = {getattr(self, name)!r} must be a whole number of at least 1.")
        if self.order not in ORDERS:
            raise NextwordError(f"batches: order = {self.order!r}; expected one of {', '.join(ORDERS)}.")

    def per_epoch(self, ids: np.ndarray) -> int:
        blocks = (len(ids) - 1) // self.length
        if blocks < 1:
            raise NextwordError(
                f"The text has {len(ids)} tokens, fewer than the {self.length + 1} that one block needs. Give more "
                "text, or shorter blocks (--set phase.0.batches.length=…)."
            )
        return max(1, blocks // self.rows)

    def batches(self, ids: np.ndarray, seed: int, step: int) -> Iterator[Batch]:
        per_epoch = self.per_epoch(ids)
        while True:
            epoch, i = divmod(step, per_epoch)
            yield self._batch(ids, self._starts(len(ids), seed, step, epoch, i), epoch)
            step += 1

    def _starts(self, total: int, seed: int, step: int, epoch: int, i: int) -> np.ndarray:
        if self.order == "random":
            return np.random.default_rng([seed, step]).integers(0, total - self.length, self.rows)
        first, order = _cut(total, self.length, seed, epoch, self.order == "shuffled")
        chosen = order[np.arange(i * self.rows, (i + 1) * self.rows) % len(order)]
        return first + chosen * self.length

    def _batch(self, ids: np.ndarray, starts: np.ndarray, epoch: int) -> Batch:
        part = np.stack([ids[s : s + self.length + 1] for s in starts.tolist()]).astype(np.int64)
        block = torch.from_numpy(part)
        return Batch(Inputs(block[:, :-1]), block[:, 1:], fresh=True, epoch=epoch)

    def held_out(self, ids: np.ndarray) -> Iterator[Batch]:
        """Every token but the first is predicted once; the last block may be shorter than the others."""
        whole = (len(ids) - 1) // self.length
        rows = max(1, HELD_OUT // self.length)
        for at in range(0, whole, rows):
            yield self._batch(ids, np.arange(at, min(at + rows, whole)) * self.length, 0)
        rest = torch.from_numpy(ids[whole * self.length :].astype(np.int64)).unsqueeze(0)
        if rest.shape[1] > 1:
            yield Batch(Inputs(rest[:, :-1]), rest[:, 1:], fresh=True)


@lru_cache(maxsize=4)
def _cut(total: int, length: int, seed: int, epoch: int, shuffled: bool) -> tuple[int, np.ndarray]:
    """Where an epoch's first block begins, and the order of its blocks."""
    blocks = (total - 1) // length
    if not shuffled:
        return 0, np.arange(blocks)
    draw = np.random.default_rng([seed, epoch])
    first = int(draw.integers(0, total - blocks * length))  # what is left over is left out here, at both ends
    return first, draw.permutation(blocks)
