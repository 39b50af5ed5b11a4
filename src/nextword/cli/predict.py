"""`nextword predict`: labels, numbers, tags or answers for the examples of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from nextword.cli.console import (
    Device,
    Header,
    Json,
    PairColumn,
    Precision,
    Quiet,
    Run,
    emit_json,
    print_line,
    print_warnings,
    refuse_options,
    write_text,
)
from nextword.progress.display import error_console, progress_bar

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
            help="csv, tsv, jsonl, or one text per line; CoNLL for a tagger; SQuAD's JSON for questions; - is stdin.",
        ),
    ] = "-",
    columns: Annotated[
        str, typer.Option("--columns", metavar="A,B", help="Columns by name or number: text[,second text].")
    ] = "",
    header: Header = None,
    text: Annotated[
        str, typer.Option("--text", metavar="COLUMN", help="Text column. Default: the one used in training.")
    ] = "",
    text_pair: PairColumn = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Output file: .csv, .tsv, .jsonl; .conll for tags; .json (SQuAD) for answers. Default: stdout.",
        ),
    ] = None,
    task: Annotated[str, typer.Option("--task", help="Task to predict, for a multi-task run.")] = "",
    ensemble: Annotated[
        list[str] | None,
        typer.Option("--ensemble", metavar="RUN", help="Also average in the probabilities of this run. Repeatable."),
    ] = None,
    labels: Annotated[
        str,
        typer.Option("--labels", metavar="A,B,C", help="Candidate labels, for a language model without a task head."),
    ] = "",
    examples: Annotated[
        str, typer.Option("--examples", metavar="FILE", help="Labeled examples for few-shot prompts.")
    ] = "",
    shots: Annotated[int, typer.Option("--shots", help="Number of few-shot examples in the prompt.", min=1)] = SHOTS,
    template: Annotated[
        str, typer.Option("--template", help="Prompt after the text, with {label} in it. Default: This text is about …")
    ] = "",
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Subtract each label's prior score (contextual calibration).")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Random seed for choosing few-shot examples.", min=0)] = 0,
    submission: Annotated[
        Path | None,
        typer.Option("--submission", metavar="PATH", help="Write GLUE's submission files into this folder or .zip."),
    ] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict a label, a number, tags or an answer for every example of a file.

    The output is the input table with a column `predicted` and a column p(LABEL) for each label. If the file has gold
    labels, scores are printed, too. In plain lines, a tab separates the two texts of a pair. A tagger reads one
    sentence or one word per line. Question answering reads the columns question and context; multiple choice reads
    context, question, choice0, choice1 and so on. With --labels or --examples, a language model without a task head
    chooses the most likely label, and a model of sentence vectors the nearest one (zero-shot or few-shot).

    [dim]Examples[/]
      nextword predict runs/bert-reviews new.csv --out labeled.csv
      nextword predict runs/bert-reviews new.jsonl --text body --out labeled.jsonl
      echo "A fine film." | nextword predict runs/bert-reviews
      nextword predict runs/multitask pairs.csv --task RTE
      nextword predict runs/glue --submission glue.zip
      nextword predict runs/forward new.csv --ensemble runs/backward
      echo "Ekeus heads for Baghdad." | nextword predict runs/ner
      nextword predict runs/squad dev-v1.1.json --out predictions.json
      nextword predict runs/gpt2 news.csv --labels "sports,politics,weather"
      nextword predict minilm news.csv --labels "sports,politics,weather"
      nextword predict runs/gpt2 r.csv --labels good,bad --template "The film was {label}."
      nextword predict runs/gpt2 news.csv --examples labeled.csv --shots 16
    """
    from nextword.data.tables import parse_columns
    from nextword.tasks.predict import predict_file

    if submission is not None:
        refuse_options({"FILE": file != "-", "--out": out}, "--submission predicts the official test sets.")
        _write_submission(run, submission, device, json, quiet)
        return
    with progress_bar("predicting", quiet=quiet or json) as update:
        predictions = predict_file(
            run,
            file,
            output=out,
            columns=parse_columns(columns, header, text=text, second=text_pair, labeled=False),
            task=task,
            ensemble=ensemble or (),
            prompt=_prompt(labels, template, examples, shots, seed, calibrate),
            device=device,
            precision=precision,
            needs_content=out is not None or not json,
            progress=update,
        )
    if out is not None:
        predictions.write(out)
    if json:
        emit_json(predictions.as_json() | ({"file": str(out)} if out is not None else {}))
    else:
        _print(predictions, out, quiet)


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


def _print(predictions: FilePredictions, out: Path | None, quiet: bool) -> None:
    if out is None:
        write_text(predictions.content)
    else:
        print_line(f"[green]✓[/] {escape(predictions.summary)} → {escape(str(out))}")
        for path in predictions.other_files:
            print_line(f"[green]✓[/] {escape(str(path))}")
    if quiet:
        return
    print_warnings(predictions.notes)
    if predictions.scores:
        scores = " · ".join(f"{name} {100 * value:.1f}" for name, value in predictions.scores.items())
        error_console.print(f"against {escape(predictions.gold)}: {scores}", soft_wrap=True)


def _write_submission(run: str, target: Path, device: str, json: bool, quiet: bool) -> None:
    from nextword.tasks.submission import write_submission

    with progress_bar("predicting", quiet=quiet or json) as update:
        submission = write_submission(run, target, device, update)
    if json:
        emit_json({"run": run, "place": str(target), "files": submission.files, "missing": list(submission.missing)})
        return
    for name, count in submission.files.items():
        print_line(f"[green]✓[/] {count:,} predictions → {escape(str(target))}: {name}")
    if submission.missing:
        print_line(f"[dim]· GLUE's server also expects {', '.join(submission.missing)}[/]")
