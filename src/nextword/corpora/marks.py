"""What divides the cells of a table, told by its first lines: commas, tabs, or a mark that is not read.

    id;comment         one column by commas, two by semicolons, and so in every line: said, and how to mend it
    1;a fine film

Where no ending says that a text is a table (standard input), a header does: a first line that holds the columns that
are looked for.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nextword.contract import NextwordError
from nextword.corpora.decoding import FROM_STDIN

MARKS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
READ = {",": ".csv", "\t": ".tsv"}
DELIMITERS = {ending: mark for mark, ending in READ.items()}
LOOKED_AT = 100  # lines
SHOWN = 120  # letters of a header
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
    return next(_rows([line], mark), [])


def mark_of(line: str, header: Header) -> str:
    """The mark that makes a header of a line, of the most columns; "" if none does."""
    fitting = [mark for mark in (",", "\t", ";", "|") if header(cells_of(line, mark))]
    return max(fitting, key=lambda mark: len(cells_of(line, mark)), default="")


def refuse_marks(name: str | Path, first: Sequence[str], used: str, known: Container[str] = (), more: str = "") -> None:
    """An error where another mark than the one `used` seems to divide the first lines.

    Where that leaves the header in one piece, it is one that divides half of the rows as often as the header, or the
    header into names that are `known`; else one that divides all of them evenly. `more`: what may be done as well.
    """
    first = [line for line in first if line.strip()]
    whole = len(cells_of(first[0], used)) == 1 if first else False
    for mark, what in MARKS.items():
        cells = cells_of(first[0], mark) if first else []
        if mark == used or len(cells) < 2:
            continue
        rows = list(_rows(first, mark))[1 : len(first) if len(first) < LOOKED_AT else -1]  # the last may be cut short
        fits = sum(len(row) >= len(cells) if whole else len(row) == len(cells) for row in rows)
        named = whole and any(cell.lower() in known for cell in cells)
        if named or (rows and (2 if whole else 1) * fits >= len(rows)):
            raise NextwordError(
                f"{name}: its header, {first[0].strip()[:SHOWN]!r}, is divided by {what} it seems; a {READ[used]} is "
                f"divided by {MARKS[used]}. {more}{mended(name, mark)}"
            )


def mended(name: str | Path, mark: str) -> str:
    """What to do with a file that is divided by a mark that its ending does not say, or that is never read."""
    if mark in READ:
        return f"Call it {READ[mark]}."
    said = f"import csv, sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter='{mark}'))"
    how = f'python3 -c "{said}"'
    if name == FROM_STDIN:
        return f"Put this between: … | {how} | nextword …"
    return f"Save it with commas: {how} < {shlex.quote(str(name))} > commas.csv"


def reader(source: Iterable[str], mark: str, strict: bool = False) -> Any:
    """Tabs alone divide a .tsv, as in GLUE: a quotation mark there is text. A .csv quotes as ever."""
    dialect: Any = {"quoting": csv.QUOTE_NONE} if mark == "\t" else {}
    return csv.reader(source, delimiter=mark, strict=strict, **dialect)


def _rows(lines: Iterable[str], mark: str) -> Iterator[list[str]]:
    """Rows that are not empty."""
    try:
        for row in reader(lines, mark):
            if row:
                yield [cell.strip() for cell in row]
    except csv.Error:  # told by whoever reads the whole
        return
