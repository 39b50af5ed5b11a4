from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nextword.core.types import Inputs
from nextword.studies import vanishing_gradients as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, overall_verdict
from nextword.studies.vanishing_gradients import (
    ATTENTION,
    CASES,
    CURVES,
    GATED,
    HC,
    LEAKY,
    NETWORKS,
    PLAIN,
    RELU,
    RESIDUAL,
    TRAINED,
    UNTRAINED,
    AttentionRNN,
    H,
    gradient_norms,
    make_network,
    raise_forget_bias,
    recurrent_layer,
    set_norm,
)
from tests.support.study_tables import change, verdicts

STEPS, BACK = 9, 5


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "WIDTH", 6)
    monkeypatch.setattr(study, "EMBEDDING", 4)


def make_double_network(name: str) -> Any:
    return make_network(name, 3).double().eval()


def draw_ids(rows: int = 2, length: int = STEPS) -> Tensor:
    return torch.randint(0, 256, (rows, length), generator=torch.Generator().manual_seed(5))


# ------------------------------------------------------------------------------------------------ measuring


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", [PLAIN, RELU, LEAKY, RESIDUAL, GATED, HC])
def test_accumulated_jacobians_equal_autograd(name: str) -> None:
    network = make_double_network(name)
    layer = recurrent_layer(network)
    ids = draw_ids()
    x = network.embedding(ids.t()).detach()
    memories, matrices = study.compute_jacobians(layer, x, BACK)
    assert memories[-1, 0, :6].tolist() == pytest.approx(network.hidden(Inputs(ids), None)[0][-1][0, -1].tolist())
    result = study.accumulate(matrices)
    for distance in (1, 3, BACK):
        at = STEPS - 1 - distance

        def onward(memory: Tensor, after: int = at + 1) -> Tensor:
            split = tuple(memory.unsqueeze(0).split(6, -1))
            return torch.cat(layer.stepwise(x[after:, :1], split)[1], -1)[0]

        expected = torch.autograd.functional.jacobian(onward, memories[at, 0].detach())
        torch.testing.assert_close(result[distance - 1, 0], expected)


@pytest.mark.usefixtures("small")
def test_gradient_through_attention_equals_autograd() -> None:
    network = make_double_network(ATTENTION)
    assert isinstance(network, AttentionRNN)
    layer, ids = recurrent_layer(network), draw_ids()
    x = network.embedding(ids.t()).detach()
    memories, matrices = study.compute_jacobians(layer, x, BACK)
    torch.testing.assert_close(network.last_output(memories[:, 0]), network.hidden(Inputs(ids), None)[0][-1][0, -1])
    result = study.accumulate_attention(network, memories, matrices)
    for distance in (1, BACK):
        at = STEPS - 1 - distance

        def onward(h: Tensor, at: int = at) -> Tensor:
            after = layer.stepwise(x[at + 1 :, :1], (h.unsqueeze(0),))[0][:, 0]
            return network.last_output(torch.cat([memories[:at, 0], h.unsqueeze(0), after]))

        expected = torch.autograd.functional.jacobian(onward, memories[at, 0].detach())
        torch.testing.assert_close(result[distance - 1, 0], expected)


@pytest.mark.usefixtures("small")
def test_residual_layer_adds_the_plain_layer() -> None:
    residual, plain = recurrent_layer(make_double_network(RESIDUAL)), recurrent_layer(make_double_network(PLAIN))
    plain.load_state_dict(residual.state_dict())
    x, h = torch.randn(1, 2, 4).double(), torch.randn(2, 6).double()
    torch.testing.assert_close(residual(x, (h,))[0], h + plain(x, (h,))[0])


def test_spectral_norms_and_stable_ranks() -> None:
    matrix = torch.randn(3, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(study.spectral_norms(matrix), torch.linalg.matrix_norm(matrix, 2))
    torch.testing.assert_close(1e200 * study.spectral_norms(1e-200 * matrix), torch.linalg.matrix_norm(matrix, 2))
    assert study.stable_rank(1e-170 * torch.eye(7).double().expand(2, 7, 7)) == pytest.approx(7)
    assert study.stable_rank(torch.ones(2, 7, 7).double()) == pytest.approx(1)


@pytest.mark.usefixtures("small")
def test_bound_is_a_power_of_the_norms_and_holds() -> None:
    network = set_norm(make_network(PLAIN, 0), 1.7)
    assert float(torch.linalg.matrix_norm(recurrent_layer(network).weight_hh.detach(), 2)) == pytest.approx(1.7)
    norms, _ = gradient_norms(network, PLAIN, draw_ids(4, 12), 10)
    assert norms[PLAIN].shape == norms[study.BOUND].shape == (10, 4)
    steps = norms[study.BOUND][1:] / norms[study.BOUND][:-1]
    assert torch.all(steps <= 1.7 + 1e-6)
    torch.testing.assert_close(steps, norms[study.BOUND][:1].expand_as(steps))
    assert torch.all(norms[PLAIN] <= norms[study.BOUND] * (1 + 1e-12))
    assert torch.all(norms[PLAIN][0] > 0.3 * norms[study.BOUND][0])  # it is not a bound of something else


@pytest.mark.usefixtures("small")
def test_lstm_with_open_forget_gate_keeps_its_gradient() -> None:
    closed, opened = (
        gradient_norms(raise_forget_bias(make_network(HC, 0), bias), HC, draw_ids(2, 40), 30)[0] for bias in (-6.0, 8.0)
    )
    assert float(closed[HC][-1].max()) < 1e-9
    assert float(opened[HC][-1].min()) > 0.5
    assert torch.all(opened[H] <= opened[HC] + 1e-9)  # a block of a matrix has no larger norm


def test_training_stops_when_the_loss_is_not_finite() -> None:
    ids = np.random.default_rng(0).integers(0, 256, 20_000)
    network = set_norm(make_network(RELU, 0), 12.0)
    done = list(study.train(network, torch.optim.SGD(network.parameters(), lr=1.0), ids, 30, 0, 0.0))
    assert len(done) < 30
    assert not math.isfinite(done[-1][0])
    assert study._final([done])[0] == [study.MAX_NATS, study.MAX_NATS, study.MAX_NATS]


def test_jobs_can_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[Any, Any]] = []
    monkeypatch.setattr(study, "run_parallel", lambda jobs, progress: sent.append(jobs))
    with pytest.raises(TypeError):  # no results to go on with
        study.measure(Settings(quick=True, seeds=(0, 1), data="python"), lambda done, total: None)
    (jobs,) = sent
    assert len(jobs) == 2 * (len(NETWORKS) + 2 + 2 * len(CASES))
    for function, given in jobs.values():
        assert pickle.loads(pickle.dumps(function)) is function
        assert len(pickle.dumps(given)) < 3_000_000


# ------------------------------------------------------------------------------------------------ verdicts


def make_cell(value: float, spread: float = 1.02) -> list[float]:
    return [value, value / spread, value * spread]


@pytest.fixture
def tables() -> dict[str, Table]:
    """As the claim would have it."""
    steps = {PLAIN: 0.6, LEAKY: 0.95, RESIDUAL: 1.05, GATED: 0.8, HC: 0.98, H: 0.7, ATTENTION: 0.97}
    nats = {**dict.fromkeys(steps, 1.5), PLAIN: 2.0}
    decay, kept = [], []
    for weights in (UNTRAINED, TRAINED):
        for name, step in steps.items():
            decay.append(
                (
                    name,
                    weights,
                    make_cell(step),
                    [0.99, 0.98, 1.0],
                    make_cell(step**100),
                    make_cell(3.0),
                    make_cell(nats[name]),
                )
            )
            kept.append((name, weights, 25, make_cell(step**99), make_cell(0.8 if name == ATTENTION else step**75)))
    bounds = {"untrained": (1.1, 0.6), "trained": (5.0, 0.2), "untrained, ‖W‖ = 0.5": (0.5, 0.3)}
    bounds["untrained, ‖W‖ = 8"] = (8.0, 1.5)
    bound = [
        (name, make_cell(w), make_cell(w), make_cell(step), [0.9, 0.8, 0.99]) for name, (w, step) in bounds.items()
    ]
    ends = {case: (3.0, 20.0) for case in CASES}
    clipping = [
        (*case, clip, make_cell(with_ if clip == 1.0 else without), make_cell(9.0))
        for case, (with_, without) in ends.items()
        for clip in ("none", 1.0)
    ]
    return {
        "decay": Table(
            "", ("network", "weights", study.FACTOR, "R²", study.FARTHEST, study.DIRECTIONS, study.NATS), tuple(decay)
        ),
        "kept": Table("", ("network", "weights", "quarter", "kept", study.KEPT), tuple(kept)),
        "bound": Table("", ("weights", "‖W‖", study.GAMMA, study.FACTOR, study.SHARE), tuple(bound)),
        "gate": Table("", ("bias", "σ(bias)", study.FACTOR), ((0.0, 0.5, make_cell(0.6)), (5.0, 0.99, make_cell(1.0)))),
        "clipping": Table(
            "", ("network", "‖W‖", "learning rate", "clip", study.FINAL, "largest gradient"), tuple(clipping)
        ),
    }


def list_verdicts(tables: dict[str, Table]) -> list[str]:
    return verdicts(study.judge(tables))


def test_claimed_numbers_hold(tables: dict[str, Table]) -> None:
    parts = study.judge(tables)
    assert overall_verdict(parts) == HOLDS
    assert [p.verdict for p in parts] == [HOLDS] * 6 + [FAILS, HOLDS, FAILS, HOLDS]
    assert "5, factor 0.20" in parts[8].evidence  # γ_h·γ_w of 5, and it vanishes


@pytest.mark.parametrize(
    ("table", "column", "value", "where", "part", "expected"),
    [
        ("bound", study.SHARE, [0.9, 0.9, 1.001], {"weights": "trained"}, 0, FAILS),
        ("decay", "R²", [0.5, 0.4, 0.6], {"network": PLAIN, "weights": UNTRAINED}, 1, FAILS),
        ("decay", "R²", [0.97, 0.6, 0.99], {"network": PLAIN, "weights": TRAINED}, 1, UNDECIDED),
        ("decay", study.FACTOR, [0.3, 0.2, 0.4], {"network": GATED, "weights": TRAINED}, 2, FAILS),
        ("decay", study.FACTOR, [0.9, 0.2, 1.0], {"network": GATED, "weights": TRAINED}, 2, UNDECIDED),
        ("decay", study.FACTOR, [0.3, 0.2, 0.4], {"network": HC, "weights": UNTRAINED}, 5, FAILS),
        ("kept", study.KEPT, [1e-9, 1e-10, 1e-8], {"network": ATTENTION, "weights": TRAINED}, 3, FAILS),
        ("kept", study.KEPT, [0.2, 0.05, 0.3], {"network": ATTENTION, "weights": UNTRAINED}, 3, UNDECIDED),
        ("clipping", study.FINAL, [2.5, 2.4, 2.6], {"network": RELU, "learning rate": 1.0, "clip": "none"}, 4, FAILS),
        (
            "clipping",
            study.FINAL,
            [9.0, 2.4, 100],
            {"network": RELU, "learning rate": 1.0, "clip": "none"},
            4,
            UNDECIDED,
        ),
        ("decay", study.FARTHEST, [0.9, 0.8, 1.0], {"network": HC, "weights": TRAINED}, 6, HOLDS),
        ("clipping", study.FINAL, [2.0, 1.9, 2.1], {"‖W‖": 8.0, "clip": "none"}, 9, FAILS),
        ("decay", study.NATS, [2.5, 2.4, 2.6], {"network": LEAKY, "weights": TRAINED}, 7, FAILS),
        ("decay", study.NATS, [1.9, 1.8, 2.6], {"network": LEAKY, "weights": TRAINED}, 7, UNDECIDED),
    ],
)
def test_contrary_numbers_reverse_a_part(
    tables: dict[str, Table], table: str, column: str, value: Any, where: dict[str, Any], part: int, expected: str
) -> None:
    other = change(tables[table], column, value, **where)
    result = list_verdicts({**tables, table: other})
    assert result[part] == expected
    assert result[:part] + result[part + 1 :] == list_verdicts(tables)[:part] + list_verdicts(tables)[part + 1 :]


def test_plain_network_that_keeps_its_gradient_fails(tables: dict[str, Table]) -> None:
    other = change(tables["decay"], study.FACTOR, [1.1, 1.07, 1.2], network=PLAIN)
    assert list_verdicts({**tables, "decay": other})[1:3] == [FAILS, FAILS]


def test_bound_above_one_that_always_explodes_holds(tables: dict[str, Table]) -> None:
    other = change(
        tables["bound"], study.FACTOR, lambda row: make_cell(1.5) if row[study.GAMMA][0] > 1 else row[study.FACTOR]
    )
    part = study.judge({**tables, "bound": other})[8]
    assert (part.verdict, "in every setting" in part.evidence) == (HOLDS, True)


def test_every_network_has_a_curve() -> None:
    assert set(NETWORKS) | {H} == set(CURVES)
