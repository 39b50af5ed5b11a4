"""Closed-vocabulary words, as in PTB and WikiText: split at spaces, `<eos>` at line ends, `<unk>` for the rest.

    "the cat\n\nsat"  →  the  cat  <eos>  <eos>  sat

A literal `<unk>` in the text is the unknown word itself, for so the benchmark files are written. A literal `<eos>` is
a word never seen, hence `<unk>`: only a real line end ends a line. With `lines=False` line ends are spaces like
others, and `<eos>` ends a document.

Lossy: kinds of space, and words outside the vocabulary, do not come back.

Text to words to ids, compiled: a pass over the bytes for the words, and one over the words for their ids.

    texts   t h e ␣ c a t FF s a t FF      each is followed by a byte that UTF-8 never has
    blob    t h e FF c a t FF s a t FF     the words that are known; `starts` says where each begins
    slots   key id · · · · key id · ·      open addressing by key; a key of 0 is an empty slot

The key of a word of up to seven bytes is these bytes, so that equal keys are equal words. That of a longer word is a
hash of them, with the highest bit set; there the bytes themselves are compared too.

Compiled functions that are given arrays are slow to call: each loop here is written out, and calls none inside but the
rare `wide`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.jit import compiled
from nextword.core.types import Encoding
from nextword.tokenizers import base as storage
from nextword.tokenizers.base import SPACES, join, utf8

UNKNOWN, EOS = "<unk>", "<eos>"
TOGETHER = 1 << 20  # characters counted at once


class Words:
    """Ids for these words after `<unk>` (0) and `<eos>` (1), in the order given: commonest first when trained."""

    kind = "words"
    lossless = False

    def __init__(self, words: Sequence[str], lower: bool = False, lines: bool = True) -> None:
        self.words = tuple(words)
        self.lower, self.lines = lower, lines
        self.special: Mapping[str, int] = {UNKNOWN: 0, EOS: 1}
        self.begin = 1
        self.end = None if lines else 1
        self.pieces = [f" {UNKNOWN}".encode(), b"\n", *(b" " + utf8(word) for word in self.words)]
        self._table: Table | None = None  # made when first needed

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> Encoding:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        ids, spans, words, ends, sizes = self._split(texts)
        if len(texts) > 1:
            begins = np.cumsum([0, *sizes[:-1]]) + np.arange(len(sizes))  # a byte stands between two texts
            spans -= np.repeat(begins, np.diff(ends, prepend=0))[:, None]
        stops = ends.tolist()
        return [Encoding(ids[a:b], spans[a:b], words[a:b]) for a, b in zip([0, *stops], stops, strict=False)]

    def encode_flat(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """The ids of all texts in one array, how many each text has, and its bytes: all that scoring needs."""
        ids, _, _, ends, sizes = self._split(texts)
        return ids, np.diff(ends, prepend=0), sizes

    def _split(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[int]]:
        """Of all texts: ids, where they lie, words; and how many ids up to the end of each text, and its bytes."""

        if self._table is None:
            self._table = table_of(self.words)
        raw, sizes = laid(texts)
        ends = np.empty(len(texts), np.int64)
        keys, spans, words = scan(raw, self.lines, ends)
        places = spans
        if self.lower:  # has the same words, but not always as long: İ
            raw, _ = laid([text.lower() for text in texts])
            keys, places, _ = scan(raw, self.lines, ends)
        ids = np.empty(len(keys), np.int64)
        find(raw, keys, places, ids, 0, 0, *self._table)
        return ids, spans, words, ends, sizes

    def decode(self, ids: Iterable[int]) -> str:
        return join(self, ids)

    def piece(self, id: int) -> bytes:
        return self.pieces[id]

    def content(self) -> dict[str, Any]:
        header = {"version": storage.VERSION, "kind": self.kind, "lower": self.lower, "lines": self.lines}
        return {"nextword": header, "words": list(self.words)}

    def save(self, path: Path) -> None:
        storage.write(path, self.content())


def train_words(texts: Iterable[str], size: int | None, min_count: int, lower: bool, lines: bool) -> Words:
    """The commonest words; equally common ones in alphabetical order, so that the order of the texts is no matter."""
    if size is not None and size < 3:
        raise NextwordError(
            f"[tokenizer] size is {size}, which has no room for {UNKNOWN}, {EOS} and a word: give 3 or more."
        )

    tally = Tally()
    for batch in batches(texts):
        tally.add([text.lower() for text in batch] if lower else batch)
    words, counts = tally.result()
    common = [i for i in range(len(words)) if counts[i] >= min_count and words[i] not in (UNKNOWN, EOS)]
    common.sort(key=words.__getitem__)
    common.sort(key=counts.__getitem__, reverse=True)  # keeps the alphabetical order of equals
    return Words([words[i] for i in common[: None if size is None else size - 2]], lower, lines)


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts to be counted at once."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text) + 1
        if characters >= TOGETHER:
            yield batch
            batch, characters = [], 0
    yield batch


END = 0xFF
ENTER = -1
KNOWN = 2  # ids below stand for no word of the table
LONG = np.uint64(1 << 63)  # in a key: of more than seven bytes
MIX = np.uint64(0x9E3779B97F4A7C15)
NOTHING, ONE = np.uint64(0), np.uint64(1)  # the key of no bytes is 1, which marks where they begin
LINE_END = np.uint64(0x10A)  # the key of "\n", which no word has
INSIDE, SPACE, LINE, MAYBE, OVER = range(5)  # what a byte may be; MAYBE: the first of a space of several bytes

_KIND = np.full(256, INSIDE, np.uint8)
_KIND[[space.encode()[0] for space in SPACES]] = [SPACE if space.isascii() else MAYBE for space in SPACES]
_KIND[[ord("\n"), END]] = LINE, OVER
_WIDE = np.zeros(1 << 14, np.bool_)  # by code point; U+3000 is the last one
_WIDE[[ord(space) for space in SPACES if not space.isascii()]] = True


class Table(NamedTuple):
    """Words by their bytes. Word i is `blob[starts[i] : starts[i + 1] - 1]`: one byte stands between two words."""

    slots: np.ndarray  # (2 × a power of two) uint64
    blob: np.ndarray  # uint8
    starts: np.ndarray  # int64


def laid(texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    """The texts' bytes, each followed by END, and how many bytes each has."""
    try:
        parts = list(map(str.encode, texts))
    except UnicodeEncodeError:
        parts = list(map(utf8, texts))  # names the character that is none
    sizes = list(map(len, parts))
    parts.append(b"")
    return np.frombuffer(bytearray([END]).join(parts), np.uint8), sizes


@compiled
def wide(raw, i):
    """Bytes of the space character that begins here, with a byte that is MAYBE; 0 where it is another character."""
    b = np.int64(raw[i])
    if b < 0xE0:
        return 2 if _WIDE[(b & 0x1F) << 6 | (raw[i + 1] & 0x3F)] else 0
    code = (b & 0xF) << 12 | (np.int64(raw[i + 1]) & 0x3F) << 6 | (raw[i + 2] & 0x3F)
    return 3 if _WIDE[code] else 0


@compiled
def scan(raw, lines, ends):
    """Words of texts laid end to end: (key, its first byte and the byte after it, how many words come before it).

    With `lines`, a line end is among them, though not counted as a word. `ends` is given how many there are up to the
    end of each text.
    """
    room = 0  # a word has a byte after it that is not inside, and a line end is one itself
    for b in raw:
        room += (_KIND[b] != INSIDE) + (_KIND[b] == LINE)
    keys, spans, before = np.empty(room, np.uint64), np.empty((room, 2), np.int64), np.empty(room, np.int64)
    n = words = first = text = i = 0
    while i < len(raw):
        kind = _KIND[raw[i]]
        step = wide(raw, i) if kind == MAYBE else 1
        if kind == INSIDE or step == 0:
            begin = i
            key, folded = ONE, NOTHING
            while True:
                b = raw[i]
                kind = _KIND[b]
                if kind != INSIDE and (kind != MAYBE or wide(raw, i)):
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


@compiled
def find(raw, keys, spans, ids, i, n, slots, blob, starts):
    """The ids of words from the ith on; 0 where there is none. Returns i and n, at the end or where room is short.

    n = 0       the table stays as it is
    n = ENTER   each word is entered with the id that it has in `ids`
    n > 0       a word that is not there is added as the nth
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
        if n == ENTER:
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


def table_of(words: Sequence[str]) -> Table:
    """The table in which word i has id KNOWN + i, and a line end 1. Of equal words the last one counts."""
    blob, sizes = laid(words)
    starts = np.zeros(KNOWN + len(words) + 1, np.int64)
    np.cumsum(np.array(sizes, np.int64) + 1, out=starts[KNOWN + 1 :])
    return Table(entered(blob, starts, 1 << (len(words) * 3 // 2 + 4).bit_length()), blob, starts)


def entered(blob: np.ndarray, starts: np.ndarray, places: int) -> np.ndarray:
    """So many slots, with the line end and the words of a blob in them, but for words that no text gives: `a b`."""
    ends = np.empty(len(starts) - 1 - KNOWN, np.int64)
    keys, spans, _ = scan(blob[: starts[-1]], False, ends)
    one = np.flatnonzero(np.diff(ends, prepend=0) == 1)
    one = one[(spans[ends[one] - 1] == np.stack([starts[KNOWN + one], starts[KNOWN + one + 1] - 1], 1)).all(1)]
    keys, spans = np.append(keys[ends[one] - 1], LINE_END), np.append(spans[ends[one] - 1], [[0, 0]], 0)
    slots = np.zeros(2 * places, np.uint64)
    find(blob, keys, spans, np.append(KNOWN + one, 1), 0, ENTER, slots, blob, starts)
    return slots


class Tally:
    """Words, in the order in which they are first seen, and how often; takes room for these and one batch of text."""

    def __init__(self, words: int = 1 << 15) -> None:
        self.size = KNOWN
        self.counts = np.zeros(words, np.int64)
        self.table = Table(np.zeros(4 * words, np.uint64), np.zeros(8 * words, np.uint8), np.zeros(words + 1, np.int64))

    def add(self, texts: Sequence[str]) -> None:
        raw, _ = laid(texts)
        keys, spans, _ = scan(raw, False, np.empty(len(texts), np.int64))
        ids = self.numbers(raw, keys, spans)
        self.counts += np.bincount(ids, minlength=len(self.counts))

    def numbers(self, raw: np.ndarray, keys: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """The place of each word among those seen so far, from KNOWN on; words that are new are added."""
        ids = np.empty(len(keys), np.int64)
        i, self.size = find(raw, keys, spans, ids, 0, self.size, *self.table)
        while i < len(keys):
            self._grow(len(raw))
            i, self.size = find(raw, keys, spans, ids, i, self.size, *self.table)
        return ids

    def since(self, first: int) -> list[str]:
        """The words from this place on."""
        _, blob, starts = self.table
        parts = blob[starts[first] : starts[self.size]].tobytes().split(bytes([END]))[:-1]
        return [part.decode() for part in parts]

    def _grow(self, letters: int) -> None:
        """Twice the room for words, and for so many letters more."""
        _, blob, starts = self.table
        self.counts = np.concatenate([self.counts, np.zeros_like(self.counts)])
        blob = np.concatenate([blob, np.zeros(max(len(blob), letters), np.uint8)])
        starts = np.concatenate([starts, np.zeros(len(starts) - 1, np.int64)])
        self.table = Table(entered(blob, starts[: self.size + 1], 2 * len(self.counts)), blob, starts)

    def result(self) -> tuple[list[str], list[int]]:
        return self.since(KNOWN), self.counts[KNOWN : self.size].tolist()
