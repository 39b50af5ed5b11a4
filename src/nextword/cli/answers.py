"""`nextword predict` of a run that answers questions out of passages, and of one that chooses between candidates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from nextword.cli.console import console, progress_bar
from nextword.cli.delivery import beside, compared, deliver, refuse_ending, refuse_taken, refuse_twice

OFFICIAL = ".json"
ANSWER_TABLES = (".csv", ".tsv", ".jsonl")
ANSWER_ENDINGS = (OFFICIAL, *ANSWER_TABLES)
NO_ANSWER = ".na_prob.json"  # beside the official file, for SQuAD 2.0's script


def predict_answers(
    lm: Any,
    run: str,
    file: str,
    text: str,
    second: str,
    output: Path | None,
    told: Sequence[str],  # what is to be known of the run
    json: bool,
    quiet: bool,
) -> None:
    """SQuAD's official file of predictions, {id: text}; or a table with the answer beside each question."""
    from nextword.metrics.answers import measured
    from nextword.transfer.questions import read_questions, told_of_empty
    from nextword.transfer.tables import Columns, Table

    refuse_ending(output, ANSWER_ENDINGS)
    settings = lm.settings
    beside_it = None
    if output is not None and output.suffix == OFFICIAL and settings.unanswered:
        beside_it = output.with_name(output.stem + NO_ANSWER)
        refuse_taken("--output", beside_it)
    named = Columns(text or settings.text, second or settings.second, settings.label)
    questions, _, table = read_questions(file, named, insist=Columns(text, second))
    notes = [*told, *told_of_empty(questions)]
    if table is not None:
        refuse_twice(table, output)
        notes = [*table.notes, *notes]
    with progress_bar("answering", len(questions), quiet or json) as update:
        found = lm.predict(questions.all, lambda done, of: update(done * len(questions) // of, len(questions)), notes)
    numbers = {}
    if questions.labelled:
        golds = [one.answers or () for one in questions.all]
        numbers = measured(settings.metrics, [one.text for one in found], golds, settings.unanswered)
    ending = output.suffix if output else OFFICIAL if table is None else ".csv"
    written = ""
    if ending == OFFICIAL:
        written = _official({one.id: one.text for one in found})
    elif output or not json:
        cells = [_cells(one, settings.unanswered, ending) for one in found]
        own = Table(file, ["id", "question"], [[one.id, one.question] for one in questions.all])
        written, more = beside(table or own, cells, ending)
        notes += more
    if beside_it is not None:
        beside_it.write_text(_official({one.id: one.none for one in found}), encoding="utf-8")
    each = [_answer_fields(one, settings.unanswered) for one in found]
    facts = {"run": run, "measured": numbers, "predictions": each} if json else None
    deliver(written, output, f"{len(found):,} answers", notes, quiet, facts)
    if beside_it is not None and not json:
        console.print(f"[green]✓[/] probabilities of no answer → {escape(str(beside_it))}", soft_wrap=True)
    compared(numbers, f"the answers in {questions.name}", quiet or json)


def predict_choices(
    lm: Any,
    run: str,
    file: str,
    text: str,
    second: str,
    output: Path | None,
    told: Sequence[str],  # what is to be known of the run
    json: bool,
    quiet: bool,
) -> None:
    """The number of the best candidate, from 0 on, and the probability of each."""
    from nextword.transfer.checks import empty
    from nextword.transfer.choices import read_choices
    from nextword.transfer.tables import Columns

    refuse_ending(output, ANSWER_TABLES)
    settings = lm.settings
    named = Columns(text or settings.text, second or settings.second, settings.label)
    rows, _, table = read_choices(file, named, insist=Columns(text, second))
    refuse_twice(table, output)
    assert rows.choices is not None
    questions = rows.seconds or [""] * len(rows)
    with progress_bar("choosing", len(rows), quiet or json) as update:
        notes = [*told, *table.notes, *empty("", rows)]
        found = lm.predict(list(zip(rows.texts, questions, rows.choices, strict=True)), update, notes)
    numbers = {}
    if rows.labels is not None and not all(rows.labels):
        blank = sum(not label for label in rows.labels)
        notes.append(f"{blank:,} of {len(rows):,} rows have no label: nothing is measured")
    elif rows.labels is not None:
        right = sum(one.label == gold for one, gold in zip(found, rows.labels, strict=True))
        numbers = {"accuracy": right / len(found)}
    said = [{"predicted": int(one.label), "probabilities": list(one.probabilities.values())} for one in found]
    most = max(len(some) for some in rows.choices)
    ending = output.suffix if output else ".csv"
    cells: list[dict[str, Any]] = [
        each
        if ending == ".jsonl"
        else {"predicted": one.label, **{f"p({i})": _share(one.probabilities.get(str(i))) for i in range(most)}}
        for one, each in zip(found, said, strict=True)
    ]
    written, more = beside(table, cells, ending) if output or not json else ("", [])
    facts = {"run": run, "measured": numbers, "predictions": said} if json else None
    deliver(written, output, f"{len(found):,} predictions", notes + more, quiet, facts)
    compared(numbers, f"the labels in {table.name}", quiet or json)


# ------------------------------------------------------------------------------------------------ files


def _official(found: dict[str, Any]) -> str:
    import json as library

    return library.dumps(found, ensure_ascii=False, indent=1) + "\n"


def _answer_fields(one: Any, unanswered: bool) -> dict[str, Any]:
    others = [{"text": text, "probability": share} for text, share in one.others]
    found = {"id": one.id, "predicted": one.text, "probability": one.probability, "best": others}
    return found | ({"no_answer": one.none, "margin": one.margin} if unanswered else {})


def _cells(one: Any, unanswered: bool, ending: str) -> dict[str, Any]:
    """In JSON lines numbers are numbers."""
    share = float if ending == ".jsonl" else _share
    cells = {"predicted": one.text, "probability": share(one.probability)}
    return cells | ({"p(no answer)": share(one.none)} if unanswered else {})


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"
