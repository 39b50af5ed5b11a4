"""Predict the examples of a file with a fine-tuned run, an ensemble of runs, or a prompted language model.

predictions = predict_file("runs/reviews", "new.csv")
predictions.scores  # {"accuracy": …} if the file has labels
predictions.write(Path("labeled.csv"))
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nextword.core.errors import InvalidSetting, Unsupported, invalid
from nextword.core.io import refuse_existing
from nextword.data.files import STDIN
from nextword.data.tables import LABEL_NAMES, Columns, Table, guess_columns, has_columns, has_label_columns, read_table
from nextword.lm.base import TextModel
from nextword.lm.loading import load
from nextword.run_folder import RunFolder
from nextword.tasks.classification import AveragedClassifier
from nextword.tasks.datasets.base import bad_data
from nextword.tasks.in_context import SECOND, TEMPLATE, NearestLabelClassifier, draw_shots, zero_shot_class
from nextword.tasks.prediction_files import FilePredictions, PredictionRequest, Progress, predict_table


@dataclass(frozen=True)
class Prompt:
    """Labels for a language model to choose from, with or without solved examples before each text."""

    labels: Sequence[str] = ()  # (): those of the examples
    template: str = ""
    is_calibrated: bool = False  # subtract each label's prior score
    examples: str = ""  # a file of labeled texts
    shots: int = 8  # how many of them
    seed: int = 0


def predict_file(
    run: str,
    file: str = STDIN,
    *,
    output: Path | None = None,
    columns: Columns = Columns(),
    task: str = "",
    ensemble: Sequence[str] = (),
    prompt: Prompt | None = None,
    device: str = "auto",
    precision: str = "fp32",
    needs_content: bool = True,
    progress: Progress | None = None,
) -> FilePredictions:
    """Predict the examples of a file. Nothing is written: see `FilePredictions.write`.

    `ensemble`: further runs of the same task; their probabilities are averaged. `prompt`: choose among labels with a
    language model that has no head.
    """
    if output is not None:
        _require_writable(output)
    request = PredictionRequest(file, output, columns, task, needs_content, progress)
    model = load(run, device, precision)
    if prompt is not None:
        return _predict_prompted(model, run, prompt, request)
    if "predict" not in model.can:
        advice = f"Fine-tune it first: nextword transfer bert/finetune --from {run} --data FILE."
        raise Unsupported(f"{run} has no task head. {advice} Or choose with --labels or --examples.", ability="predict")
    if ensemble:
        model = AveragedClassifier([model, *(load(other, device, precision) for other in ensemble)])
    predictions: FilePredictions = model.task.predict_file(model, request)
    notes = [*_unfinished_notes([run, *ensemble]), *predictions.notes]
    return replace(predictions, run=model.name if ensemble else run, notes=notes)


def _require_writable(output: Path) -> None:
    """Fail before the model is loaded if the output cannot be written."""
    problem = ""
    if not output.parent.is_dir():
        problem = f"is in the folder {output.parent}, which does not exist."
    elif output.is_dir():
        problem = "is a folder."
    elif not os.access(output if output.exists() else output.parent, os.W_OK):
        problem = "cannot be written: permission denied."
    if problem:
        raise invalid("--out", str(output), problem)
    refuse_existing("--out", output)


def _unfinished_notes(runs: Sequence[str]) -> list[str]:
    return [
        f"{run} is not finished, so its latest checkpoint predicts. Resume it: nextword transfer --resume --out {run}"
        for run in runs
        if not RunFolder.open(run).is_finished
    ]


# ------------------------------------------------------------------------------------------------ prompted models


def _predict_prompted(model: TextModel, run: str, prompt: Prompt, request: PredictionRequest) -> FilePredictions:
    if "predict" in model.can:
        option = "--labels" if prompt.labels else "--examples"
        problem = f"{run} has a task head with labels of its own. Leave {option} out."
        raise InvalidSetting(problem, key=option, value=run)
    own = request.columns
    names = [name for name in (own.text, own.second) if name]
    table = read_table(request.file, has_columns(*names), header=own.has_header, expected=names)
    labels = list(prompt.labels)
    shots: list[tuple[str, str]] = []
    notes: list[str] = []
    if prompt.examples:
        if SECOND in prompt.template:
            command = f"nextword transfer gpt3/in-context --from {run} --data {prompt.examples}"
            problem = f"has two texts, and --examples have one. For pairs: {command}"
            raise invalid("--template", prompt.template, problem)
        texts, gold, notes = _read_examples(prompt.examples, labels, table, request.columns.text)
        labels = labels or sorted(set(gold))
        shots = draw_shots(texts, gold, prompt.shots, prompt.seed)
        counts = ", ".join(f"{sum(label == name for _, label in shots)} of {name!r}" for name in labels)
        notes.append(f"{len(shots)} examples of {prompt.examples} precede every text ({counts})")
    template = prompt.template or TEMPLATE
    cls = zero_shot_class(model)
    classifier = cls(model, labels, template, prompt.is_calibrated, run, shots)
    label_column = next((name for name in table.header if name.lower() in LABEL_NAMES), "")
    calibrate = "" if prompt.is_calibrated or cls is NearestLabelClassifier else "--calibrate, "
    advice = f"Try {calibrate}other words for the labels, or --examples"
    predictions = predict_table(classifier, request, table, label_column, "not among --labels", advice)
    return replace(predictions, run=run, notes=[*notes, *predictions.notes])


def _read_examples(file: str, labels: Sequence[str], table: Table, text: str) -> tuple[list[str], list[str], list[str]]:
    """Read few-shot examples: those with one of the labels whose text is not in the table to predict."""
    source = read_table(file, has_label_columns(), min_columns=2)
    columns = guess_columns(source, Columns(text if text in source.header else ""))
    rows = source.rows_of(Columns(columns.text, "", columns.label))
    to_predict = {cell.strip() for row in table.rows for cell in row}
    kept: list[tuple[str, str]] = []
    skipped: dict[str, int] = {}
    for example, label in zip(rows.texts, rows.labels or (), strict=True):
        text = example.strip()
        if not text or not label:
            reason = "have no text or no label"
        elif text in to_predict:
            reason = "are to be predicted"
        elif labels and label not in labels:
            reason = "have a label that is not among --labels"
        else:
            kept.append((text, label))
            continue
        skipped[reason] = skipped.get(reason, 0) + 1
    notes = [f"skipped {n:,} of {len(rows):,} rows of {file}, which {reason}" for reason, n in skipped.items()]
    if not kept:
        raise bad_data(file, f"none of its {len(rows):,} rows can be an example. {'; '.join(notes)}.")
    return [text for text, _ in kept], [label for _, label in kept], notes
