"""Pairs of a source and a target: the prepared data, and batches of similar length.

    source   a b c end   d e end …            target   A B end   C D E end …
    batch    a b c end        decoder input: begin A B    targets: A B end
             d e end ·                       begin C D E           C D E end

    1. Pairs              two prepared texts whose documents belong together
    2. Sequences          batches of pairs, padded or packed
    3. Mixture            pairs of several tasks, each drawn at its rate (T5)
    4. PairsAndSources    pairs, and sources without a target (cross-view training)

Both sides end with the tokenizer's end token or, if it has none (words), with the line end, which is a token there.
Batch k depends on (seed, k) alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch

from nextword.batching.examples import UNLABELED, Bucketed
from nextword.batching.masked import RecentCache, Sentences
from nextword.batching.settings import require_choice
from nextword.batching.span_corruption import SPAN_VALIDATION_SEED, Spans, remove_spans
from nextword.batching.token_stream import Progress, Stream, prepare
from nextword.core.errors import DataError, Unsupported, invalid
from nextword.core.jit import jit
from nextword.core.types import IGNORE, Batch, Document, Inputs
from nextword.data.corpus import Corpus
from nextword.data.text_to_text import Member, Tasks
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.special_tokens import SENTINEL, sentinels

Pair = tuple[np.ndarray, np.ndarray]  # ids of a source and of its target


class PairData(Protocol):
    """What batches of pairs are made from: Pairs, or a Mixture of several tasks. Counts are those of the targets."""

    @property
    def begin(self) -> int: ...  # the first decoder input
    @property
    def num_drawn(self) -> int: ...  # pairs in an epoch
    @property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]: ...  # (pairs,) tokens of each source, and of each target
    @property
    def lengths(self) -> np.ndarray: ...  # (pairs,) what batches are sorted by
    def __len__(self) -> int: ...
    def within(self, length: int, overflow: str = "") -> PairData: ...
    def for_validation(self, length: int, overflow: str = "") -> PairData: ...
    def pair(self, i: int, epoch: int) -> Pair: ...
    def draw_order(self, rng: np.random.Generator, seed: int, epoch: int) -> np.ndarray: ...


# ------------------------------------------------------------------------------------------------ pairs


@dataclass(frozen=True)
class Pairs:
    source: Stream
    target: Stream
    begin: int
    chosen: np.ndarray  # which documents of both texts
    cut: int = 0  # a longer side is cut to this many tokens; 0: never

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
        source, target = (np.diff(b)[self.chosen] for b in self.bounds)
        return (np.minimum(source, self.cut), np.minimum(target, self.cut)) if self.cut else (source, target)

    @cached_property
    def lengths(self) -> np.ndarray:
        return _sort_key(*self.sizes)

    def within(self, length: int, overflow: str = "drop") -> Pairs:
        """The pairs with at most `length` tokens on both sides; or all of them, cut."""
        source, target = self.sizes
        fits = (source <= length) & (target <= length)
        if fits.all():
            return self
        if overflow == "truncate":
            return replace(self, cut=length)
        check_too_long(int((~fits).sum()), len(fits), int(np.maximum(source, target).min()), length, overflow)
        return replace(self, chosen=self.chosen[fits])

    def for_validation(self, length: int, overflow: str = "") -> Pairs:
        """All pairs, cut if training cuts them."""
        return replace(self, cut=length) if overflow == "truncate" else self

    def first(self, tokens: int | None) -> Pairs:
        """The pairs within the first `tokens` tokens of the target, at least one; None: all."""
        if tokens is None:
            return self
        sizes = np.cumsum(np.diff(self.bounds[1])[self.chosen])
        return replace(self, chosen=self.chosen[: max(1, int(np.searchsorted(sizes, tokens, side="right")))])

    def side(self, which: int, i: int) -> np.ndarray:
        """The ids of pair i's source (0) or target (1). A side that is cut keeps its end token."""
        text, bounds, document = (self.source, self.target)[which], self.bounds[which], self.chosen[i]
        ids = text.ids[bounds[document] : bounds[document + 1]]
        return ids if not self.cut or len(ids) <= self.cut else np.append(ids[: self.cut - 1], ids[-1])

    def pair(self, i: int, epoch: int) -> Pair:
        """Source and target of pair i, the same in every epoch."""
        return self.side(0, i), self.side(1, i)

    @property
    def num_drawn(self) -> int:
        return len(self)

    def draw_order(self, rng: np.random.Generator, seed: int, epoch: int) -> np.ndarray:
        """The pairs of an epoch, in random order."""
        return rng.permutation(len(self))


def _sort_key(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(pairs,) sorts by tokens of the target, then of the source."""
    return target + source / (source.max(initial=0) + 1)


def check_too_long(long: int, total: int, shortest: int, length: int, policy: str) -> None:
    """Raise an error if training may not leave out the pairs that are too long."""
    if long == total:
        problem = f"is too short for all pairs; the shortest has {shortest} tokens on a side. Raise it, or cut pairs"
        raise invalid("batches.length", length, f"{problem} (--set phase.0.batches.overflow=truncate).")
    if policy == "error" or (not policy and 2 * long > total):
        problem = f"leaves out {long:,} of {total:,} pairs, which have more tokens on a side. Raise it, or choose"
        raise invalid("batches.length", length, f"{problem} --set phase.0.batches.overflow=truncate (or drop).")


class CorpusSide(Corpus):
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
                raise DataError(
                    f"{self.corpus.name}, {document.id}: the {'source' if self.of_source else 'target'} contains "
                    f"{SENTINEL}…>, the name of a special token, which would be read letter by letter. Remove it from "
                    "that pair.",
                    path=self.corpus.name,
                )
            yield Document(f"{text}\n" if self.line_end else text or "")

    def bytes(self, split: str) -> int | None:
        return None

    @cached_property
    def fingerprint(self) -> str:
        return self._fingerprint_of(self.corpus.fingerprint)

    def compute_fingerprint(self) -> str:
        return self._fingerprint_of(self.corpus.compute_fingerprint())

    def _fingerprint_of(self, pairs: str) -> str:
        key = f"side 1 {pairs} {self.of_source} {self.line_end}"
        return blake2b(key.encode(), digest_size=16).hexdigest()


def prepare_parallel(
    corpus: Corpus, split: str, tokenizer: Tokenizer, *, progress: Progress | None = None
) -> Pairs | Mixture:
    """Prepare one split of a parallel corpus or of text-to-text tasks, or load it from the cache."""
    if isinstance(corpus, Tasks) and corpus.members:
        return prepare_tasks(corpus, split, tokenizer, progress=progress)
    return prepare_pairs(corpus, split, tokenizer, progress=progress)


def prepare_pairs(corpus: Corpus, split: str, tokenizer: Tokenizer, *, progress: Progress | None = None) -> Pairs:
    """Prepare both sides of one split of a parallel corpus, or load them from the cache."""
    has_sentinels = any(name.startswith(SENTINEL) for name in tokenizer.special)
    sides = [CorpusSide(corpus, source, tokenizer.end is None, has_sentinels) for source in (True, False)]
    source, target = (prepare(side, split, tokenizer, progress=progress) for side in sides)
    if len(source.documents) != len(target.documents):
        raise DataError(
            f"{corpus.name} ({split}) has {len(source.documents):,} sources but {len(target.documents):,} targets.",
            path=corpus.name,
        )
    return Pairs(source, target, tokenizer.begin, np.arange(len(source.documents)))


# ------------------------------------------------------------------------------------------------ batches

OVERFLOW = ("", "drop", "truncate", "error")


@dataclass(frozen=True)
class Sequences(Bucketed[PairData]):
    """`rows` pairs per batch, of at most `length` tokens on either side; `stretch` batches are sorted together.

    `overflow` says what training does with longer pairs; validation reads them all.

        drop       leaves them out: their padding and their gradients cost most and teach least
        truncate   cuts the side that is too long before its end token (T5), in validation too
        error      rejects them
        ""         drops them, but rejects them if they are more than half

    With `pack`, a row holds as many pairs as fit into `length` tokens on both sides, and nothing is sorted.
    """

    rows: int = 64
    length: int = 100
    pack: bool = False
    overflow: str = ""
    fitting: RecentCache[PairData] = field(init=False, repr=False, compare=False)  # the pairs that are trained on
    _packing: RecentCache[tuple[np.ndarray, np.ndarray]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("batches.overflow", self.overflow, OVERFLOW)
        object.__setattr__(self, "fitting", RecentCache(lambda text: text.within(self.length, self.overflow)))
        object.__setattr__(self, "_packing", RecentCache(self._pack_epoch))

    def batches_per_epoch(self, text: PairData) -> int:
        """Exact for padded rows; the order of pairs changes the number of packed rows by one or so."""
        text = self.fitting(text)
        if self.pack:
            return self._num_batches(self._packing(text, 0, 0)[1])
        return -(-text.num_drawn // self.rows)

    def batches(self, text: PairData, seed: int, step: int) -> Iterator[Batch]:
        text = self.fitting(text)
        if not self.pack:
            yield from self.epoch_batches(text, seed, step, -(-text.num_drawn // self.rows))
            return
        epoch = 0
        while step >= (count := self._num_batches(self._packing(text, seed, epoch)[1])):
            step, epoch = step - count, epoch + 1
        while True:
            order, cuts = self._packing(text, seed, epoch)
            for i in range(step, self._num_batches(cuts)):
                row_cuts = cuts[i * self.rows : (i + 1) * self.rows + 1].tolist()
                rows = [[text.pair(i, epoch) for i in order[a:b]] for a, b in pairwise(row_cuts)]
                yield build_packed_batch(rows, text.begin, epoch)
            step, epoch = 0, epoch + 1

    def draw_order(self, text: PairData, rng: np.random.Generator, seed: int, epoch: int) -> np.ndarray:
        return np.asarray(text.draw_order(rng, seed, epoch))

    def _pack_epoch(self, text: PairData, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of an epoch, row by row, and where in that order each row begins."""
        order = text.draw_order(np.random.default_rng([seed, epoch]), seed, epoch)
        source, target = text.sizes
        by_row, cuts = pack_pairs(source[order], target[order], self.length)
        return order[by_row], cuts

    def _num_batches(self, cuts: np.ndarray) -> int:
        return -(-(len(cuts) - 1) // self.rows)

    def validation_batches(self, text: PairData) -> Iterator[Batch]:
        return super().validation_batches(text.for_validation(self.length, self.overflow))

    def batch(self, text: PairData, chosen: np.ndarray, epoch: int) -> Batch:
        source, target = zip(*(text.pair(i, epoch) for i in chosen), strict=True)
        source_ids, source_mask = pad_rows(source)
        targets, target_mask = pad_rows(target, IGNORE)
        decoder_ids = torch.cat([torch.full((len(chosen), 1), text.begin), targets[:, :-1].clamp(min=0)], 1)
        inputs = Inputs(decoder_ids, target_mask, source=Inputs(source_ids, source_mask))
        return Batch(inputs, targets, reset_state=True, epoch=epoch, num_targets=sum(map(len, target)))


def pad_rows(rows: Sequence[np.ndarray], fill: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, T) ids, and True where there is one."""
    longest = max(map(len, rows))
    ids, is_token = np.full((len(rows), longest), fill, np.int64), np.zeros((len(rows), longest), bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        is_token[i, : len(row)] = True
    return torch.from_numpy(ids), torch.from_numpy(is_token)


# ------------------------------------------------------------------------------------------------ packing

OPEN_ROWS = 16


def pack_pairs(source: np.ndarray, target: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Put pairs into rows with `room` tokens on both sides. Returns the pairs row by row, and where each row begins.

    Pairs go, in their order, into the first of a few open rows with room on both sides; if there is none, the oldest
    row is closed. Each pair must fit into a row alone.
    """
    row = np.empty(len(source), np.int64)
    count = _fill(source.astype(np.int64), target.astype(np.int64), room, row, np.zeros((OPEN_ROWS, 3), np.int64))
    return np.argsort(row, kind="stable"), np.concatenate(([0], np.cumsum(np.bincount(row, minlength=count))))


@jit
def _fill(source, target, room, row, rows):
    """Set `row` to the row number of each pair. `rows` are the open ones: source tokens, target tokens, number."""
    count = len(rows)
    rows[:, 2] = np.arange(count)
    used = 0  # rows with at least one pair
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


def build_packed_batch(rows: Sequence[Sequence[Pair]], begin: int, epoch: int = 0) -> Batch:
    """A batch of rows with several pairs each, none of which sees another.

        source         a a a end b b end · ·      segments   1 1 1 1 2 2 2 0 0       0 is padding
        decoder input  begin A begin B B B        segments   1 1 2 2 2 2
        targets        A end B B B end            padding continues the last segment: it has no targets, and no target
                                                  comes after it
        attention from p to q, also from target to source:  segments[p] == segments[q]

    A pair is contiguous, so the distance between two of its tokens is the same as if the pair were alone.
    """
    sizes = [[sum(len(pair[side]) for pair in row) for row in rows] for side in (0, 1)]
    shapes = [(len(rows), max(size)) for size in sizes]
    source_ids, source_segments = np.zeros(shapes[0], np.int64), np.zeros(shapes[0], np.int64)
    decoder_ids, targets = np.zeros(shapes[1], np.int64), np.full(shapes[1], IGNORE, np.int64)
    segments = np.zeros(shapes[1], np.int64)
    for r, row in enumerate(rows):
        at = to = 0
        for number, (source, target) in enumerate(row, 1):
            source_ids[r, at : at + len(source)] = source
            source_segments[r, at : at + len(source)] = number
            decoder_ids[r, to] = begin
            decoder_ids[r, to + 1 : to + len(target)] = target[:-1]
            targets[r, to : to + len(target)] = target
            segments[r, to:] = number
            at, to = at + len(source), to + len(target)
    to_tensor = torch.from_numpy
    source_inputs = Inputs(to_tensor(source_ids), to_tensor(source_segments > 0), to_tensor(source_segments))
    inputs = Inputs(to_tensor(decoder_ids), to_tensor(targets != IGNORE), to_tensor(segments), source=source_inputs)
    return Batch(inputs, torch.from_numpy(targets), reset_state=True, epoch=epoch, num_targets=sum(sizes[1]))


# ------------------------------------------------------------------------------------------------ mixtures of tasks

SHARE, MEAN = 0.15, 3.0  # of the spans that are removed from plain text


@dataclass(frozen=True)
class CorruptedText:
    """A plain text as pairs, by span corruption: blocks just so long that their sources fill `length`."""

    text: Stream
    begin: int
    end: int
    sentinels: tuple[int, ...]
    length: int = 512
    most: int = 0  # blocks; 0: all

    @cached_property
    def spans(self) -> Spans:
        return Spans(1, self.length, mask_fraction=SHARE, mean_span=MEAN)

    def __len__(self) -> int:
        blocks = len(self.text.ids) // self.spans.sizes[0]
        return min(blocks, self.most) if self.most else blocks

    @property
    def ids(self) -> np.ndarray:
        return self.text.ids

    @property
    def bytes(self) -> int:
        return self.text.bytes

    @property
    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        text, removed, spans = self.spans.sizes
        return np.full(len(self), text - removed + spans + 1), np.full(len(self), removed + spans + 1)

    def within(self, length: int, overflow: str = "") -> CorruptedText:
        text = replace(self, length=length)
        if not len(text):
            raise DataError(
                f"The text for span corruption has {len(self.text.ids):,} tokens, but one block needs "
                f"{text.spans.sizes[0]}. Use more text, or shorter pairs (--set phase.0.batches.length=…)."
            )
        return text

    def for_validation(self, length: int, overflow: str = "") -> CorruptedText:
        return self.within(length)

    def first(self, tokens: int | None) -> CorruptedText:
        target = self.spans.sizes[1] + self.spans.sizes[2] + 1
        return self if tokens is None else replace(self, most=max(1, tokens // target))

    def pair(self, i: int, epoch: int) -> Pair:
        """Block i with spans removed, anew in every epoch."""
        size = self.spans.sizes[0]
        ids = np.asarray(self.text.ids[i * size : (i + 1) * size], np.int64)
        mask = self.spans.mask(np.random.default_rng([SPAN_VALIDATION_SEED, epoch, i]))
        return remove_spans(ids, mask, self.end, self.sentinels)


@dataclass(frozen=True)
class Mixture:
    """Pairs of several tasks, each drawn at its rate (Raffel et al. 2020, section 3.5.2).

        task      examples   rate    an epoch draws                       an epoch has as many pairs as all tasks have,
        sst2       67,349    0.50    the next 9,000 of a shuffled 67,349  none counting for more than the limit
        cola        8,551    0.50    the next 9,000: 8,551, then anew     …

    Every example of a task is read once before any is read twice, also from one epoch to the next.
    """

    parts: tuple[Pairs | CorruptedText, ...]
    rates: tuple[float, ...]  # add up to one
    size: int  # pairs in an epoch, before rounding

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
        return _sort_key(*self.sizes)

    def within(self, length: int, overflow: str = "") -> Mixture:
        return replace(self, parts=tuple(part.within(length, overflow) for part in self.parts))

    def for_validation(self, length: int, overflow: str = "") -> Mixture:
        return replace(self, parts=tuple(part.for_validation(length, overflow) for part in self.parts))

    def first(self, tokens: int | None) -> Mixture:
        """About `tokens` tokens, divided among the tasks by their rates."""
        if tokens is None:
            return self
        shares = [max(1, int(rate * tokens)) for rate in self.rates]
        return replace(self, parts=tuple(part.first(share) for part, share in zip(self.parts, shares, strict=True)))

    def pair(self, i: int, epoch: int) -> Pair:
        part = int(np.searchsorted(self.starts, i, side="right")) - 1
        return self.parts[part].pair(int(i - self.starts[part]), epoch)

    @cached_property
    def quotas(self) -> tuple[int, ...]:
        """Pairs of each task in an epoch, at least one."""
        return tuple(max(1, round(rate * self.size)) for rate in self.rates)

    @property
    def num_drawn(self) -> int:
        return sum(self.quotas)

    def draw_order(self, rng: np.random.Generator, seed: int, epoch: int) -> np.ndarray:
        parts = [
            self.starts[m] + deal_examples(len(part), quota, [seed, m], epoch)
            for m, (part, quota) in enumerate(zip(self.parts, self.quotas, strict=True))
        ]
        pairs = np.concatenate(parts)
        return pairs[rng.permutation(len(pairs))]


def deal_examples(total: int, quota: int, key: Sequence[int], epoch: int) -> np.ndarray:
    """The `quota` examples of a task in an epoch: dealt from a shuffled deck of `total`, then from the next deck."""
    begin, end = epoch * quota, (epoch + 1) * quota
    decks = [
        np.random.default_rng([*key, number]).permutation(total)[
            max(begin - number * total, 0) : max(min(end - number * total, total), 0)
        ]
        for number in range(begin // total, -(-end // total))
    ]
    return np.concatenate(decks)


def prepare_tasks(corpus: Tasks, split: str, tokenizer: Tokenizer, *, progress: Progress | None = None) -> Mixture:
    """Prepare this split of every task that has it."""
    members = [(i, member) for i, member in enumerate(corpus.members) if split in member.corpus.splits]
    parts = [_prepare_member(member, split, tokenizer, progress) for _, member in members]
    rates, counts = corpus.mixing.rates, [len(part) for part in parts]
    member_rates = tuple(rates[i] if i < len(rates) else None for i, _ in members)
    shares = replace(corpus.mixing, rates=member_rates).shares(counts)
    size = sum(min(count, corpus.mixing.limit) for count in counts)
    return Mixture(tuple(parts), tuple(shares), size)


def _prepare_member(
    member: Member, split: str, tokenizer: Tokenizer, progress: Progress | None
) -> Pairs | CorruptedText:
    corpus: Corpus = member.corpus
    if not member.is_plain:
        return prepare_pairs(corpus, split, tokenizer, progress=progress)
    text = prepare(corpus, split, tokenizer, progress=progress)
    sentinel_ids = sentinels(tokenizer.special)
    if not sentinel_ids or tokenizer.end is None:
        raise Unsupported(
            f"Task {member.task.name} removes spans from a text, but the tokenizer has no sentinels (<extra_id_0>, …). "
            "Use [tokenizer] kind = 'unigram' with sentinels = 100, or T5's own.",
            ability="sentinels",
        )
    return CorruptedText(text, tokenizer.begin, tokenizer.end, tuple(sentinel_ids))


# ------------------------------------------------------------------------------------------------ sources alone

MIN_SOURCE = 2  # tokens of a source, its end not counted


@dataclass(frozen=True, eq=False)
class Sources:
    """The sentences of a prepared text as sources without a target."""

    text: Stream
    end: int | None
    length: int  # most tokens, end included

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each sentence of a suitable length begins and ends."""
        sentences = Sentences.of(self.text, self.end)
        sizes = sentences.last - sentences.first
        fits = (sizes >= MIN_SOURCE) & (sizes < self.length)
        if not fits.any():
            raise DataError(
                f"No sentence of the unlabeled text has {MIN_SOURCE} to {self.length - 1} tokens. Use another text, or "
                "a larger length (--set phase.0.batches.length=…)."
            )
        return sentences.first[fits], sentences.last[fits]

    def __len__(self) -> int:
        return len(self.bounds[0])

    @property
    def lengths(self) -> np.ndarray:
        return self.bounds[1] - self.bounds[0]

    def sentence(self, i: int) -> np.ndarray:
        """The ids of sentence i, with the end token."""
        ids = self.text.ids[self.bounds[0][i] : self.bounds[1][i]]
        return ids if self.end is None else np.append(ids, self.end)


class SourceBatches(Bucketed[Sources]):
    """Batches of sources. `targets` are empty, because the network itself will produce them."""

    def batch(self, text: Sources, chosen: np.ndarray, epoch: int) -> Batch:
        source = Inputs(*pad_rows([text.sentence(i) for i in chosen]))
        empty = torch.zeros(len(chosen), 0, dtype=torch.long)
        return Batch(Inputs(empty, source=source), empty, reset_state=True, epoch=epoch, task_index=UNLABELED)


@dataclass(frozen=True, eq=False)
class PairsAndSources:
    """Pairs, and sources without a target. Counts are those of the pairs."""

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


def alternate_batches(layout: Sequences, text: PairsAndSources, seed: int, step: int) -> Iterator[Batch]:
    """Yield a batch of pairs in every even step and a batch of sources in every odd one."""
    pairs = layout.batches(text.pairs, seed, -(-step // 2))
    sources = SourceBatches(layout.rows, layout.length, layout.batches_per_bucket).batches(
        text.sources, seed, step // 2
    )
    while True:
        yield next(sources if step % 2 else pairs)
        step += 1
