"""What a task of the catalog is: where its files lie, who reads them, what is learnt of them, and how it is judged.

A task of any kind is one such line; which there are is said in catalog.py.

Rows of official files: tables of which every benchmark has its own, and JSON lines.

A row that does not fit, and a label that the task does not have, are refused with the file and the line. Only training
sets may have rows that are cut off, as QQP's has: they are left out, counted, and the first is named.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nextword.core.errors import NextwordError
from nextword.data.files import lines, numbered_objects, plain_name
from nextword.data.tables import Rows, held_out

Read = tuple[dict[str, Rows], list[str]]  # split → its rows; and what is to be known of them
TENTH = "a tenth of train"  # the dev split of sets that have none: the same rows each time
OWN = "as published"


@dataclass(frozen=True)
class Task:
    name: str
    title: str
    kind: str
    frame: str  # models/frames.py; "similar" where neither text comes first
    metrics: tuple[str, ...]  # the first is the headline
    files: tuple[str, ...]  # one of these must be there
    reader: Callable[[Path], Read]
    catalog: str = ""  # the name that its files have in the catalog, where it is not GLUE's
    aliases: tuple[str, ...] = ()
    dev: str = OWN  # where the dev split comes from
    submission: Mapping[str, str] = field(default_factory=dict)  # split without labels → file of its predictions
    bounds: tuple[float, float] | None = None  # numbers in such a file lie between these
    heading: str = "index\tprediction\n"  # its first line
    line: Callable[[str, str], str] = "{}\t{}\n".format  # each other, of the example's id and what is said of it
    key: str = ""  # the column that has the ids; "": without one they are the rows' numbers

    def read(self, folder: Path) -> Read:
        return self.reader(folder)


def with_dev(found: dict[str, Rows], what: str = "rows") -> Read:
    """Where there is no dev split, a tenth of each class of train becomes one."""
    if "dev" in found:
        return found, []
    train = found["train"]
    chosen = held_out(train)
    rest = sorted(set(range(len(train))) - set(chosen))
    note = f"no dev split: {len(chosen):,} of {len(train):,} {what} are held out, the same each time"
    return {**found, "train": train.take(rest), "dev": train.take(chosen)}, [note]


TRAIN = "train"
JSON = "jsonl"
NUMBER = "number"
Labels = Mapping[str, str] | Sequence[str] | str  # those there are; what each is called here; or NUMBER
NO_LABEL = "-"  # on which annotators did not agree


@dataclass(frozen=True)
class Wanted:
    """Where a file has what: names of columns, of which one is there, or numbers in a file without a header."""

    text: Sequence[str] | int
    second: Sequence[str] | int | None = None
    label: Sequence[str] | int | None = None
    id: Sequence[str] | int | None = None  # of files whose labels are kept back
    labels: Labels = ()  # none: any

    def __iter__(self) -> Iterator[tuple[str, Sequence[str] | int | None]]:
        return ((role, getattr(self, role)) for role in ("text", "second", "label", "id"))


def table(file: Path, wanted: Wanted, split: str = TRAIN) -> tuple[Rows, list[str]]:
    """The rows of a file in which tabs alone divide. Without a label column there are no labels."""
    source = ((n, line.rstrip("\r\n").split("\t")) for n, line in enumerate(lines(file), 1))
    names = [] if isinstance(wanted.text, int) else next(source, (1, []))[1]
    at = {role: _at(file, names, one, role in ("label", "id")) for role, one in wanted}
    most = max(i for i in at.values() if i is not None)
    rows = Taken(file, wanted)
    short: list[int] = []
    for number, cells in source:
        if len(cells) > most:
            rows.add(number, {role: cells[i] for role, i in at.items() if i is not None})
        elif cells == [""]:
            continue
        elif split == TRAIN:
            short.append(number)
        else:
            raise NextwordError(
                f"{file}, line {number} has {len(cells)} columns; {most + 1} are needed: {' '.join(cells)[:60]!r}. "
                "Mend that line."
            )
    note = f"{len(short):,} rows of {file.name} have too few columns and are left out; the first is line {{}}"
    return rows.rows(), [note.format(short[0])] if short else []


def json_table(file: Path, wanted: Wanted) -> Rows:
    """The same of JSON lines, whose keys are the columns."""
    rows = Taken(file, wanted)
    for number, one in numbered_objects(file, lines(file)):
        found = {}
        for role, names in wanted:
            assert not isinstance(names, int)
            name = next((name for name in names or () if name in one), None)
            if name is not None:
                found[role] = str(one[name])
            elif names is not None and role in ("text", "second"):
                raise NextwordError(
                    f"{file}, line {number} has no {' or '.join(map(repr, names))}; it has {', '.join(one)[:80]}."
                )
        rows.add(number, found)
    return rows.rows()


def quoted_table(file: Path, columns: int, labels: Labels, text: Callable[[Sequence[str]], str]) -> Rows:
    """The csv files of Zhang et al. (2015): no header, the class first, then texts, all in quotation marks."""
    csv.field_size_limit(1 << 30)
    rows = Taken(file, Wanted(0, labels=labels))
    reader = csv.reader(lines(file), strict=True)
    try:
        for cells in reader:
            if not cells:
                continue
            if len(cells) != columns:
                raise NextwordError(
                    f"{file}, line {reader.line_num} has {len(cells)} columns; expected {columns}: the class, and "
                    f"{columns - 1} of text. Mend that line."
                )
            rows.add(reader.line_num, {"label": cells[0], "text": text(cells[1:])})
    except csv.Error as problem:
        raise NextwordError(f"{file}, line {reader.line_num} is not a valid row: {problem}. Mend it.") from None
    return rows.rows()


class Taken:
    """Rows as they are read, each label looked at."""

    def __init__(self, file: Path, wanted: Wanted) -> None:
        self.file, self.labels = file, wanted.labels
        self.columns: dict[str, list[str]] = {"text": []}

    def add(self, number: int, row: Mapping[str, str]) -> None:
        for role, value in row.items():
            value = self.label(number, value.strip()) if role == "label" else value
            self.columns.setdefault(role, []).append(value)
        for role, column in self.columns.items():
            if len(column) != len(self.columns["text"]):
                raise NextwordError(f"{self.file}, line {number}: some rows have a {role}, and some have none.")

    def label(self, number: int, value: str) -> str:
        known = self.labels
        if known == NUMBER:
            if not _finite(value):
                raise NextwordError(f"{self.file}, line {number}: the label is {value!r}, which is no number.")
            return value
        if not known or value in known:
            return known[value] if isinstance(known, Mapping) and value in known else value
        raise NextwordError(
            f"{self.file}, line {number}: the label is {value[:40]!r}; expected one of {', '.join(known)}. Is it the "
            "official file?"
        )

    def rows(self) -> Rows:
        if not self.columns["text"]:
            raise NextwordError(f"{self.file} has no row in it.")
        second, label, id = (self.columns.get(role) for role in ("second", "label", "id"))
        return Rows(self.columns["text"], second, label, id)


def _finite(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _at(file: Path, names: Sequence[str], one: Sequence[str] | int | None, optional: bool) -> int | None:
    if one is None or isinstance(one, int):
        return one
    for name in one:
        if name in names:
            return names.index(name)
    if optional:
        return None
    raise NextwordError(
        f"{file} has no column {' or '.join(map(repr, one))}; its first line is {' '.join(names)[:100]!r}. Expected "
        "the official file."
    )


# ------------------------------------------------------------------------------------------------ several files


def read_either(file: Path, wanted: Wanted, split: str = TRAIN) -> tuple[Rows, list[str]]:
    """A table, or JSON lines: by the ending, and of a .txt by how it begins."""
    name = plain_name(file)
    if name.endswith(f".{JSON}") or (name.endswith(".txt") and next(lines(file), "").startswith("{")):
        return json_table(file, wanted), []
    return table(file, wanted, split)


def splits_of(wanted: Wanted, **files: str) -> Callable[[Path], Read]:
    """A reader of files that have the same columns, split → name. Splits but train and dev may be absent."""

    def read(folder: Path) -> Read:
        found: dict[str, Rows] = {}
        notes: list[str] = []
        for split, name in files.items():
            if (folder / name).is_file():
                found[split], told = table(folder / name, wanted, split)
                notes += told
        return needed(folder, found, files), notes

    return read


def needed(folder: Path, found: dict[str, Rows], files: Mapping[str, str]) -> dict[str, Rows]:
    for split in (TRAIN, "dev"):
        if split not in found:
            raise NextwordError(f"{folder} lacks {files.get(split, split)}. Expected the official files.")
    return found


def agreed(splits: dict[str, Rows]) -> tuple[dict[str, Rows], list[str]]:
    """Without the pairs on whose label annotators did not agree; how many they are is said."""
    notes, kept = [], dict(splits)
    for split, rows in splits.items():
        chosen = [i for i, label in enumerate(rows.labels or ()) if label != NO_LABEL]
        if rows.labels is not None and len(chosen) < len(rows):
            kept[split] = rows.take(chosen)
            notes.append(f"{len(rows) - len(chosen):,} pairs of {split} have no label that annotators agreed on")
    return kept, notes
