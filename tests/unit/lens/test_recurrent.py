"""Gates and gradients through time: states are those of the model, gradients those of finite differences."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from nextword import lens
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Inputs
from tests.support.untrained_models import make_model

TEXT = "the dog lay by the mat"
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("rnn", {}),
    ("rnn", {"leak": 0.5}),
    ("rnn", {"layers": 2, "direct": {"size": 6400, "order": 2}}),
    ("gru", {"layers": 2}),
    ("lstm", {"layers": 2}),
    ("lstm", {"backward": True}),
    ("awd-lstm", {}),
    ("awd-lstm", {"cell": "gru"}),
    ("awd-lstm", {"cell": "qrnn", "input_weight_dropout": 0.0}),
    ("elmo", {}),
]
IDS = [f"{slug} {settings}" for slug, settings in VARIANTS]


def model_of(slug: str, settings: dict[str, Any]) -> Any:
    return make_model.__wrapped__(slug, **settings)  # not cached: settings may be tables


@pytest.mark.parametrize(("slug", "settings"), VARIANTS, ids=IDS)
@torch.no_grad()
def test_hidden_states_equal_those_of_the_model(slug: str, settings: dict[str, Any]) -> None:
    model = model_of(slug, settings)
    result = lens.trace_gates(model, TEXT)
    ids = torch.tensor([[token.id for token in result.tokens]])
    layers, state = model.network.hidden(Inputs(ids), None)
    traced, last = model.network.trace(Inputs(ids))
    depth = len(result.layers)
    assert depth == len(traced) == len(model.network.layers)
    for i, trace in enumerate(result.layers):
        expected = layers[i + 1][0][..., : trace.hidden.shape[1]]
        if slug == "elmo" and i:
            expected = expected - layers[i][0]  # a layer's input is added to its output
        np.testing.assert_allclose(trace.hidden, expected.numpy(), atol=1e-5)
        assert trace.hidden.shape[0] == ids.shape[1]
    torch.testing.assert_close(last, layers[-1], atol=1e-5, rtol=1e-5)
    if slug in ("lstm", "awd-lstm") and "cell" not in settings:
        for trace, (_, c) in zip(result.layers, state, strict=True):
            assert trace.cell is not None
            np.testing.assert_allclose(trace.cell[-1], c[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("slug", ["lstm", "awd-lstm", "elmo"])
def test_lstm_gates_reproduce_the_cell(slug: str) -> None:
    for trace in lens.trace_gates(make_model(slug), TEXT).layers:
        assert trace.cell is not None
        assert list(trace.gates) == ["input", "forget", "candidate", "output"]
        before = np.zeros_like(trace.cell[0])
        for t, cell in enumerate(trace.cell):
            gates = {name: values[t] for name, values in trace.gates.items()}
            if slug != "elmo":  # which has limits
                np.testing.assert_allclose(
                    cell, gates["forget"] * before + gates["input"] * gates["candidate"], atol=1e-5
                )
                np.testing.assert_allclose(trace.hidden[t], gates["output"] * np.tanh(cell), atol=1e-5)
            assert all(((gates[name] >= 0) & (gates[name] <= 1)).all() for name in ("input", "forget", "output"))
            before = cell


def test_gru_gates_reproduce_the_state() -> None:
    for trace in lens.trace_gates(make_model("gru"), TEXT).layers:
        assert trace.cell is None
        update, candidate = trace.gates["update"], trace.gates["candidate"]
        for t, (before, after) in enumerate(pairwise([np.zeros_like(trace.hidden[0]), *trace.hidden])):
            np.testing.assert_allclose(after, update[t] * before + (1 - update[t]) * candidate[t], atol=1e-5)


def test_elman_network_has_states_without_gates() -> None:
    (trace,) = lens.trace_gates(make_model("rnn"), TEXT).layers
    assert trace.gates == {}


@pytest.mark.parametrize(
    "settings",
    [{}, {"bidirectional": False}, {"cell": "gru"}, {"encoder_layers": 2}, {"reverse_source": True}],
    ids=str,
)
@torch.no_grad()
def test_encoder_states_equal_those_of_seq2seq(settings: dict[str, Any]) -> None:
    model = model_of("seq2seq", settings)
    result = lens.trace_gates(model, TEXT)
    ids = torch.tensor([[token.id for token in result.tokens]])
    read = ids.flip(1) if settings.get("reverse_source") else ids
    layers, _ = model.network.encode(Inputs(read))
    by_layer: dict[int, list[np.ndarray]] = {}
    for trace in result.layers:
        by_layer.setdefault(trace.layer, []).append(trace.hidden)
    assert len(by_layer) == len(layers) - 1
    for number, sides in by_layer.items():
        assert len(sides) == 1 + model.network.config.bidirectional
        np.testing.assert_allclose(np.concatenate(sides, 1), layers[number][0].numpy(), atol=1e-5)


def test_layers_and_units_can_be_chosen() -> None:
    model = model_of("lstm", {"layers": 2})
    everything = lens.trace_gates(model, TEXT).layers
    (some,) = lens.trace_gates(model, TEXT, layers=[-1], units=[3, 1]).layers
    assert some.layer == 2
    assert some.units == (3, 1)
    np.testing.assert_array_equal(some.gates["forget"], everything[1].gates["forget"][:, [2, 0]])
    np.testing.assert_array_equal(some.hidden, everything[1].hidden[:, [2, 0]])
    assert everything[0].units == tuple(range(1, everything[0].hidden.shape[1] + 1))
    for wrong in ({"layers": [0]}, {"layers": [3]}, {"units": [10_000]}):
        with pytest.raises(InvalidSetting):
            lens.trace_gates(model, TEXT, **wrong)


# ------------------------------------------------------------------------------------------------ gradients


PLAIN = [("rnn", {"layers": 2}), ("gru", {"layers": 2}), ("lstm", {"layers": 2}), ("awd-lstm", {})]


@pytest.mark.parametrize(("slug", "settings"), PLAIN)
def test_gradient_equals_finite_differences(slug: str, settings: dict[str, Any]) -> None:
    """Change every unit of one state in turn: the loss changes as the gradient says."""
    model = model_of(slug, settings)
    network = model.network.double()
    result = lens.trace_gradient(model, TEXT)
    ids = torch.tensor([[token.id for token in result.tokens]])
    target = int(network.readout.log_probs(network.hidden(Inputs(ids), None)[0][-1][:, -1])[0].argmax())

    @torch.no_grad()
    def loss(layer: int, step: int, memory: int, change: torch.Tensor) -> float:
        states = [own.start(1) for own in network.layers]
        x = torch.zeros(0)
        for t, id in enumerate(ids[0]):
            x = network.embedding(id[None])
            for i, own in enumerate(network.layers):
                _, (h, *c) = own.stepwise(x[None], states[i])
                if (i, t, memory) == (layer, step, 0):
                    h = h + change
                elif (i, t) == (layer, step):  # a cell also makes the h of its step
                    h, c = h / torch.tanh(c[0]) * torch.tanh(c[0] + change), [c[0] + change]
                states[i], x = (h, *c), h
        return -float(network.readout.log_probs(x)[0, target])

    assert result.nats == pytest.approx(loss(-1, -1, 0, torch.zeros(())), rel=1e-9)
    for layer, reach in enumerate(result.layers):
        for step in (0, 3, len(result.tokens) - 2):
            for memory, norms in enumerate([reach.hidden] if reach.cell is None else [reach.hidden, reach.cell]):
                units = 1e-5 * torch.eye(network.layers[layer].width, dtype=torch.float64)
                slopes = [(loss(layer, step, memory, u) - loss(layer, step, memory, -u)) / 2e-5 for u in units]
                assert norms[step] == pytest.approx(float(np.linalg.norm(slopes)), rel=1e-4)


@pytest.mark.parametrize(("slug", "settings"), VARIANTS, ids=IDS)
def test_gradient_reaches_every_step(slug: str, settings: dict[str, Any]) -> None:
    model = model_of(slug, settings)
    if settings.get("backward"):
        with pytest.raises(Unsupported):
            lens.trace_gradient(model, TEXT)
        return
    result = lens.trace_gradient(model, TEXT)
    best = model.token_log_probs(result.target, TEXT)
    assert result.nats == pytest.approx(-float(next(best)[0].max()), rel=1e-4)
    for layer in result.layers:
        assert len(layer.hidden) == len(result.tokens)
        carried = layer.hidden if layer.cell is None else layer.cell  # a QRNN carries nothing but its cell
        assert (carried[:-1] > 0).all()


def test_gradient_vanishes_in_an_elman_network_with_small_weights() -> None:
    model = model_of("rnn", {})
    with torch.no_grad():
        for layer in model.network.layers:
            layer.weight_hh.mul_(0.1)
    reach = lens.trace_gradient(model, TEXT).layers[0]
    assert reach.factor is not None
    assert reach.factor < 0.5
    assert reach.hidden[0] < 1e-3 * reach.hidden[-1]
    ratios = reach.hidden[1:] / reach.hidden[:-1]
    assert reach.factor == pytest.approx(1 / np.exp(np.log(ratios).mean()), rel=1e-5)


def test_open_forget_gates_carry_the_gradient_further() -> None:
    factors = []
    for bias in (-3.0, 5.0):
        model = model_of("lstm", {"layers": 1})
        (layer,) = model.network.layers
        with torch.no_grad():
            layer.weight_hh.mul_(0.1)
            layer.bias_ih[layer.width : 2 * layer.width] = bias
        factors.append(lens.trace_gradient(model, TEXT).layers[0].factor)
    assert factors[0] is not None
    assert factors[1] is not None
    assert factors[0] < 0.5 < 0.9 < factors[1]


def test_gradient_of_given_target_is_that_token() -> None:
    model = make_model("lstm")
    result = lens.trace_gradient(model, TEXT, " and")
    id = int(model.scored_tokens(" and", TEXT).ids[0])
    first = next(t for t in lens.explain_text(model, " and", TEXT).tokens)
    assert result.nats == pytest.approx(first.nats, rel=1e-4)
    assert first.token.id == id


@pytest.mark.parametrize(("slug", "settings"), [*PLAIN, ("rnn", {"leak": 0.5}), ("elmo", {})])
def test_gradients_of_all_words_are_those_of_each_word(
    slug: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(slug, settings)
    monkeypatch.setattr("nextword.lens.gradient_reach.MAX_GRADIENTS", 3)  # several chunks
    every = lens.trace_gradients(model, TEXT)
    steps = len(every.tokens)
    assert [target.id for target in every.targets[:-1]] == [token.id for token in every.tokens[1:]]
    for step in range(steps):
        before = TEXT[: every.tokens[step].end]
        after = every.tokens[step + 1].text if step + 1 < steps else None
        if after is not None and every.tokens[step + 1].start > every.tokens[step].end:
            after = f" {after}"
        own = lens.trace_gradient(model, before, after)
        assert len(own.tokens) == step + 1
        assert every.targets[step].nats == pytest.approx(own.nats, rel=1e-4)
        for matrix, row in zip(every.layers, own.layers, strict=True):
            assert matrix.layer == row.layer
            for norms, expected in ((matrix.hidden, row.hidden), (matrix.cell, row.cell)):
                assert (norms is None) == (expected is None)
                if norms is not None and expected is not None:
                    np.testing.assert_allclose(norms[step, : step + 1], expected, rtol=1e-3, atol=1e-9)
                    assert (norms[step, step + 1 :] == 0).all()  # later steps do not change an earlier prediction
