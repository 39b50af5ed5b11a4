"""Intervals, scores of sets of texts, and number formats."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nextword.studies import _statistics as stats

TEXTS = ["the cat sat on the mat", "a dog", "birds fly over the old town today"]
REFERENCES = ["the cat sat on a mat", "a dog ran away", "birds fly over the old town"]


def test_paired_difference_uses_students_t() -> None:
    mean, low, high = stats.paired_difference([2.01, 2.02, 2.03], [2.0, 2.0, 2.0])
    assert mean == pytest.approx(0.02)
    assert (high - mean, mean - low) == pytest.approx((4.30 * 0.01 / 3**0.5,) * 2)
    assert stats.paired_difference([2.01], [2.0])[1:] == [-math.inf, math.inf]
    many = stats.paired_difference(np.tile([1.0, -1.0], 50).tolist(), [0.0] * 100)
    assert many[2] == pytest.approx(1.984 * math.sqrt(100 / 99) / 10, rel=1e-3)


def test_mean_interval_is_the_wider_of_seeds_and_text() -> None:
    units = np.random.default_rng(0).normal(size=400)
    agreeing = np.stack([units, units + 0.001, units - 0.001])
    mean, low, high = stats.mean_interval(agreeing)
    assert mean == pytest.approx(units.mean())
    assert (high - low) / 2 == pytest.approx(1.96 * units.std() / 20, rel=0.15)
    _, low, high = stats.mean_interval(np.stack([units, units + 3, units - 3]))
    assert (high - low) / 2 == pytest.approx(4.30 * 3 / math.sqrt(3), rel=1e-6)
    assert stats.mean_interval(units[None])[1:] == [-math.inf, math.inf]


def test_mean_interval_of_a_single_network_is_over_the_text() -> None:
    mean, low, high = stats.mean_interval([list(range(100))], single_network=True)
    assert mean == 49.5
    assert 40 < low < 49 < 50 < high < 59


def test_is_above_and_is_below_need_the_whole_interval() -> None:
    cells = ([1.0, 0.5, 1.5], [-1.0, -1.5, -0.5], [0.1, -1.0, 1.2], [1.0, None, None], [1.0, -math.inf, math.inf])
    assert [stats.is_above(cell) for cell in cells] == [True, False, None, None, None]
    assert [stats.is_below(cell) for cell in cells] == [False, True, None, None, None]
    assert stats.is_above([1.0, 0.5, 1.5], bound=2.0) is False


def test_bleu_of_sums_is_corpus_bleu() -> None:
    from sacrebleu.metrics import BLEU

    sums = stats.bleu_statistics(TEXTS, REFERENCES)
    assert float(stats.bleu(sums.sum(0))) == pytest.approx(BLEU().corpus_score(TEXTS, [REFERENCES]).score)
    assert float(stats.length_ratio(sums.sum(0))) == pytest.approx(15 / 16)
    two = np.stack([sums.sum(0), sums[:1].sum(0)])
    assert stats.bleu(two)[1] == pytest.approx(BLEU().corpus_score(TEXTS[:1], [REFERENCES[:1]]).score)


def test_score_interval_widens_with_disagreeing_seeds() -> None:
    draw = np.random.default_rng(0)
    nats = np.stack([draw.normal(2.0, 0.5, (5, 400)), np.ones((5, 400))], 2)
    mean, low, high = stats.score_interval(stats.ratio, nats)
    assert mean == pytest.approx(float(nats[..., 0].mean()))
    assert 0.02 < high - low < 0.15
    shifted = nats + np.array([0.0, 1.0, -1.0, 0.5, -0.5])[:, None, None] * np.array([1.0, 0.0])
    assert np.diff(stats.score_interval(stats.ratio, shifted)[1:]) > 1.0
    assert stats.score_interval(stats.ratio, nats[:1])[1:] == [-np.inf, np.inf]
    assert stats.score_interval(stats.ratio, nats[:1], single_network=True)[1] > 1.8


def test_paired_differences_remove_what_texts_have_in_common() -> None:
    common = np.random.default_rng(0).normal(2.0, 1.0, (3, 200))
    costs = [np.stack([common + shift, np.ones_like(common)], 2) for shift in (0.1, 0.0)]
    assert stats.score_difference(stats.ratio, *costs) == pytest.approx([0.1, 0.1, 0.1])
    mean, low, high = stats.unpaired_difference(stats.ratio, *costs)
    assert mean == pytest.approx(0.1)
    assert low < 0 < high
    both = stats.join(stats.join(*costs), stats.join(*costs[::-1]))
    twice = stats.difference_of(stats.difference_of(stats.ratio))
    assert stats.score_interval(twice, both) == pytest.approx([0.2, 0.2, 0.2])


def test_power_law_and_marginal_costs() -> None:
    cubic = stats.fit_power_law([1, 2, 4, 8], [5, 40, 320, 2560])
    assert (cubic.exponent, cubic.r2) == (pytest.approx(3), pytest.approx(1))
    assert stats.fit_power_law([1, 2, 4], [7, 7, 7]).exponent == pytest.approx(0)
    assert stats.marginal_costs([1, 2, 4], [10, 13, 19]) == [3, 3]


def test_median_and_range_keeps_counts_whole() -> None:
    assert stats.median_and_range([3, 1, 2]) == [2, 1, 3]
    assert stats.median_and_range([0.5, 1, 2, 4]) == [1.5, 0.5, 4]


def test_numbers_are_formatted_for_readers() -> None:
    cells = [None, 1234567, 8000**5, 0.0, 3.5, 280478948.0, 4.7e-15, [2, 1, 3], [1, 1, 1], [2, None, None], "Xavier"]
    expected = ["–", "1,234,567", "3.3e+19", "0", "3.50", "2.8e+08", "4.7e-15", "2 (1–3)", "1", "2", "Xavier"]
    assert [stats.format_cell(cell) for cell in cells] == expected
    assert stats.format_interval([0.0, -0.5, 0.25], 1) == "−0.5 to 0.2"
    assert stats.format_interval([0.0, None, None]) == stats.NO_INTERVAL
    assert stats.format_gain(-1.26, "points", 1) == "1.3 points worse"


@pytest.mark.parametrize(
    ("cell", "holds"), [([1.0, 0.5, 1.5], True), ([-1.0, -1.5, -0.5], False), ([0.1, -1.0, 1.2], None)]
)
def test_judge_interval_holds_if_the_whole_interval_passes(cell: list[float], holds: bool | None) -> None:
    part = stats.judge_interval("It helps.", cell, "It gains 1.", "points", 1, decides=False)
    assert part.holds is holds
    assert part.uncertainty == f"points: {stats.format_interval(cell, 1)}"
    assert not part.decides
    below = stats.judge_interval("It does not help.", cell, "", test=stats.is_below)
    assert below.holds is (None if holds is None else not holds)


def test_median_of_means_is_over_seeds() -> None:
    assert stats.median_of_means(np.array([[1.0, 3.0], [4.0, 6.0], [0.0, 2.0]])) == [2.0, 1.0, 5.0]
