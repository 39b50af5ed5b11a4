"""ROUGE by hand, and answers that are read from what was written."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from nextword.data.text_to_text import tasks
from nextword.evaluation.text_to_text import judged
from nextword.metrics.rouge import bootstrap_interval, one_sentence_per_line, rouge_scores
from nextword.metrics.squad import word_f1, exact_match


def test_rouge_by_hand() -> None:
    """Written: 6 words, of which 5 are among the target's 6; of 5 pairs 3 are."""
    pytest.importorskip("rouge_score", reason="ROUGE-SCORE ABSENT: ROUGE is not tested")
    found = rouge_scores(["The cat was on the mat."], ["the cat sat on the mat"])
    assert found["rouge1"]["score"] == pytest.approx(100 * 5 / 6)
    assert found["rouge2"]["score"] == pytest.approx(100 * 3 / 5)
    assert found["rougeL"]["score"] == pytest.approx(100 * 5 / 6)
    assert found["rouge1"]["low"] is None  # of one summary there is no interval
    both = rouge_scores(["cats", ""], ["cat", "dog"])  # stems; and nothing written is worth nothing
    assert both["rouge1"]["score"] == pytest.approx(50)
    assert both["rouge1"]["low"] == 0
    assert both["rouge1"]["high"] == 100
    assert "stemmed" in both["rouge1"]["signature"]


def test_sentence_by_sentence() -> None:
    """In another order the sentences are the same for rougeLsum, and not for rougeL."""
    pytest.importorskip("rouge_score", reason="ROUGE-SCORE ABSENT: ROUGE is not tested")
    assert one_sentence_per_line("One two three.Four five six. Seven.") == "One two three.\nFour five six.\nSeven."
    assert one_sentence_per_line("It rose 1.5% at U.S. firms.") == "It rose 1.5% at U.S. firms."
    found = rouge_scores(["Red cats sleep. Dogs run fast."], ["Dogs run fast. Red cats sleep."])
    assert found["rougeLsum"]["score"] == pytest.approx(100)
    assert found["rougeL"]["score"] == pytest.approx(50)


def test_the_interval_holds_the_mean() -> None:
    values = np.random.default_rng(1).normal(50, 10, 400)
    low, high = bootstrap_interval(values)
    assert low is not None
    assert high is not None
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * 10 / math.sqrt(400), rel=0.15)


def test_what_is_no_answer_is_wrong() -> None:
    golds = [("positive",), ("negative",), ("positive",), ("negative",)]
    scores, unread = judged(tasks()["sst2"], ["positive", " negative", "posit", ""], golds)
    assert scores["accuracy"]["score"] == 50
    assert unread == 2
    scores, unread = judged(tasks()["mrpc"], ["equivalent", "rubbish"], [("equivalent",), ("equivalent",)])
    assert unread == 1
    assert scores["f1"]["score"] == pytest.approx(100 * 2 / 3)
    assert scores["accuracy"]["score"] == 50
    scores, unread = judged(tasks()["cola"], ["acceptable", "unacceptable"], [("acceptable",), ("unacceptable",)])
    assert (scores["mcc"]["score"], unread) == (100, 0)


def test_numbers_and_what_is_none() -> None:
    golds = [("1.0",), ("2.0",), ("3.0",), ("4.0",)]
    scores, unread = judged(tasks()["stsb"], ["0.2", "0.4", "4.8", "5.0"], golds)
    assert (scores["spearman"]["score"], unread) == (pytest.approx(100), 0)
    scores, unread = judged(tasks()["stsb"], ["1.0", "2.0", "3.0", "nan"], golds)  # −1, last of all
    assert unread == 1
    assert scores["spearman"]["score"] == pytest.approx(-20)  # ranks 1 2 3 4 beside 2 3 4 1


def test_answers_as_squad_judges_them() -> None:
    assert exact_match("The Denver Broncos!", "denver broncos") == 1
    assert exact_match("Denver", "Denver Broncos") == 0
    assert word_f1("in the year 2015", "2015") == pytest.approx(2 / 4)  # "the" does not count
    assert word_f1("", "2015") == 0
    scores, unread = judged(tasks()["squad"], ["the cat", "dog"], [("a mat", "cat"), ("cow",)])
    assert scores["exact"]["score"] == 50  # the answer that it is most like
    assert unread is None


def test_translations_and_summaries_have_their_own() -> None:
    pytest.importorskip("sacrebleu", reason="SACREBLEU ABSENT: BLEU is not tested")
    pytest.importorskip("rouge_score", reason="ROUGE-SCORE ABSENT: ROUGE is not tested")
    gold = [("the cat sat on the mat",)] * 2
    scores, _ = judged(tasks()["translate-en-de"], [one[0] for one in gold], gold)
    assert list(scores) == ["bleu", "chrf"]
    assert scores["bleu"]["score"] == pytest.approx(100)
    scores, _ = judged(tasks()["summarize"], [one[0] for one in gold], gold)
    assert list(scores) == ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    only = replace(tasks()["summarize"], metrics=("rougeL",))
    assert list(judged(only, ["a"], [("a",)])[0]) == ["rougeL"]
