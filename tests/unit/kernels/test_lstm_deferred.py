"""Gradients that are made at the end are those that are made on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.kernels.lstm import StepwiseEnergies, StepwiseLinear, StepwiseWeightedSum


def walked(multiply: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Each step goes into the next."""
    total, h = x.new_zeros(()), x
    for _ in range(4):
        h = torch.tanh(multiply(h))
        total = total + (h * torch.arange(h.shape[-1])).sum()
    return total


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 5)])
def test_a_layer_used_at_every_step(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    w = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    b = torch.randn(5, dtype=torch.float64, requires_grad=True) if bias else None
    inputs = [t for t in (x, w, b) if t is not None]
    want = torch.autograd.grad(walked(lambda h: F.linear(h, w, b), x), inputs)
    for _ in range(2):  # nothing is left of the first time
        for mine, theirs in zip(torch.autograd.grad(walked(StepwiseLinear(w, b), x), inputs), want, strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_is_frozen_stays_and_the_rest_learns(frozen: int) -> None:
    torch.manual_seed(2)
    x, w, b = (torch.randn(shape, dtype=torch.float64) for shape in ((3, 5), (5, 5), (5,)))
    inputs = [t.requires_grad_() for i, t in enumerate((x, w, b)) if i != frozen]
    want = torch.autograd.grad(walked(lambda h: F.linear(h, w, b), x), inputs)
    got = torch.autograd.grad(walked(StepwiseLinear(w, b), x), inputs)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_slice_of_a_matrix_that_others_use_too() -> None:
    torch.manual_seed(3)
    w = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 5, dtype=torch.float64)
    parts = [lambda h: F.linear(h, w[:, 5:]), StepwiseLinear(w[:, 5:])]
    grads = [torch.autograd.grad(walked(part, F.linear(x, w[:, :5])), w)[0] for part in parts]  # type: ignore[arg-type]
    torch.testing.assert_close(grads[1], grads[0])


def test_a_memory_that_is_looked_at_at_every_step() -> None:
    torch.manual_seed(4)
    memory = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    scores = torch.randn(4, 2, 1, 6, dtype=torch.float64, requires_grad=True)
    found = []
    for look in (lambda weights: weights @ memory, StepwiseWeightedSum(memory)):
        each = [look(one.softmax(-1)) for one in scores]
        found.append(torch.autograd.grad(torch.cat(each).pow(3).sum(), [memory, scores]))
    for mine, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, theirs)


def test_in_16_bits_and_without_gradients() -> None:
    torch.manual_seed(5)
    x, w, b = torch.randn(3, 8), torch.randn(8, 8).requires_grad_(), torch.randn(8).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        got = walked(StepwiseLinear(w, b), x)
        want = walked(lambda h: F.linear(h, w, b), x)
    for mine, theirs in zip(torch.autograd.grad(got, [w, b]), torch.autograd.grad(want, [w, b]), strict=True):
        assert mine.dtype == torch.float32
        assert (mine - theirs).norm() <= 0.05 * theirs.norm()
    with torch.no_grad():
        assert torch.equal(StepwiseLinear(w, b)(x), F.linear(x, w, b))


@pytest.mark.parametrize("asked", [1, 3])
@pytest.mark.parametrize("frozen", [None, 0, 1, 2])
def test_keys_that_are_compared_at_every_step(frozen: int | None, asked: int) -> None:
    torch.manual_seed(5)
    query, keys, score = (torch.randn(shape, dtype=torch.float64) for shape in ((2, asked, 3), (2, 6, 3), (3,)))
    inputs = [t.requires_grad_() for i, t in enumerate((query, keys, score)) if i != frozen]

    def plain(q: Tensor) -> Tensor:
        return torch.tanh(q.unsqueeze(2) + keys.unsqueeze(1)) @ score

    def asking(energies: Callable[[Tensor], Tensor]) -> Tensor:
        return walked(lambda q: energies(q).softmax(-1) @ keys.detach(), query)

    want = torch.autograd.grad(asking(plain), inputs)
    for mine, theirs in zip(torch.autograd.grad(asking(StepwiseEnergies(keys, score)), inputs), want, strict=True):
        torch.testing.assert_close(mine, theirs)
