"""The study of vanishing gradients: its Jacobians against autograd through the whole network; verdicts both ways."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.csv_tables import read_tables
from torch import Tensor

from nextword.core.types import Inputs
from nextword.studies import _experiment as pool
from nextword.studies import vanishing_gradients as paths
from nextword.studies import vanishing_gradients as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, run, verdict, write
from nextword.studies.vanishing_gradients import (
    ATTENTION,
    CASES,
    CURVES,
    GATED,
    HC,
    LEAKY,
    MOST,
    NETWORKS,
    PLAIN,
    RELU,
    RESIDUAL,
    TRAINED,
    UNTRAINED,
    Attending,
    H,
    descend,
    directions,
    gradients,
    layer_of,
    make,
    products,
    remembering,
    scaled,
    spectral,
    walk,
)

STEPS, BACK = 9, 5


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "WIDTH", 6)
    monkeypatch.setattr(paths, "EMBEDDING", 4)


def double(name: str) -> Any:
    return make(name, 3).double().eval()


def text(rows: int = 2, length: int = STEPS) -> Tensor:
    return torch.randint(0, 256, (rows, length), generator=torch.Generator().manual_seed(5))


# ------------------------------------------------------------------------------------------------ measuring


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [PLAIN, RELU, LEAKY, RESIDUAL, GATED, HC])
def test_products_of_jacobians_are_the_gradient_through_the_whole_way(name: str) -> None:
    network = double(name)
    layer = layer_of(network)
    ids = text()
    x = network.embedding(ids.t()).detach()
    memories, matrices = walk(layer, x, BACK)
    assert memories[-1, 0, :6].tolist() == pytest.approx(network.hidden(Inputs(ids), None)[0][-1][0, -1].tolist())
    found = products(matrices)
    for distance in (1, 3, BACK):
        at = STEPS - 1 - distance

        def onward(memory: Tensor, after: int = at + 1) -> Tensor:
            split = tuple(memory.unsqueeze(0).split(6, -1))
            return torch.cat(layer.stepwise(x[after:, :1], split)[1], -1)[0]

        expected = torch.autograd.functional.jacobian(onward, memories[at, 0].detach())
        torch.testing.assert_close(found[distance - 1, 0], expected)


@pytest.mark.usefixtures("small")
def test_attention_s_gradient_takes_every_way() -> None:
    network = double(ATTENTION)
    assert isinstance(network, Attending)
    layer, ids = layer_of(network), text()
    x = network.embedding(ids.t()).detach()
    memories, matrices = walk(layer, x, BACK)
    torch.testing.assert_close(network.last(memories[:, 0]), network.hidden(Inputs(ids), None)[0][-1][0, -1])
    found = paths.shortened(network, memories, matrices)
    for distance in (1, BACK):
        at = STEPS - 1 - distance

        def onward(h: Tensor, at: int = at) -> Tensor:
            after = layer.stepwise(x[at + 1 :, :1], (h.unsqueeze(0),))[0][:, 0]
            return network.last(torch.cat([memories[:at, 0], h.unsqueeze(0), after]))

        expected = torch.autograd.functional.jacobian(onward, memories[at, 0].detach())
        torch.testing.assert_close(found[distance - 1, 0], expected)


@pytest.mark.usefixtures("small")
def test_the_residual_network_adds_what_the_plain_one_says() -> None:
    residual, plain = layer_of(double(RESIDUAL)), layer_of(double(PLAIN))
    plain.load_state_dict(residual.state_dict())
    x, h = torch.randn(1, 2, 4).double(), torch.randn(2, 6).double()
    torch.testing.assert_close(residual(x, (h,))[0], h + plain(x, (h,))[0])


def test_norms_and_directions() -> None:
    matrix = torch.randn(3, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(spectral(matrix), torch.linalg.matrix_norm(matrix, 2))
    torch.testing.assert_close(1e200 * spectral(1e-200 * matrix), torch.linalg.matrix_norm(matrix, 2))
    assert directions(1e-170 * torch.eye(7).double().expand(2, 7, 7)) == pytest.approx(7)
    assert directions(torch.ones(2, 7, 7).double()) == pytest.approx(1)


@pytest.mark.usefixtures("small")
def test_the_bound_is_a_power_of_the_two_norms_and_holds() -> None:
    network = scaled(make(PLAIN, 0), 1.7)
    assert float(torch.linalg.matrix_norm(layer_of(network).weight_hh.detach(), 2)) == pytest.approx(1.7)
    norms, _ = gradients(network, PLAIN, text(4, 12), 10)
    assert norms[PLAIN].shape == norms["bound"].shape == (10, 4)
    steps = norms["bound"][1:] / norms["bound"][:-1]
    assert torch.all(steps <= 1.7 + 1e-6)
    torch.testing.assert_close(steps, norms["bound"][:1].expand_as(steps))
    assert torch.all(norms[PLAIN] <= norms["bound"] * (1 + 1e-12))
    assert torch.all(norms[PLAIN][0] > 0.3 * norms["bound"][0])  # it is not a bound of something else


@pytest.mark.usefixtures("small")
def test_an_lstm_that_forgets_nothing_keeps_its_gradient() -> None:
    closed, opened = (gradients(remembering(make(HC, 0), bias), HC, text(2, 40), 30)[0] for bias in (-6.0, 8.0))
    assert float(closed[HC][-1].max()) < 1e-9
    assert float(opened[HC][-1].min()) > 0.5
    assert torch.all(opened[H] <= opened[HC] + 1e-9)  # a block of a matrix has no larger norm


def test_a_walk_ends_where_the_loss_is_no_number() -> None:
    ids = np.random.default_rng(0).integers(0, 256, 20_000)
    network = scaled(make(RELU, 0), 12.0)
    done = list(descend(network, torch.optim.SGD(network.parameters(), lr=1.0), ids, 30, 0, 0.0))
    assert len(done) < 30
    assert not math.isfinite(done[-1][0])
    assert study._ended([done])[0] == [MOST, MOST, MOST]


def test_a_small_run_from_text_to_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"QUICK_SPAN": 8, "QUICK_TEXTS": 2, "QUICK_STEPS": 2, "QUICK_TRIED": 3, "READ": 60_000}.items():
        monkeypatch.setattr(study, name, value)
    monkeypatch.setattr(paths, "WIDTH", 8)
    monkeypatch.setattr(pool, "cores", lambda: 1)
    torch.manual_seed(7)
    expected, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(7)
    reports: list[tuple[float, float]] = []
    settings = Settings(quick=True, seeds=(0,), data="python")
    finding = run("vanishing-gradients", study, settings, lambda done, total: reports.append((done, total)))
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
    assert reports[-1][0] == reports[-1][1]
    assert {row[0] for row in finding.tables["decay"].rows} == set(CURVES)
    assert len(finding.tables["norms"].rows) == (len(CURVES) + 1) * 2 * 8
    assert finding.parts[0].verdict == HOLDS  # a theorem, however small the network
    write(finding, study, tmp_path)
    tables = read_tables(tmp_path)
    assert tuple(study.judge(tables)) == finding.parts
    again, _ = study.measure(settings, lambda done, total: None)
    assert again == finding.tables


def test_what_travels_to_other_processes_can(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[Any, Any]] = []
    monkeypatch.setattr(study, "spread", lambda tasks, progress: sent.append(tasks))
    with pytest.raises(TypeError):  # no results to go on with
        study.measure(Settings(quick=True, seeds=(0, 1), data="python"), lambda done, total: None)
    (tasks,) = sent
    assert len(tasks) == 2 * (len(NETWORKS) + 2 + 2 * len(CASES))
    for function, given in tasks.values():
        assert pickle.loads(pickle.dumps(function)) is function
        assert len(pickle.dumps(given)) < 3_000_000


# ------------------------------------------------------------------------------------------------ verdicts


def cell(value: float, spread: float = 1.02) -> list[float]:
    return [value, value / spread, value * spread]


@pytest.fixture
def tables() -> dict[str, Table]:
    """As the claim would have it."""
    steps = {PLAIN: 0.6, LEAKY: 0.95, RESIDUAL: 1.05, GATED: 0.8, HC: 0.98, H: 0.7, ATTENTION: 0.97}
    nats = {**dict.fromkeys(steps, 1.5), PLAIN: 2.0}
    decay, kept = [], []
    for weights in (UNTRAINED, TRAINED):
        for name, step in steps.items():
            decay.append((name, weights, cell(step), [0.99, 0.98, 1.0], cell(step**100), cell(3.0), cell(nats[name])))
            kept.append((name, weights, 25, cell(step**99), cell(0.8 if name == ATTENTION else step**75)))
    bounds = {"untrained": (1.1, 0.6), "trained": (5.0, 0.2), "untrained, ‖W‖ = 0.5": (0.5, 0.3)}
    bounds["untrained, ‖W‖ = 8"] = (8.0, 1.5)
    bound = [(name, cell(w), cell(w), cell(step), [0.9, 0.8, 0.99]) for name, (w, step) in bounds.items()]
    ends = {case: (3.0, 20.0) for case in CASES}
    clipping = [
        (*case, clip, cell(with_ if clip == 1.0 else without), cell(9.0))
        for case, (with_, without) in ends.items()
        for clip in ("none", 1.0)
    ]
    return {
        "decay": Table(
            "", ("network", "weights", "a step", "R²", "farthest", "directions", "nats a byte"), tuple(decay)
        ),
        "kept": Table("", ("network", "weights", "quarter", "kept", "kept from there"), tuple(kept)),
        "bound": Table("", ("weights", "‖W‖", "γ_h·γ_w", "a step", "norm / bound, at most"), tuple(bound)),
        "gate": Table("", ("bias", "σ(bias)", "a step"), ((0.0, 0.5, cell(0.6)), (5.0, 0.99, cell(1.0)))),
        "clipping": Table(
            "", ("network", "‖W‖", "rate", "clip", "nats at the end", "largest gradient"), tuple(clipping)
        ),
    }


def changed(table: Table, column: str, value: Any, where: Callable[[dict[str, Any]], bool]) -> Table:
    rows = []
    for row in table.rows:
        named = dict(zip(table.columns, row, strict=True))
        rows.append(tuple({**named, column: value}.values()) if where(named) else row)
    assert tuple(rows) != table.rows
    return replace(table, rows=tuple(rows))


def verdicts(tables: dict[str, Table]) -> list[str]:
    return [part.verdict for part in study.judge(tables)]


def test_a_claim_as_it_is_made_holds(tables: dict[str, Table]) -> None:
    parts = study.judge(tables)
    assert verdict(parts) == HOLDS
    assert [p.verdict for p in parts] == [HOLDS] * 6 + [FAILS, HOLDS, FAILS, HOLDS]
    assert "5, a step 0.20" in parts[8].found  # γ_h·γ_w of 5, and it vanishes


@pytest.mark.parametrize(
    ("table", "column", "value", "where", "part", "expected"),
    [
        ("bound", "norm / bound, at most", [0.9, 0.9, 1.001], {"weights": "trained"}, 0, FAILS),
        ("decay", "R²", [0.5, 0.4, 0.6], {"network": PLAIN, "weights": UNTRAINED}, 1, FAILS),
        ("decay", "R²", [0.97, 0.6, 0.99], {"network": PLAIN, "weights": TRAINED}, 1, UNDECIDED),
        ("decay", "a step", [0.3, 0.2, 0.4], {"network": GATED, "weights": TRAINED}, 2, FAILS),
        ("decay", "a step", [0.9, 0.2, 1.0], {"network": GATED, "weights": TRAINED}, 2, UNDECIDED),
        ("decay", "a step", [0.3, 0.2, 0.4], {"network": HC, "weights": UNTRAINED}, 5, FAILS),
        ("kept", "kept from there", [1e-9, 1e-10, 1e-8], {"network": ATTENTION, "weights": TRAINED}, 3, FAILS),
        ("kept", "kept from there", [0.2, 0.05, 0.3], {"network": ATTENTION, "weights": UNTRAINED}, 3, UNDECIDED),
        ("clipping", "nats at the end", [2.5, 2.4, 2.6], {"network": RELU, "rate": 1.0, "clip": "none"}, 4, FAILS),
        ("clipping", "nats at the end", [9.0, 2.4, 100], {"network": RELU, "rate": 1.0, "clip": "none"}, 4, UNDECIDED),
        ("decay", "farthest", [0.9, 0.8, 1.0], {"network": HC, "weights": TRAINED}, 6, HOLDS),
        ("clipping", "nats at the end", [2.0, 1.9, 2.1], {"‖W‖": 8.0, "clip": "none"}, 9, FAILS),
        ("decay", "nats a byte", [2.5, 2.4, 2.6], {"network": LEAKY, "weights": TRAINED}, 7, FAILS),
        ("decay", "nats a byte", [1.9, 1.8, 2.6], {"network": LEAKY, "weights": TRAINED}, 7, UNDECIDED),
    ],
)
def test_other_numbers_turn_a_part_round(
    tables: dict[str, Table], table: str, column: str, value: Any, where: dict[str, Any], part: int, expected: str
) -> None:
    other = changed(tables[table], column, value, lambda row: all(row[key] == x for key, x in where.items()))
    found = verdicts({**tables, table: other})
    assert found[part] == expected
    assert found[:part] + found[part + 1 :] == verdicts(tables)[:part] + verdicts(tables)[part + 1 :]


def test_a_plain_network_that_kept_its_gradient_would_refute(tables: dict[str, Table]) -> None:
    other = changed(tables["decay"], "a step", [1.1, 1.07, 1.2], lambda row: row["network"] == PLAIN)
    assert verdicts({**tables, "decay": other})[1:3] == [FAILS, FAILS]


def test_a_bound_above_one_that_always_explodes_would_be_said_to(tables: dict[str, Table]) -> None:
    other = changed(tables["bound"], "a step", cell(1.5), lambda row: row["γ_h·γ_w"][0] > 1)
    part = study.judge({**tables, "bound": other})[8]
    assert (part.verdict, "in every setting" in part.found) == (HOLDS, True)


def test_every_network_is_measured_once() -> None:
    assert set(NETWORKS) | {H} == set(CURVES)
