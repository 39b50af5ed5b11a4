"""What divides the cells of a table, told by its first lines: as its ending says, or another mark.

    id;comment         one column by commas, two by semicolons, and so in every line: semicolons it is
    1;a fine film

Where no ending says that a text is a table (standard input), a header does: a first line that holds the columns that
are looked for.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError

MARKS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
DELIMITERS = {".csv": ",", ".tsv": "\t"}
LOOKED_AT = 100  # lines
HEADER_LENGTH = 120  # letters of a header
Header = Callable[[Sequence[str]], bool]  # whether cells are the names of columns that are looked for


def holding(*names: str) -> Header:
    """All of these, in capitals or not. One cell alone may well be a text: it has to be the one name exactly."""
    wanted = [name for name in names if name]

    def fits(cells: Sequence[str]) -> bool:
        there = {cell.lower() for cell in cells}
        return list(cells) == wanted if len(cells) == 1 else bool(wanted) and {one.lower() for one in wanted} <= there

    return fits


def cells_of(line: str, mark: str) -> list[str]:
    """Of a line that is a row by itself."""
    return next(_rows([line], mark, quotes=mark != "\t"), [])


def mark_of(line: str, header: Header) -> str:
    """The mark that makes a header of a line, of the most columns; "" if none does."""
    fitting = [mark for mark in (",", "\t", ";", "|") if header(cells_of(line, mark))]
    return max(fitting, key=lambda mark: len(cells_of(line, mark)), default="")


def said_mark(line: str) -> str:
    """The mark that a first line `sep=;` names, quoted or not; "" if it is none."""
    words = line.strip(' "\r\n')
    return words[4:] if words[:4].lower() == "sep=" and words[4:] in MARKS else ""


def other_mark(first: Sequence[str], used: str, known: Container[str] = ()) -> str:
    """What divides the first lines of a table, where the mark `used` leaves its header in one piece; "" for nothing.

    It divides at least half of the rows as often as the header, or the header into names that are `known`: a column may
    well be called `what;ever`.
    """
    first = [line for line in first if line.strip()]
    if not first or len(cells_of(first[0], used)) > 1:
        return ""
    for mark in MARKS:
        cells, rows = _divided(first, mark)
        fits = 2 * sum(len(row) >= len(cells) for row in rows) >= len(rows) > 0
        if len(cells) > 1 and (fits or any(cell.lower() in known for cell in cells)):
            return mark
    return ""


def refuse_marks(name: str | Path, first: Sequence[str], used: str) -> None:
    """An error where rows do not fit by the mark `used`, and another one divides all the first lines evenly."""
    first = [line for line in first if line.strip()]
    for mark, what in MARKS.items():
        cells, rows = _divided(first, mark)
        if mark != used and len(cells) > 1 and rows and all(len(row) == len(cells) for row in rows):
            raise NextwordError(
                f"{name}: its header, {first[0].strip()[:HEADER_LENGTH]!r}, may be divided by {what} or by {MARKS[used]}, and "
                f"by {MARKS[used]} its rows do not fit. If it is by {what}, leave no mark of the other kind in the "
                "names of its columns."
            )


def _divided(first: Sequence[str], mark: str) -> tuple[list[str], list[list[str]]]:
    """The header and the rows under it, by a mark that is not the ending's: then cells may be quoted, also by tabs. Of
    many lines without the last row, which may be cut short."""
    found = list(_rows(first, mark, quotes=True))
    return (found[0], found[1 : len(found) if len(first) < LOOKED_AT else -1]) if found else ([], [])


def reader(source: Iterable[str], mark: str, quotes: bool, strict: bool = False) -> Any:
    """Tabs alone divide a .tsv, as in GLUE: a quotation mark there is text. A .csv `quotes` as ever, be it by tabs."""
    dialect: Any = {} if quotes else {"quoting": csv.QUOTE_NONE}
    return csv.reader(source, delimiter=mark, strict=strict, **dialect)


def _rows(lines: Iterable[str], mark: str, quotes: bool) -> Iterator[list[str]]:
    """Rows that are not empty."""
    try:
        for row in reader(lines, mark, quotes):
            if row:
                yield [cell.strip() for cell in row]
    except csv.Error:  # told by whoever reads the whole
        return
