"""Data in memory as a file: frames of pandas and polars, tables of Arrow, lists of texts or rows, columns by name.

A recipe must say what a run was trained on, so data in memory becomes JSON lines first, and the recipe names that file.
Its name is a hash of its content: equal data is one file, and a file never changes.

    as_source(frame)                               frames-1f0c….jsonl, a line per row
    as_source([("A fine film.", "good"), …])       {"text": "A fine film.", "label": "good"}
    as_source({"text": […], "label": […]})         the same
    as_source({"train": frame, "dev": frame})      a folder with train.jsonl and dev.jsonl
    as_source("reviews.csv")                       "reviews.csv"

Neither pandas nor polars is imported: an object is recognized by the methods of the protocols below.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from nextword.core.errors import InvalidSetting, bad_data
from nextword.core.scratch import scratch_folder
from nextword.data.catalog import install_home

ROW_COLUMNS = {1: ("text",), 2: ("text", "label"), 3: ("text", "second", "label")}  # of rows without names
SPLIT_FILES = {
    "train": "train",
    "dev": "dev",
    "valid": "dev",
    "validation": "dev",
    "test": "test",
}
NAME = "data in memory"  # in errors
EXPECTED = (
    "Expected a path, a pandas or polars frame, a list of texts, of (text, label) or of dictionaries, or a dictionary "
    "of columns."
)
Row = Mapping[str, object]


@runtime_checkable
class PandasFrame(Protocol):
    columns: Any

    def isna(self) -> Any: ...
    def itertuples(self, index: bool = ..., name: str | None = ...) -> Iterable[tuple[object, ...]]: ...


@runtime_checkable
class PolarsFrame(Protocol):
    def iter_rows(self, *, named: bool = ...) -> Iterable[Any]: ...


@runtime_checkable
class ArrowTable(Protocol):
    def to_pylist(self) -> list[Any]: ...


@runtime_checkable
class Listable(Protocol):
    """Arrays of numpy, series of pandas and polars."""

    def tolist(self) -> list[Any]: ...


def as_source(data: object, folder: str | Path | None = None, names: Sequence[str] = ()) -> str:
    """Return the path of a file with this data, for wherever a path is taken. A path or a name is returned unchanged.

    folder   where to write; the default is `frames` in the folder of installed data sets (catalog.install_home)
    names    columns of rows that have none, as ("source", "target"); the default is text, label or text, second, label
    """
    if isinstance(data, (str, Path)):
        return str(data)
    home = Path(folder) if folder is not None else install_home() / "frames"
    splits = _splits(data)
    if splits is None:
        return str(_write({"": _rows(data, names)}, home))
    return str(_write({split: _rows(part, names) for split, part in splits.items()}, home))


def is_saved_frame(source: str) -> bool:
    """Whether `as_source` wrote this file: its columns are those that the user gave."""
    return Path(source).parent == install_home() / "frames"


def _splits(data: object) -> dict[str, object] | None:
    """The parts of a dictionary whose keys are all names of splits."""
    if not isinstance(data, Mapping) or "train" not in data or not set(data) <= set(SPLIT_FILES):
        return None
    splits = {SPLIT_FILES[name]: part for name, part in data.items()}
    if len(splits) < len(data):
        raise bad_data(NAME, f"two of the splits {', '.join(data)} have the same meaning. Keep one of them.")
    return splits


# ------------------------------------------------------------------------------------------------ rows


def _rows(data: object, names: Sequence[str]) -> Iterator[Row]:
    if isinstance(data, PandasFrame):
        return _pandas_rows(data)
    if isinstance(data, PolarsFrame):
        return iter(data.iter_rows(named=True))
    if isinstance(data, ArrowTable):
        return iter(data.to_pylist())
    if isinstance(data, Mapping):
        return _column_rows(data)
    if isinstance(data, Listable):
        data = data.tolist()
    if isinstance(data, (bytes, bytearray)) or not isinstance(data, Iterable):
        raise InvalidSetting(f"{type(data).__name__} cannot be used as data. {EXPECTED}", key="data", value=data)
    return _listed_rows(data, names)


def _pandas_rows(frame: PandasFrame) -> Iterator[Row]:
    columns = [str(name) for name in frame.columns]
    missing = frame.isna().itertuples(index=False, name=None)
    for cells, empty in zip(frame.itertuples(index=False, name=None), missing, strict=True):
        yield {name: None if gone else cell for name, cell, gone in zip(_unique(columns), cells, empty, strict=True)}


def _unique(columns: list[str]) -> list[str]:
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise bad_data(NAME, f"{columns.count(twice)} columns '{twice}'. Rename all but one.")
    return columns


def _column_rows(columns: Mapping[Any, object]) -> Iterator[Row]:
    values: dict[str, list[object]] = {}
    for name, column in columns.items():
        if isinstance(column, (str, bytes)) or not isinstance(column, Iterable):
            problem = f"the column {str(name)!r} is {type(column).__name__}; expected a list with a value for each row."
            raise bad_data(NAME, problem)
        values[str(name)] = list(column)
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise bad_data(NAME, f"the columns differ in length: {counts}. Give a value for each row.")
    for cells in zip(*values.values(), strict=True):
        yield dict(zip(values, cells, strict=True))


def _listed_rows(items: Iterable[object], names: Sequence[str]) -> Iterator[Row]:
    """Texts, rows of cells, or dictionaries. All must be of one kind."""
    shape: object = None
    for number, item in enumerate(items, 1):
        if isinstance(item, Listable):
            item = item.tolist()
        if isinstance(item, str):
            cells: Sequence[object] = (item,)
        elif isinstance(item, Mapping):
            cells = ()
        elif isinstance(item, (tuple, list)):
            cells = item
        else:
            raise _row_error(f"a row is {type(item).__name__}. {EXPECTED}", number)
        kind = "dictionary" if isinstance(item, Mapping) else len(cells)
        shape = kind if shape is None else shape
        if kind != shape:
            counts = [f"{k} value{'s' * (k != 1)}" if isinstance(k, int) else f"a {k}" for k in (kind, shape)]
            raise _row_error(
                f"the row has {counts[0]}, and the first has {counts[1]}. Give them the same form.", number
            )
        if isinstance(item, Mapping):
            yield {str(key): value for key, value in item.items()}
            continue
        columns = tuple(names) if len(names) == len(cells) else ROW_COLUMNS.get(len(cells))
        if columns is None:
            expected = "Expected a text, (text, label) or (text, second, label); name others in dictionaries."
            raise _row_error(f"the row has {len(cells)} values. {expected}", number)
        yield dict(zip(columns, cells, strict=True))


def _row_error(problem: str, number: int) -> Exception:
    error = bad_data(f"{NAME}, row {number}", problem)
    error.line = number
    return error


# ------------------------------------------------------------------------------------------------ writing


def _write(splits: Mapping[str, Iterator[Row]], home: Path) -> Path:
    """Write each split as JSON lines: one file, or a folder of files named after the splits."""
    home.mkdir(parents=True, exist_ok=True)
    hasher = blake2b(digest_size=8)
    with scratch_folder(home) as scratch:
        for split, rows in splits.items():
            hasher.update(f"split={split};".encode())
            _write_lines(scratch / f"{split or 'all'}.jsonl", rows, hasher.update)
        if list(splits) == [""]:
            goal = home / f"frames-{hasher.hexdigest()}.jsonl"
            os.replace(scratch / "all.jsonl", goal)
            return goal
        goal = home / f"frames-{hasher.hexdigest()}"
        if not goal.exists():
            goal.mkdir()
        for split in splits:
            os.replace(scratch / f"{split}.jsonl", goal / f"{split}.jsonl")
        return goal


def _write_lines(file: Path, rows: Iterator[Row], update: Callable[[bytes], None]) -> None:
    count = 0
    with open(file, "wb") as out:
        for count, row in enumerate(rows, 1):
            line = json.dumps({key: _plain(cell, count) for key, cell in row.items()}, ensure_ascii=False)
            try:
                data = line.encode() + b"\n"
            except UnicodeEncodeError:
                raise _row_error("a lone surrogate, which is no character. Remove it.", count) from None
            update(data)
            out.write(data)
    if not count:
        raise bad_data(NAME, "no rows. Expected one example or more.")


def _plain(value: object, row: int) -> object:
    """The value as JSON knows it: a missing number is null, a number of numpy a number, a date its text."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item, row) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, row) for item in value]
    if isinstance(value, (bytes, bytearray)):
        raise _row_error("a value is bytes; expected text. Decode it first.", row)
    return str(value)
