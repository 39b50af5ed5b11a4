"""Metrics: by hand, and against scikit-learn and scipy where they are installed."""

from __future__ import annotations

import numpy as np
import pytest

from nextword.metrics.classification import METRICS, accuracy, f1, confidence_interval, macro_f1, mcc, pearson, ranks, spearman


def of(*values: float) -> np.ndarray:
    return np.array(values)


def test_by_hand() -> None:
    gold, said = of(1, 1, 0, 0, 1), of(1, 0, 0, 1, 1)
    assert accuracy(gold, said) == 3 / 5
    assert f1(gold, said) == pytest.approx(2 / 3)  # precision 2/3, recall 2/3
    assert macro_f1(gold, said) == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert mcc(gold, said) == pytest.approx((2 * 1 - 1 * 1) / 6)  # (tp·tn − fp·fn) / √(3·3·2·2)
    assert pearson(of(1, 2, 3), of(2, 4, 6)) == pytest.approx(1)
    assert pearson(of(1, 2, 3), of(3, 2, 1)) == pytest.approx(-1)
    assert spearman(of(1, 2, 3, 4), of(1, 8, 9, 1000)) == pytest.approx(1)
    assert ranks(of(3, 1, 3)).tolist() == [2.5, 1, 2.5]


def test_where_there_is_nothing_to_divide_by() -> None:
    assert f1(of(0, 0), of(0, 0)) == 0
    assert mcc(of(0, 1), of(1, 1)) == 0
    assert pearson(of(1, 2), of(3, 3)) == 0
    assert spearman(of(1, 1), of(3, 2)) == 0


@pytest.mark.parametrize("name", METRICS)
def test_they_are_pythons_numbers(name: str) -> None:
    """What compares as numpy's bool cannot be written to a log."""
    assert type(METRICS[name](of(1, 1, 0, 0, 1), of(1, 0, 0, 1, 1))) is float
    assert type(METRICS[name](of(0, 0), of(0, 0))) is float


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [2, 4])
def test_classes_against_sklearn(seed: int, classes: int) -> None:
    theirs = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(seed)
    gold = draw.integers(0, classes, 60)
    said = np.where(draw.random(60) < 0.5, gold, draw.integers(0, classes, 60))
    assert accuracy(gold, said) == pytest.approx(theirs.accuracy_score(gold, said))
    assert macro_f1(gold, said) == pytest.approx(theirs.f1_score(gold, said, average="macro"))
    assert mcc(gold, said) == pytest.approx(theirs.matthews_corrcoef(gold, said))
    if classes == 2:
        assert f1(gold, said) == pytest.approx(theirs.f1_score(gold, said))


@pytest.mark.parametrize("seed", range(5))
def test_numbers_against_scipy(seed: int) -> None:
    theirs = pytest.importorskip("scipy.stats")
    draw = np.random.default_rng(seed)
    gold = draw.integers(0, 10, 80) / 2  # with equals among them
    said = (gold + draw.normal(0, 2, 80)).astype(np.float32)
    assert pearson(gold, said) == pytest.approx(theirs.pearsonr(gold, said)[0], abs=1e-6)
    assert spearman(gold, said) == pytest.approx(theirs.spearmanr(gold, said)[0], abs=1e-9)


def test_an_interval_over_a_few_runs() -> None:
    theirs = pytest.importorskip("scipy.stats")
    assert confidence_interval([0.5]) == (0.5, None)
    for n in (2, 3, 5, 31, 200):
        values = np.random.default_rng(n).random(n)
        mean, half = confidence_interval(values.tolist())
        low, high = theirs.t.interval(0.95, n - 1, values.mean(), theirs.sem(values))
        assert mean == pytest.approx((low + high) / 2)
        assert half == pytest.approx((high - low) / 2, rel=0.01)
    assert set(METRICS) == {"accuracy", "f1", "macro_f1", "micro_f1", "mcc", "pearson", "spearman"}
