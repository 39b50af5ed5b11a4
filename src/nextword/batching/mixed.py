"""Examples of several tasks, each drawn as often as its rate says.

    task      examples   rate    an epoch draws                       an epoch: as many as all tasks have, none
    sst2       67,349    0.50    the next 9,000 of a shuffled 67,349  counting for more than the limit
    cola        8,551    0.50    the next 9,000: 8,551, then anew     …

Every example of a task comes once before any comes twice, also from one epoch to the next. One of the tasks may be a
plain text, out of which spans are taken (spans.py), anew every epoch; what is held out, always the same. Batch k is
made of (seed, k) alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nextword.batching.prepare import Progress, Stream, prepare
from nextword.batching.sequences import Pairs, prepare_pairs
from nextword.batching.spans import SPAN_HELD_OUT_SEED, Spans, taken_out
from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Tokenizer
from nextword.corpora import Corpus
from nextword.tokens.marks import sentinels

SHARE, MEAN = 0.15, 3.0  # of the spans that are taken out of plain text


@dataclass(frozen=True)
class Corrupted:
    """A plain text as pairs: blocks of it just so long that their sources fill `length`."""

    text: Stream
    begin: int
    end: int
    sentinels: tuple[int, ...]
    length: int = 512
    most: int = 0  # blocks; 0: all there are

    @cached_property
    def spans(self) -> Spans:
        return Spans(1, self.length, share=SHARE, mean=MEAN)

    def __len__(self) -> int:
        whole = len(self.text.ids) // self.spans.sizes[0]
        return min(whole, self.most) if self.most else whole

    @property
    def ids(self) -> np.ndarray:
        return self.text.ids

    @property
    def bytes(self) -> int:
        return self.text.bytes

    @property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        text, gone, count = self.spans.sizes
        return np.full(len(self), text - gone + count + 1), np.full(len(self), gone + count + 1)

    def within(self, length: int, long: str = "") -> Corrupted:
        made = replace(self, length=length)
        if not len(made):
            raise NextwordError(
                f"The text for denoising has {len(self.text.ids):,} tokens, fewer than the {made.spans.sizes[0]} of "
                "one block. Give more text, or shorter pairs (--set phase.0.batches.length=…)."
            )
        return made

    def whole(self, length: int, long: str = "") -> Corrupted:
        return self.within(length)

    def first(self, tokens: int | None) -> Corrupted:
        each = self.spans.sizes[1] + self.spans.sizes[2] + 1
        return self if tokens is None else replace(self, most=max(1, tokens // each))

    def both(self, i: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        size = self.spans.sizes[0]
        ids = np.asarray(self.text.ids[i * size : (i + 1) * size], np.int64)
        mask = self.spans.mask(np.random.default_rng([SPAN_HELD_OUT_SEED, epoch, i]))
        return taken_out(ids, mask, self.end, self.sentinels)


@dataclass(frozen=True)
class Mixture:
    """Counts are of the targets."""

    parts: tuple[Any, ...]  # Pairs, or Corrupted
    rates: tuple[float, ...]  # they add up to one
    size: int  # examples of an epoch, but for rounding

    @property
    def begin(self) -> int:
        return self.parts[0].begin

    @cached_property
    def starts(self) -> np.ndarray:
        """(parts + 1,) the number of each part's first example."""
        return np.concatenate(([0], np.cumsum([len(part) for part in self.parts])))

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def ids(self) -> np.ndarray:
        return np.concatenate([np.asarray(part.ids) for part in self.parts])

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    @cached_property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        source, target = zip(*(part.sizes for part in self.parts), strict=True)
        return np.concatenate(source), np.concatenate(target)

    @cached_property
    def lengths(self) -> np.ndarray:
        source, target = self.sizes
        return target + source / (source.max(initial=0) + 1)

    def within(self, length: int, long: str = "") -> Mixture:
        return replace(self, parts=tuple(part.within(length, long) for part in self.parts))

    def whole(self, length: int, long: str = "") -> Mixture:
        return replace(self, parts=tuple(part.whole(length, long) for part in self.parts))

    def first(self, tokens: int | None) -> Mixture:
        """Of every task as much as its rate says, in all so many tokens."""
        if tokens is None:
            return self
        some = zip(self.parts, self.rates, strict=True)
        return replace(self, parts=tuple(part.first(max(1, int(rate * tokens))) for part, rate in some))

    def both(self, i: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        part = int(np.searchsorted(self.starts, i, side="right")) - 1
        return self.parts[part].both(int(i - self.starts[part]), epoch)

    @cached_property
    def quotas(self) -> tuple[int, ...]:
        """Examples of each task in an epoch, at least one."""
        return tuple(max(1, round(rate * self.size)) for rate in self.rates)

    @property
    def drawn(self) -> int:
        return sum(self.quotas)

    def order(self, draw: np.random.Generator, seed: int, epoch: int) -> np.ndarray:
        parts = [
            self.starts[m] + dealt(len(part), quota, [seed, m], epoch)
            for m, (part, quota) in enumerate(zip(self.parts, self.quotas, strict=True))
        ]
        together = np.concatenate(parts)
        return together[draw.permutation(len(together))]


def dealt(total: int, quota: int, key: Sequence[int], epoch: int) -> np.ndarray:
    """Which of `total` examples a task gives in an epoch: dealt from a shuffled pack, then from the next one."""
    begin, end = epoch * quota, (epoch + 1) * quota
    packs = [
        np.random.default_rng([*key, number]).permutation(total)[
            max(begin - number * total, 0) : max(min(end - number * total, total), 0)
        ]
        for number in range(begin // total, -(-end // total))
    ]
    return np.concatenate(packs)


def prepare_tasks(corpus: Any, split: str, tokenizer: Tokenizer, *, progress: Progress | None = None) -> Any:
    """The split of every task that has it."""
    having = [(i, member) for i, member in enumerate(corpus.members) if split in member.corpus.splits]
    parts = [_prepared(member, split, tokenizer, progress) for _, member in having]
    rates, counts = corpus.mixing.rates, [len(part) for part in parts]
    given = tuple(rates[i] if i < len(rates) else None for i, _ in having)
    shares = replace(corpus.mixing, rates=given).shares(counts)
    size = sum(min(count, corpus.mixing.limit) for count in counts)
    return Mixture(tuple(parts), tuple(shares), size)


def _prepared(member: Any, split: str, tokenizer: Tokenizer, progress: Progress | None) -> Pairs | Corrupted:
    corpus: Corpus = member.corpus
    if not member.plain:
        return prepare_pairs(corpus, split, tokenizer, progress=progress)
    text = prepare(corpus, split, tokenizer, progress=progress)
    marks = sentinels(tokenizer.special)
    if not marks or tokenizer.end is None:
        raise NextwordError(
            f"Task {member.task.name} takes spans out of a text and needs sentinels, <extra_id_0> and so on; the "
            "tokenizer has none. Use kind = 'unigram' with sentinels = 100, or T5's own."
        )
    return Corrupted(text, tokenizer.begin, tokenizer.end, tuple(marks))
