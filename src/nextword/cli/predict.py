"""`nextword predict`: labels for texts, by a run that was transferred to a task, or by any language model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.answers import OFFICIAL, predict_answers, predict_choices
from nextword.cli.asking import SHOTS, chooser
from nextword.cli.console import console, emit_json, progress_bar
from nextword.cli.delivery import beside, compared, deliver, refuse_ending, refuse_taken, refuse_twice, unfinished
from nextword.cli.options import Device, Json, Precision, Quiet, Run
from nextword.cli.tags import TAG_ENDINGS
from nextword.cli.tags import predict_tags

ENDINGS = (".csv", ".tsv", ".jsonl")


def predict(
    run: Run,
    file: Annotated[
        str,
        typer.Argument(
            metavar="[FILE]",
            help="csv, tsv, jsonl, or one text a line; for a tagger also a word a line; for questions also the JSON of "
            "SQuAD; - is standard input, where a csv is known by its header.",
        ),
    ] = "-",
    text: Annotated[str, typer.Option("--text", metavar="COLUMN", help="Where the text is. Default: as it was.")] = "",
    second: Annotated[str, typer.Option("--second", metavar="COLUMN", help="The other text of a pair.")] = "",
    labels: Annotated[
        str, typer.Option("--labels", metavar="A,B,C", help="Of a language model without a head: choose among these.")
    ] = "",
    template: Annotated[
        str, typer.Option("--template", help="What follows the text, with {label} in it. Default: This text is about …")
    ] = "",
    examples: Annotated[
        str, typer.Option("--examples", metavar="FILE", help="Labelled texts, of which some stand before every text.")
    ] = "",
    shots: Annotated[int, typer.Option("--shots", metavar="K", help="How many of --examples.", min=1)] = SHOTS,
    seed: Annotated[int, typer.Option("--seed", help="Of which --examples are drawn.", min=0)] = 0,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Take off what labels are worth without the text.")
    ] = False,
    others: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="RUN", help="Another run of the same task; probabilities are averaged."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help=".csv, .tsv, .jsonl; of tags .conll, .tsv, .jsonl; of answers also .json, as SQuAD's script reads it. "
            "A file that is there is not overwritten. Default: standard output.",
        ),
    ] = None,
    task: Annotated[str, typer.Option("--task", help="Which, of a run that has learnt several.")] = "",
    submission: Annotated[
        Path | None,
        typer.Option(
            "--submission",
            metavar="PLACE",
            help="Official test sets instead of a file, as GLUE's server (or another) wants them.",
        ),
    ] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """The label of every text and the probability of each label, beside the columns that were there.

    Where the file has the right labels too, how many were found is said, and labels that training never saw are named.
    In plain lines a tab divides two texts. A tagger writes a word and its tag on each line, or JSON with the spans. A
    run that answers questions reads the columns question and context, one that chooses context, question and choice0,
    choice1 and so on. With --with, as often as you like, the probabilities are the mean of those of several runs, for
    example of one that reads forwards and one backwards.

    With --labels no head is needed: a language model scores each label behind the text, and the likeliest is taken.
    With --examples it is shown some solved ones first, and their labels are those it chooses among.

    [dim]Examples[/]
      nextword predict runs/bert-reviews new.csv --output labelled.csv
      nextword predict runs/bert-reviews new.jsonl --text body --output labelled.jsonl
      echo "A fine film." | nextword predict runs/bert-reviews
      nextword predict runs/several pairs.csv --task RTE
      nextword predict runs/glue --submission glue.zip
      nextword predict runs/forward new.csv --with runs/backward
      echo "Ekeus heads for Baghdad." | nextword predict runs/ner
      nextword predict runs/squad dev-v1.1.json --output predictions.json
      nextword predict runs/gpt2 news.csv --labels "sports,politics,weather"
      nextword predict runs/gpt2 news.csv --labels "good,bad" --template "The film was {label}." --calibrate
      nextword predict runs/gpt2 news.csv --examples labelled.csv --shots 16
    """
    from nextword.contract_errors import NextwordError
    from nextword.corpora.marks import holding
    from nextword.loading_lm import load
    from nextword.transfer.checks import empty
    from nextword.transfer.missing_words import told_of_rows
    from nextword.transfer.tables import LABELS, read_table

    if submission is not None:
        if file != "-" or output is not None:
            raise NextwordError("--submission reads the test files of the tasks: leave FILE and --output out.")
        _submit(run, submission, device, json, quiet)
        return
    if output is not None:
        if output.suffix not in (*ENDINGS, *TAG_ENDINGS, OFFICIAL):
            raise NextwordError(f"--output {output}: predictions are written as {', '.join(ENDINGS)}.")
        if not output.parent.is_dir():
            raise NextwordError(f"--output {output}: there is no folder {output.parent}.")
        if output.is_dir() or not os.access(output if output.exists() else output.parent, os.W_OK):
            why = "that is a folder" if output.is_dir() else "this user may not write there"
            raise NextwordError(f"--output {output}: {why}. Give another file.")
        refuse_taken("--output", output)
    lm: Any = load(run, device, precision)
    chosen = bool(labels or examples)
    if (template or calibrate) and not chosen:
        raise NextwordError(
            "--template and --calibrate are for choosing among labels: name those with --labels, or give --examples."
        )
    if chosen and "predict" in lm.can:
        option = "--labels" if labels else "--examples"
        raise NextwordError(f"{run} carries a task's head, which has labels of its own: leave {option} out.")
    told = unfinished([run, *(others or ())]) if not chosen else []
    table = read_table(file, holding(text, second)) if chosen else None
    if chosen:
        lm, told = chooser(lm, run, labels, template, calibrate, examples, shots, seed, table, text)
    if others:
        from nextword.predicting import Averaged

        lm = Averaged([lm, *(load(other, device, precision) for other in others)])
        run = lm.name
    if lm.can >= {"predict"} and lm.settings.kind == "tag":
        from nextword.cli.many_tags import predict_many

        if task:
            raise NextwordError(f"--task {task}: {run} tags words, of all its tasks at once. Leave --task out.")
        for option, column in (("--text", text), ("--second", second)):
            if column:
                raise NextwordError(
                    f"{option} {column}: {run} tags words, and reads a sentence a line, or a word a line: there is no "
                    f"column to name. Leave {option} out, and give the texts alone."
                )
        (predict_many if lm.settings.tasks else predict_tags)(lm, run, file, output, told, json, quiet)
        return
    if "predict" in lm.can and lm.settings.kind in ("span", "choice"):
        predicted = predict_answers if lm.settings.kind == "span" else predict_choices
        predicted(lm, run, file, text, second, output, told, json, quiet)
        return
    refuse_ending(output, ENDINGS)
    if "predict" not in lm.can:
        raise NextwordError(
            f"{run} carries no task's head. Transfer it first: nextword transfer bert/finetune --from {run} --data FILE"
            " (or choose among labels of your own: --labels A,B,C, after some --examples FILE)"
        )
    if hasattr(lm, "of"):
        lm = lm.of(task)
    elif task:
        raise NextwordError(f"--task {task}: {run} has learnt one task alone. Leave --task out.")
    own = lm.settings
    looked_for = holding(text or own.text, (second or own.second) if lm.pairs else "")
    table = table or read_table(file, looked_for)
    if chosen:
        lm.settings = replace(lm.settings, label=next((n for n in table.header if n.lower() in LABELS), ""))
    refuse_twice(table, output)
    columns = _columns(table, lm, text, second)
    rows = table.rows_of(columns)
    with progress_bar("predicting", len(rows) * (1 + len(others or ())), quiet or json) as update:
        given: Sequence[Any] = rows.texts if rows.seconds is None else list(zip(rows.texts, rows.seconds, strict=True))
        notes = [*table.notes, *told, *_read_from(table, lm, columns, text), *empty("", rows)]
        notes += told_of_rows(lm, rows)
        found = lm.predict(given, update, notes)
    measured, more = _measured(lm, table, found, chosen)
    notes += more
    ending = output.suffix if output else ".csv"
    written, more = _written(table, found, lm.settings.labels, ending) if output or not json else ("", [])
    facts = None
    if json:
        each = [_fields(one) for one in found]
        facts = {"run": run, "labels": list(lm.settings.labels), "measured": measured, "predictions": each}
    deliver(written, output, f"{len(found):,} predictions", [*notes, *more], quiet, facts)
    compared(measured, f"the column '{lm.settings.label}'", quiet or json)


def _submit(run: str, place: Path, device: str, json: bool, quiet: bool) -> None:
    """Of a run, or of the folder of a suite: into a folder, or a zip."""
    from nextword.transfer.submission import lacking, predictions, refuse_taken, save, sizes

    refuse_taken(run, place)
    with progress_bar("predicting", quiet=quiet or json) as update:
        files = predictions(run, device, lambda name, done, total: update(done, total))
    save(files, place)
    rows = sizes(files)
    if json:
        emit_json({"run": run, "place": str(place), "files": rows, "lacking": lacking(files)})
        return
    for name, count in rows.items():
        console.print(f"[green]✓[/] {count:,} predictions → {escape(str(place))}: {name}", soft_wrap=True)
    if lacking(files):
        console.print(f"[dim]· GLUE's server wants these besides: {', '.join(lacking(files))}[/]", soft_wrap=True)


def _columns(table: Any, lm: Any, text: str, second: str) -> Any:
    """As they were called in training; in a file of plain lines, or where no such column is, as they are guessed."""
    from nextword.contract_errors import NextwordError
    from nextword.transfer.tables import Columns, guess

    settings = lm.settings
    text = text or (settings.text if settings.text in table.header else "")
    second = second or (settings.second if settings.second in table.header else "")
    found = guess(table, Columns(text, second if lm.pairs else ""), labelled=False)
    if lm.pairs and not found.second:
        raise NextwordError(
            f"{lm.name} reads two texts, and {table.name} has the columns {', '.join(table.header[:8])}. Name the "
            "other text with --second; in plain lines a tab divides the two."
        )
    return Columns(found.text, found.second if lm.pairs else "")


def _read_from(table: Any, lm: Any, columns: Any, asked: str) -> list[str]:
    """Where texts are read that nobody named, and that are called otherwise than in training."""
    from nextword.transfer.tables import like_a_header

    known = lm.settings.text
    if table.kind == "lines":
        first = "\t".join(table.rows[0])
        notes = []
        if like_a_header(first):
            lacking = f", and holds no '{known}', the column of training" if known else ""
            notes.append(
                f"the first line, {first!r}, looks like a header{lacking}: it is read as a text. Name the column of a "
                "table with --text, or give it as a file, NAME.csv"
            )
        if len(table.header) > 1 and not lm.pairs:
            notes.append(f"a text is what stands in '{columns.text}', and the rest of a line, after a tab, is not read")
        return notes
    if asked or columns.text == known:
        return []
    lacking = f"there is no column '{known}' as in training, and " if known else ""
    doubt = " (the first line is read as a header)" if table.kind != "jsonl" else ""
    return [f"{lacking}texts are read from '{columns.text}'{doubt}: --text names another"]


def _measured(lm: Any, table: Any, found: Sequence[Any], chosen: bool) -> tuple[dict[str, float], list[str]]:
    """The task's metrics on the rows that have a right label which is known (`chosen`: of --labels); and the others."""
    import numpy as np

    from nextword.metrics import METRICS, OF_NUMBERS
    from nextword.transfer.data import is_number

    settings = lm.settings
    if not settings.label or settings.label not in table.header:
        return {}, []
    gold = [one.strip() for one in table.column(settings.label)]
    regress = settings.kind == "regress"
    known = [is_number(one) if regress else one in settings.labels for one in gold]
    there = [i for i, fits in enumerate(known) if fits]
    other = "are not among --labels" if chosen else "are none that training had"
    notes = _left_out(settings.label, gold, known, "are no numbers" if regress else other)
    if not there:
        return {}, notes
    if regress:
        right = np.array([float(gold[i]) for i in there])
        said = np.array([found[i].value for i in there])
    else:
        right = settings.encoded([gold[i] for i in there])
        said = settings.encoded([found[i].label for i in there])
    return {name: METRICS[name](right, said) for name in settings.metrics if (name in OF_NUMBERS) == regress}, notes


def _left_out(column: str, gold: Sequence[str], known: Sequence[bool], why: str) -> list[str]:
    """Rows without a label, and those whose label cannot be compared: named, and not measured."""
    blank = sum(not label for label in gold)
    odd = list(dict.fromkeys(label for label, fits in zip(gold, known, strict=True) if label and not fits))
    notes = []
    if blank and blank < len(gold):
        notes.append(f"{blank:,} of {len(gold):,} rows have nothing in the column '{column}': they are not measured")
    if odd:
        n = sum(bool(label) and not fits for label, fits in zip(gold, known, strict=True))
        shown = ", ".join(odd[:5]) + (", …" if len(odd) > 5 else "")
        labels = f"{n:,} of {len(gold):,} labels of the column '{column}'"
        notes.append(f"{labels} {why} ({shown}): these rows are not measured")
    return notes


def _fields(one: Any) -> dict[str, Any]:
    if one.value is not None:
        return {"predicted": one.value}
    return {"predicted": one.label, "probabilities": dict(one.probabilities)}


def _written(table: Any, found: Sequence[Any], labels: Sequence[str], ending: str) -> tuple[str, list[str]]:
    """The table with `predicted` beside it, and a column p(label) for every label."""
    if ending == ".jsonl":
        return beside(table, [_fields(one) for one in found], ending)
    cells = [
        {"predicted": f"{one.value:.6g}" if one.value is not None else one.label}
        | {f"p({label})": f"{one.probabilities[label]:.6f}" for label in labels}
        for one in found
    ]
    return beside(table, cells, ending)
