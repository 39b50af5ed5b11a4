"""Predictions for the examples of a file: what is asked for, what comes back, and tables of texts.

    file ──read──▶ examples ──predict──▶ predictions ──score, if the file has labels──▶ FilePredictions ──write──▶ file

How a file is read and written depends on the task: `Task.predict_file` takes a `PredictionRequest` and returns
`FilePredictions`. Its default is `predict_texts`: a csv, tsv, JSON lines or plain lines come back with the columns
`predicted` and p(LABEL). Other tasks have functions of their own in their files.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import invalid
from nextword.core.types import Prediction
from nextword.data.tables import Columns, Table, guess_columns, has_columns, looks_like_header, read_table
from nextword.metrics.classification import METRICS, REGRESSION_METRICS
from nextword.tasks.classification import TextPredictor
from nextword.tasks.data_checks import count_empty_texts
from nextword.tasks.datasets.base import bad_data, is_number
from nextword.tasks.unknown_words import unknown_word_notes

TABLES = (".csv", ".tsv", ".jsonl")
MAX_NAMED = 5  # labels or tags in a note
MAX_LABEL_LENGTH = 40  # characters of a label in a note
MIN_ROWS_OF_ONE_LABEL = 8  # rows that must agree before predicting a single label is suspicious
Progress = Callable[[int, int], None]
Record = dict[str, Any]


@dataclass(frozen=True)
class PredictionRequest:
    """What to predict, and how to write it."""

    file: str
    output: Path | None = None
    columns: Columns = field(default_factory=Columns)  # that the user named
    task: str = ""  # of a run with several
    needs_content: bool = True  # False: only the records are used
    progress: Progress | None = None

    def suffix(self, allowed: Sequence[str], default: str, what: str = "predictions") -> str:
        if self.output is not None and self.output.suffix not in allowed:
            raise invalid("--out", str(self.output), f"is not {', '.join(allowed)}, the formats of {what}.")
        return self.output.suffix if self.output else default

    def reject(self, option: str, value: str, why: str) -> None:
        if value:
            raise invalid(option, value, f"cannot be used: {why}. Leave it out.")


@dataclass(frozen=True)
class FilePredictions:
    content: str  # of the output file
    records: list[Record]  # one per example, for --json
    summary: str  # "40 predictions"
    labels: Sequence[str] | Mapping[str, Sequence[str]]  # the labels, or those of each task
    scores: Mapping[str, float] = field(default_factory=dict)  # if the file has labels
    gold: str = ""  # where the labels come from
    notes: Sequence[str] = ()
    other_files: Mapping[Path, str] = field(default_factory=dict)
    run: str = ""
    unit: str = "predictions"  # the name of the records in JSON

    def write(self, output: Path) -> None:
        for path, content in {output: self.content, **self.other_files}.items():
            path.write_text(content, encoding="utf-8")

    def as_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "labels": self.labels,
            "scores": dict(self.scores),
            self.unit: self.records,
            "notes": list(self.notes),
        }


# ------------------------------------------------------------------------------------------------ texts


def predict_texts(model: TextPredictor, request: PredictionRequest) -> FilePredictions:
    """Predict labels or numbers for texts or pairs of texts."""
    request.reject("--task", request.task, f"{model.name} has a single task")
    config, named = model.task.config, request.columns
    second = (named.second or config.second) if model.is_pair else ""
    expected = [name for name in (named.text, named.second) if name]
    wanted = has_columns(named.text or config.text, second)
    table = read_table(request.file, wanted, header=named.has_header, expected=expected)
    return predict_table(model, request, table, config.label)


def predict_table(
    model: TextPredictor,
    request: PredictionRequest,
    table: Table,
    label_column: str,
    unknown_labels: str = "not seen in training",
    advice: str = "The model may not have learned the task: compare its dev scores with the baselines in its report",
) -> FilePredictions:
    """`unknown_labels` says what is wrong with a label that the model cannot predict, `advice` what may help if it
    predicts the same label everywhere."""
    suffix = request.suffix(TABLES, ".csv")
    require_unique_columns(table, request.output)
    columns = _choose_columns(table, model, request.columns)
    rows = table.rows_of(columns)
    notes = [*table.notes, *_column_notes(table, model, columns, request.columns), *count_empty_texts(rows)]
    unknown = unknown_word_notes(model, [*rows.texts, *(rows.seconds or ())])
    notes += [f"{note}: predictions rest on the other words" for note in unknown]
    texts: Sequence[Any] = rows.texts if rows.seconds is None else list(zip(rows.texts, rows.seconds, strict=True))
    predictions = model.predict(texts, request.progress, notes)
    notes += _same_label_notes(predictions, advice)
    label_column = label_column if _can_be_labels(table, label_column, columns, model) else ""
    scores, more = _score_texts(model, table, predictions, label_column, unknown_labels)
    notes += more
    labels, content = list(model.task.config.labels), ""
    if request.needs_content:
        cells = [_text_cells(prediction, labels, suffix) for prediction in predictions]
        content, more = add_columns(table, cells, suffix)
        notes += more
    records = [text_record(prediction) for prediction in predictions]
    summary, gold = f"{len(predictions):,} predictions", f"the column '{label_column}'"
    return FilePredictions(content, records, summary, labels, scores, gold, notes)


def _same_label_notes(predictions: Sequence[Prediction], advice: str) -> list[str]:
    """A note if every row got the same label, although there are rows enough to expect others."""
    labels = {prediction.label for prediction in predictions if prediction.value is None}
    if len(labels) != 1 or len(predictions) < MIN_ROWS_OF_ONE_LABEL:
        return []
    return [f"all {len(predictions):,} rows got the label '{labels.pop()}'. {advice}"]


def text_record(prediction: Prediction) -> Record:
    if prediction.value is not None:
        return {"predicted": prediction.value}
    return {"predicted": prediction.label, "probabilities": dict(prediction.probabilities)}


def _text_cells(prediction: Prediction, labels: Sequence[str], suffix: str) -> Record:
    if suffix == ".jsonl":
        return text_record(prediction)
    if prediction.value is not None:
        return {"predicted": f"{prediction.value:.6g}"}
    probabilities = {f"p({label})": f"{prediction.probabilities[label]:.6f}" for label in labels}
    return {"predicted": prediction.label, **probabilities}


def _choose_columns(table: Table, model: TextPredictor, named: Columns) -> Columns:
    """Take the columns that were named, else those of training if the table has them, else guess."""
    config = model.task.config
    text = named.text or (config.text if config.text in table.header else "")
    second = named.second or (config.second if config.second in table.header else "")
    guessed = guess_columns(table, Columns(text, second if model.is_pair else ""), labeled=False)
    if model.is_pair and not guessed.second:
        names = ", ".join(table.header[:8])
        fix = "Name the second text with --text-pair; in plain lines, separate the two texts with a tab."
        raise bad_data(table.name, f"{model.name} reads pairs of texts, and the columns are {names}. {fix}")
    return Columns(guessed.text, guessed.second if model.is_pair else "", header=named.header)


def _column_notes(table: Table, model: TextPredictor, columns: Columns, named: Columns) -> list[str]:
    """Report which column is read if the user did not name it and training used another."""
    trained = model.task.config.text
    if table.kind == "lines":
        first, notes = "\t".join(table.rows[0]), []
        if looks_like_header(first):
            absent = f" without '{trained}', the column of training" if trained else ""
            notes.append(
                f"the first line, {first!r}, looks like a header{absent}, but is read as a text. Name the text column "
                "with --text, or pass the table as a file, NAME.csv"
            )
        if len(table.header) > 1 and not model.is_pair:
            notes.append(f"texts are read from '{columns.text}'; the rest of each line, after a tab, is ignored")
        return notes
    if named.text or columns.text == trained:
        return []
    absent = f"there is no column '{trained}' as in training; " if trained else ""
    header = " (the first line is read as a header)" if table.is_delimited and table.has_header else ""
    return [f"{absent}texts are read from '{columns.text}'{header}. Use --text to name another"]


def _can_be_labels(table: Table, label_column: str, read: Columns, model: TextPredictor) -> bool:
    """Whether a column holds labels: no text is read from it, and a column's number means what it meant in training."""
    is_same_layout = table.has_header or read.text == (model.task.config.text or read.text)
    return label_column in table.header and label_column not in (read.text, read.second) and is_same_layout


def _score_texts(
    model: TextPredictor, table: Table, predictions: Sequence[Prediction], label_column: str, unknown_labels: str
) -> tuple[dict[str, float], list[str]]:
    """Score the rows that have a known label; return the scores, and notes about the other rows."""
    if not label_column:
        return {}, []
    task = model.task
    gold = [cell.strip() for cell in table.column(label_column)]
    is_known = [is_number(cell) if task.is_numeric else cell in task.config.labels for cell in gold]
    notes = _unscored_notes(label_column, gold, is_known, "not numbers" if task.is_numeric else unknown_labels)
    scored = [i for i, known in enumerate(is_known) if known]
    if not scored:
        return {}, notes
    if task.is_numeric:
        right = np.array([float(gold[i]) for i in scored])
        predicted = np.array([predictions[i].value for i in scored])
    else:
        right = task.encode_labels([gold[i] for i in scored])
        predicted = task.encode_labels([predictions[i].label for i in scored])
    names = [name for name in task.config.metrics if (name in REGRESSION_METRICS) == task.is_numeric]
    return {name: METRICS[name](right, predicted) for name in names}, notes


def _unscored_notes(column: str, gold: Sequence[str], is_known: Sequence[bool], why: str) -> list[str]:
    empty = sum(not label for label in gold)
    unknown = [label for label, known in zip(gold, is_known, strict=True) if label and not known]
    notes = []
    if 0 < empty < len(gold):
        notes.append(f"{empty:,} of {len(gold):,} rows have no label in the column '{column}' and are not scored")
    if unknown:
        shown = shorten_list(list(dict.fromkeys(unknown)))
        count = f"{len(unknown):,} of {len(gold):,} labels of the column '{column}'"
        notes.append(f"{count} are {why} and not scored ({shown})")
    return notes


def shorten_list(names: Sequence[str]) -> str:
    shown = (
        name if len(name) <= MAX_LABEL_LENGTH else f"{name[: MAX_LABEL_LENGTH - 1]}…" for name in names[:MAX_NAMED]
    )
    return ", ".join(shown) + (", …" if len(names) > MAX_NAMED else "")


# ------------------------------------------------------------------------------------------------ writing tables

PREDICTED = "predicted"
PROBABILITY_COLUMN = re.compile(r"probabilities|p\(.*\)", re.DOTALL)
TSV_BREAKS = re.compile(r"[\t\r\n]+")


def require_unique_columns(table: Table, output: Path | None) -> None:
    """JSON lines cannot have two columns of one name."""
    twice = next((name for name in table.header if table.header.count(name) > 1), None)
    if twice is not None and output is not None and output.suffix == ".jsonl":
        fix = f"Rename one, or write {output.with_suffix('.csv')}."
        raise bad_data(table.name, f"there are two columns {twice!r}, which JSON cannot represent. {fix}")


def write_table(
    table: Table, cells: Sequence[Record], suffix: str, request: PredictionRequest, notes: Sequence[str]
) -> tuple[str, list[str]]:
    if not request.needs_content:
        return "", list(notes)
    content, more = add_columns(table, cells, suffix)
    return content, [*notes, *more]


def add_columns(table: Table, cells: Sequence[Record], suffix: str) -> tuple[str, list[str]]:
    """Write a table with further columns on the right, and return it with notes.

    Columns of earlier predictions are replaced, whichever format they were written in. JSON lines keep their values'
    types. A .tsv has no quoting: the tab and the line break are its only delimiters, as in the reader.
    """
    new = list(cells[0]) if cells else []
    has_predictions = PREDICTED in table.header and PREDICTED in new
    old = [n for n in table.header if n in new or (has_predictions and PROBABILITY_COLUMN.fullmatch(n))]
    notes = [f"replaced the columns {', '.join(map(repr, old))}"] if old else []
    kept = [i for i, name in enumerate(table.header) if name not in old]
    if suffix == ".jsonl":
        objects = table.objects or [dict(zip(table.header, row, strict=True)) for row in table.rows]
        rest = [{key: value for key, value in item.items() if key not in old} for item in objects]
        return json_lines({**item, **more} for item, more in zip(rest, cells, strict=True)), notes
    rows: list[list[str]] = [[*(table.header[i] for i in kept), *new]]
    rows += ([*(row[i] for i in kept), *more.values()] for row, more in zip(table.rows, cells, strict=True))
    if suffix == ".tsv":
        flat = [[" ".join(TSV_BREAKS.split(str(cell))) for cell in row] for row in rows]
        changed = sum(before != after for before, after in zip(rows, flat, strict=True))
        if changed:
            notes.append(f"replaced tabs and line breaks by spaces in {changed:,} rows, since a .tsv has no quoting")
        return "".join("\t".join(row) + "\n" for row in flat), notes
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue(), notes


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
