"""SQuAD metrics: hand-computed cases of the rules of 1.1 and 2.0, and no-answer thresholds."""

from __future__ import annotations

import random

import pytest

from nextword.metrics.squad import (
    ANSWER_METRICS,
    ANSWER_METRICS_2_0,
    exact_match,
    find_best_threshold,
    normalize_words,
    score_answers,
    score_questions,
    word_f1,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The Denver Broncos!", ["denver", "broncos"]),
        ("an apple, a day", ["apple", "day"]),
        ("theatre another Anna", ["theatre", "another", "anna"]),  # articles are whole words
        ("A.", []),
        ("the", []),
        ("$5.30", ["530"]),  # punctuation is removed without leaving a space
        ("well-known", ["wellknown"]),
        ("an-tea, a-\ntea", ["antea", "tea"]),  # punctuation is removed before articles
        ("a–b", ["–b"]),  # a non-ASCII dash is not punctuation here, but is a word boundary
        ("  São   Paulo ", ["são", "paulo"]),
        ("", []),
    ],
)
def test_normalize_words_drops_articles_and_punctuation(text: str, words: list[str]) -> None:
    assert normalize_words(text) == words


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "f1"),
    [
        ("Denver Broncos", "the Denver Broncos", 1, 1),
        ("Broncos Denver", "Denver Broncos", 0, 1),  # F1 ignores word order
        ("Denver", "Denver Broncos", 0, 2 * 1 * 0.5 / 1.5),
        ("in the year 2015", "2015", 0, 2 * (1 / 3) * 1 / (4 / 3)),
        ("to be to be", "to be", 0, 2 * 0.5 * 1 / 1.5),  # a word counts as often as it occurs in both
        ("Carolina", "Denver", 0, 0),
    ],
)
def test_score_of_one_answer_equals_hand_computation(answer: str, gold: str, exact: float, f1: float) -> None:
    assert exact_match(answer, gold) == exact
    assert word_f1(answer, gold) == pytest.approx(f1)
    for rules in (False, True):
        scores = score_questions([answer], [[gold]], rules)
        assert scores["exact"][0] == exact
        assert scores["answer_f1"][0] == pytest.approx(f1)


def test_score_answers_takes_the_most_similar_gold_answer() -> None:
    golds = [["Denver Broncos", "Broncos", "the team of Denver"]]
    assert score_answers(ANSWER_METRICS, ["broncos"], golds, False) == {"answer_f1": 1, "exact": 1}
    scores = score_answers(ANSWER_METRICS, ["team"], golds, False)
    assert scores["answer_f1"] == pytest.approx(2 * 1 * (1 / 3) / (4 / 3))  # "team of denver" has three words
    assert scores["exact"] == 0


def test_score_answers_without_words_follows_each_version() -> None:
    """The script of 1.1 counts shared words, here none; that of 2.0 compares the normalized texts."""
    assert score_answers(ANSWER_METRICS, ["a"], [["The"]], False) == {"answer_f1": 0, "exact": 1}
    assert score_answers(ANSWER_METRICS, ["a"], [["The"]], True) == {"answer_f1": 1, "exact": 1}
    assert score_answers(ANSWER_METRICS, ["dog"], [["The"]], True) == {"answer_f1": 0, "exact": 0}
    # 2.0 ignores a gold answer without words if there are others
    assert score_answers(ANSWER_METRICS, [""], [["The", "dog"]], True) == {"answer_f1": 0, "exact": 0}
    assert score_answers(ANSWER_METRICS, [""], [["The", "dog"]], False) == {"answer_f1": 0, "exact": 1}


def test_score_answers_of_unanswerable_questions_equals_hand_computation() -> None:
    answers = ["Denver", "", "", "in 2015"]
    golds: list[list[str]] = [["Denver"], ["Carolina"], [], []]
    assert score_answers(ANSWER_METRICS_2_0, answers, golds, True) == {
        "answer_f1": 0.5,
        "exact": 0.5,
        "has_answer_f1": 0.5,
        "no_answer_f1": 0.5,
    }
    scores = score_answers(ANSWER_METRICS_2_0, ["in 2015"], [["2015"]], True)
    assert scores["has_answer_f1"] == pytest.approx(2 / 3)
    assert scores["no_answer_f1"] == 0  # no question of this kind


def test_best_threshold_equals_exhaustive_search() -> None:
    """Compare with the best of all thresholds that change a prediction."""
    draw = random.Random(3)
    for _ in range(20):
        n = draw.randint(1, 9)
        golds: list[list[str]] = [[draw.choice("xyz")] if draw.random() < 0.6 else [] for _ in range(n)]
        answers = [draw.choice("xyz") for _ in range(n)]
        margins = [float(draw.randint(-3, 3)) for _ in range(n)]
        f1_by_threshold = []
        for threshold in (-9.0, *margins):
            texts = [text if margin <= threshold else "" for text, margin in zip(answers, margins, strict=True)]
            f1_by_threshold.append(score_answers(ANSWER_METRICS_2_0, texts, golds, True)["answer_f1"])
        threshold, numbers = find_best_threshold(margins, answers, golds)
        assert numbers["answer_f1"] == pytest.approx(max(f1_by_threshold))
        texts = [text if margin <= threshold else "" for text, margin in zip(answers, margins, strict=True)]
        assert numbers == score_answers(ANSWER_METRICS_2_0, texts, golds, True)
