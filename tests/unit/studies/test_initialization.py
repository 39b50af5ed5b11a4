from __future__ import annotations

import pytest
import torch

from nextword.studies import initialization as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table
from tests.support.study_tables import change, verdicts


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    """The numbers of a full run, rounded."""
    units = {"zeros": (1, 0, 4.37), "constant 0.1": (1, 1, 4.0)}
    rows = [(name, *([x] * 3 for x in units.get(name, (32, 25, 3.0)))) for name in study.TRAINED]
    rows.append((study.UNIGRAM, None, None, [4.37] * 3))
    signal = {"normal 0.01": 5e-15, "uniform ±1/√n": 4e-5, "Xavier": 0.13, "orthogonal": 0.13, "normal 1": 1.0}
    stack = [("linear", name, [1.0] * 3, [1.0] * 3, None) for name in signal]
    stack += [("tanh", n, [x] * 3, [x] * 3, [0.87 if n == "normal 1" else 0.0] * 3) for n, x in signal.items()]
    return {
        "units": Table("", ("weights", study.UNITS_LEFT, study.FEATURES, study.BITS), tuple(rows)),
        "stack": Table("", ("stack", "weights", study.SIGNAL, study.GRADIENT, study.SATURATION), tuple(stack)),
    }


def test_numbers_of_a_full_run_hold(tables: dict[str, Table]) -> None:
    assert verdicts(study.judge(tables)) == [HOLDS, HOLDS, HOLDS, FAILS, FAILS]


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("zeros", [5, 4, 6]),  # one of the two equal initializations
        ("constant 0.1", [1, 1, 3]),  # some seeds
        ("normal 0.01", [1, 1, 1]),  # the measure sees no difference anywhere
    ],
)
def test_units_that_diverge_in_part_leave_it_undecided(tables: dict[str, Table], name: str, cell: list[int]) -> None:
    units = change(tables["units"], study.UNITS_LEFT, cell, weights=name)
    assert study.judge({**tables, "units": units})[0].verdict == UNDECIDED


def test_equal_weights_with_many_features_fail(tables: dict[str, Table]) -> None:
    units = tables["units"]
    for name in study.EQUAL:
        units = change(units, study.UNITS_LEFT, [32, 30, 32], weights=name)
    units = change(units, study.FEATURES, [1, 1, 1], weights="zeros")
    assert verdicts(study.judge({**tables, "units": units})) == [FAILS, HOLDS, HOLDS, HOLDS, FAILS]


@pytest.mark.parametrize("column", [study.SIGNAL, study.GRADIENT])
@pytest.mark.parametrize(("cell", "expected"), [([0.3, 0.2, 0.4], FAILS), ([0.6, 0.4, 0.9], UNDECIDED)])
def test_lost_variance_fails(tables: dict[str, Table], column: str, cell: list[float], expected: str) -> None:
    stack = change(tables["stack"], column, cell, stack="linear", weights="Xavier")
    assert study.judge({**tables, "stack": stack})[1].verdict == expected


@pytest.mark.parametrize(("cell", "expected"), [([0.6, 0.5, 0.7], FAILS), ([0.04, 0.03, 0.06], UNDECIDED)])
def test_saturated_xavier_fails(tables: dict[str, Table], cell: list[float], expected: str) -> None:
    stack = change(tables["stack"], study.SATURATION, cell, stack="tanh", weights="Xavier")
    assert study.judge({**tables, "stack": stack})[2].verdict == expected


def test_distinct_units_and_features_are_counted() -> None:
    a = torch.randn(100, 1, generator=torch.Generator().manual_seed(0))
    b = torch.randn(100, 1, generator=torch.Generator().manual_seed(1))
    for units, distinct, features in (
        (a.repeat(1, 8), 1, 1),
        (torch.cat([a, 2 * a, b, a], 1), 3, 2),
        (torch.zeros(100, 8), 1, 0),
    ):
        assert (study.count_distinct(units), study.count_features(units)) == (distinct, features)


def test_orthogonal_layers_keep_a_signal() -> None:
    run = study.pass_through(study.fill_orthogonal, tanh=False, seed=0)
    assert study.from_end_to_end(run) == (pytest.approx(1, rel=1e-4), pytest.approx(1, rel=1e-4), 0)


def test_measure_restores_random_state_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "QUICK_STEPS", 1)
    torch.manual_seed(7)
    expected, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(7)
    study.measure(Settings(quick=True, seeds=(0,), data="python"), lambda done, total: None)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
