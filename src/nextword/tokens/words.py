"""Closed-vocabulary words, as in PTB and WikiText: split at spaces, `<eos>` at line ends, `<unk>` for the rest.

    "the cat\\n\\nsat"  →  the  cat  <eos>  <eos>  sat

A literal `<unk>` in the text is the unknown word itself, for so the benchmark files are written. A literal `<eos>` is
a word never seen, hence `<unk>`: only a real line end ends a line. With `lines=False` line ends are spaces like
others, and `<eos>` ends a document.

Lossy: kinds of space, and words outside the vocabulary, do not come back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nextword.contract import Encoding, NextwordError
from nextword.tokens import storage
from nextword.tokens.decoder import join
from nextword.tokens.spans import spaces, utf8, words_at

UNKNOWN, EOS = "<unk>", "<eos>"
_WORD = re.compile(r"\S+")
_WORD_OR_LINE_END = re.compile(r"\n|\S+")


class _Lookup(dict[str, int]):
    """Word → id; what is missing is unknown, id 0. A dict's own lookup runs without Python until a word is missing."""

    def __missing__(self, word: str) -> int:
        return 0


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
        self._lookup = _Lookup(zip(self.words, range(2, len(self)), strict=True))
        if lines:
            self._lookup["\n"] = 1  # no word contains a line end, so the key is free

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> Encoding:
        raw = utf8(text)
        found = split(text.lower() if self.lower else text, self.lines)
        ids = np.fromiter(map(self._lookup.__getitem__, found), dtype=np.int64, count=len(found))
        blank = np.append(spaces(raw), True)
        first, last = ~blank[:-1], ~blank[:-1]
        first[1:] &= blank[:-2]
        last &= blank[1:]
        if self.lines:
            line_end = np.frombuffer(raw, dtype=np.uint8) == ord("\n")
            first |= line_end
            last |= line_end
        spans = np.stack([np.flatnonzero(first), np.flatnonzero(last) + 1], axis=1)
        return Encoding(ids, spans, words_at(raw, spans[:, 0]))

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        return join(self, ids)

    def piece(self, id: int) -> bytes:
        return self.pieces[id]

    def content(self) -> dict[str, Any]:
        header = {"version": storage.VERSION, "kind": self.kind, "lower": self.lower, "lines": self.lines}
        return {"nextword": header, "words": list(self.words)}

    def save(self, path: Path) -> None:
        storage.write(path, self.content())


def split(text: str, lines: bool) -> list[str]:
    return (_WORD_OR_LINE_END if lines else _WORD).findall(text)


def train_words(texts: Iterable[str], size: int | None, min_count: int, lower: bool, lines: bool) -> Words:
    """The commonest words; equally common ones in alphabetical order, so that the order of the texts is no matter."""
    if size is not None and size < 3:
        raise NextwordError(
            f"[tokenizer] size is {size}, which has no room for {UNKNOWN}, {EOS} and a word: give 3 or more."
        )
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update((text.lower() if lower else text).split())
    for name in (UNKNOWN, EOS):
        counts.pop(name, None)
    common = [word for word, count in counts.items() if count >= min_count]
    common.sort(key=lambda word: (-counts[word], word))
    return Words(common[: None if size is None else size - 2], lower, lines)
