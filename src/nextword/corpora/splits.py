"""Which side of the split a text falls on.

A made split is decided by the text alone: a hash of it, with case and spacing folded away, is read as a number between
0 and 1. So the same text (or the same text spaced differently) is always on the same side, and adding documents moves
none of those already there.

    0          0.05        0.10                                            1
    |  valid   |   test    |                    train                      |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

from nextword.corpora.decoding import plain_name
from nextword.corpora.document import Document
from nextword.corpora.passages import PASSAGE, passages
from nextword.corpora.readers import readable

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
