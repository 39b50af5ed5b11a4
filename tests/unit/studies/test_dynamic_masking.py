from __future__ import annotations

from typing import Any

import pytest

from nextword.studies import dynamic_masking as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from tests.support.study_tables import ABOVE, BELOW, verdicts


def make_tables(ten: Any = ABOVE, one: Any = ABOVE) -> dict[str, Table]:
    levels = tuple((name, [4.0] * 3, [20.0] * 3, [4.0] * 3) for name in study.MASKING)
    cells = {study.TEN: ten, study.ONE: one, study.WORDS: BELOW, study.RUNS: ABOVE}
    return {
        "masks": Table("", ("masks", *study.COLUMNS), levels),
        "differences": Table("", ("masks", *study.COLUMNS), tuple((n, c, c, c) for n, c in cells.items())),
    }


@pytest.mark.parametrize(
    ("cell", "no_worse", "better"),
    [
        (ABOVE, HOLDS, HOLDS),
        ([0.0, -0.01, 0.01], HOLDS, UNDECIDED),
        ([0.0, -0.1, 0.1], UNDECIDED, UNDECIDED),
        (BELOW, FAILS, FAILS),
    ],
)
def test_new_masks_need_only_be_as_good(cell: Any, no_worse: str, better: str) -> None:
    for tables, at in ((make_tables(ten=cell), 0), (make_tables(one=cell), 1)):
        parts = study.judge(tables)
        assert parts[at].verdict == overall_verdict(parts) == no_worse
    assert study.judge(make_tables(one=cell))[2].verdict == better
    assert verdicts(study.judge(make_tables())[4:]) == [FAILS, HOLDS]
