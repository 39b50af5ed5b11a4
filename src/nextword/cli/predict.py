"""`nextword predict`: labels, numbers, tags or answers for the examples of a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from nextword.cli.console import Device, Json, Precision, Quiet, Run, console, emit_json, error_console, progress_bar

if TYPE_CHECKING:
    from nextword.tasks.predict import Prompt
    from nextword.tasks.prediction_files import FilePredictions

SHOTS = 8


def predict(
    run: Run,
    file: Annotated[
        str,
        typer.Argument(
            metavar="[FILE]",
            help="csv, tsv, jsonl, or one text per line; for a tagger also CoNLL columns; for questions also SQuAD's "
            "JSON. - is standard input.",
        ),
    ] = "-",
    text: Annotated[
        str, typer.Option("--text", metavar="COLUMN", help="Text column. Default: the one used in training.")
    ] = "",
    text_pair: Annotated[
        str, typer.Option("--text-pair", metavar="COLUMN", help="Column of the second text of a pair.")
    ] = "",
    labels: Annotated[
        str,
        typer.Option("--labels", metavar="A,B,C", help="Candidate labels, for a language model without a task head."),
    ] = "",
    template: Annotated[
        str,
        typer.Option("--template", help="Prompt after the text, with {label} in it. Default: This text is about …"),
    ] = "",
    examples: Annotated[
        str, typer.Option("--examples", metavar="FILE", help="Labeled texts for few-shot prompts.")
    ] = "",
    shots: Annotated[
        int, typer.Option("--shots", metavar="K", help="Number of few-shot examples in the prompt.", min=1)
    ] = SHOTS,
    seed: Annotated[int, typer.Option("--seed", help="Random seed for choosing few-shot examples.", min=0)] = 0,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Subtract each label's prior score (contextual calibration).")
    ] = False,
    ensemble: Annotated[
        list[str] | None,
        typer.Option("--ensemble", metavar="RUN", help="Average probabilities with this run, too. Repeatable."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Output file: .csv, .tsv or .jsonl; for tags .conll, .tsv or .jsonl; for answers also .json (SQuAD). "
            "Never overwrites. Default: standard output.",
        ),
    ] = None,
    task: Annotated[str, typer.Option("--task", help="Task to predict, for a multi-task run.")] = "",
    submission: Annotated[
        Path | None,
        typer.Option(
            "--submission",
            metavar="PLACE",
            help="Predict the official test sets into this folder or .zip, in the format of GLUE's server.",
        ),
    ] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict a label, a number, tags or an answer for every example of a file.

    The output is the input table with the columns `predicted` and p(LABEL). If the file has gold labels, scores are
    printed, too. In plain lines, a tab separates the two texts of a pair. A tagger reads one sentence or one word per
    line. Question answering reads the columns question and context; multiple choice reads context, question, choice0,
    choice1 and so on.

    With --labels or --examples, a language model without a task head chooses the most likely label (zero-shot or
    few-shot).

    [dim]Examples[/]
      nextword predict runs/bert-reviews new.csv --out labeled.csv
      nextword predict runs/bert-reviews new.jsonl --text body --out labeled.jsonl
      echo "A fine film." | nextword predict runs/bert-reviews
      nextword predict runs/several pairs.csv --task RTE
      nextword predict runs/glue --submission glue.zip
      nextword predict runs/forward new.csv --ensemble runs/backward
      echo "Ekeus heads for Baghdad." | nextword predict runs/ner
      nextword predict runs/squad dev-v1.1.json --out predictions.json
      nextword predict runs/gpt2 news.csv --labels "sports,politics,weather"
      nextword predict runs/gpt2 news.csv --labels "good,bad" --template "The film was {label}." --calibrate
      nextword predict runs/gpt2 news.csv --examples labeled.csv --shots 16
    """
    from nextword.data.tables import Columns
    from nextword.tasks.predict import predict_file

    if submission is not None:
        _submit(run, submission, file != "-" or output is not None, device, json, quiet)
        return
    with progress_bar("predicting", quiet=quiet or json) as update:
        predictions = predict_file(
            run,
            file,
            output=output,
            columns=Columns(text, text_pair),
            task=task,
            ensemble=ensemble or (),
            prompt=_prompt(labels, template, examples, shots, seed, calibrate),
            device=device,
            precision=precision,
            needs_content=output is not None or not json,
            progress=update,
        )
    if output is not None:
        predictions.write(output)
    if json:
        emit_json(predictions.as_json() | ({"file": str(output)} if output is not None else {}))
    else:
        _print(predictions, output, quiet)


def _prompt(labels: str, template: str, examples: str, shots: int, seed: int, calibrate: bool) -> Prompt | None:
    from nextword.core.errors import InvalidSetting
    from nextword.tasks.predict import Prompt

    if not labels and not examples:
        if template or calibrate:
            option = "--template" if template else "--calibrate"
            raise InvalidSetting(f"{option} needs candidate labels: add --labels A,B,C or --examples FILE.", key=option)
        return None
    names = [label.strip() for label in labels.split(",")] if labels else []
    return Prompt(names, template, calibrate, examples, shots, seed)


def _print(predictions: FilePredictions, output: Path | None, quiet: bool) -> None:
    if output is None:
        sys.stdout.write(predictions.content)
        sys.stdout.flush()
    else:
        console.print(f"[green]✓[/] {escape(predictions.summary)} → {escape(str(output))}", soft_wrap=True)
        for path in predictions.other_files:
            console.print(f"[green]✓[/] {escape(str(path))}", soft_wrap=True)
    if quiet:
        return
    for note in predictions.notes:
        error_console.print(f"[yellow]·[/] {escape(note)}", soft_wrap=True)
    if predictions.scores:
        scores = _format_scores(predictions.scores)
        error_console.print(f"against {escape(predictions.gold)}: {scores}", soft_wrap=True)


def _format_scores(scores: Mapping[str, float]) -> str:
    return " · ".join(f"{name} {100 * value:.1f}" for name, value in scores.items())


def _submit(run: str, place: Path, has_file: bool, device: str, json: bool, quiet: bool) -> None:
    from nextword.core.errors import InvalidSetting
    from nextword.tasks.submission import write_submission

    if has_file:
        raise InvalidSetting(
            "--submission predicts the official test sets. Leave FILE and --out out.", key="--submission"
        )
    with progress_bar("predicting", quiet=quiet or json) as update:
        written = write_submission(run, place, device, update)
    if json:
        emit_json({"run": run, "place": str(place), "files": written.files, "missing": list(written.missing)})
        return
    for name, count in written.files.items():
        console.print(f"[green]✓[/] {count:,} predictions → {escape(str(place))}: {name}", soft_wrap=True)
    if written.missing:
        console.print(f"[dim]· GLUE's server also expects {', '.join(written.missing)}[/]", soft_wrap=True)
