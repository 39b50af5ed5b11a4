"""Learning-rate schedules that can be checked by hand."""

from __future__ import annotations

import pytest

from nextword.recipe import load_recipe
from nextword.training.schedules import Progress, Schedule


def by_epoch(schedule: Schedule, epochs: int) -> list[float]:
    return [schedule(Progress(epoch, epoch, epoch / epochs, ())) for epoch in range(epochs)]


def by_fraction(schedule: Schedule, fractions: list[float]) -> list[float]:
    return [schedule(Progress(0, 0, fraction, ())) for fraction in fractions]


def test_zaremba_small_schedule_equals_paper() -> None:
    """Four epochs at 1, then halved each epoch, 13 epochs in total (section 4.1 of the paper)."""
    (phase,) = load_recipe("lstm/zaremba-small").phases
    schedule = Schedule(phase.optimizer["rate"], phase.schedule)
    rates = by_epoch(schedule, int(phase.epochs))
    assert rates[:7] == [1, 1, 1, 1, 0.5, 0.25, 0.125]
    assert len(rates) == 13
    assert rates[-1] == 2**-9


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [8, 4, 2, 1, 0.5, 0.25]),
        ({"every": 2}, [8, 8, 4, 4, 2, 2]),
        ({"every": 2, "factor": 0.25}, [8, 8, 2, 2, 0.5, 0.5]),
        ({"after": 3}, [8, 8, 8, 4, 2, 1]),
        ({"after": 1, "every": 2}, [8, 4, 4, 2, 2, 1]),
        ({"after": 2, "every": 2}, [8, 8, 4, 4, 2, 2]),
    ],
)
def test_halve_schedule_gives_expected_rates_per_epoch(options: dict[str, float], expected: list[float]) -> None:
    assert by_epoch(Schedule(8.0, {"kind": "halve", **options}), 6) == expected


@pytest.mark.parametrize(
    ("patience", "validations", "expected"),
    [
        (0, [], 8),
        (0, [5, 4, 3], 8),
        (0, [5, 4, 4], 4),  # equal is not better
        (0, [5, 4, 6, 3, 7], 2),
        (0, [5, 6, 7], 2),
        (1, [5, 6], 8),
        (1, [5, 6, 7], 4),
        (1, [5, 6, 7, 8], 4),  # patience restarts
        (1, [5, 6, 7, 8, 9], 2),
        (1, [5, 6, 4, 6], 8),
    ],
)
def test_plateau_schedule_halves_after_patience(patience: int, validations: list[float], expected: float) -> None:
    schedule = Schedule(8.0, {"kind": "plateau", "patience": patience})
    assert schedule(Progress(0, 0, 0, validations)) == expected


def test_cosine_schedule_starts_at_rate_and_ends_at_floor() -> None:
    assert by_fraction(Schedule(8.0, {"kind": "cosine"}), [0, 0.5, 1]) == pytest.approx([8, 4, 0])
    assert by_fraction(Schedule(8.0, {"kind": "cosine", "floor": 0.25}), [0, 0.5, 1, 1.5]) == pytest.approx(
        [8, 5, 2, 2]
    )
    warm = Schedule(8.0, {"kind": "cosine", "warmup": 0.2})
    assert by_fraction(warm, [0.05, 0.1, 0.2, 0.6, 1]) == pytest.approx([2, 4, 8, 4, 0])
    assert 0 < warm(Progress(0, 0, 0.0, ())) < 0.1  # the first step is not wasted


def test_linear_schedule_decays_linearly() -> None:
    assert by_fraction(Schedule(8.0, {"kind": "linear"}), [0, 0.25, 0.5, 1]) == pytest.approx([8, 6, 4, 0])
    warm = Schedule(8.0, {"kind": "linear", "warmup": 0.5, "floor": 0.5})
    assert by_fraction(warm, [0.25, 0.5, 0.75, 1]) == pytest.approx([4, 8, 6, 4])


def test_default_schedule_is_constant() -> None:
    assert by_fraction(Schedule(8.0, {}), [0, 0.3, 1]) == [8, 8, 8]


def test_root_schedule_equals_cross_view_training_formula() -> None:
    """0.5 · min(1, step / 5000) / (1 + 0.005 √step): the authors' code."""
    schedule = Schedule(0.5, {"kind": "root"})
    rates = [schedule(Progress(step, 0, 0.0, ())) for step in (0, 2500, 10_000, 40_000)]
    assert rates == pytest.approx([0.0, 0.25 / 1.25, 0.5 / 1.5, 0.5 / 2])
    short = Schedule(0.5, {"kind": "root", "warmup": 0.1})
    assert [short(Progress(0, 0, fraction, ())) for fraction in (0.0, 0.05, 0.1, 0.7)] == pytest.approx(
        [0, 0.25, 0.5, 0.5]
    )
    assert Schedule(0.5, {"kind": "root", "warmup": 0})(Progress(0, 0, 0.0, ())) == 0.5


def test_slanted_schedule_equals_ulmfit_formula() -> None:
    """Eq. 3 of the paper with T = 100, cut_frac = 0.1, ratio = 32: cut = 10, down over 10 · (1/0.1 − 1) = 90 steps."""
    schedule = Schedule(0.01, {"kind": "slanted"})
    rates = {step: schedule(Progress(step, 0, step / 100, (), 100)) for step in range(101)}
    by_hand = {
        0: 0.01 / 32,  # p = 0
        5: 0.01 * (1 + 0.5 * 31) / 32,  # p = 5/10
        9: 0.01 * (1 + 0.9 * 31) / 32,
        10: 0.01,  # p = 1
        55: 0.01 * (1 + 0.5 * 31) / 32,  # p = 1 − 45/90
        91: 0.01 * (1 + 0.1 * 31) / 32,  # p = 1 − 81/90
        100: 0.01 / 32,
    }
    assert {step: rates[step] for step in by_hand} == pytest.approx(by_hand)
    assert max(rates, key=lambda step: rates[step]) == 10
    other = Schedule(8.0, {"kind": "slanted", "cut": 0.25, "ratio": 4})
    assert [other(Progress(t, 0, 0.0, (), 8)) for t in range(8)] == pytest.approx([2, 5, 8, 7, 6, 5, 4, 3])


def test_slanted_schedule_of_few_steps_stays_between_floor_and_rate() -> None:
    """Where ⌊T · cut⌋ is 0 or rounded, the rate still ends at rate / ratio, not below zero."""
    for total in (1, 3, 9, 25, 39):
        rates = [Schedule(1.0, {"kind": "slanted"})(Progress(t, 0, 0.0, (), total)) for t in range(total + 1)]
        assert min(rates) == pytest.approx(1 / 32)
        assert max(rates) == pytest.approx(1)
