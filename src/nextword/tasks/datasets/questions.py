"""Questions about passages: SQuAD by its name, its official JSON, a table, or a folder with a file per split.

    id,question,context,answer                       SQuAD's names of columns, or others (--text is the passage,
    q1,Who won?,Denver beat Carolina.,Denver         --text-pair the question, --label the answer)

An answer is a text, or JSON: a list of texts, SQuAD's objects, or {"text": […], "answer_start": […]}. An empty answer
means that there is none. `id` is used if it is unique. `answer_start` is the character where the answer begins; without
it, the first place counts where the answer stands as whole words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path

import numpy as np

from nextword.core.errors import DataError, NextwordError, unknown
from nextword.core.io import parse_json, user_path
from nextword.data.catalog import catalog, find_entry
from nextword.data.conll import files_by_split
from nextword.data.files import FROM_STDIN, STDIN, plain_name, read_chunks, split_lines
from nextword.data.squad import Question, Questions, collect_questions, make_question, read_squad
from nextword.data.tables import DELIMITERS, TABLE_JSON_SUFFIXES, Columns, Rows, Table, match_columns, read_table
from nextword.metrics.squad import ANSWER_METRICS, ANSWER_METRICS_2_0, EXACT, F1, score_answers, score_questions
from nextword.tasks.base import Dataset
from nextword.tasks.baselines import Method, Scored, question_baselines, ratio_of_sums
from nextword.tasks.data_checks import note_duplicates
from nextword.tasks.datasets.base import hold_out_dev

CATALOG_KIND = "questions"
OFFICIAL = ("train-v1.1.json", "train-v2.0.json")
CONTEXTS = ("context", "passage", "paragraph", "document", "article", "text", "second")  # names of columns
QUESTIONS = ("question", "query", "text")
ANSWERS = ("answers", "answer", "label", "target")
STARTS = ("answer_start", "start")
IDS = ("id", "qid", "question_id")
ROLES = ("passage", "question", "answer")  # of the columns text, second and label
MAX_NAMED = 3  # ids in a note


@dataclass(frozen=True)
class QuestionDataset(Dataset):
    """Questions with their passages and answers."""

    name: str
    splits: Mapping[str, Questions]
    columns: Columns = field(default_factory=Columns)
    notes: tuple[str, ...] = ()

    kind = "question_answering"
    labels = ()

    @property
    def has_unanswerable(self) -> bool:
        return any(split.has_unanswerable for split in self.splits.values() if split.is_labeled)

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]
        return ANSWER_METRICS_2_0 if self.has_unanswerable else ANSWER_METRICS

    @property
    def balance(self) -> dict[str, float]:
        """If some training questions have no answer, the fraction of either."""
        train = self.splits["train"]
        if not train.has_unanswerable:
            return {}
        without = sum(question.answers == () for question in train.all) / len(train)
        return {"with an answer": 1 - without, "without": without}

    @property
    def trainable(self) -> Questions:
        return self.splits["train"].trainable

    @property
    def fingerprint(self) -> str:
        hasher = blake2b(digest_size=16)
        for split in ("train", "dev"):
            for q in self.splits[split].all:
                parts = (q.id, q.question, q.context, *(q.answers or ()), *map(str, q.starts))
                hasher.update("\x1e".join(parts).encode("utf-8", "replace") + b"\x1d")
        return hasher.hexdigest()

    def is_labeled(self, split: str) -> bool:
        return split in self.splits and self.splits[split].is_labeled

    def baselines(self, train: Questions, splits: Sequence[str]) -> Iterator[Method]:
        return question_baselines({split: self.splits[split].all for split in splits}, self.has_unanswerable)

    def score(self, split: str, predictions: Sequence[str], metrics: Sequence[str]) -> Scored:
        """Of answers as texts."""
        golds = [question.answers or () for question in self.splits[split].all]
        values = score_questions(predictions, golds, self.has_unanswerable)
        counted = np.ones(len(golds)) if metrics[0] in values else np.array([bool(gold) for gold in golds], float)
        if metrics[0] == "no_answer_f1":
            counted = 1 - counted
        main = values[EXACT if metrics[0] == EXACT else F1]
        scores = score_answers(metrics, predictions, golds, self.has_unanswerable)
        return Scored(scores, partial(ratio_of_sums, main * counted, counted), len(golds))

    def only_prediction(self, predictions: Sequence[str]) -> str:
        return "" if any(predictions) else "no answer"

    def training_texts(self) -> list[str]:
        train = self.splits["train"].all
        return [*dict.fromkeys(question.context for question in train), *(question.question for question in train)]


def read_questions(source: str, columns: Columns = Columns()) -> QuestionDataset:
    """Read a data set. Without a dev split, a tenth of the passages is held out, with all their questions."""
    files, name, notes = _find_files(source)
    if "train" not in files:
        raise DataError(f"{source} has no training questions here, only {', '.join(files)}.", path=source)
    splits, used = {}, Columns()
    for split, file in sorted(files.items(), key=lambda item: item[0] != "train"):
        required = columns if split == "train" else Columns(header=columns.header)
        splits[split], used_in_split, table = read_question_file(file, columns, required)
        used = used_in_split if split == "train" else used
        notes += table.notes if table else ()
    roles = [f"{role} '{column}'" for role, column in zip(ROLES, used.roles.values(), strict=True) if column]
    notes += [f"columns: {', '.join(roles)}"] if roles else []
    return _check(QuestionDataset(name, splits, used, tuple(notes)))


def _find_files(source: str) -> tuple[Mapping[str, Path], str, list[str]]:
    """The file of each split, the name of the data set, and notes."""
    path = user_path(source)
    if path.is_dir():
        return files_by_split(path), str(path), []
    if path.is_file():
        return {"train": path}, str(path), []
    entry = find_entry(source)
    if entry is None or entry.kind != CATALOG_KIND:
        known = [other.name for other in catalog().values() if other.kind == CATALOG_KIND]
        hint = f"Expected SQuAD's JSON, a table with question, context and answer, or one of {', '.join(known)}."
        raise unknown("data set of questions", source, known, hint=hint)
    folder = entry.require_folder()
    files = {("dev" if split == "valid" else split): paths[0] for split, paths in entry.locate(folder).items()}
    notes = []
    if "train" in files and files["train"].name not in OFFICIAL:
        notes.append(f"the official training file is not here; {files['train'].name} is used instead")
    return files, entry.name, notes


def _check(data: QuestionDataset) -> QuestionDataset:
    """Hold out a dev split if there is none; add notes, or raise an error if nothing can be learned."""
    train = data.splits["train"]
    if not train.is_labeled:
        question = next(question for question in train.all if question.answers is None)
        raise DataError(f"{train.name}: question {question.id!r} has no answers. Training needs them.", path=train.name)
    if not any(question.place for question in train.all):
        raise DataError(f"{train.name}: no answer occurs in its passage. Is --label the right column?", path=train.name)
    passages = Rows([question.context for question in train.all])
    splits, notes = hold_out_dev(data.splits, passages, train.name, "questions", by_class=False)
    if not splits["dev"].is_labeled:
        raise DataError(f"{splits['dev'].name}: dev has no answers. Expected answers there.", path=splits["dev"].name)
    for split, questions in splits.items():
        if questions.moved:
            notes.append(
                f"{len(questions.moved):,} questions of {split} have an answer at another place than the file says: "
                "the nearest place is used"
            )
        if questions.absent:
            named = ", ".join(questions.absent[:MAX_NAMED]) + (", …" if len(questions.absent) > MAX_NAMED else "")
            notes.append(
                f"{len(questions.absent):,} of {len(questions):,} questions of {split} have an answer that does not "
                f"occur in the passage ({named}): it is not learned"
            )
        notes += note_empty_texts(questions, split)
    examples = {split: [(q.question, q.context) for q in questions.all] for split, questions in splits.items()}
    notes += note_duplicates(examples, "questions")
    return replace(data, splits=splits, notes=(*data.notes, *notes))


def note_empty_texts(questions: Questions, split: str = "") -> list[str]:
    where = f" of {split}" if split else ""
    columns = {"question": [q.question for q in questions.all], "passage": [q.context for q in questions.all]}
    counts = {name: sum(not text.strip() for text in texts) for name, texts in columns.items()}
    return [f"{n:,} of {len(questions):,} questions{where} have an empty {name}" for name, n in counts.items() if n]


# ------------------------------------------------------------------------------------------------ files


def read_question_file(
    path: str | Path, usual: Columns = Columns(), required: Columns = Columns()
) -> tuple[Questions, Columns, Table | None]:
    """The questions of SQuAD's JSON or of a table; the columns that were used; and the table.

    Columns have the `usual` names, if they exist; the required ones must exist.
    """
    text = "".join(read_chunks(path))
    if _is_squad_json(Path(plain_name(path)).suffix.lower(), text):
        return read_squad(FROM_STDIN if str(path) == STDIN else path, text), Columns(), None
    table = read_table(
        path,
        partial(_is_header, usual, required),
        split_lines([text], path),
        header=required.has_header,
        expected=[name for name in required.roles.values() if name],
    )
    columns = _guess_columns(table, match_columns(table, usual, required))
    return collect_questions(table.name, _read_rows(table, columns)), columns, table


def _is_squad_json(suffix: str, text: str) -> bool:
    """Judge by the suffix; if that says nothing, as of standard input, by the beginning of the text."""
    is_table = suffix in (*DELIMITERS, *TABLE_JSON_SUFFIXES)
    if suffix != ".json" and (is_table or text.lstrip()[:1] != "{" or '"data"' not in text):
        return False
    try:
        first = parse_json(text.lstrip().partition("\n")[0], "")
    except DataError:
        return True
    return not isinstance(first, dict) or "data" in first  # not JSON lines


def _is_header(usual: Columns, required: Columns, cells: Sequence[str]) -> bool:
    """Whether these are names of columns with a question and a passage among them."""
    header = Table("", list(cells), [])
    names = {role: "" if name.isdigit() else name for role, name in required.roles.items()}  # numbers tell nothing
    try:
        _guess_columns(header, match_columns(header, usual, Columns(names["text"], names["second"], names["label"])))
    except NextwordError:
        return False
    return True


def _guess_columns(table: Table, named: Columns) -> Columns:
    """The columns of the passage (`text`), the question (`second`) and the answer (`label`, "" if there is none)."""
    taken = [name for name in named.roles.values() if name]
    for name in taken:
        table.column(name)  # raises if it does not exist
    if table.kind == "lines" and len(table.header) == 2 and not (named.text or named.second):
        return Columns(table.header[1], table.header[0], header=named.header)  # question, tab, passage
    by_name = {name.lower(): name for name in reversed(table.header)}

    def guess(name: str, known: Sequence[str], what: str = "", option: str = "") -> str:
        name = name or next((by_name[key] for key in known if key in by_name and by_name[key] not in taken), "")
        if not name and what:
            raise DataError(
                f"{table.name}: which column is the {what}? Its columns are {', '.join(table.header[:8])}. Name it "
                f"with {option}.",
                path=table.name,
            )
        taken.append(name)
        return name

    text = guess(named.text, CONTEXTS, "passage", "--text")
    second = guess(named.second, QUESTIONS, "question", "--text-pair")
    return Columns(text, second, guess(named.label, ANSWERS), named.header)


def _read_rows(table: Table, columns: Columns) -> Iterator[tuple[Question, bool]]:
    by_name = {name.lower(): name for name in reversed(table.header)}
    blank = [""] * len(table.rows)
    ids = next((table.column(by_name[name]) for name in IDS if name in by_name), blank)
    ids = ids if len(set(ids)) == len(ids) else [str(i) for i in range(len(ids))]
    starts = next((table.column(by_name[name]) for name in STARTS if name in by_name), blank)
    answers = table.column(columns.label) if columns.label else blank
    rows = zip(ids, table.column(columns.second), table.column(columns.text), answers, starts, strict=True)
    for number, (id, question, context, answer, start) in enumerate(rows, 1):
        parsed = _parse_answers(answer, start, table.name, number) if columns.label else None
        yield make_question(id, question.strip(), context, parsed)


def _parse_answers(cell: str, start: str, name: str, row: int) -> list[tuple[str, int | None]]:
    """The texts of a cell with their starts, if those are known."""
    value: object = cell
    if cell.startswith(("[", "{")):
        with suppress(DataError):  # an answer may begin with a bracket
            value = parse_json(cell, name, row)
    if isinstance(value, str):
        try:
            return [(value, int(start) if start.strip() else None)] if value.strip() else []
        except ValueError:
            raise DataError(
                f"{name}, row {row}: the answer's start is {start!r}. Expected an integer.", path=name, line=row
            ) from None
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        starts = value.get("answer_start") or [None] * len(value["text"])
        value = [{"text": text, "answer_start": at} for text, at in zip(value["text"], starts, strict=False)]
    answers = []
    for item in value if isinstance(value, list) else [None]:
        item = {"text": item} if isinstance(item, str) else item
        if not isinstance(item, dict) or not isinstance(item.get("text"), str):
            raise DataError(
                f"{name}, row {row}: the answers are {cell[:60]!r}. Expected a text, or a JSON list of texts.",
                path=name,
                line=row,
            )
        at = item.get("answer_start")
        answers.append((item["text"], at if isinstance(at, int) else None))
    return answers
