"""Sources that have no target, read in turn with pairs: batch k is made of (seed, k) alone.

    step     0       1          2       3
    batch    pairs   sources    pairs   sources

They are the sentences of a prepared text, each with the tokenizer's end, as sources of pairs have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from nextword.batching.examples import Bucketed
from nextword.batching.prepare import Stream
from nextword.batching.sequences import Pairs, Sequences, padded
from nextword.batching.several import UNTAGGED
from nextword.batching.texts import Sentences
from nextword.contract import Batch, Inputs
from nextword.contract_errors import NextwordError

LEAST = 2  # tokens of a source, its end not counted


@dataclass(frozen=True, eq=False)
class Sources:
    text: Stream
    end: int | None
    length: int  # tokens at most, its end counted

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each sentence that is neither too short nor too long begins, and where it is over."""
        found = Sentences.of(self.text, self.end)
        sizes = found.last - found.first
        fits = (sizes >= LEAST) & (sizes < self.length)
        if not fits.any():
            raise NextwordError(
                f"No sentence of the text without translations has {LEAST} to {self.length - 1} tokens. Give another "
                "text, or a larger length (--set phase.0.batches.length=…)."
            )
        return found.first[fits], found.last[fits]

    def __len__(self) -> int:
        return len(self.bounds[0])

    @property
    def lengths(self) -> np.ndarray:
        return self.bounds[1] - self.bounds[0]

    def of(self, i: int) -> np.ndarray:
        ids = self.text.ids[self.bounds[0][i] : self.bounds[1][i]]
        return ids if self.end is None else np.append(ids, self.end)


class Alone(Bucketed):
    """Batches of sources. What is to be predicted of them is not known yet: `targets` are empty."""

    def batch(self, text: Sources, chosen: np.ndarray, epoch: int) -> Batch:
        ids, there = padded([text.of(i) for i in chosen])
        none = torch.zeros(len(chosen), 0, dtype=torch.long)
        return Batch(Inputs(none, source=Inputs(ids, there)), none, fresh=True, epoch=epoch, part=UNTAGGED)


@dataclass(frozen=True, eq=False)
class Beside:
    """Pairs, and sources beside them."""

    pairs: Pairs
    sources: Sources

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def ids(self) -> np.ndarray:
        return self.pairs.ids

    @property
    def bytes(self) -> int:
        return self.pairs.bytes


def in_turn(layout: Sequences, text: Beside, seed: int, step: int) -> Iterator[Batch]:
    """Batches from this step on."""
    pairs = layout.batches(text.pairs, seed, -(-step // 2))
    sources = Alone(layout.rows, layout.length, layout.stretch).batches(text.sources, seed, step // 2)
    while True:
        yield next(sources if step % 2 else pairs)
        step += 1
