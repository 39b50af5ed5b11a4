"""Operations on states: nested tuples, lists and dicts with tensors (batch first, or rank 0) at the leaves.

A state is a network's recurrent state or KV cache. Only the network itself looks inside; everybody else uses these
functions. Leaves that are not tensors (None, numbers) pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nextword.core.types import State

Structure = Mapping[str, Any]  # {kind: content}, in JSON, from which `unflatten` rebuilds a state


def map_tensors(f: Callable[[Tensor], Tensor], state: State) -> State:
    """Return the same structure with `f` applied to every tensor."""
    if isinstance(state, Tensor):
        return f(state)
    if isinstance(state, tuple):
        return tuple(map_tensors(f, part) for part in state)
    if isinstance(state, list):
        return [map_tensors(f, part) for part in state]
    if isinstance(state, dict):
        return {key: map_tensors(f, part) for key, part in state.items()}
    return state


def detach(state: State) -> State:
    return map_tensors(Tensor.detach, state)


def move(state: State, device: torch.device | str) -> State:
    return map_tensors(lambda t: t.to(device), state)


def clone(state: State) -> State:
    """Copy a state. A call may overwrite the state it is given, so clone it first to use it again."""
    return map_tensors(Tensor.clone, state)


def take(state: State, rows: Tensor) -> State:
    """Select rows of the batch, in this order. Rows may repeat (beam search)."""
    return map_tensors(lambda t: t.index_select(0, rows) if t.dim() else t, state)


def cat(states: Sequence[State]) -> State:
    """Concatenate states along the batch dimension.

    Leaves without a batch dimension (rank 0, or not tensors) must be equal in all states. A network for which that does
    not hold has to define how to merge them (`join`).
    """
    first = states[0]
    if any(type(state) is not type(first) for state in states):
        types = sorted({type(state).__name__ for state in states})
        raise ValueError(f"Cannot concatenate states of different types: {', '.join(types)}.")
    if isinstance(first, Tensor) and first.dim():
        return torch.cat(list(states))
    if isinstance(first, (tuple, list)):
        if any(len(state) != len(first) for state in states):
            raise ValueError(f"Cannot concatenate states of different lengths: {[len(state) for state in states]}.")
        return type(first)(cat(parts) for parts in zip(*states, strict=True))
    if isinstance(first, dict):
        if any(state.keys() != first.keys() for state in states):
            raise ValueError(f"Cannot concatenate states with different keys: {[list(state) for state in states]}.")
        return {key: cat([state[key] for state in states]) for key in first}
    if not all(torch.equal(state, first) if isinstance(first, Tensor) else state == first for state in states):
        raise ValueError(f"Cannot concatenate different values without a batch dimension: {list(states)}.")
    return first


def copy_into(destination: State, source: State) -> None:
    """Overwrite the tensors of one state with those of another, in place. CUDA graphs read from fixed addresses."""
    new, _ = flatten(source, "state")
    for name, tensor in flatten(destination, "state")[0].items():
        tensor.copy_(new[name])


def flatten(state: State, prefix: str = "") -> tuple[dict[str, Tensor], Structure]:
    """Return the tensors by name, and a JSON-able structure from which `unflatten` rebuilds the state."""
    if isinstance(state, Tensor):
        return {prefix: state}, {"tensor": prefix}
    if isinstance(state, (tuple, list)):
        parts = [flatten(part, f"{prefix}.{i}") for i, part in enumerate(state)]
        tensors = {name: t for part, _ in parts for name, t in part.items()}
        return tensors, {"tuple" if isinstance(state, tuple) else "list": [structure for _, structure in parts]}
    if isinstance(state, dict):
        # Escape dots in keys, as JSON pointers escape slashes, so that no two leaves have the same name.
        named = {k: flatten(part, f"{prefix}.{k.replace('~', '~0').replace('.', '~1')}") for k, part in state.items()}
        tensors = {name: t for part, _ in named.values() for name, t in part.items()}
        return tensors, {"dict": {key: structure for key, (_, structure) in named.items()}}
    return {}, {"value": state}


def unflatten(tensors: dict[str, Tensor], structure: Structure) -> State:
    """Rebuild a state from what `flatten` returned."""
    ((kind, content),) = structure.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(unflatten(tensors, part) for part in content)
    if kind == "list":
        return [unflatten(tensors, part) for part in content]
    if kind == "dict":
        return {key: unflatten(tensors, part) for key, part in content.items()}
    return content
