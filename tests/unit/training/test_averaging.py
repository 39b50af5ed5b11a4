"""Averaged SGD: hand-computed averages, the trigger rule of the original code, and saved state."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting
from nextword.training.optimizers import (
    AveragedSGD,
    Optimizer,
    make_optimizer,
)


def make_weight(value: float = 8.0) -> nn.Parameter:
    return nn.Parameter(torch.tensor([value]))


def descend(optimizer: torch.optim.Optimizer | Optimizer, w: nn.Parameter, steps: int = 1) -> list[float]:
    """Take steps on w²/2, whose gradient is w; return the weight after each step."""
    out = []
    for _ in range(steps):
        w.grad = w.detach().clone()
        optimizer.step()
        out.append(w.item())
    return out


# ------------------------------------------------------------------------------------------------ by hand


def test_averaged_sgd_on_a_quadratic_equals_hand_computation() -> None:
    """Rate 1/2 halves the weight each step: 8 → 4, 2 | trigger | 1, 0.5, 0.25, 0.125; their mean is θ̄."""
    w = make_weight()
    optimizer = AveragedSGD([w], lr=0.5, patience=1)
    mean = optimizer.state[w]["mean"]
    assert descend(optimizer, w, 2) == [4, 2]
    assert mean.item() == 2  # before the start the mean is the weight itself
    assert optimizer.on_validation([1.0, 2.0]) is False  # one earlier loss: not more than patience
    assert optimizer.on_validation([1.0, 2.0, 3.0]) is True  # 3 > min([1])
    assert optimizer.is_averaging
    expected = [1, (1 + 0.5) / 2, (1 + 0.5 + 0.25) / 3, (1 + 0.5 + 0.25 + 0.125) / 4]
    for weight, average in zip([1, 0.5, 0.25, 0.125], expected, strict=True):
        assert descend(optimizer, w) == [weight]
        assert mean.item() == pytest.approx(average, rel=1e-6)
    assert optimizer.on_validation([1.0, 2.0, 3.0, 0.1]) is False  # True only when averaging starts
    assert optimizer.is_averaging  # averaging never stops


def test_averaged_sgd_decay_equals_hand_computation() -> None:
    """w − η (g + λ w): 2 − 0.1 · (3 + 0.5 · 2) = 1.6; next step 1.6 − 0.1 · (3 + 0.8) = 1.22."""
    w = make_weight(2.0)
    optimizer = make_optimizer([w], {"kind": "nt-asgd", "rate": 0.1, "weight_decay": 0.5})
    for expected in (1.6, 1.22):
        w.grad = torch.tensor([3.0])
        optimizer.step()
        assert w.item() == pytest.approx(expected, rel=1e-6)


def test_averaged_sgd_clips_before_adding_decay() -> None:
    """A gradient of 10 is clipped to 0.25, then 0.1 · 2 is added: 2 − 0.45. In the other order: 2 − 0.25."""
    w = make_weight(2.0)
    optimizer = AveragedSGD([w], lr=1.0, weight_decay=0.1)
    w.grad = torch.tensor([10.0])
    nn.utils.clip_grad_norm_([w], 0.25)
    optimizer.step()
    assert w.item() == pytest.approx(1.55, rel=1e-5)
    captured = make_weight(2.0)
    optimizer = AveragedSGD([captured], lr=1.0, weight_decay=0.1)
    captured.grad = torch.tensor([10.0])
    optimizer.prepare_step()
    optimizer.apply_step(torch.tensor(0.025))
    assert captured.item() == pytest.approx(1.55, rel=1e-5)


def test_averaged_sgd_reads_the_rate_at_each_step() -> None:
    w = make_weight()
    optimizer = AveragedSGD([w], lr=0.5)
    descend(optimizer, w)
    optimizer.param_groups[0]["lr"] = 0.25
    assert descend(optimizer, w) == [3]


def test_averaged_sgd_before_trigger_equals_torch_sgd() -> None:
    torch.manual_seed(0)
    results = []
    start = torch.randn(5, 3, dtype=torch.float64)
    for make in (torch.optim.SGD, AveragedSGD):
        p = nn.Parameter(start.clone())
        optimizer = make([p], lr=0.25, weight_decay=0.01)
        for k in range(10):
            p.grad = torch.sin(p.detach() * (k + 1))
            optimizer.step()
        results.append(p.detach())
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 7, 300])
def test_averaged_sgd_means_equal_double_precision_averages(steps: int) -> None:
    """Means of many weights equal float64 means up to 1e-6."""
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(7, 5)), nn.Parameter(torch.randn(3))]
    optimizer = AveragedSGD(params, lr=0.1, start=4)
    history: list[list[Tensor]] = []
    for k in range(4 + steps):
        for p in params:
            p.grad = torch.randn(p.shape)
        optimizer.step()
        if k >= 4:
            history.append([p.detach().double() for p in params])
    for p, *values in zip(params, *history, strict=True):
        expected = torch.stack(values).mean(0)
        torch.testing.assert_close(optimizer.state[p]["mean"].double(), expected, rtol=1e-6, atol=1e-6)
    if steps > 1:
        assert not torch.allclose(optimizer.state[params[0]]["mean"], params[0])


# ------------------------------------------------------------------------------------------------ trigger


def reference_trigger(losses: list[float], n: int) -> int | None:
    """Index of the validation that starts averaging (salesforce/awd-lstm-lm, main.py)."""
    best: list[float] = []
    for index, loss in enumerate(losses):
        if len(best) > n and loss > min(best[:-n]):
            return index
        best.append(loss)
    return None


def triggered_at(losses: list[float], n: int) -> list[int]:
    optimizer = AveragedSGD([make_weight()], lr=1.0, patience=n)
    return [i for i in range(len(losses)) if optimizer.on_validation(losses[: i + 1])]


def test_trigger_on_a_list_of_losses_equals_hand_computation() -> None:
    """n = 5. The minimum of losses more than five ago is 5.0 at index 6, 4.9 at 7, 4.0 at 8: 4.5 exceeds that."""
    losses = [5.0, 4.9, 4.0, 4.6, 4.7, 4.8, 4.95, 4.85, 4.5, 3.0, 2.0]
    #                                      < 5.0 < 4.9 > 4.0
    assert reference_trigger(losses, 5) == 8
    assert triggered_at(losses, 5) == [8]  # only once, even if the loss falls afterwards


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], []),  # the sixth validation has only five before it: too few
        ([1, 2, 3, 4, 5, 6, 7], [6]),  # the seventh has six before it: 7 > min([1])
        ([1, 1, 1, 1, 1, 1, 1, 1], []),  # equal, not above
        ([9, 8, 7, 6, 5, 4, 3, 2], []),
        ([9, 1, 8, 8, 8, 8, 8], []),  # 8 < min([9]): the 1 is among the last five
        ([9, 1, 8, 8, 8, 8, 8, 8], [7]),  # now it is not
    ],
)
def test_trigger_at_edge_cases_fires_at_the_expected_index(losses: list[float], expected: list[int]) -> None:
    assert triggered_at(losses, 5) == expected


@given(
    losses=st.lists(st.integers(1, 8).map(float), max_size=25),
    n=st.integers(1, 7),
)
def test_trigger_equals_original_rule(losses: list[float], n: int) -> None:
    index = reference_trigger(losses, n)
    assert triggered_at(losses, n) == ([] if index is None else [index])


def test_averaged_sgd_with_fixed_start_ignores_losses() -> None:
    """start = 3 is plain ASGD: steps 4, 5, … are averaged, for any losses."""
    w = make_weight()
    optimizer = AveragedSGD([w], lr=0.5, start=3, patience=1)
    assert not optimizer.on_validation([1.0, 2.0, 3.0, 4.0])
    assert descend(optimizer, w, 3) == [4, 2, 1]
    assert not optimizer.is_averaging
    assert descend(optimizer, w, 2) == [0.5, 0.25]
    assert optimizer.is_averaging
    assert optimizer.state[w]["mean"].item() == pytest.approx(0.375)
    assert not Optimizer(torch.optim.SGD([w], lr=1.0)).on_validation([1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize("setting", [{"start": -1}, {"patience": 0}])
def test_averaged_sgd_with_invalid_setting_raises(setting: dict[str, int]) -> None:
    with pytest.raises(InvalidSetting, match=rf"{next(iter(setting))} = "):
        make_optimizer([make_weight()], {"kind": "nt-asgd", **setting})


# ------------------------------------------------------------------------------------------------ swapping, saving


def take_steps(steps: int, start: int) -> tuple[list[nn.Parameter], AveragedSGD]:
    torch.manual_seed(0)
    params = [nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(2))]
    optimizer = AveragedSGD(params, lr=0.1, weight_decay=0.01, start=start)
    continue_steps(params, optimizer, range(steps))
    return params, optimizer


def continue_steps(params: list[nn.Parameter], optimizer: AveragedSGD, steps: range) -> None:
    for k in steps:
        for p in params:
            p.grad = torch.sin(p.detach() * (k + 1))
        optimizer.param_groups[0]["lr"] = 0.1 * (1 + k % 3)
        optimizer.step()


def test_averaged_weights_are_swapped_in_and_restored_exactly() -> None:
    params, optimizer = take_steps(9, start=4)
    before = [p.detach().clone() for p in params]
    means = [optimizer.state[p]["mean"].clone() for p in params]
    with optimizer.averaged_weights():
        for p, mean, weight in zip(params, means, before, strict=True):
            assert torch.equal(p, mean)
            assert not torch.equal(p, weight)
    with pytest.raises(RuntimeError, match="inside"), optimizer.averaged_weights():
        raise RuntimeError("inside")
    for p, mean, weight in zip(params, means, before, strict=True):
        assert torch.equal(p, weight)
        assert torch.equal(optimizer.state[p]["mean"], mean)


def test_averaged_weights_before_start_or_for_other_optimizers_change_nothing() -> None:
    params, optimizer = take_steps(3, start=4)
    before = [p.detach().clone() for p in params]
    for either in (optimizer, Optimizer(torch.optim.SGD(params, lr=1.0))):
        with either.averaged_weights():
            assert all(torch.equal(p, weight) for p, weight in zip(params, before, strict=True))


@pytest.mark.parametrize("steps", [2, 9])  # before and after the start
def test_averaged_sgd_state_round_trips_and_continues_identically(steps: int) -> None:
    params, optimizer = take_steps(steps, start=4)
    tensors, groups = optimizer.export_state()
    tensors = {name: t.clone() for name, t in tensors.items()}
    groups = json.loads(json.dumps(groups))
    others = [nn.Parameter(p.detach().clone()) for p in params]
    restored = AveragedSGD(others, lr=0.1, weight_decay=0.01, start=4)
    restored.restore_state(tensors, groups)
    assert restored.is_averaging == optimizer.is_averaging == (steps > 4)
    continue_steps(params, optimizer, range(steps, 15))
    continue_steps(others, restored, range(steps, 15))
    for p, q in zip(params, others, strict=True):
        assert torch.equal(p, q)
        assert torch.equal(optimizer.state[p]["mean"], restored.state[q]["mean"])


def test_saved_state_remembers_the_fired_trigger() -> None:
    w = make_weight()
    optimizer = AveragedSGD([w], lr=0.5, patience=1)
    optimizer.on_validation([1.0, 2.0, 3.0])
    descend(optimizer, w, 2)
    restored = AveragedSGD([w], lr=0.5, patience=1)
    restored.restore_state(*optimizer.export_state())
    assert restored.is_averaging
    descend(restored, w)
    assert restored.state[w]["mean"].item() == pytest.approx((4 + 2 + 1) / 3)


def test_power_one_weights_average_equals_hand_computation() -> None:
    """Power 1 counts the n-th weight n times: 4, 2, 1 → (4 + 2 · 2 + 3 · 1) / 6."""
    w = make_weight()
    optimizer = make_optimizer([w], {"kind": "nt-asgd", "rate": 0.5, "start": 1, "power": 1})
    assert descend(optimizer, w, 4) == [4, 2, 1, 0.5]
    mean = optimizer.state[w]["mean"].item()
    assert mean == pytest.approx((2 + 2 * 1 + 3 * 0.5) / 6, rel=1e-6)  # the first step is before the start


@pytest.mark.parametrize("power", [0.0, 0.5, 3.0, 8.0])
def test_power_weights_equal_ratio_of_gamma_functions(power: float) -> None:
    """The n-th weight counts Γ(n + p) / Γ(n), about n^p."""
    w = make_weight()
    optimizer = AveragedSGD([w], lr=0.1, start=1, power=power)
    values = descend(optimizer, w, 30)[1:]
    weights = [math.gamma(n + power) / math.gamma(n) for n in range(1, 30)]
    expected = sum(a * b for a, b in zip(weights, values, strict=True)) / sum(weights)
    assert optimizer.state[w]["mean"].item() == pytest.approx(expected, rel=1e-5)
