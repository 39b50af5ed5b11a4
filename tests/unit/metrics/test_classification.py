"""Classification metrics equal hand computation, and scikit-learn and scipy where installed."""

from __future__ import annotations

import numpy as np
import pytest

from nextword.metrics.classification import (
    METRICS,
    accuracy,
    f1,
    macro_f1,
    mcc,
    pearson,
    ranks,
    spearman,
)


def array(*values: float) -> np.ndarray:
    return np.array(values)


def test_metrics_of_small_arrays_equal_hand_computed_values() -> None:
    gold, predicted = array(1, 1, 0, 0, 1), array(1, 0, 0, 1, 1)
    assert accuracy(gold, predicted) == 3 / 5
    assert f1(gold, predicted) == pytest.approx(2 / 3)  # precision 2/3, recall 2/3
    assert macro_f1(gold, predicted) == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert mcc(gold, predicted) == pytest.approx((2 * 1 - 1 * 1) / 6)  # (tp·tn − fp·fn) / √(3·3·2·2)
    assert pearson(array(1, 2, 3), array(2, 4, 6)) == pytest.approx(1)
    assert pearson(array(1, 2, 3), array(3, 2, 1)) == pytest.approx(-1)
    assert spearman(array(1, 2, 3, 4), array(1, 8, 9, 1000)) == pytest.approx(1)
    assert ranks(array(3, 1, 3)).tolist() == [2.5, 1, 2.5]


def test_metrics_division_by_zero_gives_zero() -> None:
    assert f1(array(0, 0), array(0, 0)) == 0
    assert mcc(array(0, 1), array(1, 1)) == 0
    assert pearson(array(1, 2), array(3, 3)) == 0
    assert spearman(array(1, 1), array(3, 2)) == 0


@pytest.mark.parametrize("name", METRICS)
def test_metrics_return_python_floats(name: str) -> None:
    """The JSON log cannot hold numpy scalars."""
    assert type(METRICS[name](array(1, 1, 0, 0, 1), array(1, 0, 0, 1, 1))) is float
    assert type(METRICS[name](array(0, 0), array(0, 0))) is float


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [2, 4])
def test_classification_metrics_equal_sklearn(seed: int, classes: int) -> None:
    reference = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(seed)
    gold = random.integers(0, classes, 60)
    predicted = np.where(random.random(60) < 0.5, gold, random.integers(0, classes, 60))
    assert accuracy(gold, predicted) == pytest.approx(reference.accuracy_score(gold, predicted))
    assert macro_f1(gold, predicted) == pytest.approx(reference.f1_score(gold, predicted, average="macro"))
    assert mcc(gold, predicted) == pytest.approx(reference.matthews_corrcoef(gold, predicted))
    if classes == 2:
        assert f1(gold, predicted) == pytest.approx(reference.f1_score(gold, predicted))


@pytest.mark.parametrize("seed", range(5))
def test_correlations_equal_scipy(seed: int) -> None:
    reference = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(seed)
    gold = random.integers(0, 10, 80) / 2  # with ties
    predicted = (gold + random.normal(0, 2, 80)).astype(np.float32)
    assert pearson(gold, predicted) == pytest.approx(reference.pearsonr(gold, predicted)[0], abs=1e-6)
    assert spearman(gold, predicted) == pytest.approx(reference.spearmanr(gold, predicted)[0], abs=1e-9)
