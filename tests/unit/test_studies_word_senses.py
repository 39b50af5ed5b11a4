"""The study of meanings: made words, what is asked of a vector, and verdicts that can come out either way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nextword.batching.prepare import Stream
from nextword.studies import find_study
from nextword.studies.study import FAILS, HOLDS, UNDECIDED, Table, verdict
from nextword.studies.word_senses import INPUT, STATIC, Places, judge, merged, told


def some_places(n: int, seed: int) -> Places:
    draw = np.random.default_rng(seed)
    rows, there = np.zeros((n, 4), np.int64), np.ones((n, 4), bool)
    return Places(rows, there, np.zeros(n, np.int64), draw.integers(0, 2, n), (draw.random(n) < 0.7).astype(np.int64))


def test_two_words_become_one() -> None:
    found = merged(Stream.from_ids(np.array([5, 6, 7, 8, 6])), np.array([[5, 6], [9, 8]]))
    assert found.ids.tolist() == [5, 5, 7, 9, 5]


def test_one_vector_says_the_commoner_meaning_and_two_say_which() -> None:
    known, asked = some_places(400, 0), some_places(300, 1)
    one = np.full((1, 6), 0.3, np.float32)
    right, nearer = told(one.repeat(400, 0), one.repeat(300, 0), known, asked)
    assert (nearer == 0).all()
    share = [100 * asked.meant[asked.pair == pair].mean() for pair in (0, 1)]
    np.testing.assert_allclose(right, share)
    directions = np.random.default_rng(2).normal(size=(2, 2, 6))
    two = [
        (directions[p.pair, p.meant] + 0.1 * np.random.default_rng(3).normal(size=(len(p.at), 6)))
        for p in (known, asked)
    ]
    right, nearer = told(*two, known, asked)
    assert (right > 99).all()
    assert (nearer > 0.3).all()


def tables(static: Any, gain: Any, last: float) -> dict[str, Table]:
    rows = ((STATIC, [51.0, 50.0, 52.0], static), (INPUT, [55.0, 54.0, 56.0], [0.01, 0.0, 0.02]),
            ("BERT, layer 1", [last] * 3, [0.2, 0.1, 0.3]))  # fmt: skip
    more = ((INPUT, [4.0, 3.0, 5.0], [0.01, 0.0, 0.02]), ("BERT, layer 1", gain, [0.2, 0.1, 0.3]))
    columns = ("vector", "right, %", "nearer")
    return {"vectors": Table("", columns, rows), "differences": Table("", columns, more)}


@pytest.mark.parametrize(
    ("static", "gain", "expected"),
    [
        ([0.0, 0.0, 0.0], [30.0, 25.0, 35.0], HOLDS),
        ([0.1, 0.05, 0.2], [30.0, 25.0, 35.0], FAILS),
        ([0.0, 0.0, 0.0], [-8.0, -9.0, -7.0], FAILS),
        ([0.0, 0.0, 0.0], [3.0, -2.0, 8.0], UNDECIDED),
        ([0.0, 0.0, 0.0], [30.0, None, None], UNDECIDED),
    ],
)
def test_the_numbers_decide(static: Any, gain: Any, expected: str) -> None:
    parts = judge(tables(static, gain, 51 + gain[0]))
    assert verdict(parts) == expected
    assert all(part.found.endswith(".") for part in parts)


def test_it_is_in_the_table_of_studies() -> None:
    assert find_study("word-senses").CLAIM.sentence
