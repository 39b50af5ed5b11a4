"""Where the sentences of a prepared text lie, and texts for a network made of stretches of it, framed by marks.

    ids        the cat sat . it slept . <end> a dog ran . <end>
    sentences  |           |          |       |         |           an end of document belongs to no sentence
    documents  |                              |

A text is one or more stretches of ids. In its frame there is a mark before it and one after each stretch:

    [CLS] the cat sat . [SEP] it slept . [SEP]        two stretches: a pair, or the ends and beginnings of documents
    [CLS] a dog ran . [SEP]                           one
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nextword.batching.prepare import SENTENCE, WORD, Stream
from nextword.batching.windows import permuted
from nextword.compiled import compiled
from nextword.contract_errors import NextwordError
from nextword.tokens.marks import Marks

KEPT = 4  # of the tables made last: those of the text trained on, and of the one held out


@dataclass(frozen=True, eq=False)
class Sentences:
    first: np.ndarray  # (S,) int64: the id that each begins with
    last: np.ndarray  # (S,) int64: and the one after its end
    documents: np.ndarray  # (D + 1,) int64: document d is made of the sentences from documents[d] to documents[d + 1]

    def __len__(self) -> int:
        return len(self.first)

    @staticmethod
    def of(text: Stream, end: int | None) -> Sentences:
        """`end` is the id that closes a document, if the tokenizer has one. Documents without a token are left out."""
        opens = text.documents["start"].astype(np.int64)
        closes = np.append(opens[1:], len(text.ids))
        if end is not None:
            closes -= (closes > opens) & (np.asarray(text.ids[np.maximum(closes - 1, 0)]) == end)
        opens, closes = opens[closes > opens], closes[closes > opens]
        if not len(opens):
            raise NextwordError("The text has no documents with a token in them: there is nothing to learn from.")
        marked = np.flatnonzero(np.asarray(text.marks) & SENTENCE)
        own = np.searchsorted(opens, marked, side="right") - 1
        inner = marked[1:][own[1:] == own[:-1]]  # a document's first sentence begins where the document does
        first = np.sort(np.concatenate((opens, inner)))
        documents = np.append(np.searchsorted(first, opens), len(first))
        last = np.append(first[1:], len(text.ids))
        last[documents[1:] - 1] = closes
        return Sentences(first, last, documents)


@dataclass(frozen=True, eq=False)
class Texts:
    first: np.ndarray  # (P,) int64: the id that each stretch begins with
    length: np.ndarray  # (P,) int64: how many ids it has
    stretches: np.ndarray  # (n + 1,) int64: text i is made of those from stretches[i] to stretches[i + 1]
    labels: np.ndarray | None = None  # (n,) of pairs

    def __len__(self) -> int:
        return len(self.stretches) - 1

    def sizes(self) -> np.ndarray:
        """Of the texts in their frames, (n,)."""
        added = np.concatenate(([0], np.cumsum(self.length + 1)))
        return 1 + np.diff(added[self.stretches])

    def framed(self, text: Stream, chosen: np.ndarray, marks: Marks, width: int, together: bool = False) -> Framed:
        """These texts, each in a row of `width` that begins with it; or all together in one row, end to end."""
        count = np.diff(self.stretches)[chosen]
        stretch = _ranges(self.stretches[chosen], count)
        length, first = self.length[stretch], self.first[stretch]
        own = np.repeat(np.arange(len(chosen)), count)  # the text of each stretch
        sizes = 1 + np.bincount(own, length + 1, len(chosen)).astype(np.int64)
        before = np.cumsum(sizes) - sizes
        starts = before if together else np.arange(len(chosen)) * width
        # In the row of its text a stretch stands after the mark in front and after the stretches before, with theirs
        places = starts[own] + 1 + np.cumsum(length + 1) - (length + 1) - (before - np.arange(len(chosen)))[own]
        ids = np.full(width if together else width * len(chosen), marks.pad, np.int64)
        begins = np.zeros(len(ids), bool)
        segments = np.zeros(len(ids), np.int64)
        here, there = _ranges(places, length), _ranges(first, length)
        ids[here] = text.ids[there]
        begins[here] = text.marks[there] & WORD
        ids[starts] = marks.cls
        ids[places + length] = marks.sep
        second = np.arange(len(stretch)) - np.repeat(np.cumsum(count) - count, count) > 0
        segments[_ranges(places[second], length[second] + 1)] = 1
        return Framed(ids, begins, segments, starts, sizes)


class Framed(NamedTuple):
    ids: np.ndarray  # (N,) int64
    begins: np.ndarray  # (N,) bool: a word begins here
    segments: np.ndarray  # (N,) 0 up to the mark after the first stretch, then 1
    first: np.ndarray  # (n,) where each text's frame begins
    sizes: np.ndarray  # (n,) how long it is


def _ranges(first: np.ndarray, length: np.ndarray) -> np.ndarray:
    """first[0], first[0] + 1, … of length[0], then those of first[1], and so on."""
    ends = np.cumsum(length)
    return np.repeat(first - ends + length, length) + np.arange(ends[-1] if len(ends) else 0)


# ------------------------------------------------------------------------------------------------ which come when


class Turn(NamedTuple):
    """What a batch is made of."""

    epoch: int
    variant: int  # of the texts and their masks: the epoch itself, or one of the few that come again
    texts: Texts
    chosen: np.ndarray  # (n,) which of them


def in_rows(layout: Any, sentences: Sentences, seed: int, step: int, static: int) -> Iterator[Turn]:
    """Texts one a row, in an order shuffled every epoch. What is left over of the last batch is left out there."""
    per_epoch = layout.per_epoch(sentences)
    while True:
        epoch, i = divmod(step, per_epoch)
        variant = epoch % static if static else epoch
        texts = layout.texts(sentences, seed, variant)
        index = np.arange(i * layout.rows, (i + 1) * layout.rows) % len(texts)
        yield Turn(epoch, variant, texts, permuted(index, len(texts), key=seed * 1_000_003 + epoch))
        step += 1


def one_pass(layout: Any, sentences: Sentences) -> Iterator[Turn]:
    """Every text once, in their order; the last batch may have fewer rows."""
    texts = layout.texts(sentences, 0, 0)
    for at in range(0, len(texts), layout.rows):
        yield Turn(0, 0, texts, np.arange(at, min(at + layout.rows, len(texts))))


def check_whole(**given: tuple[Any, int]) -> None:
    """Sizes of a layout, each with the least that it can be."""
    for name, (value, least) in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise NextwordError(f"batches: {name} = {value!r} must be a whole number of at least {least}.")


class Kept:
    """The last few values of a function of a text, or of a table made of one, and of some numbers."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make
        self.found: list[tuple[Any, tuple[Any, ...], Any]] = []

    def __call__(self, text: Any, *key: Any) -> Any:
        known = [entry for entry in self.found if entry[0] is text and entry[1] == key]
        entry = known[0] if known else (text, key, self.make(text, *key))
        self.found = [entry, *(other for other in self.found if other is not entry)][:KEPT]
        return entry[2]


def filled(sizes: np.ndarray, between: np.ndarray, room: int, most: int = 0) -> np.ndarray:
    """Things put one after the other into boxes of a size: the first thing of each box, and how many things there are.

    `between` is what a thing costs beside its own size where it is not the first in its box; `most` is how many a box
    holds at the most, 0 for any number. Each must fit into a box by itself.
    """
    cuts = np.empty(len(sizes) + 1, np.int64)
    return cuts[: _fill(sizes, between, room, most or len(sizes), cuts)].copy()


@compiled
def _fill(sizes, between, room, most, cuts):
    n = used = held = 0
    for i in range(len(sizes)):
        if not n or used + between[i] + sizes[i] > room or held == most:
            cuts[n] = i
            n += 1
            used = sizes[i]
            held = 1
        else:
            used += between[i] + sizes[i]
            held += 1
    cuts[n] = len(sizes)
    return n + 1
