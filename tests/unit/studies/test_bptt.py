"""The study of cuts: edges counted as by hand, a verdict that follows the numbers, and a very small run of it all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.csv_tables import read_tables

from nextword.core.errors import NextwordError
from nextword.studies import _experiment as pool
from nextword.studies import bptt, find_study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Finding, Settings, Table, run, verdict, write

NO_INTERVAL = [1.0, None, None]  # as JSON has it after one seed


def made_up(**cells: list[float | None]) -> dict[str, Table]:
    """Edges as they are counted, and differences as given, for one length; the rest is clearly below 0."""
    below = [-20.0, -25.0, -15.0]
    given = {"varying": below, "shifted": below, "level": [0.0, -3.0, 3.0], "list": [50.0, 40.0, 60.0]} | cells
    edges = [(10, "fixed", 40.0, 20, 20), (10, "varying", 0.0, 10, 20)]
    edges += [(10, "shifted", 0.0, 2, 20), (10, "overlapping list", 0.0, 3, 20)]
    apart = [
        (10, "varying", "fixed", given["varying"], given["varying"]),
        (10, "shifted", "fixed", given["shifted"], given["shifted"]),
        (10, "shifted", "varying", given["level"], given["level"]),
        (10, "overlapping list", "fixed", given["list"], given["list"]),
    ]
    columns = ("length", "batches", "never a past of half the length, % of tokens", "most often first", "of")
    return {
        "edges": Table("", columns, tuple(edges)),
        "differences": Table("", ("length", "batches", "above", "valid", "test"), tuple(apart)),
    }


def verdicts(tables: dict[str, Table]) -> list[str]:
    return [part.verdict for part in bptt.judge(tables)]


def test_numbers_that_agree_hold_and_say_so() -> None:
    tables = made_up()
    assert verdicts(tables) == [HOLDS, HOLDS, HOLDS, HOLDS, FAILS]
    parts = bptt.judge(tables)
    assert verdict(parts) == HOLDS
    assert "20.0 thousandths of a nat below fixed ones" in parts[1].found
    assert [part.decides for part in parts] == [True] * 3 + [False] * 2


@pytest.mark.parametrize(
    ("cells", "at", "expected"),
    [
        ({"varying": [20.0, 15.0, 25.0]}, 1, FAILS),
        ({"varying": [-1.0, -5.0, 3.0]}, 1, UNDECIDED),
        ({"varying": NO_INTERVAL}, 1, UNDECIDED),
        ({"varying": [-1.0, -np.inf, np.inf]}, 1, UNDECIDED),
        ({"level": [20.0, 15.0, 25.0]}, 2, FAILS),
        ({"level": [8.0, 3.0, 13.0]}, 2, UNDECIDED),
        ({"level": [5.0, 1.0, 9.0]}, 2, HOLDS),  # worse, by less than what counts
        ({"shifted": [3.0, 1.0, 5.0]}, 3, FAILS),
        ({"list": [-3.0, -5.0, -1.0]}, 4, HOLDS),
    ],
)
def test_numbers_to_the_contrary_turn_it_round(cells: dict[str, list[float | None]], at: int, expected: str) -> None:
    assert verdicts(made_up(**cells))[at] == expected


def test_edges_that_did_not_move_would_be_found_out() -> None:
    tables = made_up()
    rows = [(10, name, 40.0, 20, 20) for name in (bptt.FIXED, bptt.VARYING, bptt.SHIFTED)]
    edges = Table("", tables["edges"].columns, tuple(rows))
    assert verdicts({**tables, "edges": edges})[0] == FAILS


# ------------------------------------------------------------------------------------------------ measuring


def test_fixed_pieces_have_the_same_edges_for_ever() -> None:
    longest, first = bptt.pasts(bptt.layouts(5)["fixed"], epochs=3, seed=0, columns=20)[-1]
    assert longest.tolist() == [1, 2, 3, 4, 5] * 4
    assert first.tolist() == [3, 0, 0, 0, 0] * 4


def test_shifted_windows_give_every_token_every_past() -> None:
    layout = bptt.layouts(5)["shifted"]
    after_two = bptt.pasts(layout, epochs=2, seed=0, columns=20)[-1]
    assert after_two[0].tolist() == [1, 2, 3, 4, 5] + [5, 2, 3, 4, 5] * 3  # cut before 5 and 10, then before 6 and 11
    longest, first = bptt.pasts(layout, epochs=5, seed=0, columns=20)[-1]
    assert longest[4:].tolist() == [5] * 16
    assert first[5:16].tolist() == [1] * 11


def test_as_many_tokens_are_read_at_as_high_rates_whatever_the_cuts() -> None:
    length, epochs = 10, 4
    ids = bptt.even(np.arange(3000), length)
    read, rates = {}, {}
    for name, batches in bptt.layouts(length).items():
        source = bptt.Causal(batches).layout.batches(ids, 3, 0)
        found = [next(source) for _ in range(bptt._steps(batches, ids, seed=3, epochs=epochs))]
        read[name] = sum(batch.targets.numel() for batch in found)
        rates[name] = sum(batch.scale for batch in found)
    assert len(ids) == 20 * (140 + 1)
    assert set(read.values()) == {epochs * 20 * 140}
    assert list(rates.values()) == pytest.approx([epochs * 14] * 4)


@pytest.fixture(scope="module")
def finding() -> Finding:
    """The whole study, very small, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "cores", lambda: 1)
        patch.setattr(bptt, "CHARACTERS", (9_000, 9_000))
        patch.setattr(bptt, "HELD", (3_000, 3_000))
        patch.setattr(bptt, "EPOCHS", (1, 1))
        patch.setattr(bptt, "NETWORK", {"embedding": 6, "width": 8, "layers": 2})
        torch.manual_seed(7)
        found = run("bptt", find_study("bptt"), Settings(quick=True, seeds=(0, 1), data="python"))
        assert torch.equal(torch.rand(3), torch.manual_seed(7) and torch.rand(3))  # the caller's own are left alone
    return found


def test_a_small_run_has_all_it_should(finding: Finding, tmp_path: Path) -> None:
    assert {"data", "network", "training", "intervals", "seeds"} <= set(finding.conditions)
    assert [part.decides for part in finding.parts] == [True] * 3 + [False] * 2
    assert len(finding.tables["nats"].rows) == 4
    for table in finding.tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows)
    nats = [cell for row in finding.tables["nats"].rows for cell in row[2:]]
    assert all(1 < low <= middle <= high < 7 for middle, low, high in nats)
    write(finding, find_study("bptt"), tmp_path)
    tables = read_tables(tmp_path)
    assert tuple(bptt.judge(tables)) == finding.parts


def test_too_short_a_text_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bptt, "TOKENS", 100_000)
    with pytest.raises(NextwordError, match=r"tokens to learn from, and this study needs 400,000.*--data"):
        bptt.measure(Settings(data="python"), lambda done, total: None)
