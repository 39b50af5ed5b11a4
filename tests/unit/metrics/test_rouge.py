"""ROUGE equals hand computation."""

from __future__ import annotations

import pytest

from nextword.metrics.rouge import one_sentence_per_line, rouge_scores


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
