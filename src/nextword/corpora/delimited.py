"""Rows of a .csv or .tsv, each with the line that it begins in; of none is anything lost.

    text,stars            line 1   the header
    "A fine film,              2   a cell between quotation marks may go over lines,
    truly.",5                  3
    "Too long.",1              4   so the second row begins here

A row with more or fewer cells than the header is refused: a comma outside of quotation marks would cut its text short.
Semicolons, tabs or bars may divide a .csv as well, commas a .tsv (marks.py). A first line `sep=;`, as some programs
write it for Excel, says so itself, and is no header.
"""

from __future__ import annotations

import csv
from collections.abc import Container, Iterator
from itertools import chain, islice
from pathlib import Path

from nextword.contract_errors import NextwordError
from nextword.corpora.marks import DELIMITERS, LOOKED_AT, MARKS, other_mark, reader, refuse_marks, said_mark

ONE = {",": "a comma", ";": "a semicolon", "|": "a bar"}
MAX_CELL_LENGTH = 1 << 30  # characters of a cell

Row = tuple[int, list[str]]  # the line it begins in, and its cells


def rows(
    name: str | Path,
    source: Iterator[str],
    suffix: str,
    known: Container[str] = (),
    column: str | None = None,
    told: list[str] | None = None,
) -> Iterator[Row]:
    """The header, then every row; a line that is empty is a row without cells.

    Another mark than that of the ending divides a table whose header it leaves in one piece, and `told` hears of it.
    `known`: names that a header may well have. `column`: one that is asked for; whoever says `a;b` has one so called.
    """
    csv.field_size_limit(MAX_CELL_LENGTH)
    mark = DELIMITERS[suffix]
    opening = list(islice(source, LOOKED_AT))
    at = next((i for i, line in enumerate(opening) if line.strip()), 0)
    other = said_mark(opening[at]) if opening else ""
    if other:
        opening[at] = "\n"  # no row, but lines are counted all the same
    elif opening and opening[at].strip() != column:
        other = other_mark(opening, mark, known)
    if other and other != mark:
        mark = other
        if told is not None:
            told.append(f"{MARKS[mark]} divide the columns")
    found = reader(chain(opening, source), mark, quotes=(suffix, mark) != (".tsv", "\t"), strict=True)
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
    if long and mark != "\t":
        return f"Put the cell that has {ONE[mark]} in it between quotation marks, or remove that row."
    return "Mend or remove that row."


def _why(problem: str) -> str:
    """What the reader of csv says, in words for who has written the file."""
    if "unexpected end" in problem:
        return "a quotation mark is opened there, and never closed"
    if "expected after" in problem:
        return "a cell goes on after the quotation mark that ends it (within it they are doubled; in a .tsv, text)"
    if "new-line character" in problem:
        return "there is a carriage return in it without a line feed (for files of old Macs: tr '\\r' '\\n')"
    return problem
