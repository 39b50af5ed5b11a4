"""Metrics for extractive question answering, as the official scripts of SQuAD 1.1 and 2.0 compute them.

| metric          |                                                                                |
| --------------- | ------------------------------------------------------------------------------ |
| `answer_f1`     | F1 of the words shared with a gold answer; the best gold answer counts          |
| `exact`         | 1 if the words equal those of a gold answer                                     |
| `has_answer_f1` | `answer_f1` over the questions that have an answer                              |
| `no_answer_f1`  | over the questions that have none: 1 if nothing was predicted                   |

Case, punctuation and articles do not count: "The Broncos!" equals "broncos". In SQuAD 2.0 a question without an answer
has the single gold answer "", and so has a question whose gold answers contain no counted words. In 1.1 every question
has an answer, and an answer without counted words shares nothing with any other.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

F1, EXACT = "answer_f1", "exact"
ANSWER_METRICS = (F1, EXACT)
ANSWER_METRICS_2_0 = (*ANSWER_METRICS, "has_answer_f1", "no_answer_f1")  # for data with unanswerable questions
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


# ------------------------------------------------------------------------------------------------ one answer


def normalize_words(answer: str) -> list[str]:
    """The words that count."""
    return _ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split()


def exact_match(predicted: str, gold: str) -> float:
    return float(normalize_words(predicted) == normalize_words(gold))


def word_f1(predicted: str, gold: str) -> float:
    """F1 of the shared words; 1 if neither answer has words."""
    a, b = normalize_words(predicted), normalize_words(gold)
    if not a or not b:
        return float(a == b)
    return 2 * sum((Counter(a) & Counter(b)).values()) / (len(a) + len(b))


def gold_answers(answers: Sequence[str]) -> list[str]:
    """The gold answers that SQuAD 2.0 compares with: those that have words, or "" alone."""
    return [answer for answer in answers if normalize_words(answer)] or [""]


# ------------------------------------------------------------------------------------------------ a data set


def score_questions(
    predicted: Sequence[str], golds: Sequence[Sequence[str]], has_unanswerable: bool
) -> dict[str, np.ndarray]:
    """`answer_f1` and `exact` of every question; by the rules of SQuAD 2.0 if some questions have no answer."""
    return {
        F1: _best_scores(word_f1, predicted, golds, has_unanswerable),
        EXACT: _best_scores(exact_match, predicted, golds, has_unanswerable),
    }


def score_answers(
    names: Sequence[str], predicted: Sequence[str], golds: Sequence[Sequence[str]], has_unanswerable: bool
) -> dict[str, float]:
    """Metrics by name; 0 where no question is of that kind."""
    scores = score_questions(predicted, golds, has_unanswerable)
    is_answerable = np.array([bool(answers) for answers in golds], bool)
    subsets = {"has_answer_f1": is_answerable, "no_answer_f1": ~is_answerable}
    results = {}
    for name in names:
        values = scores[EXACT] if name == EXACT else scores[F1][subsets.get(name, slice(None))]
        results[name] = float(values.mean()) if len(values) else 0.0
    return results


def _best_scores(
    score: Callable[[str, str], float],
    predicted: Sequence[str],
    golds: Sequence[Sequence[str]],
    has_unanswerable: bool,
) -> np.ndarray:
    """The score of each prediction with its most similar gold answer."""
    scores = np.zeros(len(predicted))
    for i, (text, answers) in enumerate(zip(predicted, golds, strict=True)):
        if has_unanswerable:
            scores[i] = max(score(text, gold) for gold in gold_answers(answers))
        elif score is word_f1 and not normalize_words(text):
            scores[i] = 0.0
        else:
            scores[i] = max((score(text, gold) for gold in answers), default=0.0)
    return scores


def find_best_threshold(
    margins: Sequence[float], predicted: Sequence[str], golds: Sequence[Sequence[str]]
) -> tuple[float, dict[str, float]]:
    """The no-answer threshold with the greatest F1, and all metrics at that threshold.

    `margins` are score("no answer") − score(best span), `predicted` the best spans. A question with a margin above the
    threshold is left unanswered. The search sorts the questions by margin and raises the threshold past one question
    after the other, so that each switches from "no answer" to its span exactly once.
    """
    if not len(margins):
        return 0.0, {}
    order = np.argsort(np.asarray(margins), kind="stable")
    with_answer = score_questions(predicted, golds, True)
    without_answer = score_questions([""] * len(predicted), golds, True)
    gain = (with_answer[F1] - without_answer[F1])[order]
    totals = np.concatenate(([0.0], np.cumsum(gain)))
    sorted_margins = np.asarray(margins, np.float64)[order]
    ends = np.flatnonzero(np.append(np.diff(sorted_margins) > 0, True)) + 1  # equal margins switch together
    candidates = np.concatenate(([0], ends))
    best = int(candidates[np.argmax(totals[candidates])])
    threshold = sorted_margins[best - 1] if best else sorted_margins[0] - 1.0
    texts = [text if margin <= threshold else "" for text, margin in zip(predicted, margins, strict=True)]
    return float(threshold), score_answers(ANSWER_METRICS_2_0, texts, golds, True)
