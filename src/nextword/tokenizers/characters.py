"""Bytes and characters: the two vocabularies that nothing has to be learnt for. Both are lossless.

bytes        0–255 the bytes, 256 <|endoftext|>
characters   0–255 the bytes, then the characters of the training text that need more than one byte, commonest
             first, then <|endoftext|>. A character never seen is written as its UTF-8 bytes, so there is no <unk>.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.types import Encoding
from nextword.tokenizers import base as storage
from nextword.tokenizers.base import character_bytes, partition, utf8, words_at

END = "<|endoftext|>"


class Characters:
    """Ids for bytes and for these characters, which are strings of length one beyond ASCII."""

    kind = "characters"
    lossless = True

    def __init__(self, characters: Sequence[str] = ()) -> None:
        self.characters = tuple(characters)
        self.pieces = [bytes([byte]) for byte in range(256)] + [utf8(c) for c in self.characters] + [b""]
        self.begin = len(self.pieces) - 1
        self.end: int | None = self.begin
        self.special: Mapping[str, int] = {END: self.begin}

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def _ids(self) -> np.ndarray:
        """Code point → id, or -1 where the character has to be spelled in bytes."""
        ids = np.full(sys.maxunicode + 1, -1, dtype=np.int32)
        ids[:128] = np.arange(128)
        ids[[ord(character) for character in self.characters]] = 256 + np.arange(len(self.characters))
        return ids

    def encode(self, text: str) -> Encoding:
        raw = utf8(text)
        starts = character_bytes(raw)
        id = self._ids[np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)]
        known = id >= 0
        kept = np.repeat(~known, np.diff(starts))  # every byte of an unseen character …
        kept[starts[:-1]] = True  # … and one place for a known one
        ids = np.frombuffer(raw, dtype=np.uint8).astype(np.int64)
        ids[starts[:-1][known]] = id[known]
        begins = np.flatnonzero(kept)
        spans = np.stack([begins, np.append(begins, len(raw))[1:]], axis=1)
        return Encoding(ids[kept], spans, words_at(raw, begins))

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join([self.pieces[id] for id in ids]).decode(errors="replace")

    def piece(self, id: int) -> bytes:
        return self.pieces[id]

    def content(self) -> dict[str, Any]:
        header = {"version": storage.VERSION, "kind": self.kind}
        return {"nextword": header, "characters": "".join(self.characters)}

    def save(self, path: Path) -> None:
        storage.write(path, self.content())


class Bytes(Characters):
    """Characters of which none is known: every byte is its own id."""

    kind = "bytes"

    def __init__(self) -> None:
        super().__init__()

    def encode(self, text: str) -> Encoding:
        raw = utf8(text)
        ids = np.frombuffer(raw, dtype=np.uint8).astype(np.int64)
        return Encoding(ids, partition(np.ones_like(ids)), words_at(raw, np.arange(len(ids))))


def train_characters(texts: Iterable[str], size: int | None, min_count: int) -> Characters:
    """The characters seen at least `min_count` times, commonest first, equally common ones by code point."""
    if size is not None and size < 257:
        raise NextwordError(f"[tokenizer] size is {size}, which has no room for 256 bytes and {END}: give 257 or more.")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    wide = [c for c, count in counts.items() if count >= min_count and not c.isascii()]
    wide.sort(key=lambda c: (-counts[c], c))
    return Characters(wide[: None if size is None else size - 257])
