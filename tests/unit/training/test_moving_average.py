"""Moving average of the weights: its formula, where it is active, and that it leaves training unchanged."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from nextword.core.errors import InvalidSetting
from nextword.training.optimizers import (
    make_optimizer,
    moving_average_weight,
)

KINDS: list[dict[str, Any]] = [{"kind": "sgd", "rate": 0.3, "momentum": 0.9}, {"kind": "adam", "rate": 0.1}]


def take_step(weights: list[nn.Parameter], optimizer: Any, step: int) -> None:
    """Take one step; the second weight has a gradient only in every other step, like a head of some batches."""
    loss = ((weights[0] - step) ** 2).sum() + ((weights[1] + step) ** 2).sum() * (step % 2)
    loss.backward()
    if step % 2 == 0:
        weights[1].grad = None
    optimizer.step()
    optimizer.zero_grad()


def make_weights(options: dict[str, Any], average: float = 0.95) -> tuple[list[nn.Parameter], Any]:
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(2, 2)), nn.Parameter(torch.randn(4))]
    return weights, make_optimizer(weights, {**options, "ema_decay": average})


@pytest.mark.parametrize("options", KINDS)
def test_moving_average_equals_formula_and_is_active_only_in_context(options: dict[str, Any]) -> None:
    weights, optimizer = make_weights(options)
    untouched = weights[2].detach().clone()
    means: list[torch.Tensor | None] = [None, None]
    for step in range(300):
        take_step(weights, optimizer, step)
        fraction = max(0.05, 9 / (10 + step))
        for i in (0, 1):
            weight = weights[i].detach()
            if means[i] is not None:
                means[i] = means[i] + (weight - means[i]) * fraction
            elif i == 0 or step % 2:
                means[i] = weight.clone()
    before = [p.detach().clone() for p in weights]
    with optimizer.averaged_weights():
        for p, mean in zip(weights, [*means, untouched], strict=True):
            torch.testing.assert_close(p.detach(), mean)
        assert not torch.equal(weights[0].detach(), before[0])
    assert all(torch.equal(p.detach(), k) for p, k in zip(weights, before, strict=True))


@pytest.mark.parametrize("options", KINDS)
def test_moving_average_leaves_trained_weights_unchanged(options: dict[str, Any]) -> None:
    weights, optimizer = make_weights(options)
    torch.manual_seed(0)
    plain = [nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(2, 2)), nn.Parameter(torch.randn(4))]
    other = make_optimizer(plain, options)
    for step in range(20):
        take_step(weights, optimizer, step)
        take_step(plain, other, step)
    assert all(torch.equal(a, b) for a, b in zip(weights, plain, strict=True))


@pytest.mark.parametrize("options", KINDS)
def test_moving_average_state_round_trips_and_continues_identically(options: dict[str, Any]) -> None:
    weights, optimizer = make_weights(options)
    for step in range(15):
        take_step(weights, optimizer, step)
    tensors, groups = optimizer.export_state()
    tensors = {name: t.clone() for name, t in tensors.items()}
    others, restored = make_weights(options)
    with torch.no_grad():
        for a, b in zip(others, weights, strict=True):
            a.copy_(b)
    restored.restore_state(tensors, groups)
    for step in range(15, 40):
        take_step(weights, optimizer, step)
        take_step(others, restored, step)
    with optimizer.averaged_weights(), restored.averaged_weights():
        assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))


def test_moving_average_weight_warms_up_to_the_setting() -> None:
    assert moving_average_weight(0.998, 0) == 0.9
    assert moving_average_weight(0.998, 80) == 0.1
    assert moving_average_weight(0.998, 100_000) == pytest.approx(0.002)


def test_moving_average_with_invalid_setting_raises() -> None:
    for value in (1.0, -0.5, "much"):
        with pytest.raises(InvalidSetting) as invalid:
            make_weights(KINDS[0], value)  # type: ignore[arg-type]
        assert (invalid.value.key, invalid.value.value) == ("optimizer.ema_decay", value)
    with pytest.raises(InvalidSetting) as invalid:
        make_optimizer([nn.Parameter(torch.zeros(1))], {"kind": "nt-asgd", "rate": 1.0, "ema_decay": 0.9})
    assert (invalid.value.key, invalid.value.value) == ("optimizer.ema_decay", 0.9)
