"""Multiple choice: RACE, Story Cloze, SWAG, and a user's own tables.

    context,question,choice0,choice1,label       numbered columns `choice`, `option`, `ending` or `candidate`; or one
    It rained.,Then?,He got wet.,He ate.,0       column `choices` with a JSON list. The label is the index of the right
                                                 candidate from 0, its letter (A is the first), or its text

| data set    | files                                                      | context, question and candidates         |
| ----------- | ---------------------------------------------------------- | ---------------------------------------- |
| RACE        | {train,dev,test}/{middle,high}/N.txt, JSON, one passage    | article, question, options               |
| Story Cloze | csv with InputSentence1 …, RandomFifthSentenceQuiz1 and 2  | four sentences, no question, two endings |
| SWAG        | csv with sent1, sent2, ending0 … ending3                   | sent1; sent2 + ending for each candidate |

Story Cloze has no labeled training stories: as in Radford et al. (2018), training uses the validation stories, and a
tenth of them becomes dev.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nextword.core.errors import DataError
from nextword.data.files import STDIN, read_chunks
from nextword.data.tables import LABEL_NAMES, Columns, Rows, Table, concatenate_rows, match_columns, read_table
from nextword.tasks.datasets.base import (
    Benchmark,
    Read,
    Reader,
    Submission,
    expected_files,
    locate_splits,
    require_splits,
    split_off_dev,
)

LIST_COLUMNS = ("choices", "options", "candidates", "endings")
NUMBERED_COLUMN = re.compile(r"(choice|option|ending|candidate)[ _-]?(\d+)", re.IGNORECASE)
CONTEXT_COLUMNS = ("context", "passage", "article", "story", "sentence", "text", "premise", "sent1")
QUESTION_COLUMNS = ("question", "query")
STORY_SENTENCES = tuple(f"InputSentence{i}" for i in range(1, 5))
STORY_ENDINGS = ("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2")
STORY_LABEL = "AnswerRightEnding"
STORY_ID = "InputStoryid"
RACE_PARTS = ("middle", "high")


def read_multiple_choice(
    path: str | Path, usual: Columns = Columns(), insist: Columns = Columns()
) -> tuple[Rows, Columns, Table]:
    """Read a table, a RACE passage or a folder of passages. Return the rows, the columns in use, and the table.

    The columns `insist` must exist; those of `usual` are used if they exist.
    """
    place = Path(path)
    if str(path) != STDIN and (place.is_dir() or _is_race_passage(place)):
        rows = read_race(place)
        cells = [
            [question, json.dumps(choices, ensure_ascii=False)]
            for question, choices in zip(rows.seconds or (), rows.choices or (), strict=True)
        ]
        return rows, Columns(), Table(str(path), ["question", "choices"], cells, "jsonl")
    table = read_table(path, has_candidates)
    return *multiple_choice_rows(table, match_columns(table, usual, insist)), table


# ------------------------------------------------------------------------------------------------ tables


def has_candidates(header: Sequence[str]) -> bool:
    """Whether the columns of a table are those of a multiple-choice data set."""
    lower = [name.lower() for name in header]
    has_list = any(name in lower for name in LIST_COLUMNS)
    return has_list or len(_numbered_columns(header)) > 1 or set(STORY_ENDINGS) <= set(header)


def _numbered_columns(header: Sequence[str]) -> list[str]:
    """Return the candidate columns in numerical order; if there are several stems, those of the first."""
    by_stem: dict[str, list[tuple[int, str]]] = {}
    for name in header:
        match = NUMBERED_COLUMN.fullmatch(name.strip())
        if match:
            by_stem.setdefault(match[1].lower(), []).append((int(match[2]), name))
    return [name for _, name in sorted(next(iter(by_stem.values()), []))]


def multiple_choice_rows(table: Table, columns: Columns = Columns()) -> tuple[Rows, Columns]:
    """Read the rows of a table. `columns`: the names that the user gave; the others are guessed."""
    if set(STORY_ENDINGS) <= set(table.header):
        return _story_rows(table), Columns()
    named = columns
    columns = _guess_columns(table, named)
    choices = _candidates(table)
    contexts = table.column(columns.text)
    questions = table.column(columns.second) if columns.second else None
    if {"sent1", "sent2"} <= set(table.header) and not named.second:  # SWAG: every candidate begins with sent2
        starts = table.column("sent2")
        choices = [tuple(f"{start} {end}" for end in ends) for start, ends in zip(starts, choices, strict=True)]
    labels = None
    if columns.label:
        labels = [
            candidate_index(cell, candidates, f"{table.name}, row {i + 1}")
            for i, (cell, candidates) in enumerate(zip(table.column(columns.label), choices, strict=True))
        ]
    return Rows(contexts, questions, labels, choices=choices), columns


def _guess_columns(table: Table, named: Columns) -> Columns:
    for name in (named.text, named.second, named.label):
        if name:
            table.column(name)  # raises if the column does not exist
    lower = {name.lower(): name for name in reversed(table.header)}
    text = named.text or next((lower[name] for name in CONTEXT_COLUMNS if name in lower), "")
    if not text:
        raise DataError(
            f"{table.name} has no context column; it has {', '.join(table.header[:8])}. Name it with --text.",
            path=table.name,
        )
    second = named.second or next((lower[n] for n in QUESTION_COLUMNS if n in lower and lower[n] != text), "")
    label = named.label or next((lower[name] for name in (*LABEL_NAMES, "answer") if name in lower), "")
    return Columns(text, second, label)


def _candidates(table: Table) -> list[tuple[str, ...]]:
    """Return the candidates of each row, at least two."""
    list_column = next((name for name in table.header if name.lower() in LIST_COLUMNS), "")
    columns = [table.column(name) for name in _numbered_columns(table.header)]
    if not list_column and len(columns) < 2:
        raise DataError(
            f"{table.name} has no candidate columns; it has {', '.join(table.header[:8])}. Expected choice0, choice1 "
            "and so on, or a column choices with JSON lists.",
            path=table.name,
        )
    lists = table.column(list_column) if list_column else []
    rows = []
    for i in range(len(table.rows)):
        where = f"{table.name}, row {i + 1}"
        cells = _parse_list(lists[i], where) if list_column else [column[i] for column in columns]
        while not list_column and cells and not cells[-1].strip():  # a row may have fewer candidates than others
            cells.pop()
        if len(cells) < 2:
            raise DataError(
                f"{where} has {len(cells)} candidates; expected at least two. Fix or remove that row.",
                path=table.name,
                line=i + 1,
            )
        rows.append(tuple(cells))
    return rows


def _parse_list(cell: str, where: str) -> list[str]:
    try:
        value = json.loads(cell)
    except ValueError:
        value = None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(f"{where}: the candidates are {cell[:60]!r}. Expected a JSON list of strings.")
    return value


def candidate_index(cell: str, choices: Sequence[str], where: str) -> str:
    """Convert a label (index, letter or text) to the index of the candidate, as a string. An empty cell stays "".

    candidate_index("B", ("x", "y"), "") == candidate_index("y", ("x", "y"), "") == "1"
    """
    label = cell.strip()
    if not label:
        return ""
    if label.isdigit() and int(label) < len(choices):
        return str(int(label))
    if len(label) == 1 and 0 <= ord(label.upper()) - ord("A") < len(choices):
        return str(ord(label.upper()) - ord("A"))
    if label in choices or cell in choices:
        return str(list(choices).index(label if label in choices else cell))
    raise DataError(
        f"{where}: the label is {label[:40]!r}, but there are {len(choices)} candidates. Expected a number from 0 to "
        f"{len(choices) - 1}, a letter from A, or the text of a candidate."
    )


def _story_rows(table: Table) -> Rows:
    stories = zip(*(table.column(name) for name in STORY_SENTENCES), strict=True)
    endings = list(zip(*(table.column(name) for name in STORY_ENDINGS), strict=True))
    labels = None
    if STORY_LABEL in table.header:
        labels = []
        for i, cell in enumerate(table.column(STORY_LABEL)):
            if cell.strip() not in ("1", "2"):
                raise DataError(
                    f"{table.name}, row {i + 1}: {STORY_LABEL} is {cell!r}; expected 1 or 2.",
                    path=table.name,
                    line=i + 1,
                )
            labels.append(str(int(cell) - 1))
    ids = table.column(STORY_ID) if STORY_ID in table.header else None
    texts = [" ".join(sentence.strip() for sentence in story) for story in stories]
    return Rows(texts, None, labels, ids, endings)


# ------------------------------------------------------------------------------------------------ RACE


def read_race(path: Path) -> Rows:
    """Read the questions of one passage, or of all passages in a folder, in the order of their numbers."""
    files = sorted(path.rglob("*.txt"), key=_passage_number) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path} has no RACE passages. Expected files such as middle/1.txt.", path=path)
    return concatenate_rows([_read_passage(file) for file in files])


def _is_race_passage(path: Path) -> bool:
    if path.suffix.lower() not in (".txt", ".json") or not path.is_file():
        return False
    start = next(read_chunks(path), "")
    return start.lstrip().startswith("{") and '"article"' in start and '"options"' in start


def _passage_number(path: Path) -> tuple[str, int, str]:
    return str(path.parent), int(path.stem) if path.stem.isdigit() else 0, path.stem


def _read_passage(path: Path) -> Rows:
    try:
        passage = json.loads("".join(read_chunks(path)))
    except ValueError as problem:
        raise DataError(f"{path} is not JSON: {problem}. Expected a RACE passage.", path=path) from None
    article: str = _field(path, passage, "article", str)
    questions: list[Any] = _field(path, passage, "questions", list)
    options: list[Any] = _field(path, passage, "options", list)
    answers: list[Any] | None = _field(path, passage, "answers", list) if "answers" in passage else None
    for key, values in (("options", options), ("answers", answers)):
        if values is not None and len(values) != len(questions):
            raise DataError(f"{path} has {len(questions)} questions but {len(values)} {key}. Fix that file.", path=path)
    for i, (question, choices) in enumerate(zip(questions, options, strict=True)):
        strings = [question, *choices] if isinstance(choices, list) else []
        if len(strings) < 3 or not all(isinstance(text, str) for text in strings):
            raise DataError(
                f"{path}, question {i + 1}: expected a string and a list of at least two options. Fix that file.",
                path=path,
            )
    labels = None
    if answers is not None:
        labels = [_answer_index(path, i, answer, len(options[i])) for i, answer in enumerate(answers)]
    return Rows([article] * len(questions), list(questions), labels, choices=[tuple(some) for some in options])


def _answer_index(path: Path, question: int, answer: object, candidates: int) -> str:
    index = ord(answer) - ord("A") if isinstance(answer, str) and len(answer) == 1 else -1
    if not 0 <= index < candidates:
        raise DataError(
            f"{path}, question {question + 1}: the answer is {answer!r}; expected a letter from A. Fix that file.",
            path=path,
        )
    return str(index)


def _field(path: Path, passage: object, key: str, kind: type) -> Any:
    if not isinstance(passage, Mapping) or not isinstance(passage.get(key), kind):
        expected = "list" if kind is list else "string"
        raise DataError(f"{path} has no {expected} '{key}'. Expected a RACE passage.", path=path)
    return passage[key]


# ------------------------------------------------------------------------------------------------ benchmarks


def race_reader(part: str = "") -> Reader:
    """Return a reader of RACE, or of its `middle` or `high` part."""

    def read(folder: Path) -> Read:
        splits = {}
        for split, (place, *_) in locate_splits("race", folder).items():
            parts = [place / name for name in ((part,) if part else RACE_PARTS) if (place / name).is_dir()]
            if part and not parts:
                raise DataError(f"{place} has no folder {part}. Expected RACE as published.", path=place)
            splits[split] = concatenate_rows([read_race(one) for one in parts]) if parts else read_race(place)
        return require_splits(folder, splits, expected_files("race")), []

    return read


def _read_swag(folder: Path) -> Read:
    files = locate_splits("swag", folder)
    splits = {split: multiple_choice_rows(read_table(file))[0] for split, (file, *_) in files.items()}
    return require_splits(folder, splits, expected_files("swag")), []


def _read_story_cloze(folder: Path) -> Read:
    """Train on the validation stories, less a tenth for dev. Test labels are secret in the 2018 edition."""
    files = locate_splits("story-cloze", folder)
    splits = {split: _story_rows(read_table(file)) for split, (file, *_) in files.items()}
    require_splits(folder, splits, expected_files("story-cloze"), ("dev",))
    stories = splits.pop("dev")
    if stories.labels is None:
        raise DataError(
            f"{folder}: the validation stories have no column {STORY_LABEL}, so there are no labels to train on.",
            path=folder,
        )
    train, dev = split_off_dev(stories)
    note = f"training on the validation stories: {len(dev):,} of {len(stories):,} are held out, the same each time"
    return {"train": train, "dev": dev, **splits}, [note]


# Story Cloze takes ids and 1 or 2 in the answer.txt of a zip, as participants of the shared task wrote it. For SWAG,
# predictions are 0 to 3, one per line in the order of the test file, the format of AI2's other leaderboards; the format
# of SWAG's own could not be confirmed.
SUBMISSIONS = {
    "Story-Cloze": Submission(
        {"test": "answer.txt"},
        header=f"{STORY_ID},{STORY_LABEL}\n",
        format_line=lambda id, label: f"{id},{int(label) + 1}\n",
        id_column=STORY_ID,
    ),
    "SWAG": Submission({"test": "SWAG.csv"}, header="", format_line=lambda id, label: f"{label}\n"),
}
BENCHMARKS = tuple(
    Benchmark(
        *(name, title, "multiple_choice", "choose", ("accuracy",), (), reader, catalog, aliases),
        submission=SUBMISSIONS.get(name, Submission()),
    )
    for name, title, reader, catalog, aliases in (
        ("RACE", "which of four answers is right?", race_reader(), "race", ()),
        ("RACE-middle", "the same, middle school exams", race_reader("middle"), "race", ("race-m",)),
        ("RACE-high", "the same, high school exams", race_reader("high"), "race", ("race-h",)),
        ("Story-Cloze", "how does the story end?", _read_story_cloze, "story-cloze", ("story_cloze",)),
        ("SWAG", "what happens next, out of four?", _read_swag, "swag", ()),
    )
)
