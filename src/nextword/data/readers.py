"""Read documents from files of any supported format, without holding a large file in memory.

    .txt .md .tokens .raw, no suffix   plain text; headings mark the articles of WikiText and WikiExtractor, and
                                       `<|endoftext|>` separates documents
    .jsonl .ndjson                     one object per line, its text under "text" or the longest value
    .csv .tsv                          one document per row, after a header if there is one (tables.py)
    news.en-*  news.en.heldout-*       1B-Word shards: one document per line
    a folder                           all of these in it, in the order of their paths

Each may be compressed (.gz .xz .zst .bz2), and `-` is standard input. files.py turns bytes into text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

from nextword.core.errors import DataError, MissingFile, bad_data
from nextword.core.io import parse_json, path_exists
from nextword.core.types import Document
from nextword.data.files import (
    STDIN,
    display_name,
    format_suffix,
    plain_name,
    read_chunks,
    read_lines,
    require_nonempty,
    split_lines,
)
from nextword.data.segmentation import split_passages
from nextword.data.tables import DELIMITERS, JSON_LINES, TEXT_COLUMN, open_table, open_texts, texts_of_table

PLAIN = {"", ".txt", ".text", ".md", ".tokens", ".raw", ".train", ".valid", ".dev", ".test"}
READABLE = PLAIN | JSON_LINES | set(DELIMITERS)

ENDOFTEXT = "<|endoftext|>"
SHARD = re.compile(r"news\.en(\.heldout)?-\d{5}-of-\d{5}")
_WIKI_DOC = re.compile(r'<doc id="([^"]*)"(?: [a-z]+="[^"]*")*? title="(.*)">\s*$')
MAX_ARTICLE = 1 << 20  # characters; a longer article comes in several passages
_HEADING = re.compile(r" = (?!=)(.*\S) = \n$")


def read(
    path: str | Path, *, text_column: str | None = None, reader: str = "auto", header: bool | None = None
) -> Iterator[Document]:
    """Yield every document of a file or folder. `text_column` names the column of a table or the key of JSON lines, or
    is its number. `header`: whether tables have one; None: detect it.

    A long plain text comes as passages (`Document.continues`) whose concatenation is exactly the text. `reader`
    overrides the detection of the format: "lines" (one document per line), "tagged" (Brown's word/tag pairs, of which
    only the words are read), or "breaks" (HTML's <br /> marks line ends).
    """
    for file in list_files(path):
        yield from require_nonempty(
            read_file(file, text_column, reader, header), display_name(file), "empty. Expected text."
        )


def list_files(path: str | Path) -> list[str | Path]:
    """Return the readable files of a folder, sorted and without hidden ones; or the file itself."""
    if str(path) == STDIN:
        return [STDIN]
    path = Path(path)
    if not path_exists(path):
        near = get_close_matches(path.name, [p.name for p in path.parent.iterdir()], 1) if path.parent.is_dir() else []
        hint = f"Did you mean {path.parent / near[0]}?" if near else "Check the spelling, or give a full path."
        raise MissingFile(f"{path} does not exist. {hint}", path=path)
    if not path.is_dir():
        return [path]
    files: list[str | Path] = [
        file
        for file in sorted(path.rglob("*"))
        if is_readable(file) and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    if not files:
        raise MissingFile(
            f"The folder {path} has no readable file. Expected {', '.join(sorted(READABLE - {''}))} or no suffix, "
            "optionally compressed as .gz, .xz or .zst.",
            path=path,
        )
    return files


def is_readable(file: Path) -> bool:
    """Whether this file is read as part of a folder: by its name, not by its content."""
    return file.is_file() and (format_suffix(file) in READABLE or bool(SHARD.search(file.name)))


def read_file(
    file: str | Path, text_column: str | None = None, reader: str = "auto", header: bool | None = None
) -> Iterator[Document]:
    """Yield the documents of one file. Their ids are the name of the file, with a number if there are several."""
    if reader == "lines" or (reader == "auto" and SHARD.search(plain_name(file))):
        return _read_lines_as_documents(file)
    if reader == "tagged":
        return _read_tagged(file)
    if reader == "breaks":
        column = text_column if format_suffix(file) in (*JSON_LINES, *DELIMITERS) else None  # or a file per review
        documents = read_file(file, column, header=header)
        return (replace(document, text=replace_breaks(document.text)) for document in documents)
    if format_suffix(file) in (*JSON_LINES, *DELIMITERS):
        table = open_texts(file, text_column, header)
        return table.nonempty(file) if table else iter(())
    return _read_plain(file, text_column, header)


def replace_breaks(text: str) -> str:
    """Replace HTML's line breaks, since `film.<br />I` would be one long word when split at spaces."""
    return text.replace("<br />", "\n")


def _read_plain(file: str | Path, text_column: str | None, header: bool | None) -> Iterator[Document]:
    name = plain_name(file)
    pieces = read_chunks(file)
    first = next(pieces, "")
    if not first:
        return iter(())
    pieces = chain([first], pieces)
    opening = first.lstrip()
    if opening.startswith('<doc id="'):
        return _read_wiki_extractor(file, split_lines(pieces, file))
    if opening.startswith("{") and _is_object(opening, text_column or TEXT_COLUMN):  # WikiExtractor --json, C4
        objects = open_table(file, source=split_lines(pieces, file))
        table = texts_of_table(file, objects, text_column or TEXT_COLUMN)
        return table.nonempty(file) if table else iter(())
    if (text_column is not None or header is not None) and (table := open_texts(file, text_column, header)):
        return table.nonempty(file)
    if format_suffix(file) == ".json":
        convert = f"jq -c '.[]' {file} > {name}l"
        raise bad_data(file, f"one JSON value; expected one object per line. Convert it: {convert}")
    if next((bool(_HEADING.match(line)) for line in first.splitlines(True) if line.strip()), False):
        return _read_wikitext(name, split_lines(pieces, file))
    if ENDOFTEXT in first:
        return _read_separated(name, pieces)
    return _read_passages(name, pieces)


def _is_object(opening: str, key: str) -> bool:
    try:
        return key in parse_json(opening.split("\n", 1)[0], "")
    except DataError:
        return False


def _read_passages(name: str, pieces: Iterable[str], id: str = "") -> Iterator[Document]:
    for i, text in enumerate(split_passages(pieces)):
        yield Document(text, id or name, continues=i > 0)


def _read_separated(name: str, pieces: Iterable[str]) -> Iterator[Document]:
    """Yield documents separated by `<|endoftext|>`, stripped of surrounding spaces."""
    rest, number = "", 0
    for piece in chain(pieces, [ENDOFTEXT]):
        *complete, rest = (rest + piece).split(ENDOFTEXT)
        for text in complete:
            if text.strip():
                yield from _read_passages(name, [text.strip()], f"{name}:{number}")
                number += 1


def _read_lines_as_documents(file: str | Path) -> Iterator[Document]:
    name = plain_name(file)
    for number, line in enumerate(read_lines(file), 1):
        if line.strip():
            yield Document(line, f"{name}:{number}")


def _read_tagged(file: str | Path) -> Iterator[Document]:
    """Read the words of `word/tag` text, one sentence per line. The tag follows the last slash."""
    sentences = [
        " ".join(pair.rpartition("/")[0] or pair for pair in line.split()) for line in read_lines(file) if line.strip()
    ]
    if sentences:
        yield Document("\n".join(sentences) + "\n", plain_name(file))


def _read_wikitext(name: str, source: Iterator[str]) -> Iterator[Document]:
    """Yield the articles of WikiText. The blank line before a heading goes with it, so nothing of the file is lost."""
    text: list[str] = []
    title, size, continues = "", 0, False
    before, line = "", next(source, "")
    while line:
        after = next(source, "")
        heading = _HEADING.match(line) if not before.strip() and not after.strip() else None
        blank = [text.pop()] if heading and text and not text[-1].strip() else []
        if text and (heading or size > MAX_ARTICLE):
            yield Document("".join(text), f"{name}:{title}", title, continues)
            text, size, continues = [], 0, heading is None
        if heading:
            title = heading.group(1)
        text += [*blank, line]
        size += len(line)
        before, line = line, after
    if text:
        yield Document("".join(text), f"{name}:{title}", title, continues)


def _read_wiki_extractor(file: str | Path, source: Iterator[str]) -> Iterator[Document]:
    header: re.Match[str] | None = None
    text: list[str] = []
    for number, line in enumerate(source, 1):
        if line.startswith("<doc "):
            header, text = _WIKI_DOC.match(line), []
            if header is None:
                problem = f'expected WikiExtractor\'s <doc id="…" url="…" title="…">, got {line.strip()[:80]!r}.'
                raise bad_data(file, f"{problem} Extract the dump again.", number)
        elif line.startswith("</doc>") and header is not None:
            body = "".join(text).strip("\n")
            if body:
                yield Document(body + "\n", header.group(1), header.group(2))
            header = None
        elif header is not None:
            text.append(line)
    if header is not None:
        raise bad_data(file, "truncated: its last article has no </doc>. Extract the dump again.")
