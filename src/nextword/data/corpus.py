"""Which side of the split a text falls on.

A made split is decided by the text alone: a hash of it, with case and spacing folded away, is read as a number between
0 and 1. So the same text (or the same text spaced differently) is always on the same side, and adding documents moves
none of those already there.

    0          0.05        0.10                                            1
    |  valid   |   test    |                    train                      |

A corpus: a named text with its splits, read as often as needed and never held in memory.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data.files import COMPRESSED, STDIN, open_bytes, plain_name
from nextword.data.readers import files, read, readable
from nextword.data.segmentation import PASSAGE, passages
from nextword.data.tables import DELIMITERS

SPLITS = ("train", "valid", "test")
HELD_OUT = {"valid": 0.05, "test": 0.05}
FOLDED = 16 << 10  # characters of a text that decide its side

NAMES = {
    "train": {"train", "training"},
    "valid": {"valid", "validation", "val", "dev"},
    "test": {"test"},
}


def digest(text: str) -> int:
    """A 64-bit hash of the text that does not see case or spacing."""
    folded = " ".join(text.casefold().split())[:FOLDED]
    return int.from_bytes(blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def side(text: str, held_out: Mapping[str, float] = HELD_OUT) -> str:
    """The split a text belongs to; `held_out` says which shares are kept from training."""
    fraction = digest(text) / 2.0**64
    for split, share in held_out.items():
        if fraction < share:
            return split
        fraction -= share
    return "train"


def whole(documents: Iterable[Document], split: str, held_out: Mapping[str, float]) -> Iterator[Document]:
    """The documents of one split; the later passages of a long document follow its first."""
    here = False
    for document in documents:
        if not document.continues:
            here = side(document.text, held_out) == split
        if here:
            yield document


def cut(documents: Iterable[Document], split: str, held_out: Mapping[str, float], size: int) -> Iterator[Document]:
    """The passages of one split, where documents are too few to be split whole. Neighbours are joined up again."""
    kept: list[str] = []
    origin = Document("")  # where the kept passages come from
    continues = False
    for text, document in _recut(documents, size):
        here = side(text, held_out) == split
        new = document is not origin
        if kept and (not here or new or len(kept) * size > PASSAGE):
            yield Document("".join(kept), origin.id, origin.title, continues)
            kept, continues = [], True
        continues = continues and here and not new
        if here:
            kept.append(text)
            origin = document
    if kept:
        yield Document("".join(kept), origin.id, origin.title, continues)


def _recut(documents: Iterable[Document], size: int) -> Iterator[tuple[str, Document]]:
    """Passages of this size, each with the first passage of the document it comes from."""
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
        for text in passages(texts(), size):
            yield text, origin


def given(folder: Path) -> dict[str, list[Path]]:
    """The files or folders directly inside that are named as splits (`ptb.train.txt`, `dev.jsonl.xz`, `test/`).

    Empty where the names may mean nothing: a `test.md` among other documents is one more document.
    """
    found: dict[str, list[Path]] = {}
    others = False
    for path in sorted(folder.iterdir()):
        words = set(re.split(r"[._-]", plain_name(path).lower()))
        named = [split for split, names in NAMES.items() if words & names]
        if path.name.startswith(".") or not (path.is_dir() or readable(path)):
            continue
        if len(named) == 1:
            found.setdefault(named[0], []).append(path)
        else:
            others = True
    if others and not ("train" in found and len(found) > 1):
        return {}
    return {split: found[split] for split in SPLITS if split in found}


FORMAT = b"nextword corpus 1"  # raise it when the same files would read as other documents than before
ROWS = b"whole rows;"  # the same for tables alone: their texts were once cut at a comma that nobody had quoted

MANY = 100  # documents: with fewer, a split of whole documents would be a matter of luck
SURVEY = 4 * MANY, 64 << 20  # documents or characters looked at before deciding that
SHORT = 1 << 20  # characters: below this, passages shrink so that every split gets some
PASSAGE_LENGTH = 3000  # characters in a passage of a split otherwise
SMALLEST = 60


class Text(Protocol):
    """Something that can be read again and again as documents."""

    def documents(self) -> Iterator[Document]: ...
    def size(self) -> int | None: ...  # bytes of text, where known without reading
    def update(self, hasher: Any) -> None: ...  # feed what determines the documents


@dataclass(frozen=True)
class Files:
    """Text in files or folders, read in order."""

    paths: tuple[Path, ...]
    text_column: str | None = None
    reader: str = "auto"

    def documents(self) -> Iterator[Document]:
        for path in self.paths:
            yield from read(path, text_column=self.text_column, reader=self.reader)

    def size(self) -> int | None:
        found = [Path(file) for path in self.paths for file in files(path)]
        if any(file.suffix.lower() in (*COMPRESSED, ".jsonl", ".ndjson", ".csv", ".tsv") for file in found):
            return None
        return sum(file.stat().st_size for file in found)

    def update(self, hasher: Any) -> None:
        hasher.update(f"column={self.text_column};reader={self.reader};".encode())
        for path in self.paths:
            for file in map(Path, files(path)):
                # The name matters only where it decides how the file is read, or orders it among others.
                name = str(file.relative_to(path)) if path.is_dir() else "".join(file.suffixes)
                hasher.update(f"{name}={file.stat().st_size};".encode())
                if Path(plain_name(file)).suffix.lower() in DELIMITERS:
                    hasher.update(ROWS)
                with open(file, "rb") as raw:
                    while block := raw.read(1 << 22):
                        hasher.update(block)


@dataclass(frozen=True)
class Between:
    """The part of a text between two shares of its bytes: the contiguous splits of enwik8, text8, tinyshakespeare."""

    text: Text
    start: float
    end: float

    def documents(self) -> Iterator[Document]:
        total = sum(len(d.text.encode()) for d in self.text.documents())
        low, high = int(total * self.start), int(total * self.end)
        at, first = 0, True
        for document in self.text.documents():
            data = document.text.encode()
            inside = data[_between_characters(data, low - at) : _between_characters(data, high - at)]
            if inside:
                yield Document(inside.decode(), document.id, document.title, document.continues and not first)
                first = False
            at += len(data)

    def size(self) -> int | None:
        size = self.text.size()
        return None if size is None else int(size * self.end) - int(size * self.start)

    def update(self, hasher: Any) -> None:
        hasher.update(f"between={self.start},{self.end};".encode())
        self.text.update(hasher)


def _between_characters(data: bytes, at: int) -> int:
    """The last place up to `at` where no character is cut in two."""
    at = min(max(at, 0), len(data))
    while 0 < at < len(data) and data[at] & 0xC0 == 0x80:
        at -= 1
    return at


@dataclass
class Corpus:
    """Text under split names. Where `held_out` is not empty, those splits are taken out of `texts["train"]` by hash."""

    name: str
    source: str  # in words: where it came from and how it was split
    texts: Mapping[str, Text]
    held_out: Mapping[str, float] = field(default_factory=dict)
    scratch: Any = None  # keeps a temporary file alive as long as the corpus

    def __post_init__(self) -> None:
        self.unit = passage_size(self.texts["train"], self.held_out, self.name) if self.held_out else None

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in SPLITS if split in self.texts or split in self.held_out)

    @property
    def parallel(self) -> bool:
        """Whether its documents are pairs of a source and a target (parallel.py); known without reading any."""
        return False

    def documents(self, split: str) -> Iterator[Document]:
        """A new pass over one split."""
        self._check(split)
        if split != "train" and split not in self.held_out:
            return self.texts[split].documents()
        documents = self.texts["train"].documents()
        if not self.held_out:
            return documents
        if self.unit is None:
            return whole(documents, split, self.held_out)
        return cut(documents, split, self.held_out, self.unit)

    def bytes(self, split: str) -> int | None:
        """About how many bytes of text a split has; None where only reading it would tell."""
        self._check(split)
        if split in self.texts and split != "train":
            return self.texts[split].size()
        size = self.texts["train"].size()
        share = self.held_out.get(split, 1 - sum(self.held_out.values()))
        return None if size is None else round(size * share)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal documents in equal splits, so that what is derived from them can be kept under it."""
        hasher = blake2b(FORMAT, digest_size=16)
        for split in SPLITS:
            if split in self.texts:
                hasher.update(f"split={split};".encode())
                self.texts[split].update(hasher)
        hasher.update(f"held_out={sorted(self.held_out.items())};unit={self.unit}".encode())
        return hasher.hexdigest()

    def _check(self, split: str) -> None:
        if split not in self.splits:
            raise NextwordError(
                f"{self.name} has no split {split!r}; it has {', '.join(self.splits)}. "
                "Ask for one of these, or give a text that has it."
            )


def passage_size(text: Text, held_out: Mapping[str, float], name: str) -> int | None:
    """How to split: None for whole documents, or the size of the passages to cut a text of few documents into."""
    wanted = {"train", *held_out}
    documents, characters, sides = 0, 0, set()
    kept: list[Document] = []
    for document in text.documents():
        if not document.continues:
            documents += 1
            sides.add(side(document.text, held_out))
        characters += len(document.text)
        if characters <= SHORT:
            kept.append(document)
        if documents >= SURVEY[0] or characters >= SURVEY[1]:
            break
    if documents >= MANY and sides == wanted:
        return None
    if characters > SHORT:
        return PASSAGE_LENGTH
    size = max(SMALLEST, min(PASSAGE_LENGTH, characters // 150))
    while size >= SMALLEST:
        if all(any(cut(kept, split, held_out, size)) for split in wanted):
            return size
        size //= 2
    if characters > 150 * SMALLEST:
        raise NextwordError(
            f"{name} has too few passages that differ from each other to be split, for equal ones go to one side. Give "
            "more text, or a folder with train, valid and test files."
        )
    raise NextwordError(
        f"{name} is too short to split: {characters:,} characters, and about {150 * SMALLEST:,} are needed for "
        f"{', '.join(s for s in SPLITS if s in wanted)}. Give more text, or a folder with train, valid and test files."
    )


def from_path(path: Path, *, text_column: str | None = None, name: str = "") -> Corpus:
    """The corpus in a file or folder: with the splits its files are named after, or else split by hash."""
    name = name or path.resolve().name
    found = given(path) if path.is_dir() else {}
    if not found:
        shards = [Path(file) for file in files(path)]
        found = _shard_splits(shards)
    if not found:
        return Corpus(name, f"{path}, split by hash", {"train": Files((path,), text_column)}, HELD_OUT)
    return with_given(name, str(path), found, text_column)


def with_given(
    name: str,
    source: str,
    found: Mapping[str, Sequence[Path]],
    text_column: str | None = None,
    reader: str = "auto",
) -> Corpus:
    """A corpus whose splits are files; a held-out split that is not among them comes out of the training text."""
    texts = {split: Files(tuple(paths), text_column, reader) for split, paths in found.items()}
    missing = {split: share for split, share in HELD_OUT.items() if split not in texts and "train" in texts}
    words = f"{source}, splits as given ({', '.join(s for s in SPLITS if s in texts)})"
    if missing:
        words += f"; {' and '.join(missing)} taken out of train by hash"
    return Corpus(name, words, texts, missing)


def from_stdin(*, text_column: str | None = None) -> Corpus:
    """The corpus on standard input, split by hash."""
    scratch, text = keep_stdin(text_column)
    return Corpus("stdin", "standard input, split by hash", {"train": text}, HELD_OUT, scratch)


def keep_stdin(text_column: str | None) -> tuple[Any, Files]:
    """Standard input can be read only once, so it is kept in a temporary file as long as the corpus lives."""
    scratch = tempfile.NamedTemporaryFile(prefix="nextword-", suffix=".txt")  # noqa: SIM115
    with open_bytes(STDIN) as stream:
        shutil.copyfileobj(stream, scratch)
    scratch.flush()
    return scratch, Files((Path(scratch.name),), text_column)


def _shard_splits(found: Sequence[Path]) -> dict[str, list[Path]]:
    """The usual splits of 1B-Word: the first held-out shard is the test set, the second validates."""
    shards = {
        "train": [f for f in found if f.name.startswith("news.en-")],
        "test": [f for f in found if f.name.startswith("news.en.heldout-00000")],
        "valid": [f for f in found if f.name.startswith("news.en.heldout-00001")],
    }
    return {split: paths for split, paths in shards.items() if paths}
