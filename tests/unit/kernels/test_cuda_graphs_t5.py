"""T5 generation: beams share their source, rows are reordered in place, and captured steps equal plain steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nextword.core import pytree
from nextword.core.types import Beam, Inputs, Vocabulary
from nextword.generation.beam_search import beam_search
from nextword.kernels import cuda_graphs as t5_steps
from nextword.layers import kv_cache
from nextword.models.base import CausalNetwork, Network
from nextword.models.t5 import T5, T5Config
from tests.support.reference_beam import search_slowly

SIZE = 23
DEVICES = ["cpu", "cuda"]


def make_network(gated: bool = False) -> Any:
    torch.manual_seed(3)
    config = T5Config(
        width=16, layers=2, decoder_layers=3, heads=2, head_width=8, ffn_width=32, gated=gated, dropout=0.0
    )
    result = T5(config, Vocabulary(SIZE, 0))
    for p in result.parameters():
        nn.init.normal_(p, std=0.4)
    return result.eval()


def make_source(lengths: list[int]) -> Inputs:
    ids = torch.randint(1, SIZE, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    there = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return Inputs(ids, None if bool(there.all()) else there)


class Taken(Network):
    """Make the same network without its own `reorder`, so that every tensor of the state is copied row by row."""

    window = None

    def __init__(self, net: Any) -> None:
        super().__init__(net.config, net.vocabulary)
        self.step, self.start = net.step, net.start


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("lengths", [[5], [4, 4, 4], [7, 2, 3, 5, 1]])
@torch.no_grad()
def test_beam_search_with_reordering_equals_taking_rows(
    lengths: list[int], gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if searches end at different times and are dropped."""
    net: Any = make_network()
    if gpu:
        monkeypatch.setattr("nextword.generation.beam_search.is_asynchronous", lambda tensor: True)
        monkeypatch.setattr("nextword.generation.beam_search.PATIENCE", 3)
    apart = 0
    for end in range(0, SIZE, 3):
        for how in (Beam(4), Beam(3, 1.0), Beam(4, groups=2), Beam(1)):
            got = beam_search(net, *net.start(len(lengths), make_source(lengths)), how, 25, end)
            want = beam_search(Taken(net), *net.start(len(lengths), make_source(lengths)), how, 25, end)  # type: ignore[arg-type]
            for mine, theirs in zip(got, want, strict=True):
                assert [item.ids for item in mine] == [their.ids for their in theirs]
                assert [item.score for item in mine] == pytest.approx([their.score for their in theirs], abs=1e-4)
            apart += len({len(each[0].ids) for each in got}) > 1
    assert apart or len(lengths) == 1
    want = search_slowly(net, *net.start(len(lengths), make_source(lengths)), Beam(4), 25, 7)
    got = beam_search(net, *net.start(len(lengths), make_source(lengths)), Beam(4), 25, 7)
    assert [[item.ids for item in each] for each in got] == [[item.ids for item in each] for each in want]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lengths", [[4, 4], [6, 3]])
@torch.no_grad()
def test_captured_steps_equal_plain_steps_and_own_their_state(
    lengths: list[int], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two rows per source, reordering, and a growing cache."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("NO GPU HERE: this test proves nothing of graphs")
    monkeypatch.setattr(t5_steps, "LEAST", 4)
    monkeypatch.setattr(t5_steps, "SOURCE", 8)
    net = make_network(gated=True).to(device)
    steps = t5_steps.T5GraphSteps(net)
    given = make_source(lengths)
    given = Inputs(given.ids.to(device), None if given.token_mask is None else given.token_mask.to(device))
    rows = torch.tensor([0, 0, 1, 1], device=device)
    first, state = net.start(2, given)
    _, state = CausalNetwork.step(net, first, state)
    fixed = net.reorder(pytree.clone(state), rows, None)
    plain = pytree.take(state, rows)
    assert (len(fixed["memory"]), len(plain["memory"])) == (2, 4)
    for i in range(11):
        last = torch.randint(0, SIZE, (4,), device=device)
        got, fixed = steps(last, fixed)
        want, plain = CausalNetwork.step(net, last, plain)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        rows = torch.tensor([[1, 0, 3, 3], [0, 0, 2, 3]][i % 2], device=device)
        fixed, plain = net.reorder(fixed, rows, None), pytree.take(plain, rows)
        assert steps.captured[-1].owns(fixed)  # nothing is copied in again
    assert [item.key[3] for item in steps.captured] == [4, 8, 16]


@torch.no_grad()
def test_captured_steps_do_not_overwrite_a_state_in_use() -> None:
    net = make_network()
    steps = t5_steps.T5GraphSteps(net)

    def begun(seed: int) -> tuple[Tensor, Any]:
        torch.manual_seed(seed)
        first, state = net.start(2, Inputs(torch.randint(1, SIZE, (2, 5))))
        return first, CausalNetwork.step(net, first, state)[1]

    last, state = begun(1)
    _, other = begun(2)
    wanted = [CausalNetwork.step(net, last, pytree.clone(state))[0] for state in (state, other)]
    wanted.append(CausalNetwork.step(net, last, CausalNetwork.step(net, last, pytree.clone(state))[1])[0])
    first, state = steps(last, state)
    second, other = steps(last, other)
    again, state = steps(last, state)
    for got, want in zip((first, second, again), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert len(steps.captured) == 2
    del state, other
    steps(last, begun(3)[1])
    assert len(steps.captured) == 2  # now their places are free


@torch.no_grad()
def test_captured_steps_follow_changed_weights_and_reuse_older_states() -> None:
    """Weights trained between two texts take effect, and an older state can be stepped again."""
    net = make_network()
    steps = t5_steps.T5GraphSteps(net)
    first, state = net.start(2, Inputs(torch.randint(1, SIZE, (2, 5))))
    state = CausalNetwork.step(net, first, state)[1]
    for _ in range(2):
        again = pytree.clone(state)
        want, _ = CausalNetwork.step(net, first, pytree.clone(state))
        got, after = steps(first, state)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(steps(first, again)[0], want, rtol=1e-4, atol=1e-4)
        del after
        net.decoder.distances.weight.add_(torch.randn_like(net.decoder.distances.weight))


@torch.no_grad()
def test_stepping_a_state_twice_gives_equal_logits() -> None:
    net = make_network()
    steps = t5_steps.T5GraphSteps(net)
    first, state = net.start(2, Inputs(torch.randint(1, SIZE, (2, 5))))
    state = CausalNetwork.step(net, first, state)[1]
    _, state = steps(first, state)  # now it owns its state
    logits, _ = steps(first, state)
    again, _ = steps(first, state)
    torch.testing.assert_close(logits, again)


@torch.no_grad()
def test_reorder_stacked_leaves_unused_positions_unchanged() -> None:
    kept = torch.randn(3, 2, 2, 2, 6, 4)
    before = kept.clone()
    after = kv_cache.reorder_stacked(kept, 4, torch.tensor([0, 2, 2]))
    assert after is kept
    torch.testing.assert_close(kept[..., :4, :], before[[0, 2, 2]][..., :4, :])
    torch.testing.assert_close(kept[..., 4:, :], before[..., 4:, :])
    more = kv_cache.reorder_stacked(kept, 4, torch.tensor([0, 0, 1, 1]))
    torch.testing.assert_close(more[..., :4, :], kept[[0, 0, 1, 1]][..., :4, :])


def test_gradients_of_steps_and_of_parallel_decoding_are_equal() -> None:
    """Stepwise or at once, the gradients are equal."""
    net = make_network().double()
    ids, given = torch.randint(0, SIZE, (2, 6)), make_source([4, 4])
    grads = []
    for size in (1, 4, 6):
        net.zero_grad()
        state, total = net.begin(given), torch.zeros((), dtype=torch.float64)
        for part in ids.split(size, 1):
            layers, state = net.hidden(Inputs(part), state)
            total = total + layers[-1].pow(2).sum()
        total.backward()
        grads.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
    for other in grads[1:]:
        for a, b in zip(grads[0], other, strict=True):
            torch.testing.assert_close(a, b)
