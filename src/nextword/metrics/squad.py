"""How good answers are that were taken out of a passage, as the scripts of SQuAD 1.1 and 2.0 judge them.

| metric          |                                                                                       |
| --------------- | ------------------------------------------------------------------------------------- |
| `answer_f1`     | F1 of the words that answer and gold share, with the gold that it is most like         |
| `exact`         | 1 where the words are a gold's, all and in order                                       |
| `has_answer_f1` | the same F1, of the questions that have an answer                                      |
| `no_answer_f1`  | of those that have none: 1 where nothing was said                                      |

Words count without case, punctuation and articles: "The Broncos!" is "broncos". A question without an answer has one
gold, "", and so has one whose golds have no words that count (2.0). In 1.1 every question has an answer, and one
without words shares none with anything.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

F1, EXACT = "answer_f1", "exact"
OF_ANSWERS = (F1, EXACT)
OF_BOTH = (*OF_ANSWERS, "has_answer_f1", "no_answer_f1")  # where some questions have no answer
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain(answer: str) -> list[str]:
    """The words that count."""
    return _ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split()


def same(written: str, answer: str) -> float:
    return float(plain(written) == plain(answer))


def overlap(written: str, answer: str) -> float:
    """F1 of the words that both have; of two without words it is 1."""
    a, b = plain(written), plain(answer)
    if not a or not b:
        return float(a == b)
    return 2 * sum((Counter(a) & Counter(b)).values()) / (len(a) + len(b))


def golds_of(answers: Sequence[str]) -> list[str]:
    """The answers to be compared with in 2.0: those that have words, or "" alone."""
    return [one for one in answers if plain(one)] or [""]


def judged(said: Sequence[str], golds: Sequence[Sequence[str]], some_without: bool) -> dict[str, np.ndarray]:
    """Of every question its `answer_f1` and `exact`. `some_without`: by the rules of 2.0."""
    return {F1: _each(overlap, said, golds, some_without), EXACT: _each(same, said, golds, some_without)}


def measured(
    names: Sequence[str], said: Sequence[str], golds: Sequence[Sequence[str]], some_without: bool
) -> dict[str, float]:
    """Metrics by name; where there is no question of the sort, 0."""
    each = judged(said, golds, some_without)
    answered = np.array([bool(one) for one in golds], bool)
    whose = {"has_answer_f1": answered, "no_answer_f1": ~answered}
    found = {}
    for name in names:
        values = each[EXACT] if name == EXACT else each[F1][whose.get(name, slice(None))]
        found[name] = float(values.mean()) if len(values) else 0.0
    return found


def _each(
    like: Callable[[str, str], float], said: Sequence[str], golds: Sequence[Sequence[str]], some_without: bool
) -> np.ndarray:
    found = np.zeros(len(said))
    for i, (text, answers) in enumerate(zip(said, golds, strict=True)):
        if some_without:
            found[i] = max(like(text, gold) for gold in golds_of(answers))
        elif like is overlap and not plain(text):
            found[i] = 0.0
        else:
            found[i] = max((like(text, gold) for gold in answers), default=0.0)
    return found


def best_threshold(
    margins: Sequence[float], said: Sequence[str], golds: Sequence[Sequence[str]]
) -> tuple[float, dict[str, float]]:
    """How much better than an answer "none" has to be, for the greatest F1; and what it is then.

    `margins` are score of none − score of the answer; `said` the answers, if one has to be given. Above the threshold
    none is said: questions are taken in the order of their margins, and each moves to its answer as it is passed.
    """
    if not len(margins):
        return 0.0, {}
    order = np.argsort(np.asarray(margins), kind="stable")
    with_answer = judged(said, golds, True)
    without = judged([""] * len(said), golds, True)
    gain = (with_answer[F1] - without[F1])[order]
    totals = np.concatenate(([0.0], np.cumsum(gain)))
    sorted_margins = np.asarray(margins, np.float64)[order]
    ends = np.flatnonzero(np.append(np.diff(sorted_margins) > 0, True)) + 1  # equal margins pass together
    places = np.concatenate(([0], ends))
    best = int(places[np.argmax(totals[places])])
    chosen = sorted_margins[best - 1] if best else sorted_margins[0] - 1.0
    texts = [text if margin <= chosen else "" for text, margin in zip(said, margins, strict=True)]
    return float(chosen), measured(OF_BOTH, texts, golds, True)
