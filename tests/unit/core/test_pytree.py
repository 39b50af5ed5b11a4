"""States: any nest comes apart into named tensors and together again, and rows are taken from every leaf."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nextword.core import pytree as nest

tensors = st.integers(0, 3).flatmap(
    lambda rank: st.integers(0, 10**6).map(lambda seed: torch.arange(2**rank).reshape([2] * rank) + seed)
)
leaves = tensors | st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
nests = st.recursive(
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


@given(nests)
def test_any_nest_comes_apart_and_together(state: Any) -> None:
    found, shape = nest.flatten(state, "state")
    assert len(found) == count(state)  # no two leaves share a name
    assert all(name.startswith("state") for name in found)
    assert alike(nest.unflatten(found, json.loads(json.dumps(shape))), state)


@given(nests)
def test_a_clone_is_equal_and_other(state: Any) -> None:
    copy = nest.clone(state)
    assert alike(copy, state)
    nest.apply(lambda t: t.add_(1), copy)
    assert alike(nest.apply(lambda t: t - 1, copy), state)


def test_rows_are_taken_from_every_leaf_but_those_of_rank_zero() -> None:
    clock = torch.tensor(7)
    state = {"h": (torch.tensor([[1, 2], [3, 4]]), torch.tensor([5, 6])), "step": clock, "name": "x", "no": None}
    taken = nest.take(state, torch.tensor([1, 1, 0]))
    assert taken["h"][0].tolist() == [[3, 4], [3, 4], [1, 2]]
    assert taken["h"][1].tolist() == [6, 6, 5]
    assert (taken["step"], taken["name"], taken["no"]) == (clock, "x", None)


def test_detach_and_move_reach_every_leaf() -> None:
    weight = torch.ones(2, requires_grad=True)
    state = [(weight * 2,), {"c": weight * 3}]
    freed = nest.detach(state)
    assert not freed[0][0].requires_grad
    assert not freed[1]["c"].requires_grad
    assert nest.move(state, "meta")[1]["c"].device.type == "meta"


def test_dots_in_names_do_not_run_together() -> None:
    a, b = torch.zeros(1), torch.ones(1)
    found, shape = nest.flatten({"x": {"y": a}, "x.y": b}, "s")
    assert len(found) == 2
    back = nest.unflatten(found, shape)
    assert back["x"]["y"].item() == 0
    assert back["x.y"].item() == 1


@pytest.mark.parametrize("state", [None, (), [], {}])
def test_nothing_stays_nothing(state: Any) -> None:
    found, shape = nest.flatten(state)
    assert not found
    assert nest.unflatten(found, shape) == state


@given(nests, st.integers(0, 1), st.integers(1, 3))
def test_rows_joined_are_the_rows_taken(state: Any, row: int, count: int) -> None:
    """What `take` takes apart, `cat` puts together."""
    parts = [nest.take(state, torch.tensor([at])) for at in [row] * count]
    assert alike(nest.cat(parts), nest.take(state, torch.tensor([row] * count)))
    assert alike(nest.cat([nest.take(state, torch.tensor([at])) for at in (0, 1)]), state)


@pytest.mark.parametrize(
    "states",
    [
        ({"h": torch.ones(1, 2), "most": 3}, {"h": torch.ones(1, 2), "most": 4}),
        ({"clock": torch.tensor(3)}, {"clock": torch.tensor(4)}),
        ({"even": True}, {"even": False}),
        ((torch.ones(1),), ()),
        ({"a": torch.ones(1)}, {"b": torch.ones(1)}),
        (torch.ones(1), None),
    ],
)
def test_states_that_a_nest_cannot_join_are_refused(states: Any) -> None:
    with pytest.raises(ValueError, match="States"):
        nest.cat(states)


def test_a_state_is_written_over_in_place() -> None:
    to = {"a": (torch.zeros(2), torch.zeros(3)), "n": 1}
    kept = to["a"][0]  # type: ignore[index]
    nest.copy(to, {"a": (torch.ones(2), torch.full((3,), 2.0)), "n": 1})
    assert kept.tolist() == [1, 1]
    assert to["a"][1].tolist() == [2, 2, 2]  # type: ignore[index]
