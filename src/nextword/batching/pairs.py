"""Pairs of segments from documents, one a row: BERT's next sentence and ALBERT's sentence order.

    document   s1 s2 s3 s4 s5 …        sentences are gathered until they fill a row, and cut in two at a random place

    pair = "next"    half  [CLS] s1 s2 [SEP] s3 s4 s5 [SEP]   0: B follows A
                     half  [CLS] s1 s2 [SEP] t7 t8 [SEP]      1: B is of another document; s3 is read next
    pair = "order"   half  [CLS] s1 s2 [SEP] s3 s4 s5 [SEP]   0: in order
                     half  [CLS] s3 s4 s5 [SEP] s1 s2 [SEP]   1: swapped
    pair = "none"          [CLS] s1 s2 [SEP] s3 s4 s5 [SEP]   no label: RoBERTa's first step away from BERT

Devlin et al. (2019, appendix A.2), Lan et al. (2020, section 3.1), after the rules of BERT's own program: one document
in ten (`short`) is gathered into rows of a random shorter length; what is too long for a row loses tokens from the
longer segment, at its beginning or its end as chance will have it.

What is gathered may be a single sentence: a document of one, the last of a document, or one that fills the row alone.

    "next"     it is A, and B is always of another document
    "order"    the sentence after it is taken too, or else the one before it is read again; a document of one sentence
               has no order and is left out
    "none"     the same, but a document of one sentence is [CLS] A [SEP]

A text that is one document has no other: under "next" its two halves stand for two documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nextword.batching.masking import below, key_of, uniform
from nextword.batching.texts import Kept, Sentences, Texts, Turn, check_whole, in_rows, one_pass
from nextword.compiled import compiled
from nextword.contract_errors import NextwordError
from nextword.corpora.grams import mixed

PAIRS = ("next", "order", "none")
PLAN = 1  # keys the draws of this file


@dataclass(frozen=True)
class SentencePairs:
    rows: int = 256
    length: int = 128  # tokens in a row, marks and padding included
    pair: str = "next"
    short: float = 0.1
    kept: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole(rows=(self.rows, 1), length=(self.length, 5))
        if self.pair not in PAIRS:
            raise NextwordError(f"batches: pair = {self.pair!r}; expected one of {', '.join(PAIRS)}.")
        if not isinstance(self.short, (int, float)) or not 0 <= self.short <= 1:
            raise NextwordError(f"batches: short = {self.short!r} must be a share of the documents, from 0 to 1.")
        object.__setattr__(self, "kept", Kept(self._made))

    def texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        return self.kept(sentences, seed, variant)

    def per_epoch(self, sentences: Sentences) -> int:
        """Batches of an epoch. Chance changes the number of pairs a little; every epoch has as many batches as this."""
        return max(1, len(self.texts(sentences, 0, 0)) // self.rows)

    def turns(self, sentences: Sentences, seed: int, step: int, static: int) -> Iterator[Turn]:
        return in_rows(self, sentences, seed, step, static)

    def held_out(self, sentences: Sentences) -> Iterator[Turn]:
        return one_pass(self, sentences)

    def _made(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        documents = sentences.documents
        if self.pair == "next" and len(documents) == 2:
            documents = np.array([0, len(sentences) // 2, len(sentences)])
        how = (self.length - 3, float(self.short), PAIRS.index(self.pair))
        given = (sentences.first, sentences.last, documents, key_of(PLAN, seed, variant), *how)
        found = 0 if self.pair == "next" and len(sentences) < 2 else _plan(*given, np.empty((0, 5), np.int64))
        if not found:
            why = "one sentence in all" if self.pair == "next" else "documents of one sentence alone"
            raise NextwordError(
                f"No pair for pair = '{self.pair}' can be made of this text: it has {why}. Give documents of several "
                "sentences, or train without pairs (--set phase.0.batches.pair=none)."
            )
        table = np.empty((found, 5), np.int64)
        _plan(*given, table)
        first, length = table[:, 0:4:2], table[:, 1:4:2]
        there = length > 0  # a second segment may be missing
        stretches = np.concatenate(([0], np.cumsum(there.sum(1))))
        return Texts(first[there], length[there], stretches, None if self.pair == "none" else table[:, 4].copy())


@compiled
def _plan(first, last, documents, key, room, short, pair, table):
    """Rows of the table: where A begins and its length, the same of B, the label. Returns how many there are; those
    beyond the table are counted alone."""
    n = 0
    for d in range(len(documents) - 1):
        low, high = documents[d], documents[d + 1]
        own = mixed(key ^ mixed(np.uint64(d) + np.uint64(1)))
        goal = room
        if uniform(own, 0) < short:
            goal = 2 + below(own, 1, room - 1)
        draw = 2
        i = low
        while i < high:
            j = i + 1
            while j < high and last[j - 1] - first[i] < goal:
                j += 1
            if pair > 0 and j - i == 1:
                if j < high:
                    j += 1
                elif i > low:
                    i -= 1
                elif pair == 1:
                    break
            cut = j
            if j - i > 1:
                cut = i + 1 + below(own, draw, j - i - 1)
            a, a_length = first[i], last[cut - 1] - first[i]
            b = b_length = label = 0
            if pair == 0 and (j - i == 1 or uniform(own, draw + 1) < 0.5):
                other = below(own, draw + 2, len(documents) - 2)
                if other >= d:
                    other += 1
                s = documents[other] + below(own, draw + 3, documents[other + 1] - documents[other])
                e = s + 1
                while e < documents[other + 1] and last[e - 1] - first[s] < goal - a_length:
                    e += 1
                b, b_length = first[s], last[e - 1] - first[s]
                label = 1
                i = cut  # what A leaves over is not lost
            else:
                if cut < j:
                    b, b_length = first[cut], last[j - 1] - first[cut]
                i = j
            draw += 4
            while a_length + b_length > room:
                front = below(own, draw, 2)
                draw += 1
                if a_length > b_length:
                    a += front
                    a_length -= 1
                else:
                    b += front
                    b_length -= 1
            if pair == 1 and uniform(own, draw) < 0.5:
                a, a_length, b, b_length = b, b_length, a, a_length
                label = 1
            draw += 1
            if n < len(table):
                table[n, 0], table[n, 1], table[n, 2], table[n, 3], table[n, 4] = a, a_length, b, b_length, label
            n += 1
    return n
