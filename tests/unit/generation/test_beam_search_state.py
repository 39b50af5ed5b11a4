"""What a beam does to the state of networks that read in windows: rows change places in it, and little is copied."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from nextword.core import pytree
from nextword.core.types import Beam, Vocabulary
from nextword.generation.beam_search import beam_search
from nextword.kernels import cuda_graphs as recorded
from nextword.layers import kv_cache
from nextword.models.base import CausalNetwork
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.gpt3 import GPT3, GPT3Config
from tests.support.reference_beam import search_slowly
from tests.support.toy_models import ToyModel

SIZE = 31
SHAPE: dict[str, Any] = {"width": 24, "layers": 2, "heads": 4, "window": 16, "dropout": 0.0}


def network(slug: str = "gpt2") -> Any:
    torch.manual_seed(5)
    vocabulary = Vocabulary(SIZE, 0)
    made: Any = GPT2(GPT2Config(**SHAPE), vocabulary)
    if slug == "gpt3":
        made = GPT3(GPT3Config(**SHAPE, local_window=3), vocabulary)
    for p in made.parameters():
        nn.init.normal_(p, std=0.3)
    return made.eval()


def prompt(net: Any, lengths: list[int]) -> Any:
    ids = torch.randint(0, SIZE, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    return torch.arange(len(lengths)), net.prompt(ids, torch.tensor(lengths))


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("lengths", [[4], [4, 4, 4], [6, 2, 3]])
@pytest.mark.parametrize("slug", ["gpt2", "gpt3"])
@torch.no_grad()
def test_beam_with_own_reordering_matches_generic_reordering(
    slug: str, lengths: list[int], gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the window and, for rows that are even, past it."""
    net = network(slug)
    if gpu:
        monkeypatch.setattr("nextword.generation.beam_search.is_asynchronous", lambda tensor: True)
    length = 10 if len(set(lengths)) > 1 else 30
    for how in (Beam(4), Beam(3, 1.0), Beam(4, groups=2)):
        got = beam_search(net, *prompt(net, lengths), how, length, 7)
        if how.groups == 1:
            want = search_slowly(net, *prompt(net, lengths), how, length, 7)
        else:
            plain: Any = type("Plain", (ToyModel,), {"step": net.step, "start": net.start, "window": net.window})()
            want = beam_search(plain, *prompt(net, lengths), how, length, 7)
        for mine, theirs in zip(got, want, strict=True):
            assert [one.ids for one in mine] == [one.ids for one in theirs]
            assert [one.score for one in mine] == pytest.approx([one.score for one in theirs], abs=1e-4)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@torch.no_grad()
def test_recorded_steps_continue_in_place(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("NO GPU HERE: this test proves nothing of graphs")
    net = network().to(device)
    monkeypatch.setattr(recorded, "LEAST_RECORDED", 8)
    steps = recorded.GraphSteps(net)
    ids = torch.randint(0, SIZE, (4, 3), device=device)
    fixed = net.prompt(ids, torch.tensor([3, 3, 2, 2], device=device))
    plain = pytree.clone(fixed)
    while steps.applies(fixed):
        last = torch.randint(0, SIZE, (4,), device=device)
        got, fixed = steps(last, fixed)
        want, plain = CausalNetwork.step(net, last, plain)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        rows = torch.tensor([1, 0, 3, 3], device=device)
        fixed, plain = net.reorder(fixed, rows, None), pytree.take(plain, rows)
        assert steps.captured[-1].owns(fixed)  # nothing is copied in again
    got, _ = net.step(last, fixed)  # the window is full: what is read again are the ids of these rows
    want, _ = CausalNetwork.step(net, last, plain)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_unused_buffers_are_left_alone() -> None:
    net = network()
    _, state = prompt(net, [3, 3, 3])
    _, state = net.step(torch.tensor([1, 2, 3]), state)
    before = pytree.clone(state)
    assert state["layers"][0][0].shape[2] > state["most"] == 4
    keys = state["layers"][0][0]
    keys[:, :, 4:] = 9.0
    after = kv_cache.reorder(state, torch.tensor([0, 2, 2]))
    assert after["layers"][0][0] is keys
    for one, other in ((keys, before["layers"][0][0]), (after["ids"].unsqueeze(1), before["ids"].unsqueeze(1))):
        torch.testing.assert_close(one[:, :, :4], other[[0, 2, 2], :, :4])
    assert bool((keys[:, :, 4:] == 9.0).all())
