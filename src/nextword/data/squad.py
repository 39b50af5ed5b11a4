"""Questions that a span of a passage answers, in the official JSON of SQuAD 1.1 and 2.0.

    {"version": "1.1", "data": [{"title": …, "paragraphs": [{"context": "…", "qas": [
        {"id": "56be…", "question": "Who won?", "answers": [{"text": "Denver", "answer_start": 177}]}]}]}]}

In 2.0 some questions have no answer (`is_impossible`, and `answers` is empty). Where `answers` is not there at all,
they are kept back. An answer that does not stand where the file says is looked for in the passage: as whole words,
for "art" is not in "cart", and only where it never stands so ("大学" in "東京大学", "1990" in "the 1990s") anywhere. Of
several places the one nearest to what the file says is taken, or the first. An answer that is nowhere has the place −1.
Both are counted, and nothing is dropped.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError
from nextword.data.files import chunks

NOWHERE = -1
WORD = "LNM"  # categories of Unicode that words are of: letters, digits, and the marks that belong to them


@dataclass(frozen=True)
class Question:
    id: str
    question: str
    context: str
    answers: tuple[str, ...] | None = None  # (): it has none; None: they are kept back
    starts: tuple[int, ...] = ()  # the character where each begins; NOWHERE: it is not in the passage

    @property
    def place(self) -> tuple[int, int] | None:
        """The characters of the first answer that is in the passage; None: there is none."""
        for text, start in zip(self.answers or (), self.starts, strict=True):
            if start != NOWHERE:
                return start, start + len(text)
        return None

    @property
    def lost(self) -> bool:
        """It has answers, and none of them is in the passage."""
        return bool(self.answers) and self.place is None


@dataclass(frozen=True)
class Questions:
    """Those of one file."""

    name: str
    all: list[Question] = field(repr=False)
    moved: tuple[str, ...] = ()  # ids of questions with answers that stand elsewhere than the file says
    absent: tuple[str, ...] = ()  # ids of questions with answers that are nowhere in the passage

    def __len__(self) -> int:
        return len(self.all)

    def only(self, some: list[Question]) -> Questions:
        """These of them."""
        ids = {one.id for one in some}
        kept = (tuple(id for id in those if id in ids) for those in (self.moved, self.absent))
        return Questions(self.name, some, *kept)

    def take(self, chosen: Sequence[int]) -> Questions:
        return self.only([self.all[i] for i in chosen])

    @property
    def learnt(self) -> Questions:
        """Those that something can be learnt of: their answer is in the passage, or they have none."""
        return self.only([one for one in self.all if not one.lost])

    @property
    def labelled(self) -> bool:
        return all(one.answers is not None for one in self.all)

    @property
    def some_without(self) -> bool:
        """Some questions have no answer, as in 2.0."""
        return any(one.answers == () for one in self.all)


def located(context: str, text: str, near: int | None) -> tuple[str, int, bool]:
    """An answer, the character where it begins, and whether that is elsewhere than `near` says."""
    if near is not None and near >= 0 and context.startswith(text, near):
        return text, near, False
    for wanted in dict.fromkeys((text, text.strip())):
        places = _occurrences(context, wanted)
        if places:
            return wanted, min(places, key=lambda place: abs(place - (near or 0))), near is not None
    return text, NOWHERE, False


def _occurrences(context: str, text: str) -> list[int]:
    """Where it stands as whole words; where it never does, every place."""
    found, at = [], context.find(text) if text else -1
    while at >= 0:
        found.append(at)
        at = context.find(text, at + 1)
    return [at for at in found if not (_within(context, at) or _within(context, at + len(text)))] or found


def _within(context: str, at: int) -> bool:
    """Does a word go on over the edge before this character?"""
    return 0 < at < len(context) and all(unicodedata.category(one)[0] in WORD for one in context[at - 1 : at + 1])


def answered(
    id: str, question: str, context: str, answers: Sequence[tuple[str, int | None]] | None
) -> tuple[Question, bool]:
    """A question with its answers found in the passage, and whether one of them had to be looked for."""
    if answers is None:
        return Question(id, question, context), False
    found = [located(context, text, near) for text, near in answers]
    made = Question(id, question, context, tuple(one[0] for one in found), tuple(one[1] for one in found))
    return made, any(one[2] for one in found)


def gathered(name: str, given: Iterator[tuple[Question, bool]]) -> Questions:
    """All of one file; an id that occurs twice is an error, for predictions are known by it."""
    found: dict[str, Question] = {}
    moved: list[str] = []
    for one, elsewhere in given:
        if one.id in found:
            raise NextwordError(f"{name}: two questions have the id {one.id!r}. Give each its own.")
        found[one.id] = one
        moved += [one.id] if elsewhere else []
    if not found:
        raise NextwordError(f"{name} has no question in it. Expected the JSON of SQuAD, or a table of questions.")
    absent = tuple(one.id for one in found.values() if any(start == NOWHERE for start in one.starts))
    return Questions(name, list(found.values()), tuple(moved), absent)


# ------------------------------------------------------------------------------------------------ SQuAD's JSON


def read_squad(path: str | Path, text: str | None = None) -> Questions:
    """`text` is what the file holds, where it has been read before."""
    name = str(path)
    try:
        found = json.loads("".join(chunks(path)) if text is None else text)
    except ValueError as problem:
        raise NextwordError(f"{name} is not JSON: {problem}. Expected the official file of SQuAD.") from None
    articles = _part(found, "data", list, name, "the file")
    return gathered(name, _questions(name, articles))


def _questions(name: str, articles: Sequence[Any]) -> Iterator[tuple[Question, bool]]:
    for i, article in enumerate(articles):
        where = f"article {i + 1}"
        if isinstance(article, dict) and isinstance(article.get("title"), str):
            where += f" ({article['title'][:40]})"
        for j, paragraph in enumerate(_part(article, "paragraphs", list, name, where)):
            there = f"{where}, paragraph {j + 1}"
            context = _part(paragraph, "context", str, name, there)
            for k, one in enumerate(_part(paragraph, "qas", list, name, there)):
                yield _question(one, context, name, f"{there}, question {k + 1}")


def _question(one: Any, context: str, name: str, where: str) -> tuple[Question, bool]:
    id = _part(one, "id", str, name, where)
    where = f"{where} (id {id})"
    question = _part(one, "question", str, name, where).strip()
    impossible = one.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise _malformed(name, where, f"is_impossible is {impossible!r}, not true or false")
    if "answers" not in one and not impossible:
        return answered(id, question, context, None)
    answers = []
    for n, answer in enumerate(_part(one, "answers", list, name, where) if "answers" in one else ()):
        text = _part(answer, "text", str, name, f"{where}, answer {n + 1}")
        there = "answer_start" in answer  # some copies leave it out
        start = _part(answer, "answer_start", int, name, f"{where}, answer {n + 1}") if there else None
        answers.append((text, start))
    if impossible and answers:
        raise _malformed(name, where, "is_impossible is true, and there are answers")
    return answered(id, question, context, answers)


def _part(table: Any, key: str, kind: type, name: str, where: str) -> Any:
    if not isinstance(table, dict):
        raise _malformed(name, where, f"it is {str(table)[:40]!r}, not an object")
    if key not in table:
        raise _malformed(name, where, f"it has no '{key}', only {', '.join(map(str, table)) or 'nothing'}")
    value = table[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        called = {list: "a list", str: "a text", int: "a whole number"}[kind]
        raise _malformed(name, where, f"'{key}' is {str(value)[:40]!r}, not {called}")
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise _malformed(name, where, f"'{key}' has half of a pair of surrogates (\\ud800 to \\udfff) in it")
    return value


def _malformed(name: str, where: str, what: str) -> NextwordError:
    return NextwordError(f"{name}, {where}: {what}. Expected the official JSON of SQuAD; mend that entry.")
