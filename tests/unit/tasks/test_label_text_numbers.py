"""Numbers as strings: the possible strings, and the nearest one of a number."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from nextword.core.errors import InvalidSetting
from nextword.tasks.label_text import (
    LabelText,
    default_step,
    nearest_strings,
    note_strings,
    number_strings,
    scale_of_strings,
)
from nextword.tasks.text_data import read_one

SCORES = tuple(f"{i // 5}.{i % 5 * 2}" for i in range(26))  # "0.0", "0.2" … "5.0"


def test_number_strings_equal_those_of_t5() -> None:
    assert (SCORES[0], SCORES[1], SCORES[13], SCORES[-1]) == ("0.0", "0.2", "2.6", "5.0")
    assert number_strings(["5.000", "0.000", "2.333"]) == SCORES
    assert number_strings(["5", "0"], 0.2) == SCORES
    assert number_strings(["1.0", "4.91"], 0.2) == SCORES[5:]  # 4.91 is closer to 5.0 than to 4.8


@pytest.mark.parametrize(
    ("label", "said"),
    [
        *(("2.57", "2.6"), ("2.5", "2.4"), ("2.7", "2.8"), ("2.69", "2.6"), ("2.71", "2.8")),
        *(("0.1", "0.0"), ("0.3", "0.4"), ("0.5", "0.4"), ("0.7", "0.8")),  # halfway: the even multiple of 0.2
        *(("0.099", "0.0"), ("0.101", "0.2"), ("0", "0.0"), ("5.000", "5.0"), ("1e-1", "0.0"), ("25e-1", "2.4")),
        *(("-3", "0.0"), ("6.2", "5.0")),  # not in the training rows
    ],
)
def test_nearest_string_of_label_equals_expected_string(label: str, said: str) -> None:
    (place,) = nearest_strings([label], SCORES)
    assert SCORES[place] == said


def test_nearest_strings_round_halves_as_t5_in_float32() -> None:
    """tf.round(x · 5) / 5 in the code of T5 rounds halves to even numbers, like numpy."""
    labels = [f"{i / 100:.2f}" for i in range(501)]
    theirs = np.round(np.array(labels, np.float32) * np.float32(5)).astype(int)
    assert nearest_strings(labels, SCORES).tolist() == theirs.tolist()


def test_nearest_strings_of_sts_b_equal_t5(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    splits = read_one("STS-B").splits
    assert number_strings(splits["train"].labels or [], 0.2) == number_strings(splits["train"].labels or []) == SCORES
    for split in ("train", "dev"):
        labels = splits[split].labels or []
        theirs = np.round(np.array(labels, np.float32) * np.float32(5)).astype(int)
        assert len(labels) >= 1500
        assert nearest_strings(labels, SCORES).tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("labels", "step"),
    [
        (["0.000", "5.000", "3.333"], "0.2"),  # 25 steps
        (["0.000", "5.001"], "0.5"),  # slightly more than 25
        (["1", "5", "3"], "1"),  # not finer than the labels
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
def test_default_step_gives_at_most_27_distinct_strings(labels: list[str], step: str) -> None:
    assert default_step(labels) == Decimal(step)
    result = number_strings(labels)
    assert 2 <= len(result) <= 27
    assert len(set(result)) == len(result)
    assert "e" not in "".join(result).lower()


def test_number_strings_have_the_decimals_of_the_step() -> None:
    assert number_strings(["1", "5", "3"]) == ("1", "2", "3", "4", "5")
    assert number_strings(["-0.3", "0.3"], 0.2) == ("-0.4", "-0.2", "0.0", "0.2", "0.4")
    assert number_strings(["0.1", "1.1"], 0.25) == ("0.00", "0.25", "0.50", "0.75", "1.00")
    assert number_strings(["1000", "90000", "34500"])[:3] == ("0", "5000", "10000")
    (note,) = note_strings(SCORES)
    assert "26" in note
    assert "0.0, 0.2 … 5.0" in note
    assert note_strings(()) == []


def test_label_text_decodes_indices_to_numbers() -> None:
    """A head predicts the index of a string; a label between two strings has a fractional index."""
    low, step = scale_of_strings(SCORES)
    task = LabelText.parse({"kind": "label_text", "numbers": SCORES, "mean": low, "std": step}, "test")
    np.testing.assert_allclose(task.encode_labels(["2.6", "2.5", "0"]), [13, 12.5, 0], rtol=1e-6)
    assert task.decode(np.array([[13.0], [3.0], [25.0]])).tolist() == [[2.6], [0.6], [5.0]]  # 0.6, not 3 · 0.2
    assert task.decode(np.zeros((0, 1))).shape == (0, 1)


@pytest.mark.parametrize(
    ("labels", "step", "named"),
    [
        (["1", "2"], 10.0, "from 1 to 2 in steps of 10.0 are 1 "),
        (["0", "1000", "37"], 0.1, "10,001.*--set task.number_step=50"),
    ],
)
def test_step_with_too_few_or_too_many_strings_names_the_key(labels: list[str], step: float, named: str) -> None:
    with pytest.raises(InvalidSetting, match=named) as error:
        number_strings(labels, step, "x.csv")
    assert (error.value.key, error.value.value) == ("task.number_step", step)


@pytest.mark.parametrize("step", [-0.2, "0.2", True, float("inf"), float("nan")])
def test_step_that_is_no_number_names_the_key(step: object) -> None:
    with pytest.raises(InvalidSetting) as error:
        LabelText.parse({"kind": "label_text", "number_step": step}, "r")
    assert error.value.key == "task.number_step"
