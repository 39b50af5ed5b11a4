"""Automatic differentiation in one file: how `loss.backward()` finds the gradient of every weight.

    x = Value(2.0)                 every operation makes a node that remembers
    y = x * x + 3                    - its parents: the nodes that it was computed from
    y.backward()                     - its local rule: how a gradient that arrives at it flows on to them
    x.grad                           4.0 = dy/dx

`backward` sorts the graph so that each node comes after everything that was computed from it, and applies the local
rules from the end to the beginning. That is the chain rule: a node's gradient is complete before it is passed on. Where
a node was used several times, the gradients of its uses add up.

`Value` holds one number: the whole story, but too slow for more than a few thousand of them. `Tensor` holds an array,
so that one node stands for a whole matrix product. The rest of nextword does not need this file, and this file does not
need the rest: it is here to be read. PyTorch does the same, with more operations and on faster hardware.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

Number = float | int
Array = np.ndarray


class Node:
    """A result in a graph of computations: its data, its gradient, and where it came from."""

    data: Any
    grad: Any  # d(the node that `backward` was called on) / d(this node); same shape as data

    def __init__(self, parents: Sequence[Node] = (), op: str = "", name: str = "") -> None:
        self.parents, self.op, self.name = tuple(parents), op, name
        self.pass_back: Callable[[], None] | None = None  # the local rule; None for a leaf

    def backward(self) -> None:
        """Compute the gradient of this node with respect to every node that it depends on.

        Gradients of leaves add up over several calls, as in PyTorch; `zero_grad` clears them.
        """
        order = sorted_graph(self)
        for node in order:
            if node.pass_back is not None:  # a result inside of the graph: its gradient belongs to this call alone
                node.zero_grad()
        self.grad = self.grad + self._one()
        for node in reversed(order):
            if node.pass_back is not None:
                node.pass_back()

    def zero_grad(self) -> None:
        raise NotImplementedError

    def _one(self) -> Any:
        """d(this)/d(this)."""
        raise NotImplementedError


def sorted_graph(root: Node) -> list[Node]:
    """All nodes that `root` depends on, each after its parents; `root` comes last.

    A loop with a stack of its own, since a text of a thousand words is a graph deeper than Python's recursion limit.
    """
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, are_parents_done = stack.pop()
        if are_parents_done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((parent, False) for parent in reversed(node.parents))
    return order


# ------------------------------------------------------------------------------------------------ one number


class Value(Node):
    """One number."""

    def __init__(self, data: Number, parents: Sequence[Node] = (), op: str = "", name: str = "") -> None:
        super().__init__(parents, op, name)
        self.data = float(data)
        self.grad = 0.0

    def __repr__(self) -> str:
        return f"Value({self.data:.6g}, grad={self.grad:.6g})"

    def zero_grad(self) -> None:
        self.grad = 0.0

    def _one(self) -> float:
        return 1.0

    def __add__(self, other: Value | Number) -> Value:
        other = as_value(other)
        out = Value(self.data + other.data, (self, other), "+")

        def pass_back() -> None:  # a sum passes its gradient on unchanged, to both
            self.grad += out.grad
            other.grad += out.grad

        out.pass_back = pass_back
        return out

    def __mul__(self, other: Value | Number) -> Value:
        other = as_value(other)
        out = Value(self.data * other.data, (self, other), "×")

        def pass_back() -> None:  # each factor gets the gradient times the other factor
            self.grad += other.data * out.grad
            other.grad += self.data * out.grad

        out.pass_back = pass_back
        return out

    def __pow__(self, power: Number) -> Value:
        return self._apply(self.data**power, power * self.data ** (power - 1), f"^{power:g}")

    def exp(self) -> Value:
        result = math.exp(self.data)
        return self._apply(result, result, "exp")

    def log(self) -> Value:
        return self._apply(math.log(self.data), 1 / self.data, "log")

    def tanh(self) -> Value:
        result = math.tanh(self.data)
        return self._apply(result, 1 - result**2, "tanh")

    def sigmoid(self) -> Value:
        result = float(stable_sigmoid(np.array(self.data)))
        return self._apply(result, result * (1 - result), "σ")

    def relu(self) -> Value:
        return self._apply(max(self.data, 0.0), float(self.data > 0), "relu")

    def _apply(self, result: float, slope: float, op: str) -> Value:
        """A function of this number alone: the gradient is multiplied by the function's slope."""
        out = Value(result, (self,), op)

        def pass_back() -> None:
            self.grad += slope * out.grad

        out.pass_back = pass_back
        return out

    def __neg__(self) -> Value:
        return self * -1

    def __sub__(self, other: Value | Number) -> Value:
        return self + -as_value(other)

    def __truediv__(self, other: Value | Number) -> Value:
        return self * as_value(other) ** -1

    def __radd__(self, other: Number) -> Value:
        return self + other

    def __rsub__(self, other: Number) -> Value:
        return as_value(other) - self

    def __rmul__(self, other: Number) -> Value:
        return self * other

    def __rtruediv__(self, other: Number) -> Value:
        return as_value(other) / self


def as_value(value: Value | Number) -> Value:
    return value if isinstance(value, Value) else Value(value)


# ------------------------------------------------------------------------------------------------ an array


class Tensor(Node):
    """An array of numbers. It shares the memory of a float64 array that it is made of, as torch.from_numpy does."""

    __array_priority__ = 1  # numpy array + Tensor is a Tensor

    def __init__(self, data: Any, parents: Sequence[Node] = (), op: str = "", name: str = "") -> None:
        super().__init__(parents, op, name)
        self.data = np.asarray(data, dtype=np.float64)
        self.grad = np.zeros_like(self.data)

    def __repr__(self) -> str:
        return f"Tensor({np.array2string(self.data, precision=4, threshold=20)}{f', op={self.op}' if self.op else ''})"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    def numpy(self) -> Array:
        """The array itself, not a copy: changing one changes the other."""
        array: Array = self.data
        return array

    def item(self) -> float:
        return float(self.data.item())

    def zero_grad(self) -> None:
        self.grad = np.zeros_like(self.data)

    def _one(self) -> Array:
        if self.data.size != 1:
            raise ValueError(f"backward() starts at one number, such as a loss. This tensor has shape {self.shape}.")
        return np.ones_like(self.data)

    def receive(self, grad: Array) -> None:
        """Add a gradient that arrives. Where this tensor was broadcast, every copy sends one: they add up."""
        self.grad += unbroadcast(grad, self.shape)

    # -------------------------------------------------------------------------------------------- arithmetic

    def __add__(self, other: Any) -> Tensor:
        other = as_tensor(other)
        out = Tensor(self.data + other.data, (self, other), "+")

        def pass_back() -> None:
            self.receive(out.grad)
            other.receive(out.grad)

        out.pass_back = pass_back
        return out

    def __mul__(self, other: Any) -> Tensor:
        other = as_tensor(other)
        out = Tensor(self.data * other.data, (self, other), "×")

        def pass_back() -> None:
            self.receive(out.grad * other.data)
            other.receive(out.grad * self.data)

        out.pass_back = pass_back
        return out

    def __matmul__(self, other: Any) -> Tensor:
        """(…, n, k) @ (…, k, m) → (…, n, m). Each factor's gradient is a product with the other, transposed."""
        other = as_tensor(other)
        if min(self.data.ndim, other.data.ndim) < 2:
            raise ValueError(f"@ needs matrices, got shapes {self.shape} and {other.shape}. Reshape vectors first.")
        out = Tensor(self.data @ other.data, (self, other), "@")

        def pass_back() -> None:
            self.receive(out.grad @ other.data.swapaxes(-1, -2))
            other.receive(self.data.swapaxes(-1, -2) @ out.grad)

        out.pass_back = pass_back
        return out

    def __pow__(self, power: Number) -> Tensor:
        return self._apply(self.data**power, power * self.data ** (power - 1), f"^{power:g}")

    def exp(self) -> Tensor:
        result = np.exp(self.data)
        return self._apply(result, result, "exp")

    def log(self) -> Tensor:
        return self._apply(np.log(self.data), 1 / self.data, "log")

    def tanh(self) -> Tensor:
        result = np.tanh(self.data)
        return self._apply(result, 1 - result**2, "tanh")

    def sigmoid(self) -> Tensor:
        result = stable_sigmoid(self.data)
        return self._apply(result, result * (1 - result), "σ")

    def relu(self) -> Tensor:
        return self._apply(np.maximum(self.data, 0), (self.data > 0).astype(np.float64), "relu")

    def _apply(self, result: Array, slope: Array, op: str) -> Tensor:
        """A function of each number alone."""
        out = Tensor(result, (self,), op)
        out.pass_back = lambda: self.receive(slope * out.grad)
        return out

    # -------------------------------------------------------------------------------------------- over axes

    def sum(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        out = Tensor(self.data.sum(axis, keepdims=keepdims), (self,), "Σ")

        def pass_back() -> None:  # every term of a sum gets the gradient of the sum
            self.receive(np.broadcast_to(with_axis(out.grad, axis, keepdims), self.shape))

        out.pass_back = pass_back
        return out

    def mean(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        count = self.data.size if axis is None else self.shape[axis]
        return self.sum(axis, keepdims) * (1 / count)

    def max(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """The largest number; of several equal ones, each gets an equal share of the gradient."""
        out = Tensor(self.data.max(axis, keepdims=keepdims), (self,), "max")

        def pass_back() -> None:
            is_largest = self.data == with_axis(out.data, axis, keepdims)
            share = is_largest / is_largest.sum(axis, keepdims=True)
            self.receive(share * with_axis(out.grad, axis, keepdims))

        out.pass_back = pass_back
        return out

    # -------------------------------------------------------------------------------------------- moving numbers

    def reshape(self, *shape: int) -> Tensor:
        out = Tensor(self.data.reshape(shape), (self,), "reshape")
        out.pass_back = lambda: self.receive(out.grad.reshape(self.shape))
        return out

    def transpose(self, first: int = -2, second: int = -1) -> Tensor:
        out = Tensor(self.data.swapaxes(first, second), (self,), "T")
        out.pass_back = lambda: self.receive(out.grad.swapaxes(first, second))
        return out

    def __getitem__(self, index: Any) -> Tensor:
        """A part, as NumPy indexes: x[:, 2], or x[ids] for the rows of an embedding table."""
        out = Tensor(self.data[index], (self,), "[ ]")
        out.pass_back = lambda: np.add.at(self.grad, index, out.grad)  # a row that was taken twice gets both gradients
        return out

    # -------------------------------------------------------------------------------------------- language models

    def log_softmax(self) -> Tensor:
        """log of the probabilities along the last axis. The largest logit is subtracted, so that exp stays finite."""
        shifted = self.data - self.data.max(-1, keepdims=True)
        result = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        out = Tensor(result, (self,), "log softmax")
        out.pass_back = lambda: self.receive(out.grad - np.exp(result) * out.grad.sum(-1, keepdims=True))
        return out

    def cross_entropy(self, targets: Array) -> Tensor:
        """The mean of −log p(target) over the rows of logits (rows, words), with targets (rows,)."""
        targets = np.asarray(targets)
        picked = self.log_softmax()[np.arange(len(targets)), targets]
        return -picked.mean()

    def __neg__(self) -> Tensor:
        return self * -1

    def __sub__(self, other: Any) -> Tensor:
        return self + -as_tensor(other)

    def __truediv__(self, other: Any) -> Tensor:
        return self * as_tensor(other) ** -1

    def __radd__(self, other: Any) -> Tensor:
        return self + other

    def __rsub__(self, other: Any) -> Tensor:
        return as_tensor(other) - self

    def __rmul__(self, other: Any) -> Tensor:
        return self * other

    def __rtruediv__(self, other: Any) -> Tensor:
        return as_tensor(other) / self

    def __rmatmul__(self, other: Any) -> Tensor:
        return as_tensor(other) @ self


def concatenate(tensors: Sequence[Tensor], axis: int = -1) -> Tensor:
    """Tensors one after the other along an axis; each gets its part of the gradient."""
    out = Tensor(np.concatenate([tensor.data for tensor in tensors], axis), tensors, "concat")
    borders = np.cumsum([tensor.shape[axis] for tensor in tensors])[:-1]

    def pass_back() -> None:
        for tensor, grad in zip(tensors, np.split(out.grad, borders, axis), strict=True):
            tensor.receive(grad)

    out.pass_back = pass_back
    return out


def as_tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor(value)


def unbroadcast(grad: Array, shape: Iterable[int]) -> Array:
    """Sum a gradient over the axes along which an array of this shape was broadcast."""
    shape = tuple(shape)
    grad = grad.sum(tuple(range(grad.ndim - len(shape))))
    stretched = tuple(axis for axis, size in enumerate(shape) if size == 1 and grad.shape[axis] != 1)
    return grad.sum(stretched, keepdims=True)


def with_axis(array: Array, axis: int | None, is_kept: bool) -> Array:
    """Put back the axis that a sum or a maximum has removed, so that its result broadcasts."""
    return array if axis is None or is_kept else np.expand_dims(array, axis)


def stable_sigmoid(x: Array) -> Array:
    """1 / (1 + exp(−x)), without overflow for large negative x."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)
