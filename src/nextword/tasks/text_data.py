"""Labeled texts: a benchmark by its name (`RTE`), a file (csv, tsv, JSON lines), or a folder with train and dev files.

Which task they are for follows from the columns and the labels, unless --kind says it.

    one text, few labels         classification             two texts            pair_classification
    many different numbers       regression                 several candidates   multiple_choice
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np

from nextword.core.errors import InvalidSetting, MissingFile, invalid
from nextword.core.io import user_path
from nextword.data.tables import (
    NO,
    SPLIT,
    YES,
    Columns,
    Header,
    Rows,
    Table,
    concatenate_rows,
    explain_columns,
    guess_columns,
    has_label_columns,
    match_columns,
    read_table,
)
from nextword.metrics.classification import CLASSIFICATION_METRICS, METRICS, REGRESSION_METRICS
from nextword.tasks.base import DEV_IS_TRAINED_ON, Dataset
from nextword.tasks.baselines import Method, Scored, choice_baselines, encode_labels, text_baselines
from nextword.tasks.data_checks import check_classes, check_splits
from nextword.tasks.datasets.base import bad_data, hold_out_dev, is_number
from nextword.tasks.datasets.catalog import find_benchmark, locate_benchmark, unknown_data
from nextword.tasks.datasets.multiple_choice import has_candidates, multiple_choice_rows, race_reader
from nextword.tasks.mixtures import MixedDataset, split_names

CLASSIFICATION, PAIRS, REGRESSION, CHOICE = "classification", "pair_classification", "regression", "multiple_choice"
KINDS = (CLASSIFICATION, PAIRS, REGRESSION, CHOICE)  # of --kind
SPLITS = {
    "train": ("train", "training"),
    "dev": ("dev", "valid", "val", "validation", "development"),
    "test": ("test", "testing"),
}
NOT_NUMBERS = ("nan", "inf", "infinity", "na", "n/a", "null", "none")  # in a column of numbers
MANY = 20  # distinct numbers beyond which labels are numbers and not names of classes


@dataclass(frozen=True)
class TextDataset(Dataset):
    """Texts, or pairs of texts, or contexts with candidates, and a label for each."""

    name: str
    kind: str
    frame: str  # how the network reads an example: models/framing.py
    labels: tuple[str, ...]  # the classes, in order
    metrics: tuple[str, ...]
    splits: Mapping[str, Rows]
    columns: Columns = field(default_factory=Columns)
    notes: tuple[str, ...] = ()

    @property
    def is_numeric(self) -> bool:
        return self.kind == REGRESSION

    @property
    def possible_metrics(self) -> Sequence[str]:
        names = REGRESSION_METRICS if self.is_numeric else CLASSIFICATION_METRICS
        return [name for name in names if name != "f1" or len(self.labels) == 2]  # F1 is for two classes

    @property
    def balance(self) -> dict[str, float]:
        """Class → its fraction of the training rows; with candidates, the position of the right one."""
        if self.is_numeric:
            return {}
        labels = self.splits["train"].labels or []
        counts = Counter(labels)
        return {label: counts[label] / len(labels) for label in self.labels or sorted(counts, key=int)}

    @property
    def scale(self) -> tuple[float, float]:
        """Mean and standard deviation of the training labels; (0, 1) for classes."""
        if not self.is_numeric:
            return 0.0, 1.0
        numbers = np.array(self.splits["train"].labels, np.float64)
        return float(numbers.mean()), float(numbers.std())

    @property
    def fingerprint(self) -> str:
        hasher = blake2b(digest_size=16)
        for split in ("train", "dev"):
            rows = self.splits[split]
            candidates = [text for choices in rows.choices or () for text in choices]
            for column in (rows.texts, rows.seconds or [], rows.labels or [], *([candidates] if candidates else [])):
                hasher.update("\x1e".join(column).encode("utf-8", "replace") + b"\x1d")
        return hasher.hexdigest()

    def training_texts(self) -> list[str]:
        train = self.splits["train"]
        return [*train.texts, *(train.seconds or ()), *chain(*(train.choices or ()))]

    def merge_dev_into_train(self) -> Self:
        rows = concatenate_rows([self.splits["train"], self.splits["dev"]])
        return replace(self, splits={**self.splits, "train": rows}, notes=(*self.notes, DEV_IS_TRAINED_ON))

    def is_labeled(self, split: str) -> bool:
        return split in self.splits and self.splits[split].labels is not None

    def baselines(self, train: Rows, splits: Sequence[str]) -> Iterator[Method]:
        rows = {split: self.splits[split] for split in splits}
        return choice_baselines(train, rows) if train.choices else text_baselines(train, rows, self.labels)

    def score(self, split: str, predictions: np.ndarray, metrics: Sequence[str]) -> Scored:
        """Of indices of classes or candidates, or of numbers."""
        gold = encode_labels(self.splits[split], self.labels)
        main = METRICS[metrics[0]]
        return Scored(
            {name: METRICS[name](gold, predictions) for name in metrics},
            lambda rows: main(gold[rows], predictions[rows]),
            len(gold),
        )

    def only_prediction(self, predictions: np.ndarray) -> str:
        if np.ptp(predictions) > 1e-6 * max(1.0, float(np.abs(predictions).max())):
            return ""
        if self.labels:
            return self.labels[int(predictions[0])]
        return f"candidate {int(predictions[0]) + 1}" if self.kind == CHOICE else f"{predictions[0]:.4g}"

    def unseen_rows(self, split: str) -> list[int]:
        """The rows of a split whose texts are neither in train nor in dev."""
        known = {example for name in ("train", "dev") for example in self.splits[name].examples}
        return [i for i, example in enumerate(self.splits[split].examples) if example not in known]


@dataclass(frozen=True)
class MixedTextDataset(MixedDataset):
    """Several sets of labeled texts: "SST-2 + RTE + STS-B"."""

    sets: tuple[TextDataset, ...]

    kind = "multitask"

    @property
    def tasks(self) -> tuple[dict[str, Any], ...]:
        """What each task has of its own, for the run's [task]."""
        return tuple(
            {
                "name": data.name,
                "kind": data.kind,
                "frame": data.frame,
                "labels": list(data.labels),
                "metrics": list(data.metrics),
                **({"mean": data.scale[0], "std": data.scale[1]} if data.is_numeric else {}),
                **data.columns.roles,
            }
            for data in self.sets
        )


# ------------------------------------------------------------------------------------------------ reading


def read_text_data(source: str, columns: Columns = Columns(), kind: str = "") -> TextDataset | MixedTextDataset:
    """One set of labeled texts, or several with " + " between their names."""
    names = split_names(source)
    if len(names) == 1:
        return read_one(source, columns, kind)
    if columns != Columns() or kind:
        problem = "Several data sets have columns of their own. Leave --columns, --header and --kind out."
        raise InvalidSetting(problem, key="columns", value=columns)
    sets = tuple(map(read_one, names))
    if len({data.name for data in sets}) < len(sets):  # RTE + glue/RTE
        raise InvalidSetting(f"--data {source} names a data set twice.", key="data", value=source)
    return MixedTextDataset(sets)


def read_one(name: str, columns: Columns = Columns(), kind: str = "") -> TextDataset:
    """One set of labeled texts. `kind` overrules what the labels look like."""
    if kind and kind not in KINDS:
        raise invalid("kind", kind, f"is not for labeled texts. Expected {', '.join(KINDS)}.")
    benchmark = find_benchmark(name)
    if benchmark is not None:
        if kind not in ("", benchmark.kind) or columns != Columns():
            problem = f"{benchmark.name} is a benchmark for {benchmark.kind}. Leave --kind and columns out."
            raise InvalidSetting(problem, key="kind", value=kind)
        splits, notes = benchmark.read(locate_benchmark(benchmark))
        own = benchmark.kind, benchmark.frame, (), benchmark.metrics
        return _check(TextDataset(benchmark.name, *own, splits, notes=tuple(notes)))
    path = user_path(name)
    if not path.exists():
        raise unknown_data(name)
    if path.is_dir() and all((path / split).is_dir() for split in ("train", "dev")):
        splits, notes = race_reader()(path)
        return _check(TextDataset(str(path), CHOICE, "choose", (), ("accuracy",), splits, notes=tuple(notes)))

    def header(cells: Sequence[str]) -> bool:
        return has_candidates(cells) or (kind != CHOICE and has_label_columns(columns)(cells))

    tables = _read_folder(path, header, columns) if path.is_dir() else {"": _read_file(path, header, columns)}
    if kind == CHOICE or (not kind and has_candidates(next(iter(tables.values())).header)):
        return _read_candidates(path, tables, columns)
    return _read_tables(path, tables, columns, kind)


def _read_file(path: Path, is_header: Header, columns: Columns) -> Table:
    expected = [name for name in columns.roles.values() if name]
    return read_table(path, is_header, header=columns.has_header, expected=expected, min_columns=2)


def _read_folder(folder: Path, is_header: Header, columns: Columns) -> dict[str, Table]:
    tables: dict[str, Table] = {}
    for split, names in SPLITS.items():
        for file in sorted(folder.iterdir()):
            if file.name.split(".")[0].lower() in names and split not in tables:
                tables[split] = _read_file(file, is_header, columns)
    if "train" not in tables:
        raise MissingFile(f"{folder} has no train.csv, train.tsv or train.jsonl.", path=folder)
    return tables


def _read_tables(path: Path, tables: Mapping[str, Table], named: Columns, kind: str) -> TextDataset:
    first = next(iter(tables.values()))
    columns = guess_columns(first, named)
    if kind == PAIRS and not columns.second:
        raise bad_data(path, f"--kind {PAIRS} needs two texts. Name the second with --text-pair.")
    if kind == CLASSIFICATION and columns.second and not named.second:
        columns = replace(columns, second="")
    _require_decision(first, columns.label)
    notes = explain_columns(first, named, columns)
    notes += [note for table in tables.values() for note in table.notes]
    if "" in tables:
        splits, more = _split_by_column(first, columns, first.rows_of(columns))
        notes += more
    else:
        splits = {}
        for split, table in tables.items():
            has_labels = split == "train" or table.has(columns.label)
            splits[split] = table.rows_of(columns if has_labels else Columns(columns.text, columns.second))
    _require_labels(path, splits)
    _require_numbers(path, splits, kind)
    if not kind:
        kind, more = _guess_kind(splits["train"].labels or [], bool(columns.second))
        notes += more
    _require_numbers(path, splits, kind)
    splits, more = hold_out_dev(splits, splits["train"], path, by_class=kind != REGRESSION)
    frame = "entail" if columns.second else "classify"
    metrics = ("spearman", "pearson") if kind == REGRESSION else ("accuracy", "macro_f1")
    columns = _with_header(columns, tables)
    return _check(TextDataset(str(path), kind, frame, (), metrics, splits, columns, (*notes, *more)))


def _with_header(columns: Columns, tables: Mapping[str, Table]) -> Columns:
    """The columns with the decision about the header, if it is the same for all tables: a run is resumed with it."""
    decisions = {table.has_header if table.is_delimited else None for table in tables.values()}
    decision = decisions.pop() if len(decisions) == 1 else None
    return replace(columns, header="" if decision is None else YES if decision else NO)


def _read_candidates(path: Path, tables: Mapping[str, Table], named: Columns) -> TextDataset:
    read = {  # other splits may lack the label
        split: multiple_choice_rows(table, named if split in ("", "train") else match_columns(table, named, Columns()))
        for split, table in tables.items()
    }
    columns = next(iter(read.values()))[1]
    guessed = [f"{role} '{name}'" for role, name in columns.roles.items() if name and not named.roles[role]]
    notes = [f"columns by their names: {', '.join(guessed)}"] if guessed else []
    notes += [note for table in tables.values() for note in table.notes]
    if "" in tables:
        splits, more = _split_by_column(tables[""], columns, read[""][0])
        notes += more
    else:
        splits = {split: rows for split, (rows, _) in read.items()}
    if splits["train"].labels is None:
        names = ", ".join(next(iter(tables.values())).header[:8])
        raise bad_data(path, f"which column is the label? Name it with --label. The columns are {names}.")
    _require_labels(path, splits)
    splits, more = hold_out_dev(splits, splits["train"], path, by_class=False)
    columns = _with_header(columns, tables)
    return _check(TextDataset(str(path), CHOICE, "choose", (), ("accuracy",), splits, columns, (*notes, *more)))


def _split_by_column(table: Table, columns: Columns, rows: Rows) -> tuple[dict[str, Rows], list[str]]:
    """Split the rows by a column `split`, if there is one."""
    name = next((column for column in table.header if column.lower() == SPLIT), "")
    if not name or name in columns.roles.values():
        return {"train": rows}, []
    rows_of: dict[str, list[int]] = {}
    for i, value in enumerate(table.column(name)):
        split = next((s for s, names in SPLITS.items() if value.strip().lower() in names), "")
        if not split:
            raise bad_data(table.name, f"split is {value!r}. Expected train, dev or test.", i + 1, "row")
        rows_of.setdefault(split, []).append(i)
    if "train" not in rows_of:
        raise bad_data(table.name, f"no row has the split train. Its splits are {', '.join(rows_of)}.")
    return {split: rows.take(chosen) for split, chosen in rows_of.items()}, [f"splits by the column '{name}'"]


def _guess_kind(labels: Sequence[str], has_pairs: bool) -> tuple[str, list[str]]:
    distinct = set(labels)
    if len(distinct) > MANY and all(is_number(label) for label in distinct):
        note = f"labels are {len(distinct)} different numbers, so a number is predicted (change that with --kind)"
        return REGRESSION, [note]
    return (PAIRS if has_pairs else CLASSIFICATION), []


# ------------------------------------------------------------------------------------------------ checks


def _has_decimal_comma(label: str) -> bool:
    return "," in label and is_number(label.replace(",", ".", 1))


def _require_decision(table: Table, label: str) -> None:
    """Raise if the first row may be a header: its label would be a class of its own, and otherwise the row is lost."""
    below = table.column(label)
    if table.is_header_sure or table.has_header or below.count(below[0]) > 1 or is_number(below[0]):
        return
    row = " | ".join(table.rows[0])
    problem = f"is the first row, {row[:60]!r}, a header? Its label occurs in no other row."
    raise InvalidSetting(f"{table.name}: {problem} Say so with --header or --no-header.", key="header", value=row)


def _require_labels(path: Path, splits: Mapping[str, Rows]) -> None:
    for split, rows in splits.items():
        blank = [i for i, label in enumerate(rows.labels or ()) if not label]
        if blank:
            problem = f"{len(blank)} of {len(rows)} rows of {split} have no label, this one first."
            raise bad_data(path, f"{problem} Fill them in or remove them.", blank[0] + 1, "row")


def _require_numbers(path: Path, splits: Mapping[str, Rows], kind: str) -> None:
    """Raise an error if some labels of a numeric column are not numbers.

    For regression, that is any of them. If no kind was given, it is those that stand for a missing number (nan) or have
    a decimal comma: they are hardly classes.
    """
    numbers = {label for label in splits["train"].labels or () if is_number(label) or _has_decimal_comma(label)}
    if kind != REGRESSION and (kind or len(numbers) <= MANY):
        return
    for split, rows in splits.items():
        invalid_labels = {i: label for i, label in enumerate(rows.labels or ()) if not is_number(label)}
        with_comma = [label for label in invalid_labels.values() if _has_decimal_comma(label)]
        missing = [label for label in invalid_labels.values() if label.lower().lstrip("+-") in NOT_NUMBERS]
        if invalid_labels and (kind or len(with_comma) + len(missing) == len(invalid_labels)):
            first, label = next(iter(invalid_labels.items()))
            fix = "Write decimals with a point" if with_comma else "Correct or remove them"
            problem = f"{label!r} is not a number, one of {len(invalid_labels):,} such labels of {split}."
            raise bad_data(path, f"{problem} {fix}, or use --kind {CLASSIFICATION}.", first + 1, "row")


def _check(data: TextDataset) -> TextDataset:
    """Return the data with its classes and notes, or raise an error that says what is wrong with it."""
    train, dev = data.splits["train"], data.splits.get("dev")
    labeled = {split: rows for split, rows in data.splits.items() if rows.labels is not None}
    labels = _find_classes(data.name, labeled) if data.kind not in (REGRESSION, CHOICE) else ()
    if not len(train) or dev is None or not len(dev):
        many = f" There are {len(labels):,} classes: is --label the right column?" if len(labels) > MANY else ""
        raise bad_data(
            data.name,
            f"too few rows: {len(train):,} for training, {len(dev or ()):,} for dev. Without a dev split, a tenth of "
            f"the rows is held out, and each class needs at least six rows.{many}",
        )
    if "dev" not in labeled:
        raise bad_data(data.name, "the dev split has no labels.")
    if data.is_numeric and data.scale[1] == 0:
        raise bad_data(data.name, f"every label is {(train.labels or [''])[0]}, so there is nothing to learn.")
    notes = [*(check_classes(labels, data.splits) if labels else ()), *check_splits(data.splits, data.is_numeric)]
    return replace(data, labels=labels, notes=(*data.notes, *notes))


def _find_classes(name: str, labeled: Mapping[str, Rows]) -> tuple[str, ...]:
    known = set(labeled["train"].labels or ())
    if len(known) < 2:
        problem = f"every training row has the label {next(iter(known))!r}."
        raise bad_data(name, f"{problem} Expected two classes or more; is --label the right column?")
    for split, rows in labeled.items():
        unseen = sorted(set(rows.labels or ()) - known)
        if unseen:
            more = f" and {len(unseen) - 5} more" if len(unseen) > 5 else ""
            shown = f"{', '.join(map(repr, unseen[:5]))}{more}"
            fix = "Correct them, or move rows with them into the training split."
            raise bad_data(name, f"{split} has labels that no training row has: {shown}. {fix}")
    return tuple(sorted(known, key=lambda label: (0, float(label), "") if is_number(label) else (1, 0.0, label)))
