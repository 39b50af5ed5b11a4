"""Spans and their F1 compared with seqeval, which counts like the CoNLL script."""

from __future__ import annotations

import random

import pytest

from nextword.data.tag_schemes import find_spans
from nextword.metrics.spans import score_types, span_f1, span_precision, span_recall

metrics = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed: pip install seqeval")


def drawn(draw: random.Random, letters: str, length: int) -> list[str]:
    """Any tags in any order: what a network says that knows no scheme."""
    tags = ["O", *(f"{letter}-{type}" for letter in letters for type in ("PER", "LOC"))]
    return [draw.choice(tags) for _ in range(length)]


@pytest.mark.parametrize("letters", ["BI", "BIES"])
@pytest.mark.parametrize("seed", range(20))
def test_spans_and_scores_equal_seqeval(letters: str, seed: int) -> None:
    draw = random.Random(seed)
    gold = [drawn(draw, letters, draw.randint(1, 9)) for _ in range(20)]
    said = [[tag if draw.random() < 0.7 else "O" for tag in one] for one in gold]
    for sentence in (*gold, *said):
        theirs = metrics.sequence_labeling.get_entities(sentence)
        assert [(span.type, span.start, span.end - 1) for span in find_spans(sentence)] == theirs
    right, found = ([(i, *span) for i, one in enumerate(some) for span in find_spans(one)] for some in (gold, said))
    for ours, theirs in (
        (span_f1, metrics.f1_score),
        (span_precision, metrics.precision_score),
        (span_recall, metrics.recall_score),
    ):
        assert ours(right, found) == pytest.approx(theirs(gold, said, zero_division=0))
    report = metrics.classification_report(gold, said, output_dict=True, zero_division=0)
    for type, values in score_types(right, found).items():
        assert values["span_f1"] == pytest.approx(report[type]["f1-score"])
        assert values["spans"] == report[type]["support"]


def test_scores_without_any_spans_are_zero() -> None:
    assert span_f1([], []) == span_precision([(0, 1, "X")], []) == span_recall([], [(0, 1, "X")]) == 0.0
