"""`nextword predict`: labels for texts, by a run that was transferred to a task, or by any language model.

`nextword predict` of a run that answers questions out of passages, and of one that chooses between candidates.

`nextword predict` without a head: labels that a language model chooses among, after solved examples or none.

`nextword predict` of a run that tags words: columns or JSON lines out, of plain text or of columns.

`nextword predict` of a run that has learnt several tasks: the tags of all of them, a column each.

What every kind of `nextword predict` does with its result: which endings, where it is written, how good it is.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from nextword.cli.console import Device, Json, Precision, Quiet, Run, console, emit_json, err, progress_bar

SHOTS = 8
BLANK, ASKED, OTHER = "have no text or no label", "are asked about too", "have a label that is not among --labels"


def chooser(
    lm: Any,
    run: str,
    labels: str,
    template: str,
    calibrate: bool,
    examples: str,
    shots: int,
    seed: int,
    asked: Any,
    text: str,
) -> tuple[Any, list[str]]:
    """The model as a classifier, and what is to be said of the examples in its prompt. `asked`: the table of texts."""
    from nextword.core.errors import NextwordError
    from nextword.tasks.prompting import SECOND, TEMPLATE, ZeroShot, drawn

    names = [one.strip() for one in labels.split(",")] if labels else []
    solved: list[tuple[str, str]] = []
    notes: list[str] = []
    if examples and SECOND in template:
        raise NextwordError(
            f"--template {template!r}: --examples are of one text each. For two texts: nextword transfer "
            f"gpt3/in-context --from {run} --data {examples}"
        )
    if examples:
        texts, right, notes = _examples(examples, names, asked, text)
        names = names or sorted(set(right))
        solved = drawn(texts, right, shots, seed)
        counts = {name: sum(label == name for _, label in solved) for name in names}
        said = ", ".join(f"{n} of {name!r}" for name, n in counts.items())
        notes.append(f"{len(solved)} examples of {examples} stand before every text ({said})")
    return ZeroShot(lm, names, template or TEMPLATE, calibrate, run, solved), notes


def _examples(file: str, names: list[str], asked: Any, text: str) -> tuple[list[str], list[str], list[str]]:
    """Texts and labels that may stand in a prompt: of the labels asked for, and none of the texts asked about."""
    from nextword.core.errors import NextwordError
    from nextword.data.tables import Columns, guess, labelled, read_table

    table = read_table(file, labelled())
    columns = guess(table, Columns(text if text in table.header else ""))
    rows = table.rows_of(Columns(columns.text, "", columns.label))
    there = {cell.strip() for row in asked.rows for cell in row}
    fits, left = [], {ASKED: 0, BLANK: 0, OTHER: 0}
    for one, label in zip(rows.texts, rows.labels or (), strict=True):
        if not one.strip() or not label:
            left[BLANK] += 1
        elif one.strip() in there:
            left[ASKED] += 1
        elif names and label not in names:
            left[OTHER] += 1
        else:
            fits.append((one.strip(), label))
    notes = [f"{n:,} of {len(rows):,} rows of {file} {why}: they are no examples" for why, n in left.items() if n]
    if not fits:
        raise NextwordError(f"--examples {file}: none of its {len(rows):,} rows can be shown. {'; '.join(notes)}.")
    return [one for one, _ in fits], [label for _, label in fits], notes


JSON_LINES = ".jsonl"
PREDICTED = "predicted"
SHARES = re.compile(r"probabilities|p\(.*\)", re.DOTALL)  # columns beside it, by the kind of file that was written
BREAKS = re.compile(r"[\t\r\n]+")  # what a cell of a .tsv cannot have in it


def refuse_ending(output: Path | None, endings: Sequence[str], what: str = "predictions") -> None:
    from nextword.core.errors import NextwordError

    if output is not None and output.suffix not in endings:
        raise NextwordError(f"--output {output}: {what} are written as {', '.join(endings)}.")


def refuse_taken(option: str, place: Path) -> None:
    """A file that is there stays as it is, as with every command. (What is no file, as /dev/null, may be written.)"""
    from nextword.core.errors import NextwordError

    if place.is_file():
        raise NextwordError(
            f"{option} {place} is there already, and nothing is overwritten. Choose another name, or remove it."
        )


def unfinished(runs: Sequence[str]) -> list[str]:
    """Of runs that were interrupted: their weights can be used, and are not what was meant."""
    from nextword.run_folder import RunFolder

    cut = [run for run in runs if not RunFolder(run).manifest.get("finished")]
    return [
        f"{run} is not finished: what it has learnt so far speaks. Go on with nextword transfer --resume --out {run}"
        for run in cut
    ]


def deliver(
    written: str,
    output: Path | None,
    what: str,
    notes: Sequence[str] = (),
    quiet: bool = False,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Into the file, or to standard output; then what is to be known of it. `facts`: those instead, as JSON."""
    if facts is not None:
        if output is not None:
            output.write_text(written, encoding="utf-8")
        emit_json({**facts, "notes": list(notes), **({"file": str(output)} if output is not None else {})})
        return
    if output is None:
        sys.stdout.write(written)
        sys.stdout.flush()
    else:
        output.write_text(written, encoding="utf-8")
        console.print(f"[green]✓[/] {what} → {escape(str(output))}", soft_wrap=True)
    for note in notes if not quiet else ():
        err.print(f"[yellow]·[/] {escape(note)}", soft_wrap=True)


def compared(numbers: Mapping[str, float], what: str, quiet: bool) -> None:
    """How good it is, where the file says what is right; `what` says where."""
    if numbers and not quiet:
        said = " · ".join(f"{name} {100 * value:.1f}" for name, value in numbers.items())
        err.print(f"against {escape(what)}: {said}", soft_wrap=True)


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def refuse_twice(table: Any, output: Path | None) -> None:
    """Two columns of one name cannot both be keys of a JSON object."""
    from nextword.core.errors import NextwordError

    twice = next((name for name in table.header if table.header.count(name) > 1), None)
    if twice is not None and output is not None and output.suffix == JSON_LINES:
        raise NextwordError(
            f"{table.name} has more than one column {twice!r}, which a line of JSON cannot hold: rename one, or write "
            f"{output.with_suffix('.csv')}."
        )


def beside(table: Any, cells: Sequence[dict[str, Any]], ending: str) -> tuple[str, list[str]]:
    """A table with more columns on the right, and what is to be said of that.

    Columns of earlier predictions go, from whatever kind of file; otherwise JSON lines stay what they were. In a .tsv
    tabs and line ends alone divide, as where one is read: nothing is quoted.
    """
    new = list(cells[0]) if cells else []
    again = PREDICTED in table.header and PREDICTED in new
    old = [name for name in table.header if name in new or (again and SHARES.fullmatch(name))]
    notes = [f"what stood in {', '.join(map(repr, old))} before is replaced"] if old else []
    kept = [i for i, name in enumerate(table.header) if name not in old]
    if ending == JSON_LINES:
        given = table.objects or [dict(zip(table.header, row, strict=True)) for row in table.rows]
        given = [{key: value for key, value in one.items() if key not in old} for one in given]
        return json_lines({**one, **more} for one, more in zip(given, cells, strict=True)), notes
    rows: list[list[str]] = [[*(table.header[i] for i in kept), *new]]
    rows += ([*(row[i] for i in kept), *more.values()] for row, more in zip(table.rows, cells, strict=True))
    if ending == ".tsv":
        flat = [[" ".join(BREAKS.split(str(cell))) for cell in row] for row in rows]
        changed = sum(before != after for before, after in zip(rows, flat, strict=True))
        if changed:
            rows_have = "rows have a tab or a line end in them" if changed > 1 else "row has a tab or a line end in it"
            notes.append(f"{changed:,} {rows_have}: in a .tsv that is a space")
        return "".join("\t".join(row) + "\n" for row in flat), notes
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue(), notes


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
    from nextword.data.tables import Columns, Table
    from nextword.metrics.squad import measured
    from nextword.tasks.question_data import read_questions, told_of_empty

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
    from nextword.data.tables import Columns
    from nextword.tasks.data_checks import empty
    from nextword.tasks.datasets.multiple_choice import read_choices

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


TAG_TABLES = (".csv", JSON_LINES)  # which are not read
SHOWN = 5  # tags in a note
TAG_ENDINGS = (".conll", ".tsv", JSON_LINES)


def predict_tags(
    lm: Any, run: str, file: str, output: Path | None, told: Sequence[str], json: bool, quiet: bool
) -> None:
    """`told`: what is to be known of the run."""
    from nextword.data.files import FROM_STDIN, STDIN

    given, found = tagged(lm, file, output, quiet or json)
    measured, notes = _measured_tags(lm, given, found)
    facts: dict[str, Any] | None = None
    if json:
        facts = {"run": run, "labels": list(lm.settings.labels), "measured": measured}
        facts["sentences"] = [_tag_fields(lm, one) for one in found]
    text = _written_tags(lm, given, found, output.suffix if output else ".conll")
    words = sum(len(one.words) for one in given)
    deliver(text, output, f"{words:,} words of {len(given):,} sentences", [*told, *notes], quiet, facts)
    compared(measured, f"the tags in {FROM_STDIN if file == STDIN else file}", quiet or json)


def tagged(lm: Any, file: str, output: Path | None, quiet: bool) -> tuple[list[Any], list[Any]]:
    """The sentences of a file, and what is said of each."""
    refuse_ending(output, TAG_ENDINGS, "tags")
    given = given_sentences(lm, file)
    with progress_bar("tagging", len(given), quiet) as update:
        return given, lm.predict([one.words for one in given], update)


def given_sentences(lm: Any, file: str) -> list[Any]:
    """Sentences of words, with the right tags where the file has them."""
    from nextword.core.errors import NextwordError
    from nextword.data.conll import TaggedSentence, is_columns, read_tagged
    from nextword.data.files import FROM_STDIN, STDIN, lines, plain_name

    source: list[str] = []
    table = Path(plain_name(file)).suffix.lower() in TAG_TABLES
    if not table:
        source = list(lines(file))
        table = any(_of_table(line) for line in source[:1])
    if table:
        raise NextwordError(
            f"{FROM_STDIN if file == STDIN else file} is a table. A tagger reads a sentence a line, or a word a line: "
            "give it the texts alone."
        )
    if not any(line.strip() for line in source):
        raise NextwordError(f"{file} has no text in it. Expected a sentence a line, or a word a line.")
    if is_columns(plain_name(file), source):
        return read_tagged(file, lm.settings.label, bare=True, source=source).sentences
    return [TaggedSentence(tuple(lm.words_of(line)), ()) for line in source]


def _of_table(line: str) -> bool:
    """Whether a line that stands first is the header of a csv, or a JSON object."""
    from json import loads

    from nextword.data.tables import like_a_header

    if not line.lstrip().startswith("{"):
        return "\t" not in line and like_a_header(line)
    try:
        return isinstance(loads(line), dict)
    except ValueError:
        return False


def _measured_tags(lm: Any, given: Sequence[Any], found: Sequence[Any]) -> tuple[dict[str, float], list[str]]:
    """The task's metrics, where all sentences have tags, and those are of the task; and what training never saw."""
    from nextword.data.tag_schemes import has_spans, parts, spans
    from nextword.metrics.spans import ACCURACY, OF_SPANS

    if not all(one.tags for one in given):
        return {}, []
    there = {tag for one in given for tag in one.tags}
    names = (lambda tag: parts(tag)[1]) if lm.spans else str
    strange = sorted({*map(names, there)} - {*map(names, lm.settings.labels)})
    notes = []
    if strange:
        shown = ", ".join(strange[:SHOWN]) + (", …" if len(strange) > SHOWN else "")
        what = "types of spans" if lm.spans else "tags"
        notes.append(f"{what} that training never saw: {shown}. They are never found")
    if lm.spans:
        if there != {"O"} and not has_spans(there):
            return {}, notes
        gold, said = ([(i, *span) for i, one in enumerate(some) for span in spans(one.tags)] for some in (given, found))
        return {name: OF_SPANS[name](gold, said) for name in OF_SPANS}, notes
    if not there & set(lm.settings.labels):
        return {}, notes
    pairs = [pair for a, b in zip(given, found, strict=True) for pair in zip(a.tags, b.tags, strict=True)]
    return {ACCURACY: sum(a == b for a, b in pairs) / len(pairs)}, notes


def _tag_fields(lm: Any, one: Any) -> dict[str, Any]:
    spans = [
        {"type": span.type, "start": span.start, "end": span.end, "text": " ".join(one.words[span.start : span.end])}
        for span in lm.spans_of(one)
    ]
    return {"words": list(one.words), "tags": list(one.tags), **({"spans": spans} if lm.spans else {})}


def _written_tags(lm: Any, given: Sequence[Any], found: Sequence[Any], ending: str) -> str:
    """A word, the right tag where there is one, and the tag that was found; an empty line after each sentence.

    Both are in the same scheme, so that CoNLL's own script can read them.
    """
    from nextword.data.tag_schemes import converted
    from nextword.tasks.tagging import OUTPUT

    if ending == JSON_LINES:
        return json_lines(_tag_fields(lm, one) for one in found)
    parts = []
    for before, after in zip(given, found, strict=True):
        right = converted(before.tags, OUTPUT) if lm.spans else before.tags
        columns = [after.words, *([right] if before.tags else []), after.tags]
        parts += ["\t".join(cells) + "\n" for cells in zip(*columns, strict=True)]
        parts.append("\n")
    return "".join(parts)


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
    from nextword.core.errors import NextwordError
    from nextword.data.tables import LABELS, holding, read_table
    from nextword.lm.loading import load
    from nextword.tasks.data_checks import empty
    from nextword.tasks.missing_words import told_of_rows

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
        from nextword.tasks.predicting import Averaged

        lm = Averaged([lm, *(load(other, device, precision) for other in others)])
        run = lm.name
    if lm.can >= {"predict"} and lm.settings.kind == "tag":
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
    from nextword.tasks.submission import lacking, predictions, refuse_taken, save, sizes

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
    from nextword.core.errors import NextwordError
    from nextword.data.tables import Columns, guess

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
    from nextword.data.tables import like_a_header

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

    from nextword.metrics.classification import METRICS, OF_NUMBERS
    from nextword.tasks.data import is_number

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


TABLE = ".tsv"


def predict_many(
    lm: Any, run: str, file: str, output: Path | None, told: Sequence[str], json: bool, quiet: bool
) -> None:
    given, found = tagged(lm, file, output, quiet or json)
    rows = [_many_tag_fields(one) for one in found]
    facts = None
    if json:
        labels = {task.name: list(task.tags) for task in lm.settings.of_tags}
        facts = {"run": run, "labels": labels, "sentences": rows}
    text = _written_many_tags(lm.names, rows, output.suffix if output else ".conll")
    words = sum(len(one.words) for one in given)
    deliver(text, output, f"{words:,} words of {len(given):,} sentences", told, quiet, facts)
    if not quiet and not json:
        err.print(f"columns: word, {escape(', '.join(lm.names))}", soft_wrap=True)


def _many_tag_fields(one: Mapping[str, Any]) -> dict[str, Any]:
    """The words of a sentence, and under each task's name its tags."""
    words = next(iter(one.values())).words
    return {"words": list(words), "tags": {name: list(tagged.tags) for name, tagged in one.items()}}


def _written_many_tags(names: Sequence[str], rows: Sequence[dict[str, Any]], ending: str) -> str:
    """A word and its tags on each line, and an empty line after each sentence; a table begins with its header."""
    if ending == JSON_LINES:
        return json_lines(rows)
    parts = ["\t".join(("word", *names)) + "\n"] if ending == TABLE else []
    for row in rows:
        columns = [row["words"], *(row["tags"][name] for name in names)]
        parts += ["\t".join(cells) + "\n" for cells in zip(*columns, strict=True)]
        parts.append("\n")
    return "".join(parts)
