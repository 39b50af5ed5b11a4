"""Predict the examples of a file with a fine-tuned run, or with a prompted language model, and write the predictions.

    predict_file("runs/reviews", "new.csv", output=Path("labeled.csv"))

    file ──read──▶ examples ──predict──▶ predictions ──score, if the file has labels──▶ FilePredictions ──write──▶ file

How a file is read and written depends on the task, whose `predict_file` calls one of the functions below:

    predict_texts      csv, tsv, JSON lines or plain lines in; the same table with columns `predicted` and p(label) out
    predict_choices    the same, with candidates
    predict_answers    SQuAD's JSON or a table in; SQuAD's {id: text} or a table out
    predict_tags       sentences or CoNLL columns in; CoNLL columns or JSON lines out, for one tagger or several
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import DataError, InvalidSetting, Unsupported
from nextword.core.io import refuse_existing
from nextword.core.types import Prediction
from nextword.data.conll import TaggedSentence, is_columns, read_tagged
from nextword.data.files import FROM_STDIN, STDIN, lines, plain_name
from nextword.data.tables import LABELS, Columns, Rows, Table, guess, holding, labelled, like_a_header, read_table
from nextword.data.tag_schemes import converted, has_spans, parts, spans
from nextword.lm.loading import load
from nextword.metrics.classification import METRICS, REGRESSION_METRICS
from nextword.metrics.spans import SPAN_METRICS, TOKEN_ACCURACY
from nextword.metrics.squad import score_answers
from nextword.run_folder import RunFolder
from nextword.tasks.classification import AveragedClassifier
from nextword.tasks.data_checks import count_empty_texts
from nextword.tasks.datasets.multiple_choice import read_multiple_choice
from nextword.tasks.error_analysis import DISPLAY_SCHEME
from nextword.tasks.in_context import SECOND, TEMPLATE, ZeroShotClassifier, draw_shots
from nextword.tasks.question_answering import read_questions, told_of_empty
from nextword.tasks.text_data import is_number
from nextword.tasks.unknown_words import unknown_word_notes

TABLES = (".csv", ".tsv", ".jsonl")
TAG_FILES = (".conll", ".tsv", ".jsonl")
SQUAD_FILE = ".json"
NO_ANSWER_FILE = ".na_prob.json"  # next to SQuAD's file, for the script of SQuAD 2.0
MAX_NAMED = 5  # labels or tags in a note
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
            raise InvalidSetting(
                f"--output {self.output}: {what} are written as {', '.join(allowed)}.",
                key="--output",
                value=str(self.output),
            )
        return self.output.suffix if self.output else default

    def reject(self, option: str, value: str, why: str) -> None:
        if value:
            raise InvalidSetting(f"{option} {value}: {why}. Leave {option} out.", key=option, value=value)


@dataclass(frozen=True)
class FilePredictions:
    content: str  # of the output file
    records: list[Record]  # one per example, for --json
    summary: str  # "40 predictions"
    labels: Any  # the labels, or those of each task
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
    model: Any = load(run, device, precision)
    if prompt is not None:
        return _predict_prompted(model, run, prompt, request)
    if "predict" not in model.can:
        raise Unsupported(
            f"{run} has no task head. Fine-tune it first: nextword transfer bert/finetune --from {run} --data FILE. Or "
            "choose among labels with --labels A,B,C or --examples FILE.",
            ability="predict",
        )
    if ensemble:
        model = AveragedClassifier([model, *(load(other, device, precision) for other in ensemble)])
    predictions = model.task.predict_file(model, request)
    notes = [*_unfinished_notes([run, *ensemble]), *predictions.notes]
    return replace(predictions, run=model.name if ensemble else run, notes=notes)


def _require_writable(output: Path) -> None:
    def error(reason: str) -> InvalidSetting:
        return InvalidSetting(f"--output {output}: {reason}.", key="--output", value=str(output))

    known = dict.fromkeys((*TABLES, *TAG_FILES, SQUAD_FILE))
    if output.suffix not in known:
        raise error(f"predictions are written as {', '.join(known)}")
    if not output.parent.is_dir():
        raise error(f"the folder {output.parent} does not exist")
    if output.is_dir() or not os.access(output if output.exists() else output.parent, os.W_OK):
        raise error("it is a folder" if output.is_dir() else "permission denied")
    refuse_existing("--output", output)


def _unfinished_notes(runs: Sequence[str]) -> list[str]:
    return [
        f"{run} is not finished, so its latest checkpoint predicts. Resume it: nextword transfer --resume --out {run}"
        for run in runs
        if not RunFolder(run).manifest.get("finished")
    ]


# ------------------------------------------------------------------------------------------------ texts


def predict_texts(model: Any, request: PredictionRequest) -> FilePredictions:
    """Predict labels or numbers for texts or pairs of texts."""
    request.reject("--task", request.task, f"{model.name} has a single task")
    config, named = model.task.config, request.columns
    second = (named.second or config.second) if model.is_pair else ""
    table = read_table(request.file, holding(named.text or config.text, second))
    return _predict_table(model, request, table, config.label)


def _predict_table(
    model: Any,
    request: PredictionRequest,
    table: Table,
    label_column: str,
    unknown_labels: str = "not seen in training",
) -> FilePredictions:
    """`unknown_labels` says what is wrong with a label that the model cannot predict."""
    suffix = request.suffix(TABLES, ".csv")
    require_unique_columns(table, request.output)
    columns = _choose_columns(table, model, request.columns)
    rows = table.rows_of(columns)
    notes = [*table.notes, *_column_notes(table, model, columns, request.columns), *count_empty_texts(rows)]
    unknown = unknown_word_notes(model, [*rows.texts, *(rows.seconds or ())])
    notes += [f"{note}: predictions rest on the other words" for note in unknown]
    texts: Sequence[Any] = rows.texts if rows.seconds is None else list(zip(rows.texts, rows.seconds, strict=True))
    predictions = model.predict(texts, request.progress, notes)
    scores, more = _score_texts(model, table, predictions, label_column, unknown_labels)
    notes += more
    labels, content = list(model.task.config.labels), ""
    if request.needs_content:
        content, more = add_columns(table, [_text_cells(one, labels, suffix) for one in predictions], suffix)
        notes += more
    records = [_text_record(one) for one in predictions]
    summary, gold = f"{len(predictions):,} predictions", f"the column '{label_column}'"
    return FilePredictions(content, records, summary, labels, scores, gold, notes)


def _text_record(prediction: Prediction) -> Record:
    if prediction.value is not None:
        return {"predicted": prediction.value}
    return {"predicted": prediction.label, "probabilities": dict(prediction.probabilities)}


def _text_cells(prediction: Prediction, labels: Sequence[str], suffix: str) -> Record:
    if suffix == ".jsonl":
        return _text_record(prediction)
    if prediction.value is not None:
        return {"predicted": f"{prediction.value:.6g}"}
    probabilities = {f"p({label})": f"{prediction.probabilities[label]:.6f}" for label in labels}
    return {"predicted": prediction.label, **probabilities}


def _choose_columns(table: Table, model: Any, named: Columns) -> Columns:
    """Take the columns that were named, else those of training if the table has them, else guess."""
    config = model.task.config
    text = named.text or (config.text if config.text in table.header else "")
    second = named.second or (config.second if config.second in table.header else "")
    found = guess(table, Columns(text, second if model.is_pair else ""), labelled=False)
    if model.is_pair and not found.second:
        raise DataError(
            f"{model.name} reads pairs of texts, but {table.name} has the columns {', '.join(table.header[:8])}. Name "
            "the second text with --text-pair; in plain lines, separate the two texts with a tab.",
            path=table.name,
        )
    return Columns(found.text, found.second if model.is_pair else "")


def _column_notes(table: Table, model: Any, columns: Columns, named: Columns) -> list[str]:
    """Report which column is read if the user did not name it and training used another."""
    trained = model.task.config.text
    if table.kind == "lines":
        first, notes = "\t".join(table.rows[0]), []
        if like_a_header(first):
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
    header = " (the first line is read as a header)" if table.kind != "jsonl" else ""
    return [f"{absent}texts are read from '{columns.text}'{header}. Use --text to name another"]


def _score_texts(
    model: Any, table: Table, predictions: Sequence[Prediction], label_column: str, unknown_labels: str
) -> tuple[dict[str, float], list[str]]:
    """Score the rows that have a known label; return the scores, and notes about the other rows."""
    if not label_column or label_column not in table.header:
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
        shown = _shorten_list(list(dict.fromkeys(unknown)))
        count = f"{len(unknown):,} of {len(gold):,} labels of the column '{column}'"
        notes.append(f"{count} are {why} and not scored ({shown})")
    return notes


def _shorten_list(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (", …" if len(names) > MAX_NAMED else "")


# ------------------------------------------------------------------------------------------------ prompted models


@dataclass(frozen=True)
class Prompt:
    """Labels for a language model to choose from, with or without solved examples before each text."""

    labels: Sequence[str] = ()  # (): those of the examples
    template: str = ""
    is_calibrated: bool = False  # subtract each label's prior score
    examples: str = ""  # a file of labeled texts
    shots: int = 8  # how many of them
    seed: int = 0


def _predict_prompted(model: Any, run: str, prompt: Prompt, request: PredictionRequest) -> FilePredictions:
    if "predict" in model.can:
        option = "--labels" if prompt.labels else "--examples"
        raise InvalidSetting(
            f"{run} has a task head with labels of its own. Leave {option} out.", key=option, value=run
        )
    table = read_table(request.file, holding(request.columns.text, request.columns.second))
    labels, shots, notes = list(prompt.labels), [], []
    if prompt.examples:
        if SECOND in prompt.template:
            raise InvalidSetting(
                f"--template {prompt.template!r} has two texts, and --examples have one. For pairs: nextword transfer "
                f"gpt3/in-context --from {run} --data {prompt.examples}",
                key="--template",
                value=prompt.template,
            )
        texts, gold, notes = _read_examples(prompt.examples, labels, table, request.columns.text)
        labels = labels or sorted(set(gold))
        shots = draw_shots(texts, gold, prompt.shots, prompt.seed)
        counts = ", ".join(f"{sum(label == name for _, label in shots)} of {name!r}" for name in labels)
        notes.append(f"{len(shots)} examples of {prompt.examples} precede every text ({counts})")
    classifier = ZeroShotClassifier(model, labels, prompt.template or TEMPLATE, prompt.is_calibrated, run, shots)
    label_column = next((name for name in table.header if name.lower() in LABELS), "")
    predictions = _predict_table(classifier, request, table, label_column, "not among --labels")
    return replace(predictions, run=run, notes=[*notes, *predictions.notes])


def _read_examples(file: str, labels: Sequence[str], table: Table, text: str) -> tuple[list[str], list[str], list[str]]:
    """Read few-shot examples: those with one of the labels whose text is not in the table to predict."""
    source = read_table(file, labelled())
    columns = guess(source, Columns(text if text in source.header else ""))
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
        raise DataError(
            f"--examples {file}: none of its {len(rows):,} rows can be used. {'; '.join(notes)}.", path=file
        )
    return [text for text, _ in kept], [label for _, label in kept], notes


# ------------------------------------------------------------------------------------------------ multiple choice


def predict_choices(model: Any, request: PredictionRequest) -> FilePredictions:
    """Predict the index of the best candidate, from 0, with the probability of each."""
    suffix = request.suffix(TABLES, ".csv")
    config, named = model.task.config, request.columns
    usual = Columns(named.text or config.text, named.second or config.second, config.label)
    rows, _, table = read_multiple_choice(request.file, usual, insist=Columns(named.text, named.second))
    require_unique_columns(table, request.output)
    assert rows.choices is not None
    notes = [*table.notes, *count_empty_texts(rows)]
    examples = list(zip(rows.texts, rows.seconds or [""] * len(rows), rows.choices, strict=True))
    predictions = model.predict(examples, request.progress, notes)
    scores, more = _score_choices(rows, predictions)
    records = [{"predicted": int(p.label), "probabilities": list(p.probabilities.values())} for p in predictions]
    cells: list[Record] = records
    if suffix != ".jsonl":
        width = max(map(len, rows.choices))
        cells = [{"predicted": p.label, **_choice_probabilities(p, width)} for p in predictions]
    content, notes = _write_table(table, cells, suffix, request, [*notes, *more])
    summary = f"{len(predictions):,} predictions"
    return FilePredictions(content, records, summary, [], scores, f"the labels in {table.name}", notes)


def _choice_probabilities(prediction: Prediction, width: int) -> dict[str, str]:
    probabilities = [prediction.probabilities.get(str(i)) for i in range(width)]
    return {f"p({i})": "" if p is None else f"{p:.6f}" for i, p in enumerate(probabilities)}


def _score_choices(rows: Rows, predictions: Sequence[Prediction]) -> tuple[dict[str, float], list[str]]:
    if rows.labels is None:
        return {}, []
    if not all(rows.labels):
        empty = sum(not label for label in rows.labels)
        return {}, [f"{empty:,} of {len(rows):,} rows have no label, so nothing is scored"]
    right = sum(p.label == gold for p, gold in zip(predictions, rows.labels, strict=True))
    return {"accuracy": right / len(predictions)}, []


# ------------------------------------------------------------------------------------------------ answers


def predict_answers(model: Any, request: PredictionRequest) -> FilePredictions:
    """Answer questions. SQuAD's JSON is answered by {id: text}; a table gets the answer next to each question."""
    suffix = request.suffix((SQUAD_FILE, *TABLES), "")
    config, named = model.task.config, request.columns
    has_no_answer = config.unanswered
    no_answer_file = None
    if request.output is not None and suffix == SQUAD_FILE and has_no_answer:
        no_answer_file = request.output.with_name(request.output.stem + NO_ANSWER_FILE)
        refuse_existing("--output", no_answer_file)
    usual = Columns(named.text or config.text, named.second or config.second, config.label)
    questions, _, table = read_questions(request.file, usual, insist=Columns(named.text, named.second))
    notes = [*(table.notes if table else ()), *told_of_empty(questions)]
    if table is not None:
        require_unique_columns(table, request.output)
    answers = model.predict(questions.all, request.progress, notes)
    scores = {}
    if questions.labelled:
        golds = [question.answers or () for question in questions.all]
        scores = score_answers(config.metrics, [answer.text for answer in answers], golds, has_no_answer)
    suffix = suffix or (SQUAD_FILE if table is None else ".csv")
    if suffix == SQUAD_FILE:
        content = _json_object({answer.id: answer.text for answer in answers})
    else:
        own = Table(request.file, ["id", "question"], [[one.id, one.question] for one in questions.all])
        cells = [_answer_cells(answer, has_no_answer, suffix) for answer in answers]
        content, notes = _write_table(table or own, cells, suffix, request, notes)
    others = {}
    if no_answer_file is not None:
        others[no_answer_file] = _json_object({answer.id: answer.none for answer in answers})
    records = [_answer_record(answer, has_no_answer) for answer in answers]
    gold = f"the answers in {questions.name}"
    return FilePredictions(content, records, f"{len(answers):,} answers", [], scores, gold, notes, others)


def _answer_record(answer: Any, has_no_answer: bool) -> Record:
    best = [{"text": text, "probability": probability} for text, probability in answer.others]
    record = {"id": answer.id, "predicted": answer.text, "probability": answer.probability, "best": best}
    return record | ({"no_answer": answer.none, "margin": answer.margin} if has_no_answer else {})


def _answer_cells(answer: Any, has_no_answer: bool, suffix: str) -> Record:
    number = float if suffix == ".jsonl" else "{:.6f}".format
    cells = {"predicted": answer.text, "probability": number(answer.probability)}
    return cells | ({"p(no answer)": number(answer.none)} if has_no_answer else {})


def _json_object(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, indent=1) + "\n"


# ------------------------------------------------------------------------------------------------ tags


def predict_tags(model: Any, request: PredictionRequest) -> FilePredictions:
    """Tag the words of sentences."""
    suffix, sentences = _read_tag_request(model, request)
    tagged = model.predict([sentence.words for sentence in sentences], request.progress)
    scores, notes = _score_tags(model, sentences, tagged)
    records = [_tag_record(model, one) for one in tagged]
    content = _json_lines(records) if suffix == ".jsonl" else _tag_columns(model, sentences, tagged)
    gold = f"the tags in {FROM_STDIN if request.file == STDIN else request.file}"
    labels = list(model.task.config.labels)
    return FilePredictions(content, records, _count_words(sentences), labels, scores, gold, notes, unit="sentences")


def predict_several_tags(model: Any, request: PredictionRequest) -> FilePredictions:
    """Tag the words of sentences with the tags of several tasks, one column each."""
    suffix, sentences = _read_tag_request(model, request)
    tagged: Sequence[Mapping[str, Any]] = model.predict([one.words for one in sentences], request.progress)
    records = []
    for by_task in tagged:
        words = next(iter(by_task.values())).words
        records.append({"words": list(words), "tags": {name: list(one.tags) for name, one in by_task.items()}})
    if suffix == ".jsonl":
        content = _json_lines(records)
    else:
        header = "\t".join(("word", *model.names)) + "\n" if suffix == ".tsv" else ""
        content = header + "".join(
            _conll([record["words"], *(record["tags"][name] for name in model.names)]) for record in records
        )
    labels = {task.name: list(task.tags) for task in model.task.tag_tasks}
    summary = f"{_count_words(sentences)}; columns: word, {', '.join(model.names)}"
    return FilePredictions(content, records, summary, labels, unit="sentences")


def _read_tag_request(model: Any, request: PredictionRequest) -> tuple[str, list[TaggedSentence]]:
    request.reject("--task", request.task, f"{model.name} predicts the tags of all its tasks at once")
    for option, column in (("--text", request.columns.text), ("--text-pair", request.columns.second)):
        request.reject(option, column, f"{model.name} tags words, and reads a sentence or a word per line")
    return request.suffix(TAG_FILES, ".conll", "tags"), _read_sentences(model, request.file)


def _read_sentences(model: Any, file: str) -> list[TaggedSentence]:
    """Read sentences of words, with gold tags if the file has them."""
    is_table = Path(plain_name(file)).suffix.lower() in (".csv", ".jsonl")
    source = [] if is_table else list(lines(file))
    if is_table or any(_starts_table(line) for line in source[:1]):
        name = FROM_STDIN if file == STDIN else file
        raise DataError(f"{name} is a table. A tagger reads one sentence per line, or one word per line.", path=file)
    if not any(line.strip() for line in source):
        raise DataError(f"{file} has no text. Expected one sentence per line, or one word per line.", path=file)
    if is_columns(plain_name(file), source):
        return read_tagged(file, model.task.config.label, bare=True, source=source).sentences
    return [TaggedSentence(tuple(model.split(line)), ()) for line in source]


def _starts_table(line: str) -> bool:
    """Whether the first line of a file is a csv header or a JSON object."""
    if not line.lstrip().startswith("{"):
        return "\t" not in line and like_a_header(line)
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _score_tags(
    model: Any, gold: Sequence[TaggedSentence], predicted: Sequence[TaggedSentence]
) -> tuple[dict[str, float], list[str]]:
    """Score the tags if every sentence has gold tags of this task; note tags that were not seen in training."""
    if not all(sentence.tags for sentence in gold):
        return {}, []
    in_file, trained = {tag for sentence in gold for tag in sentence.tags}, set(model.task.config.labels)
    name = (lambda tag: parts(tag)[1]) if model.has_spans else str
    unseen = sorted({*map(name, in_file)} - {*map(name, trained)})
    what = "span types" if model.has_spans else "tags"
    notes = [f"{what} not seen in training are never predicted: {_shorten_list(unseen)}"] if unseen else []
    if model.has_spans:
        if in_file != {"O"} and not has_spans(in_file):
            return {}, notes
        right, found = (
            [(i, *span) for i, sentence in enumerate(side) for span in spans(sentence.tags)]
            for side in (gold, predicted)
        )
        return {name: metric(right, found) for name, metric in SPAN_METRICS.items()}, notes
    if not in_file & trained:
        return {}, notes
    pairs = [pair for a, b in zip(gold, predicted, strict=True) for pair in zip(a.tags, b.tags, strict=True)]
    return {TOKEN_ACCURACY: sum(a == b for a, b in pairs) / len(pairs)}, notes


def _tag_record(model: Any, sentence: TaggedSentence) -> Record:
    record: Record = {"words": list(sentence.words), "tags": list(sentence.tags)}
    if model.has_spans:
        record["spans"] = [
            {"type": s.type, "start": s.start, "end": s.end, "text": " ".join(sentence.words[s.start : s.end])}
            for s in model.spans_of(sentence)
        ]
    return record


def _tag_columns(model: Any, gold: Sequence[TaggedSentence], predicted: Sequence[TaggedSentence]) -> str:
    """Word, gold tag if there is one, predicted tag. Both tags have the same scheme, as CoNLL's script expects."""
    blocks = []
    for before, after in zip(gold, predicted, strict=True):
        gold_tags = converted(before.tags, DISPLAY_SCHEME) if model.has_spans else before.tags
        blocks.append(_conll([after.words, *([gold_tags] if before.tags else []), after.tags]))
    return "".join(blocks)


def _conll(columns: Sequence[Sequence[str]]) -> str:
    """One word per line, and an empty line after the sentence."""
    return "".join("\t".join(cells) + "\n" for cells in zip(*columns, strict=True)) + "\n"


def _count_words(sentences: Sequence[TaggedSentence]) -> str:
    return f"{sum(len(one.words) for one in sentences):,} words of {len(sentences):,} sentences"


# ------------------------------------------------------------------------------------------------ writing tables

PREDICTED = "predicted"
PROBABILITY_COLUMN = re.compile(r"probabilities|p\(.*\)", re.DOTALL)
TSV_BREAKS = re.compile(r"[\t\r\n]+")


def require_unique_columns(table: Table, output: Path | None) -> None:
    """JSON lines cannot have two columns of one name."""
    twice = next((name for name in table.header if table.header.count(name) > 1), None)
    if twice is not None and output is not None and output.suffix == ".jsonl":
        raise DataError(
            f"{table.name} has more than one column {twice!r}, which JSON cannot represent. Rename one, or write "
            f"{output.with_suffix('.csv')}.",
            path=table.name,
        )


def _write_table(
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
        return _json_lines({**item, **more} for item, more in zip(rest, cells, strict=True)), notes
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


def _json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
