"""Operations on states: flatten and unflatten, select and concatenate rows, copy."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nextword.core import pytree

tensors = st.integers(0, 3).flatmap(
    lambda rank: st.integers(0, 10**6).map(lambda seed: torch.arange(2**rank).reshape([2] * rank) + seed)
)
leaves = tensors | st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
states = st.recursive(
    leaves,
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.lists(parts, max_size=3).map(tuple)
        | st.dictionaries(st.text(".~0a", max_size=3), parts, max_size=3)
    ),
    max_leaves=12,
)


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b


def count(part: Any) -> int:
    if isinstance(part, dict):
        part = list(part.values())
    return sum(map(count, part)) if isinstance(part, (list, tuple)) else int(isinstance(part, Tensor))


@given(states)
def test_flatten_any_state_round_trips_through_json(state: Any) -> None:
    tensors, structure = pytree.flatten(state, "state")
    assert len(tensors) == count(state)  # leaf names are unique
    assert all(name.startswith("state") for name in tensors)
    assert alike(pytree.unflatten(tensors, json.loads(json.dumps(structure))), state)


@given(states)
def test_clone_is_equal_and_independent(state: Any) -> None:
    copy = pytree.clone(state)
    assert alike(copy, state)
    pytree.map_tensors(lambda t: t.add_(1), copy)
    assert alike(pytree.map_tensors(lambda t: t - 1, copy), state)


def test_take_selects_rows_of_every_leaf_with_a_batch_dimension() -> None:
    clock = torch.tensor(7)
    state = {"h": (torch.tensor([[1, 2], [3, 4]]), torch.tensor([5, 6])), "step": clock, "name": "x", "no": None}
    taken = pytree.take(state, torch.tensor([1, 1, 0]))
    assert taken["h"][0].tolist() == [[3, 4], [3, 4], [1, 2]]
    assert taken["h"][1].tolist() == [6, 6, 5]
    assert (taken["step"], taken["name"], taken["no"]) == (clock, "x", None)


def test_detach_and_move_apply_to_every_leaf() -> None:
    weight = torch.ones(2, requires_grad=True)
    state = [(weight * 2,), {"c": weight * 3}]
    detached = pytree.detach(state)
    assert not detached[0][0].requires_grad
    assert not detached[1]["c"].requires_grad
    assert pytree.move(state, "meta")[1]["c"].device.type == "meta"


def test_flatten_keys_with_dots_stay_distinct() -> None:
    a, b = torch.zeros(1), torch.ones(1)
    tensors, structure = pytree.flatten({"x": {"y": a}, "x.y": b}, "s")
    assert len(tensors) == 2
    back = pytree.unflatten(tensors, structure)
    assert back["x"]["y"].item() == 0
    assert back["x.y"].item() == 1


@pytest.mark.parametrize("state", [None, (), [], {}])
def test_flatten_empty_state_round_trips(state: Any) -> None:
    tensors, structure = pytree.flatten(state)
    assert not tensors
    assert pytree.unflatten(tensors, structure) == state


@given(states, st.integers(0, 1), st.integers(1, 3))
def test_cat_reverses_take(state: Any, row: int, count: int) -> None:
    parts = [pytree.take(state, torch.tensor([at])) for at in [row] * count]
    assert alike(pytree.cat(parts), pytree.take(state, torch.tensor([row] * count)))
    assert alike(pytree.cat([pytree.take(state, torch.tensor([at])) for at in (0, 1)]), state)


@pytest.mark.parametrize(
    "mismatched",
    [
        ({"h": torch.ones(1, 2), "most": 3}, {"h": torch.ones(1, 2), "most": 4}),
        ({"clock": torch.tensor(3)}, {"clock": torch.tensor(4)}),
        ({"even": True}, {"even": False}),
        ((torch.ones(1),), ()),
        ({"a": torch.ones(1)}, {"b": torch.ones(1)}),
        (torch.ones(1), None),
    ],
)
def test_cat_states_that_do_not_match_raises(mismatched: Any) -> None:
    with pytest.raises(ValueError, match="concatenate"):
        pytree.cat(mismatched)


def test_copy_into_overwrites_in_place() -> None:
    to = {"a": (torch.zeros(2), torch.zeros(3)), "n": 1}
    tensor = to["a"][0]  # type: ignore[index]
    pytree.copy_into(to, {"a": (torch.ones(2), torch.full((3,), 2.0)), "n": 1})
    assert tensor.tolist() == [1, 1]
    assert to["a"][1].tolist() == [2, 2, 2]  # type: ignore[index]
