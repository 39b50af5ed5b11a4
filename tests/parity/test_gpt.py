"""GPT-1 and GPT-2 compared with transformers with copied weights: values, gradients, caches; GPT-3 attention."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core import pytree
from nextword.core.errors import InvalidSetting
from nextword.core.types import Inputs, Vocabulary
from nextword.kernels import cuda_graphs as recorded
from nextword.layers.attention import banded_attention
from nextword.models.base import CausalNetwork
from nextword.models.gpt1 import GPT1, GPT1Config
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.gpt3 import GPT3, GPT3Config
from tests.support.errors import raises

transformers = pytest.importorskip("transformers")

SIZE = 61
VOCABULARY = Vocabulary(SIZE, 0)
SHAPE = {"width": 24, "layers": 3, "heads": 4, "window": 16, "dropout": 0.0}


def lively(network: nn.Module) -> None:
    """Every parameter random and of some size, norms and biases too, so that none can hide."""
    torch.manual_seed(3)
    for p in network.parameters():
        nn.init.normal_(p, std=0.3)


def pair(slug: str) -> tuple[Any, Any]:
    """A network of ours and one of theirs, the one's weights copied from the other's."""
    kwargs = {"vocab_size": SIZE, "n_positions": 16, "n_embd": 24, "n_layer": 3, "n_head": 4, "attn_pdrop": 0.0}
    kwargs |= {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    if slug == "gpt1":
        theirs = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**kwargs))
        ours: Any = GPT1(GPT1Config(**SHAPE), VOCABULARY)
        names = {"tokens_embed": "embedding", "positions_embed": "positions"}
    else:
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**kwargs))
        ours = GPT2(GPT2Config(**SHAPE), VOCABULARY)
        names = {"wte": "embedding", "wpe": "positions", "ln_f": "norm"}
    lively(theirs)
    for i in range(3):
        inner = {"ln_1": "norm1", "attn.c_attn": "attention.join", "attn.c_proj": "attention.out"}
        inner |= {"ln_2": "norm2", "mlp.c_fc": "wide", "mlp.c_proj": "narrow"}
        names |= {f"h.{i}.{a}": f"blocks.{i}.{b}" for a, b in inner.items()}
    given = theirs.transformer.state_dict()
    state = {}
    for a, b in names.items():
        for end in ("weight", "bias"):
            if f"{a}.{end}" in given:
                t = given[f"{a}.{end}"]
                state[f"{b}.{end}"] = t.t() if t.dim() == 2 and ".c_" in a else t
    ours.load_state_dict(state)
    return ours.eval(), theirs.eval()


def read(ours: Any, ids: Tensor) -> Tensor:
    layers, _ = ours.hidden(Inputs(ids), None)
    return ours.readout.logits(layers[-1])


@pytest.mark.parametrize("slug", ["gpt1", "gpt2"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 16)])
def test_forward_and_gradients_equal_transformers(slug: str, shape: tuple[int, int]) -> None:
    ours, theirs = pair(slug)
    ids = torch.randint(0, SIZE, shape)
    want, got = theirs(ids).logits, read(ours, ids)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    if shape[1] == 1:
        return
    F.cross_entropy(want[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    layers, _ = ours.hidden(Inputs(ids[:, :-1]), None)
    count = ids[:, 1:].numel()
    (ours.readout.total(layers[-1].flatten(0, 1), ids[:, 1:].flatten()) / count).backward()
    embedding = theirs.transformer.wte if slug == "gpt2" else theirs.transformer.tokens_embed
    torch.testing.assert_close(ours.embedding.weight.grad, embedding.weight.grad, rtol=1e-3, atol=1e-5)
    theirs_attention = theirs.transformer.h[1].attn.c_attn.weight.grad.t()
    torch.testing.assert_close(ours.blocks[1].attention.join.weight.grad, theirs_attention, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(
        ours.blocks[0].wide.bias.grad, theirs.transformer.h[0].mlp.c_fc.bias.grad, rtol=1e-3, atol=1e-5
    )


def networks() -> list[Any]:
    made = [GPT1(GPT1Config(**SHAPE), VOCABULARY), GPT2(GPT2Config(**SHAPE), VOCABULARY)]
    made += [GPT3(GPT3Config(**SHAPE, local_window=b), VOCABULARY) for b in (1, 3, 16)]  # type: ignore[arg-type]
    for network in made:
        lively(network)
    return [network.eval() for network in made]


@pytest.mark.parametrize("which", range(5))
@torch.no_grad()
def test_forward_with_cache_equals_forward_without(which: int) -> None:
    """However a text is cut into pieces."""
    network = networks()[which]
    ids = torch.randint(0, SIZE, (3, 16))
    whole = network.hidden(Inputs(ids), None)[0]
    for cuts in ([1] * 16, [16], [5, 1, 1, 9], [1, 15], [3, 3, 3, 7]):
        state, parts, at = network.initial(3), [], 0
        for n in cuts:
            layers, state = network.hidden(Inputs(ids[:, at : at + n]), state)
            parts.append(layers)
            at += n
        for layer, one in enumerate(whole):
            got = torch.cat([part[layer] for part in parts], 1)
            torch.testing.assert_close(got, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("which", range(5))
@torch.no_grad()
def test_rows_of_different_lengths_equal_single_rows(which: int) -> None:
    network = networks()[which]
    lengths = torch.tensor([2, 7, 1, 5])
    ids = torch.randint(0, SIZE, (4, 7))
    state = network.prompt(ids, lengths)
    alone = [network.hidden(Inputs(ids[i : i + 1, :n]), network.initial(1))[1] for i, n in enumerate(lengths.tolist())]
    for n in range(20):
        last = torch.randint(0, SIZE, (4,))
        got, state = network.step(last, state)
        for i in range(4):
            want, alone[i] = network.step(last[i : i + 1], alone[i])
            if n < 9 or i == 1:  # then the window is full: all move on with the longest, sooner than each would alone
                torch.testing.assert_close(got[i], want[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("which", range(5))
@torch.no_grad()
def test_beyond_window_tokens_attend_to_half_a_window(which: int) -> None:
    """Stepping, scoring at once and reading windows that move by half are the same."""
    network = networks()[which]
    ids = torch.randint(0, SIZE, (2, 45))
    scored, _ = network.score(ids, torch.tensor([45, 45]), network.initial(2))
    state, steps = network.initial(2), []
    for t in range(44):
        log_p, state = network.step(ids[:, t], state)
        steps.append(log_p.gather(1, ids[:, t + 1 : t + 2]))
    torch.testing.assert_close(torch.cat(steps, 1), scored, rtol=1e-4, atol=1e-4)
    for first in range(0, 28, 8):  # windows of 16 moved on by 8
        layers, _ = network.hidden(Inputs(ids[:, first : first + 16]), None)
        log_p = network.readout.log_probs(layers[-1]).gather(2, ids[:, first + 1 : first + 17].unsqueeze(2)).squeeze(2)
        new = slice(0 if first == 0 else 8, 16)
        torch.testing.assert_close(log_p[:, new], scored[:, first : first + 16][:, new], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_state_rows_taken_and_repeated_continue_alike() -> None:
    network = networks()[1]
    ids = torch.randint(0, SIZE, (3, 6))
    _, state = network.hidden(Inputs(ids), network.initial(3))
    rows = torch.tensor([2, 0, 0])
    got, _ = network.step(torch.tensor([5, 6, 7]), pytree.take(pytree.clone(state), rows))
    want, _ = network.step(torch.tensor([5, 6, 7]), network.hidden(Inputs(ids[rows]), network.initial(3))[1])
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 4, 5, 8, 11])
@pytest.mark.parametrize("band", [1, 3, 4])
def test_banded_attention_in_blocks_equals_masked_attention(steps: int, band: int) -> None:
    torch.manual_seed(steps)
    q, k, v = (torch.randn(2, 3, steps, 5, dtype=torch.float64, requires_grad=True) for _ in range(3))
    at, to = torch.arange(steps).unsqueeze(1), torch.arange(steps)
    mask = (to <= at) & (to > at - band)
    got, want = banded_attention(q, k, v, band), F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(got, want)
    weights = torch.randn_like(want)
    for a, b in zip(
        torch.autograd.grad((got * weights).sum(), (q, k, v)),
        torch.autograd.grad((want * weights).sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_gpt3_without_bands_equals_gpt2() -> None:
    torch.manual_seed(0)
    two, three = GPT2(GPT2Config(**SHAPE), VOCABULARY), GPT3(GPT3Config(**SHAPE), VOCABULARY)  # type: ignore[arg-type]
    three.load_state_dict(two.state_dict())
    ids = torch.randint(0, SIZE, (2, 9))
    assert torch.equal(read(two, ids), read(three, ids))


def test_batch_longer_than_window_raises() -> None:
    with raises(InvalidSetting, key="phase.batches.length"):
        networks()[1].hidden(Inputs(torch.zeros(1, 17, dtype=torch.long)), None)


def test_config_with_width_not_divisible_by_heads_raises() -> None:
    with raises(InvalidSetting, key="model.width"):
        GPT2Config(width=10, heads=4)


# ------------------------------------------------------------------------------------------------ recorded steps


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("which", range(5))
@torch.no_grad()
def test_fixed_shape_steps_equal_plain_steps(which: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows even and uneven, slots that run out, a state that comes from elsewhere in between, up to the window."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("NO GPU HERE: this test proves nothing of graphs")
    monkeypatch.setattr(recorded, "LEAST_RECORDED", 8)
    network = networks()[which].to(device)
    steps = recorded.GraphSteps(network)
    ids = torch.randint(0, SIZE, (3, 4), device=device)
    for lengths in ([4, 4, 4], [4, 2, 3]):
        fixed = network.prompt(ids, torch.tensor(lengths, device=device))
        plain = pytree.clone(fixed)
        n = 0
        while steps.applies(fixed):
            last = torch.randint(0, SIZE, (3,), device=device)
            got, fixed = steps(last, fixed)
            want, plain = CausalNetwork.step(network, last, plain)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
            if n == 3:  # other rows, as a beam would choose them
                rows = torch.tensor([2, 0, 0], device=device)
                fixed, plain = pytree.take(fixed, rows), pytree.take(plain, rows)
            n += 1
        assert n == 12
        assert len(steps.captured) == 2
        got, _ = network.step(last, fixed)  # the window is full: it moves on from what the slots hold
        want, _ = CausalNetwork.step(network, last, plain)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@torch.no_grad()
def test_rows_come_and_go_between_steps_of_fixed_shapes(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that join and leave stay in the places of one recorded step, which need not be recorded anew."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("NO GPU HERE: this test proves nothing of graphs")
    monkeypatch.setattr(recorded, "LEAST_RECORDED", 8)
    network = networks()[1].to(device)
    steps = recorded.GraphSteps(network)

    def read(count: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(0, SIZE, (1, count), device=device)
        return network.prompt(ids, torch.tensor([count], device=device))

    plain = [read(count) for count in (2, 4, 3)]
    fixed = network.join([pytree.clone(state) for state in plain])
    for n in range(12):
        last = torch.randint(0, SIZE, (len(plain),), device=device)
        got, fixed = steps(last, fixed)
        for row in range(len(plain)):
            want, plain[row] = CausalNetwork.step(network, last[row : row + 1], plain[row])
            torch.testing.assert_close(got[row : row + 1], want, rtol=1e-4, atol=1e-4)
        if n % 3 == 1:  # the last row takes the place of the first
            order = [len(plain) - 1, *range(1, len(plain) - 1)]
            fixed = network.take(fixed, torch.tensor(order, device=device))
            plain = [plain[row] for row in order]
        if n % 3 == 2 or n == 4:
            plain.append(read(n))
            fixed = network.join([fixed, pytree.clone(plain[-1])])
    assert {step.rows for step in steps.captured} == {4}
    assert len(steps.captured) == 2  # of 8 slots and of 16


@torch.no_grad()
def test_graph_steps_keep_two_generations_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one has read is not written over while it goes on; when it is done with, its place is used again."""
    network = networks()[1]
    steps = recorded.GraphSteps(network)
    ids = torch.randint(0, SIZE, (2, 1, 4))
    a, b = (network.prompt(x, torch.tensor([4])) for x in ids)
    plain = [pytree.clone(a), pytree.clone(b)]
    for _ in range(4):
        last = torch.randint(0, SIZE, (2, 1))
        got_a, a = steps(last[0], a)
        got_b, b = steps(last[1], b)
        for i, got in enumerate((got_a, got_b)):
            want, plain[i] = CausalNetwork.step(network, last[i], plain[i])
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert len(steps.captured) == 2
    del a
    steps(last[0], network.prompt(ids[0], torch.tensor([4])))
    assert len(steps.captured) == 2
    assert copy.deepcopy(network).fast.network is not network
