"""Closed-vocabulary words, as in PTB and WikiText: split at spaces, `<eos>` at line ends, `<unk>` for the rest.

    "the cat\\n\\nsat"  →  the  cat  <eos>  <eos>  sat

A literal `<unk>` in the text is the unknown word itself, for so the benchmark files are written. A literal `<eos>` is
a word never seen, hence `<unk>`: only a real line end ends a line. With `lines=False` line ends are spaces like
others, and `<eos>` ends a document.

Lossy: kinds of space, and words outside the vocabulary, do not come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nextword.contract import Encoding
from nextword.contract_errors import NextwordError
from nextword.tokens import storage
from nextword.tokens.decoder import join
from nextword.tokens.spans import utf8

if TYPE_CHECKING:
    from nextword.tokens.splitting import Table

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
        from nextword.tokens.splitting import find, laid, scan, table_of

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
    from nextword.tokens.splitting import Tally

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
