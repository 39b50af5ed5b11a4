"""What divides the cells of a table, told by its first lines: as its ending says, or another mark.

    id;comment         one column by commas, two by semicolons, and so in every line: semicolons it is
    1;a fine film

Where no ending says that a text is a table (standard input), a header does: a first line that holds the columns that
are looked for.

Rows of a .csv or .tsv, each with the line that it begins in; of none is anything lost.

    text,stars            line 1   the header
    "A fine film,              2   a cell between quotation marks may go over lines,
    truly.",5                  3
    "Too long.",1              4   so the second row begins here

A row with more or fewer cells than the header is refused: a comma outside of quotation marks would cut its text short.
Semicolons, tabs or bars may divide a .csv as well, commas a .tsv (marks.py). A first line `sep=;`, as some programs
write it for Excel, says so itself, and is no header.

Documents out of a table (.csv, .tsv) or lines of JSON: which column or key is the text, and a document a row.

The text is the column that was named, else `text`, else the one with most in it among the first rows.

Labelled rows out of a user's files: csv, tsv, JSON lines, or plain lines; and which column is what.

text,stars                      columns are guessed by their names, or named: --text review --label stars
"A fine film, truly.",5
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data.files import FROM_STDIN, STDIN, json_objects, lines, numbered_objects, plain_name

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


JSON_LINES = {".jsonl", ".ndjson"}
USUAL = "text"
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


TEXTS = (
    *("text", "sentence", "sentence1", "content", "review", "premise", "question1", "body", "comment", "message"),
    *("tweet", "document"),
)
SECONDS = ("sentence2", "hypothesis", "question2", "text2", "second", "text_b", "sentence_b")
LABELS = ("label", "labels", "class", "target", "category", "sentiment", "stars", "rating", "score", "gold_label")
SPLIT = "split"
BETWEEN = "\x1e"  # texts of an example, written as one
IGNORED = ("", "id", "index", "idx", "unnamed: 0", SPLIT)  # "": where pandas writes the number of the row
TABLE_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
HELD_OUT_FRACTION = 0.1  # of the rows, held out where a data set names none
MAX_COLUMNS_NAMED = 8  # columns named in a message


@dataclass(frozen=True)
class Rows:
    """Examples as they stand in a file. Labels are None where they are kept back. With `choices`, texts are contexts,
    seconds the questions about them, and labels the numbers of the right candidates."""

    texts: list[str]
    seconds: list[str] | None = None
    labels: list[str] | None = None
    ids: list[str] | None = None  # that a benchmark asks predictions for
    choices: list[tuple[str, ...]] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def examples(self) -> list[str]:
        """All that is read of each, as one text."""
        return [self.key(i) for i in range(len(self))]

    def key(self, i: int) -> str:
        second = () if self.seconds is None else (self.seconds[i],)
        return BETWEEN.join((self.texts[i], *second, *(self.choices[i] if self.choices else ())))

    def take(self, chosen: Sequence[int]) -> Rows:
        pick = lambda column: None if column is None else [column[i] for i in chosen]  # noqa: E731
        rest = pick(self.seconds), pick(self.labels), pick(self.ids), pick(self.choices)
        return Rows([self.texts[i] for i in chosen], *rest)


def joined_rows(parts: Sequence[Rows]) -> Rows:
    """One after the other; what one of them lacks, all lack."""
    columns = ((part.seconds, part.labels, part.ids, part.choices) for part in parts)
    seconds, labels, ids, choices = (None if None in some else [*chain(*some)] for some in zip(*columns, strict=True))
    return Rows([text for part in parts for text in part.texts], seconds, labels, ids, choices)


@dataclass(frozen=True)
class Columns:
    """Which column of a table is what; "" where there is none."""

    text: str = ""
    second: str = ""
    label: str = ""


@dataclass(frozen=True)
class Table:
    name: str
    header: list[str]
    rows: list[list[str]] = field(repr=False)
    kind: str = "csv"  # csv, tsv, jsonl, lines
    notes: tuple[str, ...] = ()  # what was not read
    objects: list[dict[str, Any]] | None = field(default=None, repr=False)  # of JSON lines, as they stand there

    def column(self, name: str) -> list[str]:
        if name not in self.header:
            known = ", ".join(self.header[:MAX_COLUMNS_NAMED]) + (", …" if len(self.header) > MAX_COLUMNS_NAMED else "")
            raise NextwordError(
                f"{self.name} has no column '{name}'; it has {known}. Name the right ones with --text, --second and "
                "--label."
            )
        if self.header.count(name) > 1:
            raise NextwordError(f"{self.name} has {self.header.count(name)} columns '{name}'. Rename all but one.")
        at = self.header.index(name)
        return [row[at] for row in self.rows]

    def rows_of(self, columns: Columns) -> Rows:
        texts = self.column(columns.text)
        seconds = self.column(columns.second) if columns.second else None
        return Rows(texts, seconds, [one.strip() for one in self.column(columns.label)] if columns.label else None)


def held_out(rows: Rows, by_class: bool = True) -> list[int]:
    """The same rows on every machine: those of each class whose texts' hashes are least. Equal rows stay together."""
    groups: dict[str, list[tuple[bytes, int]]] = {}
    for i in range(len(rows)):
        hashed = blake2b(rows.key(i).encode("utf-8", "replace"), digest_size=8).digest()
        groups.setdefault(rows.labels[i] if by_class and rows.labels else "", []).append((hashed, i))
    chosen: list[int] = []
    for group in groups.values():
        group.sort()
        n = round(HELD_OUT_FRACTION * len(group))
        while 0 < n < len(group) and group[n][0] == group[n - 1][0]:
            n += 1
        chosen += [i for _, i in group[:n]] if n < len(group) else []
    return sorted(chosen)


# ------------------------------------------------------------------------------------------------ reading


def read_table(path: str | Path, header: Header | None = None, source: Iterator[str] | None = None) -> Table:
    """By the file's ending. Standard input (`-`) and other files are JSON lines if they begin with {, a csv or a tsv if
    their first line is a `header`, else plain lines, in which a tab divides two texts.

    `source`: the lines, where they have been read already.
    """
    name, suffix = FROM_STDIN if str(path) == STDIN else str(path), Path(plain_name(path)).suffix.lower()
    source = lines(path) if source is None else source
    if suffix in DELIMITERS:
        table = _delimited(name, source, suffix)
    else:
        before = list(_to_first(source))
        first = before[-1].rstrip("\n") if before else ""
        table = _by_first_line(name, first, chain(before, source), suffix, header)
    if not table.rows:
        who = "Standard input" if name == FROM_STDIN else name
        raise NextwordError(f"{who} has no row in it. Expected examples, one a line, after a header if it is a table.")
    return table


def _to_first(source: Iterator[str]) -> Iterator[str]:
    """Empty lines, and the first that is not."""
    for line in source:
        yield line
        if line.strip():
            return


def _by_first_line(name: str, first: str, source: Iterator[str], suffix: str, header: Header | None) -> Table:
    opening = first.lstrip()
    if opening.startswith("[") and (suffix == ".json" or opening[1:].lstrip()[:1] in ("", "{")):
        how = "… | jq -c '.[]' | nextword …" if name == FROM_STDIN else f"jq -c '.[]' {name} > {Path(name).stem}.jsonl"
        raise NextwordError(f"{name} is one JSON list. Expected one object a line: {how}")
    if suffix in TABLE_JSON_SUFFIXES or opening.startswith("{"):
        return _json_lines(name, source)
    mark = mark_of(first, header) if header else ""
    if not mark:
        return _plain(name, source)
    ending = ".tsv" if mark == DELIMITERS[".tsv"] else ".csv"
    said = f"the first line, {first!r}, is read as the header of a {ending[1:]}"
    try:
        table = _delimited(name, source, ending)
    except NextwordError as problem:
        raise NextwordError(f"{problem} ({said[0].upper()}{said[1:]}.)") from None
    return replace(table, notes=(said, *table.notes))


def _delimited(name: str, source: Iterator[str], suffix: str) -> Table:
    told: list[str] = []
    found = rows(name, source, suffix, {*TEXTS, *SECONDS, *LABELS}, told=told)
    header = [cell.strip() for cell in next(found, (0, []))[1]]
    filled = [row for _, row in found]
    there = [row for row in filled if row]
    return Table(name, header, there, suffix[1:], (*told, *_blank(len(filled) - len(there))))


def _blank(n: int) -> tuple[str, ...]:
    return (f"{n:,} empty line{'s are' if n > 1 else ' is'} left out",) if n else ()


def _json_lines(name: str, source: Iterator[str]) -> Table:
    found = list(json_objects(name, source, ', as {"text": …}'))
    header = list(dict.fromkeys(key for one in found for key in one))
    return Table(name, header, [[_cell(one.get(key)) for key in header] for one in found], "jsonl", (), found)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(name: str, source: Iterator[str]) -> Table:
    given = [line.rstrip("\n") for line in source]
    rows = [line.split("\t") for line in given if line.strip()]
    width = max(map(len, rows), default=1)
    header = ["text"] if width == 1 else ["text", "second"] if width == 2 else [f"column{i}" for i in range(width)]
    filled = [row + [""] * (width - len(row)) for row in rows]
    return Table(name, header, filled, "lines", _blank(len(given) - len(rows)))


# ------------------------------------------------------------------------------------------------ which column is what


def labelled(asked: Columns = Columns()) -> Header:
    """Names of columns with a text and a label among them: those asked for, or such as are known."""

    def fits(cells: Sequence[str]) -> bool:
        low = {cell.lower() for cell in cells}
        there = [name in cells for name in vars(asked).values() if name]
        known = [asked.text or low & {*TEXTS}, asked.label or low & {*LABELS}]
        return len(cells) > 1 and all(there) and all(known)

    return fits


def like_a_header(line: str) -> bool:
    """Whether a plain line is names with a mark and no space between them, one of them a usual name of texts."""
    made = (cells_of(line, mark) for mark in MARKS if " " not in line)
    return any(len(cells) > 1 and any(cell.lower() in TEXTS for cell in cells) for cells in made)


def guess(table: Table, asked: Columns, labelled: bool = True) -> Columns:
    """The columns asked for, and for the rest the likeliest by name.

    Without a name that is known, the text is the column with most in it, and the label the only one that is left.
    """
    there = [name for name in vars(asked).values() if name]
    for name in there:
        table.column(name)
    if len(set(there)) < len(there):
        said = ", ".join(f"--{role} {name}" for role, name in vars(asked).items() if name)
        raise NextwordError(f"{table.name}: one column cannot be two things: {said}.")
    named = {name.lower(): name for name in reversed(table.header) if name not in (asked.text, asked.second)}
    label = asked.label
    if labelled and not label:
        label = next((named[one] for one in LABELS if one in named), "")
    text, second = asked.text, asked.second
    if not text:
        free = {low: name for low, name in named.items() if name != label}
        text = next((free[one] for one in TEXTS if one in free), "") or _longest(table, free.values())
        if not second:
            second = next((free[one] for one in SECONDS if one in free and free[one] != text), "")
    if labelled and not label:
        left = [n for n in table.header if n not in (text, second) and n.lower() not in IGNORED]
        if len(left) != 1:
            raise NextwordError(
                f"{table.name}: which column is the label? It has {', '.join(table.header[:MAX_COLUMNS_NAMED])}. Name it with "
                "--label."
            )
        label = left[0]
    if not text or text == label:
        raise NextwordError(
            f"{table.name}: which column is the text? It has {', '.join(table.header[:MAX_COLUMNS_NAMED]) or 'none'}. Name it with "
            "--text."
        )
    return Columns(text, second, label)


def how_found(table: Table, asked: Columns, found: Columns) -> list[str]:
    """How the columns that nobody named were found, and which others may have been meant."""
    known = {"text": TEXTS, "second": SECONDS, "label": LABELS}
    guessed = {role: name for role, name in vars(found).items() if name and not getattr(asked, role)}
    notes = []
    for how, by_name in (("their names", True), ("what is in them", False)):
        said = [f"{role} '{name}'" for role, name in guessed.items() if (name.lower() in known[role]) == by_name]
        notes += [f"columns by {how}: {', '.join(said)}"] if said else []
    for role in guessed:
        others = [n for n in table.header if n.lower() in known[role] and n not in vars(found).values()]
        if others:
            notes.append(f"the {role} could also be {' or '.join(map(repr, others))}: --{role} says which")
    return notes


def found_in(table: Table, usual: Columns, insist: Columns) -> Columns:
    """The columns that are insisted on, and of the usual ones those that the table has."""
    there = {role: name if name in table.header else "" for role, name in vars(usual).items()}
    return Columns(**{role: name or there[role] for role, name in vars(insist).items()})


def _longest(table: Table, names: Any) -> str:
    fit = [name for name in names if name.lower() not in IGNORED and table.header.count(name) == 1]
    sizes = {name: sum(map(len, table.column(name))) for name in fit}
    return max(sizes, key=lambda name: sizes[name], default="")
