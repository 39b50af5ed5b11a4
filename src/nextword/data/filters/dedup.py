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

Words of a text as numbers, whatever its case and punctuation: what near-duplicates and leaks are told by.

    "Ruth 's state-of-the-art"   →   ruth  s  state  of  the  art

A word is a run of letters and digits, case folded. Punctuation ends a word and is no part of one, so that a text that
was split into tokens (WikiText writes `Ruth 's` and `1 @,@ 000`) has the words of the text it was made from; where
punctuation only vanished, the two would share far fewer grams. Characters of scripts that write no spaces are words by
themselves.

`fold` is the definition, on strings. `words` gives the same words as 64-bit hashes, compiled, many texts at once;
`grams` hashes every run of n of them.
"""

from __future__ import annotations

import math
import string
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.jit import compiled, spread
from nextword.core.types import Document

TABLE = 1 << 17  # characters beyond are ideographs, which nothing folds
SPACE, GONE = 0, 1  # in the table, beside folded characters: what separates words, and what is not there at all
ALONE = np.uint32(1 << 31)  # a word by itself
UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF))
PART = 1 << 20  # characters of a document that are looked at together
BEFORE = 2000  # characters of the part before, for what lies across the seam
TOGETHER = 1 << 21  # characters in a batch
MIX = np.uint64(0x9E3779B97F4A7C15)
BASE = np.uint64(0xD6E8FEB86659FD93)


class Words(NamedTuple):
    hashes: np.ndarray  # (N,) uint64
    spans: np.ndarray  # (N, 2) int64: characters, counted from the beginning of the first text
    firsts: np.ndarray  # (texts + 1,) int64: the first word of each text
    edges: np.ndarray  # (texts + 1,) int64: its first character


class Part(NamedTuple):
    """A whole document; or, of one that came in passages, at most PART characters and some of those before."""

    document: Document
    before: str = ""


def _folded(code: int) -> str:
    character = chr(code)
    kind = unicodedata.category(character)
    if kind == "Cf":  # soft hyphens, joiners
        return ""
    if character.isspace() or kind[0] in "PSCZ" or character in string.punctuation:
        return " "
    folded = character.casefold()
    return folded if len(folded) == 1 else character.lower()[0]


def _alone(code: int) -> bool:
    return code >= TABLE or any(low <= code <= high for low, high in UNSPACED)


class _Fold(dict[int, str]):
    def __missing__(self, code: int) -> str:
        folded = _folded(code)
        self[code] = f" {folded} " if folded.strip() and _alone(code) else folded
        return self[code]


_FOLD = _Fold()


def fold(text: str) -> list[str]:
    """The words of a text."""
    return text.translate(_FOLD).split()


@cache
def _table() -> np.ndarray:
    """What each character is to `words`: the same as to `fold`."""
    table = np.empty(TABLE, np.uint32)
    for code in range(TABLE):
        folded = _folded(code)
        table[code] = GONE if not folded else SPACE if folded == " " else ord(folded)
        if table[code] > GONE and _alone(code):
            table[code] |= ALONE
    return table


@compiled
def mixed(h):
    """Every bit of the result depends on every bit of h."""
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))


@compiled
def _scan(codes, edges, table, hashes, spans, firsts):
    n = 0
    for text in range(len(edges) - 1):
        firsts[text] = n
        i, end = edges[text], edges[text + 1]
        while i < end:
            code = codes[i]
            f = table[code] if code < TABLE else code | ALONE
            i += 1
            if f <= GONE:
                continue
            begin = i - 1
            h = np.uint64(f) * MIX
            while f < ALONE and i < end:
                code = codes[i]
                f = table[code] if code < TABLE else code | ALONE
                if f == SPACE or f >= ALONE:  # the latter begins the next word
                    break
                if f != GONE:
                    h = (h ^ np.uint64(f)) * MIX
                i += 1
            hashes[n], spans[n, 0], spans[n, 1] = mixed(h), begin, i
            n += 1
    firsts[len(edges) - 1] = n
    return n


def words(texts: list[str]) -> Words:
    """The words of texts, in one array."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    edges = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=edges[1:])
    hashes, spans = (
        np.empty(len(codes), np.uint64),
        np.empty((len(codes), 2), np.int64),
    )  # pages not written cost nothing
    firsts = np.empty(len(texts) + 1, np.int64)
    n = _scan(codes, edges, _table(), hashes, spans, firsts)
    return Words(hashes[:n], spans[:n], firsts, edges)


@compiled
def roll(hashes, begin, end, n, out):
    """Hashes of the n words from each place in [begin, end − n] on, written from out[0] on; returns how many."""
    last = np.uint64(1)
    for _ in range(n):
        last *= BASE
    h = np.uint64(0)
    made = 0
    for i in range(begin, end):
        h = h * BASE + hashes[i]
        if i - begin >= n:
            h -= hashes[i - n] * last
        if i - begin >= n - 1:
            out[made] = mixed(h)
            made += 1
    return made


@compiled
def _all(hashes, firsts, n, out, at):
    made = 0
    for text in range(len(firsts) - 1):
        new = roll(hashes, firsts[text], firsts[text + 1], n, out[made:])
        for i in range(new):
            at[made + i] = firsts[text] + i
        made += new
    return made


def grams(found: Words, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Hash and first word of every run of n words; none runs from one text into the next."""
    out, at = np.empty(len(found.hashes), np.uint64), np.empty(len(found.hashes), np.int64)
    made = _all(found.hashes, found.firsts, n, out, at)
    return out[:made], at[:made]


def parts(documents: Iterable[Document], size: int = PART) -> Iterator[Part]:
    """Documents whole again, however many passages they came in; one longer than `size` characters in parts."""
    held: list[str] = []
    about, length, before, continues = Document(""), 0, "", False
    for document in documents:
        if held and (not document.continues or length + len(document.text) > size):
            text = "".join(held)
            yield Part(Document(text, about.id, about.title, continues), before)
            before, continues = (text[-BEFORE:], True) if document.continues else ("", False)
            held, length = [], 0
        if not document.continues:
            about, before, continues = document, "", False
        held.append(document.text)
        length += len(document.text)
    if held:
        yield Part(Document("".join(held), about.id, about.title, continues), before)


def batches(found: Iterable[Part], characters: int = TOGETHER) -> Iterator[list[Part]]:
    """As many at a time as keep a compiled loop busy."""
    batch: list[Part] = []
    size = 0
    for part in found:
        batch.append(part)
        size += len(part.document.text)
        if size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


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
