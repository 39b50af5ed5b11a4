"""Near-duplicates: of documents that share most of their words in a row, only the first is kept.

A document is compared by its shingles, the set of its 5-grams of words; the similarity of two documents is the Jaccard
index of their sets. MinHash with banding (Broder 1997) finds similar documents without comparing all pairs:

    shingles    {a, b, c, …}
    signature   min h₁, min h₂, … , min h₈₀      two documents agree in each with probability s, their similarity
    bands       [1 … 5] [6 … 10] … [76 … 80]     a band agrees with probability s⁵; one of 16 does: 1 − (1 − s⁵)¹⁶

A document that has a band in common with a kept one is a candidate. With `exact`, the two sets of shingles are compared
as well, so that nothing is removed that is not similar. Missed duplicates, for the threshold 0.8:

    similarity   0.80      0.85         0.90            1
    missed       1 in 573  1 in 11,888  1 in 1,598,703  never

GPT-3 (Brown et al. 2020, appendix A) used Spark's MinHashLSH with 10 hashes over single words, which removed 10 % of
the text. Memory grows by about 0.7 kB per kept document, whatever its length. `exact` keeps the shingles in a temporary
file, 8 bytes per word; without it the estimate from the signatures decides.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from nextword.core.errors import TEMPORARY, explain_write_errors, invalid
from nextword.core.jit import jit, mix_bits, run_parallel
from nextword.core.types import Document
from nextword.data.filters.word_hashes import batch_parts, hash_words, join_passages, roll_ngrams

THRESHOLD = 0.8
SHINGLE = 5  # words
MAX_MISSED = 0.002  # fraction of missed pairs exactly at the threshold
MAX_HASHES = 96
NEW = -1


class Match(NamedTuple):
    """The result for a document: `of` is the index of the kept document that it repeats, or NEW."""

    of: int
    similarity: float


def choose_bands(threshold: float, missed: float = MAX_MISSED, most: int = MAX_HASHES) -> tuple[int, int]:
    """Return bands and rows: as many rows as possible (fewest candidates) with at most `missed` at the threshold."""
    best = (1, 1)
    for rows in range(1, most + 1):
        agree = threshold**rows
        bands = 1 if agree >= 1 else math.ceil(math.log(missed) / math.log1p(-agree))
        if bands * rows <= most:
            best = (bands, rows)
    return best


def detection_probability(similarity: float, bands: int, rows: int) -> float:
    """Return the probability that a pair of this similarity is found."""
    return 1 - (1 - similarity**rows) ** bands


@jit
def _compute_signatures(begin, end, hashes, firsts, n, factors, signatures, shingles, counts):
    """Compute the signatures of texts, and their shingles, stored at the positions of their first words."""
    for text in range(begin, end):
        low, high = firsts[text], firsts[text + 1]
        if high - low >= n:
            count = roll_ngrams(hashes, low, high, n, shingles[low:])
        elif high > low:  # a short text is its only shingle
            count = roll_ngrams(hashes, low, high, high - low, shingles[low:])
        else:
            count = 0
        counts[text] = count
        signature = signatures[text]
        signature[:] = 0xFFFFFFFF
        for i in range(low, low + count):
            x = shingles[i]
            for j in range(len(factors)):
                h = np.uint32((x * factors[j]) >> np.uint64(32))
                signature[j] = min(signature[j], h)


@jit
def _band_keys(signature, bands, rows, out):
    for band in range(bands):
        h = np.uint64(band + 1)
        for j in range(band * rows, (band + 1) * rows):
            h = mix_bits(h ^ np.uint64(signature[j])) + np.uint64(1)
        out[band] = max(h, np.uint64(1))


@jit
def _find_candidates(keys, signature, slots, owners, signatures, least, out):
    """Write the kept documents with a band in common and at least `least` equal hashes to `out`; return how many."""
    mask = len(slots) - 1
    n = 0
    for key in keys:
        s = np.int64(key) & mask
        while slots[s]:
            if slots[s] == key:
                owner = owners[s]
                is_new = True
                for i in range(n):
                    is_new = is_new and out[i] != owner
                if is_new:
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


@jit
def _insert(keys, owner, slots, owners):
    mask = len(slots) - 1
    for key in keys:
        s = np.int64(key) & mask
        while slots[s]:
            s = (s + 1) & mask
        slots[s], owners[s] = key, owner


@jit
def _rehash(slots, owners, new_slots, new_owners):
    mask = len(new_slots) - 1
    for i in range(len(slots)):
        if slots[i]:
            s = np.int64(slots[i]) & mask
            while new_slots[s]:
                s = (s + 1) & mask
            new_slots[s], new_owners[s] = slots[i], owners[i]


def _sorted_unique(values: np.ndarray) -> np.ndarray:
    """Sort and remove repeated values. (np.unique hashes them, which takes fifty times as long.)"""
    values = np.sort(values)
    return values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) else values


class DuplicateIndex:
    """An index of distinct documents. Its answers only depend on the texts and their order."""

    def __init__(self, threshold: float = THRESHOLD, shingle: int = SHINGLE, exact: bool = True) -> None:
        if not 0 < threshold <= 1:
            raise invalid("threshold", threshold, "must be a similarity above 0 and up to 1.")
        if shingle < 1:
            raise invalid("shingle", shingle, "must be 1 word or more (5 is usual).")
        self.threshold, self.shingle, self.exact = threshold, shingle, exact
        self.bands, self.rows = choose_bands(threshold)
        hashes = self.bands * self.rows
        # The estimate has a standard deviation of √(s (1 − s) / hashes). Documents five of them below the threshold are
        # not compared.
        margin = 5 * math.sqrt(threshold * (1 - threshold) / hashes) if exact else 0.0
        self.least = math.ceil(hashes * (threshold - margin) - 1e-9)
        self.factors = np.random.default_rng(1997).integers(0, 1 << 63, hashes, np.uint64) * np.uint64(2) + np.uint64(1)
        self.kept = 0
        self.signatures = np.empty((1024, hashes), np.uint32)
        self.slots, self.owners = np.zeros(1 << 15, np.uint64), np.zeros(1 << 15, np.int32)
        self.candidates = np.empty(1 << 14, np.int64)
        self.places: list[tuple[int, int]] = []  # of shingles in the scratch file: offset, count
        with explain_write_errors(TEMPORARY):
            self.scratch = tempfile.TemporaryFile(prefix="nextword-") if exact else None  # noqa: SIM115
        self.end = 0

    def add(self, texts: list[str]) -> list[Match]:
        """Look up each text, and add those that are new. Kept documents are numbered from 0."""
        with explain_write_errors(TEMPORARY):
            return self._add(texts)

    def _add(self, texts: list[str]) -> list[Match]:
        words = hash_words(texts)
        signatures = np.empty((len(texts), len(self.factors)), np.uint32)
        shingles, counts = np.empty(len(words.hashes), np.uint64), np.zeros(len(texts), np.int64)
        inputs = words.hashes, words.firsts, self.shingle, self.factors
        run_parallel(len(texts), _compute_signatures, *inputs, signatures, shingles, counts, least=4)
        keys = np.empty(self.bands, np.uint64)
        out = []
        for text in range(len(texts)):
            low = words.firsts[text]
            own = _sorted_unique(shingles[low : low + counts[text]]) if self.exact else shingles[:0]
            _band_keys(signatures[text], self.bands, self.rows, keys)
            out.append(self._find(keys, signatures[text], own) if counts[text] else Match(NEW, 0.0))
            if out[-1].of == NEW and counts[text]:
                self._keep(keys, signatures[text], own)
            elif out[-1].of == NEW:
                self._count_kept(0)
        return out

    def _find(self, keys: np.ndarray, signature: np.ndarray, own: np.ndarray) -> Match:
        n = _find_candidates(keys, signature, self.slots, self.owners, self.signatures, self.least, self.candidates)
        for owner in np.sort(self.candidates[:n]).tolist():
            if not self.exact:
                return Match(owner, float((signature == self.signatures[owner]).mean()))
            if (similarity := self._similarity(own, owner)) >= self.threshold:
                return Match(owner, similarity)
        return Match(NEW, 0.0)

    def _similarity(self, own: np.ndarray, owner: int) -> float:
        """Return the Jaccard index with the shingles of a kept document."""
        assert self.scratch is not None
        start, size = self.places[owner]
        if min(size, len(own)) < self.threshold * max(size, len(own)):
            return 0.0
        self.scratch.seek(start)
        other = np.frombuffer(self.scratch.read(8 * size), np.uint64)
        common = len(np.intersect1d(own, other, assume_unique=True))
        return common / (len(own) + size - common)

    def _keep(self, keys: np.ndarray, signature: np.ndarray, own: np.ndarray) -> None:
        if (self.kept + 1) * self.bands * 4 > len(self.slots) * 3:
            slots, owners = np.zeros(2 * len(self.slots), np.uint64), np.zeros(2 * len(self.slots), np.int32)
            _rehash(self.slots, self.owners, slots, owners)
            self.slots, self.owners = slots, owners
        _insert(keys, self.kept, self.slots, self.owners)
        number = self.kept
        self._count_kept(len(own))
        self.signatures[number] = signature
        if self.scratch is not None:
            self.scratch.seek(self.end)
            self.scratch.write(own.tobytes())
            self.end += own.nbytes

    def _count_kept(self, size: int) -> None:
        if self.kept == len(self.signatures):
            self.signatures = np.concatenate([self.signatures, np.empty_like(self.signatures)])
        if self.exact:
            self.places.append((self.end, size))
        self.kept += 1


def find_duplicates(
    documents: Iterable[Document], index: DuplicateIndex | None = None
) -> Iterator[tuple[Document, Match]]:
    """Yield every document with the document that it repeats, if any. Passages of a document come joined."""
    index = index or DuplicateIndex()
    for batch in batch_parts(join_passages(documents)):
        results = index.add([part.document.text for part in batch])
        yield from ((part.document, result) for part, result in zip(batch, results, strict=True))


def remove_duplicates(documents: Iterable[Document], index: DuplicateIndex | None = None) -> Iterator[Document]:
    """Yield the documents that do not repeat an earlier one."""
    return (document for document, match in find_duplicates(documents, index) if match.of == NEW)
