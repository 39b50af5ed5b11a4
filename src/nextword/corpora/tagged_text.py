"""Sentences whose words have tags: what the readers of tagged files give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from nextword.contract_errors import NextwordError


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    words: tuple[str, ...]
    tags: tuple[str, ...]
    lines: tuple[int, ...] = field(default=(), repr=False)  # where each word stands in its file


@dataclass(frozen=True)
class TaggedText:
    name: str  # of the file
    sentences: list[TaggedSentence] = field(repr=False)
    notes: tuple[str, ...] = ()  # what is to be known of it

    def __len__(self) -> int:
        return len(self.sentences)

    def take(self, chosen: Sequence[int]) -> TaggedText:
        return replace(self, sentences=[self.sentences[i] for i in chosen])

    @property
    def words(self) -> int:
        return sum(len(one.words) for one in self.sentences)

    @property
    def fingerprint(self) -> str:
        hashed = blake2b(digest_size=16)
        for one in self.sentences:
            for column in (one.words, one.tags):
                hashed.update("\x1e".join(column).encode("utf-8", "replace") + b"\x1d")
        return hashed.hexdigest()

    def refused(self, sentence: TaggedSentence, at: int, why: str) -> NextwordError:
        where = f", line {sentence.lines[at]}" if sentence.lines else ""
        return NextwordError(f"{self.name}{where}: {why}.")
