"""Pairs out of one file that holds both sides.

pairs.tsv  deu.txt      source TAB target, and what else Tatoeba puts into a line:
                        source TAB target TAB attribution        id TAB source TAB id TAB target
pairs.csv  pairs.tsv    a header, then a pair a row
pairs.jsonl             an object a line; also {"translation": {"en": …, "de": …}}
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError
from nextword.corpora.columns import JSON_LINES
from nextword.corpora.decoding import lines, plain_name
from nextword.corpora.document import Document
from nextword.corpora.marks import DELIMITERS
from nextword.corpora.parallel_files import FORMAT, USUAL, choose, cuts, feed, not_parallel

NESTED = "translation"


@dataclass(frozen=True)
class Table:
    """Pairs out of files that hold both sides, under two names or, where there is no header, two numbers of columns."""

    files: tuple[Path, ...]
    pair: tuple[str, str]
    bare: bool = False  # no header: the names are the numbers of columns

    def documents(self) -> Iterator[Document]:
        for path in self.files:
            some = False
            rows = _objects(path, self.pair) if is_json(path) else _rows(path, self.pair, self.bare)
            for at, id, source, target in rows:
                if source.strip() and target.strip():
                    some = True
                    yield Document(target, id, source=source)
                elif source.strip() or target.strip():
                    name = self.pair[bool(source.strip())]
                    raise NextwordError(
                        f"{path}, line {at}: {'column ' if self.bare else ''}{name} is empty. "
                        "A pair needs both sides: remove that line, or fill it."
                    )
            if not some:
                raise NextwordError(f"{path} has no pairs. Expected some; give a file with something in it.")

    def size(self) -> int | None:
        return None  # what part of a line is the target, only reading tells

    def update(self, hasher: Any) -> None:
        hasher.update(FORMAT + f"{self.pair};{self.bare};".encode())
        for path in self.files:
            hasher.update(f"{''.join(path.suffixes[-2:])};".encode())
            feed(hasher, path)


Row = tuple[int, str, str, str]  # line, id, source, target


def suffix(path: Path) -> str:
    return Path(plain_name(path)).suffix.lower()


def is_json(path: Path) -> bool:
    return suffix(path) in JSON_LINES


def is_table(path: Path) -> bool:
    return is_json(path) or suffix(path) in DELIMITERS


def head(path: Path) -> list[str]:
    """What the first line offers: the keys of an object that hold text, or the columns of a row."""
    number, first = next(((n, line) for n, line in enumerate(lines(path), 1) if line.strip()), (0, ""))
    if not first:
        raise NextwordError(f"{path} is empty. Expected pairs; give a file with something in it.")
    if not is_json(path):
        return next(_cells(path, lines(path)))[1]
    return [key for key, value in _inside(_object(path, number, first)).items() if isinstance(value, str)]


def columns(path: Path, pair: str, name: str) -> tuple[tuple[str, str], bool]:
    """The two keys or columns that a spec means, and whether they are (True) numbers, for want of a header."""
    found = head(path)
    if is_json(path):
        return choose(pair, found, name), False
    if len(found) < 2:
        raise not_parallel(str(path))
    if pair and pair.replace("-", "").isdigit():
        return choose(pair, [str(number) for number in range(1, len(found) + 1)], name), True
    asked = {part for both in cuts(pair) for part in both}
    if suffix(path) == ".csv" or asked & set(found) or any(set(both) <= set(found) for both in USUAL):
        return choose(pair, found, name), False
    if not pair and (usual := tatoeba(found)):
        return usual, True
    raise NextwordError(
        f"{path} has {len(found)} columns, and none is named {pair or 'source or target'} in its first line: "
        f"{' | '.join(found)[:120]!r}. Of a file without a header give the numbers, source first: {name}:1-2."
    )


def _objects(path: Path, pair: tuple[str, str]) -> Iterator[Row]:
    for number, line in enumerate(lines(path), 1):
        if not line.strip():
            continue
        item = _object(path, number, line)
        inside = _inside(item)
        for key in pair:
            if not isinstance(inside.get(key), str):
                keys = ", ".join(k for k, v in inside.items() if isinstance(v, str)) or "none"
                raise NextwordError(
                    f"{path}, line {number} has no text under {key!r}; the keys that have are: {keys}. "
                    "Mend or remove that line, or name other keys."
                )
        source, target = (inside[key].replace("\r\n", "\n") for key in pair)
        if "\\ud" in line.lower() and not (_encodable(source) and _encodable(target)):
            raise NextwordError(f"{path}, line {number} has half a surrogate pair, which is no character. Remove it.")
        yield number, str(item.get("id", f"{plain_name(path)}:{number}")), source, target


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        item = json.loads(line)
    except ValueError as error:
        raise NextwordError(f"{path}, line {number} is not JSON: {error}. Mend or remove that line.") from None
    if not isinstance(item, dict):
        raise NextwordError(f"{path}, line {number} is no JSON object. Expected one a line, with both sides in it.")
    return item


def _inside(item: dict[str, Any]) -> dict[str, Any]:
    return item[NESTED] if isinstance(item.get(NESTED), dict) else item


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _rows(path: Path, pair: tuple[str, str], bare: bool) -> Iterator[Row]:
    rows = _cells(path, lines(path))
    name = plain_name(path)
    header = [] if bare else next(rows, (0, []))[1]
    for column in pair:
        if not bare and column not in header:
            raise NextwordError(f"{path} has no column {column!r}; its columns are {', '.join(header)}.")
    columns = [int(column) - 1 if bare else header.index(column) for column in pair]
    for number, row in rows:
        if len(row) <= max(columns):
            raise NextwordError(
                f"{path}, line {number} has {len(row)} column{'s' * (len(row) != 1)}; expected at least "
                f"{max(columns) + 1}, with the source in {columns[0] + 1} and the target in {columns[1] + 1}. "
                "Mend or remove that line."
            )
        yield number, f"{name}:{number}", row[columns[0]], row[columns[1]]


def _cells(path: Path, source: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with its line. Only between commas do quotation marks quote."""
    if suffix(path) != ".csv":
        yield from ((n, line.removesuffix("\n").split("\t")) for n, line in enumerate(source, 1) if line.strip())
        return
    csv.field_size_limit(1 << 30)
    rows = csv.reader(source, strict=True)
    try:
        yield from ((rows.line_num, row) for row in rows if row)
    except csv.Error as error:
        raise NextwordError(f"{path}, line {rows.line_num} is not a valid row: {error}. Mend or remove it.") from None


def tatoeba(columns: Sequence[str]) -> tuple[str, str] | None:
    """Which columns of a line without a header are source and target, in the forms that Tatoeba's exports have."""
    if len(columns) in (2, 3):  # source, target, perhaps an attribution
        return "1", "2"
    if len(columns) == 4 and columns[0].isdigit() and columns[2].isdigit():  # id, text, id, text
        return "2", "4"
    return None
