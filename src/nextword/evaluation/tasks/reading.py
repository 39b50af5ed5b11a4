"""Examples out of files: each is a dictionary with the fields that a task's templates name."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from nextword.contract_errors import NextwordError
from nextword.corpora.catalog import absent, find
from nextword.corpora.decoding import json_objects, lines, plain_name
from nextword.evaluation.tasks import Task
from nextword.evaluation.tasks.arithmetic import sums

Example = dict[str, str]
Row = Mapping[Any, str]
GENERATED: dict[str, Callable[[str, Mapping[str, Any]], list[Example]]] = {"arithmetic": sums}


def examples(task: Task, split: str, folder: str | Path | None = None) -> list[Example]:
    """The examples of a split, from `folder` or from where the catalog finds the data set."""
    if task.data in GENERATED:
        return GENERATED[task.data](split, task.options)
    files = _files(task, split, folder)
    read = READERS.get(task.reader)
    if read is None:
        raise NextwordError(f"{task.name}: reader = {task.reader!r}; expected one of {', '.join(READERS)}.")
    found = []
    for row in read(files, task):
        example = {name: _cell(row, column, files[0]) for name, column in task.fields.items()}
        if task.last:
            before, _, last = example[task.last].strip().rpartition(" ")
            if not before:
                continue  # one word alone leaves nothing to go by
            example |= {"before": before, "last": last}
        found.append(example)
    if not found:
        raise NextwordError(f"{files[0]} has no example. Expected {task.reader} with {_columns(task)}.")
    return found


def _files(task: Task, split: str, folder: str | Path | None) -> list[Path]:
    entry = find(task.data)
    place = Path(folder).expanduser() if folder else None
    if place is not None and not place.exists():
        raise NextwordError(f"There is no file or folder {place}. Give the folder in which {task.data} lies.")
    if place is None:
        beside = task.folder / task.data
        if entry is not None:
            place = entry.place()
            if place is None:
                raise absent(entry)
        elif beside.exists():
            place = beside
        else:
            raise NextwordError(
                f"{task.name} names the data {task.data!r}, which is neither in the catalog nor beside the task's file "
                f"({beside}). Give its place with --data."
            )
    if place.is_file():
        return [place]
    layout = {**(entry.layout if entry is not None else {}), **task.layout}
    for names in layout.get(split, ()):
        paths = [next(iter(sorted(place.glob(name)) or sorted(place.glob(f"**/{name}"))), None) for name in _of(names)]
        if all(paths):
            return [path for path in paths if path]
    if split not in layout:
        raise NextwordError(f"{task.name} has no split '{split}'; it has {', '.join(layout) or 'none'}.")
    expected = " or ".join(layout[split])
    raise NextwordError(
        f"{place} lacks the {split} split of {task.data}: expected {expected}. When you have it: "
        f"nextword data {task.data} --from PATH, or give its folder with --data."
    )


def _of(names: str) -> list[str]:
    return names.split(" + ")


def _cell(row: Row, column: Any, file: Path) -> str:
    wanted = column if isinstance(column, (list, tuple)) else [column]
    for name in wanted:
        if name in row:
            return row[name]
    raise NextwordError(
        f"{file} has no column {' or '.join(map(repr, wanted))}; it has {', '.join(map(repr, row))}. Where labels are "
        "kept back, as in the test sets of GLUE, score another split (--split valid)."
    )


def _columns(task: Task) -> str:
    return ", ".join(f"{name} in column {column!r}" for name, column in task.fields.items())


# ------------------------------------------------------------------------------------------------ formats


def _tsv(files: Sequence[Path], task: Task) -> Iterator[Row]:
    """Tabs alone divide: GLUE's files have quotation marks that are never closed. Columns by number: no header."""
    numbered = all(isinstance(column, int) for column in task.fields.values())
    for file in files:
        header: list[str] | None = None
        for number, line in enumerate(lines(file), 1):
            cells = line.rstrip("\n").split("\t")
            if numbered:
                if len(cells) > max(task.fields.values()):
                    yield dict(enumerate(cells))
                elif line.strip():
                    raise NextwordError(
                        f"{file}, line {number} has {len(cells)} columns, not the {max(task.fields.values()) + 1} that "
                        "hold the labels. The test sets of GLUE keep them back: score another split (--split valid)."
                    )
            elif header is None:
                header = cells
            elif line.strip():
                yield dict(zip(header, cells, strict=False))


def _csv(files: Sequence[Path], task: Task) -> Iterator[Row]:
    for file in files:
        rows = csv.DictReader(lines(file))
        try:
            for row in rows:
                yield {key: value for key, value in row.items() if key is not None and value is not None}
        except csv.Error as problem:
            raise NextwordError(f"{file}, line {rows.line_num} is not a valid row: {problem}.") from None


def _jsonl(files: Sequence[Path], task: Task) -> Iterator[Row]:
    for file in files:
        for found in json_objects(file, lines(file)):
            yield {key: text if isinstance(text, str) else json.dumps(text) for key, text in found.items()}


def _lines(files: Sequence[Path], task: Task) -> Iterator[Row]:
    """Each line is the column "text"; a file of JSON lines is read as such."""
    for file in files:
        if Path(plain_name(file)).suffix == ".jsonl":
            yield from _jsonl([file], task)
        else:
            yield from ({"text": line.strip()} for line in lines(file) if line.strip())


def _labelled(files: Sequence[Path], task: Task) -> Iterator[Row]:
    """ "label text" on each line; a table of tabs with a header is read as such."""
    for file in files:
        if Path(plain_name(file)).suffix == ".tsv":
            yield from _tsv([file], task)
            continue
        for line in lines(file):
            if line.strip():
                label, _, text = line.strip().partition(" ")
                yield {"label": label, "sentence": text}


def _parallel(files: Sequence[Path], task: Task) -> Iterator[Row]:
    """The same sentence of each file; columns are the files' numbers."""
    for number, group in enumerate(zip_longest(*(lines(file) for file in files)), 1):
        if None in group:
            raise NextwordError(f"{' and '.join(map(str, files))} differ in length: one ends before line {number}.")
        yield {i: line.strip() for i, line in enumerate(group)}


READERS: dict[str, Callable[[Sequence[Path], Task], Iterator[Row]]] = {
    "tsv": _tsv,
    "csv": _csv,
    "jsonl": _jsonl,
    "lines": _lines,
    "labelled": _labelled,
    "parallel": _parallel,
}
