from __future__ import annotations

from typing import Any

import pytest

from nextword.studies import reversed_source as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from tests.support.study_tables import ABOVE, BELOW, ONE_SEED, UNSURE


def make_tables(**cells: Any) -> dict[str, Table]:
    """Reversing helps without attention, and less with it, unless e.g. `symbols_extra` says otherwise."""
    keys = {"without": "no attention", "with": "attention", "extra": study.EXTRA}
    rows = [
        (task, network, cells.get(f"{task}_{key}", UNSURE if key == "with" else ABOVE), ABOVE)
        for task in (study.SYMBOLS, study.PAIRS)
        for key, network in keys.items()
    ]
    return {"gains": Table("", ("task", "network", study.NATS, study.QUALITY), tuple(rows))}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, HOLDS),
        ({"pairs_without": BELOW}, FAILS),
        ({"pairs_without": UNSURE}, UNDECIDED),
        ({"symbols_without": ONE_SEED}, UNDECIDED),
        ({"symbols_extra": BELOW}, FAILS),
        ({"pairs_extra": UNSURE, "symbols_extra": BELOW}, FAILS),
        ({"pairs_with": ABOVE, "symbols_with": ABOVE}, HOLDS),  # it may also help with attention
    ],
)
def test_verdict_needs_both_tasks(cells: dict[str, Any], expected: str) -> None:
    assert overall_verdict(study.judge(make_tables(**cells))) == expected


def test_evidence_names_the_direction() -> None:
    assert "1.000 nats less" in study.judge(make_tables())[0].evidence
    assert "1.000 nats more" in study.judge(make_tables(symbols_without=BELOW))[0].evidence
