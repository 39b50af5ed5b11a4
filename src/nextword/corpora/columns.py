"""Documents out of a table (.csv, .tsv) or lines of JSON: which column or key is the text, and a document a row.

The text is the column that was named, else `text`, else the one with most in it among the first rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError
from nextword.corpora.decoding import lines, numbered_objects, plain_name
from nextword.corpora.delimited import Row, rows
from nextword.corpora.document import Document
from nextword.corpora.marks import DELIMITERS

JSON_LINES = {".jsonl", ".ndjson"}
USUAL = "text"
LOOKED_AT = 100  # rows, to find the text
COUNTED = 1_000_000  # rows looked through to say how many are empty


@dataclass(frozen=True)
class Texts:
    """The texts of a file, one a row: also those that are empty."""

    column: str
    names: list[str]  # of all columns or keys, as far as they were looked at
    documents: Iterator[Document]

    def filled(self, file: str | Path) -> Iterator[Document]:
        """Those with something in them."""
        empty, some = 0, False
        for document in self.documents:
            if document.text.strip():
                some = True
                yield document
            else:
                empty += 1
        if empty and not some:
            others = [name for name in self.names if name != self.column]
            another = f" Name another one: {file}:COLUMN, of {', '.join(others)}." if others else ""
            raise NextwordError(f"{file} has no text in '{self.column}', in none of its {empty:,} rows.{another}")


@dataclass(frozen=True)
class Reading:
    """What is read of a file, and what is left out."""

    column: str
    names: list[str]
    rows: int
    empty: int  # of the rows: they are left out
    whole: bool  # all rows were counted

    @property
    def others(self) -> list[str]:
        return [name for name in self.names if name != self.column]


def texts_of(file: str | Path, suffix: str, column: str | None = None) -> Texts | None:
    """The texts of a table or of JSON lines; None of a file of another kind, or without rows."""
    if suffix in DELIMITERS:
        return _of_table(file, suffix, column)
    return of_objects(file, lines(file), column) if suffix in JSON_LINES else None


def readings(files: Iterable[str | Path], column: str | None = None) -> Iterator[tuple[str | Path, Reading]]:
    """Which column is read of each file that has some, and how many of its texts are empty.

    Of all files together the first `COUNTED` rows are counted: a folder of shards may hold a hundred gigabytes.
    """
    left = COUNTED
    for file in files:
        found = texts_of(file, Path(plain_name(file)).suffix.lower(), column)
        if found is None:
            continue
        counted = Counter(bool(document.text.strip()) for document in islice(found.documents, left))
        left -= counted.total()
        whole = next(found.documents, None) is None
        yield file, Reading(found.column, found.names, counted.total(), counted[False], whole)


# ------------------------------------------------------------------------------------------------ tables


def _of_table(file: str | Path, suffix: str, column: str | None) -> Texts | None:
    found = rows(file, lines(file), suffix, column=column)
    header = [name.strip() for name in next(found, (0, []))[1]]
    _refuse_column(file, header, column)
    first = list(islice(found, LOOKED_AT))
    if not first:
        return None
    at = _text_column(header, first, column)
    return Texts(header[at], header, _documents(plain_name(file), chain(first, found), at))


def _documents(name: str, found: Iterable[Row], at: int) -> Iterator[Document]:
    for number, (_, row) in enumerate(found, 1):
        yield Document(row[at] if row else "", f"{name}:{number}")


def _refuse_column(file: str | Path, header: Sequence[str], wanted: str | None) -> None:
    """One that is not there, or there twice."""
    if wanted is not None and wanted not in header:
        near = get_close_matches(wanted, header, 1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Name one of these, as in {plain_name(file)}:COLUMN."
        raise NextwordError(f"{file} has no column {wanted!r}; its columns are {', '.join(header)}. {hint}")
    name = wanted or USUAL
    if header.count(name) > 1:
        raise NextwordError(f"{file} has {header.count(name)} columns '{name}'. Rename all but one.")


def _text_column(header: Sequence[str], some: Sequence[Row], wanted: str | None) -> int:
    if wanted or USUAL in header:
        return header.index(wanted or USUAL)
    widths = [sum(len(row[i]) for _, row in some if row) for i in range(len(header))]
    return widths.index(max(widths))


# ------------------------------------------------------------------------------------------------ lines of JSON


def of_objects(file: str | Path, source: Iterator[str], key: str | None) -> Texts | None:
    objects = numbered_objects(file, source, ', as {"text": …}')
    first = list(islice(objects, LOOKED_AT))
    if not first:
        return None
    key = key or _text_key([item for _, item in first])
    names = list(dict.fromkeys(name for _, item in first for name, value in item.items() if isinstance(value, str)))
    return Texts(key, names, _texts(file, chain(first, objects), key))


def _text_key(some: Sequence[dict[str, Any]]) -> str:
    if any(USUAL in item for item in some):
        return USUAL
    sizes: Counter[str] = Counter()
    for item in some:
        sizes.update({key: len(value) for key, value in item.items() if isinstance(value, str)})
    return max(sizes, key=lambda key: sizes[key], default=USUAL)


def _texts(file: str | Path, objects: Iterable[tuple[int, dict[str, Any]]], key: str) -> Iterator[Document]:
    name = plain_name(file)
    for number, item in objects:
        if not isinstance(item.get(key), str):
            keys = ", ".join(k for k, v in item.items() if isinstance(v, str)) or "none"
            raise NextwordError(
                f'{file}, line {number} has no text under "{key}"; keys with a text: {keys}. Mend or remove that line, '
                f"or name the key that holds the text: {name}:KEY."
            )
        text = item[key].replace("\r\n", "\n")
        if not _encodable(text):
            raise NextwordError(f"{file}, line {number} has half a surrogate pair, which is no character. Remove it.")
        yield Document(text, str(item.get("id", f"{name}:{number}")), str(item.get("title", "")))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
