"""A corpus: a named text with train, valid and test splits, read as a stream and never held in memory.

Splits come from the names of files, or from a hash of the text. The hash ignores case and spacing and is read as a
number between 0 and 1:

    0          0.05        0.10                                            1
    |  valid   |   test    |                    train                      |

So the same text is always in the same split, whatever its spacing, and adding documents moves none of the others. A
text of few documents is split by passages instead of documents.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from nextword.core.errors import TEMPORARY, bad_data, explain_write_errors, unknown
from nextword.core.types import Document
from nextword.data.files import BLOCK, COMPRESSED, STDIN, Hasher, format_suffix, hash_content, open_bytes, plain_name
from nextword.data.readers import is_readable, list_files, read
from nextword.data.segmentation import PASSAGE_SIZE, split_passages
from nextword.data.tables import DELIMITERS, open_table
from nextword.html.formatting import format_size
from nextword.html.notebook import facts_html

SPLITS = ("train", "valid", "test")
HELD_OUT = {"valid": 0.05, "test": 0.05}
HASHED_CHARACTERS = 16 << 10  # only the beginning of a text decides its split

SPLIT_NAMES = {  # words in the names of files
    "train": re.compile(r"train(ing)?"),
    "valid": re.compile(r"(news)?(valid|validation|val|dev|development)\d*|testa"),  # testa: CoNLL
    "test": re.compile(r"(news)?(test|testing|tst)\d*|testb"),
}

FORMAT = b"nextword corpus 1"  # part of the fingerprint; change it if the same files yield different documents
NO_HEADER = b"no header;"  # of a table whose first row is data
ROWS = b"whole rows;"  # the same for tables, whose texts were once cut at unquoted commas

MIN_DOCUMENTS = 100  # with fewer documents, split by passages: the size of the splits would be a matter of luck
SURVEY = 4 * MIN_DOCUMENTS, 64 << 20  # documents or characters to read before deciding that
SHORT_CORPUS = 1 << 20  # characters; in a shorter corpus passages shrink, so that every split gets some
PASSAGE_LENGTH = 3000  # characters of a passage otherwise
MIN_PASSAGE = 60


class TextSource(Protocol):
    """Text that can be read as documents, any number of times."""

    def documents(self) -> Iterator[Document]: ...
    def size(self) -> int | None: ...  # bytes of text, if known without reading it
    def update(self, hasher: Hasher) -> None: ...  # add what determines the documents, for the fingerprint


@dataclass(frozen=True)
class TextFiles:
    """Text in files or folders, read in order."""

    paths: tuple[Path, ...]
    text_column: str | None = None
    reader: str = "auto"
    header: bool | None = None  # whether tables have one; None: as detected

    def documents(self) -> Iterator[Document]:
        for path in self.paths:
            yield from read(path, text_column=self.text_column, reader=self.reader, header=self.header)

    def size(self) -> int | None:
        files = [Path(file) for path in self.paths for file in list_files(path)]
        if any(file.suffix.lower() in (*COMPRESSED, ".jsonl", ".ndjson", ".csv", ".tsv") for file in files):
            return None
        return sum(file.stat().st_size for file in files)

    def update(self, hasher: Hasher) -> None:
        hasher.update(f"column={self.text_column};reader={self.reader};".encode())
        for path in self.paths:
            for file in map(Path, list_files(path)):
                # The name only matters if it decides how the file is read, or its order among others.
                name = str(file.relative_to(path)) if path.is_dir() else "".join(file.suffixes)
                hasher.update(f"{name}={file.stat().st_size};".encode())
                if format_suffix(file) in DELIMITERS:
                    hasher.update(ROWS)
                    if not open_table(file, header=self.header, expected=(self.text_column or "",)).has_header:
                        hasher.update(NO_HEADER)
                hash_content(hasher, file)


@dataclass(frozen=True)
class InMemoryText:
    """Documents that are built once and held in memory."""

    build: Callable[[], Iterable[Document]]

    @cached_property
    def _documents(self) -> tuple[Document, ...]:
        return tuple(self.build())

    def documents(self) -> Iterator[Document]:
        return iter(self._documents)

    def size(self) -> int | None:
        return sum(len(document.text.encode()) for document in self._documents)

    def update(self, hasher: Hasher) -> None:
        for document in self._documents:
            source = "" if document.source is None else f"{document.source}\0"
            hasher.update(f"{source}{document.text}\0".encode())


@dataclass(frozen=True)
class ByteRange:
    """The part of a text between two fractions of its bytes: contiguous splits, as of enwik8 and text8."""

    text: TextSource
    start: float
    end: float

    def documents(self) -> Iterator[Document]:
        total = sum(len(d.text.encode()) for d in self.text.documents())
        low, high = int(total * self.start), int(total * self.end)
        offset, is_first = 0, True
        for document in self.text.documents():
            data = document.text.encode()
            inside = data[_character_boundary(data, low - offset) : _character_boundary(data, high - offset)]
            if inside:
                yield Document(inside.decode(), document.id, document.title, document.continues and not is_first)
                is_first = False
            offset += len(data)

    def size(self) -> int | None:
        size = self.text.size()
        return None if size is None else int(size * self.end) - int(size * self.start)

    def update(self, hasher: Hasher) -> None:
        hasher.update(f"between={self.start},{self.end};".encode())
        self.text.update(hasher)


def _character_boundary(data: bytes, offset: int) -> int:
    """Return the last offset up to this one that does not cut a character in two."""
    offset = min(max(offset, 0), len(data))
    while 0 < offset < len(data) and data[offset] & 0xC0 == 0x80:
        offset -= 1
    return offset


@dataclass(repr=False)
class Corpus:
    """Text by split. The splits in `held_out`, with their fractions, are taken out of `texts["train"]` by hash."""

    name: str
    source: str  # where it comes from and how it was split, for people
    texts: Mapping[str, TextSource]
    held_out: Mapping[str, float] = field(default_factory=dict)
    scratch: object = None  # keeps a temporary file alive as long as the corpus is

    def __post_init__(self) -> None:
        # None: whole documents are split
        self.passage_size = (
            choose_passage_size(self.texts["train"], self.held_out, self.name) if self.held_out else None
        )

    def __repr__(self) -> str:
        sizes = [f"{split} {size}" if size else split for split, size in self._sizes()]
        return f"{type(self).__name__}({self.name}: {', '.join(sizes)})"

    def _repr_html_(self) -> str:
        sizes = [(split, size or "size unknown until read") for split, size in self._sizes()]
        return facts_html(f"{type(self).__name__} {self.name}", [("from", self.source), *sizes])

    def _sizes(self) -> list[tuple[str, str]]:
        """Each split with its size; without, if finding it takes reading the text."""
        return [(split, "" if (size := self.bytes(split)) is None else format_size(size)) for split in self.splits]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in SPLITS if split in self.texts or split in self.held_out)

    @property
    def is_parallel(self) -> bool:
        """Whether documents are pairs of a source and a target (parallel.py)."""
        return False

    def documents(self, split: str) -> Iterator[Document]:
        """Start a new pass over one split."""
        self._require_split(split)
        if split != "train" and split not in self.held_out:
            return self.texts[split].documents()
        documents = self.texts["train"].documents()
        if not self.held_out:
            return documents
        if self.passage_size is None:
            return select_documents(documents, split, self.held_out)
        return select_passages(documents, split, self.held_out, self.passage_size)

    def bytes(self, split: str) -> int | None:
        """Return roughly how many bytes of text a split has; None if that takes reading it."""
        self._require_split(split)
        if split in self.texts and split != "train":
            return self.texts[split].size()
        size = self.texts["train"].size()
        fraction = self.held_out.get(split, 1 - sum(self.held_out.values()))
        return None if size is None else round(size * fraction)

    @cached_property
    def fingerprint(self) -> str:
        """A hash, equal for equal documents in equal splits: the key under which derived data is cached."""
        return self.compute_fingerprint()

    def compute_fingerprint(self) -> str:
        """The fingerprint of the files as they are now."""
        hasher = blake2b(FORMAT, digest_size=16)
        for split in SPLITS:
            if split in self.texts:
                hasher.update(f"split={split};".encode())
                self.texts[split].update(hasher)
        hasher.update(f"held_out={sorted(self.held_out.items())};unit={self.passage_size}".encode())
        return hasher.hexdigest()

    def _require_split(self, split: str) -> None:
        if split not in self.splits:
            raise unknown("split", split, self.splits, where=self.name)


# ------------------------------------------------------------------------------------------------ opening files


def from_path(path: Path, *, text_column: str | None = None, name: str = "", header: bool | None = None) -> Corpus:
    """Open a file or folder: with the splits that files are named after, or else split by hash."""
    name = name or Path(os.path.realpath(path)).name  # which accepts a circle of links, unlike Path.resolve
    splits = find_splits(path) if path.is_dir() else {}
    splits = splits or _shard_splits([Path(file) for file in list_files(path)])
    if not splits:
        return Corpus(
            name, f"{path}, split by hash", {"train": TextFiles((path,), text_column, header=header)}, HELD_OUT
        )
    return from_splits(name, str(path), splits, text_column, header=header)


def from_splits(
    name: str,
    source: str,
    splits: Mapping[str, Sequence[Path]],
    text_column: str | None = None,
    reader: str = "auto",
    header: bool | None = None,
) -> Corpus:
    """Open a corpus whose splits are files. Missing held-out splits are taken out of train by hash."""
    texts = {split: TextFiles(tuple(paths), text_column, reader, header) for split, paths in splits.items()}
    missing = missing_splits(texts)
    return Corpus(name, describe_splits(source, texts, missing), texts, missing)


def missing_splits(texts: Collection[str]) -> dict[str, float]:
    """Return the held-out splits to take out of train, with their fractions, since there is no text for them."""
    return {split: size for split, size in HELD_OUT.items() if split not in texts and "train" in texts}


def describe_splits(source: str, texts: Collection[str], missing: Collection[str], by: str = "hash") -> str:
    description = f"{source}, splits as given ({', '.join(split for split in SPLITS if split in texts)})"
    return f"{description}; {' and '.join(missing)} taken out of train by {by}" if missing else description


def from_stdin(*, text_column: str | None = None) -> Corpus:
    """Open standard input, split by hash."""
    scratch, text = buffer_stdin(text_column)
    return Corpus("stdin", "standard input, split by hash", {"train": text}, HELD_OUT, scratch)


def buffer_stdin(text_column: str | None) -> tuple[object, TextFiles]:
    """Copy standard input, which can be read only once, into a temporary file that lives as long as the corpus."""
    with explain_write_errors(TEMPORARY), open_bytes(STDIN) as stream:
        scratch = tempfile.NamedTemporaryFile(prefix="nextword-", suffix=".txt")  # noqa: SIM115
        while block := stream.read(BLOCK):
            scratch.write(block)
        scratch.flush()
    return scratch, TextFiles((Path(scratch.name),), text_column)


def _shard_splits(files: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the usual splits of 1B-Word: the first held-out shard is the test set, the second the validation set."""
    shards = {
        "train": [f for f in files if f.name.startswith("news.en-")],
        "test": [f for f in files if f.name.startswith("news.en.heldout-00000")],
        "valid": [f for f in files if f.name.startswith("news.en.heldout-00001")],
    }
    return {split: paths for split, paths in shards.items() if paths}


def find_splits(folder: Path) -> dict[str, list[Path]]:
    """Return the files or folders directly inside that are named after splits (`ptb.train.txt`, `dev.jsonl.xz`,
    `test/`).

    Empty if the names may mean nothing: a `test.md` among other documents is one more document.
    """
    splits: dict[str, list[Path]] = {}
    has_others = False
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not (path.is_dir() or is_readable(path)):
            continue
        if split := split_of_name(plain_name(path)):
            splits.setdefault(split, []).append(path)
        else:
            has_others = True
    if has_others and not ("train" in splits and len(splits) > 1):
        return {}
    return {split: splits[split] for split in SPLITS if split in splits}


def split_of_name(name: str) -> str | None:
    """Return the split that a name contains: `dev.jsonl`, `eng.testa`, `newstest2014-deen`, `IWSLT15.TED.tst2013`."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    splits = [split for split, form in SPLIT_NAMES.items() if any(form.fullmatch(word) for word in words)]
    return splits[0] if len(splits) == 1 else None


# ------------------------------------------------------------------------------------------------ splitting by hash


def choose_passage_size(text: TextSource, held_out: Mapping[str, float], name: str) -> int | None:
    """Return None to split whole documents, or a passage size for a text of few documents."""
    wanted = {"train", *held_out}
    documents, characters, splits = 0, 0, set()
    beginning: list[Document] = []
    for document in text.documents():
        if not document.continues:
            documents += 1
            splits.add(assign_split(document.text, held_out))
        characters += len(document.text)
        if characters <= SHORT_CORPUS:
            beginning.append(document)
        if documents >= SURVEY[0] or characters >= SURVEY[1]:
            break
    if documents >= MIN_DOCUMENTS and splits == wanted:
        return None
    if characters > SHORT_CORPUS:
        return PASSAGE_LENGTH
    size = max(MIN_PASSAGE, min(PASSAGE_LENGTH, characters // 150))
    while size >= MIN_PASSAGE:
        if all(any(select_passages(beginning, split, held_out, size)) for split in wanted):
            return size
        size //= 2
    remedy = "Give more text, or a folder with train, valid and test files."
    if characters > 150 * MIN_PASSAGE:
        raise bad_data(name, f"repeats itself, and equal passages belong to the same split. {remedy}")
    needed = f"{characters:,} characters, about {150 * MIN_PASSAGE:,} are needed."
    raise bad_data(name, f"too short to split into {', '.join(s for s in SPLITS if s in wanted)}: {needed} {remedy}")


def hash_text(text: str) -> int:
    """Return a 64-bit hash of the text that ignores case and spacing."""
    folded = " ".join(text.casefold().split())[:HASHED_CHARACTERS]
    return int.from_bytes(blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def assign_split(text: str, held_out: Mapping[str, float] = HELD_OUT) -> str:
    """Return the split of a text; `held_out` gives the fraction of each split other than train."""
    fraction = hash_text(text) / 2.0**64
    for split, size in held_out.items():
        if fraction < size:
            return split
        fraction -= size
    return "train"


def select_documents(documents: Iterable[Document], split: str, held_out: Mapping[str, float]) -> Iterator[Document]:
    """Yield the documents of one split. The first passage of a long document decides for all of it."""
    selected = False
    for document in documents:
        if not document.continues:
            selected = assign_split(document.text, held_out) == split
        if selected:
            yield document


def select_passages(
    documents: Iterable[Document], split: str, held_out: Mapping[str, float], size: int
) -> Iterator[Document]:
    """Yield the passages of one split, with neighboring ones joined."""
    pending: list[str] = []
    origin = Document("")  # the document of the pending passages
    continues = False
    for text, document in _passages_with_origin(documents, size):
        selected = assign_split(text, held_out) == split
        is_new = document is not origin
        if pending and (not selected or is_new or len(pending) * size > PASSAGE_SIZE):
            yield Document("".join(pending), origin.id, origin.title, continues)
            pending, continues = [], True
        continues = continues and selected and not is_new
        if selected:
            pending.append(text)
            origin = document
    if pending:
        yield Document("".join(pending), origin.id, origin.title, continues)


def _passages_with_origin(documents: Iterable[Document], size: int) -> Iterator[tuple[str, Document]]:
    """Yield passages of this size, each with the (first passage of the) document that it comes from."""
    source = iter(documents)
    waiting = next(source, None)

    def texts() -> Iterator[str]:
        nonlocal waiting
        while waiting is not None:
            yield waiting.text
            waiting = next(source, None)
            if waiting is not None and not waiting.continues:
                return

    while waiting is not None:
        origin = waiting
        for text in split_passages(texts(), size):
            yield text, origin
