from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nextword.studies import attention_length as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from tests.support.study_tables import ABOVE, BELOW, ONE_SEED, UNSURE


def test_parts_by_length_have_equal_sizes() -> None:
    parts = study.split_by_length(np.array([5, 1, 9, 3, 7, 2, 8, 6]), 4)
    assert [part.tolist() for part in parts] == [[1, 5], [0, 3], [4, 7], [2, 6]]


def make_tables(**cells: Any) -> dict[str, Table]:
    rows, levels = [], []
    for task in (study.SYMBOLS, study.PAIRS):
        levels += [(task, length, *[ABOVE] * 4) for length in ("4", "20")]
        for measure in (study.NATS, study.QUALITY):
            increase = cells.get(f"{task}_{measure}", ABOVE)
            rows.append((task, measure, cells.get(f"{task}_loss", ABOVE), UNSURE, ABOVE, ABOVE, increase))
    columns = ("task", "measure", *study.LOSS.values(), study.SHORTEST, study.LONGEST, study.INCREASE)
    return {"gains": Table("", columns, tuple(rows)), "levels": Table("", ("task", "source", *"abcd"), tuple(levels))}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, HOLDS),
        ({"symbols_loss": BELOW}, FAILS),
        ({"pairs_loss": BELOW}, HOLDS),  # a side result
        ({"pairs_nats": BELOW}, FAILS),
        ({"pairs_nats": UNSURE}, UNDECIDED),
        ({"symbols_quality": BELOW}, FAILS),
        ({"pairs_quality": BELOW}, HOLDS),
        ({"symbols_nats": ONE_SEED}, UNDECIDED),
    ],
)
def test_verdict_uses_nats_on_pairs_and_all_measures_on_symbols(cells: dict[str, Any], expected: str) -> None:
    assert overall_verdict(study.judge(make_tables(**cells))) == expected
