"""BLEU and chrF, including texts that share nothing."""

from __future__ import annotations

from nextword.metrics.bleu import bleu_and_chrf


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
