"""Small question-answering and multiple-choice data in the formats of SQuAD and of tables."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.tiny_transfer import FILLER

PLAIN = tuple(word for word in FILLER if word not in ("a", "the"))  # words that SQuAD's metrics count
MARK = "red"


def draw_passage(draw: random.Random, length: tuple[int, int] = (6, 14), marked: bool = True) -> tuple[str, str, int]:
    """Draw a text whose answer follows the mark; return the text, the answer and its start."""
    words = draw.choices(PLAIN, k=draw.randint(*length))
    at = draw.randrange(len(words) - 1)
    if marked:
        words[at] = MARK
    start = len(" ".join(words[: at + 1])) + 1
    return " ".join(words), words[at + 1], start


def make_squad(n: int, seed: int = 0, without: float = 0.0, version: str = "1.1", **more: Any) -> dict[str, Any]:
    """Make the official JSON, one paragraph per question. The fraction `without` has no mark and no answer."""
    draw = random.Random(seed)
    paragraphs = []
    for i in range(n):
        marked = draw.random() >= without
        context, text, start = draw_passage(draw, marked=marked, **more)
        answers = [{"text": text, "answer_start": start}] if marked else []
        question: dict[str, Any] = {"id": f"q{seed}-{i}", "question": f"what follows {MARK} ?", "answers": answers}
        if without:
            question["is_impossible"] = not marked
        paragraphs.append({"context": context, "qas": [question]})
    return {"version": version, "data": [{"title": "made", "paragraphs": paragraphs}]}


def write_json(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def draw_endings(n: int, k: int = 3, seed: int = 0) -> list[dict[str, Any]]:
    """Draw contexts that name a word, with candidates of which exactly one names it too."""
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        word, *others = draw.sample(PLAIN, k)
        texts = [f"saw {candidate}" for candidate in (word, *others)]
        draw.shuffle(texts)
        label = texts.index(f"saw {word}")
        rows.append({"context": f"went to {word}", "choices": texts, "label": label})
    return rows


def write_json_lines(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


STORY_HEADER = [
    *("InputStoryid", "InputSentence1", "InputSentence2", "InputSentence3", "InputSentence4"),
    *("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2", "AnswerRightEnding"),
]
SWAG_HEADER = [
    *("", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"),
    *("ending0", "ending1", "ending2", "ending3", "label"),
]
