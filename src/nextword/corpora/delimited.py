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
from collections.abc import Container, Iterator
from itertools import chain, islice
from pathlib import Path

from nextword.contract import NextwordError
from nextword.corpora.marks import DELIMITERS, LOOKED_AT, cells_of, reader, refuse_marks

HELD = 1 << 30  # characters of a cell

Row = tuple[int, list[str]]  # the line it begins in, and its cells


def rows(
    name: str | Path, source: Iterator[str], suffix: str, known: Container[str] = (), column: str | None = ""
) -> Iterator[Row]:
    """The header, then every row; a line that is empty is a row without cells.

    `known`: names that a header may well have. `column`: the one that is asked for, "" where none can be; whoever says
    `a;b` has a column of that name.
    """
    csv.field_size_limit(HELD)
    mark = DELIMITERS[suffix]
    opening = list(islice(source, LOOKED_AT))
    header = next((line.strip() for line in opening if line.strip()), "")
    if not column or header != column:
        named = f"If it is one column, name it: {name}:COLUMN. " if column is None else ""
        if len(cells_of(header, mark)) == 1:
            refuse_marks(name, opening, mark, known, named)
    found = reader(chain(opening, source), mark, strict=True)
    width, began = 0, 1
    try:
        for row in found:
            if row and width and len(row) != width:
                refuse_marks(name, opening, mark)
                raise NextwordError(
                    f"{name}, line {began}: {len(row)} column{'s' * (len(row) != 1)}, and the header has {width}. "
                    f"{_advice(len(row) > width, mark)}"
                )
            if row or width:  # what is empty before the header is nothing
                yield began, row
            width = width or len(row)
            began = found.line_num + 1
    except csv.Error as problem:
        refuse_marks(name, opening, mark)
        raise NextwordError(f"{name}, line {began} is not a valid row: {_why(str(problem))}. Mend it.") from None


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
