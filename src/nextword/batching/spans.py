"""Text with spans taken out: what is left is the source, what was taken out the target (Raffel et al. 2020, figure 2).

    text     Thank you for inviting me to your party last week          <x> <y> … are sentinels, tokens of their own
    source   Thank you <x> me to your party <y> week end
    target   <x> for inviting <y> last end

A share of the tokens goes, in as many spans as their mean length asks for, so that every row of a batch has the same
lengths: of a block of text just so long that its source fills `length`. Where spans lie is drawn anew: the tokens that
go, and those that stay, are each cut at random into as many parts, which take turns. Batch k is made of
(seed, k) alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from nextword.batching.blocks import HELD_OUT, Blocks
from nextword.contract import Batch, Inputs
from nextword.contract_errors import NextwordError

SPAN_HELD_OUT_SEED = 20_210_720  # the seed of what is taken out of held-out text


@dataclass(frozen=True)
class Spans:
    """`rows` sources of `length` tokens, the end among them; `share` of the text is taken out, in spans of `mean`."""

    rows: int = 8
    length: int = 512
    order: str = "shuffled"
    share: float = 0.15
    mean: float = 3.0

    def __post_init__(self) -> None:
        for name, low, high in (("share", 0.0, 1.0), ("mean", 0.999, 1e9)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low < value < high:
                raise NextwordError(
                    f"objective: {name} = {value!r}; expected a number {'between 0 and 1' if high == 1 else 'from 1'}."
                )
        if not isinstance(self.length, int) or self.length < 4:
            raise NextwordError(f"batches: length = {self.length!r} must be a whole number of at least 4.")
        Blocks(self.rows, self.length, self.order)  # says what is wrong with the rest

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """Tokens of the text, how many of them go, and in how many spans: the longest text whose source fits."""
        text = self.length - 1
        while self._fits(text + 1):
            text += 1
        return (text, *self.taken(text))

    def taken(self, text: int) -> tuple[int, int]:
        gone = min(max(round(text * self.share), 1), text - 1)
        return gone, min(max(round(gone / self.mean), 1), gone, text - gone)

    def _fits(self, text: int) -> bool:
        gone, spans = self.taken(text)
        return text - gone + spans + 1 <= self.length

    @property
    def blocks(self) -> Blocks:
        return Blocks(self.rows, self.sizes[0], self.order)

    def per_epoch(self, ids: np.ndarray) -> int:
        return self.blocks.per_epoch(ids)

    def batches(
        self, ids: np.ndarray, seed: int, step: int, begin: int, end: int, sentinels: Sequence[int]
    ) -> Iterator[Batch]:
        for plain in self.blocks.batches(ids, seed, step):
            draw = np.random.default_rng([seed, step])
            yield self.batch(plain.inputs.ids.numpy(), draw, begin, end, sentinels, plain.epoch)
            step += 1

    def held_out(self, ids: np.ndarray, begin: int, end: int, sentinels: Sequence[int]) -> Iterator[Batch]:
        """Whole blocks alone; what is taken out is always the same."""
        text = self.sizes[0]
        rows = max(1, HELD_OUT // text)
        whole = len(ids) // text
        if not whole:
            raise NextwordError(
                f"The held-out text has {len(ids)} tokens, fewer than the {text} that one block needs. Give more text, "
                "or shorter blocks (--set phase.0.batches.length=…)."
            )
        for at in range(0, whole, rows):
            part = np.asarray(ids[at * text : min(at + rows, whole) * text], np.int64).reshape(-1, text)
            yield self.batch(part, np.random.default_rng([SPAN_HELD_OUT_SEED, at]), begin, end, sentinels, 0)

    def batch(
        self, text: np.ndarray, draw: np.random.Generator, begin: int, end: int, sentinels: Sequence[int], epoch: int
    ) -> Batch:
        pairs = [taken_out(row, self.mask(draw), end, sentinels) for row in text]
        source, target = (torch.from_numpy(np.stack(side)) for side in zip(*pairs, strict=True))
        read = torch.cat([torch.full((len(target), 1), begin), target[:, :-1]], 1)
        inputs = Inputs(read, source=Inputs(source))
        return Batch(inputs, target, fresh=True, epoch=epoch, predicted=target.numel())

    def mask(self, draw: np.random.Generator) -> np.ndarray:
        """(text,) True where a token goes. The first span stays, and the last one goes."""
        text, gone, spans = self.sizes
        stays, goes = (_cut(n, spans, draw) for n in (text - gone, gone))
        lengths = np.stack([stays, goes], 1).reshape(-1)
        return np.repeat(np.arange(2 * spans) % 2 == 1, lengths)


def _cut(total: int, parts: int, draw: np.random.Generator) -> np.ndarray:
    """So many lengths of at least one, in all `total`, each way to cut as likely as any other."""
    places = np.sort(draw.permutation(total - 1)[: parts - 1]) + 1
    return np.diff(np.concatenate(([0], places, [total])))


def taken_out(ids: np.ndarray, gone: np.ndarray, end: int, sentinels: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The source and the target of a text (T,) of which the spans `gone` (T,) are taken out."""
    begins = gone & ~np.concatenate(([False], gone[:-1]))
    spans = int(begins.sum())
    if spans > len(sentinels):
        raise NextwordError(
            f"{spans} spans are taken out of {len(ids)} tokens, but the tokenizer has {len(sentinels)} sentinels. Give "
            "it more ([tokenizer] sentinels = …), or take fewer spans out (objective.share, .mean; batches.length)."
        )
    marks = np.asarray(sentinels[:spans], np.int64)
    at = np.flatnonzero(begins)
    source = ids.astype(np.int64).copy()
    source[at] = marks
    source = source[~gone | begins]
    places = np.searchsorted(np.flatnonzero(gone), at)
    target = np.insert(ids[gone].astype(np.int64), places, marks)
    return np.append(source, end), np.append(target, end)
