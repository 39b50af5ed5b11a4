"""Pairs of a source and a target: two prepared texts whose documents belong together, and batches of like length.

    source   a b c end   d e end …            target   A B end   C D E end …
    batch    a b c end        read: begin A B    to be predicted: A B end
             d e end ·              begin C D E                   C D E end

Both sides end with the tokenizer's end; where it has none (words), with the line end, which is a token there. An epoch
is drawn and sorted as examples of tasks are (examples.py). Pairs with a side of more than `length` tokens are left out
of training, for their padding and their gradients cost most and teach least; validation reads them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from nextword.batching.examples import Bucketed
from nextword.batching.prepare import Progress, Stream, prepare
from nextword.contract import IGNORE, Batch, Inputs, NextwordError, Tokenizer
from nextword.corpora import Corpus, Document


@dataclass(frozen=True)
class Pairs:
    """Counts are of the target: what is predicted."""

    source: Stream
    target: Stream
    begin: int  # what a target begins with
    chosen: np.ndarray  # which documents, of those of both

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
    def lengths(self) -> np.ndarray:
        """(pairs,) by which batches are sorted: the target's tokens, then the source's."""
        source, target = (np.diff(b)[self.chosen] for b in self.bounds)
        return target + source / (source.max(initial=0) + 1)

    def within(self, length: int) -> Pairs:
        """The pairs of which neither side has more tokens than these."""
        source, target = (np.diff(b)[self.chosen] for b in self.bounds)
        kept = self.chosen[(source <= length) & (target <= length)]
        if not len(kept):
            raise NextwordError(
                f"No pair has both sides within length = {length} tokens: the shortest has "
                f"{int(np.maximum(source, target).min())}. Give a larger one (--set phase.0.batches.length=…)."
            )
        return replace(self, chosen=kept)

    def first(self, tokens: int | None) -> Pairs:
        """Those of the first so many tokens of the target, at least one; None: all."""
        if tokens is None:
            return self
        sizes = np.cumsum(np.diff(self.bounds[1])[self.chosen])
        return replace(self, chosen=self.chosen[: max(1, int(np.searchsorted(sizes, tokens, side="right")))])

    def side(self, which: int, i: int) -> np.ndarray:
        """The ids of pair i's source (0) or target (1)."""
        text, bounds, document = (self.source, self.target)[which], self.bounds[which], self.chosen[i]
        return text.ids[bounds[document] : bounds[document + 1]]


class Side(Corpus):
    """The sources of a parallel corpus, or its targets, as a corpus of its own."""

    def __init__(self, corpus: Corpus, source: bool, line_end: bool) -> None:
        super().__init__(f"{corpus.name}, {'sources' if source else 'targets'}", corpus.source, corpus.texts)
        self.corpus, self.of_source, self.line_end = corpus, source, line_end

    @property
    def splits(self) -> tuple[str, ...]:
        return self.corpus.splits

    def documents(self, split: str) -> Iterator[Document]:
        for document in self.corpus.documents(split):
            text = document.source if self.of_source else document.text
            yield Document(f"{text}\n" if self.line_end else text or "")

    def bytes(self, split: str) -> int | None:
        return None

    @cached_property
    def fingerprint(self) -> str:
        made = f"side 1 {self.corpus.fingerprint} {self.of_source} {self.line_end}"
        return blake2b(made.encode(), digest_size=16).hexdigest()


def prepare_pairs(corpus: Corpus, split: str, tokenizer: Tokenizer, *, progress: Progress | None = None) -> Pairs:
    """Both sides of one split of a parallel corpus, from the cache or made now."""
    sides = [Side(corpus, source, tokenizer.end is None) for source in (True, False)]
    source, target = (prepare(side, split, tokenizer, progress=progress) for side in sides)
    if len(source.documents) != len(target.documents):
        raise NextwordError(
            f"{corpus.name} ({split}) has {len(source.documents):,} sources and {len(target.documents):,} targets."
        )
    return Pairs(source, target, tokenizer.begin, np.arange(len(source.documents)))


@dataclass(frozen=True)
class Sequences(Bucketed):
    """`rows` pairs a batch, of at most `length` tokens on either side; `stretch` batches are sorted together."""

    rows: int = 64
    length: int = 100

    def batches(self, text: Any, seed: int, step: int) -> Iterator[Batch]:
        return super().batches(text.within(self.length), seed, step)

    def per_epoch(self, text: Any) -> int:
        return super().per_epoch(text.within(self.length))

    def batch(self, text: Any, chosen: np.ndarray, epoch: int) -> Batch:
        source, target = ([text.side(which, i) for i in chosen] for which in (0, 1))
        ids, there = padded(source)
        targets, known = padded(target, IGNORE)
        read = torch.cat([torch.full((len(chosen), 1), text.begin), targets[:, :-1].clamp(min=0)], 1)
        inputs = Inputs(read, known, source=Inputs(ids, there))
        return Batch(inputs, targets, fresh=True, epoch=epoch, predicted=sum(map(len, target)))


def padded(rows: list[np.ndarray], fill: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, T) ids, and where there are some."""
    longest = max(map(len, rows))
    ids, there = np.full((len(rows), longest), fill, np.int64), np.zeros((len(rows), longest), bool)
    for row, one in enumerate(rows):
        ids[row, : len(one)] = one
        there[row, : len(one)] = True
    return torch.from_numpy(ids), torch.from_numpy(there)
