"""Extractive question answering: the official JSON of SQuAD 1.1 and 2.0.

    {"version": "1.1", "data": [{"title": …, "paragraphs": [{"context": "…", "qas": [
        {"id": "56be…", "question": "Who won?", "answers": [{"text": "Denver", "answer_start": 177}]}]}]}]}

In 2.0 some questions are unanswerable (`is_impossible`, and `answers` is empty). Without the key `answers`, the answers
are withheld (a test set). An answer that is not where the file says is searched in the passage: as whole words ("art"
is not in "cart"), or else anywhere ("大学" in "東京大学", "1990" in "the 1990s"). Of several occurrences the nearest to
`answer_start` counts, or the first. An answer that does not occur has the start −1. Both cases are counted, and nothing
is dropped.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from nextword.core.errors import DataError, bad_data
from nextword.core.io import parse_json
from nextword.data.files import is_encodable, read_chunks

Value = TypeVar("Value")

NOT_FOUND = -1
WORD = "LNM"  # Unicode categories of the characters of a word: letters, numbers, combining marks


@dataclass(frozen=True)
class Question:
    id: str
    question: str
    context: str
    answers: tuple[str, ...] | None = None  # (): unanswerable; None: withheld
    starts: tuple[int, ...] = ()  # first character of each answer in the context, or NOT_FOUND

    @property
    def place(self) -> tuple[int, int] | None:
        """The span in characters of the first answer that occurs in the context; None if none does."""
        for text, start in zip(self.answers or (), self.starts, strict=True):
            if start != NOT_FOUND:
                return start, start + len(text)
        return None

    @property
    def is_lost(self) -> bool:
        """Whether it has answers, but none of them occurs in the context."""
        return bool(self.answers) and self.place is None


@dataclass(frozen=True)
class Questions:
    """The questions of one file."""

    name: str
    all: list[Question] = field(repr=False)
    moved: tuple[str, ...] = ()  # ids of questions with an answer elsewhere than at answer_start
    absent: tuple[str, ...] = ()  # ids of questions with an answer that does not occur in the context

    def __len__(self) -> int:
        return len(self.all)

    def only(self, questions: list[Question]) -> Questions:
        """Return a subset."""
        ids = {question.id for question in questions}
        lists = (tuple(id for id in those if id in ids) for those in (self.moved, self.absent))
        return Questions(self.name, questions, *lists)

    def take(self, indices: Sequence[int]) -> Questions:
        return self.only([self.all[i] for i in indices])

    @property
    def trainable(self) -> Questions:
        """The questions that can be trained on: unanswerable ones, and those whose answer occurs in the context."""
        return self.only([question for question in self.all if not question.is_lost])

    @property
    def is_labeled(self) -> bool:
        return all(question.answers is not None for question in self.all)

    @property
    def has_unanswerable(self) -> bool:
        """Whether some questions are unanswerable, as in SQuAD 2.0."""
        return any(question.answers == () for question in self.all)


def locate_answer(context: str, text: str, near: int | None) -> tuple[str, int, bool]:
    """Return an answer, its first character in the context, and whether that differs from `near`."""
    if near is not None and near >= 0 and context.startswith(text, near):
        return text, near, False
    for answer in dict.fromkeys((text, text.strip())):
        starts = _occurrences(context, answer)
        if starts:
            return answer, min(starts, key=lambda start: abs(start - (near or 0))), near is not None
    return text, NOT_FOUND, False


def _occurrences(context: str, text: str) -> list[int]:
    """Return where the text occurs as whole words; if it never does, all occurrences."""
    starts, start = [], context.find(text) if text else -1
    while start >= 0:
        starts.append(start)
        start = context.find(text, start + 1)
    whole_words = [
        start for start in starts if not any(_is_inside_word(context, edge) for edge in (start, start + len(text)))
    ]
    return whole_words or starts


def _is_inside_word(context: str, offset: int) -> bool:
    """Whether a word continues across the boundary before this character."""
    around = context[offset - 1 : offset + 1]
    return 0 < offset < len(context) and all(unicodedata.category(character)[0] in WORD for character in around)


def make_question(
    id: str, question: str, context: str, answers: Sequence[tuple[str, int | None]] | None
) -> tuple[Question, bool]:
    """Return a question with its answers located, and whether one of them was not where the file says."""
    if answers is None:
        return Question(id, question, context), False
    located = [locate_answer(context, text, near) for text, near in answers]
    texts, starts = tuple(text for text, _, _ in located), tuple(start for _, start, _ in located)
    return Question(id, question, context, texts, starts), any(moved for _, _, moved in located)


def collect_questions(name: str, given: Iterator[tuple[Question, bool]]) -> Questions:
    """Collect the questions of a file. Ids must be unique, since they identify predictions."""
    questions: dict[str, Question] = {}
    moved: list[str] = []
    for question, is_moved in given:
        if question.id in questions:
            raise bad_data(name, f"two questions have the id {question.id!r}. Ids must be unique.")
        questions[question.id] = question
        moved += [question.id] if is_moved else []
    if not questions:
        raise bad_data(name, "no questions. Expected SQuAD's JSON, or a table of questions.")
    absent = tuple(question.id for question in questions.values() if NOT_FOUND in question.starts)
    return Questions(name, list(questions.values()), tuple(moved), absent)


# ------------------------------------------------------------------------------------------------ SQuAD's JSON


def read_squad(path: str | Path, text: str | None = None) -> Questions:
    """Read SQuAD's JSON. `text` is the content of the file, if it has been read before."""
    name = str(path)
    text = "".join(read_chunks(path)) if text is None else text
    content = parse_json(text, name, remedy="Expected an official SQuAD file.")
    articles = _require(content, "data", list, name, "the file")
    return collect_questions(name, _questions(name, articles))


def _questions(name: str, articles: Sequence[object]) -> Iterator[tuple[Question, bool]]:
    for i, article in enumerate(articles):
        where = f"article {i + 1}"
        if isinstance(article, dict) and isinstance(article.get("title"), str):
            where += f" ({article['title'][:40]})"
        for j, paragraph in enumerate(_require(article, "paragraphs", list, name, where)):
            within = f"{where}, paragraph {j + 1}"
            context = _require(paragraph, "context", str, name, within)
            for k, item in enumerate(_require(paragraph, "qas", list, name, within)):
                yield _question(item, context, name, f"{within}, question {k + 1}")


def _question(item: object, context: str, name: str, where: str) -> tuple[Question, bool]:
    id = _require(item, "id", str, name, where)
    assert isinstance(item, dict)  # _require has checked
    where = f"{where} (id {id})"
    question = _require(item, "question", str, name, where).strip()
    is_impossible = item.get("is_impossible", False)
    if not isinstance(is_impossible, bool):
        raise _malformed_error(name, where, f"is_impossible is {is_impossible!r}, not true or false")
    if "answers" not in item and not is_impossible:
        return make_question(id, question, context, None)
    answers = []
    for n, answer in enumerate(_require(item, "answers", list, name, where) if "answers" in item else ()):
        text = _require(answer, "text", str, name, f"{where}, answer {n + 1}")
        has_start = "answer_start" in answer  # some copies leave it out
        start = _require(answer, "answer_start", int, name, f"{where}, answer {n + 1}") if has_start else None
        answers.append((text, start))
    if is_impossible and answers:
        raise _malformed_error(name, where, "is_impossible is true, but there are answers")
    return make_question(id, question, context, answers)


def _require(table: object, key: str, kind: type[Value], name: str, where: str) -> Value:
    """Return table[key], which must be of this type."""
    if not isinstance(table, dict):
        raise _malformed_error(name, where, f"it is {str(table)[:40]!r}, not an object")
    if key not in table:
        raise _malformed_error(name, where, f"it has no '{key}', only {', '.join(map(str, table)) or 'nothing'}")
    value = table[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        expected = {"list": "a list", "str": "a string", "int": "an integer"}[kind.__name__]
        raise _malformed_error(name, where, f"'{key}' is {str(value)[:40]!r}, not {expected}")
    if isinstance(value, str) and not is_encodable(value):
        raise _malformed_error(name, where, f"'{key}' has a lone surrogate (\\ud800 to \\udfff)")
    return value


def _malformed_error(name: str, where: str, problem: str) -> DataError:
    return DataError(f"{name}, {where}: {problem}. Expected SQuAD's JSON; correct the entry.", path=name)
