from __future__ import annotations

import numpy as np
import pytest

from nextword.objectives.causal import CausalObjective
from nextword.studies import bptt as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from tests.support.study_tables import verdicts

EDGE_COLUMNS = ("length", "layout", study.NEVER, study.MOST, study.EPOCHS_READ)


def make_tables(**cells: list[float | None]) -> dict[str, Table]:
    """Edges as they are counted, and differences for one length, by default clearly below 0."""
    below = [-20.0, -25.0, -15.0]
    default = {"varying": below, "shifted": below, "level": [0.0, -3.0, 3.0], "list": [50.0, 40.0, 60.0]}
    given = default | cells
    edges = ((10, study.FIXED, 40.0, 20, 20), (10, study.VARYING, 0.0, 10, 20))
    edges += ((10, study.SHIFTED, 0.0, 2, 20), (10, study.LIST, 0.0, 3, 20))
    pairs = {
        (study.VARYING, study.FIXED): "varying",
        (study.SHIFTED, study.FIXED): "shifted",
        (study.SHIFTED, study.VARYING): "level",
        (study.LIST, study.FIXED): "list",
    }
    differences = tuple((10, *pair, given[key], given[key]) for pair, key in pairs.items())
    return {
        "edges": Table("", EDGE_COLUMNS, edges),
        "differences": Table("", ("length", "layout", "minus", "valid", "test"), differences),
    }


def test_clear_differences_hold() -> None:
    parts = study.judge(make_tables())
    assert verdicts(parts) == [HOLDS, HOLDS, HOLDS, HOLDS, FAILS]
    assert overall_verdict(parts) == HOLDS
    assert "20.0 thousandths of a nat below" in parts[1].evidence
    assert [part.decides for part in parts] == [True] * 3 + [False] * 2


@pytest.mark.parametrize(
    ("cells", "at", "expected"),
    [
        ({"varying": [20.0, 15.0, 25.0]}, 1, FAILS),
        ({"varying": [-1.0, -5.0, 3.0]}, 1, UNDECIDED),
        ({"varying": [1.0, None, None]}, 1, UNDECIDED),
        ({"varying": [-1.0, -np.inf, np.inf]}, 1, UNDECIDED),
        ({"level": [20.0, 15.0, 25.0]}, 2, FAILS),
        ({"level": [8.0, 3.0, 13.0]}, 2, UNDECIDED),
        ({"level": [5.0, 1.0, 9.0]}, 2, HOLDS),  # worse by less than what counts
        ({"shifted": [3.0, 1.0, 5.0]}, 3, FAILS),
        ({"list": [-3.0, -5.0, -1.0]}, 4, HOLDS),
    ],
)
def test_contrary_numbers_reverse_a_part(cells: dict[str, list[float | None]], at: int, expected: str) -> None:
    assert study.judge(make_tables(**cells))[at].verdict == expected


def test_edges_that_do_not_move_fail() -> None:
    rows = tuple((10, name, 40.0, 20, 20) for name in (study.FIXED, study.VARYING, study.SHIFTED))
    assert study.judge({**make_tables(), "edges": Table("", EDGE_COLUMNS, rows)})[0].verdict == FAILS


def test_fixed_chunks_have_the_same_edges_in_every_epoch() -> None:
    longest, first = study.count_contexts(study.make_layouts(5)[study.FIXED], epochs=3, seed=0, columns=20)[-1]
    assert longest.tolist() == [1, 2, 3, 4, 5] * 4
    assert first.tolist() == [3, 0, 0, 0, 0] * 4


def test_shifted_windows_give_every_token_every_context() -> None:
    layout = study.make_layouts(5)[study.SHIFTED]
    after_two = study.count_contexts(layout, epochs=2, seed=0, columns=20)[-1]
    assert after_two[0].tolist() == [1, 2, 3, 4, 5] + [5, 2, 3, 4, 5] * 3  # cut before 5 and 10, then 6 and 11
    longest, first = study.count_contexts(layout, epochs=5, seed=0, columns=20)[-1]
    assert longest[4:].tolist() == [5] * 16
    assert first[5:16].tolist() == [1] * 11


def test_all_layouts_read_the_same_tokens_at_the_same_rates() -> None:
    length, epochs = 10, 4
    ids = study.trim(np.arange(3000), length)
    tokens, rates = [], []
    for batches in study.make_layouts(length).values():
        source = CausalObjective(batches).layout.batches(ids, 3, 0)
        read = [next(source) for _ in range(study.count_steps(batches, ids, seed=3, epochs=epochs))]
        tokens.append(sum(batch.targets.numel() for batch in read))
        rates.append(sum(batch.scale for batch in read))
    assert len(ids) == 20 * (140 + 1)
    assert set(tokens) == {epochs * 20 * 140}
    assert rates == pytest.approx([epochs * 14] * 4)
