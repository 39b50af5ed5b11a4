r"""Closed-vocabulary words, as in PTB and WikiText: split at spaces, `<eos>` at line ends, `<unk>` for other words.

    "the cat\n\nsat"  →  the  cat  <eos>  <eos>  sat

A literal `<unk>` in the text is the unknown word itself, since the benchmark files are written that way. A literal
`<eos>` is an unknown word: only a real line end ends a line. With `lines=False` a line end is a space like any other,
and `<eos>` ends a document. Lossy: the kinds of space and the unknown words are not recoverable.

The compiled half of this file turns texts into ids in two passes, over the bytes for the words, and over the words for
their ids:

    texts   t h e ␣ c a t FF s a t FF      each text is followed by a byte that never occurs in UTF-8
    blob    t h e FF c a t FF s a t FF     the known words; `starts` says where each begins
    slots   key id · · · · key id · ·      hash table with open addressing; key 0 marks an empty slot

The key of a word of up to seven bytes is these bytes, so equal keys mean equal words. The key of a longer word is a
hash with the highest bit set, and the bytes themselves are compared as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nextword.core.errors import invalid
from nextword.core.jit import jit
from nextword.core.types import Encoding
from nextword.tokenizers.alignment import IS_WIDE_SPACE, SPACES, utf8
from nextword.tokenizers.base import VERSION, Tokenizer

UNKNOWN, EOS = "<unk>", "<eos>"
BATCH_SIZE = 1 << 20  # characters to count at once


class Words(Tokenizer):
    """Ids for these words after `<unk>` (0) and `<eos>` (1), in this order: most frequent first when trained."""

    kind = "words"
    lossless = False
    words: tuple[str, ...]

    def __init__(self, words: Sequence[str], lower: bool = False, lines: bool = True) -> None:
        self.words = tuple(words)
        self.lower, self.lines = lower, lines
        self.special = {UNKNOWN: 0, EOS: 1}
        self.begin = 1
        self.end = None if lines else 1
        self.pieces = [f" {UNKNOWN}".encode(), b"\n", *(b" " + utf8(word) for word in self.words)]
        self._table: WordTable | None = None  # built on first use

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        ids, spans, words, ends, sizes = self._encode(texts)
        if len(texts) > 1:
            first_bytes = np.cumsum([0, *sizes[:-1]]) + np.arange(len(sizes))  # there is a byte between two texts
            spans -= np.repeat(first_bytes, np.diff(ends, prepend=0))[:, None]
        stops = ends.tolist()
        return [Encoding(ids[a:b], spans[a:b], words[a:b]) for a, b in zip([0, *stops], stops, strict=False)]

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Return the ids of all texts in one array, and each text's number of ids and of bytes, for fast scoring."""
        ids, _, _, ends, sizes = self._encode(texts)
        return ids, np.diff(ends, prepend=0), sizes

    def _encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[int]]:
        """Return ids, spans and words of all texts, where each text ends among them, and each text's bytes."""
        if self._table is None:
            self._table = build_table(self.words)
        raw, sizes = concatenate(texts)
        ends = np.empty(len(texts), np.int64)
        keys, spans, words = scan(raw, self.lines, ends)
        lookup_spans = spans
        if self.lower:  # the same words, but not always of the same length: İ
            raw, _ = concatenate([text.lower() for text in texts])
            keys, lookup_spans, _ = scan(raw, self.lines, ends)
        ids = np.empty(len(keys), np.int64)
        find(raw, keys, lookup_spans, ids, 0, 0, *self._table)
        return ids, spans, words, ends, sizes

    def content(self) -> dict[str, Any]:
        header = {"version": VERSION, "kind": self.kind, "lower": self.lower, "lines": self.lines}
        return {"nextword": header, "words": list(self.words)}


def train_words(texts: Iterable[str], size: int | None, min_count: int, lower: bool, lines: bool) -> Words:
    """Keep the most frequent words; ties in alphabetical order, so that the order of the texts does not matter."""
    if size is not None:
        check_size(size)
    counter = WordCounter()
    for batch in batch_texts(texts):
        counter.add([text.lower() for text in batch] if lower else batch)
    words, counts = counter.result()
    frequent = [i for i in range(len(words)) if counts[i] >= min_count and words[i] not in (UNKNOWN, EOS)]
    frequent.sort(key=words.__getitem__)
    frequent.sort(key=counts.__getitem__, reverse=True)  # stable: ties stay in alphabetical order
    return Words([words[i] for i in frequent[: None if size is None else size - 2]], lower, lines)


def check_size(size: int) -> None:
    if size < 3:
        raise invalid("size", size, f"is too small: {UNKNOWN}, {EOS} and a word need at least 3.", "[tokenizer]")


def batch_texts(texts: Iterable[str]) -> Iterator[list[str]]:
    """Group texts for `WordCounter.add`."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text) + 1
        if characters >= BATCH_SIZE:
            yield batch
            batch, characters = [], 0
    yield batch


# ------------------------------------------------------------------------------------------------ compiled

END = 0xFF
INSERT = -1
FIRST_ID = 2  # of a word in the table; lower ids are <unk> and <eos>
LONG = np.uint64(1 << 63)  # bit of the key of a word of more than seven bytes
MIX = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio, for Fibonacci hashing
NOTHING, ONE = np.uint64(0), np.uint64(1)  # a key starts as 1, which marks where its bytes begin
LINE_END = np.uint64(0x10A)  # the key of "\n", which no word has
INSIDE, SPACE, LINE, MAYBE, OVER = range(5)  # kinds of bytes; MAYBE: first byte of a space of several bytes

_KIND = np.full(256, INSIDE, np.uint8)
_KIND[[space.encode()[0] for space in SPACES]] = [SPACE if space.isascii() else MAYBE for space in SPACES]
_KIND[[ord("\n"), END]] = LINE, OVER


class WordTable(NamedTuple):
    """A hash table from word to id. Word i is `blob[starts[i] : starts[i + 1] - 1]`, followed by one END byte."""

    slots: np.ndarray  # (2 × a power of two) uint64
    blob: np.ndarray  # uint8
    starts: np.ndarray  # int64


def concatenate(texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    """Return the bytes of all texts, each text followed by END, and the number of bytes of each."""
    try:
        parts = list(map(str.encode, texts))
    except UnicodeEncodeError:
        parts = list(map(utf8, texts))  # raises our own error, which names the character
    sizes = list(map(len, parts))
    parts.append(b"")
    return np.frombuffer(bytearray([END]).join(parts), np.uint8), sizes


@jit
def wide_space_length(raw, i):
    """Return the number of bytes of the space character that begins at this MAYBE byte; 0 for another character."""
    b = np.int64(raw[i])
    if b < 0xE0:
        return 2 if IS_WIDE_SPACE[(b & 0x1F) << 6 | (raw[i + 1] & 0x3F)] else 0
    code = (b & 0xF) << 12 | (np.int64(raw[i + 1]) & 0x3F) << 6 | (raw[i + 2] & 0x3F)
    return 3 if IS_WIDE_SPACE[code] else 0


@jit
def scan(raw, lines, ends):
    """Split concatenated texts into words: key, span in bytes, index of the word within its text.

    With `lines`, line ends are among them, though not counted as words. Writes to `ends` where each text ends among the
    words. All loops are written out: calling a compiled function that takes arrays is slow.
    """
    room = 0  # upper bound: after each word there is a byte that is not INSIDE, and a line end is such a byte itself
    for b in raw:
        room += (_KIND[b] != INSIDE) + (_KIND[b] == LINE)
    keys, spans, before = np.empty(room, np.uint64), np.empty((room, 2), np.int64), np.empty(room, np.int64)
    n = words = first = text = i = 0
    while i < len(raw):
        kind = _KIND[raw[i]]
        step = wide_space_length(raw, i) if kind == MAYBE else 1
        if kind == INSIDE or step == 0:
            begin = i
            key, folded = ONE, NOTHING
            while True:
                b = raw[i]
                kind = _KIND[b]
                if kind != INSIDE and (kind != MAYBE or wide_space_length(raw, i)):
                    break
                if key >> np.uint64(56):
                    key, folded = ONE, (folded ^ key) * MIX | LONG
                key = key << np.uint64(8) | np.uint64(b)
                i += 1
            if folded:
                folded = (folded ^ key) * MIX
                key = (folded ^ folded >> np.uint64(32)) | LONG
            keys[n], spans[n, 0], spans[n, 1], before[n] = key, begin, i, words
            n += 1
            words += 1
            continue
        if kind == LINE and lines:
            keys[n], spans[n, 0], spans[n, 1], before[n] = LINE_END, i, i + 1, words
            n += 1
        elif kind == OVER:
            j = n - 1
            while j >= first and before[j] == words:  # line ends after the last word belong to it
                before[j] = words - 1
                j -= 1
            ends[text] = n
            text, first, words = text + 1, n, 0
        i += step
    return keys[:n], spans[:n], before[:n]


@jit
def find(raw, keys, spans, ids, i, n, slots, blob, starts):
    """Look up the words from the ith on; write 0 for an unknown word. Return (i, n), at the end or when room runs out.

    n = 0        leave the table as it is
    n = INSERT   insert each word with the id that it has in `ids`
    n > 0        insert each unknown word, with the next id from n on
    """
    mask = len(slots) // 2 - 1
    while i < len(keys):
        key, begin, end = keys[i], spans[i, 0], spans[i, 1]
        s = np.int64((key * MIX) >> np.uint64(32)) & mask
        while slots[2 * s]:
            if slots[2 * s] == key:
                if key < LONG:
                    break
                id = np.int64(slots[2 * s + 1])
                shift = starts[id] - begin
                j = begin if starts[id + 1] - starts[id] == end - begin + 1 else end + 1
                while j < end and raw[j] == blob[j + shift]:
                    j += 1
                if j == end:
                    break
            s = (s + 1) & mask
        if n == INSERT:
            slots[2 * s], slots[2 * s + 1] = key, ids[i]
        elif n > 0 and not slots[2 * s]:
            after = starts[n] + end - begin
            if n + 1 == len(starts) or after >= len(blob):
                break
            for j in range(begin, end):
                blob[starts[n] + j - begin] = raw[j]
            blob[after] = END
            starts[n + 1] = after + 1
            slots[2 * s], slots[2 * s + 1] = key, n
            n += 1
        ids[i] = slots[2 * s + 1]
        i += 1
    return i, n


def build_table(words: Sequence[str]) -> WordTable:
    """Build the table in which word i has id FIRST_ID + i, and a line end has id 1. Of equal words the last counts."""
    blob, sizes = concatenate(words)
    starts = np.zeros(FIRST_ID + len(words) + 1, np.int64)
    np.cumsum(np.array(sizes, np.int64) + 1, out=starts[FIRST_ID + 1 :])
    return WordTable(fill_slots(blob, starts, 1 << (len(words) * 3 // 2 + 4).bit_length()), blob, starts)


def fill_slots(blob: np.ndarray, starts: np.ndarray, num_slots: int) -> np.ndarray:
    """Hash the line end and the words of a blob. Words that no text can contain ("a b") are left out."""
    ends = np.empty(len(starts) - 1 - FIRST_ID, np.int64)
    keys, spans, _ = scan(blob[: starts[-1]], False, ends)
    single = np.flatnonzero(np.diff(ends, prepend=0) == 1)  # scanned as exactly one word …
    full = np.stack([starts[FIRST_ID + single], starts[FIRST_ID + single + 1] - 1], 1)
    single = single[(spans[ends[single] - 1] == full).all(1)]  # … without a space at either end
    keys, spans = np.append(keys[ends[single] - 1], LINE_END), np.append(spans[ends[single] - 1], [[0, 0]], 0)
    slots = np.zeros(2 * num_slots, np.uint64)
    find(blob, keys, spans, np.append(FIRST_ID + single, 1), 0, INSERT, slots, blob, starts)
    return slots


class WordCounter:
    """Counts words, in the order of their first occurrence. Memory grows with the distinct words, not with the text."""

    def __init__(self, words: int = 1 << 15) -> None:
        self.size = FIRST_ID
        self.counts = np.zeros(words, np.int64)
        self.table = WordTable(
            np.zeros(4 * words, np.uint64), np.zeros(8 * words, np.uint8), np.zeros(words + 1, np.int64)
        )

    def add(self, texts: Sequence[str]) -> None:
        raw, _ = concatenate(texts)
        keys, spans, _ = scan(raw, False, np.empty(len(texts), np.int64))
        ids = self.ids_of(raw, keys, spans)
        self.counts += np.bincount(ids, minlength=len(self.counts))

    def ids_of(self, raw: np.ndarray, keys: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """Return the id of each word: FIRST_ID for the first word ever seen, and so on. New words are added."""
        ids = np.empty(len(keys), np.int64)
        i, self.size = find(raw, keys, spans, ids, 0, self.size, *self.table)
        while i < len(keys):
            self._grow(len(raw))
            i, self.size = find(raw, keys, spans, ids, i, self.size, *self.table)
        return ids

    def words_from(self, first: int) -> list[str]:
        """Return the words with this id and higher ones."""
        _, blob, starts = self.table
        parts = blob[starts[first] : starts[self.size]].tobytes().split(bytes([END]))[:-1]
        return [part.decode() for part in parts]

    def _grow(self, num_bytes: int) -> None:
        """Double the room for words, and make room for at least this many bytes more."""
        _, blob, starts = self.table
        self.counts = np.concatenate([self.counts, np.zeros_like(self.counts)])
        blob = np.concatenate([blob, np.zeros(max(len(blob), num_bytes), np.uint8)])
        starts = np.concatenate([starts, np.zeros(len(starts) - 1, np.int64)])
        self.table = WordTable(fill_slots(blob, starts[: self.size + 1], 2 * len(self.counts)), blob, starts)

    def result(self) -> tuple[list[str], list[int]]:
        return self.words_from(FIRST_ID), self.counts[FIRST_ID : self.size].tolist()
