"""Bytes and characters: lossless vocabularies that need next to no training.

bytes        0–255 the bytes, 256 <|endoftext|>
characters   0–255 the bytes, then the non-ASCII characters of the training text, most frequent first, then
             <|endoftext|>. An unseen character is written as its UTF-8 bytes, so there is no <unk>.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nextword.core.errors import invalid
from nextword.core.types import Encoding
from nextword.tokenizers.alignment import character_bytes, partition, utf8, words_at
from nextword.tokenizers.base import VERSION, Tokenizer

END = "<|endoftext|>"


class Characters(Tokenizer):
    """Ids for the 256 bytes and for these characters, each a non-ASCII string of length one."""

    kind = "characters"
    lossless = True

    def __init__(self, characters: Sequence[str] = ()) -> None:
        self.characters = tuple(characters)
        self.pieces = [bytes([byte]) for byte in range(256)] + [utf8(c) for c in self.characters] + [b""]
        self.begin = len(self.pieces) - 1
        self.end = self.begin
        self.special = {END: self.begin}

    @cached_property
    def _ids(self) -> np.ndarray:
        """Code point → id, or −1 if the character is written in bytes."""
        ids = np.full(sys.maxunicode + 1, -1, dtype=np.int32)
        ids[:128] = np.arange(128)
        ids[[ord(character) for character in self.characters]] = 256 + np.arange(len(self.characters))
        return ids

    def encode(self, text: str) -> Encoding:
        raw = utf8(text)
        starts = character_bytes(raw)
        id = self._ids[np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)]
        is_known = id >= 0
        # Begin with an id per byte. A known character keeps its first place, with its own id; an unseen one keeps all.
        keep = np.repeat(~is_known, np.diff(starts))
        keep[starts[:-1]] = True
        ids = np.frombuffer(raw, dtype=np.uint8).astype(np.int64)
        ids[starts[:-1][is_known]] = id[is_known]
        first_bytes = np.flatnonzero(keep)
        spans = np.stack([first_bytes, np.append(first_bytes, len(raw))[1:]], axis=1)
        return Encoding(ids[keep], spans, words_at(raw, first_bytes))

    def content(self) -> dict[str, Any]:
        return {"nextword": {"version": VERSION, "kind": self.kind}, "characters": "".join(self.characters)}


class Bytes(Characters):
    """Every byte is its own id."""

    kind = "bytes"

    def __init__(self) -> None:
        super().__init__()

    def encode(self, text: str) -> Encoding:
        raw = utf8(text)
        ids = np.frombuffer(raw, dtype=np.uint8).astype(np.int64)
        return Encoding(ids, partition(np.ones_like(ids)), words_at(raw, np.arange(len(ids))))


def train_characters(texts: Iterable[str], size: int | None, min_count: int) -> Characters:
    """Keep the characters seen at least `min_count` times, most frequent first; ties are ordered by code point."""
    if size is not None and size < 257:
        raise invalid("size", size, f"is too small: 256 bytes and {END} need at least 257.", "[tokenizer]")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    frequent = [c for c, count in counts.items() if count >= min_count and not c.isascii()]
    frequent.sort(key=lambda c: (-counts[c], c))
    return Characters(frequent[: None if size is None else size - 257])
