"""Rows full of text: whole sentences, one after the other; or whole texts end to end, without padding.

    documents   a1 a2 a3 | b1 | c1 c2              sentences of three documents

    Full        [CLS] a1 a2 a3 [SEP] b1 [SEP]      a row takes as many whole sentences as go into it, and goes on to the
                [CLS] c1 c2 [SEP] . . . . . . .    next document after a mark (RoBERTa's FULL-SENTENCES)
    apart       [CLS] a1 a2 a3 [SEP] . . . . .     … or never goes on to it (DOC-SENTENCES)
                [CLS] b1 [SEP] . . . . . . . .

    Packed      [CLS] c1 c2 [SEP] [CLS] b1 [SEP] [CLS] a1 a2 a3 [SEP] …       one row of `tokens`, many documents
                0                 5              9                            starts: none sees another

Liu et al. (2019, section 4.2). The texts are the same in every epoch, so that a mask can belong to a text; their order
is not, nor which ones share a row. In `Full` a sentence longer than a row is cut; in `Packed` a document longer than
`length` is, into texts of that length and a rest.

In `Packed` every text is read once an epoch. Those that follow each other share a row as long as they fit; what is then
left over, shorter than one text, is filled up with padding that is a text by itself; the last row of an epoch may have
more of it, and no piece of it is longer than `length`. `starts` has the same length for every row: texts that are not
there are empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from nextword.batching.texts import Kept, Sentences, Texts, Turn, check_whole, filled, in_rows, one_pass
from nextword.contract_errors import NextwordError


@dataclass(frozen=True)
class Full:
    rows: int = 256
    length: int = 512  # tokens in a row, marks and padding included
    apart: bool = False
    kept: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole(rows=(self.rows, 1), length=(self.length, 3))
        if not isinstance(self.apart, bool):
            raise NextwordError(f"batches: apart = {self.apart!r} must be true or false.")
        object.__setattr__(self, "kept", Kept(self._made))

    def texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        return self.kept(sentences)

    def per_epoch(self, sentences: Sentences) -> int:
        return max(1, len(self.kept(sentences)) // self.rows)

    def turns(self, sentences: Sentences, seed: int, step: int, static: int) -> Iterator[Turn]:
        return in_rows(self, sentences, seed, step, static)

    def held_out(self, sentences: Sentences) -> Iterator[Turn]:
        return one_pass(self, sentences)

    def _made(self, sentences: Sentences) -> Texts:
        room = self.length - 2
        opens = np.zeros(len(sentences), bool)
        opens[sentences.documents[:-1]] = True
        first, length, whole = pieces(sentences.first, sentences.last, room)
        opens = opens[whole]  # true of all pieces of a long sentence, but the later ones begin a row in any case
        cuts = filled(length, opens.astype(np.int64) * (self.length if self.apart else 1), room)
        begins = opens.copy()
        begins[cuts[:-1]] = True  # a stretch: what follows in one document and one row
        stretch = np.flatnonzero(begins)
        together = np.add.reduceat(length, stretch)
        return Texts(first[stretch], together, np.searchsorted(stretch, cuts))


@dataclass(frozen=True)
class Packed:
    tokens: int = 16384  # in the row
    length: int = 128  # of the longest text, marks included: the network's window, or less
    kept: Any = field(init=False, repr=False, compare=False)
    boxed: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole(length=(self.length, 3), tokens=(self.tokens, 3))
        if self.tokens < self.length:
            raise NextwordError(
                f"batches: a row of tokens = {self.tokens} has no room for a text of length = {self.length}. Make the "
                "row longer, or the texts shorter."
            )
        object.__setattr__(self, "kept", Kept(self._made))
        object.__setattr__(self, "boxed", Kept(self._boxed))

    def texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        return self.kept(sentences)[0]

    def most(self, sentences: Sentences) -> int:
        """How many texts a row can hold: so many more than it does on average that hardly a row is closed early."""
        return self.kept(sentences)[2]

    def per_epoch(self, sentences: Sentences) -> int:
        """Rows in an epoch: chance makes it one more or less."""
        return len(self.boxed(sentences, 0, 0)[1]) - 1

    def turns(self, sentences: Sentences, seed: int, step: int, static: int) -> Iterator[Turn]:
        texts, epoch = self.texts(sentences, seed, 0), 0
        while step >= (rows := len(self.boxed(sentences, seed, epoch)[1]) - 1):
            step, epoch = step - rows, epoch + 1
        while True:
            order, cuts = self.boxed(sentences, seed, epoch)
            for begin, end in pairwise(cuts[step:].tolist()):
                yield Turn(epoch, epoch % static if static else epoch, texts, order[begin:end])
            step, epoch = 0, epoch + 1

    def held_out(self, sentences: Sentences) -> Iterator[Turn]:
        texts, sizes, most = self.kept(sentences)
        cuts = filled(sizes, np.zeros(len(sizes), np.int64), self.tokens, most).tolist()
        for begin, end in pairwise(cuts):
            yield Turn(0, 0, texts, np.arange(begin, end))

    def _made(self, sentences: Sentences) -> tuple[Texts, np.ndarray, int]:
        documents = sentences.documents
        first, last = sentences.first[documents[:-1]], sentences.last[documents[1:] - 1]
        first, length, _ = pieces(first, last, self.length - 2)
        texts = Texts(first, length, np.arange(len(first) + 1))
        sizes = texts.sizes()
        most = min(self.tokens // int(sizes.min()), 8 + int(1.5 * self.tokens / sizes.mean()), len(texts))
        return texts, sizes, most

    def _boxed(self, sentences: Sentences, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The order of an epoch, and where in it each row begins."""
        texts, sizes, most = self.kept(sentences)
        order = np.random.default_rng([seed, epoch]).permutation(len(texts))
        return order, filled(sizes[order], np.zeros(len(order), np.int64), self.tokens, most)


def pieces(first: np.ndarray, last: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stretches cut into pieces of `room` ids and a rest: where each piece begins, its length, and of which it is."""
    count = -(-(last - first) // room)
    whole = np.repeat(np.arange(len(first)), count)
    inside = np.arange(len(whole)) - np.repeat(np.cumsum(count) - count, count)
    begin = first[whole] + inside * room
    return begin, np.minimum(last[whole] - begin, room), whole
