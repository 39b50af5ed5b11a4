"""Metrics of any arrays equal scikit-learn, scipy, seqeval and plain sums, even with a single class."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from nextword.data.tag_schemes import find_spans
from nextword.metrics.classification import accuracy, f1, macro_f1, mcc, micro_f1, pearson, ranks, spearman
from nextword.metrics.spans import span_f1, span_precision, span_recall

sklearn = pytest.importorskip("sklearn.metrics", reason="SCIKIT-LEARN ABSENT: metrics are not compared with it")
scipy = pytest.importorskip("scipy.stats", reason="SCIPY ABSENT: correlations are not compared with it")
seqeval = pytest.importorskip("seqeval.metrics", reason="SEQEVAL ABSENT: spans are not compared with it")

CLASSES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)
TWO = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)
PLAIN = st.one_of(st.integers(-4, 4).map(float), st.floats(-1e3, 1e3).map(lambda x: round(x, 3)))  # with ties
NUMBERS = st.lists(st.tuples(PLAIN, PLAIN), min_size=2, max_size=30)
TAGS = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
SENTENCES = st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=8), min_size=1, max_size=6)


def columns(rows: list[tuple[Any, Any]]) -> tuple[np.ndarray, np.ndarray]:
    gold, said = zip(*rows, strict=True)
    return np.array(gold), np.array(said)


@given(CLASSES)
@example([(0, 0)])  # one example, one class
@example([(0, 1), (1, 1), (2, 1)])  # one class said
@example([(1, 0), (1, 2)])  # nothing right
@settings(deadline=None, max_examples=100)
def test_classes(rows: list[tuple[int, int]]) -> None:
    gold, said = columns(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert accuracy(gold, said) == pytest.approx(sklearn.accuracy_score(gold, said))
        assert macro_f1(gold, said) == pytest.approx(sklearn.f1_score(gold, said, average="macro", zero_division=0))
        assert micro_f1(gold, said) == pytest.approx(sklearn.f1_score(gold, said, average="micro", zero_division=0))
        assert mcc(gold, said) == pytest.approx(sklearn.matthews_corrcoef(gold, said), abs=1e-12)


@given(TWO)
@example([(0, 0), (0, 0)])  # the class is nowhere
@example([(1, 0), (0, 0)])  # never said
@settings(deadline=None, max_examples=100)
def test_binary_f1_equals_sklearn(rows: list[tuple[int, int]]) -> None:
    gold, said = columns(rows)
    assert f1(gold, said) == pytest.approx(sklearn.f1_score(gold, said, labels=[1], average="macro", zero_division=0))


@given(NUMBERS)
@example([(1.0, 0.1), (2.0, 0.1), (3.0, 0.1)])  # equal numbers, whose mean is not exactly they
@example([(0.0, 1.0), (0.0, 2.0)])
@settings(deadline=None, max_examples=120)
def test_correlations_equal_scipy(rows: list[tuple[float, float]]) -> None:
    gold, said = columns(rows)
    theirs = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = {pearson: scipy.pearsonr(gold, said)[0], spearman: scipy.spearmanr(gold, said)[0]}
    for ours, value in theirs.items():
        if len(set(gold)) == 1 or len(set(said)) == 1:
            assert math.isnan(value)
            assert ours(gold, said) == 0.0  # our rule
        else:
            assert ours(gold, said) == pytest.approx(value, abs=1e-7)
    assert ranks(gold).tolist() == scipy.rankdata(gold).tolist()


@given(NUMBERS, st.sampled_from([1e-200, 1e200]))
@settings(deadline=None, max_examples=50)
def test_correlations_are_scale_invariant(rows: list[tuple[float, float]], scale: float) -> None:
    gold, said = columns(rows)
    assume(np.ptp(said) > 1e-3)
    assert pearson(gold, said * scale) == pytest.approx(pearson(gold, said), abs=1e-9)
    assert spearman(gold, said * scale) == spearman(gold, said)


def test_correlation_with_nan_or_infinity_is_nan() -> None:
    gold = np.array([1.0, 2.0, 3.0])
    for strange in (math.nan, math.inf):
        for correlation in (pearson, spearman):
            assert math.isnan(correlation(gold, np.array([1.0, strange, 2.0])))
            assert math.isnan(correlation(np.array([strange, 1.0, 1.0]), gold))


@given(SENTENCES)
@example([[("O", "O")]])
@example([[("B-PER", "O")], [("O", "B-LOC")]])
@settings(deadline=None, max_examples=80)
def test_span_metrics_equal_seqeval(rows: list[list[tuple[str, str]]]) -> None:
    gold, said = ([[pair[side] for pair in one] for one in rows] for side in (0, 1))
    right, found = ([(i, *span) for i, one in enumerate(some) for span in find_spans(one)] for some in (gold, said))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert span_f1(right, found) == pytest.approx(seqeval.f1_score(gold, said, zero_division=0))
        assert span_precision(right, found) == pytest.approx(seqeval.precision_score(gold, said, zero_division=0))
        assert span_recall(right, found) == pytest.approx(seqeval.recall_score(gold, said, zero_division=0))
