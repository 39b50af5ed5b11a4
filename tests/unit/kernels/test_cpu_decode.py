"""The compiled CPU step equals the step of the network for any state and any number of rows and threads."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from nextword.core import pytree
from nextword.core.types import Inputs, Vocabulary
from nextword.kernels import cpu_decode as whole_steps
from nextword.kernels.cpu_matmul import walk
from nextword.models import model_class
from nextword.models.decoder import DecoderLM

WORDS = 101  # not a multiple of four


def make_network(slug: str = "gpt2", **settings: Any) -> DecoderLM:
    torch.manual_seed(5)
    cls = model_class(slug)
    net = cls(
        cls.Config(**{"width": 64, "layers": 3, "heads": 4, "window": 24, **settings}), Vocabulary(WORDS, 0)
    ).eval()
    for p in net.parameters():  # large weights, so that every part of the network affects the output
        if p.requires_grad:
            p.data.add_(torch.randn_like(p) * 0.1).mul_(1.5)
    return net


def step_plain(net: DecoderLM, last: Tensor, state: Any) -> tuple[Tensor, Any]:
    net.fast.cpu.least = 10**12
    return net.step(last, state)


def step_compiled(net: DecoderLM, last: Tensor, state: Any) -> tuple[Tensor, Any]:
    net.fast.cpu.least = 0
    assert net.fast.cpu.applies(last, state)
    return net.fast.cpu(last, state)


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


KINDS = [
    ("gpt2", {}),
    ("gpt2", {"bias": False}),
    ("gpt2", {"layers": 1, "heads": 1, "width": 16}),
    ("gpt1", {}),
    ("gpt3", {"local_window": 5}),
    ("gpt2", {"bits": 8}),
    ("gpt1", {"bits": 8}),
]


@torch.no_grad()
@pytest.mark.parametrize(("slug", "settings"), KINDS)
def test_row_has_the_same_bits_whatever_is_computed_beside_it(slug: str, settings: dict[str, Any]) -> None:
    net, lengths = make_network(slug, **settings), [6, 1, 4, 6, 5, 2, 3]
    ids = torch.randint(WORDS, (7, 6))
    together = net.prompt(ids, torch.tensor(lengths))
    alone = [pytree.take(together, torch.tensor([row])) for row in range(7)]
    for _ in range(8):
        last = torch.randint(WORDS, (7,))
        log_probs, together = step_compiled(net, last, together)
        for row in range(7):
            expected, alone[row] = step_compiled(net, last[row : row + 1], alone[row])
            assert torch.equal(log_probs[row], expected[0])


@torch.no_grad()
@pytest.mark.parametrize(("slug", "settings"), KINDS)
@pytest.mark.parametrize("lengths", [[6], [6, 6, 6], [6, 1, 4], [3] * 8, [6, 1, 2, 3, 4, 5] * 2])
def test_compiled_step_equals_network_step(slug: str, settings: dict[str, Any], lengths: list[int]) -> None:
    net = make_network(slug, **settings)
    ids = torch.randint(WORDS, (len(lengths), 6))
    states = [net.prompt(ids, torch.tensor(lengths)) for _ in range(2)]
    for _ in range(14):
        last = torch.randint(WORDS, (len(lengths),))
        want, states[0] = step_plain(net, last, states[0])
        got, states[1] = step_compiled(net, last, states[1])
        # int8: its input is rounded to 16 bits
        torch.testing.assert_close(got, want, rtol=0, atol=2e-3 if settings.get("bits") else 2e-5)
        assert torch.equal(states[0]["length"], states[1]["length"])
        assert torch.equal(states[0]["ids"][:, : states[0]["most"]], states[1]["ids"][:, : states[1]["most"]])


@torch.no_grad()
@pytest.mark.parametrize("slug", ["gpt1", "gpt2"])
@pytest.mark.parametrize("lengths", [[1], [20], [20, 3, 11], [7] * 12])
def test_int8_prompt_equals_stepwise_reading(slug: str, lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_steps, "MOST", 256)  # this many pay off only on some machines, but must be correct on all
    net = make_network(slug, bits=8)
    ids = torch.randint(WORDS, (len(lengths), max(lengths)))
    net.fast.cpu.least = 10**12
    states = [net.prompt(ids, torch.tensor(lengths))]
    net.fast.cpu.least = 0
    assert net.fast.cpu.applies_to_prompt(ids)
    states.append(net.prompt(ids, torch.tensor(lengths)))
    assert torch.equal(states[0]["length"], states[1]["length"])
    assert states[0]["even"] == states[1]["even"]
    for _ in range(3):
        last = torch.randint(WORDS, (len(lengths),))
        want, states[0] = step_plain(net, last, states[0])
        got, states[1] = step_plain(net, last, states[1])
        torch.testing.assert_close(got, want, rtol=0, atol=2e-3)


@torch.no_grad()
def test_compiled_step_is_independent_of_thread_count(threads: int) -> None:
    net = make_network()
    state = net.prompt(torch.randint(WORDS, (2, 5)), torch.tensor([5, 3]))
    want, _ = step_plain(net, torch.tensor([1, 2]), copy.deepcopy(state))
    for _ in range(20):
        got, _ = step_compiled(net, torch.tensor([1, 2]), copy.deepcopy(state))
        torch.testing.assert_close(got, want, rtol=0, atol=2e-5)


@torch.no_grad()
def test_compiled_and_plain_steps_alternate_beyond_the_window() -> None:
    net = make_network(window=10)
    net.fast.cpu.least = 0
    ids = torch.randint(WORDS, (1, 40))
    state: Any = net.initial(1)
    result = []
    for t in range(40):
        if t % 3 == 0:
            log_p, state = step_plain(net, ids[:, t], state)
        else:
            net.fast.cpu.least = 0
            log_p, state = net.step(ids[:, t], state)  # falls back when the window is full
        result.append(log_p)
    net.fast.cpu.least = 10**12
    layers, _ = net.hidden(Inputs(ids), net.initial(1))
    torch.testing.assert_close(torch.stack(result, 1), net.readout.log_probs(layers[-1]), rtol=0, atol=3e-5)


@torch.no_grad()
def test_compiled_step_after_taking_state_rows_equals_plain_step() -> None:
    net = make_network()
    state = net.prompt(torch.randint(WORDS, (2, 5)), torch.tensor([5, 5]))
    _, state = step_compiled(net, torch.tensor([3, 4]), state)
    chosen = pytree.take(state, torch.tensor([1, 1, 0]))
    want, _ = step_plain(net, torch.tensor([7, 8, 9]), copy.deepcopy(chosen))
    got, _ = step_compiled(net, torch.tensor([7, 8, 9]), chosen)
    torch.testing.assert_close(got, want, rtol=0, atol=2e-5)


@torch.no_grad()
def test_compiled_step_follows_changed_weights() -> None:
    net = make_network()
    state = net.prompt(torch.randint(WORDS, (1, 5)), torch.tensor([5]))
    step_compiled(net, torch.tensor([3]), copy.deepcopy(state))
    net.double().float()  # now every weight has a new address
    for p in net.parameters():
        p.mul_(1.25)
    want, _ = step_plain(net, torch.tensor([3]), copy.deepcopy(state))
    got, _ = step_compiled(net, torch.tensor([3]), copy.deepcopy(state))
    torch.testing.assert_close(got, want, rtol=0, atol=2e-5)
    other = copy.deepcopy(net)
    other.blocks[0].wide.weight.zero_()
    got, _ = step_compiled(other, torch.tensor([3]), copy.deepcopy(state))
    assert not torch.allclose(got, want, atol=1e-3)  # a copy uses its own weights


@torch.no_grad()
def test_network_can_be_quantized_after_compiled_steps() -> None:
    net = make_network()
    state = net.prompt(torch.randint(WORDS, (1, 5)), torch.tensor([5]))
    step_compiled(net, torch.tensor([3]), copy.deepcopy(state))
    net.quantize()
    want, _ = step_plain(net, torch.tensor([3]), copy.deepcopy(state))
    got, _ = step_compiled(net, torch.tensor([3]), copy.deepcopy(state))
    torch.testing.assert_close(got, want, rtol=0, atol=2e-3)


def test_compiled_step_does_not_apply_to_unsuitable_input() -> None:
    net = make_network()
    state = net.prompt(torch.randint(WORDS, (1, 5)), torch.tensor([5]))
    last = torch.tensor([3])
    assert not net.fast.cpu.applies(last, state)  # a network this small fits into the cache
    net.fast.cpu.least = 0
    assert net.fast.cpu.applies(last, state)
    assert not net.fast.cpu.applies(last, net.initial(1))  # nothing read
    assert not net.fast.cpu.applies(torch.zeros(whole_steps.FEW + 1, dtype=torch.long), state)  # many rows
    assert not net.train().fast.cpu.applies(last, state)
    assert not net.eval().double().fast.cpu.applies(last, state)
    odd = make_network(width=20)
    odd.fast.cpu.least = 0
    assert not odd.fast.cpu.applies(last, odd.prompt(torch.randint(WORDS, (1, 5)), torch.tensor([5])))


@torch.no_grad()
def test_interrupted_step_leaves_no_thread_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    net = make_network()
    state = net.prompt(torch.randint(WORDS, (1, 5)), torch.tensor([5]))
    before = torch.get_num_threads()
    torch.set_num_threads(2)

    def interrupted(thread: int, *rest: Any) -> None:
        if thread == 0:
            raise KeyboardInterrupt
        walk(thread, *rest)

    monkeypatch.setattr(whole_steps, "walk", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step_compiled(net, torch.tensor([3]), copy.deepcopy(state))
    monkeypatch.undo()
    want, _ = step_plain(net, torch.tensor([3]), copy.deepcopy(state))
    got, _ = step_compiled(net, torch.tensor([3]), copy.deepcopy(state))
    torch.set_num_threads(before)
    torch.testing.assert_close(got, want, rtol=0, atol=2e-5)
