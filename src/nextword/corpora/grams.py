"""Words of a text as numbers, whatever its case and punctuation: what near-duplicates and leaks are told by.

    "Ruth 's state-of-the-art"   →   ruth  s  state  of  the  art

A word is a run of letters and digits, case folded. Punctuation ends a word and is no part of one, so that a text that
was split into tokens (WikiText writes `Ruth 's` and `1 @,@ 000`) has the words of the text it was made from; where
punctuation only vanished, the two would share far fewer grams. Characters of scripts that write no spaces are words by
themselves.

`fold` is the definition, on strings. `words` gives the same words as 64-bit hashes, compiled, many texts at once;
`grams` hashes every run of n of them.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from nextword.compiled import compiled
from nextword.corpora.document import Document

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
