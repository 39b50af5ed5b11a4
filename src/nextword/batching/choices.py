"""Examples that offer candidates: a frame for each, as many as there are, scored one against the other.

It rained. [SEP] He got wet.     ┐
It rained. [SEP] He ate.         ├ one example: (B, K) positions that speak, −1 where an example has fewer than K
It rained. [SEP] …               ┘
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch

from nextword.batching.examples import Bucketed, Examples
from nextword.contract import Batch


@dataclass(frozen=True)
class Choices(Examples):
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # (examples,) candidates
    most: int = 0  # of all examples, those that were left out too: what is said of one has this width

    @property
    def lengths(self) -> np.ndarray:
        """(examples,) tokens of all candidates."""
        ends = np.cumsum(self.counts)
        return self.starts[ends] - self.starts[ends - self.counts]

    def first(self, tokens: int | None) -> Choices:
        if tokens is None or tokens >= len(self.ids):
            return self
        ends = self.starts[np.cumsum(self.counts)]
        return self.take(np.arange(max(1, int(np.searchsorted(ends, tokens, side="right")))))

    def take(self, chosen: np.ndarray) -> Choices:
        return cast(Choices, replace(super().take(chosen), counts=self.counts[chosen]))  # type: ignore[call-arg]


@dataclass(frozen=True)
class Candidates(Bucketed):
    """`rows` examples a batch, with all their candidates."""

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        batch = super().batch(text, chosen, epoch)
        if not isinstance(text, Choices):
            return batch
        assert batch.at is not None
        there = torch.arange(text.most) < torch.from_numpy(text.counts[chosen]).unsqueeze(1)  # (B, K)
        at = torch.full(there.shape, -1, dtype=torch.long).masked_scatter(there, batch.at)
        return replace(batch, at=at)
