"""Outputs of text-to-text tasks, read as answers and scored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextword.data.text_to_text import tasks
from nextword.evaluation.seq2seq import score_outputs
from nextword.metrics.squad import exact_match, word_f1


def test_score_outputs_counts_unknown_answers_as_wrong() -> None:
    golds = [("positive",), ("negative",), ("positive",), ("negative",)]
    scores, unread = score_outputs(tasks()["sst2"], ["positive", " negative", "posit", ""], golds)
    assert scores["accuracy"]["score"] == 50
    assert unread == 2
    scores, unread = score_outputs(tasks()["mrpc"], ["equivalent", "rubbish"], [("equivalent",), ("equivalent",)])
    assert unread == 1
    assert scores["f1"]["score"] == pytest.approx(100 * 2 / 3)
    assert scores["accuracy"]["score"] == 50
    scores, unread = score_outputs(
        tasks()["cola"], ["acceptable", "unacceptable"], [("acceptable",), ("unacceptable",)]
    )
    assert (scores["mcc"]["score"], unread) == (100, 0)


def test_score_outputs_counts_unparsable_numbers_as_minus_one() -> None:
    golds = [("1.0",), ("2.0",), ("3.0",), ("4.0",)]
    scores, unread = score_outputs(tasks()["stsb"], ["0.2", "0.4", "4.8", "5.0"], golds)
    assert (scores["spearman"]["score"], unread) == (pytest.approx(100), 0)
    scores, unread = score_outputs(tasks()["stsb"], ["1.0", "2.0", "3.0", "nan"], golds)  # nan counts as −1, the lowest
    assert unread == 1
    assert scores["spearman"]["score"] == pytest.approx(-20)  # ranks 1 2 3 4 against 2 3 4 1


def test_score_outputs_of_squad_normalizes_and_takes_the_best_gold() -> None:
    assert exact_match("The Denver Broncos!", "denver broncos") == 1
    assert exact_match("Denver", "Denver Broncos") == 0
    assert word_f1("in the year 2015", "2015") == pytest.approx(2 / 4)  # "the" does not count
    assert word_f1("", "2015") == 0
    scores, unread = score_outputs(tasks()["squad"], ["the cat", "dog"], [("a mat", "cat"), ("cow",)])
    assert scores["exact"]["score"] == 50  # the most similar gold answer counts
    assert unread is None


def test_score_outputs_uses_bleu_for_translations_and_rouge_for_summaries() -> None:
    pytest.importorskip("sacrebleu", reason="SACREBLEU ABSENT: BLEU is not tested")
    pytest.importorskip("rouge_score", reason="ROUGE-SCORE ABSENT: ROUGE is not tested")
    gold = [("the cat sat on the mat",)] * 2
    scores, _ = score_outputs(tasks()["translate-en-de"], [one[0] for one in gold], gold)
    assert list(scores) == ["bleu", "chrf"]
    assert scores["bleu"]["score"] == pytest.approx(100)
    scores, _ = score_outputs(tasks()["summarize"], [one[0] for one in gold], gold)
    assert list(scores) == ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    only = replace(tasks()["summarize"], metrics=("rougeL",))
    assert list(score_outputs(only, ["a"], [("a",)])[0]) == ["rougeL"]
