"""Reading documents out of files, whatever their format, without holding a large file in memory.

    .txt .md .tokens .raw, no suffix   plain text; articles of WikiText and of WikiExtractor are told by their headings,
                                       and `<|endoftext|>` separates documents where it is used
    .jsonl .ndjson                     one object a line, its text under "text" or what else is longest
    .csv .tsv                          a header, then one document a row (columns.py)
    news.en-*  news.en.heldout-*       1B-Word shards: one document a line
    a folder                           all of these in it, in order of their paths

Each may be compressed (.gz .xz .zst .bz2), and `-` is standard input. See decoding.py for what is done to the bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data.files import STDIN, chunks, lines, lines_of, plain_name
from nextword.data.segmentation import passages
from nextword.data.tables import DELIMITERS, JSON_LINES, USUAL, of_objects, texts_of

PLAIN = {"", ".txt", ".text", ".md", ".tokens", ".raw", ".train", ".valid", ".dev", ".test"}
READABLE = PLAIN | JSON_LINES | set(DELIMITERS)

ENDOFTEXT = "<|endoftext|>"
SHARD = re.compile(r"news\.en(\.heldout)?-\d{5}-of-\d{5}")
_WIKI_DOC = re.compile(r'<doc id="([^"]*)"(?: [a-z]+="[^"]*")*? title="(.*)">\s*$')
LONG = 1 << 20  # characters of one article held in memory at once
_HEADING = re.compile(r" = (?!=)(.*\S) = \n$")


def read(path: str | Path, *, text_column: str | None = None, reader: str = "auto") -> Iterator[Document]:
    """Every document of a file or folder, as a stream. `text_column` names the text of a table or JSON object.

    A long plain text comes as passages (`Document.continues`) that join up exactly to the text. `reader` overrules what
    the file looks like: "lines" (each line is a document) or "tagged" (Brown's word/tag pairs; the words are kept).
    "breaks" has HTML's <br /> where a line ends.
    """
    for file in files(path):
        found = False
        for document in read_file(file, text_column, reader):
            found = True
            yield document
        if not found:
            name = "Standard input" if file == STDIN else file
            raise NextwordError(f"{name} is empty. Expected text; give a file with something in it.")


def files(path: str | Path) -> list[str | Path]:
    """The readable files of a folder, sorted and without hidden ones; or the one file that was given."""
    if str(path) == STDIN:
        return [STDIN]
    path = Path(path)
    if not path.exists():
        near = get_close_matches(path.name, [p.name for p in path.parent.iterdir()], 1) if path.parent.is_dir() else []
        hint = f"Did you mean {path.parent / near[0]}?" if near else "Check the spelling, or give a full path."
        raise NextwordError(f"There is no file or folder {path}. {hint}")
    if not path.is_dir():
        return [path]
    found: list[str | Path] = [
        file
        for file in sorted(path.rglob("*"))
        if readable(file) and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    if not found:
        raise NextwordError(
            f"The folder {path} holds no readable file. Expected {', '.join(sorted(READABLE - {''}))} or plain names, "
            "perhaps with .gz, .xz or .zst."
        )
    return found


def readable(file: Path) -> bool:
    """Whether a folder's reader takes this file: by its name, not by what is in it."""
    return file.is_file() and (_suffix(file) in READABLE or bool(SHARD.search(file.name)))


def _suffix(file: str | Path) -> str:
    return Path(plain_name(file)).suffix.lower()


def read_file(file: str | Path, text_column: str | None = None, reader: str = "auto") -> Iterator[Document]:
    """The documents of one file; its ids are the file's name, with a number where there are many."""
    name, suffix = plain_name(file), _suffix(file)
    if reader == "lines":
        return _each_line(file)
    if reader == "tagged":
        return _tagged(file)
    if reader == "breaks":
        return (replace(document, text=broken(document.text)) for document in read_file(file, text_column))
    if suffix in JSON_LINES or suffix in DELIMITERS:
        found = texts_of(file, suffix, text_column)
        return found.filled(file) if found else iter(())
    if SHARD.search(name):
        return _each_line(file)
    return _plain(file, text_column)


def broken(text: str) -> str:
    """With line ends for HTML's: `film.<br />I` would be one long word to those who split at spaces."""
    return text.replace("<br />", "\n")


def _plain(file: str | Path, text_column: str | None) -> Iterator[Document]:
    name = plain_name(file)
    pieces = chunks(file)
    first = next(pieces, "")
    if not first:
        return iter(())
    pieces = chain([first], pieces)
    opening = first.lstrip()
    if opening.startswith('<doc id="'):
        return _wiki_extractor(file, lines_of(pieces))
    if opening.startswith("{") and _is_object(opening, text_column or USUAL):  # WikiExtractor --json, C4
        found = of_objects(file, lines_of(pieces), text_column or USUAL)
        return found.filled(file) if found else iter(())
    if _suffix(file) == ".json":
        raise NextwordError(
            f"{file} is one JSON value; expected one object a line. Convert it: jq -c '.[]' {file} > {name}l"
        )
    if next((bool(_HEADING.match(line)) for line in first.splitlines(True) if line.strip()), False):
        return _wikitext(name, lines_of(pieces))
    if ENDOFTEXT in first:
        return _separated(name, pieces)
    return _as_passages(name, pieces)


def _is_object(opening: str, key: str) -> bool:
    try:
        return key in json.loads(opening.split("\n", 1)[0])
    except ValueError:
        return False


def _as_passages(name: str, pieces: Iterable[str], id: str = "") -> Iterator[Document]:
    for i, text in enumerate(passages(pieces)):
        yield Document(text, id or name, continues=i > 0)


def _separated(name: str, pieces: Iterable[str]) -> Iterator[Document]:
    """Documents between `<|endoftext|>` marks; the marks and the spaces around them are no part of the text."""
    rest, number = "", 0
    for piece in chain(pieces, [ENDOFTEXT]):
        *whole, rest = (rest + piece).split(ENDOFTEXT)
        for text in whole:
            if text.strip():
                yield from _as_passages(name, [text.strip()], f"{name}:{number}")
                number += 1


def _each_line(file: str | Path) -> Iterator[Document]:
    name = plain_name(file)
    for number, line in enumerate(lines(file), 1):
        if line.strip():
            yield Document(line, f"{name}:{number}")


def _tagged(file: str | Path) -> Iterator[Document]:
    """Words of `word/tag` text, a sentence a line, blank lines dropped; the tag follows the last slash."""
    kept = [" ".join(pair.rpartition("/")[0] or pair for pair in line.split()) for line in lines(file) if line.strip()]
    if kept:
        yield Document("\n".join(kept) + "\n", plain_name(file))


def _wikitext(name: str, source: Iterator[str]) -> Iterator[Document]:
    """Articles of WikiText. The blank line before a heading goes with it, so that articles join up to the file."""
    text: list[str] = []
    title, size, continues = "", 0, False
    before, line = "", next(source, "")
    while line:
        after = next(source, "")
        heading = _HEADING.match(line) if not before.strip() and not after.strip() else None
        blank = [text.pop()] if heading and text and not text[-1].strip() else []
        if text and (heading or size > LONG):
            yield Document("".join(text), f"{name}:{title}", title, continues)
            text, size, continues = [], 0, heading is None
        if heading:
            title = heading.group(1)
        text += [*blank, line]
        size += len(line)
        before, line = line, after
    if text:
        yield Document("".join(text), f"{name}:{title}", title, continues)


def _wiki_extractor(file: str | Path, source: Iterator[str]) -> Iterator[Document]:
    header: re.Match[str] | None = None
    text: list[str] = []
    for number, line in enumerate(source, 1):
        if line.startswith("<doc "):
            header, text = _WIKI_DOC.match(line), []
            if header is None:
                raise NextwordError(
                    f'{file}, line {number}: expected WikiExtractor\'s <doc id="…" url="…" title="…">, '
                    f"found {line.strip()[:80]!r}. Extract the dump again."
                )
        elif line.startswith("</doc>") and header is not None:
            body = "".join(text).strip("\n")
            if body:
                yield Document(body + "\n", header.group(1), header.group(2))
            header = None
        elif header is not None:
            text.append(line)
    if header is not None:
        raise NextwordError(f"{file} ends inside an article (no </doc>). It was cut short: extract the dump again.")
