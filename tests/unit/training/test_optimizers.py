"""Each optimizer equals the torch class of that name step for step; decay is L2 in some and decoupled in others.

LAMB, which torch lacks, has its own reference in test_optimizers_lamb.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting, UnknownName
from nextword.training.optimizers import OPTIMIZERS, check_optimizer, make_optimizer

TORCH_CLASSES: dict[str, tuple[dict[str, Any], type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": ({"momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    "nt-asgd": ({}, torch.optim.SGD, {}),  # the trained weights never see the average
    "adagrad": ({"eps": 1e-8}, torch.optim.Adagrad, {"eps": 1e-8}),
    "rmsprop": ({"alpha": 0.9}, torch.optim.RMSprop, {"alpha": 0.9}),
    "adam": ({"betas": [0.8, 0.99]}, torch.optim.Adam, {"betas": (0.8, 0.99)}),
    "nadam": ({}, torch.optim.NAdam, {}),
    "adamw": ({"eps": 1e-6}, torch.optim.AdamW, {"eps": 1e-6}),
    "nadamw": ({}, torch.optim.NAdam, {"decoupled_weight_decay": True}),
    "adafactor": ({"d": 1.5}, torch.optim.Adafactor, {"d": 1.5}),
}


def take_steps(make: Any, gradient: Any = None, steps: int = 6) -> Tensor:
    """Weights after some steps from a fixed start on a fixed quadratic, or with the given gradient."""
    weight = nn.Parameter(torch.linspace(-2, 2, 7, dtype=torch.float64))
    optimizer = make([weight])
    for _ in range(steps):
        optimizer.zero_grad()
        if gradient is None:
            ((weight - 1) ** 2 * torch.arange(1.0, 8)).sum().backward()
        else:
            weight.grad = gradient(weight).detach().clone()
        optimizer.step()
    return weight.detach()


def test_every_optimizer_is_covered() -> None:
    assert OPTIMIZERS.keys() - TORCH_CLASSES.keys() == {"lamb"}


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", TORCH_CLASSES)
def test_optimizer_equals_torch_class(kind: str, decay: float) -> None:
    options, cls, torch_options = TORCH_CLASSES[kind]
    actual = take_steps(lambda p: make_optimizer(p, {"kind": kind, "rate": 0.05, "weight_decay": decay, **options}))
    expected = take_steps(lambda p: cls(p, lr=0.05, weight_decay=decay, **torch_options))  # type: ignore[call-arg]
    is_rounded = kind in ("nt-asgd", "adam", "adamw")  # own or fused implementations round differently
    torch.testing.assert_close(actual, expected, rtol=1e-12 if is_rounded else 0, atol=0)


def test_decay_of_matrices_spares_vectors() -> None:
    matrix, vector = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))
    optimizer = make_optimizer(
        [matrix, vector], {"kind": "adamw", "rate": 0.1, "weight_decay": 0.5, "decay_on": "matrices"}
    )
    for p in (matrix, vector):
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert torch.allclose(matrix, torch.full((2, 2), 0.95))
    assert torch.equal(vector, torch.ones(2))


@pytest.mark.parametrize(("kind", "decayed"), [("adamw", "vectors"), ("nt-asgd", "matrices")])
def test_decayed_setting_with_unknown_value_raises(kind: str, decayed: str) -> None:
    with pytest.raises(InvalidSetting) as invalid:
        make_optimizer([torch.nn.Parameter(torch.ones(2))], {"kind": kind, "decay_on": decayed})
    assert (invalid.value.key, invalid.value.value) == ("optimizer.decay_on", decayed)


@pytest.mark.parametrize("kind", TORCH_CLASSES)
def test_decay_is_l2_or_decoupled_by_optimizer(kind: str) -> None:
    """L2 decay equals adding λθ to every gradient. Decoupled decay only shrinks weights by (1 − rate·λ) per step."""
    rate, decay = 0.1, 0.5
    by_setting = take_steps(
        lambda p: make_optimizer(p, {"kind": kind, "rate": rate, "weight_decay": decay}), lambda w: w * 0 + 0.3
    )
    by_hand = take_steps(lambda p: make_optimizer(p, {"kind": kind, "rate": rate}), lambda w: 0.3 + decay * w)
    decoupled = kind in ("adamw", "nadamw", "adafactor")
    assert torch.allclose(by_setting, by_hand, rtol=1e-9) is not decoupled
    if decoupled:
        decayed = take_steps(
            lambda p: make_optimizer(p, {"kind": kind, "rate": rate, "weight_decay": decay}), lambda w: w * 0
        )
        start = torch.linspace(-2, 2, 7, dtype=torch.float64)
        torch.testing.assert_close(decayed, start * (1 - rate * decay) ** 6)


def test_adafactor_first_step_equals_hand_computation() -> None:
    """Shazeer & Stern (2018), algorithm 4, first step: g² is factored into one number per row and per column."""
    x = torch.tensor([[1.0, -2.0, 0.5], [3.0, 1.0, -1.0]], dtype=torch.float64)
    g = torch.tensor([[0.1, 0.4, -0.2], [0.3, -0.1, 0.2]], dtype=torch.float64)
    weight = nn.Parameter(x.clone())
    optimizer = make_optimizer([weight], {"kind": "adafactor", "rate": 0.01})
    weight.grad = g.clone()
    optimizer.step()
    rows, columns = g.pow(2).mean(1, keepdim=True), g.pow(2).mean(0, keepdim=True)
    step = g / (rows * columns / rows.mean()).sqrt()
    step = step / max(1.0, float(step.pow(2).mean().sqrt()))
    torch.testing.assert_close(weight.detach(), x - 0.01 * x.pow(2).mean().sqrt() * step, rtol=1e-6, atol=1e-9)


def test_optimizers_without_decay_differ_except_decoupled_variants() -> None:
    results = {
        kind: tuple(take_steps(lambda p, k=kind: make_optimizer(p, {"kind": k, "rate": 0.05})).tolist())
        for kind in TORCH_CLASSES
    }
    assert results["adam"] == results["adamw"]  # equal without decay
    assert results["nadam"] == results["nadamw"]
    assert len(set(results.values())) == len(results) - 2


def test_default_optimizer_is_adam() -> None:
    optimizer = make_optimizer([nn.Parameter(torch.zeros(1))], {})
    assert type(optimizer.inner) is torch.optim.Adam
    assert optimizer.base_rate == optimizer.rate == 0.001


@pytest.mark.parametrize(
    ("options", "name", "suggestion"),
    [
        ({"kind": "adm"}, "adm", "adam"),
        ({"kind": "adam", "rte": 0.1}, "rte", "rate"),
        ({"kind": "sgd", "betas": [0.9, 0.99]}, "betas", "momentum"),
    ],
)
def test_optimizer_with_unknown_key_raises(options: dict[str, Any], name: str, suggestion: str) -> None:
    for check in (check_optimizer, lambda table: make_optimizer([nn.Parameter(torch.zeros(1))], table)):
        with pytest.raises(UnknownName, match=suggestion) as unknown:
            check(options)
        assert unknown.value.name == name


@pytest.mark.parametrize("rate", [0, "fast", True])
def test_optimizer_with_invalid_rate_raises(rate: Any) -> None:
    with pytest.raises(InvalidSetting) as invalid:
        check_optimizer({"kind": "adam", "rate": rate})
    assert (invalid.value.key, invalid.value.value) == ("optimizer.rate", rate)


def test_check_optimizer_returns_the_rate() -> None:
    for kind in OPTIMIZERS:
        assert check_optimizer({"kind": kind, "rate": 0.25}) == 0.25


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw", "lamb"])
@pytest.mark.parametrize("max_norm", [0.01, 1e9])
def test_clipping_equals_torch_in_fused_and_plain_optimizers(kind: str, max_norm: float) -> None:
    """Adam and AdamW scale the gradients within their step, the others before it."""
    ours, theirs = ([nn.Parameter(torch.linspace(-1, 1, 6).view(2, 3)), nn.Parameter(torch.ones(3))] for _ in range(2))
    first, second = (make_optimizer(p, {"kind": kind, "rate": 0.05, "eps": 1e-2} if kind != "sgd" else {"kind": kind})
                     for p in (ours, theirs))  # fmt: skip
    for i in range(4):
        for p in (*ours, *theirs):
            p.grad = (p.detach() * 3 + i).clone()
        norm = first.clip(max_norm)
        first.step()
        expected = nn.utils.clip_grad_norm_(theirs, max_norm)
        second.step()
        torch.testing.assert_close(norm, expected)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("betas", [[0.9], [0.9, 0.9, 0.99], {"b": 1}, "ab", 0.9])
def test_betas_that_are_not_two_numbers_raise(betas: object) -> None:
    with pytest.raises(InvalidSetting) as error:
        make_optimizer([torch.nn.Parameter(torch.ones(2))], {"kind": "adamw", "betas": betas})
    assert error.value.key == "optimizer.betas"
