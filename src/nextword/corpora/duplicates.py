"""Near-duplicates: of documents that share most of their words in a row, only the first is kept.

Two documents are compared by their shingles, the sets of all runs of five words in them: their similarity (Jaccard) is
the share of common ones among all. Comparing every pair is out of the question; MinHash (Broder, 1997) looks them up.

    shingles    {a, b, c, …}
    signature   min h₁, min h₂, … , min h₈₀      two documents agree in each with probability s, their similarity
    bands       [1 … 5] [6 … 10] … [76 … 80]     all five agree: s⁵; at least one of 16 bands does: 1 − (1 − s⁵)¹⁶

A document with a band in common with one that was kept is a candidate. Then the two sets of shingles themselves are
compared (`exact`), so that nothing is removed that is not similar. Those that are missed, for the threshold 0.8:

    similarity   0.80      0.85         0.90            1
    missed       1 in 573  1 in 11,888  1 in 1,598,703  never

GPT-3 (Brown et al., 2020, appendix A) used Spark's MinHashLSH with 10 hashes over single words; 10 % of its text went.

Memory grows by about 0.7 kB for each document kept, whatever its length. Their shingles lie in a temporary file, 8
bytes a word; without `exact` there is none, and what the signatures say is believed.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from nextword.compiled import compiled, spread
from nextword.contract_errors import NextwordError
from nextword.corpora.document import Document
from nextword.corpora.grams import batches, mixed, parts, roll, words

THRESHOLD = 0.8
SHINGLE = 5  # words
MISSED = 0.002  # of pairs exactly at the threshold
MOST = 96  # hashes
NEW = -1


class Duplicate(NamedTuple):
    """What became of a document: `of` is the number of the kept document that it repeats, or NEW."""

    of: int
    similarity: float


def banding(threshold: float, missed: float = MISSED, most: int = MOST) -> tuple[int, int]:
    """Bands and rows: as many rows as there can be (fewest candidates) so that so few are missed at the threshold."""
    chosen = (1, 1)
    for rows in range(1, most + 1):
        agree = threshold**rows
        bands = 1 if agree >= 1 else math.ceil(math.log(missed) / math.log1p(-agree))
        if bands * rows <= most:
            chosen = (bands, rows)
    return chosen


def found_share(similarity: float, bands: int, rows: int) -> float:
    """How likely a pair of that similarity is found."""
    return 1 - (1 - similarity**rows) ** bands


@compiled
def _sign(begin, end, hashes, firsts, n, factors, signatures, shingles, counts):
    """Signatures of texts, and their shingles, which lie where their words lie."""
    for text in range(begin, end):
        low, high = firsts[text], firsts[text + 1]
        if high - low >= n:
            made = roll(hashes, low, high, n, shingles[low:])
        elif high > low:  # all of it is the only shingle
            made = roll(hashes, low, high, high - low, shingles[low:])
        else:
            made = 0
        counts[text] = made
        signature = signatures[text]
        signature[:] = 0xFFFFFFFF
        for i in range(low, low + made):
            x = shingles[i]
            for j in range(len(factors)):
                h = np.uint32((x * factors[j]) >> np.uint64(32))
                signature[j] = min(signature[j], h)


@compiled
def _keys(signature, bands, rows, out):
    for band in range(bands):
        h = np.uint64(band + 1)
        for j in range(band * rows, (band + 1) * rows):
            h = mixed(h ^ np.uint64(signature[j])) + np.uint64(1)
        out[band] = max(h, np.uint64(1))


@compiled
def _look(keys, signature, slots, owners, signatures, least, out):
    """The kept documents with a band in common and at least so many equal hashes; returns how many."""
    mask = len(slots) - 1
    n = 0
    for key in keys:
        s = np.int64(key) & mask
        while slots[s]:
            if slots[s] == key:
                owner = owners[s]
                fresh = True
                for i in range(n):
                    fresh = fresh and out[i] != owner
                if fresh:
                    agree = 0
                    for j in range(len(signature)):
                        agree += signature[j] == signatures[owner, j]
                    if agree >= least:
                        if n == len(out):
                            return n
                        out[n] = owner
                        n += 1
            s = (s + 1) & mask
    return n


@compiled
def _enter(keys, owner, slots, owners):
    mask = len(slots) - 1
    for key in keys:
        s = np.int64(key) & mask
        while slots[s]:
            s = (s + 1) & mask
        slots[s], owners[s] = key, owner


@compiled
def _move(slots, owners, new_slots, new_owners):
    mask = len(new_slots) - 1
    for i in range(len(slots)):
        if slots[i]:
            s = np.int64(slots[i]) & mask
            while new_slots[s]:
                s = (s + 1) & mask
            new_slots[s], new_owners[s] = slots[i], owners[i]


def _distinct(values: np.ndarray) -> np.ndarray:
    """Sorted, each once. (np.unique would hash them, which takes fifty times as long.)"""
    values = np.sort(values)
    return values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) else values


class Duplicates:
    """An index of documents that are not alike. What it says depends on the texts and their order alone."""

    def __init__(self, threshold: float = THRESHOLD, shingle: int = SHINGLE, exact: bool = True) -> None:
        if not 0 < threshold <= 1:
            raise NextwordError(f"The similarity of duplicates is {threshold}; give a number above 0 and up to 1.")
        if shingle < 1:
            raise NextwordError(f"A shingle of {shingle} words is none; give 1 or more (5 is usual).")
        self.threshold, self.shingle, self.exact = threshold, shingle, exact
        self.bands, self.rows = banding(threshold)
        hashes = self.bands * self.rows
        # the estimate strays by √(s (1 − s) / hashes): who is five times that below the threshold is not compared
        stray = 5 * math.sqrt(threshold * (1 - threshold) / hashes) if exact else 0.0
        self.least = math.ceil(hashes * (threshold - stray) - 1e-9)
        self.factors = np.random.default_rng(1997).integers(0, 1 << 63, hashes, np.uint64) * np.uint64(2) + np.uint64(1)
        self.kept = 0
        self.signatures = np.empty((1024, hashes), np.uint32)
        self.slots, self.owners = np.zeros(1 << 15, np.uint64), np.zeros(1 << 15, np.int32)
        self.candidates = np.empty(1 << 14, np.int64)
        self.places: list[tuple[int, int]] = []  # of shingles in the scratch file: where, and how many
        self.scratch = tempfile.TemporaryFile(prefix="nextword-") if exact else None  # noqa: SIM115
        self.end = 0

    def add(self, texts: list[str]) -> list[Duplicate]:
        """Look each text up, and keep those that are new; their numbers count the kept ones from 0."""
        found = words(texts)
        signatures = np.empty((len(texts), len(self.factors)), np.uint32)
        shingles, counts = np.empty(len(found.hashes), np.uint64), np.zeros(len(texts), np.int64)
        spread(
            len(texts),
            _sign,
            found.hashes,
            found.firsts,
            self.shingle,
            self.factors,
            signatures,
            shingles,
            counts,
            least=4,
        )
        keys = np.empty(self.bands, np.uint64)
        out = []
        for text in range(len(texts)):
            low = found.firsts[text]
            mine = _distinct(shingles[low : low + counts[text]]) if self.exact else shingles[:0]
            _keys(signatures[text], self.bands, self.rows, keys)
            out.append(self._find(keys, signatures[text], mine) if counts[text] else Duplicate(NEW, 0.0))
            if out[-1].of == NEW and counts[text]:
                self._keep(keys, signatures[text], mine)
            elif out[-1].of == NEW:
                self._number(0)
        return out

    def _find(self, keys: np.ndarray, signature: np.ndarray, mine: np.ndarray) -> Duplicate:
        n = _look(keys, signature, self.slots, self.owners, self.signatures, self.least, self.candidates)
        for owner in np.sort(self.candidates[:n]).tolist():
            if not self.exact:
                return Duplicate(owner, float((signature == self.signatures[owner]).mean()))
            if (similarity := self._similarity(mine, owner)) >= self.threshold:
                return Duplicate(owner, similarity)
        return Duplicate(NEW, 0.0)

    def _similarity(self, mine: np.ndarray, owner: int) -> float:
        assert self.scratch is not None
        start, size = self.places[owner]
        if min(size, len(mine)) < self.threshold * max(size, len(mine)):
            return 0.0
        self.scratch.seek(start)
        theirs = np.frombuffer(self.scratch.read(8 * size), np.uint64)
        common = len(np.intersect1d(mine, theirs, assume_unique=True))
        return common / (len(mine) + size - common)

    def _keep(self, keys: np.ndarray, signature: np.ndarray, mine: np.ndarray) -> None:
        if (self.kept + 1) * self.bands * 4 > len(self.slots) * 3:
            slots, owners = np.zeros(2 * len(self.slots), np.uint64), np.zeros(2 * len(self.slots), np.int32)
            _move(self.slots, self.owners, slots, owners)
            self.slots, self.owners = slots, owners
        _enter(keys, self.kept, self.slots, self.owners)
        number = self.kept
        self._number(len(mine))
        self.signatures[number] = signature
        if self.scratch is not None:
            self.scratch.seek(self.end)
            self.scratch.write(mine.tobytes())
            self.end += mine.nbytes

    def _number(self, size: int) -> None:
        if self.kept == len(self.signatures):
            self.signatures = np.concatenate([self.signatures, np.empty_like(self.signatures)])
        if self.exact:
            self.places.append((self.end, size))
        self.kept += 1


def marked(documents: Iterable[Document], index: Duplicates | None = None) -> Iterator[tuple[Document, Duplicate]]:
    """Every document, in order, with what it repeats, if anything. Passages of a document come joined."""
    index = index or Duplicates()
    for batch in batches(parts(documents)):
        results = index.add([part.document.text for part in batch])
        yield from ((part.document, result) for part, result in zip(batch, results, strict=True))


def unique(documents: Iterable[Document], index: Duplicates | None = None) -> Iterator[Document]:
    """The documents without those that repeat an earlier one."""
    return (document for document, found in marked(documents, index) if found.of == NEW)
