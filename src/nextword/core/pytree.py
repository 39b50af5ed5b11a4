"""The only code that opens a State: tuples, lists and dicts with tensors (batch first, or rank 0) at the leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def apply(f: Callable[[Tensor], Tensor], nest: Any) -> Any:
    """The same nest with `f` applied to every tensor."""
    if isinstance(nest, Tensor):
        return f(nest)
    if isinstance(nest, tuple):
        return tuple(apply(f, part) for part in nest)
    if isinstance(nest, list):
        return [apply(f, part) for part in nest]
    if isinstance(nest, dict):
        return {key: apply(f, part) for key, part in nest.items()}
    return nest


def take(nest: Any, rows: Tensor) -> Any:
    """The state of these rows of the batch, in this order; rows may repeat (beam search)."""
    return apply(lambda t: t.index_select(0, rows) if t.dim() else t, nest)


def cat(nests: Sequence[Any]) -> Any:
    """One state of the rows of several, in this order.

    Leaves that have no rows (of rank 0, or no tensors) must be alike in all: what two of them would be together, a nest
    cannot know, and a network with such leaves has to say so itself (its `join`).
    """
    first = nests[0]
    if any(type(one) is not type(first) for one in nests):
        raise ValueError(f"States of different make: {' and '.join(sorted({type(one).__name__ for one in nests}))}.")
    if isinstance(first, Tensor) and first.dim():
        return torch.cat(list(nests))
    if isinstance(first, (tuple, list)):
        if any(len(one) != len(first) for one in nests):
            raise ValueError(f"States of different make: {' and '.join(str(len(one)) for one in nests)} parts.")
        return type(first)(cat(parts) for parts in zip(*nests, strict=True))
    if isinstance(first, dict):
        if any(one.keys() != first.keys() for one in nests):
            raise ValueError(f"States of different make: {' and '.join(', '.join(one) for one in nests)}.")
        return {key: cat([one[key] for one in nests]) for key in first}
    same = all(torch.equal(one, first) if isinstance(first, Tensor) else one == first for one in nests)
    if not same:
        raise ValueError(f"States that hold {' and '.join(map(str, nests))}, which has no rows, cannot be joined.")
    return first


def detach(nest: Any) -> Any:
    return apply(Tensor.detach, nest)


def move(nest: Any, device: torch.device | str) -> Any:
    return apply(lambda t: t.to(device), nest)


def clone(nest: Any) -> Any:
    """A call consumes the state that it is given; a clone is how to keep one."""
    return apply(Tensor.clone, nest)


def copy(to: Any, values: Any) -> None:
    """Write one state over another of the same shapes, in place: recorded steps read from where it stays."""
    new, _ = flatten(values, "state")
    for name, tensor in flatten(to, "state")[0].items():
        tensor.copy_(new[name])


def flatten(nest: Any, prefix: str = "") -> tuple[dict[str, Tensor], Any]:
    """Named tensors, and a JSON-able shape from which `unflatten` builds the nest again."""
    if isinstance(nest, Tensor):
        return {prefix: nest}, {"tensor": prefix}
    if isinstance(nest, (tuple, list)):
        parts = [flatten(part, f"{prefix}.{i}") for i, part in enumerate(nest)]
        tensors = {name: t for found, _ in parts for name, t in found.items()}
        return tensors, {"tuple" if isinstance(nest, tuple) else "list": [shape for _, shape in parts]}
    if isinstance(nest, dict):
        # dots in a key are escaped as JSON pointers escape slashes, so that no two leaves have one name
        named = {k: flatten(part, f"{prefix}.{k.replace('~', '~0').replace('.', '~1')}") for k, part in nest.items()}
        tensors = {name: t for found, _ in named.values() for name, t in found.items()}
        return tensors, {"dict": {key: shape for key, (_, shape) in named.items()}}
    return {}, {"value": nest}


def unflatten(tensors: dict[str, Tensor], shape: Any) -> Any:
    ((kind, content),) = shape.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(unflatten(tensors, part) for part in content)
    if kind == "list":
        return [unflatten(tensors, part) for part in content]
    if kind == "dict":
        return {key: unflatten(tensors, part) for key, part in content.items()}
    return content
