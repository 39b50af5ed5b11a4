"""Tables: rows of .csv, .tsv, JSON lines or plain lines, as text for language models or as labeled examples.

The file has four parts:

1. Delimiters. A .csv may use semicolons, tabs or bars, a .tsv commas: the first lines show it. A first line `sep=;`, as
   some programs write for Excel, says so itself.

       id;comment         one column by commas, two by semicolons, and so in every line: semicolons
       1;a fine film

2. Rows, each with the line on which it begins. A row with more or fewer cells than the header is an error: an unquoted
   comma would cut its text short.

       text,stars            line 1   the header
       "A fine film,              2   a quoted cell may span lines,
       truly.",5                  3
       "Too long.",1              4   so the second row begins here

3. Texts: one document per row. The text is in the requested column, else in `text`, else in the longest one.
4. Labeled examples: `Table` and `Rows`, with the columns guessed by name or given (--text review --label stars).
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from nextword.core.errors import DataError, InvalidSetting, UnknownName, bad_data, did_you_mean
from nextword.core.types import Document
from nextword.data.files import (
    FROM_STDIN,
    display_name,
    format_suffix,
    plain_name,
    read_lines,
    read_objects,
    text_keys,
    text_under,
)

# ------------------------------------------------------------------------------------------------ 1. delimiters

DELIMITER_NAMES = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
DELIMITERS = {".csv": ",", ".tsv": "\t"}
SAMPLE_LINES = 100  # lines that decide about the delimiter and the columns
Header = Callable[[Sequence[str]], bool]  # whether these cells are the header we look for


def has_columns(*names: str) -> Header:
    """Accept a header with all of these columns, ignoring case. A single cell, which may be a text, must be equal."""
    wanted = [name for name in names if name]

    def is_header(cells: Sequence[str]) -> bool:
        if len(cells) == 1:
            return list(cells) == wanted
        return bool(wanted) and {name.lower() for name in wanted} <= {cell.lower() for cell in cells}

    return is_header


def split_cells(line: str, mark: str) -> list[str]:
    """Split a line that is a complete row."""
    return next(_rows([line], mark, quotes=mark != "\t"), [])


def find_delimiter(line: str, header: Header) -> str:
    """Return the delimiter that makes this line a header, with the most columns; "" if none does."""
    candidates = [mark for mark in (",", "\t", ";", "|") if header(split_cells(line, mark))]
    return max(candidates, key=lambda mark: len(split_cells(line, mark)), default="")


def declared_delimiter(line: str) -> str:
    """Return the delimiter that a first line `sep=;`, quoted or not, declares; "" if it does not."""
    declaration = line.strip(' "\r\n')
    return declaration[4:] if declaration[:4].lower() == "sep=" and declaration[4:] in DELIMITER_NAMES else ""


def detect_delimiter(first: Sequence[str], used: str, known: Container[str] = ()) -> str:
    """Return the delimiter of a table whose header is a single cell by the delimiter `used`; "" if there is none.

    It must split at least half of the rows into as many cells as the header, or the header into `known` names: a column
    may be called `what;ever`.
    """
    first = [line for line in first if line.strip()]
    if not first or len(split_cells(first[0], used)) > 1:
        return ""
    for mark in DELIMITER_NAMES:
        cells, *rows = list(_rows(first, mark, quotes=True)) or [[]]
        if len(first) >= SAMPLE_LINES:  # the last row of a full sample may be cut
            rows = rows[:-1]
        fits_rows = 2 * sum(len(row) >= len(cells) for row in rows) >= len(rows) > 0
        if len(cells) > 1 and (fits_rows or any(cell.lower() in known for cell in cells)):
            return mark
    return ""


def _rows(lines: Iterable[str], mark: str, quotes: bool) -> Iterator[list[str]]:
    """Yield the rows that are not empty. Errors are reported when the whole file is read."""
    try:
        for row in csv.reader(lines, delimiter=mark, quoting=_quoting(quotes)):
            if row:
                yield [cell.strip() for cell in row]
    except csv.Error:
        return


def _quoting(quotes: bool) -> Literal[0, 3]:
    """In a .tsv, as in GLUE, quotation marks are text; a .csv has quotes, even if it uses tabs."""
    return csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE


# ------------------------------------------------------------------------------------------------ 2. rows

MAX_CELL_LENGTH = 1 << 30  # characters

NumberedRow = tuple[int, list[str]]  # the line on which it begins, and its cells


def read_rows(
    name: str | Path,
    source: Iterator[str],
    suffix: str,
    known: Container[str] = (),
    column: str | None = None,
    notes: list[str] | None = None,
) -> Iterator[NumberedRow]:
    """Yield the header, then every row; an empty line is a row without cells.

    Detects a delimiter other than that of the suffix, and appends that to `notes`. `known` are names that a header may
    have. A requested `column` that equals the whole header, such as `a;b`, is one column.
    """
    csv.field_size_limit(MAX_CELL_LENGTH)
    mark = DELIMITERS[suffix]
    opening = list(islice(source, SAMPLE_LINES))
    first = next((i for i, line in enumerate(opening) if line.strip()), 0)
    other = declared_delimiter(opening[first]) if opening else ""
    if other:
        opening[first] = "\n"  # not a row, but still a line
    elif opening and opening[first].strip() != column:
        other = detect_delimiter(opening, mark, known)
    if other and other != mark:
        mark = other
        if notes is not None:
            notes.append(f"{DELIMITER_NAMES[mark]} separate the columns")
    quoting = _quoting((suffix, mark) != (".tsv", "\t"))
    reader = csv.reader(chain(opening, source), delimiter=mark, strict=True, quoting=quoting)
    width, begin = 0, 1
    try:
        for row in reader:
            if row and width and len(row) != width:
                counts = f"{len(row)} column{'s' * (len(row) != 1)}, but the header has {width}"
                quote = "Quote the cell that contains one, or" if len(row) > width and mark != "\t" else "Correct or"
                raise bad_data(name, f"{counts}, separated by {DELIMITER_NAMES[mark]}. {quote} remove the row.", begin)
            if row or width:  # skip empty lines before the header
                yield begin, row
            width = width or len(row)
            begin = reader.line_num + 1
    except csv.Error as error:
        raise bad_data(name, f"not a valid row: {_explain_csv_error(str(error))}. Correct it.", begin) from None


def _explain_csv_error(problem: str) -> str:
    """Translate the message of the csv module for the author of the file."""
    if "unexpected end" in problem:
        return "a quotation mark is opened and never closed"
    if "expected after" in problem:
        return "text follows a closing quotation mark (double quotation marks inside a cell)"
    if "new-line character" in problem:
        return "it has a carriage return without a line feed (for files of old Macs: tr '\\r' '\\n')"
    return problem


# ------------------------------------------------------------------------------------------------ 3. texts

JSON_LINES = {".jsonl", ".ndjson"}
TEXT_COLUMN = "text"


@dataclass(frozen=True)
class TextRows:
    """The texts of a file, one per row, including empty ones."""

    column: str
    names: list[str]  # of all columns, or of the keys in the sample
    documents: Iterator[Document]

    @property
    def others(self) -> list[str]:
        return [name for name in self.names if name != self.column]

    def nonempty(self, file: str | Path) -> Iterator[Document]:
        """Yield the documents that are not empty. Raises if all of them are."""
        empty, has_text = 0, False
        for document in self.documents:
            if document.text.strip():
                has_text = True
                yield document
            else:
                empty += 1
        if empty and not has_text:
            hint = f" Choose another column with {file}:COLUMN: {', '.join(self.others)}." if self.others else ""
            raise bad_data(file, f"the column '{self.column}' is empty in all {empty:,} rows.{hint}")


def open_texts(file: str | Path, column: str | None = None) -> TextRows | None:
    """Open the texts of a table or of JSON lines; None for other files, and for files without rows."""
    suffix = format_suffix(file)
    if suffix in DELIMITERS:
        return _texts_of_table(file, suffix, column)
    return texts_of_objects(file, read_lines(file), column) if suffix in JSON_LINES else None


def _texts_of_table(file: str | Path, suffix: str, column: str | None) -> TextRows | None:
    rows = read_rows(file, read_lines(file), suffix, column=column)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    if column is not None and column not in header:
        hint = did_you_mean(column, header) or f" Choose one with {plain_name(file)}:COLUMN."
        columns = ", ".join(header)
        raise UnknownName(f"{file} has no column {column!r}, only {columns}.{hint}", name=column, known=header)
    _check_unique(file, header, column or TEXT_COLUMN)
    sample = list(islice(rows, SAMPLE_LINES))
    if not sample:
        return None
    if column or TEXT_COLUMN in header:
        index = header.index(column or TEXT_COLUMN)
    else:
        sizes = [sum(len(row[i]) for _, row in sample if row) for i in range(len(header))]
        index = sizes.index(max(sizes))
    texts = (row[index] if row else "" for _, row in chain(sample, rows))
    documents = (Document(text, f"{plain_name(file)}:{number}") for number, text in enumerate(texts, 1))
    return TextRows(header[index], header, documents)


def _check_unique(file: str | Path, header: Sequence[str], name: str) -> None:
    if header.count(name) > 1:
        raise bad_data(file, f"{header.count(name)} columns '{name}'. Rename all but one.")


def texts_of_objects(file: str | Path, source: Iterator[str], key: str | None) -> TextRows | None:
    """Open the texts of JSON lines; None without lines."""
    objects = read_objects(file, source, ', such as {"text": …}')
    sample = list(islice(objects, SAMPLE_LINES))
    if not sample:
        return None
    sizes: Counter[str] = Counter()
    for _, item in sample:
        sizes.update({name: len(str(item[name])) for name in text_keys(item)})
    if not key:
        longest = max(sizes, key=lambda name: sizes[name], default=TEXT_COLUMN)
        key = TEXT_COLUMN if any(TEXT_COLUMN in item for _, item in sample) else longest
    return TextRows(key, list(sizes), _documents_of_objects(file, chain(sample, objects), key))


def _documents_of_objects(
    file: str | Path, objects: Iterable[tuple[int, Mapping[str, object]]], key: str
) -> Iterator[Document]:
    for number, item in objects:
        id = str(item.get("id", f"{plain_name(file)}:{number}"))
        yield Document(text_under(key, item, file, number), id, str(item.get("title", "")))


# ------------------------------------------------------------------------------------------------ 4. labeled examples

TEXT_NAMES = (
    *("text", "sentence", "sentence1", "content", "review", "premise", "question1", "body", "comment", "message"),
    *("tweet", "document"),
)
SECOND_NAMES = ("sentence2", "hypothesis", "question2", "text2", "second", "text_b", "sentence_b")
LABEL_NAMES = ("label", "labels", "class", "target", "category", "sentiment", "stars", "rating", "score", "gold_label")
SPLIT = "split"
SEPARATOR = "\x1e"  # between the texts of an example, joined into one key
IGNORED = ("", "id", "index", "idx", "unnamed: 0", SPLIT)  # never the text or the label; "": the index of pandas
TABLE_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
HELD_OUT_FRACTION = 0.1  # of the rows, if a data set has no dev split
MAX_COLUMNS_NAMED = 8  # in a message


@dataclass(frozen=True)
class Rows:
    """Examples, column by column. Labels are None if they are withheld.

    In multiple choice (`choices`), texts are contexts, seconds the questions about them, and labels the indices of the
    correct choices.
    """

    texts: list[str]
    seconds: list[str] | None = None
    labels: list[str] | None = None
    ids: list[str] | None = None  # by which a benchmark identifies predictions
    choices: list[tuple[str, ...]] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def examples(self) -> list[str]:
        """The texts of each example, joined into one key."""
        return [self.key(i) for i in range(len(self))]

    def key(self, i: int) -> str:
        second = () if self.seconds is None else (self.seconds[i],)
        return SEPARATOR.join((self.texts[i], *second, *(self.choices[i] if self.choices else ())))

    def take(self, indices: Sequence[int]) -> Rows:
        pick = lambda column: None if column is None else [column[i] for i in indices]  # noqa: E731
        rest = pick(self.seconds), pick(self.labels), pick(self.ids), pick(self.choices)
        return Rows([self.texts[i] for i in indices], *rest)


def concatenate_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate examples. A column that one part lacks is dropped."""
    parts_columns = ((part.seconds, part.labels, part.ids, part.choices) for part in parts)
    columns = zip(*parts_columns, strict=True)
    seconds, labels, ids, choices = (None if None in column else [*chain(*column)] for column in columns)
    return Rows([text for part in parts for text in part.texts], seconds, labels, ids, choices)


@dataclass(frozen=True)
class Columns:
    """The columns of text, second text and label; "" if there is none."""

    text: str = ""
    second: str = ""
    label: str = ""


@dataclass(frozen=True)
class Table:
    name: str
    header: list[str]
    rows: list[list[str]] = field(repr=False)
    kind: str = "csv"  # csv, tsv, jsonl, lines
    notes: tuple[str, ...] = ()  # about how it was read, for people
    objects: list[dict[str, object]] | None = field(default=None, repr=False)  # of JSON lines

    def column(self, name: str) -> list[str]:
        if name not in self.header:
            columns = ", ".join(self.header[:MAX_COLUMNS_NAMED]) + (
                ", …" if len(self.header) > MAX_COLUMNS_NAMED else ""
            )
            message = (
                f"{self.name} has no column '{name}', only {columns}. Choose with --text, --text-pair and --label."
            )
            raise UnknownName(message, name=name, known=self.header)
        _check_unique(self.name, self.header, name)
        index = self.header.index(name)
        return [row[index] for row in self.rows]

    def rows_of(self, columns: Columns) -> Rows:
        texts = self.column(columns.text)
        seconds = self.column(columns.second) if columns.second else None
        return Rows(texts, seconds, [label.strip() for label in self.column(columns.label)] if columns.label else None)


def choose_held_out(rows: Rows, by_class: bool = True) -> list[int]:
    """Choose held-out rows: those of each class with the smallest hashes. Equal rows stay together."""
    groups: dict[str, list[tuple[bytes, int]]] = {}
    for i in range(len(rows)):
        hashed = blake2b(rows.key(i).encode("utf-8", "replace"), digest_size=8).digest()
        groups.setdefault(rows.labels[i] if by_class and rows.labels else "", []).append((hashed, i))
    indices: list[int] = []
    for group in groups.values():
        group.sort()
        n = round(HELD_OUT_FRACTION * len(group))
        while 0 < n < len(group) and group[n][0] == group[n - 1][0]:
            n += 1
        indices += [i for _, i in group[:n]] if n < len(group) else []
    return sorted(indices)


def read_table(path: str | Path, header: Header | None = None, source: Iterator[str] | None = None) -> Table:
    """Read a table, by the suffix of the file.

    Standard input (`-`) and files with other suffixes are JSON lines if they begin with {, a csv or a tsv if their
    first line is a `header`, and else plain lines, in which a tab separates two texts. `source` are the lines, if they
    have been read already.
    """
    name, suffix = display_name(path), format_suffix(path)
    source = read_lines(path) if source is None else source
    if suffix in DELIMITERS:
        table = _read_delimited(name, source, suffix)
    else:
        opening = list(_until_first_line(source))
        first = opening[-1].rstrip("\n") if opening else ""
        table = _read_undeclared(name, first, chain(opening, source), suffix, header)
    if not table.rows:
        raise bad_data(name, "no rows. Expected one example per line, after a header if it is a table.")
    return table


def _until_first_line(source: Iterator[str]) -> Iterator[str]:
    """Yield lines up to the first that is not empty."""
    for line in source:
        yield line
        if line.strip():
            return


def _read_undeclared(name: str, first: str, source: Iterator[str], suffix: str, header: Header | None) -> Table:
    opening = first.lstrip()
    if opening.startswith("[") and (suffix == ".json" or opening[1:].lstrip()[:1] in ("", "{")):
        convert = f"jq -c '.[]' {name} > {Path(name).stem}.jsonl"
        convert = "… | jq -c '.[]' | nextword …" if name == FROM_STDIN else convert
        raise bad_data(name, f"a JSON list; expected one object per line. Convert it: {convert}")
    if suffix in TABLE_JSON_SUFFIXES or opening.startswith("{"):
        return _read_json_lines(name, source)
    mark = find_delimiter(first, header) if header else ""
    if not mark:
        return _read_plain_lines(name, source)
    ending = ".tsv" if mark == DELIMITERS[".tsv"] else ".csv"
    note = f"the first line, {first!r}, is read as the header of a {ending[1:]}"
    try:
        table = _read_delimited(name, source, ending)
    except DataError as error:
        raise DataError(f"{error} ({note[0].upper()}{note[1:]}.)", path=error.path, line=error.line) from None
    return replace(table, notes=(note, *table.notes))


def _read_delimited(name: str, source: Iterator[str], suffix: str) -> Table:
    notes: list[str] = []
    numbered = read_rows(name, source, suffix, {*TEXT_NAMES, *SECOND_NAMES, *LABEL_NAMES}, notes=notes)
    header = [cell.strip() for cell in next(numbered, (0, []))[1]]
    lines = [row for _, row in numbered]
    rows = [row for row in lines if row]
    return Table(name, header, rows, suffix[1:], (*notes, *_blank_note(len(lines) - len(rows))))


def _blank_note(n: int) -> tuple[str, ...]:
    return (f"skips {n:,} empty line{'s' * (n > 1)}",) if n else ()


def _read_json_lines(name: str, source: Iterator[str]) -> Table:
    objects = [item for _, item in read_objects(name, source, ', such as {"text": …}')]
    header = list(dict.fromkeys(key for item in objects for key in item))
    return Table(name, header, [[_cell(item.get(key)) for key in header] for item in objects], "jsonl", (), objects)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_plain_lines(name: str, source: Iterator[str]) -> Table:
    lines = [line.rstrip("\n") for line in source]
    rows = [line.split("\t") for line in lines if line.strip()]
    width = max(map(len, rows), default=1)
    header = ["text"] if width == 1 else ["text", "second"] if width == 2 else [f"column{i}" for i in range(width)]
    padded = [row + [""] * (width - len(row)) for row in rows]
    return Table(name, header, padded, "lines", _blank_note(len(lines) - len(rows)))


def has_label_columns(requested: Columns = Columns()) -> Header:
    """Accept a header with the requested columns, and with the usual names for text and label otherwise."""

    def is_header(cells: Sequence[str]) -> bool:
        lower = {cell.lower() for cell in cells}
        has_requested = all(name in cells for name in vars(requested).values() if name)
        has_text, has_label = requested.text or lower & {*TEXT_NAMES}, requested.label or lower & {*LABEL_NAMES}
        return len(cells) > 1 and has_requested and bool(has_text) and bool(has_label)

    return is_header


def looks_like_header(line: str) -> bool:
    """Whether a plain line without spaces splits into names, one of them a usual name of a text column."""
    candidates = (split_cells(line, mark) for mark in DELIMITER_NAMES if " " not in line)
    return any(len(cells) > 1 and any(cell.lower() in TEXT_NAMES for cell in cells) for cells in candidates)


def guess_columns(table: Table, requested: Columns, labeled: bool = True) -> Columns:
    """Return the requested columns, and guess the others by name.

    Without a known name, the text is the longest column, and the label the only column that is left.
    """
    names = [name for name in vars(requested).values() if name]
    for name in names:
        table.column(name)  # raises if it does not exist
    if len(set(names)) < len(names):
        options = ", ".join(f"--{role} {name}" for role, name in vars(requested).items() if name)
        raise InvalidSetting(f"{table.name}: one column has two roles: {options}.", key="columns", value=names)
    by_name = {name.lower(): name for name in reversed(table.header) if name not in (requested.text, requested.second)}
    label = requested.label
    if labeled and not label:
        label = next((by_name[name] for name in LABEL_NAMES if name in by_name), "")
    text, second = requested.text, requested.second
    if not text:
        free = {lower: name for lower, name in by_name.items() if name != label}
        text = next((free[name] for name in TEXT_NAMES if name in free), "") or _longest_column(table, free.values())
        if not second:
            second = next((free[name] for name in SECOND_NAMES if name in free and free[name] != text), "")
    if labeled and not label:
        rest = [name for name in table.header if name not in (text, second) and name.lower() not in IGNORED]
        if len(rest) != 1:
            raise _undecided_error(table, "label")
        label = rest[0]
    if not text or text == label:
        raise _undecided_error(table, "text")
    return Columns(text, second, label)


def _undecided_error(table: Table, role: str) -> InvalidSetting:
    columns = ", ".join(table.header[:MAX_COLUMNS_NAMED]) or "none"
    return InvalidSetting(
        f"{table.name}: which column is the {role}? Its columns are {columns}. Choose with --{role}.",
        key=role,
        value=table.header,
    )


def explain_columns(table: Table, requested: Columns, columns: Columns) -> list[str]:
    """Say how the columns that were not requested were chosen, and which others could have been meant."""
    known = {"text": TEXT_NAMES, "second": SECOND_NAMES, "label": LABEL_NAMES}
    guessed = {role: name for role, name in vars(columns).items() if name and not vars(requested)[role]}
    notes = []
    for by, is_by_name in (("name", True), ("content", False)):
        roles = [f"{role} '{name}'" for role, name in guessed.items() if (name.lower() in known[role]) == is_by_name]
        notes += [f"columns chosen by {by}: {', '.join(roles)}"] if roles else []
    for role in guessed:
        others = [n for n in table.header if n.lower() in known[role] and n not in vars(columns).values()]
        if others:
            notes.append(f"the {role} could also be {' or '.join(map(repr, others))}: choose with --{role}")
    return notes


def match_columns(table: Table, usual: Columns, required: Columns) -> Columns:
    """Return the required columns, and those of the usual ones that the table has."""
    present = {role: name if name in table.header else "" for role, name in vars(usual).items()}
    return Columns(**{role: name or present[role] for role, name in vars(required).items()})


def _longest_column(table: Table, names: Iterable[str]) -> str:
    candidates = [name for name in names if name.lower() not in IGNORED and table.header.count(name) == 1]
    sizes = {name: sum(map(len, table.column(name))) for name in candidates}
    return max(sizes, key=lambda name: sizes[name], default="")
