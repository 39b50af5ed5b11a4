"""LAMB against a reference in plain Python numbers: zero norms, exact resume, and its keys in a recipe."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting, UnknownName
from nextword.training.optimizers import LAMB, make_optimizer, trust_ratios
from nextword.training.trainer import run_gradient_phase
from tests.support.small_job import draw_walk, make_small_job, train_small_job

RATE, DECAY, EPS, BETAS = 0.03, 0.1, 1e-6, (0.9, 0.999)
TABLE = {"kind": "lamb", "rate": RATE, "weight_decay": DECAY, "decay_on": "matrices"}


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(3)
    return [nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((4, 3), (5,), (2, 2, 3), ())]


def gradient(x: Tensor, step: int) -> Tensor:
    """Gradient of a quadratic that differs at each step."""
    indices = torch.arange(1, x.numel() + 1, dtype=x.dtype).view(x.shape)
    return (x - indices.cos()) * indices + math.sin(step)


def reference_lamb(
    x: list[float],
    grads: Any,
    steps: int,
    decay: float = DECAY,
    scaled: bool = True,
    betas: tuple[float, float] = BETAS,
) -> list[float]:
    """Algorithm 2 of the paper for one tensor, element by element."""
    m, v = [0.0] * len(x), [0.0] * len(x)
    for t in range(1, steps + 1):
        g = grads(x, t)
        m = [betas[0] * a + (1 - betas[0]) * b for a, b in zip(m, g, strict=True)]
        v = [betas[1] * a + (1 - betas[1]) * b * b for a, b in zip(v, g, strict=True)]
        u = []
        for m_i, v_i, x_i in zip(m, v, x, strict=True):
            corrected = (m_i / (1 - betas[0] ** t)) / (math.sqrt(v_i / (1 - betas[1] ** t)) + EPS)
            u.append(corrected + decay * x_i)
        weight_norm, update_norm = math.sqrt(sum(a * a for a in x)), math.sqrt(sum(a * a for a in u))
        ratio = weight_norm / update_norm if scaled and weight_norm > 0 and update_norm > 0 else 1.0
        x = [a - RATE * ratio * b for a, b in zip(x, u, strict=True)]
    return x


def take_steps(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], first: int, last: int) -> None:
    for step in range(first, last + 1):
        for p in params:
            p.grad = gradient(p.detach(), step)
        optimizer.step()


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("decayed", ["all", "matrices"])
@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_lamb_equals_reference_in_plain_numbers(steps: int, decayed: str, decay: float) -> None:
    params = parameters()
    before = [p.detach().clone() for p in params]
    take_steps(make_optimizer(params, {**TABLE, "weight_decay": decay, "decay_on": decayed}), params, 1, steps)
    for x, p in zip(before, params, strict=True):
        scaled = decayed == "all" or x.dim() > 1

        def grads(values: list[float], t: int, shape: Any = x.shape) -> list[float]:
            return gradient(torch.tensor(values, dtype=torch.float64).view(shape), t).flatten().tolist()

        expected = reference_lamb(x.flatten().tolist(), grads, steps, decay if scaled else 0.0, scaled)
        torch.testing.assert_close(
            p.detach().flatten(), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-13
        )


def test_lamb_step_of_a_scalar_equals_hand_computation() -> None:
    """x = 2, g = 5: m̂ = 5, v̂ = 25, u = 1 + λ·2 = 1.2; the ratio is 2 / 1.2, and the step is η · 2 for any u."""
    x = nn.Parameter(torch.tensor([[2.0]], dtype=torch.float64))
    x.grad = torch.tensor([[5.0]], dtype=torch.float64)
    make_optimizer([x], {**TABLE, "eps": 0.0}).step()
    assert x.item() == pytest.approx(2 - RATE * 2, abs=1e-15)


def test_lamb_step_size_is_independent_of_gradient_scale() -> None:
    for scale in (1e-3, 1.0, 1e3):
        params = parameters()[:1]
        before = params[0].detach().clone()
        params[0].grad = scale * gradient(before, 1)
        make_optimizer(params, {**TABLE, "eps": 0.0}).step()
        moved = (params[0].detach() - before).norm()
        torch.testing.assert_close(moved, RATE * before.norm(), rtol=1e-12, atol=0)


def test_lamb_uses_betas_and_eps_of_the_recipe() -> None:
    params = parameters()[1:2]
    x = params[0].detach().tolist()
    table = {"kind": "lamb", "rate": RATE, "betas": [0.5, 0.75], "eps": EPS}
    take_steps(make_optimizer(params, table), params, 1, 4)

    def grads(values: list[float], t: int) -> list[float]:
        return gradient(torch.tensor(values, dtype=torch.float64), t).tolist()

    expected = torch.tensor(reference_lamb(x, grads, 4, 0.0, betas=(0.5, 0.75)), dtype=torch.float64)
    torch.testing.assert_close(params[0].detach(), expected, rtol=1e-12, atol=1e-13)
    default = LAMB(parameters(), 0.1).defaults
    assert (default["betas"], default["eps"]) == ((0.9, 0.999), 1e-6)


# ------------------------------------------------------------------------------------------------ zero norms


def test_lamb_step_of_zero_weights_equals_adam() -> None:
    x = nn.Parameter(torch.zeros(2, 2, dtype=torch.float64))
    x.grad = torch.tensor([[1.0, -2.0], [3.0, 0.0]], dtype=torch.float64)
    make_optimizer([x], {**TABLE, "eps": 0.1}).step()
    expected = -RATE * x.grad / (x.grad.abs() + 0.1)
    torch.testing.assert_close(x.detach(), expected, rtol=1e-12, atol=0)


def test_lamb_with_zero_gradient_and_decay_changes_nothing() -> None:
    x = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    x.grad = torch.zeros_like(x)
    make_optimizer([x], {"kind": "lamb", "rate": RATE}).step()
    assert torch.equal(x.detach(), torch.ones_like(x))


def test_trust_ratios_equal_hand_computation() -> None:
    x = [torch.tensor([3.0, 4.0]), torch.zeros(2), torch.ones(2), torch.zeros(1), torch.tensor(6.0)]
    u = [torch.tensor([0.0, 2.0]), torch.ones(2), torch.zeros(2), torch.zeros(1), torch.tensor(-3.0)]
    assert trust_ratios(x, u).tolist() == [2.5, 1.0, 1.0, 1.0, 2.0]


def test_lamb_skips_parameters_without_gradient() -> None:
    params = parameters()[:2]
    optimizer = make_optimizer(params, TABLE)
    before = params[1].detach().clone()
    for step in (1, 2):
        params[0].grad = gradient(params[0].detach(), step)
        optimizer.step()
    assert torch.equal(params[1].detach(), before)
    assert params[1] not in optimizer.state
    params[1].grad = torch.ones_like(before)
    optimizer.step()
    torch.testing.assert_close(params[1].detach(), before - RATE / (1 + EPS), rtol=1e-12, atol=0)


# ------------------------------------------------------------------------------------------------ groups, keys, resume


def test_lamb_spares_vectors_only_if_decayed_is_matrices() -> None:
    matrices, everything = (make_optimizer(parameters(), {**TABLE, "decay_on": d}) for d in ("matrices", "all"))
    assert [(g["weight_decay"], g["scaled"]) for g in matrices.param_groups] == [(DECAY, True), (0.0, False)]
    assert [(g["weight_decay"], g["scaled"]) for g in everything.param_groups] == [(DECAY, True)]
    other = make_optimizer(parameters(), {**TABLE, "kind": "adamw"})
    assert all("scaled" not in group for group in other.param_groups)


@pytest.mark.parametrize(
    "options",
    [{"kind": "lam"}, {"beta": [0.9, 0.99]}, {"momentum": 0.9}, {"scaled": False}],
)
def test_lamb_with_unknown_key_raises(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownName) as unknown:
        make_optimizer(parameters(), {**TABLE, **options})
    assert unknown.value.name == options.get("kind", next(iter(options)))


@pytest.mark.parametrize(
    "options",
    [
        {"betas": [0.9]},
        {"betas": [0.9, 1.0]},
        {"betas": 0.9},
        {"eps": -1.0},
        {"weight_decay": -0.1},
        {"decay_on": "vectors"},
    ],
)
def test_lamb_with_invalid_value_raises(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        make_optimizer(parameters(), {**TABLE, **options})


def test_lamb_state_round_trips_and_continues_bit_identically() -> None:
    params = parameters()
    optimizer = make_optimizer(params, TABLE)
    take_steps(optimizer, params, 1, 3)
    tensors, groups = optimizer.export_state()
    tensors = {name: t.clone() for name, t in tensors.items()}
    groups = json.loads(json.dumps(groups))
    others = [nn.Parameter(p.detach().clone()) for p in params]
    take_steps(optimizer, params, 4, 6)
    restored = make_optimizer(others, {**TABLE, "rate": 1.0})
    restored.restore_state(tensors, groups)
    take_steps(restored, others, 4, 6)
    for p, q in zip(params, others, strict=True):
        assert torch.equal(p, q)


def test_lamb_training_resumes_bit_identically(tmp_path: Path) -> None:
    ids = draw_walk(11, 405)
    phase: dict[str, Any] = {"batches": {"kind": "rows", "rows": 4, "length": 5}, "optimizer": TABLE, "steps": 12}
    phase |= {"train": ids, "valid": None, "save_every": 1e9, "log_every": 5, "clip": 1.0}
    straight, _ = train_small_job(tmp_path / "straight", "lstm", {"width": 8}, 12, **phase)
    steps = iter(range(100))
    list(
        run_gradient_phase(
            make_small_job(tmp_path / "cut", "lstm", {"width": 8}, 12, stop=lambda: next(steps) == 4, **phase)
        )
    )
    resumed, events = train_small_job(tmp_path / "cut", "lstm", {"width": 8}, 12, **phase)
    assert events[0].step == 5
    for name, t in straight.state_dict().items():
        assert torch.equal(t, resumed.state_dict()[name]), name
