"""The engine against PyTorch in float64, against central differences, and on the examples of the lecture notes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nextword.micro.engine import Tensor, Value, concatenate

TOLERANCE = 1e-10
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / (b * b + 1),
    lambda a, b: a * 0.5 + 2.0 - b / 3.0,
    lambda a, b: 1.5 / (a * a + 1) + 2 * b,
]
UNARY: list[Callable[[Any], Any]] = [
    lambda a: a.tanh(),
    lambda a: a.sigmoid(),
    lambda a: a.relu(),
    lambda a: (a * 0.1).exp(),
    lambda a: (a * a + 0.5).log(),
    lambda a: a**2,
    lambda a: (a * a + 1) ** -0.5,
    lambda a: -a,
    lambda a: 1 - a,
]


def grow(draw: random.Random, leaves: list[Any], steps: int) -> Any:
    """Build a random graph in which nodes are used several times, and return the sum of its last nodes."""
    nodes = list(leaves)
    for _ in range(steps):
        if draw.random() < 0.5:
            nodes.append(draw.choice(UNARY)(draw.choice(nodes)))
        else:
            nodes.append(draw.choice(BINARY)(draw.choice(nodes), draw.choice(nodes)) * 0.3)
    return nodes[-1] + nodes[-2]


@given(seed=st.integers(0, 10**6), steps=st.integers(2, 25))
def test_value_gradients_of_random_graphs_equal_torch(seed: int, steps: int) -> None:
    numbers = [random.Random(seed).uniform(-1, 1) for _ in range(3)]
    ours = [Value(number) for number in numbers]
    theirs = [torch.tensor(number, dtype=torch.float64, requires_grad=True) for number in numbers]
    ours_out = grow(random.Random(seed), ours, steps)
    theirs_out = grow(random.Random(seed), theirs, steps)
    ours_out.backward()
    gradients = torch.autograd.grad(theirs_out, theirs, allow_unused=True)
    assert ours_out.data == pytest.approx(theirs_out.item(), rel=TOLERANCE, abs=TOLERANCE)
    for mine, gradient in zip(ours, gradients, strict=True):
        expected = 0.0 if gradient is None else gradient.item()
        assert mine.grad == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE)


SHAPES = [(), (1,), (4,), (3, 1), (3, 4), (2, 1, 4), (2, 3, 4)]


@given(seed=st.integers(0, 10**6), steps=st.integers(2, 15), data=st.data())
def test_tensor_gradients_of_random_graphs_with_broadcasting_equal_torch(seed: int, steps: int, data: Any) -> None:
    shapes = data.draw(st.lists(st.sampled_from(SHAPES), min_size=3, max_size=3))
    arrays = [np.random.default_rng(seed + i).uniform(-1, 1, shape) for i, shape in enumerate(shapes)]
    ours = [Tensor(array) for array in arrays]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    ours_out = grow(random.Random(seed), ours, steps).mean()
    theirs_out = grow(random.Random(seed), theirs, steps).mean()
    ours_out.backward()
    assert_same(ours_out.data, theirs_out)
    for mine, gradient in zip(ours, torch.autograd.grad(theirs_out, theirs, allow_unused=True), strict=True):
        assert_same(mine.grad, torch.zeros(mine.shape) if gradient is None else gradient)


def assert_same(ours: Any, theirs: torch.Tensor) -> None:
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE)


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum over rows": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "mean with kept axis": (lambda x: x.mean(1, keepdims=True), lambda x: x.mean(1, keepdim=True)),
    "max of all": (lambda x: x.max(), lambda x: x.max()),
    "max over an axis": (lambda x: x.max(-1), lambda x: x.amax(-1)),
    "reshape": (lambda x: x.reshape(4, -1), lambda x: x.reshape(4, -1)),
    "transpose": (lambda x: x.transpose(0, 1), lambda x: x.transpose(0, 1)),
    "slice": (lambda x: x[:, 1:3], lambda x: x[:, 1:3]),
    "rows taken twice": (lambda x: x[np.array([0, 2, 0])], lambda x: x[torch.tensor([0, 2, 0])]),
    "log softmax": (lambda x: x.log_softmax(), lambda x: x.log_softmax(-1)),
    "matrix product": (lambda x: x @ x.transpose(), lambda x: x @ x.T),
    "concatenation": (lambda x: concatenate([x, x * 2], axis=0), lambda x: torch.cat([x, x * 2], 0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tensor_function_and_its_gradient_equal_torch(name: str) -> None:
    array = np.random.default_rng(1).normal(size=(3, 4))
    ours, theirs = Tensor(array.copy()), torch.tensor(array, requires_grad=True)
    mine, other = FUNCTIONS[name]
    result, expected = mine(ours), other(theirs)
    assert_same(result.data, expected)
    weights = np.random.default_rng(2).normal(size=result.shape)
    (result * weights).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    assert_same(ours.grad, theirs.grad)


def test_batched_matrix_product_with_broadcast_weights_equals_torch() -> None:
    left, right = np.random.default_rng(0).normal(size=(5, 2, 3)), np.random.default_rng(1).normal(size=(3, 4))
    ours = [Tensor(left.copy()), Tensor(right.copy())]
    theirs = [torch.tensor(left, requires_grad=True), torch.tensor(right, requires_grad=True)]
    (ours[0] @ ours[1]).tanh().sum().backward()
    (theirs[0] @ theirs[1]).tanh().sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        assert_same(mine.grad, other.grad)


def test_cross_entropy_of_large_logits_is_finite_and_equals_torch() -> None:
    logits, targets = np.array([[1000.0, -1000.0, 3.0], [0.0, 1.0, 2.0]]), np.array([2, 0])
    ours, theirs = Tensor(logits.copy()), torch.tensor(logits, requires_grad=True)
    loss = ours.cross_entropy(targets)
    loss.backward()
    expected = torch.nn.functional.cross_entropy(theirs, torch.tensor(targets))
    expected.backward()
    assert_same(loss.data, expected)
    assert_same(ours.grad, theirs.grad)


def test_value_gradient_equals_central_differences() -> None:
    def function(x: Value, y: Value) -> Value:
        return (x * y + x.exp() / (y * y + 1)).tanh() - (x.sigmoid() * 3).log() + y**3

    x, y = Value(0.3), Value(-0.7)
    function(x, y).backward()
    step = 1e-6
    slope_x = function(Value(0.3 + step), Value(-0.7)).data - function(Value(0.3 - step), Value(-0.7)).data
    slope_y = function(Value(0.3), Value(-0.7 + step)).data - function(Value(0.3), Value(-0.7 - step)).data
    assert x.grad == pytest.approx(slope_x / (2 * step), rel=1e-7)
    assert y.grad == pytest.approx(slope_y / (2 * step), rel=1e-7)


def test_lecture_example_has_gradient_four_and_a_half() -> None:
    x = Tensor(np.ones((2, 2)))
    y = x + 2
    (y * y * 3).mean().backward()
    assert x.grad.tolist() == [[4.5, 4.5], [4.5, 4.5]]


def test_tensor_and_array_share_memory_in_both_directions() -> None:
    array = np.ones(5)
    tensor = Tensor(array)
    np.add(array, 1, out=array)
    assert tensor.data.tolist() == [2.0] * 5
    tensor.data += 1
    assert array.tolist() == [3.0] * 5
    assert tensor.numpy() is array


def test_value_used_twice_gets_both_gradients() -> None:
    x = Value(3.0)
    (x + x * x).backward()
    assert x.grad == 1 + 2 * 3


def test_second_backward_adds_to_leaves_only() -> None:
    x = Value(2.0)
    y = x * x
    z = y * y
    z.backward()
    z.backward()
    assert y.grad == 2 * 4  # of the last call
    assert x.grad == 2 * (4 * 2**3)  # of both
    x.zero_grad()
    z.backward()
    assert x.grad == 4 * 2**3


def test_graph_deeper_than_the_recursion_limit_has_gradients() -> None:
    x = Value(1.0)
    out = x
    for _ in range(20_000):
        out = out + 0.001
    out.backward()
    assert x.grad == 1.0


def test_array_times_tensor_is_a_tensor() -> None:
    x = Tensor([1.0, 2.0])
    out = np.array([3.0, 4.0]) * x
    assert isinstance(out, Tensor)
    out.sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]


def test_matrix_products_with_arrays_are_tensors_with_gradients() -> None:
    array = np.arange(6.0).reshape(2, 3)
    for product, expected in (
        (lambda x: x @ array, np.ones((4, 3)) @ array.T),
        (lambda x: array.T @ x.transpose(), np.ones((4, 3)) @ array.T),
    ):
        x = Tensor(np.ones((4, 2)))
        product(x).sum().backward()
        np.testing.assert_allclose(x.grad, expected)


def test_sigmoid_of_very_negative_numbers_is_zero_without_overflow() -> None:
    assert Value(-1000.0).sigmoid().data == 0.0
    assert Tensor([-1000.0, 1000.0]).sigmoid().data.tolist() == [0.0, 1.0]
    assert math.isfinite(Value(1000.0).sigmoid().data)


def test_backward_from_several_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        Tensor([1.0, 2.0, 3.0]).backward()


def test_product_of_a_vector_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(3,\)"):
        Tensor([1.0, 2.0, 3.0]) @ Tensor(np.ones((3, 2)))
