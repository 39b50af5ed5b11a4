"""Schedules are pure functions of progress and validate their options; golden/test_schedules.py has the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextword.core.errors import InvalidSetting, UnknownName
from nextword.training.schedules import SCHEDULES, Progress, Schedule

OPTIONS = [
    {"kind": "constant"},
    {"kind": "halve", "after": 3, "every": 2},
    {"kind": "plateau", "patience": 1},
    {"kind": "slowing", "ratio": 1.01},
    {"kind": "cosine", "warmup": 0.1, "floor": 0.05},
    {"kind": "linear", "warmup": 0.1},
    {"kind": "root", "warmup": 20, "slope": 0.01},
    {"kind": "slanted", "cut": 0.2, "ratio": 10},
]


def test_every_schedule_is_covered() -> None:
    assert {options["kind"] for options in OPTIONS} == set(SCHEDULES)


@pytest.mark.parametrize("options", OPTIONS)
@given(
    epoch=st.integers(0, 40),
    fraction=st.floats(0, 1.2),
    validations=st.lists(st.floats(0, 10), max_size=8),
    rate=st.floats(1e-6, 10),
)
def test_schedule_rate_stays_between_zero_and_the_base_rate(
    options: dict[str, object], epoch: int, fraction: float, validations: list[float], rate: float
) -> None:
    schedule = Schedule(rate, options)
    at = Progress(epoch * 10, epoch, fraction, validations, total=300)  # a budget may be overrun
    assert 0 <= schedule(at) <= rate * (1 + 1e-9)
    assert schedule(at) == Schedule(rate, options)(at)  # nothing is remembered


@pytest.mark.parametrize("kind", ["cosine", "linear"])
@pytest.mark.parametrize("warmup", [0.0, 1e-6, 1e-4, 0.3, 1.0])
def test_warmup_rises_to_the_peak_and_then_falls(kind: str, warmup: float) -> None:
    schedule = Schedule(1.0, {"kind": kind, "warmup": warmup})
    rates = [schedule(Progress(0, 0, i / 1000, ())) for i in range(1001)]
    assert max(rates) <= 1
    assert rates[0] > 0
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)


def test_schedule_with_unknown_kind_or_option_raises_with_suggestion() -> None:
    with pytest.raises(UnknownName, match="cosine") as unknown:
        Schedule(1.0, {"kind": "cosin"})
    assert unknown.value.name == "cosin"
    with pytest.raises(InvalidSetting) as invalid:
        Schedule(1.0, {"kind": "slanted", "cut": 1.5})
    assert (invalid.value.key, invalid.value.value) == ("schedule.cut", 1.5)
    with pytest.raises(UnknownName, match="warmup") as unknown:
        Schedule(1.0, {"kind": "cosine", "warm": 0.1})
    assert unknown.value.name == "warm"
