"""A prepared text: tokenized once, stored on disk, and read as memory-mapped arrays.

    prepared/<key>/  ids.bin        every id, in the smallest unsigned type that holds the vocabulary
                     marks.bin      one byte per id: does a word, a sentence, a document begin here?
                     documents.bin  per document: first id, and the number of bytes, words and lines of its text
                     stream.json    what it is, the totals, and the checksums of the files and of itself

Each document is its ids followed by the tokenizer's end id, if it has one. The key is a hash of the corpus, the split
and the tokenizer, so that ids are never read with the wrong vocabulary. The folder appears completely or not at all.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import numpy as np

from nextword.core.errors import DataError, MissingFile, NextwordError, bad_data, explain_write_errors
from nextword.core.io import cache_folder, read_json, remembered
from nextword.core.scratch import scratch_folder
from nextword.core.types import Document
from nextword.data.corpus import Corpus
from nextword.data.files import hash_content
from nextword.data.segmentation import sentence_starts, split_passages
from nextword.tokenizers.alignment import spaces
from nextword.tokenizers.base import Tokenizer

WORD, SENTENCE, DOCUMENT = 1, 2, 4  # bits of a mark
VERSION = 2  # of the folder; part of the key
FILES = ("ids.bin", "marks.bin", "documents.bin")
ABOUT = {"version": int, "type": str, "tokens": int, "documents": int, "bytes": int, "words": int, "lines": int}
ABOUT |= {"tokenizer": str, "checksums": dict, "seal": str}
BATCH = 2 << 20  # characters tokenized at once: bounds memory, but keeps every core busy
LONG = 256 << 10  # characters: a longer document is tokenized in passages

ROW = np.dtype([("start", "<i8"), ("bytes", "<i8"), ("words", "<i8"), ("lines", "<i8")])

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Stream:
    """A prepared text. Counts are those of the text itself, not of what the ids decode to."""

    ids: np.ndarray  # (N,) unsigned
    marks: np.ndarray  # (N,) uint8: WORD | SENTENCE | DOCUMENT on the first id of each; 0 on an end id
    documents: np.ndarray  # (documents,) ROW
    bytes: int  # in UTF-8
    words: int  # runs of non-space characters
    lines: int  # "\n"
    tokenizer_hash: str = ""
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        return len(self.ids)

    def first(self, tokens: int | None) -> Stream:
        """The first `tokens` tokens, with the counts of the whole text; None: all of it."""
        if tokens is None or tokens >= len(self.ids):
            return self
        documents = self.documents[self.documents["start"] < tokens]
        return replace(self, ids=self.ids[:tokens], marks=self.marks[:tokens], documents=documents)

    def beginning(self, tokens: int) -> Stream:
        """The first complete documents with at least `tokens` tokens together, and their own counts; 0: all of them."""
        starts = self.documents["start"]
        after = int(np.searchsorted(starts, tokens))  # the first document that is left out
        if not tokens or after >= len(self.documents):
            return self
        documents, end = self.documents[:after], int(starts[after])
        size, words, lines = (int(documents[name].sum()) for name in ("bytes", "words", "lines"))
        arrays = self.ids[:end], self.marks[:end], documents
        return Stream(*arrays, size, words, lines, self.tokenizer_hash, self.folder)

    @staticmethod
    def from_ids(
        ids: Sequence[int] | np.ndarray,
        *,
        bytes: int = 0,
        words: int = 0,
        lines: int = 0,
        marks: np.ndarray | None = None,
    ) -> Stream:
        """A single document in memory, for synthetic tasks and tests. By default every id is a word."""
        ids = np.asarray(ids)
        if ids.dtype.kind != "u":
            ids = ids.astype(id_type(int(ids.max(initial=0)) + 1))
        if marks is None:
            marks = np.full(len(ids), WORD, np.uint8)
            marks[:1] |= SENTENCE | DOCUMENT
        counts = (0, bytes or len(ids), words or len(ids), lines)
        return Stream(ids, marks, np.array([counts], ROW), *counts[1:])


ID_TYPES = tuple(np.dtype(kind).str for kind in (np.uint8, np.uint16, np.uint32))


def id_type(size: int) -> type[np.unsignedinteger]:
    """The smallest unsigned type that holds ids below `size`."""
    for kind in (np.uint8, np.uint16):
        if size - 1 <= np.iinfo(kind).max:
            return kind
    return np.uint32


def tokenizer_hash(tokenizer: Tokenizer) -> str:
    """A hash of the tokenizer's saved file."""
    return blake2b(tokenizer.to_bytes(), digest_size=16).hexdigest()


def prepare(corpus: Corpus, split: str, tokenizer: Tokenizer, *, progress: Progress | None = None) -> Stream:
    """Tokenize one split, or load it from the cache. `progress(done, total)` counts bytes; total may be None."""
    hashed = tokenizer_hash(tokenizer)
    key = blake2b(f"{VERSION} {corpus.fingerprint} {split} {hashed}".encode(), digest_size=16).hexdigest()
    folder = cache_folder("prepared") / key
    if folder.exists():
        try:
            return open_stream(folder)
        except NextwordError:
            shutil.rmtree(folder, ignore_errors=True)  # rebuild a damaged cache
    with explain_write_errors(folder.parent, ", or set NEXTWORD_CACHE to another folder."):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(folder.parent) as part:
            _write(part, corpus, split, tokenizer, hashed, progress)
            if corpus.compute_fingerprint() != corpus.fingerprint:
                raise bad_data(corpus.name, "it changed while it was read. Wait until it is complete, and try again.")
            _publish(part, folder)
    return open_stream(folder)


def _publish(part: Path, folder: Path) -> None:
    try:
        os.rename(part, folder)
    except OSError as error:
        # Another process has just finished the same work: use its result.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def open_stream(folder: str | Path) -> Stream:
    """Open a prepared folder; an error if it is damaged or of another version."""
    folder = Path(folder)
    try:
        about = read_json(folder / "stream.json", ABOUT, remedy="Delete the folder.")
    except MissingFile:
        raise DataError(f"{folder} is not a prepared text: it has no stream.json. Delete it.", path=folder) from None
    if about["version"] != VERSION or about["seal"] != _seal(about) or about["type"] not in ID_TYPES:
        raise DataError(f"{folder} is damaged or of another version. Delete it.", path=folder)
    arrays: list[np.ndarray] = []
    for name, kind, count in (
        ("ids.bin", np.dtype(about["type"]), about["tokens"]),
        ("marks.bin", np.dtype(np.uint8), about["tokens"]),
        ("documents.bin", ROW, about["documents"]),
    ):
        file = folder / name
        if not file.exists() or file.stat().st_size != count * kind.itemsize:
            raise DataError(f"{file} is damaged: expected {count * kind.itemsize} bytes. Delete {folder}.", path=file)
        if remembered(file, "blake2b", partial(_checksum, file)) != about["checksums"].get(name):
            raise DataError(f"{file} is damaged: its checksum differs. Delete {folder}.", path=file)
        arrays.append(np.memmap(file, kind, mode="r", shape=(count,)))
    ids, marks, documents = arrays
    return Stream(ids, marks, documents, about["bytes"], about["words"], about["lines"], about["tokenizer"], folder)


def _write(
    part: Path, corpus: Corpus, split: str, tokenizer: Tokenizer, hashed: str, progress: Progress | None
) -> None:
    total = corpus.bytes(split) if progress else None
    with (
        open(part / "ids.bin", "wb") as ids,
        open(part / "marks.bin", "wb") as marks,
        open(part / "documents.bin", "wb") as rows,
    ):
        writer = _Writer(ids, marks, rows, tokenizer)
        for batch in _batches(corpus.documents(split)):
            writer.add(batch)
            if progress:
                progress(writer.bytes, max(total, writer.bytes) if total else None)
        writer.close()
        for file in (ids, marks, rows):
            file.flush()
            os.fsync(file.fileno())
    ends = 0 if tokenizer.end is None else writer.documents
    if writer.tokens <= ends:
        raise DataError(
            f"The split {split} of {corpus.name} has no text that the tokenizer keeps. Use more text.", path=corpus.name
        )
    about = {
        "version": VERSION,
        "corpus": corpus.name,
        "source": corpus.source,
        "split": split,
        "tokenizer": hashed,
        "type": writer.type.str,
        "tokens": writer.tokens,
        "documents": writer.documents,
        "bytes": writer.bytes,
        "words": writer.words,
        "lines": writer.lines,
        "checksums": {name: _checksum(part / name) for name in FILES},
    }
    about["seal"] = _seal(about)
    (part / "stream.json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _checksum(file: Path) -> str:
    hasher = blake2b(digest_size=16)
    hash_content(hasher, file)
    return hasher.hexdigest()


def _seal(about: Mapping[str, Any]) -> str:
    """The checksum of what stream.json says."""
    content = {key: value for key, value in about.items() if key != "seal"}
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        for i, text in enumerate(split_passages([document.text]) if len(document.text) > LONG else [document.text]):
            batch.append(Document(text, continues=document.continues or i > 0))
            size += len(text) + 64  # an empty document costs something too
            if size >= BATCH:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


class _Writer:
    """Append batches of documents to the three files; remember only the totals and the last document."""

    def __init__(self, ids: IO[bytes], marks: IO[bytes], rows: IO[bytes], tokenizer: Tokenizer) -> None:
        self._ids, self._marks, self._rows = ids, marks, rows
        self._tokenizer = tokenizer
        self._last: np.ndarray | None = None  # the row of the document that the next passage may continue
        self.type = np.dtype(id_type(len(tokenizer)))
        self.tokens = self.documents = self.bytes = self.words = self.lines = 0

    def add(self, batch: Sequence[Document]) -> None:
        texts = [document.text for document in batch]
        encodings = self._tokenizer.encode_batch(texts)
        lengths = np.array([len(encoding) for encoding in encodings])
        ids = np.concatenate([encoding.ids for encoding in encodings]).astype(self.type)
        is_new = np.array([not document.continues for document in batch])
        if self._last is None:
            is_new[0] = True

        layout = _Layout(texts)
        first = np.concatenate(([0], np.cumsum(lengths)))  # of each text, in ids; and the end
        ends = np.concatenate([encoding.spans[:, 1] for encoding in encodings]) + np.repeat(layout.bytes[:-1], lengths)
        marks = np.zeros(len(ids), np.uint8)
        for bit, starts in ((WORD, layout.word_bytes), (SENTENCE, layout.sentence_bytes)):
            at = np.searchsorted(ends, starts, side="right")  # the id in which that byte lies
            marks[at[at < len(ids)]] |= bit
        marks[first[:-1][is_new & (lengths > 0)]] |= DOCUMENT

        closes = is_new.copy()  # a new document closes the one before
        closes[0] &= self._last is not None
        if self._tokenizer.end is not None:
            where = first[:-1][closes]
            ids, marks = np.insert(ids, where, self._tokenizer.end), np.insert(marks, where, 0)
            first = first[:-1] + np.cumsum(closes)
        self._count(is_new, self.tokens + first[: len(batch)], np.diff(layout.bytes), layout.words, layout.lines)
        ids.tofile(self._ids)
        marks.tofile(self._marks)
        self.tokens += len(ids)

    def _count(self, is_new: np.ndarray, *columns: np.ndarray) -> None:
        """Add up the counts of passages of one document, and write the documents that are complete."""
        counts = np.zeros(len(is_new), ROW)
        for name, column in zip(ROW.names or (), columns, strict=True):
            counts[name] = column
        group = np.cumsum(is_new) - is_new[0]
        rows = counts[np.flatnonzero(np.concatenate(([True], np.diff(group) > 0)))]
        for name in ("bytes", "words", "lines"):
            rows[name] = 0
            np.add.at(rows[name], group, counts[name])
            setattr(self, name, getattr(self, name) + int(counts[name].sum()))
        if self._last is not None:
            if is_new[0]:
                rows = np.concatenate((self._last, rows))
            else:
                for name in ("bytes", "words", "lines"):
                    rows[name][0] += self._last[name][0]
                rows["start"][0] = self._last["start"][0]
        rows[:-1].tofile(self._rows)
        self.documents += len(rows) - 1
        self._last = rows[-1:].copy()

    def close(self) -> None:
        if self._last is None:
            return
        self._last.tofile(self._rows)
        self.documents += 1
        if self._tokenizer.end is not None:
            np.array([self._tokenizer.end], self.type).tofile(self._ids)
            np.zeros(1, np.uint8).tofile(self._marks)
            self.tokens += 1


class _Layout:
    """The byte offsets of texts, words and sentences in a batch of texts laid end to end."""

    def __init__(self, texts: Sequence[str]) -> None:
        parts = [text.encode() for text in texts]
        raw = b"".join(parts)
        self.bytes = np.cumsum([0, *map(len, parts)])
        self.lines = np.array([part.count(b"\n") for part in parts])
        space = spaces(raw)
        begins = np.ones(len(raw), bool)
        begins[1:] = space[:-1]
        begins[self.bytes[self.bytes < len(raw)]] = True  # no word continues from one text to the next
        self.word_bytes = np.flatnonzero(begins & ~space)
        self.words = np.diff(np.searchsorted(self.word_bytes, self.bytes))
        characters = np.cumsum([0, *map(len, texts)]).tolist()
        starts = [start + at for text, at in zip(texts, characters, strict=False) for start in sentence_starts(text)]
        sentences = np.array(starts, np.int64)
        if not raw.isascii():  # convert character offsets to byte offsets
            inside = np.flatnonzero((np.frombuffer(raw, np.uint8) & 0xC0) == 0x80)
            sentences += np.searchsorted(inside - np.arange(len(inside)), sentences, side="right")
        self.sentence_bytes = sentences
