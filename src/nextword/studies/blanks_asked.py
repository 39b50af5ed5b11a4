"""The blanks that three networks are asked to fill: rows of held-out text with one, two, three or more words missing.

[CLS] a man rides his bike . [SEP]      →      [CLS] a man  ‖  rides his  ‖  bike . [SEP]
                                               left            piece         right
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from nextword.contract import Batch
from nextword.contract_protocols import Tokenizer
from nextword.generation.blanks import Pieces
from nextword.studies.blanks_networks import rows_of
from nextword.studies.small_transformers import Size, Text, short_sentences
from nextword.studies.translators import spaced

LEARNT = 20  # blanks of the training text for each one that is asked, from which lengths are known


class Blank(NamedTuple):
    """A row in three parts. What stands before the blank begins with [CLS], what stands after it ends with [SEP]."""

    left: tuple[int, ...]
    piece: tuple[int, ...]
    right: tuple[int, ...]
    words: int

    def with_in(self, ids: Sequence[int]) -> list[int]:
        return [*self.left, *ids, *self.right]


@dataclass(frozen=True)
class Asked:
    """How many blanks, of how many words; pieces of the longest filling, and hypotheses of every beam."""

    words: tuple[int, ...] = (1, 2, 3, 4)
    each: int = 150
    most: int = 8
    width: int = 4


@dataclass(frozen=True)
class Rules:
    """What is the same for all networks."""

    tokenizer: Tokenizer
    shares: tuple[float, ...]  # P(n) of n = 1, 2, … pieces
    width: int  # hypotheses of a beam

    @property
    def most(self) -> int:
        """Pieces of the longest filling."""
        return len(self.shares)

    def log_share(self, ids: Sequence[int]) -> float:
        return math.log(self.shares[len(ids) - 1])

    def right(self, found: Sequence[int], blank: Blank) -> bool:
        """The same words, however they are spelled in pieces."""
        return self.tokenizer.decode(found) == self.tokenizer.decode(blank.piece)


def asked_of(text: Text, tokenizer: Tokenizer, size: Size, asked: Asked) -> tuple[list[Blank], Rules]:
    """Blanks of the held-out text, equally many of each number of words, shortest first; and how long blanks are that
    are drawn in the same way from the text that is learnt from."""
    rows = short_sentences(size, text.vocabulary)
    room = size.length - asked.most
    held = list(blanks_in(rows.held_out(text.test), asked.words, tokenizer, asked.most, room))
    by_words = {count: [blank for blank in held if blank.words == count] for count in asked.words}
    chosen = [own[i] for own in by_words.values() if own for i in spaced(len(own), asked.each)]
    wanted = LEARNT * asked.each * len(asked.words)
    epoch = islice(rows.batches(text.train, 0, 0), rows.per_epoch(text.train))
    learnt = islice(blanks_in(epoch, asked.words, tokenizer, asked.most, room), wanted)
    return chosen, Rules(tokenizer, shares_of(list(learnt), asked.most), asked.width)


def blanks_in(
    batches: Iterable[Batch], words: Sequence[int], tokenizer: Tokenizer, most: int, room: int
) -> Iterator[Blank]:
    """From each row a blank of each of these numbers of words that finds a place, always the same ones.

    They stand side by side, no punctuation among them, and have at most `most` pieces; what stands around a blank is at
    most `room` tokens long, so that a filling of any length has its place in the window.
    """
    parts, draw = Pieces(tokenizer), np.random.default_rng(0)
    begins, inner = (parts.begins | parts.bare).numpy(), parts.inner.numpy()
    for batch in batches:
        for row, size in zip(*rows_of(batch), strict=True):
            ids = row[:size].tolist()
            ends = word_ends(begins[ids], inner[ids])
            for count in words:
                runs = [(first, _after(first, count, ends)) for first in ends]
                runs = [(i, j) for i, j in runs if 0 < j - i <= most and size - (j - i) <= room]
                if runs:
                    i, j = runs[draw.integers(len(runs))]
                    yield Blank(tuple(ids[:i]), tuple(ids[i:j]), tuple(ids[j:]), count)


def word_ends(begins: np.ndarray, inner: np.ndarray) -> dict[int, int]:
    """Where each word of a row begins, and the place after its last piece."""
    ends: dict[int, int] = {}
    first = -1
    for i, (new, more) in enumerate(zip(begins.tolist(), inner.tolist(), strict=True)):
        first = i if new else first if more else -1
        if first >= 0:
            ends[first] = i + 1
    return ends


def _after(first: int, count: int, ends: dict[int, int]) -> int:
    """The place after so many words side by side; −1 where there are not so many."""
    for _ in range(count):
        first = ends.get(first, -1)
    return first


def shares_of(blanks: Sequence[Blank], most: int) -> tuple[float, ...]:
    """P(n): of these blanks, and of one more of each length, the share with n pieces."""
    counts = 1 + np.bincount([len(blank.piece) for blank in blanks], minlength=most + 1)[1:]
    return tuple((counts / counts.sum()).tolist())
