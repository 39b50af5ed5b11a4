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
from collections.abc import Sequence
from pathlib import Path

from nextword.core.errors import DataError
from nextword.core.io import parse_json
from nextword.data.files import STDIN, read_chunks
from nextword.data.tables import (
    LABEL_NAMES,
    Columns,
    Rows,
    Table,
    choose_held_out,
    concatenate_rows,
    match_columns,
    read_table,
)
from nextword.tasks.datasets.base import (
    Benchmark,
    Read,
    Reader,
    Submission,
    bad_data,
    read_catalog_splits,
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
    table = read_table(path, has_candidates, header=insist.has_header)
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
            candidate_index(cell, candidates, table.name, i + 1)
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
        raise bad_data(table.name, f"no context column in {', '.join(table.header[:8])}. Name it with --text.")
    second = named.second or next((lower[n] for n in QUESTION_COLUMNS if n in lower and lower[n] != text), "")
    label = named.label or next((lower[name] for name in (*LABEL_NAMES, "answer") if name in lower), "")
    return Columns(text, second, label, named.header)


def _candidates(table: Table) -> list[tuple[str, ...]]:
    """Return the candidates of each row, at least two."""
    list_column = next((name for name in table.header if name.lower() in LIST_COLUMNS), "")
    columns = [table.column(name) for name in _numbered_columns(table.header)]
    if not list_column and len(columns) < 2:
        expected = "Expected choice0, choice1 and so on, or a column choices with JSON lists."
        raise bad_data(table.name, f"no candidate columns in {', '.join(table.header[:8])}. {expected}")
    lists = table.column(list_column) if list_column else []
    rows = []
    for i in range(len(table.rows)):
        cells = _parse_list(lists[i]) if list_column else [column[i] for column in columns]
        while not list_column and cells and not cells[-1].strip():  # a row may have fewer candidates than others
            cells.pop()
        if len(cells) < 2:
            found = repr(lists[i][:60]) if list_column else f"{len(cells)} of them"
            raise bad_data(table.name, f"expected at least two candidates, and there are {found}.", i + 1, "row")
        rows.append(tuple(cells))
    return rows


def _parse_list(cell: str) -> list[str]:
    """The strings of a JSON list; []: the cell is none."""
    try:
        value = parse_json(cell, "")
    except DataError:
        return []
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else []


def candidate_index(cell: str, choices: Sequence[str], name: str = "", row: int = 0) -> str:
    """Convert a label (index, letter or text) to the index of the candidate, as a string. An empty cell stays "".

    candidate_index("B", ("x", "y")) == candidate_index("y", ("x", "y")) == "1"
    """
    label = cell.strip()
    if not label:
        return ""
    if label.isdecimal() and len(label) < 5 and int(label) < len(choices):
        return str(int(label))
    if len(label) == 1 and 0 <= ord(label.upper()) - ord("A") < len(choices):
        return str(ord(label.upper()) - ord("A"))
    if label in choices or cell in choices:
        return str(list(choices).index(label if label in choices else cell))
    expected = f"Expected a number from 0 to {len(choices) - 1}, a letter from A, or the text of a candidate."
    raise bad_data(name, f"the label {label[:40]!r} is no candidate. {expected}", row, "row")


def _story_rows(table: Table) -> Rows:
    stories = zip(*(table.column(name) for name in STORY_SENTENCES), strict=True)
    endings = list(zip(*(table.column(name) for name in STORY_ENDINGS), strict=True))
    labels = None
    if STORY_LABEL in table.header:
        labels = []
        for i, cell in enumerate(table.column(STORY_LABEL)):
            if cell.strip() not in ("1", "2"):
                raise bad_data(table.name, f"{STORY_LABEL} is {cell!r}. Expected 1 or 2.", i + 1, "row")
            labels.append(str(int(cell) - 1))
    ids = table.column(STORY_ID) if STORY_ID in table.header else None
    texts = [" ".join(sentence.strip() for sentence in story) for story in stories]
    return Rows(texts, None, labels, ids, endings)


# ------------------------------------------------------------------------------------------------ RACE


def read_race(path: Path) -> Rows:
    """Read the questions of one passage, or of all passages in a folder, in the order of their numbers."""
    files = sorted(path.rglob("*.txt"), key=_passage_number) if path.is_dir() else [path]
    if not files:
        raise bad_data(path, "there are no RACE passages. Expected files such as middle/1.txt.")
    return concatenate_rows([_read_passage(file) for file in files])


def _is_race_passage(path: Path) -> bool:
    if path.suffix.lower() not in (".txt", ".json") or not path.is_file():
        return False
    start = next(read_chunks(path), "")
    return start.lstrip().startswith("{") and '"article"' in start and '"options"' in start


def _passage_number(path: Path) -> tuple[str, int, str]:
    return str(path.parent), int(path.stem) if path.stem.isdecimal() else 0, path.stem


def _read_passage(path: Path) -> Rows:
    passage = parse_json("".join(read_chunks(path)), path, remedy="Expected a RACE passage.")
    if not isinstance(passage, dict) or not isinstance(passage.get("article"), str):
        raise bad_data(path, "there is no string 'article'. Expected a RACE passage.")
    questions, options, answers = (passage.get(key) for key in ("questions", "options", "answers"))
    if not isinstance(questions, list) or not isinstance(options, list) or len(options) != len(questions):
        raise bad_data(path, "expected lists 'questions' and 'options' of one length.")
    for i, (question, choices) in enumerate(zip(questions, options, strict=True), 1):
        strings = [question, *choices] if isinstance(choices, list) else []
        if len(strings) < 3 or not all(isinstance(text, str) for text in strings):
            raise bad_data(path, "expected a string and a list of at least two options.", i, "question")
    if answers is not None and (not isinstance(answers, list) or len(answers) != len(questions)):
        raise bad_data(path, f"expected a list of {len(questions)} 'answers'.")
    labels = None
    if answers is not None:
        labels = [_answer_index(path, i, answer, len(options[i - 1])) for i, answer in enumerate(answers, 1)]
    texts = [passage["article"]] * len(questions)
    return Rows(texts, questions, labels, choices=[tuple(candidates) for candidates in options])


def _answer_index(path: Path, question: int, answer: object, candidates: int) -> str:
    index = ord(answer) - ord("A") if isinstance(answer, str) and len(answer) == 1 else -1
    if not 0 <= index < candidates:
        raise bad_data(path, f"the answer is {answer!r}. Expected a letter from A.", question, "question")
    return str(index)


# ------------------------------------------------------------------------------------------------ benchmarks


def race_reader(part: str = "") -> Reader:
    """Return a reader of RACE, or of its `middle` or `high` part."""

    def read(split: str, places: Sequence[Path]) -> Rows:
        place = places[0]
        parts = [place / name for name in ((part,) if part else RACE_PARTS) if (place / name).is_dir()]
        if part and not parts:
            raise bad_data(place, f"there is no folder {part}. Expected RACE as published.")
        return concatenate_rows(list(map(read_race, parts))) if parts else read_race(place)

    return lambda folder: (read_catalog_splits("race", folder, read), [])


def _read_swag(folder: Path) -> Read:
    def read(split: str, files: Sequence[Path]) -> Rows:
        return multiple_choice_rows(read_table(files[0], header=True))[0]

    return read_catalog_splits("swag", folder, read), []


def _read_story_cloze(folder: Path) -> Read:
    """Train on the validation stories, less a tenth for dev. Test labels are secret in the 2018 edition."""
    splits = read_catalog_splits(
        "story-cloze", folder, lambda _, files: _story_rows(read_table(files[0], header=True)), ("dev",)
    )
    stories = splits.pop("dev")
    if stories.labels is None:
        raise bad_data(folder, f"the validation stories have no column {STORY_LABEL}, so there is nothing to learn.")
    train, dev = split_off_dev(stories, choose_held_out(stories))
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
