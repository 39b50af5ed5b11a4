"""Questions ready to be learnt from: SQuAD by name, its official JSON, or a user's own table; and what to know of them.

question,context,answer                       columns by these names, or: --text passage --second query --label reply
Who won?,Denver beat Carolina.,Denver         an empty answer: there is none. JSON lines may have a list `answers`

A table may have `id`, which counts if it is another in every row, and `answer_start`, the character where the answer
begins; without it, the first place is taken where the answer stands as whole words. Without a dev split a tenth of the
passages is held out, with all their questions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.data.catalog import absent, catalog, find
from nextword.data.conll import files_by_split
from nextword.data.files import FROM_STDIN, STDIN, chunks, lines_of, plain_name
from nextword.data.squad import Question, Questions, answered, gathered, read_squad
from nextword.data.tables import DELIMITERS, TABLE_JSON_SUFFIXES, Columns, Rows, Table, found_in, held_out, read_table
from nextword.metrics.squad import OF_ANSWERS, OF_BOTH
from nextword.recipe import Recipe
from nextword.tasks.asking import Asked, asked, layout_of
from nextword.tasks.settings import settings_of

KIND = "questions"  # of the catalog's entries
OFFICIAL = ("train-v1.1.json", "train-v2.0.json")
CONTEXTS = ("context", "passage", "paragraph", "document", "article", "text", "second")
ASKED = ("question", "query", "text")
ANSWERS = ("answers", "answer", "label", "target")
STARTS = ("answer_start", "start")
IDS = ("id", "qid", "question_id")
PARTS = ("passage", "question", "answer")  # that the columns text, second and label have
NAMED = 3  # ids in a note
Progress = Callable[[str, float, float | None], None]


@dataclass(frozen=True)
class QuestionSet:
    """As transfer/data.py's DataSet, for questions."""

    name: str
    splits: Mapping[str, Questions]
    columns: Columns = field(default_factory=Columns)
    notes: tuple[str, ...] = ()

    kind = frame = "span"
    labels = ()
    scale = (0.0, 1.0)

    @property
    def unanswered(self) -> bool:
        return any(split.some_without for split in self.splits.values() if split.labelled)

    @property
    def metrics(self) -> tuple[str, ...]:
        return OF_BOTH if self.unanswered else OF_ANSWERS

    @property
    def balance(self) -> dict[str, float]:
        """Where some training questions have no answer, the share of either."""
        train = self.splits["train"]
        if not train.some_without:
            return {}
        share = sum(one.answers == () for one in train.all) / len(train)
        return {"with an answer": 1 - share, "without": share}

    @property
    def fingerprint(self) -> str:
        hashed = blake2b(digest_size=16)
        for split in ("train", "dev"):
            for one in self.splits[split].all:
                parts = (one.id, one.question, one.context, *(one.answers or ()), *map(str, one.starts))
                hashed.update("\x1e".join(parts).encode("utf-8", "replace") + b"\x1d")
        return hashed.hexdigest()


def open_questions(name: str, named: Columns = Columns()) -> QuestionSet:
    """A name of the catalog, a folder with train and dev files, or one file."""
    path = Path(name).expanduser()
    entry = find(name)
    notes: list[str] = []
    if entry is not None and entry.kind == KIND and not path.exists():
        folder = entry.place()
        if folder is None:
            raise absent(entry)
        files = {("dev" if split == "valid" else split): found[0] for split, found in entry.locate(folder).items()}
        if "train" in files and files["train"].name not in OFFICIAL:
            notes.append(f"the official training file is not here: {files['train'].name} stands for it")
        title = entry.name
    elif path.is_dir():
        files, title = files_by_split(path), str(path)
    elif path.is_file():
        files, title = {"train": path}, str(path)
    else:
        known = ", ".join(one.name for one in catalog().values() if one.kind == KIND)
        raise NextwordError(
            f"There are no questions at {name}. Expected a JSON of SQuAD, a csv or jsonl with the columns question, "
            f"context and answer, a folder with such train and dev files, or one of {known}."
        )
    if "train" not in files:
        raise NextwordError(f"{name} has no training questions here, only {', '.join(files)}.")
    splits, columns = {}, Columns()
    for split, file in sorted(files.items(), key=lambda one: one[0] != "train"):
        insist = named if split == "train" else Columns()
        splits[split], found, table = read_questions(file, insist=insist, usual=named)
        columns = found if split == "train" else columns
        notes += table.notes if table else ()
    said = [f"{what} '{name}'" for what, name in zip(PARTS, vars(columns).values(), strict=True) if name]
    notes += [f"columns: {', '.join(said)}"] if said else []
    return _checked(QuestionSet(title, splits, columns, tuple(notes)))


# ------------------------------------------------------------------------------------------------ one file


def read_questions(
    path: str | Path, usual: Columns = Columns(), insist: Columns = Columns()
) -> tuple[Questions, Columns, Table | None]:
    """Those of a JSON of SQuAD, or of a table; which of its columns is what; and the table.

    Columns are called as `usual`, where there are such; those that are insisted on have to be there.
    """
    text = "".join(chunks(path))
    if _is_official(Path(plain_name(path)).suffix.lower(), text):
        return read_squad(FROM_STDIN if str(path) == STDIN else path, text), Columns(), None
    table = read_table(path, partial(_asks, usual, insist), lines_of([text]))
    columns = columns_of(table, found_in(table, usual, insist))
    return gathered(table.name, _of_table(table, columns)), columns, table


def _asks(usual: Columns, insist: Columns, cells: Sequence[str]) -> bool:
    """Whether these are names of columns with a question and a passage among them."""
    header = Table("", list(cells), [])
    try:
        columns_of(header, found_in(header, usual, insist))
    except NextwordError:
        return False
    return True


def _is_official(suffix: str, text: str) -> bool:
    """By its ending; where that says nothing, as of standard input, by its beginning."""
    if suffix != ".json" and (
        suffix in (*DELIMITERS, *TABLE_JSON_SUFFIXES) or text.lstrip()[:1] != "{" or '"data"' not in text
    ):
        return False
    return not _is_lines(text)


def _is_lines(text: str) -> bool:
    """One object a line, and not one object that is SQuAD's."""
    first = text.lstrip().partition("\n")[0]
    try:
        found = json.loads(first)
    except ValueError:
        return False
    return isinstance(found, dict) and "data" not in found


def columns_of(table: Table, asked: Columns = Columns()) -> Columns:
    """Where the passage is (`text`), the question (`second`) and the answer (`label`, "" if there is none)."""
    named = {name.lower(): name for name in reversed(table.header)}
    for name in (asked.text, asked.second, asked.label):
        if name:
            table.column(name)
    if table.kind == "lines" and len(table.header) == 2 and not (asked.text or asked.second):
        return Columns(*reversed(table.header))  # question, tab, passage
    found = {}
    taken = [asked.text, asked.second, asked.label]
    for role, known, what in (("text", CONTEXTS, "passage"), ("second", ASKED, "question")):
        given = getattr(asked, role)
        found[role] = given or next((named[one] for one in known if one in named and named[one] not in taken), "")
        if not found[role]:
            raise NextwordError(
                f"{table.name}: which column is the {what}? It has {', '.join(table.header[:8])}. Name it with "
                f"--{role}."
            )
        taken.append(found[role])
    label = asked.label or next((named[one] for one in ANSWERS if one in named and named[one] not in taken), "")
    return Columns(found["text"], found["second"], label)


def _of_table(table: Table, columns: Columns) -> Iterator[tuple[Question, bool]]:
    named = {name.lower(): name for name in reversed(table.header)}
    contexts, questions = table.column(columns.text), table.column(columns.second)
    ids = next((table.column(named[one]) for one in IDS if one in named), [])
    ids = ids if len(set(ids)) == len(table.rows) else [str(i) for i in range(len(table.rows))]
    starts = next((table.column(named[one]) for one in STARTS if one in named), None)
    answers = table.column(columns.label) if columns.label else None
    for i, (context, question) in enumerate(zip(contexts, questions, strict=True)):
        given = None
        if answers is not None:
            given = _answers(answers[i], starts[i] if starts else "", f"{table.name}, row {i + 1}")
        yield answered(ids[i], question.strip(), context, given)


def _answers(cell: str, start: str, where: str) -> list[tuple[str, int | None]]:
    """A text; or JSON: a list of texts or of SQuAD's objects, or {"text": […], "answer_start": […]}."""
    near: int | None = None
    if start.strip():
        try:
            near = int(start)
        except ValueError:
            raise NextwordError(f"{where}: the answer's start is {start!r}, which is no whole number.") from None
    found: Any = cell
    if cell[:1] in ("[", "{"):
        try:
            found = json.loads(cell)
        except ValueError:
            found = cell  # an answer that begins with a bracket
    if isinstance(found, dict) and isinstance(found.get("text"), list):
        places = found.get("answer_start") or [None] * len(found["text"])
        found = [{"text": text, "answer_start": at} for text, at in zip(found["text"], places, strict=False)]
    if isinstance(found, str):
        return [(found, near)] if found.strip() else []
    if isinstance(found, list):
        each = [(one, None) if isinstance(one, str) else _pair(one) for one in found]
        if all(one is not None for one in each):
            return [one for one in each if one is not None]
    raise NextwordError(f"{where}: the answers are {cell[:60]!r}. Expected a text, or a JSON list of texts.")


def _pair(one: Any) -> tuple[str, int | None] | None:
    if not isinstance(one, dict) or not isinstance(one.get("text"), str):
        return None
    start = one.get("answer_start")
    return one["text"], start if isinstance(start, int) else None


# ------------------------------------------------------------------------------------------------ for a network


def framed_questions(
    recipe: Recipe, network: Any, tokenizer: Tokenizer, data: QuestionSet, progress: Progress
) -> tuple[dict[str, Asked], list[str]]:
    """Split → its windows, and what is to be known of them."""
    settings = settings_of(recipe.task or {}, recipe.name)
    layout = layout_of(recipe.phases[0].batches)
    found: dict[str, Asked] = {}
    notes = list(data.notes)
    for split, some in data.splits.items():
        if not some.labelled:
            notes.append(f"the answers of {split} are kept back: nothing is measured there")
            continue
        progress(f"reading {split}", 0, None)
        made, left = asked(network, tokenizer, some.all, layout, learn=split == "train")
        found[split] = made.judged_by(settings.metrics, settings.unanswered, settings.threshold)
        lost = left.lost - sum(one.lost for one in some.all)  # those that are nowhere in the passage are told already
        if lost > 0 and split == "train":
            notes.append(
                f"{lost:,} of {len(some):,} questions of train have an answer of which "
                "the passage has no token: nothing is learnt of them"
            )
        if left.windows:
            notes.append(
                f"the passages of {left.windows:,} of {len(some):,} questions of {split} are read in windows of "
                f"{layout.length} tokens: {len(made):,} windows in all"
            )
        if left.cut:
            notes.append(f"{left.cut:,} questions of {split} are cut to fit")
    if not len(found["train"]):
        raise NextwordError(f"{data.name}: no answer of a training question is in the tokens of its passage.")
    return found, notes


# ------------------------------------------------------------------------------------------------ what to know of them


def _checked(data: QuestionSet) -> QuestionSet:
    splits, notes = dict(data.splits), list(data.notes)
    train = splits["train"]
    if not train.labelled:
        one = next(one for one in train.all if one.answers is None)
        raise NextwordError(f"{train.name}: question {one.id!r} has no 'answers', so nothing can be learnt from it.")
    if not any(one.place for one in train.all):
        raise NextwordError(
            f"{train.name}: no question has an answer that stands in its passage. Is --label the right column?"
        )
    if "dev" not in splits:
        held = set(held_out(Rows([one.context for one in train.all]), by_class=False))
        if not held or len(held) == len(train):
            raise NextwordError(
                f"{train.name} has too few passages to hold some out: {len(train)} questions. Give more, or a folder "
                "with a train and a dev file."
            )
        parts = [[one for i, one in enumerate(train.all) if (i in held) == wanted] for wanted in (False, True)]
        splits |= {split: train.only(some) for split, some in zip(("train", "dev"), parts, strict=True)}
        notes.append(
            f"no dev split: {len(held):,} questions of {len(train):,} are held out with their passages, the same ones "
            "each time"
        )
    if not splits["dev"].labelled:
        raise NextwordError(f"{splits['dev'].name}: the answers are kept back, so nothing can be checked with it.")
    for split, some in splits.items():
        notes += _told(split, some)
    notes += _repeated(splits)
    return replace(data, splits=splits, notes=tuple(notes))


def _told(split: str, some: Questions) -> list[str]:
    notes = []
    if some.moved:
        notes.append(
            f"{len(some.moved):,} questions of {split} have an answer that stands elsewhere than the file says: the "
            "nearest place is taken"
        )
    if some.absent:
        named = ", ".join(some.absent[:NAMED]) + (", …" if len(some.absent) > NAMED else "")
        notes.append(
            f"{len(some.absent):,} of {len(some):,} questions of {split} have an answer that is nowhere in the passage "
            f"({named}): they are kept, and nothing is learnt of that answer"
        )
    return notes + told_of_empty(some, split)


def told_of_empty(some: Questions, split: str = "") -> list[str]:
    of = f"{len(some):,} questions{f' of {split}' if split else ''}"
    notes = []
    for what, texts in (
        ("question", [one.question for one in some.all]),
        ("passage", [one.context for one in some.all]),
    ):
        empty = sum(not text.strip() for text in texts)
        if empty:
            notes.append(f"{empty:,} of {of} have an empty {what}: they are read as such")
    return notes


def _repeated(splits: Mapping[str, Questions]) -> list[str]:
    seen = {(one.question, one.context) for one in splits["train"].all}
    notes = []
    for split in splits.keys() - {"train"}:
        again = sum((one.question, one.context) in seen for one in splits[split].all)
        if again:
            notes.append(
                f"{again:,} of {len(splits[split]):,} questions of {split} are in train too, with their passage"
            )
    return sorted(notes)
