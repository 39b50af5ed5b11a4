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

from nextword.batching import packing
from nextword.batching.examples import Bucketed
from nextword.batching.prepare import Progress, Stream, prepare
from nextword.batching.texts import Kept
from nextword.contract import IGNORE, Batch, Inputs
from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Tokenizer
from nextword.corpora import Corpus, Document
from nextword.tokens.marks import SENTINEL

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
        from nextword.batching.mixed import prepare_tasks

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
        among, cuts = packing.boxes(source[order], target[order], self.length)
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
        return packing.packed(rows, text.begin, epoch)


def padded(rows: Sequence[np.ndarray], fill: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, T) ids, and where there are some."""
    longest = max(map(len, rows))
    ids, there = np.full((len(rows), longest), fill, np.int64), np.zeros((len(rows), longest), bool)
    for row, one in enumerate(rows):
        ids[row, : len(one)] = one
        there[row, : len(one)] = True
    return torch.from_numpy(ids), torch.from_numpy(there)
