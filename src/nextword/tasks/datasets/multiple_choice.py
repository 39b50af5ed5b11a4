"""Examples that offer candidates, in the files that they come in: RACE, Story Cloze, SWAG, and a user's own tables.

    context,question,choice0,choice1,label       `choice`, `option`, `ending` or `candidate`, numbered; or a column
    It rained.,Then?,He got wet.,He ate.,0       `choices` with a JSON list. The label is the right one's number from
                                                 0 on, its letter (A is the first), or the candidate itself

| set         | files                                                      | context, question and candidates         |
| ----------- | ---------------------------------------------------------- | ---------------------------------------- |
| RACE        | {train,dev,test}/{middle,high}/N.txt, a JSON for a passage | article, question, options               |
| Story Cloze | csv with InputSentence1 …, RandomFifthSentenceQuiz1 and 2  | four sentences, no question, two endings |
| SWAG        | csv with sent1, sent2, ending0 … ending3                   | sent1; a candidate is sent2 and its end  |

Story Cloze has no labelled training stories: one learns from the validation set, less a tenth, as Radford et al. did.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError
from nextword.data.catalog import find
from nextword.data.files import STDIN, chunks
from nextword.data.tables import LABELS, Columns, Rows, Table, found_in, held_out, joined_rows, read_table
from nextword.tasks.datasets.base import Read, Task

LIST = ("choices", "options", "candidates", "endings")
NUMBERED = re.compile(r"(choice|option|ending|candidate)[ _-]?(\d+)", re.IGNORECASE)
CONTEXTS = ("context", "passage", "article", "story", "sentence", "text", "premise", "sent1")
ASKED = ("question", "query")
STORY = tuple(f"InputSentence{i}" for i in range(1, 5))
QUIZ = ("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2")
ENDING = "AnswerRightEnding"
STORY_ID = "InputStoryid"
PARTS = ("middle", "high")  # of RACE


def offers(header: Sequence[str]) -> bool:
    """Whether a table's columns are those of candidates."""
    low = [name.lower() for name in header]
    return any(name in low for name in LIST) or len(_numbered(header)) > 1 or set(QUIZ) <= set(header)


def _numbered(header: Sequence[str]) -> list[str]:
    """Columns of candidates, in the order of their numbers; those of the first such word."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name in header:
        match = NUMBERED.fullmatch(name.strip())
        if match:
            found.setdefault(match[1].lower(), []).append((int(match[2]), name))
    return [name for _, name in sorted(next(iter(found.values()), []))]


def read_choices(
    path: str | Path, usual: Columns = Columns(), insist: Columns = Columns()
) -> tuple[Rows, Columns, Table]:
    """Examples of one table, of a passage of RACE, or of a folder of such; which column is what; and the table.

    Columns are called as `usual`, where there are such; those that are insisted on have to be there.
    """
    place = Path(path)
    if str(path) != STDIN and (place.is_dir() or _is_passage(place)):
        rows = read_race(place)
        cells = [
            [asked, json.dumps(some, ensure_ascii=False)]
            for asked, some in zip(rows.seconds or (), rows.choices or (), strict=True)
        ]
        return rows, Columns(), Table(str(path), ["question", "choices"], cells, "jsonl")
    table = read_table(path, offers)
    return *rows_of(table, found_in(table, usual, insist)), table


# ------------------------------------------------------------------------------------------------ tables


def rows_of(table: Table, asked: Columns = Columns()) -> tuple[Rows, Columns]:
    if set(QUIZ) <= set(table.header):
        return _stories(table), Columns()
    columns = _columns(table, asked)
    choices = _candidates(table)
    contexts = table.column(columns.text)
    questions = table.column(columns.second) if columns.second else None
    if {"sent1", "sent2"} <= set(table.header) and not asked.second:  # SWAG: every candidate begins with sent2
        begun = table.column("sent2")
        choices = [tuple(f"{start} {end}" for end in some) for start, some in zip(begun, choices, strict=True)]
    labels = None
    if columns.label:
        cells = table.column(columns.label)
        labels = [
            label_of(cell, some, f"{table.name}, row {i + 1}")
            for i, (cell, some) in enumerate(zip(cells, choices, strict=True))
        ]
    return Rows(contexts, questions, labels, choices=choices), columns


def _columns(table: Table, asked: Columns) -> Columns:
    for name in (asked.text, asked.second, asked.label):
        if name:
            table.column(name)
    named = {name.lower(): name for name in reversed(table.header)}
    text = asked.text or next((named[one] for one in CONTEXTS if one in named), "")
    if not text:
        raise NextwordError(
            f"{table.name}: which column is the context that the candidates belong to? It has "
            f"{', '.join(table.header[:8])}. Name it with --text."
        )
    second = asked.second or next((named[one] for one in ASKED if one in named and named[one] != text), "")
    label = asked.label or next((named[one] for one in (*LABELS, "answer") if one in named), "")
    return Columns(text, second, label)


def _candidates(table: Table) -> list[tuple[str, ...]]:
    """Of each row; two at least."""
    listed = next((name for name in table.header if name.lower() in LIST), "")
    columns = [table.column(name) for name in _numbered(table.header)]
    if not listed and len(columns) < 2:
        raise NextwordError(
            f"{table.name} has no columns of candidates; it has {', '.join(table.header[:8])}. Expected choice0, "
            "choice1 and so on, or a column choices with a JSON list."
        )
    lists = table.column(listed) if listed else []
    found = []
    for i in range(len(table.rows)):
        where = f"{table.name}, row {i + 1}"
        cells = _list(lists[i], where) if listed else [one[i] for one in columns]
        while not listed and cells and not cells[-1].strip():  # a row may have fewer than others
            cells.pop()
        if len(cells) < 2:
            raise NextwordError(f"{where} has {len(cells)} candidates. Expected two at least; mend or remove that row.")
        found.append(tuple(cells))
    return found


def _list(cell: str, where: str) -> list[str]:
    try:
        found = json.loads(cell)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise NextwordError(f"{where}: the candidates are {cell[:60]!r}. Expected a JSON list of texts.")
    return found


def label_of(cell: str, choices: Sequence[str], where: str) -> str:
    """The number of the right candidate, from 0 on; "" stays as it is, for whoever counts the gaps."""
    said = cell.strip()
    if not said:
        return ""
    if said.isdigit() and int(said) < len(choices):
        return str(int(said))
    if len(said) == 1 and 0 <= ord(said.upper()) - ord("A") < len(choices):
        return str(ord(said.upper()) - ord("A"))
    if said in choices or cell in choices:
        return str(list(choices).index(said if said in choices else cell))
    raise NextwordError(
        f"{where}: the label is {said[:40]!r}, and there are {len(choices)} candidates. Expected a number from 0 to "
        f"{len(choices) - 1}, a letter from A, or one of the candidates."
    )


def _stories(table: Table) -> Rows:
    lines = zip(*(table.column(name) for name in STORY), strict=True)
    endings = list(zip(*(table.column(name) for name in QUIZ), strict=True))
    labels = None
    if ENDING in table.header:
        labels = []
        for i, cell in enumerate(table.column(ENDING)):
            if cell.strip() not in ("1", "2"):
                raise NextwordError(f"{table.name}, row {i + 1}: {ENDING} is {cell!r}; expected 1 or 2.")
            labels.append(str(int(cell) - 1))
    ids = table.column(STORY_ID) if STORY_ID in table.header else None
    return Rows([" ".join(one.strip() for one in some) for some in lines], None, labels, ids, endings)


# ------------------------------------------------------------------------------------------------ RACE


def _is_passage(path: Path) -> bool:
    if path.suffix.lower() not in (".txt", ".json") or not path.is_file():
        return False
    start = next(chunks(path), "")
    return start.lstrip().startswith("{") and '"article"' in start and '"options"' in start


def read_race(path: Path) -> Rows:
    """All questions of a passage's file, or of those in a folder, in the order of their names."""
    files = sorted(path.rglob("*.txt"), key=_number) if path.is_dir() else [path]
    if not files:
        raise NextwordError(f"{path} has no passages of RACE in it. Expected files as middle/1.txt.")
    found = [_passage(file) for file in files]
    return joined_rows(found)


def _number(path: Path) -> tuple[str, int, str]:
    return str(path.parent), int(path.stem) if path.stem.isdigit() else 0, path.stem


def _passage(path: Path) -> Rows:
    try:
        found = json.loads("".join(chunks(path)))
    except ValueError as problem:
        raise NextwordError(f"{path} is not JSON: {problem}. Expected a passage of RACE.") from None
    article = _part(path, found, "article", str)
    questions, options = (_part(path, found, key, list) for key in ("questions", "options"))
    answers = _part(path, found, "answers", list) if isinstance(found, dict) and "answers" in found else None
    for key, some in (("options", options), ("answers", answers)):
        if some is not None and len(some) != len(questions):
            raise NextwordError(f"{path}: {len(questions)} questions, and {len(some)} {key}. Mend that file.")
    labels: list[str] | None = None if answers is None else []
    for i, (question, some) in enumerate(zip(questions, options, strict=True)):
        where = f"{path}, question {i + 1}"
        texts = some if isinstance(some, list) else []
        if not isinstance(question, str) or len(texts) < 2 or not all(isinstance(one, str) for one in texts):
            raise NextwordError(f"{where}: expected a text and a list of at least two options. Mend that file.")
        if labels is not None and answers is not None:
            answer = answers[i]
            at = ord(answer) - ord("A") if isinstance(answer, str) and len(answer) == 1 else -1
            if not 0 <= at < len(texts):
                raise NextwordError(f"{where}: the answer is {answer!r}; expected a letter from A on. Mend that file.")
            labels.append(str(at))
    return Rows([article] * len(questions), list(questions), labels, choices=[tuple(some) for some in options])


def _part(path: Path, found: Any, key: str, kind: type) -> Any:
    if not isinstance(found, dict) or not isinstance(found.get(key), kind):
        raise NextwordError(f"{path} has no '{key}' that is a {'list' if kind is list else 'text'}; is it of RACE?")
    return found[key]


# ------------------------------------------------------------------------------------------------ as known tasks


def race(part: str = "") -> Callable[[Path], Read]:
    """A reader of the whole of RACE, or of its middle or high schools' part."""

    def read(folder: Path) -> Read:
        found = {}
        for split, place in _located("race", folder).items():
            parts = [place / one for one in ((part,) if part else PARTS) if (place / one).is_dir()]
            if part and not parts:
                raise NextwordError(f"{place} has no folder {part}. Expected RACE as its authors packed it.")
            found[split] = joined_rows([read_race(one) for one in parts]) if parts else read_race(place)
        return _needed("race", folder, found), []

    return read


def swag(folder: Path) -> Read:
    found = {split: rows_of(read_table(file))[0] for split, file in _located("swag", folder).items()}
    return _needed("swag", folder, found), []


def story_cloze(folder: Path) -> Read:
    """Learnt from the validation stories, of which a tenth is held out; the test stories are measured, or, where their
    right endings are kept back, predictions of them handed in."""
    found = {split: _stories(read_table(file)) for split, file in _located("story-cloze", folder).items()}
    if "dev" not in found:
        raise NextwordError(f"{folder} has no validation stories of Story Cloze, which are what is learnt from.")
    whole = found.pop("dev")
    if whole.labels is None:
        raise NextwordError(f"{folder}: the validation stories have no column {ENDING}, so nothing can be learnt.")
    chosen = held_out(whole)
    rest = sorted(set(range(len(whole))) - set(chosen))
    note = f"learnt from the validation stories: {len(chosen):,} of {len(whole):,} are held out, the same each time"
    return {"train": whole.take(rest), "dev": whole.take(chosen), **found}, [note]


def _located(name: str, folder: Path) -> dict[str, Path]:
    entry = find(name)
    assert entry is not None, name
    return {("dev" if split == "valid" else split): files[0] for split, files in entry.locate(folder).items()}


def _needed(name: str, folder: Path, found: dict[str, Rows]) -> dict[str, Rows]:
    for split in ("train", "dev"):
        if split not in found:
            raise NextwordError(f"{folder} has no {split} split of {name}. Expected the official files.")
    return found


# How predictions of test sets without labels are handed in (submission.py). Of stories: their ids, and 1 or 2, in the
# answer.txt of a zip, as participants of the shared task wrote it. Of SWAG: 0 to 3 on a line each, in the order of the
# test file, as AI2's other leaderboards take answers; for SWAG's own that could not be confirmed.
HANDED_IN: dict[str, dict[str, Any]] = {
    "Story-Cloze": {
        "submission": {"test": "answer.txt"},
        "heading": f"{STORY_ID},{ENDING}\n",
        "line": lambda id, said: f"{id},{int(said) + 1}\n",
        "key": STORY_ID,
    },
    "SWAG": {"submission": {"test": "SWAG.csv"}, "heading": "", "line": lambda id, said: f"{said}\n"},
}
TASKS = tuple(
    Task(name, title, "choice", "choose", ("accuracy",), (), reader, catalog, aliases, **HANDED_IN.get(name, {}))
    for name, title, reader, catalog, aliases in (
        ("RACE", "which of four answers is right?", race(), "race", ()),
        ("RACE-middle", "the same, of middle schools", race("middle"), "race", ("race-m",)),
        ("RACE-high", "the same, of high schools", race("high"), "race", ("race-h",)),
        ("Story-Cloze", "how does the story end?", story_cloze, "story-cloze", ("story_cloze",)),
        ("SWAG", "what happens next, out of four?", swag, "swag", ()),
    )
)
