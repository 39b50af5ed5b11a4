"""Pairs of neighbouring passages that differ in nothing but whether they belong together: for the study of pairs.

Batches as BERT's program gathers them (batching/pairs.py) give themselves away where rows are short. A row is gathered
until it is full, so the sentence that no longer fits is a long one and stands last; what is cut off is cut off the
longer segment; and a sentence that fills a row alone has a random second segment. Here both passages have as many
sentences, and both fit whole:

    "next"    A  the sentences after A            0        half of each, drawn anew in every epoch
              A  another passage, as long         1        of another document
    "order"   A  the sentences after A            0
              the sentences after A  A            1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nextword.batching.masking import key_of
from nextword.batching.pairs import SentencePairs
from nextword.batching.texts import Sentences, Texts
from nextword.contract_errors import NextwordError

NEIGHBOURS = 7  # keys the draws of this file


@dataclass(frozen=True)
class Neighbours(SentencePairs):
    """Pairs of `each` sentences and the `each` after them, wherever both fit into a row; passages may overlap."""

    each: int = 1

    def _made(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        first, middle, last, document = whole(sentences, self.each, self.length - 3)
        if len(first) < 2:
            raise NextwordError(
                f"Fewer than two pairs of {self.each} and {self.each} sentences fit into rows of {self.length} tokens. "
                "Give a text of documents with several sentences each."
            )
        draw = np.random.default_rng(int(key_of(NEIGHBOURS, seed, variant)))
        label = draw.random(len(first)) < 0.5
        a, b = np.stack((first, middle - first), 1), np.stack((middle, last - middle), 1)
        if self.pair == "order":
            pairs = np.where(label[:, None, None], np.stack((b, a), 1), np.stack((a, b), 1))
        else:
            other = strangers(b[:, 1], document, draw)
            label &= document[other] != document
            pairs = np.stack((a, np.where(label[:, None], b[other], b)), 1)
            pairs[:, 1, 1] = np.minimum(pairs[:, 1, 1], self.length - 3 - pairs[:, 0, 1])
        stretches = np.arange(0, 2 * len(first) + 1, 2)
        return Texts(pairs[:, :, 0].reshape(-1), pairs[:, :, 1].reshape(-1), stretches, label.astype(np.int64))


def whole(sentences: Sentences, each: int, room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Where runs of 2 · each sentences begin, where their second half does, where they end, and of which document."""
    at = np.arange(len(sentences) - 2 * each + 1)
    document = np.searchsorted(sentences.documents, np.arange(len(sentences)), side="right") - 1
    first, middle = sentences.first[at], sentences.first[at + each]
    last = sentences.last[at + 2 * each - 1]
    good = (document[at] == document[at + 2 * each - 1]) & (last - first <= room)
    return first[good], middle[good], last[good], document[at[good]]


def strangers(lengths: np.ndarray, document: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """For each passage another one of nearly its length, if it can be of another document."""
    order = np.lexsort((draw.random(len(lengths)), lengths))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)
    same = document[other] == document
    further = np.empty_like(order)
    further[order] = np.roll(order, 2)
    return np.where(same, further, other)
