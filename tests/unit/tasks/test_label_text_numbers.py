"""Numbers that are written: which strings there are, and which of them a number is nearest to."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from nextword.tasks.settings import Settings, settings_of

from nextword.core.errors import NextwordError
from nextword.tasks.label_text import default_step, note_strings, places, scale_of_strings, strings
from nextword.tasks.text_data import read_one

SCORES = tuple(f"{i // 5}.{i % 5 * 2}" for i in range(26))  # "0.0", "0.2" … "5.0"


def test_the_strings_of_the_paper() -> None:
    assert (SCORES[0], SCORES[1], SCORES[13], SCORES[-1]) == ("0.0", "0.2", "2.6", "5.0")
    assert strings(["5.000", "0.000", "2.333"]) == SCORES
    assert strings(["5", "0"], 0.2) == SCORES
    assert strings(["1.0", "4.91"], 0.2) == SCORES[5:]  # 4.91 lies nearer to 5.0 than to 4.8


@pytest.mark.parametrize(
    ("label", "said"),
    [
        *(("2.57", "2.6"), ("2.5", "2.4"), ("2.7", "2.8"), ("2.69", "2.6"), ("2.71", "2.8")),
        *(("0.1", "0.0"), ("0.3", "0.4"), ("0.5", "0.4"), ("0.7", "0.8")),  # in the middle: the even multiple of 0.2
        *(("0.099", "0.0"), ("0.101", "0.2"), ("0", "0.0"), ("5.000", "5.0"), ("1e-1", "0.0"), ("25e-1", "2.4")),
        *(("-3", "0.0"), ("6.2", "5.0")),  # that no training row had
    ],
)
def test_the_nearest_is_learnt(label: str, said: str) -> None:
    (place,) = places([label], SCORES)
    assert SCORES[place] == said


def test_numbers_in_the_middle_as_in_float32() -> None:
    """tf.round(x · 5) / 5, as T5's own code has it, rounds halves to even numbers, too; numpy does the same."""
    labels = [f"{i / 100:.2f}" for i in range(501)]
    theirs = np.round(np.array(labels, np.float32) * np.float32(5)).astype(int)
    assert places(labels, SCORES).tolist() == theirs.tolist()


def test_sts_b_as_t5_has_it(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    splits = read_one("STS-B").splits
    assert strings(splits["train"].labels or [], 0.2) == strings(splits["train"].labels or []) == SCORES
    for split in ("train", "dev"):
        labels = splits[split].labels or []
        theirs = np.round(np.array(labels, np.float32) * np.float32(5)).astype(int)
        assert len(labels) >= 1500
        assert places(labels, SCORES).tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("labels", "step"),
    [
        (["0.000", "5.000", "3.333"], "0.2"),  # 25 steps
        (["0.000", "5.001"], "0.5"),  # a little more than 25
        (["1", "5", "3"], "1"),  # no finer than the numbers are
        (["1.0", "5.00"], "1"),
        (["1", "10", "2.5"], "0.5"),
        (["0", "100", "37"], "5"),
        (["0.01", "0.09", "0.053"], "0.005"),
        (["-1.25", "1.25"], "0.1"),
        (["1000", "90000", "34500"], "5000"),
        (["100", "900"], "100"),
        (["1e-7", "9e-7"], "1E-7"),
    ],
)
def test_the_usual_step(labels: list[str], step: str) -> None:
    assert default_step(labels) == Decimal(step)
    found = strings(labels)
    assert 2 <= len(found) <= 27
    assert len(set(found)) == len(found)
    assert "e" not in "".join(found).lower()


def test_how_they_are_written() -> None:
    assert strings(["1", "5", "3"]) == ("1", "2", "3", "4", "5")
    assert strings(["-0.3", "0.3"], 0.2) == ("-0.4", "-0.2", "0.0", "0.2", "0.4")
    assert strings(["0.1", "1.1"], 0.25) == ("0.00", "0.25", "0.50", "0.75", "1.00")
    assert strings(["1000", "90000", "34500"])[:3] == ("0", "5000", "10000")
    assert note_strings(SCORES) == [
        "numbers are written, the nearest of 26: 0.0, 0.2 … 5.0, in steps of 0.2 (--set task.number_step)"
    ]
    assert note_strings(()) == []


def test_there_and_back() -> None:
    """What a head says is a place; so is what is right, between places, where a number has no string of its own."""
    low, step = scale_of_strings(SCORES)
    settings = Settings(kind="regress", numbers=SCORES, center=low, spread=step)
    np.testing.assert_allclose(settings.encoded(["2.6", "2.5", "0"]), [13, 12.5, 0], rtol=1e-6)
    assert settings.decoded(np.array([[13.0], [3.0], [25.0]])).tolist() == [[2.6], [0.6], [5.0]]  # 0.6, not 3 · 0.2
    assert settings.decoded(np.zeros((0, 1))).shape == (0, 1)


@pytest.mark.parametrize(
    ("labels", "step", "said"),
    [
        (["1", "2"], 10.0, r"numbers from 1 to 2 are written in steps of 10.0, and all of them would be the same"),
        (["0", "1000", "37"], 0.1, r"there would be 10,001 of them. Choose a larger one.*--set task.number_step=50"),
    ],
)
def test_steps_that_make_no_sense(labels: list[str], step: float, said: str) -> None:
    with pytest.raises(NextwordError, match=said):
        strings(labels, step, "x.csv")


@pytest.mark.parametrize("step", [-0.2, "0.2", True, float("inf"), float("nan")])
def test_a_step_is_a_number(step: object) -> None:
    with pytest.raises(NextwordError, match=r"\[task\] step = .*as 0.2"):
        settings_of({"step": step}, "r")
