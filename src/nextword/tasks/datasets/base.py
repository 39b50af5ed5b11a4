"""What a benchmark is, and readers for the file formats that benchmarks share.

A `Benchmark` is one row of the catalog (catalog.py): its files, its reader, its kind of task, its metrics, and the
format in which its leaderboard takes predictions.

The readers reject a malformed row or an unknown label with the file and the line. Only training sets may have
truncated rows, as QQP's has: the reader skips them, counts them, and names the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self, TypeVar

from nextword.core.errors import DataError, NextwordError
from nextword.core.io import user_path
from nextword.data.catalog import Entry, find_entry
from nextword.data.files import plain_name, read_lines, read_objects
from nextword.data.tables import DELIMITERS, TABLE_JSON_SUFFIXES, Rows, choose_held_out
from nextword.data.tables import read_rows as table_rows

Splits = dict[str, Rows]
Read = tuple[Splits, list[str]]  # the rows of each split, and notes for the user
Reader = Callable[[Path], Read]
SplitReader = Callable[[str, Sequence[Path]], Rows]  # the name and the files of a split

PUBLISHED = "published"  # where a dev split comes from
TENTH_OF_TRAIN = "a tenth of train"  # for benchmarks without one: the same rows each time


@dataclass(frozen=True)
class Submission:
    """How a leaderboard takes predictions for test sets whose labels are not public."""

    files: Mapping[str, str] = field(default_factory=dict)  # split → file name; empty: no leaderboard
    header: str = "index\tprediction\n"
    format_line: Callable[[str, str], str] = "{}\t{}\n".format  # (example id, predicted label) → one line
    id_column: str = ""  # the column with the example ids; "": row numbers will do
    bounds: tuple[float, float] | None = None  # predicted numbers are clipped to this range


@dataclass(frozen=True)
class Benchmark:
    name: str
    title: str
    kind: str  # of task: a name in nextword.tasks.TASKS
    frame: str  # how the network reads an example (models/framing.py); "similar" where the order of texts is arbitrary
    metrics: tuple[str, ...]  # the first one is the headline
    files: tuple[str, ...]  # the folder must contain one of these
    read: Reader
    catalog: str = ""  # its name in the data catalog; "": glue/NAME
    aliases: tuple[str, ...] = ()
    dev: str = PUBLISHED
    submission: Submission = Submission()


def bad_data(path: str | Path, problem: str, line: int | None = None, unit: str = "line") -> DataError:
    """A DataError that begins with the file, and with the line or row if there is one."""
    where = f"{path}, {unit} {line}" if line else path
    return DataError(f"{where}: {problem}", path=path, line=line)


# ------------------------------------------------------------------------------------------------ peeking at files


def table_header(source: str) -> list[str]:
    """The column names of a table, without reading all of it; of JSON lines the keys of the first; []: no table."""
    path = sample_file(source)
    if path is None:
        return []
    name = plain_name(path)
    suffix = Path(name).suffix.lower()
    try:
        if suffix in DELIMITERS:
            return next(table_rows(name, read_lines(path), suffix), (0, []))[1]
        return list(next(read_objects(name, read_lines(path)), (0, {}))[1]) if suffix in TABLE_JSON_SUFFIXES else []
    except NextwordError:  # reading it says what is wrong
        return []


def sample_file(source: str) -> Path | None:
    """The file, or the training file of a folder; None: there is no such file."""
    path = user_path(source)
    if path.is_dir():
        path = next((file for file in sorted(path.iterdir()) if "train" in file.name.lower() and file.is_file()), path)
    return path if path.is_file() else None


# ------------------------------------------------------------------------------------------------ splits


def catalog_entry_named(name: str) -> Entry:
    entry = find_entry(name)
    assert entry is not None, name
    return entry


def read_catalog_splits(name: str, folder: Path, read: SplitReader, needed: Sequence[str] = ("train", "dev")) -> Splits:
    """Read the files of each split of a catalog entry. The catalog's `valid` is called `dev`."""
    entry = catalog_entry_named(name)
    expected = {_split(split): " or ".join(names) for split, names in entry.layout.items()}
    splits = {_split(split): read(_split(split), files) for split, files in entry.locate(folder).items()}
    return require_splits(folder, splits, expected, needed)


def _split(catalog_name: str) -> str:
    return "dev" if catalog_name == "valid" else catalog_name


def require_splits(
    folder: Path, splits: Splits, files: Mapping[str, str], needed: Sequence[str] = ("train", "dev")
) -> Splits:
    for split in needed:
        if split not in splits:
            raise bad_data(folder, f"{files.get(split, split)}, the {split} split, is missing. Use the official files.")
    return splits


class Split(Protocol):
    """The examples of one split."""

    def __len__(self) -> int: ...
    def take(self, indices: Sequence[int], /) -> Self: ...


SplitT = TypeVar("SplitT", bound=Split)


def hold_out_dev(
    splits: Mapping[str, SplitT], rows: Rows, name: str | Path, unit: str = "rows", by_class: bool = True
) -> tuple[dict[str, SplitT], list[str]]:
    """Hold out a tenth of train as dev, unless there is a dev split. `rows`: what decides; equal rows stay together.

    `name` is the data and `unit` what the examples are, for the error and for the note that is returned.
    """
    if "dev" in splits:
        return dict(splits), []
    chosen = choose_held_out(rows, by_class)
    if not chosen and not by_class:  # of too few classes or rows of a class, later checks say more
        raise bad_data(name, f"{len(rows)} {unit} are too few to hold some out. Add some, or a dev file.")
    train, dev = split_off_dev(splits["train"], chosen)
    note = f"no dev split: {len(dev):,} of {len(rows):,} {unit} are held out, the same ones each time"
    return {**splits, "train": train, "dev": dev}, [note]


def split_off_dev(train: SplitT, chosen: Sequence[int]) -> tuple[SplitT, SplitT]:
    """Split examples into train and dev, by the indices of dev."""
    rest = sorted(set(range(len(train))) - set(chosen))
    return train.take(rest), train.take(chosen)


NO_AGREEMENT = "-"  # the label of a pair whose annotators disagreed


def drop_disputed_pairs(splits: Splits) -> Read:
    """Drop pairs whose annotators did not agree on a label, and report how many."""
    notes, kept = [], dict(splits)
    for split, rows in splits.items():
        agreed = [i for i, label in enumerate(rows.labels or ()) if label != NO_AGREEMENT]
        if rows.labels is not None and len(agreed) < len(rows):
            kept[split] = rows.take(agreed)
            notes.append(f"skipped {len(rows) - len(agreed):,} pairs of {split} whose annotators disagreed")
    return kept, notes


# ------------------------------------------------------------------------------------------------ columns and labels

Column = Sequence[str] | int | None  # possible names, or an index in a file without a header
NUMBER = "number"
Labels = Mapping[str, str] | Sequence[str] | str  # the known labels; file label → our label; or NUMBER
ROLES = ("text", "second", "label", "id")


@dataclass(frozen=True)
class ColumnSpec:
    """Which column of a file holds what."""

    text: Column
    second: Column = None
    label: Column = None
    id: Column = None  # in test files without labels
    labels: Labels = ()  # (): any label

    def __iter__(self) -> Iterator[tuple[str, Column]]:
        return iter(zip(ROLES, (self.text, self.second, self.label, self.id), strict=True))


class RowCollector:
    """Collects rows and checks their labels."""

    def __init__(self, file: Path, labels: Labels) -> None:
        self.file, self.labels = file, labels
        self.columns: dict[str, list[str]] = {"text": []}

    def add(self, line: int, row: Mapping[str, str]) -> None:
        for role, value in row.items():
            self.columns.setdefault(role, []).append(
                self._check_label(line, value.strip()) if role == "label" else value
            )
        for role, column in self.columns.items():
            if len(column) != len(self.columns["text"]):
                raise bad_data(self.file, f"some rows have a {role} and some do not.", line)

    def _check_label(self, line: int, value: str) -> str:
        known = self.labels
        if known == NUMBER:
            if not is_number(value):
                raise bad_data(self.file, f"the label {value!r} is not a number.", line)
            return value
        if not known or value in known:
            return known[value] if isinstance(known, Mapping) and value in known else value
        expected = f"Expected one of {', '.join(known)}; is this the official file?"
        raise bad_data(self.file, f"unknown label {value[:40]!r}. {expected}", line)

    def rows(self) -> Rows:
        if not self.columns["text"]:
            raise bad_data(self.file, "it has no rows.")
        second, label, id = (self.columns.get(role) for role in ROLES[1:])
        return Rows(self.columns["text"], second, label, id)


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


# ------------------------------------------------------------------------------------------------ file formats


def read_tsv(file: Path, spec: ColumnSpec, split: str = "train") -> tuple[Rows, list[str]]:
    """Read a file whose only delimiter is the tab: quotation marks are text. Label and id columns are optional."""
    source = ((n, line.rstrip("\r\n").split("\t")) for n, line in enumerate(read_lines(file), 1))
    header = [] if isinstance(spec.text, int) else next(source, (1, []))[1]
    index = {role: _index(file, header, column, role in ("label", "id")) for role, column in spec}
    width = 1 + max(i for i in index.values() if i is not None)
    rows = RowCollector(file, spec.labels)
    truncated: list[int] = []
    for number, cells in source:
        if len(cells) >= width:
            rows.add(number, {role: cells[i] for role, i in index.items() if i is not None})
        elif cells == [""]:
            continue
        elif split == "train":
            truncated.append(number)
        else:
            raise bad_data(file, f"{len(cells)} columns instead of {width}: {' '.join(cells)[:60]!r}.", number)
    if not truncated:
        return rows.rows(), []
    note = f"skipped {len(truncated):,} rows of {file.name} with too few columns; the first is line {truncated[0]}"
    return rows.rows(), [note]


def _index(file: Path, header: Sequence[str], column: Column, optional: bool) -> int | None:
    if column is None or isinstance(column, int):
        return column
    for name in column:
        if name in header:
            return header.index(name)
    if optional:
        return None
    missing = " or ".join(map(repr, column))
    raise bad_data(file, f"no column {missing} in {' '.join(header)[:100]!r}. Expected the official file.", 1)


def read_jsonl(file: Path, spec: ColumnSpec) -> Rows:
    """Read JSON lines whose keys are the columns."""
    rows = RowCollector(file, spec.labels)
    for number, item in read_objects(file, read_lines(file)):
        row = {}
        for role, names in spec:
            assert not isinstance(names, int)
            name = next((name for name in names or () if name in item), None)
            if name is not None:
                row[role] = str(item[name])
            elif names is not None and role in ("text", "second"):
                raise bad_data(file, f"no {' or '.join(map(repr, names))} among {', '.join(item)[:80]}.", number)
        rows.add(number, row)
    return rows.rows()


def read_tsv_or_jsonl(file: Path, spec: ColumnSpec, split: str = "train") -> tuple[Rows, list[str]]:
    """Choose the format by the suffix; for .txt, by the first character."""
    name = plain_name(file)
    if name.endswith(".jsonl") or (name.endswith(".txt") and next(read_lines(file), "").startswith("{")):
        return read_jsonl(file, spec), []
    return read_tsv(file, spec, split)


def splits_reader(spec: ColumnSpec, **files: str) -> Reader:
    """Return a reader of one tsv file per split (split=file name), all with the same columns."""

    def read(folder: Path) -> Read:
        splits: Splits = {}
        notes: list[str] = []
        for split, name in files.items():
            if (folder / name).is_file():
                splits[split], more = read_tsv(folder / name, spec, split)
                notes += more
        return require_splits(folder, splits, files), notes

    return read
