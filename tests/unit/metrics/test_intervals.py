from __future__ import annotations

import math

import numpy as np
import pytest

from nextword.metrics.intervals import bootstrap_mean, confidence_interval


def test_confidence_interval_equals_scipys_t_interval() -> None:
    reference = pytest.importorskip("scipy.stats")
    assert confidence_interval([0.5]) == (0.5, None)
    for n in (2, 3, 5, 31, 200):
        values = np.random.default_rng(n).random(n)
        mean, half = confidence_interval(values.tolist())
        low, high = reference.t.interval(0.95, n - 1, values.mean(), reference.sem(values))
        assert mean == pytest.approx((low + high) / 2)
        assert half == pytest.approx((high - low) / 2, rel=0.01)


def test_bootstrap_mean_is_as_wide_as_the_normal_interval() -> None:
    values = np.random.default_rng(1).normal(50, 10, 400)
    low, high = bootstrap_mean(values)
    assert low is not None
    assert high is not None
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * 10 / math.sqrt(400), rel=0.15)
