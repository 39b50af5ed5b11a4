"""Sequence-to-sequence networks compared with hand computations and layers of torch; stepwise decoding; padding."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core import pytree
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Inputs, Vocabulary
from nextword.layers.attention import AdditiveAttention, MultiplicativeAttention
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig
from nextword.objectives.seq2seq import label_smoothing_term
from tests.support.errors import raises

VOCABULARY = Vocabulary(17, 0, {}, end=1)
FORMS: dict[str, dict[str, Any]] = {
    "plain": {"attention": "none"},
    "sutskever": {"attention": "none", "bidirectional": False, "reverse_source": True, "layers": 2},
    "bahdanau": {"attention": "bahdanau", "cell": "gru"},
    "bahdanau, deep": {"attention": "bahdanau", "layers": 2, "encoder_width": 5, "tied": True},
    "luong": {"attention": "luong", "input_feeding": False, "layers": 2, "encoder_layers": 1},
    "luong, fed": {"attention": "luong", "cell": "gru", "encoder_width": 4, "attention_score": "dot", "tied": True},
    "luong, scaled": {"attention": "luong", "layers": 2, "scaled_score": True},
    "luong, concat": {"attention": "luong", "cell": "gru", "attention_score": "concat"},
    "luong, concat, unfed": {"attention": "luong", "attention_score": "concat", "input_feeding": False},
}


def made(form: str, **more: Any) -> Seq2Seq:
    torch.manual_seed(1)
    network = Seq2Seq(Seq2SeqConfig(**{"width": 8, "embedding": 6, **FORMS[form], **more}), VOCABULARY).double()
    for p in network.parameters():
        nn.init.normal_(p, std=0.5)
    return network.eval()


def some(rows: int, steps: int, seed: int = 0) -> Tensor:
    return torch.randint(2, 17, (rows, steps), generator=torch.Generator().manual_seed(seed))


def close(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def source(lengths: tuple[int, ...] = (5, 2, 4)) -> Inputs:
    ids = some(len(lengths), max(lengths), 3)
    return Inputs(ids, torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1))


# ------------------------------------------------------------------------------------------------ attention


def test_additive_attention_equals_hand_computation() -> None:
    """Two source tokens (1, 0) and (0, 1), W = U = 1, v = (1, 1), asked with (1, −1):
    e = tanh(2) + tanh(−1) and tanh(1) + tanh(0)."""
    look = AdditiveAttention(2, 2, 2).double()
    with torch.no_grad():
        look.query.weight.copy_(torch.eye(2))
        look.query.bias.zero_()
        look.key.weight.copy_(torch.eye(2))
        look.score.fill_(1.0)
    memory = torch.eye(2).double().unsqueeze(0)
    query = torch.tensor([[[1.0, -1.0]]]).double()
    context, weights = look(query, look.keys(memory), memory, torch.ones(1, 2, dtype=torch.bool))
    a, b = math.exp(math.tanh(2) + math.tanh(-1)), math.exp(math.tanh(1))
    close(weights, torch.tensor([[[a / (a + b), b / (a + b)]]], dtype=torch.double))
    close(context, weights)


def test_multiplicative_attention_equals_hand_computation() -> None:
    """e = (2, 1), halved by the learnt number; a third token that is padding has no share."""
    look = MultiplicativeAttention(2, 2, "dot", scaled=True).double()
    nn.init.constant_(look.scale, 0.5)
    memory = torch.tensor([[[2.0, 0.0], [1.0, 3.0], [9.0, 9.0]]]).double()
    there = torch.tensor([[True, True, False]])
    context, weights = look(torch.tensor([[[1.0, 0.0]]]).double(), look.keys(memory), memory, there)
    p = 1 / (1 + math.exp(-0.5))
    close(weights, torch.tensor([[[p, 1 - p, 0.0]]], dtype=torch.double))
    close(context, torch.tensor([[[2 * p + (1 - p), 3 * (1 - p)]]], dtype=torch.double))


def test_bahdanau_step_equals_hand_computation() -> None:
    """With torch's own cell: look with s_{t−1}, step with [E y; c], maxout of [s; c; E y]."""
    network = made("bahdanau")
    inputs = Inputs(some(3, 1), source=source())
    h = network.hidden(inputs, None)[0][-1][:, 0]
    state = network.begin(inputs.source)
    s = state["cells"][0][0]
    context, _ = network.source_attention(s.unsqueeze(1), state["keys"], state["memory"], state["there"])
    cell, layer = nn.GRUCell(6 + 16, 8).double(), network.layers[0]
    cell.load_state_dict({name: getattr(layer, name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")})
    x = network.embedding(inputs.ids[:, 0])
    s = cell(torch.cat([x, context[:, 0]], -1), s)
    both = network.out(torch.cat([s, context[:, 0], x], -1)).view(3, 8, 2)
    close(h, torch.maximum(both[..., 0], both[..., 1]))


@pytest.mark.parametrize("form", ["luong, fed", "luong, concat"])
def test_input_feeding_reads_previous_context(form: str) -> None:
    network = made(form)
    inputs = Inputs(some(3, 2), source=source())
    first, second = network.hidden(inputs, None)[0][-1].unbind(1)
    state = network.begin(inputs.source)
    cell, layer = nn.GRUCell(6 + 8, 8).double(), network.layers[0]
    cell.load_state_dict({name: getattr(layer, name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")})
    s, fed = state["cells"][0][0], torch.zeros(3, 8).double()
    for t, want in enumerate((first, second)):
        s = cell(torch.cat([network.embedding(inputs.ids[:, t]), fed], -1), s)
        context, _ = network.source_attention(s.unsqueeze(1), state["keys"], state["memory"], state["there"])
        fed = torch.tanh(network.out(torch.cat([context[:, 0], s], -1)))
        close(want, fed)


class PlainMixture:
    def __init__(self, memory: Tensor) -> None:
        self.memory = memory

    def __call__(self, weights: Tensor) -> Tensor:
        return weights @ self.memory


# ------------------------------------------------------------------------------------------------ the whole


def test_sutskever_form_equals_two_torch_lstms() -> None:
    """Sutskever's: the source backwards through two layers, whose memories the decoder begins with."""
    network = made("sutskever")
    lengths, inputs = (5, 2, 4), Inputs(some(3, 6), source=source())
    got = network.hidden(inputs, None)[0][-1]
    encoder, decoder = (nn.LSTM(6, 8, 2, batch_first=True).double() for _ in range(2))
    for i in (0, 1):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(encoder, f"{name}_l{i}").data = getattr(network.encoder.layers[i], f"{name}_l0").data
            getattr(decoder, f"{name}_l{i}").data = getattr(network.layers[i], name).data
    assert inputs.source is not None
    for row, length in enumerate(lengths):
        backwards = inputs.source.ids[row : row + 1, :length].flip(1)
        _, end = encoder(network.embedding(backwards))
        close(got[row : row + 1], decoder(network.embedding(inputs.ids[row : row + 1]), end)[0])


@pytest.mark.parametrize("form", FORMS)
def test_stepwise_decoding_equals_parallel_decoding(form: str) -> None:
    network = made(form)
    ids, read = some(3, 7), source()
    (whole, h), end = network.hidden(Inputs(ids, source=read), None)
    state = network.begin(read)
    for t in range(7):
        layers, state = network.hidden(Inputs(ids[:, t : t + 1]), state)
        close(layers[-1][:, 0], h[:, t])
    for a, b in zip(*(pytree.flatten(s)[0].values() for s in (state, end)), strict=True):
        assert torch.equal(a, b) if a.dtype == torch.bool else torch.allclose(a, b, rtol=1e-9, atol=1e-9)
    log_p, _ = network.score(ids, torch.tensor([7, 7, 7]), network.begin(read))
    want = network.readout.log_probs(h[:, :-1]).gather(2, ids[:, 1:, None]).squeeze(2)
    close(log_p, want)
    assert whole.shape == (3, 7, 6)


@pytest.mark.parametrize("form", FORMS)
def test_source_padding_changes_no_output_or_gradient(form: str) -> None:
    """Values, and the gradient of every weight."""
    network, lengths = made(form), (5, 2, 4)
    ids, read = some(3, 4), source(lengths)
    assert read.token_mask is not None

    def learnt(parts: list[Tensor]) -> list[Tensor]:
        network.zero_grad()
        torch.cat(parts).pow(2).sum().backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters()]

    together = network.hidden(Inputs(ids, source=read), None)[0][-1]
    alone = [
        network.hidden(Inputs(ids[i : i + 1], source=Inputs(read.ids[i : i + 1, :n])), None)[0][-1]
        for i, n in enumerate(lengths)
    ]
    close(together, torch.cat(alone))
    for a, b in zip(learnt([together]), learnt(alone), strict=True):
        close(a, b)
    more = Inputs(F.pad(read.ids, (0, 3), value=9), F.pad(read.token_mask, (0, 3)))
    close(network.hidden(Inputs(ids, source=more), None)[0][-1], together)


@pytest.mark.parametrize("form", [f for f in FORMS if FORMS[f]["attention"] != "none"])
def test_attention_weights_sum_to_one_over_source(form: str) -> None:
    """Weights add up to one over the source that is there, and what was covered is their sum."""
    network, inputs = made(form), Inputs(some(3, 6), source=source())
    weights = network.attention(inputs)
    assert weights.shape == (3, 6, 5)
    close(weights.sum(-1), torch.ones(3, 6).double())
    assert inputs.source is not None
    assert inputs.source.token_mask is not None
    assert not weights[~inputs.source.token_mask.unsqueeze(1).expand_as(weights)].any()
    covered = network.covered(network.hidden(inputs, None)[1])
    close(covered, weights.sum(1) + ~inputs.source.token_mask)


@pytest.mark.parametrize("form", FORMS)
def test_save_and_load_round_trips(form: str, tmp_path: Any) -> None:
    network, inputs = made(form).float(), Inputs(some(3, 6), source=source())
    network.save(tmp_path)
    again = Seq2Seq.load(tmp_path, network.config, VOCABULARY)
    assert torch.equal(network.hidden(inputs, None)[0][-1], again.hidden(inputs, None)[0][-1])


@pytest.mark.parametrize("tied", [False, True])
def test_label_smoothing_equals_torch(tied: bool) -> None:
    network = made("bahdanau", tied=tied)
    h, targets = torch.randn(5, 8).double().requires_grad_(), torch.tensor([3, -100, 0, 16, 3])
    got = network.readout.total(h, targets) + 0.1 * label_smoothing_term(network.readout, h, targets)
    want = F.cross_entropy(network.readout.logits(h), targets, label_smoothing=0.1, reduction="sum")
    close(got, want)
    for a, b in zip(
        *(torch.autograd.grad(x, [h, network.embedding.weight], allow_unused=True) for x in (got, want)), strict=True
    ):
        assert (a is None) == (b is None)
        if a is not None:
            close(a, b)


def test_label_smoothing_works_with_bf16_and_a_projection() -> None:
    network = made("bahdanau", tied=True).float()
    h, targets = torch.randn(5, 8), torch.tensor([1, 2, 3, -100, 4])
    exact = label_smoothing_term(network.readout, h, targets)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = label_smoothing_term(network.readout, h, targets)
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(exact.item(), abs=0.02)


def test_unsupported_use_and_invalid_buckets_raise() -> None:
    network = made("plain")
    with raises(Unsupported, ability="score"):
        network.start(1)
    with raises(Unsupported, ability="attention"):
        network.attention(Inputs(some(3, 2), source=source()))
    with raises(InvalidSetting, key="model.attention_score"):
        Seq2Seq(Seq2SeqConfig(width=8, attention="luong", attention_score="cosine"), VOCABULARY)
    with raises(InvalidSetting, key="model.scaled_score"):
        Seq2Seq(Seq2SeqConfig(width=8, attention="luong", attention_score="concat", scaled_score=True), VOCABULARY)
    with raises(InvalidSetting, key="model.attention_score"):
        Seq2Seq(Seq2SeqConfig(width=8, attention="luong", attention_score="dot"), VOCABULARY)
    with raises(InvalidSetting, key="model.attention"):
        Seq2SeqConfig(attention="global")
