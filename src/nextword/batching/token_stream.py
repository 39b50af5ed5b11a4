"""TEXT → IDS on disk: one pass over a split, then everything reads memory-mapped arrays.

    prepared/<key>/  ids.bin        every id, in the smallest unsigned type that holds the vocabulary
                     marks.bin      one byte an id: does a word, a sentence, a document begin here?
                     documents.bin  per document: first id, and how many bytes, words and lines of text
                     stream.json    what it is, and the totals

Each document is its ids and then the tokenizer's end id, where it has one. The key is made of the corpus, the split and
the tokenizer, so that ids are never read with the wrong vocabulary; the folder appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.core.types import Document
from nextword.data.corpus import Corpus
from nextword.data.segmentation import passages, sentence_starts
from nextword.tokenizers.base import spaces

WORD, SENTENCE, DOCUMENT = 1, 2, 4  # bits of a mark
VERSION = 1  # of the folder; part of the key
BATCH = 2 << 20  # characters tokenized at once: bounds memory, and is enough to keep every core busy
LONG = 256 << 10  # characters: a longer document is tokenized in passages

ROW = np.dtype([("start", "<i8"), ("bytes", "<i8"), ("words", "<i8"), ("lines", "<i8")])

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Stream:
    """A prepared text. Counts are of the text itself, not of what the ids decode to."""

    ids: np.ndarray  # (N,) unsigned
    marks: np.ndarray  # (N,) uint8: WORD | SENTENCE | DOCUMENT on the first id of each; 0 on an end id
    documents: np.ndarray  # (documents,) ROW
    bytes: int  # of UTF-8
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
        """The beginning of the text, up to so many tokens; its counts stay those of the whole. None: all of it."""
        if tokens is None or tokens >= len(self.ids):
            return self
        documents = self.documents[self.documents["start"] < tokens]
        return replace(self, ids=self.ids[:tokens], marks=self.marks[:tokens], documents=documents)

    def beginning(self, tokens: int) -> Stream:
        """The first documents that have so many tokens together, whole, and with their own counts. 0: all of them."""
        starts = self.documents["start"]
        after = int(np.searchsorted(starts, tokens))  # the first document that begins there or later
        if not tokens or after >= len(self.documents):
            return self
        kept, end = self.documents[:after], int(starts[after])
        read, words, lines = (int(kept[name].sum()) for name in ("bytes", "words", "lines"))
        arrays = self.ids[:end], self.marks[:end], kept
        return Stream(*arrays, read, words, lines, self.tokenizer_hash, self.folder)

    @staticmethod
    def from_ids(
        ids: Sequence[int] | np.ndarray,
        *,
        bytes: int = 0,
        words: int = 0,
        lines: int = 0,
        marks: np.ndarray | None = None,
    ) -> Stream:
        """One document in memory, for synthetic tasks and tests. By default every id is a word."""
        ids = np.asarray(ids)
        if ids.dtype.kind != "u":
            ids = ids.astype(id_type(int(ids.max(initial=0)) + 1))
        if marks is None:
            marks = np.full(len(ids), WORD, np.uint8)
            marks[:1] |= SENTENCE | DOCUMENT
        counts = (0, bytes or len(ids), words or len(ids), lines)
        return Stream(ids, marks, np.array([counts], ROW), *counts[1:])


def id_type(size: int) -> type[np.unsignedinteger]:
    """The smallest unsigned type that holds ids below `size`."""
    for kind in (np.uint8, np.uint16):
        if size - 1 <= np.iinfo(kind).max:
            return kind
    return np.uint32


def cache_folder() -> Path:
    """Where prepared text is kept: `$NEXTWORD_CACHE`, or `~/.cache/nextword`. It can be deleted at any time."""
    return Path(os.environ.get("NEXTWORD_CACHE") or "~/.cache/nextword").expanduser() / "prepared"


def tokenizer_hash(tokenizer: Tokenizer) -> str:
    """A hash of the tokenizer's saved file."""
    with tempfile.TemporaryDirectory(prefix="nextword-") as folder:
        path = Path(folder) / "tokenizer.json"
        tokenizer.save(path)
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()


def prepare(corpus: Corpus, split: str, tokenizer: Tokenizer, *, progress: Progress | None = None) -> Stream:
    """The ids of one split: from the cache, or made now. `progress(done, total)` hears of bytes; total may be None."""
    hashed = tokenizer_hash(tokenizer)
    key = blake2b(f"{VERSION} {corpus.fingerprint} {split} {hashed}".encode(), digest_size=16).hexdigest()
    folder = cache_folder() / key
    if folder.exists():
        try:
            return open_stream(folder)
        except NextwordError:
            shutil.rmtree(folder, ignore_errors=True)  # a damaged cache is made again
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        part = Path(tempfile.mkdtemp(prefix=f"{key}.", suffix=".part", dir=folder.parent))
    except OSError as error:
        raise NextwordError(
            f"The cache {folder.parent} cannot be written: {error.strerror}. Set NEXTWORD_CACHE to a folder of yours."
        ) from None
    try:
        _write(part, corpus, split, tokenizer, hashed, progress)
        _publish(part, folder)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise NextwordError(
            f"The disk is full: {folder.parent} has no room for the ids of {corpus.name} ({split}). What was written "
            "is removed again. Free some space, or set NEXTWORD_CACHE to a folder on another disk."
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return open_stream(folder)


def _sweep(cache: Path) -> None:
    """Remove what killed processes left behind; a day is longer than any preparation takes."""
    for part in cache.glob("*.part"):
        with contextlib.suppress(FileNotFoundError):  # another process has just finished it
            if time.time() - part.stat().st_mtime > 86_400:
                shutil.rmtree(part, ignore_errors=True)


def _publish(part: Path, folder: Path) -> None:
    try:
        os.rename(part, folder)
    except OSError as error:
        # Another process has just finished the same work; its result is ours.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def open_stream(folder: str | Path) -> Stream:
    """A prepared folder as a Stream; refuses one that is cut short or of another version."""
    folder = Path(folder)
    try:
        about = json.loads((folder / "stream.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise NextwordError(f"{folder} is not a prepared text (no stream.json). Delete it and prepare again.") from None
    if about.get("version") != VERSION:
        raise NextwordError(f"{folder} has version {about.get('version')}, expected {VERSION}. Delete it.")
    arrays: list[np.ndarray] = []
    for name, kind, count in (
        ("ids.bin", np.dtype(about["type"]), about["tokens"]),
        ("marks.bin", np.dtype(np.uint8), about["tokens"]),
        ("documents.bin", ROW, about["documents"]),
    ):
        file = folder / name
        if not file.exists() or file.stat().st_size != count * kind.itemsize:
            raise NextwordError(f"{file} is damaged: expected {count * kind.itemsize} bytes. Delete {folder}.")
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
        raise NextwordError(f"The split {split} of {corpus.name} has no text that the tokenizer keeps. Give more text.")
    about: dict[str, Any] = {
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
    }
    (part / "stream.json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        for i, text in enumerate(passages([document.text]) if len(document.text) > LONG else [document.text]):
            batch.append(Document(text, continues=document.continues or i > 0))
            size += len(text) + 64  # an empty document costs something too
            if size >= BATCH:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


class _Writer:
    """Appends batches of documents to the three files; keeps only the totals and the document that may go on."""

    def __init__(self, ids: Any, marks: Any, rows: Any, tokenizer: Tokenizer) -> None:
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
        fresh = np.array([not document.continues for document in batch])
        if self._last is None:
            fresh[0] = True

        layout = _Layout(texts)
        first = np.concatenate(([0], np.cumsum(lengths)))  # of each text, in ids; and the end
        ends = np.concatenate([encoding.spans[:, 1] for encoding in encodings]) + np.repeat(layout.bytes[:-1], lengths)
        marks = np.zeros(len(ids), np.uint8)
        for bit, starts in ((WORD, layout.word_bytes), (SENTENCE, layout.sentence_bytes)):
            at = np.searchsorted(ends, starts, side="right")  # the id in which that byte lies
            marks[at[at < len(ids)]] |= bit
        marks[first[:-1][fresh & (lengths > 0)]] |= DOCUMENT

        closes = fresh.copy()  # a new document closes the one before
        closes[0] &= self._last is not None
        if self._tokenizer.end is not None:
            where = first[:-1][closes]
            ids, marks = np.insert(ids, where, self._tokenizer.end), np.insert(marks, where, 0)
            first = first[:-1] + np.cumsum(closes)
        self._count(fresh, self.tokens + first[: len(batch)], np.diff(layout.bytes), layout.words, layout.lines)
        ids.tofile(self._ids)
        marks.tofile(self._marks)
        self.tokens += len(ids)

    def _count(self, fresh: np.ndarray, *columns: np.ndarray) -> None:
        """Add the counts of passages up to those of their documents, and write the documents that are over."""
        found = np.zeros(len(fresh), ROW)
        for name, column in zip(ROW.names or (), columns, strict=True):
            found[name] = column
        group = np.cumsum(fresh) - fresh[0]
        rows = found[np.flatnonzero(np.concatenate(([True], np.diff(group) > 0)))]
        for name in ("bytes", "words", "lines"):
            rows[name] = 0
            np.add.at(rows[name], group, found[name])
            setattr(self, name, getattr(self, name) + int(found[name].sum()))
        if self._last is not None:
            if fresh[0]:
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
    """Where texts, words and sentences begin in a batch of texts laid end to end, in bytes."""

    def __init__(self, texts: Sequence[str]) -> None:
        parts = [text.encode() for text in texts]
        raw = b"".join(parts)
        self.bytes = np.cumsum([0, *map(len, parts)])
        self.lines = np.array([part.count(b"\n") for part in parts])
        space = spaces(raw)
        begins = np.ones(len(raw), bool)
        begins[1:] = space[:-1]
        begins[self.bytes[self.bytes < len(raw)]] = True  # at the seams no word runs on
        self.word_bytes = np.flatnonzero(begins & ~space)
        self.words = np.diff(np.searchsorted(self.word_bytes, self.bytes))
        characters = np.cumsum([0, *map(len, texts)]).tolist()
        starts = [start + at for text, at in zip(texts, characters, strict=False) for start in sentence_starts(text)]
        sentences = np.array(starts, np.int64)
        if not raw.isascii():  # before a character stand as many bytes as characters, and those inside characters
            inside = np.flatnonzero((np.frombuffer(raw, np.uint8) & 0xC0) == 0x80)
            sentences += np.searchsorted(inside - np.arange(len(inside)), sentences, side="right")
        self.sentence_bytes = sentences
