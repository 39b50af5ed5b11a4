"""Tables: rows of .csv, .tsv, .txt or JSON lines, as text for language models, as pairs or as labeled examples.

`open_table` reads them all. The file has four parts:

1. Delimiters. A .csv may use semicolons, tabs or bars, a .tsv commas, a .txt any: the first lines show it. A first line
   `sep=;`, as some programs write for Excel, says so itself.

       id;comment         one column by commas, two by semicolons, and so in every line: semicolons
       1;a fine film

2. `open_table`: the layout, with a header or none (header.py), and the rows, each with the line on which it begins.
   A row with more or fewer cells than the first is an error: an unquoted comma would cut its text short.

       text,stars            line 1   the header
       "A fine film,              2   a quoted cell may span lines,
       truly.",5                  3
       "Too long.",1              4   so the second row begins here

   Without a header the columns are named by number: "1", "2", … A number is a name wherever a column is chosen.

3. Texts: one document per row. The text is in the requested column, else in `text`, else in the longest one.
4. Labeled examples: `Table` and `Rows`, with the columns guessed by name or given (--text review --label stars).
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from nextword.core.errors import DataError, InvalidSetting, UnknownName, bad_data, did_you_mean
from nextword.core.io import path_exists
from nextword.core.types import Document
from nextword.data.files import (
    CHINESE,
    FROM_STDIN,
    LINE_VARIABLE,
    UTF16,
    WINDOWS,
    TextStream,
    display_name,
    format_suffix,
    line_limit,
    long_line_error,
    plain_name,
    read_objects,
    text_keys,
    text_under,
)
from nextword.data.header import (
    ID_NAMES,
    LABEL_NAMES,
    MAX_NAME_LENGTH,
    SECOND_NAMES,
    SPLIT,
    TEXT_NAMES,
    HeaderDecision,
    detect_header,
    is_number,
)

# ------------------------------------------------------------------------------------------------ 1. delimiters

DELIMITER_NAMES = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
DELIMITERS = {".csv": ",", ".tsv": "\t"}
SAMPLE_LINES = 1000  # lines that decide about the delimiter, the header and the columns,
SAMPLE_SIZE = 1 << 22  # and at most so many characters
Header = Callable[[Sequence[str]], bool]  # whether these cells are the header we look for


def has_columns(*names: str) -> Header:
    """Accept a header with all of these columns, ignoring case. A single cell, which may be a text, must be equal."""
    wanted = [name for name in names if name and not name.isdigit()]

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


def detect_delimiter(sample: Sequence[str], used: str, known: Container[str] = (), is_cut: bool = False) -> str:
    """Return the delimiter of a table, which is `used` by default, as its suffix says.

    Another one must split all rows into as many cells, more than one, where `used` does not. If the first row is a
    single cell by `used`, it need only fit half of the rows, or split the first into `known` names: a column may be
    called `what;ever`. `is_cut`: the sample may end within a row.
    """
    lines = [line for line in sample if line.strip()]
    split = {mark: list(_rows(lines, mark, quotes=(used, mark) != ("\t", "\t"))) for mark in DELIMITER_NAMES}
    tables = {mark: rows[:-1] if is_cut else rows for mark, rows in split.items()}
    fitting = [mark for mark, rows in tables.items() if len(rows) > 1 and _is_rectangle(rows)]
    if used in fitting or not lines:
        return used
    if fitting:
        return max(fitting, key=lambda mark: len(tables[mark][0]))
    if len(split[used][0] if split[used] else ()) > 1:
        return used
    for mark, table in tables.items():
        cells, *rows = table or [[]]
        fits_rows = 2 * sum(len(row) >= len(cells) for row in rows) >= len(rows) > 0
        if len(cells) > 1 and (fits_rows or any(cell.lower() in known for cell in cells)):
            return mark
    return used


def _is_rectangle(rows: Sequence[Sequence[str]]) -> bool:
    return len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows)


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


# ------------------------------------------------------------------------------------------------ 2. open_table

JSON_LINES = {".jsonl", ".ndjson"}
TABLE_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
JSON, LINES = "jsonl", "lines"  # kinds of a table, besides csv and tsv
MAX_COLUMNS_NAMED = 8  # in a message
MAX_ROW_SHOWN = 60  # characters of the first row in a note

NumberedRow = tuple[int, list[str]]  # the line on which it begins, and its cells
NumberedObject = tuple[int, dict[str, object]]


@dataclass(frozen=True)
class Layout:
    """How the lines of a file make up rows."""

    kind: str  # csv, tsv, jsonl, or lines: plain ones, in which a tab may separate two texts
    delimiter: str = ""  # "": none
    quotes: bool = True


@dataclass
class OpenTable:
    """A table whose layout is known, and whose rows have yet to be read, once."""

    name: str  # in messages
    layout: Layout
    columns: list[str]  # numbers, "1", "2" …, without a header; of JSON lines, the keys in the sample
    has_header: bool
    rows: Iterator[NumberedRow]  # without the header; an empty line is a row without cells
    objects: Iterator[NumberedObject] = field(default_factory=lambda: iter(()))  # those of JSON lines, in place of rows
    notes: tuple[str, ...] = ()  # about how it is read, for people
    stream: TextStream | None = None
    first: tuple[str, ...] = ()  # the cells of the first row
    decision: HeaderDecision | None = None  # about it, if it was detected
    undeclared: str = ""  # a note that the first line makes the file a table

    @property
    def kind(self) -> str:
        return self.layout.kind

    @property
    def is_delimited(self) -> bool:
        return self.kind not in (JSON, LINES)

    @property
    def encoding(self) -> str:
        """The encoding, once all rows are read; "" for ASCII or if it is unknown."""
        return self.stream.encoding if self.stream else ""

    def encoding_note(self) -> tuple[str, ...]:
        return (f"decoded from {self.encoding}",) if self.encoding in (WINDOWS, CHINESE, UTF16) else ()

    def find(self, name: str) -> int | None:
        return find_column(name, self.columns)

    def index(self, name: str) -> int:
        return column_index(name, self.columns, self.name)

    def header_note(self, header: str = "--header", no_header: str = "--no-header") -> tuple[str, ...]:
        """Say that there is no header, or that this is in doubt. The arguments are what decides otherwise."""
        if self.decision is None or (self.has_header and self.decision.is_sure):
            return ()
        if self.has_header:
            row = " | ".join(self.first)
            row = row if len(row) <= MAX_ROW_SHOWN else row[:MAX_ROW_SHOWN] + "…"
            return (f"the first row, {row!r}, is the header ({self.decision.reason}). If it is data: {no_header}",)
        named = "its only column is 1" if len(self.columns) == 1 else f"columns are {', '.join(self.columns[:9])}"
        return (f"no header ({self.decision.reason}): the first row is data, and {named}. If it is a header: {header}",)


def open_table(
    path: str | Path,
    *,
    header: bool | None = None,
    expected: Collection[str] = (),
    is_header: Header | None = None,
    min_columns: int = 1,
    source: Iterator[str] | None = None,
) -> OpenTable:
    """Open a csv, a tsv, JSON lines, or plain lines with or without delimiters: by the suffix, else by the first lines.

    header       whether the first row is one; None: detect it
    expected     columns that the user chose; a name among them speaks for a header
    is_header    a first row for which this holds is the header; standard input and files whose suffix says nothing are
                 a csv or a tsv if their first line is one
    min_columns  with 2, such files are also tables if any delimiter splits all lines into as many cells
    source       the lines, if they have been read already
    """
    csv.field_size_limit(line_limit())
    name, suffix = display_name(path), format_suffix(path)
    stream = None
    if source is None:
        stream = TextStream(path, legacy=suffix not in TABLE_JSON_SUFFIXES)
        source = stream.lines()
    opening = list(_take_sample(source))
    is_cut = (rest := next(source, None)) is not None
    source = chain(opening, () if rest is None else (rest,), source)
    first = next((i for i, line in enumerate(opening) if line.strip()), 0)
    if suffix not in DELIMITERS and _is_json(name, suffix, opening[first] if opening else ""):
        objects = read_objects(name, source, ', such as {"text": …}')
        some = list(islice(objects, SAMPLE_LINES))
        columns = list(dict.fromkeys(key for _, item in some for key in item))
        return OpenTable(name, Layout(JSON), columns, True, iter(()), chain(some, objects), (), stream)
    notes: list[str] = []
    undeclared = ""
    found = False  # whether the first line is the header that we look for
    if opening and (declared := declared_delimiter(opening[first])):
        opening[first] = "\n"  # not a row, but still a line
        layout = Layout(suffix[1:] if suffix in DELIMITERS else "csv", declared, (suffix, declared) != (".tsv", "\t"))
    elif suffix in DELIMITERS:
        layout = _find_layout(opening, suffix, expected, is_cut)
    else:
        line = opening[first].rstrip("\n") if opening else ""
        mark = find_delimiter(line, is_header) if is_header and header is not False else ""
        found = bool(mark)
        if found:
            layout = Layout("tsv" if mark == "\t" else "csv", mark, mark != "\t")
            undeclared = f"the first line, {line!r}, is read as the header of a {layout.kind}"
            notes.append(undeclared)
        else:
            layout = _find_undeclared_layout(opening, min_columns, is_cut)
    if suffix in DELIMITERS and layout.delimiter != DELIMITERS[suffix]:
        notes.append(f"{DELIMITER_NAMES[layout.delimiter]} separate the columns")
    if layout.kind == LINES:
        return _open_lines(name, layout, opening, source, tuple(notes), stream)
    if suffix not in DELIMITERS and not found:
        notes.append(f"{DELIMITER_NAMES[layout.delimiter]} separate the columns")
    sample = list(_rows(opening, layout.delimiter, layout.quotes))
    sample = sample[:-1] if is_cut and len(sample) > 1 else sample
    found = found or (header is None and is_header is not None and bool(sample) and is_header(sample[0]))
    decision = detect_header(sample, expected) if header is None and not found and sample else None
    has_header = decision.has_header if decision else found or bool(header)
    rows = _read_rows(name, source, layout, has_header)
    columns = [str(i + 1) for i in range(len(sample[0]) if sample else 0)]
    if has_header:
        columns = [cell.strip() for cell in next(rows, (0, []))[1]]
    shown = tuple(sample[0]) if sample else ()
    return OpenTable(
        name,
        layout,
        columns,
        has_header,
        rows,
        notes=tuple(notes),
        stream=stream,
        first=shown,
        decision=decision,
        undeclared=undeclared,
    )


def _take_sample(source: Iterator[str]) -> Iterator[str]:
    size = 0
    for line in islice(source, SAMPLE_LINES):
        yield line
        size += len(line)
        if size > SAMPLE_SIZE:
            return


def _is_json(name: str, suffix: str, first: str) -> bool:
    opening = first.lstrip()
    if opening.startswith("[") and (suffix == ".json" or opening[1:].lstrip()[:1] in ("", "{")):
        convert = f"jq -c '.[]' {name} > {Path(name).stem}.jsonl"
        convert = "… | jq -c '.[]' | nextword …" if name == FROM_STDIN else convert
        raise bad_data(name, f"a JSON list; expected one object per line. Convert it: {convert}")
    return suffix in TABLE_JSON_SUFFIXES or opening.startswith("{")


def _find_layout(opening: Sequence[str], suffix: str, expected: Collection[str], is_cut: bool) -> Layout:
    """The layout of a .csv or .tsv. An expected column that equals the whole first line, as `a;b`, is one column."""
    used = DELIMITERS[suffix]
    line = next((line.strip() for line in opening if line.strip()), "")
    mark = used
    if line not in expected:
        mark = detect_delimiter(opening, used, {*TEXT_NAMES, *SECOND_NAMES, *LABEL_NAMES}, is_cut)
    return Layout(suffix[1:], mark, (suffix, mark) != (".tsv", "\t") or _quotes_cells(opening))


def _find_undeclared_layout(opening: Sequence[str], min_columns: int, is_cut: bool) -> Layout:
    """The layout of lines whose suffix says nothing. Any delimiter serves where a table is required, else none does."""
    lines = [line for line in opening if line.strip()]
    for mark in ("\t", ";", "|", ",") if min_columns > 1 else ():
        quotes = mark != "\t" or _quotes_cells(lines)
        rows = list(_rows(lines, mark, quotes))
        rows = rows[:-1] if is_cut else rows
        if rows and _is_rectangle(rows):
            return Layout("tsv" if mark == "\t" else "csv", mark, quotes)
    if min_columns > 1 and 2 * sum("\t" in line for line in lines) > len(
        lines
    ):  # reading names the line that does not fit
        return Layout("tsv", "\t", False)
    return Layout(LINES, "\t", False)


def _quotes_cells(lines: Sequence[str]) -> bool:
    """Whether quotation marks enclose the cells between tabs, as spreadsheets write them: each cell of some column."""
    rows = [line.rstrip("\n").split("\t") for line in lines if line.strip()][1:]
    if len(rows) < 3 or not _is_rectangle(rows):
        return False
    return any(all(_is_quoted(cell) for cell in column) for column in zip(*rows, strict=True))


def _is_quoted(cell: str) -> bool:
    return len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in cell[1:-1].replace('""', "")


def _open_lines(
    name: str,
    layout: Layout,
    opening: Sequence[str],
    source: Iterator[str],
    notes: tuple[str, ...],
    stream: TextStream | None,
) -> OpenTable:
    width = max((line.count("\t") + 1 for line in opening if line.strip()), default=1)
    columns = ["text"] if width == 1 else ["text", "second"] if width == 2 else [f"column{i}" for i in range(width)]
    lines = ((number, line.rstrip("\n")) for number, line in enumerate(source, 1))
    rows = ((number, line.split("\t") if line.strip() else []) for number, line in lines)
    return OpenTable(name, layout, columns, False, rows, notes=notes, stream=stream)


def read_rows(name: str | Path, source: Iterator[str], suffix: str) -> Iterator[NumberedRow]:
    """Yield every row of a .csv or .tsv, the first included, whatever it is; an empty line is a row without cells."""
    csv.field_size_limit(line_limit())
    opening = list(_take_sample(source))
    is_cut = (rest := next(source, None)) is not None
    lines = chain(opening, () if rest is None else (rest,), source)
    return _read_rows(name, lines, _find_layout(opening, suffix, (), is_cut), True)


def _read_rows(name: str | Path, source: Iterator[str], layout: Layout, has_header: bool) -> Iterator[NumberedRow]:
    mark, limit = layout.delimiter, line_limit()
    width, begin, size = 0, 1, 0  # characters read of a row, which may have several lines

    def lines() -> Iterator[str]:
        nonlocal size
        for line in source:
            size += len(line)
            if size > limit:
                raise long_line_error(name, limit, begin)
            yield line

    reader = csv.reader(lines(), delimiter=mark, strict=True, quoting=_quoting(layout.quotes))
    try:
        for row in reader:
            if row and width and len(row) != width:
                first = "header" if has_header else "first row"
                counts = f"{len(row)} column{'s' * (len(row) != 1)}, but the {first} has {width}"
                quote = "Quote the cell that contains one, or" if len(row) > width and mark != "\t" else "Correct or"
                raise bad_data(name, f"{counts}, separated by {DELIMITER_NAMES[mark]}. {quote} remove the row.", begin)
            if row or width:  # skip empty lines before the first row
                yield begin, row
            width = width or len(row)
            begin, size = reader.line_num + 1, 0
    except csv.Error as error:
        raise bad_data(name, f"not a valid row: {_explain_csv_error(str(error))}. Correct it.", begin) from None


def _explain_csv_error(problem: str) -> str:
    """Translate the message of the csv module for the author of the file."""
    if "field larger than" in problem:
        return f"a cell of more than {line_limit():,} characters, the limit. To read it, raise {LINE_VARIABLE}"
    if "unexpected end" in problem:
        return "a quotation mark is opened and never closed"
    if "expected after" in problem:
        return "text follows a closing quotation mark (double quotation marks inside a cell)"
    if "new-line character" in problem:
        return "it has a carriage return without a line feed (for files of old Macs: tr '\\r' '\\n')"
    return problem


# -------------------------------------------------------------------------------- names of columns

HEADER_WORDS = {"header": True, "no-header": False}  # at the end of a spec: FILE:COLUMN:no-header


def split_header(spec: str) -> tuple[str, bool | None]:
    """Split SPEC:header or SPEC:no-header, as in `pairs.csv:1-2:no-header`, unless all of it is a path."""
    place, colon, word = spec.rpartition(":")
    if colon and place and word in HEADER_WORDS and not path_exists(spec):
        return place, HEADER_WORDS[word]
    return spec, None


def choose_in_spec(
    spec: str, columns: str | Sequence[str | int], header: bool | None, is_parallel: bool | None = None
) -> str:
    """A spec of a table with its columns and header chosen: FILE:COLUMN, or FILE:SOURCE-TARGET for pairs."""
    names = _parse_names(columns)
    counts = (1, 2) if is_parallel is None else (2,) if is_parallel else (1,)
    if names and (len(names) not in counts or "" in names):
        expected = " or ".join(("the column of the text", "SOURCE,TARGET for pairs")[count - 1] for count in counts)
        raise InvalidSetting(f"--columns {columns}: expected {expected}.", key="columns", value=columns)
    if (names or header is not None) and not spec:
        problem = "--columns and --header are for a table. Name it with --data."
        raise InvalidSetting(problem, key="columns", value=columns)
    word = next((f":{word}" for word, value in HEADER_WORDS.items() if value is header), "")
    return spec + (f":{'-'.join(names)}" if names else "") + word


def _parse_names(columns: str | Sequence[str | int]) -> list[str]:
    """The names in "text,label"; a name with a comma is quoted, as in a csv."""
    return split_cells(columns, ",") if isinstance(columns, str) else [str(name) for name in columns]


def find_column(name: str, columns: Sequence[str]) -> int | None:
    """Return the index of the column with this name, else with this number, from 1; None: there is neither."""
    if name in columns:
        return columns.index(name)
    is_number = name.isdecimal() and len(name) < 10
    return int(name) - 1 if is_number and 1 <= int(name) <= len(columns) else None


def column_index(name: str, columns: Sequence[str], file: str, remedy: str = "") -> int:
    """Return the index of a column by name or number. Raise if there is none, or if several have this name."""
    index = find_column(name, columns)
    if index is None:
        shown = ", ".join(columns[:MAX_COLUMNS_NAMED]) + (", …" if len(columns) > MAX_COLUMNS_NAMED else "")
        hint = did_you_mean(name, columns) or (f" {remedy}" if remedy else "")
        raise UnknownName(f"{file} has no column '{name}', only {shown}.{hint}", name=name, known=columns)
    _check_unique(file, columns, name)
    return index


def _check_unique(file: str | Path, header: Sequence[str], name: str) -> None:
    if header.count(name) > 1:
        problem = f"{header.count(name)} columns '{name}'. Rename all but one, or choose by number, from 1."
        raise bad_data(file, problem)


# ------------------------------------------------------------------------------------------------ 3. texts

TEXT_COLUMN = "text"


@dataclass(frozen=True)
class TextRows:
    """The texts of a file, one per row, including empty ones."""

    column: str
    names: list[str]  # of all columns, or of the keys in the sample
    documents: Iterator[Document]
    table: OpenTable

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


def open_texts(file: str | Path, column: str | None = None, header: bool | None = None) -> TextRows | None:
    """Open the texts of a table or of JSON lines; None for other files, and for files without rows.

    Plain lines are a table only if a column is chosen, by name or by number.
    """
    suffix = format_suffix(file)
    if suffix not in DELIMITERS and suffix not in JSON_LINES and column is None and header is None:
        return None
    return texts_of_table(file, open_table(file, header=header, expected=(column or "",), min_columns=2), column)


def texts_of_table(file: str | Path, table: OpenTable, column: str | None) -> TextRows | None:
    if table.kind == JSON:
        return _texts_of_objects(file, table, column)
    if table.kind == LINES:
        raise bad_data(file, f"plain text without columns. Leave :{column or 'header'} out.")
    if column is not None:
        remedy = f"Choose one with {plain_name(file)}:COLUMN."
        index = column_index(column, table.columns, str(file), remedy)
    elif TEXT_COLUMN in table.columns:
        index = column_index(TEXT_COLUMN, table.columns, str(file))
    else:
        index = -1
    sample = list(islice(table.rows, SAMPLE_LINES))
    if not sample:
        return None
    if index < 0:
        sizes = [sum(len(row[i]) for _, row in sample if row) for i in range(len(table.columns))]
        index = sizes.index(max(sizes))
    texts = (row[index] if row else "" for _, row in chain(sample, table.rows))
    documents = (Document(text, f"{plain_name(file)}:{number}") for number, text in enumerate(texts, 1))
    return TextRows(table.columns[index], table.columns, documents, table)


def _texts_of_objects(file: str | Path, table: OpenTable, key: str | None) -> TextRows | None:
    """Open the texts of JSON lines; None without lines."""
    sample = list(islice(table.objects, SAMPLE_LINES))
    if not sample:
        return None
    sizes: Counter[str] = Counter()
    for _, item in sample:
        sizes.update({name: len(str(item[name])) for name in text_keys(item)})
    names = list(sizes)
    if not key:
        longest = max(sizes, key=lambda name: sizes[name], default=TEXT_COLUMN)
        key = TEXT_COLUMN if any(TEXT_COLUMN in item for _, item in sample) else longest
    elif key not in table.columns and (index := find_column(key, table.columns)) is not None:
        key = table.columns[index]
    return TextRows(key, names, _documents_of_objects(file, chain(sample, table.objects), key), table)


def _documents_of_objects(
    file: str | Path, objects: Iterable[tuple[int, Mapping[str, object]]], key: str
) -> Iterator[Document]:
    for number, item in objects:
        id = str(item.get("id", f"{plain_name(file)}:{number}"))
        yield Document(text_under(key, item, file, number), id, str(item.get("title", "")))


# ------------------------------------------------------------------------------------------------ 4. labeled examples

SEPARATOR = "\x1e"  # between the texts of an example, joined into one key
IGNORED = ("", *ID_NAMES, SPLIT)  # never the text or the label; "": the index of pandas
HELD_OUT_FRACTION = 0.1  # of the rows, if a data set has no dev split
YES, NO = "yes", "no"


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
    """The columns of text, second text and label, by name or number; "" if there is none."""

    text: str = ""
    second: str = ""
    label: str = ""
    header: str = ""  # whether the table has one: "yes", "no", or "" to detect it

    @property
    def roles(self) -> dict[str, str]:
        return {"text": self.text, "second": self.second, "label": self.label}

    @property
    def has_header(self) -> bool | None:
        return {YES: True, NO: False}.get(self.header)


def parse_columns(
    columns: str | Sequence[str | int] = "",
    header: bool | None = None,
    *,
    text: str = "",
    second: str = "",
    label: str = "",
    labeled: bool = True,
) -> Columns:
    """The columns of --columns "text[,second],label", or of --text, --text-pair and --label, and --header.

    Without labels, the columns are "text[,second]".
    """
    decided = "" if header is None else YES if header else NO
    names = _parse_names(columns)
    if not names:
        return Columns(text, second, label, decided)
    if text or second or label:
        raise InvalidSetting(
            "--columns names all columns. Leave --text, --text-pair and --label out.", key="columns", value=columns
        )
    expected = "TEXT,LABEL or TEXT,TEXT2,LABEL" if labeled else "TEXT or TEXT,TEXT2"
    if "" in names or len(names) > (3 if labeled else 2):
        raise InvalidSetting(f"--columns {columns}: expected {expected}.", key="columns", value=columns)
    if not labeled or len(names) == 1:
        return Columns(names[0], names[1] if len(names) > 1 else "", "", decided)
    return Columns(names[0], names[1] if len(names) == 3 else "", names[-1], decided)


@dataclass(frozen=True)
class Table:
    """A table in memory, every cell as text."""

    name: str
    header: list[str]  # numbers, "1", "2" …, if the file has none
    rows: list[list[str]] = field(repr=False)
    kind: str = "csv"  # csv, tsv, jsonl, lines
    notes: tuple[str, ...] = ()  # about how it was read, for people
    objects: list[dict[str, object]] | None = field(default=None, repr=False)  # of JSON lines
    has_header: bool = True
    delimiter: str = ""
    encoding: str = ""
    is_header_sure: bool = True

    @property
    def is_delimited(self) -> bool:
        return self.kind not in (JSON, LINES)

    def column(self, name: str) -> list[str]:
        remedy = "Choose with --text, --text-pair and --label."
        if self.is_delimited and not self.has_header:
            remedy = "If its first row names the columns: --header."
        index = column_index(name, self.header, self.name, remedy)
        return [row[index] for row in self.rows]

    def has(self, name: str) -> bool:
        return find_column(name, self.header) is not None

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


def read_table(
    path: str | Path,
    is_header: Header | None = None,
    source: Iterator[str] | None = None,
    *,
    header: bool | None = None,
    expected: Collection[str] = (),
    min_columns: int = 1,
) -> Table:
    """Read a table into memory. The arguments are those of `open_table`."""
    opened = open_table(
        path, header=header, expected=expected, is_header=is_header, min_columns=min_columns, source=source
    )
    name, columns, objects = opened.name, opened.columns, None
    if opened.kind == JSON:
        objects = [item for _, item in opened.objects]
        columns = list(dict.fromkeys(key for item in objects for key in item))
        lines = [[cell_text(item.get(key)) for key in columns] for item in objects]
    else:
        try:
            lines = [row for _, row in opened.rows]
        except DataError as error:
            if not opened.undeclared:
                raise
            note = f"{opened.undeclared[0].upper()}{opened.undeclared[1:]}"
            raise DataError(f"{error} ({note}.)", path=error.path, line=error.line) from None
    rows = [row for row in lines if row]
    if not rows:
        raise bad_data(name, "no rows. Expected one example per line, after a header if it is a table.")
    if opened.kind == LINES:
        width = max(map(len, rows))
        rows = [row + [""] * (width - len(row)) for row in rows]
        if width > len(columns):
            columns = [f"column{i}" for i in range(width)]
    notes = (*opened.notes, *opened.header_note(), *opened.encoding_note(), *_blank_note(len(lines) - len(rows)))
    has_header = opened.has_header and opened.is_delimited
    is_sure = opened.decision is None or opened.decision.is_sure
    layout = has_header, opened.layout.delimiter, opened.encoding, is_sure
    return Table(name, columns, rows, opened.kind, notes, objects, *layout)


def _blank_note(n: int) -> tuple[str, ...]:
    return (f"skips {n:,} empty line{'s' * (n > 1)}",) if n else ()


def cell_text(value: object) -> str:
    """A value of JSON as the text of a cell."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def has_label_columns(requested: Columns = Columns()) -> Header:
    """Accept a header with the requested columns, and with the usual names for text and label otherwise."""

    def is_header(cells: Sequence[str]) -> bool:
        lower = {cell.lower() for cell in cells}
        names = {role: name for role, name in requested.roles.items() if not name.isdigit()}
        has_requested = all(name in cells for name in names.values() if name)
        has_text, has_label = names.get("text") or lower & {*TEXT_NAMES}, names.get("label") or lower & {*LABEL_NAMES}
        return len(cells) > 1 and has_requested and bool(has_text) and bool(has_label)

    return is_header


def looks_like_header(line: str) -> bool:
    """Whether a plain line without spaces splits into names, one of them a usual name of a text column."""
    candidates = (split_cells(line, mark) for mark in DELIMITER_NAMES if " " not in line)
    return any(len(cells) > 1 and any(cell.lower() in TEXT_NAMES for cell in cells) for cells in candidates)


def guess_columns(table: Table, requested: Columns, labeled: bool = True) -> Columns:
    """Return the requested columns, and guess the others by name, else by content.

    Without a known name, the text is the longest column, and the label the only column that is left, or the only one
    with few different values; then another column of texts is the second text.
    """
    requested = _name_columns(table, requested)
    names = [name for name in requested.roles.values() if name]
    if len(set(names)) < len(names):
        options = ", ".join(f"--{OPTIONS[role]} {name}" for role, name in requested.roles.items() if name)
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
        if len(rest) > 1:
            label = _label_column(table, rest)
            texts = [name for name in (text, *rest) if name != label and _holds_texts(table, name, text)]
            if not requested.text and not second and len(texts) == 2 and text.lower() not in TEXT_NAMES:
                text, second = sorted(texts, key=table.header.index)
        elif len(rest) == 1:
            label = rest[0]
        if not label:
            raise _undecided_error(table, "label")
    if not text or text == label:
        raise _undecided_error(table, "text")
    return Columns(text, second, label, requested.header)


OPTIONS = {"text": "text", "second": "text-pair", "label": "label"}


def _name_columns(table: Table, columns: Columns) -> Columns:
    """Replace numbers by the names of their columns, if those are unique. Raise for a column that does not exist."""
    names = {}
    for role, name in columns.roles.items():
        if name:
            table.column(name)  # raises
        own = table.header[find_column(name, table.header) or 0] if name else ""
        names[role] = own if own and table.header.count(own) == 1 else name
    return Columns(**names, header=columns.header)


def _label_column(table: Table, names: Sequence[str]) -> str:
    """The only column with few different values, else the only one of numbers that do not count the rows, else ""."""
    few, numbers = [], []
    for name in names:
        cells = [cell.strip() for cell in table.column(name) if cell.strip()]
        distinct = set(cells)
        if 1 < len(distinct) <= len(cells) / 2 and max(map(len, distinct)) <= MAX_NAME_LENGTH:
            few.append(name)
        elif len(distinct) > 1 and all(map(is_number, distinct)) and not all(cell.isdecimal() for cell in distinct):
            numbers.append(name)
    return few[0] if len(few) == 1 else numbers[0] if not few and len(numbers) == 1 else ""


def _holds_texts(table: Table, name: str, longest: str) -> bool:
    """Whether a column has as many different texts as rows, mostly, that are about as long as those of the longest."""
    cells = table.column(name)
    size, most = sum(map(len, cells)), sum(map(len, table.column(longest)))
    return name.lower() not in IGNORED and 2 * len(set(cells)) > len(cells) and 4 * size >= most


def _undecided_error(table: Table, role: str) -> InvalidSetting:
    columns = ", ".join(table.header[:MAX_COLUMNS_NAMED]) or "none"
    return InvalidSetting(
        f"{table.name}: which column is the {role}? Its columns are {columns}. Choose with --{role} or --columns.",
        key=role,
        value=table.header,
    )


def explain_columns(table: Table, requested: Columns, columns: Columns) -> list[str]:
    """Say how the columns that were not requested were chosen, and which others could have been meant."""
    known = {"text": TEXT_NAMES, "second": SECOND_NAMES, "label": LABEL_NAMES}
    guessed = {role: name for role, name in columns.roles.items() if name and not requested.roles[role]}
    notes = []
    for by, is_by_name in (("name", True), ("content", False)):
        roles = [f"{role} '{name}'" for role, name in guessed.items() if (name.lower() in known[role]) == is_by_name]
        notes += [f"columns chosen by {by}: {', '.join(roles)}"] if roles else []
    for role in guessed:
        others = [n for n in table.header if n.lower() in known[role] and n not in columns.roles.values()]
        if others:
            notes.append(f"the {role} could also be {' or '.join(map(repr, others))}: choose with --{OPTIONS[role]}")
    return notes


def match_columns(table: Table, usual: Columns, required: Columns) -> Columns:
    """Return the required columns, and those of the usual ones that the table has."""
    present = {role: name if table.has(name) else "" for role, name in usual.roles.items()}
    return Columns(
        **{role: name or present[role] for role, name in required.roles.items()}, header=required.header or usual.header
    )


def _longest_column(table: Table, names: Iterable[str]) -> str:
    candidates = [name for name in names if name.lower() not in IGNORED and table.header.count(name) == 1]
    sizes = {name: sum(map(len, table.column(name))) for name in candidates}
    return max(sizes, key=lambda name: sizes[name], default="")
