"""BLEU and chrF, including texts that share nothing; ROUGE equals hand computation."""

from __future__ import annotations

import pytest

from nextword.metrics.text_generation import bleu_and_chrf, one_sentence_per_line, rouge_scores


def test_bleu_and_chrf_survive_resamples_that_score_zero() -> None:
    """Resamples without the right text score exactly 0, which sacrebleu cannot average."""
    outputs = ["qq rr", "qq rr", "qq rr", "the cat sat on the mat"]
    targets = ["a b c", "d e f", "g h i", "the cat sat on the mat"]
    scores = bleu_and_chrf(outputs, targets)
    assert list(scores) == ["bleu", "bleu_lowercase", "chrf"]
    for score in scores.values():
        assert 0 < score["score"] < 100
        assert score["low"] is None or score["low"] <= score["score"] <= score["high"]
        assert score["signature"].startswith("nrefs:1|")


def test_bleu_and_chrf_range_from_zero_to_100() -> None:
    assert {name: score["score"] for name, score in bleu_and_chrf(["qq"], ["bb"]).items()} == {
        "bleu": 0.0,
        "bleu_lowercase": 0.0,
        "chrf": 0.0,
    }
    same = ["the cat sat on the mat", "a dog ran through the field"]
    assert all(round(score["score"], 6) == 100 for score in bleu_and_chrf(same, same).values())


def test_rouge_of_one_sentence_equals_hand_counts() -> None:
    """5 of the 6 words and 3 of the 5 word pairs are in the target."""
    pytest.importorskip("rouge_score", reason="ROUGE-SCORE ABSENT: ROUGE is not tested")
    scores = rouge_scores(["The cat was on the mat."], ["the cat sat on the mat"])
    assert scores["rouge1"]["score"] == pytest.approx(100 * 5 / 6)
    assert scores["rouge2"]["score"] == pytest.approx(100 * 3 / 5)
    assert scores["rougeL"]["score"] == pytest.approx(100 * 5 / 6)
    assert scores["rouge1"]["low"] is None  # one summary has no interval
    both = rouge_scores(["cats", ""], ["cat", "dog"])  # stemmed; an empty summary scores 0
    assert both["rouge1"]["score"] == pytest.approx(50)
    assert both["rouge1"]["low"] == 0
    assert both["rouge1"]["high"] == 100
    assert "stemmed" in both["rouge1"]["signature"]


def test_rouge_lsum_ignores_sentence_order() -> None:
    """Reordered sentences are equal for rougeLsum, not for rougeL."""
    pytest.importorskip("rouge_score", reason="ROUGE-SCORE ABSENT: ROUGE is not tested")
    assert one_sentence_per_line("One two three.Four five six. Seven.") == "One two three.\nFour five six.\nSeven."
    assert one_sentence_per_line("It rose 1.5% at U.S. firms.") == "It rose 1.5% at U.S. firms."
    scores = rouge_scores(["Red cats sleep. Dogs run fast."], ["Dogs run fast. Red cats sleep."])
    assert scores["rougeLsum"]["score"] == pytest.approx(100)
    assert scores["rougeL"]["score"] == pytest.approx(50)
