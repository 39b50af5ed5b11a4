"""Activation penalties (AR and TAR): values, gradients by finite differences, and no effect outside training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Batch, Inputs, Loss, Vocabulary
from nextword.models.awd_lstm import AWDLSTM, AWDConfig
from nextword.models.rnn import LSTM
from nextword.objectives.causal import CausalObjective

SIZE, ALPHA, BETA = 5, 2.0, 1.0
DROPS = {"word_dropout": 0.1, "input_dropout": 0.2, "layer_dropout": 0.2, "output_dropout": 0.4, "weight_dropout": 0.5}


def network(**options: Any) -> AWDLSTM:
    torch.manual_seed(0)
    net = AWDLSTM(AWDConfig(embedding=3, width=4, layers=2, **{**DROPS, **options}), Vocabulary(SIZE, 0)).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(3)  # large enough for noticeable penalties
    return net.train()


def batch(time: int = 6) -> Batch:
    ids = torch.arange(2 * (time + 1)).view(2, -1) * 3 % SIZE
    return Batch(Inputs(ids[:, :-1]), ids[:, 1:])


def loss(net: Any, alpha: float, beta: float, reduce: str = "token", time: int = 6, seed: int = 1) -> Loss:
    torch.manual_seed(seed)  # the same masks each time
    return CausalObjective({}, reduce, alpha, beta).loss(net, batch(time), None)


def test_penalties_equal_the_sums_of_the_paper() -> None:
    """AR: α mean(m ⊙ h)². TAR: β mean(h_t − h_{t−1})² of h before dropout; over rows, steps, and units."""
    net = network()
    torch.manual_seed(1)
    *_, before, after = net.hidden(batch().inputs, None)[0]
    rows, time, width = before.shape
    size = sum(after[r, t, i] ** 2 for r in range(rows) for t in range(time) for i in range(width))
    change = sum(
        (before[r, t, i] - before[r, t - 1, i]) ** 2 for r in range(rows) for t in range(1, time) for i in range(width)
    )
    plain = loss(net, 0, 0).value
    for alpha, beta in [(ALPHA, 0.0), (0.0, BETA), (ALPHA, BETA), (0.5, 3.0)]:
        expected = alpha * size / (rows * time * width) + beta * change / (rows * (time - 1) * width)
        torch.testing.assert_close(loss(net, alpha, beta).value - plain, expected, rtol=1e-9, atol=1e-12)
    assert (after == 0).any()  # `before` and `after` are different tensors
    assert not (before == 0).any()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("alpha", "beta"), [(ALPHA, 0.0), (0.0, BETA), (ALPHA, BETA)])
def test_gradients_match_finite_differences(alpha: float, beta: float, tied: bool) -> None:
    net = network(tied=tied)
    grads = torch.autograd.grad(loss(net, alpha, beta).value, list(net.parameters()))
    plain = torch.autograd.grad(loss(net, 0, 0).value, list(net.parameters()))
    changed = 0
    for parameter, grad, without in zip(net.parameters(), grads, plain, strict=True):
        numeric = torch.stack([_slope(net, parameter, i, alpha, beta) for i in range(parameter.numel())])
        torch.testing.assert_close(grad.flatten(), numeric, rtol=1e-5, atol=1e-8)
        changed += not torch.allclose(grad, without, rtol=1e-3)
    assert changed >= 8  # all but the readout: the penalties reach the embedding


@torch.no_grad()
def _slope(net: Any, parameter: Tensor, i: int, alpha: float, beta: float, step: float = 1e-5) -> Tensor:
    flat = parameter.view(-1)
    original = flat[i].clone()
    values = []
    for value in (original + step, original - step):
        flat[i] = value
        values.append(loss(net, alpha, beta).value)
    flat[i] = original
    return (values[0] - values[1]) / (2 * step)


def test_penalties_are_off_outside_training() -> None:
    net = network().eval()
    assert torch.equal(loss(net, ALPHA, BETA).value, loss(net, 0, 0).value)


@pytest.mark.parametrize("reduce", ["token", "sequence"])
def test_nats_exclude_penalties(reduce: str) -> None:
    net = network()
    with_, without = loss(net, ALPHA, BETA, reduce), loss(net, 0, 0, reduce)
    assert torch.equal(with_.nats, without.nats)
    assert with_.count == without.count == 12
    assert with_.value > without.value
    torch.testing.assert_close(without.value, without.nats / (12 if reduce == "token" else 2))


def test_temporal_penalty_of_a_single_step_is_zero() -> None:
    """Batches of variable length may end in a single step; a mean over nothing would be NaN."""
    net = network()
    value = loss(net, ALPHA, BETA, time=1).value
    assert torch.equal(value, loss(net, ALPHA, 0, time=1).value)
    value.backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)
    assert torch.equal(loss(net, 0, BETA, time=1).value, loss(net, 0, 0, time=1).value)


def test_network_without_exposed_last_layer_is_unsupported() -> None:
    torch.manual_seed(0)
    net = LSTM(LSTM.Config(width=4), Vocabulary(SIZE, 0)).double().train()
    for alpha, beta in [(ALPHA, 0.0), (0.0, BETA)]:
        with pytest.raises(Unsupported, match="LSTM"):
            loss(net, alpha, beta)
    assert torch.isfinite(loss(net, 0, 0).value)


@pytest.mark.parametrize("setting", [{"activation_penalty": -1.0}, {"temporal_penalty": -0.5}])
def test_negative_penalty_is_rejected(setting: dict[str, float]) -> None:
    with pytest.raises(InvalidSetting) as error:
        CausalObjective({}, **setting)
    assert error.value.key == f"objective.{next(iter(setting))}"
