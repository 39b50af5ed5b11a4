"""From the best spans of windows to the answer of each question: the best over all its windows, as text.

    score of none = the least over the windows: one of them that has the answer is enough
    an answer is given unless none is better than the best span by more than the threshold (Devlin et al. 2019, 4.3)

The text is cut out of the passage as it stands there. Spans that give the same text count once, with their best score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nextword.batching.questions import Asked
from nextword.metrics.answers import measured


@dataclass(frozen=True)
class Answer:
    """What is said of one question."""

    id: str
    text: str  # "": it has no answer
    best: str  # the best span, whether or not it is given
    probability: float  # of the text, among the best spans and none
    none: float  # the probability that there is no answer, likewise
    margin: float  # score of none − score of the best span
    others: tuple[tuple[str, float], ...] = ()  # the best texts with their probabilities, `best` first


def answers(text: Asked, said: np.ndarray, n: int = 5) -> list[Answer]:
    """Of every question, of what the head said of its windows (windows, 1 + 3k) in their order."""
    spans: list[dict[str, float]] = [{} for _ in text.questions]
    none = np.full(len(text.questions), np.inf)
    for window, row in enumerate(said):
        question = int(text.whose[window])
        none[question] = min(none[question], row[0])
        for begin, end, score in row[1:].reshape(-1, 3):
            if not math.isfinite(score):
                break
            found = text.text(window, int(begin), int(end))
            if found and score > spans[question].get(found, -math.inf):
                spans[question][found] = float(score)
    return [
        _answer(one.id, some, float(zero), text.some_without, text.threshold, n)
        for one, some, zero in zip(text.questions, spans, none, strict=True)
    ]


def _answer(id: str, spans: dict[str, float], none: float, may_be_none: bool, threshold: float, n: int) -> Answer:
    if not spans:  # the passage has no text in it
        return Answer(id, "", "", 1.0, 1.0, math.inf)
    ranked = sorted(spans.items(), key=lambda one: -one[1])
    scores = np.array([score for _, score in ranked] + ([none] if may_be_none else []))
    odds = np.exp(scores - scores.max())
    shares = (odds / odds.sum()).tolist()
    margin = none - ranked[0][1]
    empty = may_be_none and margin > threshold
    nothing = shares[-1] if may_be_none else 0.0
    others = tuple((text, share) for (text, _), share in zip(ranked[:n], shares, strict=False))
    given = "" if empty else ranked[0][0]
    return Answer(id, given, ranked[0][0], nothing if empty else shares[0], nothing, margin, others)


def measured_answers(text: Asked, found: Sequence[Answer]) -> dict[str, float]:
    """The metrics that the questions ask for."""
    golds = [one.answers or () for one in text.questions]
    return measured(text.metrics, [one.text for one in found], golds, text.some_without)
