"""Span corruption: remove spans from a text; what is left is the source, the spans are the target.

    text     Thank you for inviting me to your party last week          <x> <y> … are sentinels, special tokens
    source   Thank you <x> me to your party <y> week end
    target   <x> for inviting <y> last end

Raffel et al. (2020), figure 2. A share of the tokens is removed, in as many spans as their mean length requires, so
that every row of a batch has the same lengths: a block of text is just so long that its source fills `length`. The
places of spans are random: the removed tokens and the others are each cut at random into equally many parts, which
alternate. Batch k depends on (seed, k) alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from nextword.batching.causal import Blocks
from nextword.batching.settings import require_count, require_number
from nextword.core.errors import Unsupported
from nextword.core.types import Batch, Inputs

SPAN_VALIDATION_SEED = 20_210_720


@dataclass(frozen=True)
class Spans:
    """`rows` sources of `length` tokens, end included.

    `mask_fraction` of the text is removed, in spans of `mean_span` tokens on average.
    """

    rows: int = 8
    length: int = 512
    order: str = "shuffled"
    mask_fraction: float = 0.15
    mean_span: float = 3.0

    def __post_init__(self) -> None:
        require_number("objective.mask_fraction", self.mask_fraction, 0, 1, exclude_low=True, exclude_high=True)
        require_number("objective.mean_span", self.mean_span, 1)
        require_count("batches.length", self.length, least=4)
        Blocks(self.rows, self.length, self.order)  # checks rows and order

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """Tokens of the longest text whose source fits, how many of them are removed, and in how many spans."""
        text = self.length - 1
        while self._fits(text + 1):
            text += 1
        return (text, *self._removed(text))

    def _removed(self, text: int) -> tuple[int, int]:
        """How many tokens of a text are removed, and in how many spans."""
        tokens = min(max(round(text * self.mask_fraction), 1), text - 1)
        return tokens, min(max(round(tokens / self.mean_span), 1), tokens, text - tokens)

    def _fits(self, text: int) -> bool:
        tokens, spans = self._removed(text)
        return text - tokens + spans + 1 <= self.length

    @property
    def blocks(self) -> Blocks:
        return Blocks(self.rows, self.sizes[0], self.order)

    def batches_per_epoch(self, ids: np.ndarray) -> int:
        return self.blocks.batches_per_epoch(ids)

    def batches(
        self, ids: np.ndarray, seed: int, step: int, begin: int, end: int, sentinels: Sequence[int]
    ) -> Iterator[Batch]:
        for block in self.blocks.batches(ids, seed, step):
            rng = np.random.default_rng([seed, step])
            yield self.batch(block.inputs.ids.numpy(), rng, begin, end, sentinels, block.epoch)
            step += 1

    def validation_batches(self, ids: np.ndarray, begin: int, end: int, sentinels: Sequence[int]) -> Iterator[Batch]:
        """Full blocks only, always with the same spans."""
        for first, places in self.blocks.validation_places(len(ids)):
            rng = np.random.default_rng([SPAN_VALIDATION_SEED, first])
            yield self.batch(ids[places].astype(np.int64), rng, begin, end, sentinels, 0)

    def batch(
        self, text: np.ndarray, rng: np.random.Generator, begin: int, end: int, sentinels: Sequence[int], epoch: int
    ) -> Batch:
        """The pairs of these rows of text."""
        pairs = [remove_spans(row, self.mask(rng), end, sentinels) for row in text]
        source, target = (torch.from_numpy(np.stack(side)) for side in zip(*pairs, strict=True))
        decoder_ids = torch.cat([torch.full((len(target), 1), begin), target[:, :-1]], 1)
        inputs = Inputs(decoder_ids, source=Inputs(source))
        return Batch(inputs, target, reset_state=True, epoch=epoch, num_targets=target.numel())

    def mask(self, rng: np.random.Generator) -> np.ndarray:
        """(text,) True where a token is removed. The first part stays, and the last one is removed."""
        text, removed, spans = self.sizes
        stay, go = (_cut_randomly(n, spans, rng) for n in (text - removed, removed))
        lengths = np.stack([stay, go], 1).reshape(-1)
        return np.repeat(np.arange(2 * spans) % 2 == 1, lengths)


def _cut_randomly(total: int, parts: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths of at least one that add up to `total`, uniform over all ways to cut."""
    places = np.sort(rng.permutation(total - 1)[: parts - 1]) + 1
    return np.diff(np.concatenate(([0], places, [total])))


def remove_spans(
    ids: np.ndarray, removed: np.ndarray, end: int, sentinels: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The source and the target of a text (T,) from which the spans marked by `removed` (T,) are removed."""
    begins = removed & ~np.concatenate(([False], removed[:-1]))
    spans = int(begins.sum())
    if spans > len(sentinels):
        raise Unsupported(
            f"{spans} spans are removed from {len(ids)} tokens, but the tokenizer has only {len(sentinels)} sentinels. "
            "Add more ([tokenizer] sentinels = …), or remove fewer spans (objective.mask_fraction).",
            ability="sentinels",
        )
    marks = np.asarray(sentinels[:spans], np.int64)
    at = np.flatnonzero(begins)
    source = ids.astype(np.int64).copy()
    source[at] = marks
    source = source[~removed | begins]
    places = np.searchsorted(np.flatnonzero(removed), at)
    target = np.insert(ids[removed].astype(np.int64), places, marks)
    return np.append(source, end), np.append(target, end)
