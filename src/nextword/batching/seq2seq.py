"""Pairs of a source and a target: two prepared texts whose documents belong together, and batches of like length.

    source   a b c end   d e end …            target   A B end   C D E end …
    batch    a b c end        read: begin A B    to be predicted: A B end
             d e end ·              begin C D E                   C D E end

Both sides end with the tokenizer's end; where it has none (words), with the line end, which is a token there. An epoch
is drawn and sorted as examples of tasks are (examples.py). Of pairs with a side of more than `length` tokens training
does what `long` says; validation reads them all.

    leave   they are left out, for their padding and their gradients cost most and teach least
    cut     what is too much of a side is cut off before its end (T5), in validation as well
    error   they are refused;  if nothing is said, they are left out, and refused where they are more than half

`pack` puts several pairs into a row, each seen by itself alone (packing.py).

Several pairs in one row, none of which sees another.

    source     a a a end b b end · ·      segments   1 1 1 1 2 2 2 0 0       0 is padding, and sees itself alone
    fed        begin A begin B B B        segments   1 1 2 2 2 2
    predicted  A end B B B end            padding goes on with the segment before it: nothing of it is predicted, and
                                          nothing that is comes after it
    attention from p to q, also of target to source:  segments[p] == segments[q]

A pair lies in one piece, so that what counts between two of its tokens, their distance, is what it is where the pair is
alone. Pairs are put, in the order in which they are drawn, into the first of a few open rows that has room on both
sides; where none has, the oldest row is closed.

Examples of several tasks, each drawn as often as its rate says.

    task      examples   rate    an epoch draws                       an epoch: as many as all tasks have, none
    sst2       67,349    0.50    the next 9,000 of a shuffled 67,349  counting for more than the limit
    cola        8,551    0.50    the next 9,000: 8,551, then anew     …

Every example of a task comes once before any comes twice, also from one epoch to the next. One of the tasks may be a
plain text, out of which spans are taken (spans.py), anew every epoch; what is held out, always the same. Batch k is
made of (seed, k) alone.

Sources that have no target, read in turn with pairs: batch k is made of (seed, k) alone.

    step     0       1          2       3
    batch    pairs   sources    pairs   sources

They are the sentences of a prepared text, each with the tokenizer's end, as sources of pairs have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from nextword.batching.examples import UNTAGGED, Bucketed
from nextword.batching.masked import Kept, Sentences
from nextword.batching.span_corruption import SPAN_HELD_OUT_SEED, Spans, taken_out
from nextword.batching.token_stream import Progress, Stream, prepare
from nextword.core.errors import NextwordError
from nextword.core.jit import compiled
from nextword.core.protocols import Tokenizer
from nextword.core.types import IGNORE, Batch, Document, Inputs
from nextword.data.corpus import Corpus
from nextword.tokenizers.base import SENTINEL, sentinels

OPEN = 16  # rows

Row = Sequence[tuple[np.ndarray, np.ndarray]]  # pairs of source and target


def boxes(source: np.ndarray, target: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs row by row, and where in that order each row begins and the last one ends. Each must fit by itself."""
    row = np.empty(len(source), np.int64)
    count = _fill(source.astype(np.int64), target.astype(np.int64), room, row, np.zeros((OPEN, 3), np.int64))
    return np.argsort(row, kind="stable"), np.concatenate(([0], np.cumsum(np.bincount(row, minlength=count))))


@compiled
def _fill(source, target, room, row, rows):
    """`rows` are the open ones: tokens read and written so far, and its number; `row` becomes that of each pair."""
    count = len(rows)
    rows[:, 2] = np.arange(count)
    used = 0  # rows that have something in them
    for i in range(len(source)):
        chosen = -1
        for k in range(count):
            if rows[k, 0] + source[i] <= room and rows[k, 1] + target[i] <= room:
                chosen = k
                break
        if chosen < 0:
            chosen = int(np.argmin(rows[:, 2]))
            rows[chosen, 0] = rows[chosen, 1] = 0
            rows[chosen, 2] = rows[:, 2].max() + 1
        rows[chosen, 0] += source[i]
        rows[chosen, 1] += target[i]
        row[i] = rows[chosen, 2]
        used = max(used, row[i] + 1)
    return used


def packed(rows: Sequence[Row], begin: int, epoch: int = 0) -> Batch:
    """A batch of such rows, as long as the longest of them."""
    sizes = [[sum(len(pair[side]) for pair in row) for row in rows] for side in (0, 1)]
    shapes = [(len(rows), max(size)) for size in sizes]
    ids, segments = np.zeros(shapes[0], np.int64), np.zeros(shapes[0], np.int64)
    fed, targets = np.zeros(shapes[1], np.int64), np.full(shapes[1], IGNORE, np.int64)
    own = np.zeros(shapes[1], np.int64)
    for r, row in enumerate(rows):
        at = to = 0
        for number, (source, target) in enumerate(row, 1):
            ids[r, at : at + len(source)] = source
            segments[r, at : at + len(source)] = number
            fed[r, to] = begin
            fed[r, to + 1 : to + len(target)] = target[:-1]
            targets[r, to : to + len(target)] = target
            own[r, to:] = number
            at, to = at + len(source), to + len(target)
    there = torch.from_numpy(segments > 0)
    read = Inputs(torch.from_numpy(ids), there, segments=torch.from_numpy(segments))
    inputs = Inputs(torch.from_numpy(fed), torch.from_numpy(targets != IGNORE), torch.from_numpy(own), source=read)
    return Batch(inputs, torch.from_numpy(targets), fresh=True, epoch=epoch, predicted=sum(sizes[1]))


LONG = ("", "leave", "cut", "error")


@dataclass(frozen=True)
class Pairs:
    """Counts are of the target: what is predicted."""

    source: Stream
    target: Stream
    begin: int  # what a target begins with
    chosen: np.ndarray  # which documents, of those of both
    cut: int = 0  # tokens of a side at the most; 0: any number

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def ids(self) -> np.ndarray:
        return self.target.ids

    @property
    def bytes(self) -> int:
        return self.target.bytes

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(documents + 1,) where each begins, in the source and in the target."""
        source, target = (np.append(s.documents["start"], len(s.ids)) for s in (self.source, self.target))
        return source, target

    @cached_property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """(pairs,) tokens of each source, and of each target."""
        source, target = (np.diff(b)[self.chosen] for b in self.bounds)
        return (np.minimum(source, self.cut), np.minimum(target, self.cut)) if self.cut else (source, target)

    @cached_property
    def lengths(self) -> np.ndarray:
        """(pairs,) by which batches are sorted: the target's tokens, then the source's."""
        source, target = self.sizes
        return target + source / (source.max(initial=0) + 1)

    def within(self, length: int, long: str = "leave") -> Pairs:
        """The pairs of which neither side has more tokens than these; or all of them, cut."""
        source, target = self.sizes
        fits = (source <= length) & (target <= length)
        if fits.all():
            return self
        if long == "cut":
            return replace(self, cut=length)
        check_long(int((~fits).sum()), len(fits), int(np.maximum(source, target).min()), length, long)
        return replace(self, chosen=self.chosen[fits])

    def whole(self, length: int, long: str = "") -> Pairs:
        """All of them, as validation reads them."""
        return replace(self, cut=length) if long == "cut" else self

    def first(self, tokens: int | None) -> Pairs:
        """Those of the first so many tokens of the target, at least one; None: all."""
        if tokens is None:
            return self
        sizes = np.cumsum(np.diff(self.bounds[1])[self.chosen])
        return replace(self, chosen=self.chosen[: max(1, int(np.searchsorted(sizes, tokens, side="right")))])

    def side(self, which: int, i: int) -> np.ndarray:
        """The ids of pair i's source (0) or target (1). What is cut keeps its end."""
        text, bounds, document = (self.source, self.target)[which], self.bounds[which], self.chosen[i]
        ids = text.ids[bounds[document] : bounds[document + 1]]
        return ids if not self.cut or len(ids) <= self.cut else np.append(ids[: self.cut - 1], ids[-1])

    def both(self, i: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Source and target of pair i, the same in every epoch."""
        return self.side(0, i), self.side(1, i)

    @property
    def drawn(self) -> int:
        """How many examples an epoch has."""
        return len(self)

    def order(self, draw: np.random.Generator, seed: int, epoch: int) -> np.ndarray:
        """Which examples an epoch has, in the order that chance gives."""
        return draw.permutation(len(self))


def check_long(long: int, total: int, shortest: int, length: int, how: str) -> None:
    """Whether training may go on without the pairs that are too long."""
    if long == total:
        raise NextwordError(
            f"No pair has both sides within length = {length} tokens: the shortest has {shortest}. Give a larger one "
            "(--set phase.0.batches.length=…), or cut them (--set phase.0.batches.long=cut)."
        )
    if how == "error" or (not how and 2 * long > total):
        raise NextwordError(
            f"{long:,} of {total:,} pairs have a side of more than length = {length} tokens and would not be trained "
            "on. Give a larger one (--set phase.0.batches.length=…), cut what is too much "
            "(--set phase.0.batches.long=cut), or leave them out all the same (--set phase.0.batches.long=leave)."
        )


class Side(Corpus):
    """The sources of a parallel corpus, or its targets, as a corpus of its own."""

    def __init__(self, corpus: Corpus, source: bool, line_end: bool, sentinels: bool = False) -> None:
        super().__init__(f"{corpus.name}, {'sources' if source else 'targets'}", corpus.source, corpus.texts)
        self.corpus, self.of_source, self.line_end, self.sentinels = corpus, source, line_end, sentinels

    @property
    def splits(self) -> tuple[str, ...]:
        return self.corpus.splits

    def documents(self, split: str) -> Iterator[Document]:
        for document in self.corpus.documents(split):
            text = document.source if self.of_source else document.text
            if self.sentinels and SENTINEL in (text or ""):
                raise NextwordError(
                    f"{self.corpus.name}, {document.id}: {'the source' if self.of_source else 'the target'} has "
                    f"{SENTINEL}…> in it, the name of a token that stands for a span taken out. In a text it would be "
                    "read letter by letter. Remove it from that pair."
                )
            yield Document(f"{text}\n" if self.line_end else text or "")

    def bytes(self, split: str) -> int | None:
        return None

    @cached_property
    def fingerprint(self) -> str:
        made = f"side 1 {self.corpus.fingerprint} {self.of_source} {self.line_end}"
        return blake2b(made.encode(), digest_size=16).hexdigest()


def prepare_pairs(corpus: Corpus, split: str, tokenizer: Tokenizer, *, progress: Progress | None = None) -> Pairs:
    """Both sides of one split of a parallel corpus, from the cache or made now; of tasks, all of them mixed."""
    if getattr(corpus, "members", ()):
        return prepare_tasks(corpus, split, tokenizer, progress=progress)
    marked = any(name.startswith(SENTINEL) for name in tokenizer.special)
    sides = [Side(corpus, source, tokenizer.end is None, marked) for source in (True, False)]
    source, target = (prepare(side, split, tokenizer, progress=progress) for side in sides)
    if len(source.documents) != len(target.documents):
        raise NextwordError(
            f"{corpus.name} ({split}) has {len(source.documents):,} sources and {len(target.documents):,} targets."
        )
    return Pairs(source, target, tokenizer.begin, np.arange(len(source.documents)))


@dataclass(frozen=True)
class Sequences(Bucketed):
    """`rows` pairs a batch, of at most `length` tokens on either side; `stretch` batches are sorted together.

    With `pack` a row has as many pairs as go into `length` tokens on both sides, and nothing is sorted.
    """

    rows: int = 64
    length: int = 100
    pack: bool = False
    long: str = ""
    fitting: Any = field(init=False, repr=False, compare=False)
    boxed: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.long not in LONG:
            raise NextwordError(f"batches: long = {self.long!r}; expected one of {', '.join(LONG[1:])}.")
        object.__setattr__(self, "fitting", Kept(lambda text: text.within(self.length, self.long)))
        object.__setattr__(self, "boxed", Kept(self._boxed))

    def batches(self, text: Any, seed: int, step: int) -> Iterator[Batch]:
        text = self.fitting(text)
        if not self.pack:
            yield from self.epochs(text, seed, step, -(-text.drawn // self.rows))
            return
        epoch = 0
        while step >= (count := self._count(self.boxed(text, seed, epoch)[1])):
            step, epoch = step - count, epoch + 1
        while True:
            order, cuts = self.boxed(text, seed, epoch)
            for i in range(step, self._count(cuts)):
                yield self.packed(text, order, cuts[i * self.rows : (i + 1) * self.rows + 1], epoch)
            step, epoch = 0, epoch + 1

    def per_epoch(self, text: Any) -> int:
        """Of packed rows about so many: chance makes it one more or less."""
        text = self.fitting(text)
        if self.pack:
            return self._count(self.boxed(text, 0, 0)[1])
        return -(-text.drawn // self.rows)

    def drawn(self, text: Any, draw: np.random.Generator, seed: int, epoch: int) -> np.ndarray:
        return np.asarray(text.order(draw, seed, epoch))

    def _boxed(self, text: Any, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Which pairs an epoch has, row by row in an order that chance gives, and where in it each row begins."""
        draw = np.random.default_rng([seed, epoch])
        order = text.order(draw, seed, epoch)
        source, target = text.sizes
        among, cuts = boxes(source[order], target[order], self.length)
        return order[among], cuts

    def _count(self, cuts: np.ndarray) -> int:
        return -(-(len(cuts) - 1) // self.rows)

    def held_out(self, text: Any) -> Iterator[Batch]:
        return super().held_out(text.whole(self.length, self.long))

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        source, target = zip(*(text.both(i, epoch) for i in chosen), strict=True)
        ids, there = padded(source)
        targets, known = padded(target, IGNORE)
        read = torch.cat([torch.full((len(chosen), 1), text.begin), targets[:, :-1].clamp(min=0)], 1)
        inputs = Inputs(read, known, source=Inputs(ids, there))
        return Batch(inputs, targets, fresh=True, epoch=epoch, predicted=sum(map(len, target)))

    def packed(self, text: Any, order: np.ndarray, cuts: np.ndarray, epoch: int) -> Batch:
        """Rows of several pairs: those from one cut to the next."""
        rows = [[text.both(i, epoch) for i in order[a:b]] for a, b in pairwise(cuts.tolist())]
        return packed(rows, text.begin, epoch)


def padded(rows: Sequence[np.ndarray], fill: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, T) ids, and where there are some."""
    longest = max(map(len, rows))
    ids, there = np.full((len(rows), longest), fill, np.int64), np.zeros((len(rows), longest), bool)
    for row, one in enumerate(rows):
        ids[row, : len(one)] = one
        there[row, : len(one)] = True
    return torch.from_numpy(ids), torch.from_numpy(there)


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
