"""Words of a text as 64-bit hashes, ignoring case and punctuation: the basis of all filters.

    "Ruth 's state-of-the-art"   →   ruth  s  state  of  the  art

A word is a run of letters and digits, case-folded. Punctuation ends a word, so a tokenized text (WikiText writes `Ruth
's` and `1 @,@ 000`) has the same words as the original. In scripts without spaces every character is a word.

`fold_words` is the definition, on strings. `hash_words` gives the same words as hashes, compiled, for many texts at
once, and `hash_ngrams` hashes every n-gram of them.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from nextword.core.jit import jit, mix_bits
from nextword.core.types import Document
from nextword.data.segmentation import UNSPACED

TABLE = 1 << 17  # code points in the table; those beyond are ideographs, which do not fold
SPACE, REMOVED = 0, 1  # in the table, besides folded characters: separators, and characters to ignore
ALONE = np.uint32(1 << 31)  # flag of a character that is a word by itself
MAX_PART = 1 << 20  # characters of a document to process at once
OVERLAP = 2000  # characters of the previous part, for n-grams across the seam
BATCH_SIZE = 1 << 21  # characters
MIX = np.uint64(0x9E3779B97F4A7C15)
BASE = np.uint64(0xD6E8FEB86659FD93)


class HashedWords(NamedTuple):
    hashes: np.ndarray  # (N,) uint64
    spans: np.ndarray  # (N, 2) int64: in characters, counted from the beginning of the first text
    firsts: np.ndarray  # (texts + 1,) int64: first word of each text
    edges: np.ndarray  # (texts + 1,) int64: first character of each text


class DocumentPart(NamedTuple):
    """A whole document, or a part of at most MAX_PART characters with some characters of the part before it."""

    document: Document
    before: str = ""


def _fold_character(code: int) -> str:
    character = chr(code)
    kind = unicodedata.category(character)
    if kind == "Cf":  # soft hyphens, joiners
        return ""
    if character.isspace() or kind[0] in "PSCZ" or character in string.punctuation:
        return " "
    folded = character.casefold()
    return folded if len(folded) == 1 else character.lower()[0]


def _is_unspaced(code: int) -> bool:
    return code >= TABLE or any(low <= code <= high for low, high in UNSPACED)


class _Fold(dict[int, str]):
    def __missing__(self, code: int) -> str:
        folded = _fold_character(code)
        self[code] = f" {folded} " if folded.strip() and _is_unspaced(code) else folded
        return self[code]


_FOLD = _Fold()


def fold_words(text: str) -> list[str]:
    """Return the words of a text."""
    return text.translate(_FOLD).split()


@cache
def _table() -> np.ndarray:
    """Return the folded form of each character for `hash_words`, as `fold_words` folds it."""
    table = np.empty(TABLE, np.uint32)
    for code in range(TABLE):
        folded = _fold_character(code)
        table[code] = REMOVED if not folded else SPACE if folded == " " else ord(folded)
        if table[code] > REMOVED and _is_unspaced(code):
            table[code] |= ALONE
    return table


@jit
def _scan(codes, edges, table, hashes, spans, firsts):
    n = 0
    for text in range(len(edges) - 1):
        firsts[text] = n
        i, end = edges[text], edges[text + 1]
        while i < end:
            code = codes[i]
            f = table[code] if code < TABLE else code | ALONE
            i += 1
            if f <= REMOVED:
                continue
            begin = i - 1
            h = np.uint64(f) * MIX
            while f < ALONE and i < end:
                code = codes[i]
                f = table[code] if code < TABLE else code | ALONE
                if f == SPACE or f >= ALONE:  # the latter begins the next word
                    break
                if f != REMOVED:
                    h = (h ^ np.uint64(f)) * MIX
                i += 1
            hashes[n], spans[n, 0], spans[n, 1] = mix_bits(h), begin, i
            n += 1
    firsts[len(edges) - 1] = n
    return n


def hash_words(texts: list[str]) -> HashedWords:
    """Return the words of all texts in one array."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32)
    edges = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=edges[1:])
    # An upper bound of the size: memory that is never written costs nothing.
    hashes, spans = np.empty(len(codes), np.uint64), np.empty((len(codes), 2), np.int64)
    firsts = np.empty(len(texts) + 1, np.int64)
    n = _scan(codes, edges, _table(), hashes, spans, firsts)
    return HashedWords(hashes[:n], spans[:n], firsts, edges)


@jit
def roll_ngrams(hashes, begin, end, n, out):
    """Write the hash of the n-gram at each of [begin, end − n] to out[0], out[1] …; return how many there are."""
    last = np.uint64(1)
    for _ in range(n):
        last *= BASE
    h = np.uint64(0)
    count = 0
    for i in range(begin, end):
        h = h * BASE + hashes[i]
        if i - begin >= n:
            h -= hashes[i - n] * last
        if i - begin >= n - 1:
            out[count] = mix_bits(h)
            count += 1
    return count


@jit
def _roll_all(hashes, firsts, n, out, first_words):
    count = 0
    for text in range(len(firsts) - 1):
        new = roll_ngrams(hashes, firsts[text], firsts[text + 1], n, out[count:])
        for i in range(new):
            first_words[count + i] = firsts[text] + i
        count += new
    return count


def hash_ngrams(words: HashedWords, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return hash and first word of every n-gram; none crosses from one text into the next."""
    out, first_words = np.empty(len(words.hashes), np.uint64), np.empty(len(words.hashes), np.int64)
    count = _roll_all(words.hashes, words.firsts, n, out, first_words)
    return out[:count], first_words[:count]


def join_passages(documents: Iterable[Document], size: int = MAX_PART) -> Iterator[DocumentPart]:
    """Join the passages of each document; a document longer than `size` characters comes in several parts."""
    pending: list[str] = []
    about, length, before, continues = Document(""), 0, "", False
    for document in documents:
        if pending and (not document.continues or length + len(document.text) > size):
            text = "".join(pending)
            yield DocumentPart(Document(text, about.id, about.title, continues), before)
            before, continues = (text[-OVERLAP:], True) if document.continues else ("", False)
            pending, length = [], 0
        if not document.continues:
            about, before, continues = document, "", False
        pending.append(document.text)
        length += len(document.text)
    if pending:
        yield DocumentPart(Document("".join(pending), about.id, about.title, continues), before)


def batch_parts(parts: Iterable[DocumentPart], characters: int = BATCH_SIZE) -> Iterator[list[DocumentPart]]:
    """Group parts, so that compiled loops have enough to do."""
    batch: list[DocumentPart] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += len(part.document.text)
        if size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
