"""A labelled data set, ready to be learnt from: what kind of task it is, its classes, its splits, and what to know.

A name of the catalog (`RTE`), a file (csv, tsv, JSON lines), or a folder with train, dev and perhaps test files.

Data of a task into examples of a network: each text framed, each sentence with its tags.

What is to be known of them, as how many were cut, is added to the notes of the plan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from nextword.batching.examples import Examples
from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.data.tables import (
    LABELS,
    SPLIT,
    Columns,
    Header,
    Rows,
    Table,
    found_in,
    guess,
    held_out,
    how_found,
    labelled,
    read_table,
)
from nextword.tasks.data_checks import check_classes, check_splits
from nextword.tasks.datasets.catalog import find_benchmark, locate_benchmark, unknown_data
from nextword.tasks.datasets.multiple_choice import has_candidates, race_reader
from nextword.tasks.datasets.multiple_choice import multiple_choice_rows as choices_of
from nextword.tasks.examples import examples
from nextword.tasks.multiple_choice import choices
from nextword.tasks.settings import KINDS

SPLITS = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "val", "validation", "development"),
    "test": ("test", "testing"),
}
DELIMITED = ("csv", "tsv")  # tables with a header
NO_NUMBER = ("nan", "inf", "infinity", "na", "n/a", "null", "none")  # in files of numbers
MANY = 20  # distinct numbers beyond which labels are numbers and not names of classes


@dataclass(frozen=True)
class DataSet:
    name: str
    kind: str
    frame: str
    labels: tuple[str, ...]  # the classes, in order
    metrics: tuple[str, ...]  # the first decides
    splits: Mapping[str, Rows]
    columns: Columns = field(default_factory=Columns)
    notes: tuple[str, ...] = ()

    @property
    def balance(self) -> dict[str, float]:
        """Class → its share of the training rows; of candidates, which is the right one."""
        if self.kind == "regress":
            return {}
        labels = self.splits["train"].labels or []
        counts = Counter(labels)
        return {label: counts[label] / len(labels) for label in self.labels or sorted(counts, key=int)}

    @property
    def scale(self) -> tuple[float, float]:
        """Mean and spread of numbers to be learnt; (0, 1) for classes."""
        if self.kind != "regress":
            return 0.0, 1.0
        numbers = np.array(self.splits["train"].labels, np.float64)
        return float(numbers.mean()), float(numbers.std())

    @property
    def fingerprint(self) -> str:
        hashed = blake2b(digest_size=16)
        for split in ("train", "dev"):
            rows = self.splits[split]
            offered = [text for some in rows.choices or () for text in some]
            for column in (rows.texts, rows.seconds or [], rows.labels or [], *([offered] if offered else [])):
                hashed.update("\x1e".join(column).encode("utf-8", "replace") + b"\x1d")
        return hashed.hexdigest()


def framed_rows(
    network: Any, tokenizer: Tokenizer, frame: str, rows: Rows, labels: np.ndarray, length: int, pieces: bool = False
) -> tuple[Examples, int]:
    """Rows framed for a network, and how many of them were cut."""
    if rows.choices is not None:
        return choices(network, tokenizer, rows.texts, rows.seconds, rows.choices, labels, length)
    return examples(network, tokenizer, frame, rows.texts, rows.seconds, labels, length, pieces)


def open_data(name: str, asked: Columns = Columns(), kind: str = "") -> DataSet:
    """`kind` overrules what the labels look like."""
    if kind and kind not in KINDS:
        raise NextwordError(f"--kind {kind}: expected {', '.join(KINDS)}.")
    task = find_benchmark(name)
    if task is not None:
        if kind not in ("", task.kind) or asked != Columns():
            raise NextwordError(f"{task.name} is a known task of kind {task.kind}: leave --kind and columns out.")
        splits, notes = task.read(locate_benchmark(task))
        return _checked(DataSet(task.name, task.kind, task.frame, (), task.metrics, splits, notes=tuple(notes)))
    path = Path(name).expanduser()
    if not path.exists():
        raise unknown_data(name)
    if path.is_dir() and all((path / split).is_dir() for split in ("train", "dev")):
        splits, notes = race_reader()(path)
        return _checked(DataSet(str(path), "choice", "choose", (), ("accuracy",), splits, notes=tuple(notes)))
    header = has_candidates if kind == "choice" else lambda cells: has_candidates(cells) or labelled(asked)(cells)
    tables = _files(path, header) if path.is_dir() else {"": read_table(path, header)}
    if kind == "choice" or (not kind and has_candidates(next(iter(tables.values())).header)):
        return _of_choices(path, tables, asked)
    return _of_tables(path, tables, asked, kind)


def _files(folder: Path, header: Header) -> dict[str, Table]:
    found: dict[str, Table] = {}
    for split, names in SPLITS.items():
        for file in sorted(folder.iterdir()):
            if file.name.split(".")[0].lower() in names and split not in found:
                found[split] = read_table(file, header)
    if "train" not in found:
        raise NextwordError(
            f"{folder} has no train.csv, train.tsv or train.jsonl. Expected that, and dev and test files if there are."
        )
    return found


def _of_tables(path: Path, tables: Mapping[str, Table], asked: Columns, kind: str) -> DataSet:
    first = next(iter(tables.values()))
    columns = guess(first, asked)
    if kind == "pair" and not columns.second:
        raise NextwordError(f"--kind pair is about two texts, and {path} has no second one. Name it with --second.")
    if kind == "classify" and columns.second and not asked.second:
        columns = Columns(columns.text, "", columns.label)
    _has_header(first, asked, columns)
    notes = how_found(first, asked, columns)
    notes += [note for table in tables.values() for note in table.notes]
    if "" in tables:
        splits, more = _split_by_column(first, columns, first.rows_of(columns))
        notes += more
    else:
        splits = {}
        for split, table in tables.items():
            with_labels = split == "train" or columns.label in table.header
            splits[split] = table.rows_of(columns if with_labels else Columns(columns.text, columns.second))
    labels = splits["train"].labels or []
    _no_gaps(path, splits)
    _no_odd_numbers(path, splits, kind)
    if not kind:
        kind, more = _kind_of(labels, bool(columns.second))
        notes += more
    splits, more = _held_out(splits, kind)
    frame = "entail" if columns.second else "classify"
    metrics = ("spearman", "pearson") if kind == "regress" else ("accuracy", "macro_f1")
    return _checked(DataSet(str(path), kind, frame, (), metrics, splits, columns, (*notes, *more)))


def _has_header(table: Table, asked: Columns, found: Columns) -> None:
    """An error where the first line is a row like the others, which would be lost."""
    name = found.label
    if asked.label or name.lower() in LABELS or table.kind not in DELIMITED:
        return
    below = [one.strip() for one in table.column(name)]
    if name in below or (is_number(name) and all(map(is_number, below))):
        raise NextwordError(
            f"{table.name}: the first line is read as a header, and looks like a row: {name!r} is a label as those "
            "below it. Write the columns' names into the first line, as text,label (or name them: --text, --label)."
        )


def _of_choices(path: Path, tables: Mapping[str, Table], asked: Columns) -> DataSet:
    """Tables whose rows offer candidates."""
    read = {  # other splits may lack the label
        split: choices_of(table, asked if split in ("", "train") else found_in(table, asked, Columns()))
        for split, table in tables.items()
    }
    columns = next(iter(read.values()))[1]
    said = [f"{role} '{name}'" for role, name in vars(columns).items() if name and not getattr(asked, role)]
    notes = [f"columns by their names: {', '.join(said)}"] if said else []
    notes += [note for table in tables.values() for note in table.notes]
    if "" in tables:
        splits, told = _split_by_column(tables[""], columns, read[""][0])
        notes += told
    else:
        splits = {split: rows for split, (rows, _) in read.items()}
    if splits["train"].labels is None:
        raise NextwordError(
            f"{path}: which column is the label? It has {', '.join(next(iter(tables.values())).header[:8])}. Name it "
            "with --label."
        )
    _no_gaps(path, splits)
    splits, told = _held_out(splits, "choice")
    return _checked(DataSet(str(path), "choice", "choose", (), ("accuracy",), splits, columns, (*notes, *told)))


def _split_by_column(table: Table, columns: Columns, rows: Rows) -> tuple[dict[str, Rows], list[str]]:
    """By a column `split`, where there is one."""
    name = next((one for one in table.header if one.lower() == SPLIT), "")
    if not name or name in (columns.text, columns.second, columns.label):
        return {"train": rows}, []
    found: dict[str, list[int]] = {}
    for i, value in enumerate(table.column(name)):
        split = next((s for s, names in SPLITS.items() if value.strip().lower() in names), "")
        if not split:
            raise NextwordError(f"{table.name}, row {i + 1}: split is {value!r}; expected train, dev or test.")
        found.setdefault(split, []).append(i)
    if "train" not in found:
        raise NextwordError(f"{table.name}: no row's split is train. It has {', '.join(found)}.")
    return {split: rows.take(chosen) for split, chosen in found.items()}, [f"splits by the column '{name}'"]


def _no_gaps(path: Path, splits: Mapping[str, Rows]) -> None:
    for split, rows in splits.items():
        gaps = [i for i, label in enumerate(rows.labels or ()) if not label]
        if gaps:
            raise NextwordError(
                f"{path}: {len(gaps)} of {len(rows)} rows of {split} have no label, the first is row {gaps[0] + 1}. "
                "Fill them in or remove them."
            )


def _no_odd_numbers(path: Path, splits: Mapping[str, Rows], kind: str) -> None:
    """An error where labels are numbers but for some: any, where a number is to be learnt; where nobody has said so,
    those that stand for none (nan), or have a comma for a point. They are no numbers, and hardly classes."""
    numbers = {label for label in splits["train"].labels or () if is_number(label) or _has_comma(label)}
    if kind != "regress" and (kind or len(numbers) <= MANY):
        return
    for split, rows in splits.items():
        labels = rows.labels or []
        odd = [i for i, label in enumerate(labels) if not is_number(label)]
        commas = bool(odd) and any(_has_comma(labels[i]) for i in odd)
        if odd and (kind or all(labels[i].lower().lstrip("+-") in NO_NUMBER or _has_comma(labels[i]) for i in odd)):
            others = ", as the others are" if len(odd) < len(labels) else ""
            mend = "Write a point where decimals begin" if commas else "Mend or remove them"
            raise NextwordError(
                f"{path}: {len(odd):,} of {len(rows):,} labels of {split} are no numbers{others}; the first is "
                f"{labels[odd[0]]!r} in row {odd[0] + 1}. {mend}, or say --kind classify."
            )


def _has_comma(label: str) -> bool:
    """As numbers are written in half of Europe: 1,50."""
    return "," in label and is_number(label.replace(",", ".", 1))


def _kind_of(labels: Sequence[str], pairs: bool) -> tuple[str, list[str]]:
    distinct = set(labels)
    if len(distinct) > MANY and all(is_number(label) for label in distinct):
        return "regress", [
            f"labels are {len(distinct)} different numbers: a number is learnt (--kind to say otherwise)"
        ]
    return ("pair" if pairs else "classify"), []


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _held_out(splits: Mapping[str, Rows], kind: str) -> tuple[dict[str, Rows], list[str]]:
    """A tenth of the training rows, class by class, where there is no dev split."""
    if "dev" in splits:
        return dict(splits), []
    rows = splits["train"]
    held = held_out(rows, by_class=kind not in ("regress", "choice"))
    rest = sorted(set(range(len(rows))) - set(held))
    note = f"no dev split: {len(held):,} rows of {len(rows):,} are held out, the same ones each time"
    return {**splits, "train": rows.take(rest), "dev": rows.take(held)}, [note]


# ------------------------------------------------------------------------------------------------ what is wrong with it


def _checked(data: DataSet) -> DataSet:
    """With its classes and with notes, or an error that says what is wrong."""
    train, dev = data.splits["train"], data.splits.get("dev")
    labelled = {split: rows for split, rows in data.splits.items() if rows.labels is not None}
    labels = _classes(data.name, labelled) if data.kind not in ("regress", "choice") else ()
    if not len(train) or dev is None or not len(dev):
        raise NextwordError(
            f"{data.name}: {len(train)} rows to train on and {len(dev or ())} to check with. Give more rows; a tenth "
            f"is held out where no dev split is named, and a class needs six rows for that{_of_how_many(labels)}."
        )
    if "dev" not in labelled:
        raise NextwordError(f"{data.name}: the dev split has no labels, so nothing can be checked with it.")
    if data.kind == "regress":
        for split, rows in labelled.items():
            odd = next((i for i, label in enumerate(rows.labels or ()) if not is_number(label)), None)
            if odd is not None:
                raise NextwordError(
                    f"{data.name}: the label of row {odd + 1} of {split} is {(rows.labels or ())[odd]!r}, which is no "
                    "number. Mend it, or see --kind."
                )
        if data.scale[1] == 0:
            raise NextwordError(f"{data.name}: every label is {(train.labels or [''])[0]}. There is nothing to learn.")
    return DataSet(
        data.name,
        data.kind,
        data.frame,
        labels,
        data.metrics,
        data.splits,
        data.columns,
        (*data.notes, *(check_classes(labels, data.splits) if labels else ()), *check_splits(data.splits, data.kind == "regress")),
    )


def _of_how_many(labels: Sequence[str]) -> str:
    return f" (there are {len(labels)} classes; is --label the right column?)" if len(labels) > MANY else ""


def _classes(name: str, labelled: Mapping[str, Rows]) -> tuple[str, ...]:
    known = set(labelled["train"].labels or ())
    if len(known) < 2:
        raise NextwordError(
            f"{name}: every training row has the label {next(iter(known))!r}. There must be two classes at least; is "
            "--label the right column?"
        )
    for split, rows in labelled.items():
        unseen = sorted(set(rows.labels or ()) - known)
        if unseen:
            more = f" and {len(unseen) - 5} more" if len(unseen) > 5 else ""
            labels = f"label{'s' * (len(unseen) > 1)} {', '.join(map(repr, unseen[:5]))}{more}"
            raise NextwordError(
                f"{name}: {split} has the {labels}, which no training row has (those are "
                f"{', '.join(sorted(known)[:5])}). Mend it, or move rows with it into the training split."
            )
    return tuple(sorted(known, key=lambda label: (0, float(label), "") if is_number(label) else (1, 0.0, label)))


Progress = Callable[[str, float, float | None], None]








