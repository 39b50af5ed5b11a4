from __future__ import annotations

import pytest

from nextword.html.formatting import as_number, escape, format_count, format_duration, format_size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (9.0, "9 s"), (59.7, "1 min"), (61.2, "1 min 1 s"), (300, "5 min"), (3900, "1 h 5 min")],
)
def test_format_duration_uses_two_units_at_most(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(7, "7"), (999, "999"), (1000, "1 k"), (1234567, "1.23 M"), (2.5e9, "2.5 G")]
)
def test_format_count_keeps_three_digits(value: float, text: str) -> None:
    assert format_count(value) == text


def test_format_size_appends_bytes() -> None:
    assert [format_size(n) for n in (12, 5012345)] == ["12 B", "5.01 MB"]


def test_as_number_of_anything_else_is_none() -> None:
    assert as_number(2) == 2.0
    assert [as_number(value) for value in (None, "2", True, float("nan"))] == [None] * 4


def test_escape_makes_control_characters_visible() -> None:
    assert escape("<a>\x00\ud800") == "&lt;a&gt;␀\ufffd"
