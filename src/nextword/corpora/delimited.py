"""Rows of a .csv or .tsv, each with the line that it begins in; of none is anything lost.

    text,stars            line 1   the header
    "A fine film,              2   a cell between quotation marks may go over lines,
    truly.",5                  3
    "Too long.",1              4   so the second row begins here

A row with more or fewer cells than the header is refused: a comma outside of quotation marks would cut its text short.
So is a file that another mark divides than its ending says.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from nextword.contract import NextwordError

DELIMITERS = {".csv": ",", ".tsv": "\t"}
MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
LOOKED_AT = 100  # lines, to see what divides them
HELD = 1 << 30  # characters of a cell

Row = tuple[int, list[str]]  # the line it begins in, and its cells


def rows(name: str | Path, source: Iterator[str], suffix: str, column: str | None = None) -> Iterator[Row]:
    """The header, then every row; a line that is empty is a row without cells.

    `column` is a name that is known to stand in the header: whoever says `a;b` has a column of that name.
    """
    csv.field_size_limit(HELD)
    mark = DELIMITERS[suffix]
    opening = list(islice(source, LOOKED_AT))
    _refuse_other_mark(name, opening, suffix, column)
    reader = _reader(chain(opening, source), mark, strict=True)
    width, began = 0, 1
    try:
        for row in reader:
            if row and width and len(row) != width:
                raise NextwordError(
                    f"{name}, line {began}: {len(row)} column{'s' * (len(row) != 1)}, and the header has {width}. "
                    f"{_advice(len(row) > width, mark)}"
                )
            if row or width:  # what is empty before the header is nothing
                yield began, row
            width = width or len(row)
            began = reader.line_num + 1
    except csv.Error as problem:
        raise NextwordError(f"{name}, line {began} is not a valid row: {_why(str(problem))}. Mend it.") from None


def _reader(source: Any, mark: str, strict: bool = False) -> Any:
    # Tab-separated corpora (GLUE) do not quote; a stray quotation mark there is text.
    dialect: Any = {"quoting": csv.QUOTE_NONE} if mark == "\t" else {}
    return csv.reader(source, delimiter=mark, strict=strict, **dialect)


def _advice(long: bool, mark: str) -> str:
    if long and mark == ",":
        return "Put the cell that has a comma in it between quotation marks, or remove that row."
    return "Mend or remove that row."


def _why(problem: str) -> str:
    """What the reader of csv says, in words for who has written the file."""
    if "unexpected end" in problem:
        return "a quotation mark is opened there, and never closed"
    if "new-line character" in problem:
        return "there is a carriage return in it without a line feed (for files of old Macs: tr '\\r' '\\n')"
    return problem


# ------------------------------------------------------------------------------------------------ another mark


def other_mark(opening: Sequence[str], mark: str) -> str:
    """What seems to divide the first lines of a table if `mark` leaves its header in one piece; "" where nothing does.

    The header has it, and at least half of the rows have it as often: `Comment;Verdict` may be the name of one column.
    """
    if _widths(opening, mark)[:1] != [1]:
        return ""
    for other in MARKS:
        header, *rest = _widths(opening, other) or [0]
        if header > 1 and 2 * sum(width >= header for width in rest) >= len(rest):
            return other
    return ""


def _widths(opening: Sequence[str], mark: str) -> list[int]:
    try:
        return [len(row) for row in _reader(opening, mark) if row]
    except csv.Error:  # whoever reads it says where
        return []


def _refuse_other_mark(name: str | Path, opening: Sequence[str], suffix: str, column: str | None) -> None:
    other = other_mark(opening, DELIMITERS[suffix])
    header = next((line.strip() for line in opening if line.strip()), "")
    if not other or header == column:
        return
    fits = {"\t": "Call it .tsv", ",": "Call it .csv"}.get(other, "Save it with commas")
    raise NextwordError(
        f"{name}: its header is one column, {header[:120]!r}, divided by {MARKS[other]} it seems; a {suffix} is "
        f"divided by {MARKS[DELIMITERS[suffix]]}. {fits}; or, if it is one column, name it: {name}:COLUMN."
    )
