"""What a comparison leaves open, and when it names no winner."""

from __future__ import annotations

from typing import Any

import pytest

from nextword.comparison.limits import (
    describe_limits,
    describe_no_winner,
    find_limits,
    find_winner,
    is_still_falling,
)


def points(*values: float, key: str = "valid_bits_per_byte") -> list[dict[str, Any]]:
    return [{"seconds": i + 1.0, key: value} for i, value in enumerate(values)]


FLAT, FALLING = points(3, 2, 2, 2, 2, 2, 2, 2, 2, 1.99), points(5, 4, 3, 2.8, 2.6, 2.5, 2.4, 2.3, 2.2, 2.1)


def network(name: str, **more: Any) -> dict[str, Any]:
    row = {"name": name, "status": "done", "stopped": "minutes", "steps": 900, "epochs": 3.0, "curve": FLAT}
    return row | more


COUNTED = {"name": "ngram", "status": "done", "stopped": "counted", "steps": 3, "epochs": 1.0}


@pytest.mark.parametrize(
    ("curve", "falling"),
    [
        (FLAT, False),
        (FALLING, True),
        (points(4, 3, 2, 1, key="valid_perplexity"), True),
        (points(4, 3, 2, 2, key="train_bits_per_byte"), False),
        (points(2, 2, 2, 2, 2, 2, 2, 2, 2.5, 2.4), False),  # getting worse
        ([*points(2, 2, 2, 2, 2), {"seconds": 6.0, "train_bits_per_byte": 0.1}], False),  # validation first
        (points(4, 1), None),
        ([{"seconds": 1.0}], None),
    ],
)
def test_a_curve_is_falling_if_its_last_fifth_is_lower(curve: list[dict[str, Any]], falling: bool | None) -> None:
    assert is_still_falling(curve) is falling


def test_limits_group_networks_and_ignore_other_models() -> None:
    models = [
        COUNTED,
        network("a"),
        network("b", stopped="patience", epochs=0.4),
        network("c", curve=FALLING),
        network("d", steps=20, epochs=0.01),
        network("failed", status="failed"),
        {"name": "converted", "status": "done", "stopped": None, "epochs": None, "steps": None, "curve": []},
    ]
    assert find_limits(models) == {
        "networks": ["a", "b", "c", "d"],
        "cut_short": ["a", "c", "d"],
        "under_one_pass": ["b", "d"],
        "still_falling": ["c"],
        "hardly_trained": ["d"],
    }


def test_limits_are_described_with_counts() -> None:
    both = [COUNTED, network("a", curve=FALLING), network("b", epochs=0.4, curve=FALLING)]
    assert describe_limits(both) == (
        "Of 2 networks, 2 were cut short by the clock, 1 saw less than one pass of the text (b) and 2 were still "
        "improving at the end. More time may change the order."
    )
    assert "More time" not in describe_limits(both, more_time=False)
    assert describe_limits([COUNTED, network("a")]) == (
        "The network a was cut short by the clock and was no longer improving at the end."
    )
    assert describe_limits([network("a", curve=[])]) == "The network a was cut short by the clock."
    assert describe_limits([COUNTED, network("a", stopped="epochs")]) == ""
    assert describe_limits([COUNTED]) == ""


def test_no_winner_if_the_clock_trained_hardly_any_network() -> None:
    hasty = [network("a", steps=1), network("b", steps=12)]
    assert find_winner([COUNTED, *hasty]) is None
    assert find_winner(hasty[:1]) is None
    said = describe_no_winner([COUNTED, *hasty])
    assert said.startswith("No winner: a and b had time for 1 to 12 steps only.")
    assert "--minutes" in said
    assert "1 step only" in describe_no_winner(hasty[:1])


def test_winner_is_the_best_of_those_that_were_trained() -> None:
    trained, hasty = network("a"), network("b", steps=12)
    assert find_winner([hasty, trained, COUNTED]) is trained
    assert find_winner([trained]) is trained
    assert find_winner([COUNTED]) is COUNTED
    assert find_winner([hasty, trained]) is None  # nothing to lose to
    assert find_winner([]) is None
    assert find_winner([network("a", steps=12, stopped="steps")]) is not None  # the recipe's own budget
