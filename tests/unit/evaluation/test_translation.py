"""BLEU and chrF of texts, also of such as have nothing in common."""

from __future__ import annotations

from nextword.evaluation.translation import compared


def test_texts_of_which_most_are_wrong_are_scored_all_the_same() -> None:
    """Resamplings that hold no right one score exactly 0."""
    written = ["qq rr", "qq rr", "qq rr", "the cat sat on the mat"]
    targets = ["a b c", "d e f", "g h i", "the cat sat on the mat"]
    found = compared(written, targets)
    assert list(found) == ["bleu", "bleu_lowercase", "chrf"]
    for one in found.values():
        assert 0 < one["score"] < 100
        assert one["low"] is None or one["low"] <= one["score"] <= one["high"]
        assert one["signature"].startswith("nrefs:1|")


def test_nothing_in_common_is_nothing_and_the_same_is_all() -> None:
    assert {name: one["score"] for name, one in compared(["qq"], ["bb"]).items()} == {
        "bleu": 0.0,
        "bleu_lowercase": 0.0,
        "chrf": 0.0,
    }
    same = ["the cat sat on the mat", "a dog ran through the field"]
    assert all(round(one["score"], 6) == 100 for one in compared(same, same).values())
