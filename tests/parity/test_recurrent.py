"""Recurrent layers and networks compared with torch.nn, values and gradients, for every implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting
from nextword.core.types import Batch, Inputs, Vocabulary
from nextword.layers.recurrent import CELLS, RecurrentLayer
from nextword.models import model_class
from nextword.models.rnn import RNN
from nextword.objectives.causal import CausalObjective
from tests.support.errors import raises

SHAPES = [(1, 1), (3, 7)]  # batch, time
INPUTS, WIDTH, SIZE = 5, 4, 11
NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
TORCH: dict[str, Callable[..., nn.RNNBase]] = {
    "tanh": nn.RNN,
    "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def twin(layer: RecurrentLayer, kind: str) -> nn.RNNBase:
    """torch's module with this layer's weights."""
    module = TORCH[kind](layer.weight_ih.shape[1], layer.width).double()
    module.load_state_dict({f"{name}_l0": getattr(layer, name).detach() for name in NAMES})
    return module


def run(forward: Callable[..., Any], kind: str, batch: int, time: int, weights: list[Tensor]) -> list[Tensor]:
    """Outputs, last memory, and the gradients of input, first memory and weights under a fixed random objective."""
    g = torch.Generator().manual_seed(batch * 100 + time)
    x = torch.randn(time, batch, INPUTS, generator=g, dtype=torch.float64, requires_grad=True)
    memory = tuple(
        torch.randn(batch, WIDTH, generator=g, dtype=torch.float64, requires_grad=True)
        for _ in range(CELLS[kind].memories)
    )
    y, after = forward(x, memory)
    assert y.shape == (time, batch, WIDTH)
    assert all(m.shape == (batch, WIDTH) for m in after)
    loss = sum((t * torch.randn(t.shape, generator=g, dtype=torch.float64)).sum() for t in (y, *after))
    grads = torch.autograd.grad(loss, [x, *memory, *weights])  # type: ignore[arg-type]
    return [y, *after, *grads]


def torchs(module: nn.RNNBase) -> Callable[..., Any]:
    def forward(x: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        past = tuple(m.unsqueeze(0) for m in memory)
        y, after = module(x, past if len(past) == 2 else past[0])
        after = after if isinstance(after, tuple) else (after,)
        return y, tuple(m.squeeze(0) for m in after)

    return forward


@pytest.mark.parametrize(("batch", "time"), SHAPES)
@pytest.mark.parametrize("kind", CELLS)
def test_cell_fused_kernel_and_torch_agree(kind: str, batch: int, time: int) -> None:
    torch.manual_seed(0)
    layer = RecurrentLayer(kind, INPUTS, WIDTH).double()
    module = twin(layer, kind)
    ours = [getattr(layer, name) for name in NAMES]
    theirs = [getattr(module, f"{name}_l0") for name in NAMES]
    stepwise = run(layer.stepwise, kind, batch, time, ours)
    fused = run(layer.fused, kind, batch, time, ours)
    torch_ = run(torchs(module), kind, batch, time, theirs)
    assert len(stepwise) == 1 + 2 * CELLS[kind].memories + 1 + 4
    for a, b, c in zip(stepwise, fused, torch_, strict=True):
        same(a, b)
        same(a, c)


def test_fused_kernel_is_skipped_for_leak_or_single_step(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(RecurrentLayer, "fused", lambda self, x, memory: called.append("fused"))
    monkeypatch.setattr(RecurrentLayer, "stepwise", lambda self, x, memory: called.append("stepwise"))
    RecurrentLayer("lstm", 2, 2)(torch.zeros(2, 1, 2), ())
    RecurrentLayer("tanh", 2, 2, leak=0.5)(torch.zeros(2, 1, 2), ())
    RecurrentLayer("lstm", 2, 2)(torch.zeros(1, 1, 2), ())  # a single step: the cell is faster
    assert called == ["fused", "stepwise", "stepwise"]


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_leaky_cell_equals_plain_loop(activation: str) -> None:
    """h = α h' + (1 − α) f(W x + b + U h' + c), in a plain loop over rows and steps."""
    torch.manual_seed(0)
    alpha = 0.3
    layer = RecurrentLayer(activation, INPUTS, WIDTH, leak=alpha).double()
    f = getattr(torch, activation)
    w, u, b, c = (getattr(layer, name) for name in NAMES)

    def by_hand(x: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        rows = []
        for row in range(x.shape[1]):
            h, states = memory[0][row], []
            for t in range(len(x)):
                h = alpha * h + (1 - alpha) * f(w @ x[t, row] + b + u @ h + c)
                states.append(h)
            rows.append(torch.stack(states))
        y = torch.stack(rows, 1)
        return y, (y[-1],)

    for batch, time in SHAPES:
        for ours, hand in zip(
            run(layer, activation, batch, time, [w, u, b, c]),
            run(by_hand, activation, batch, time, [w, u, b, c]),
            strict=True,
        ):
            same(ours, hand)


def test_leak_changes_network_output() -> None:
    ids = torch.tensor([[1, 2, 3]])
    outputs = []
    for leak in (0.0, 0.5):
        torch.manual_seed(0)
        network = RNN(RNN.Config(width=4, leak=leak), Vocabulary(SIZE, 0))
        outputs.append(network.hidden(Inputs(ids), None)[0][-1])
    torch.testing.assert_close(outputs[1][:, 0], outputs[0][:, 0] / 2)  # from a zero state, half of f
    assert not torch.allclose(outputs[1][:, 1], outputs[0][:, 1] / 2)


@pytest.mark.parametrize("leak", [-0.1, 1.0])
def test_config_with_leak_outside_unit_interval_raises(leak: float) -> None:
    with raises(InvalidSetting, key="model.leak"):
        RNN(RNN.Config(leak=leak), Vocabulary(SIZE, 0))
    with raises(InvalidSetting, key="model.activation"):
        RNN(RNN.Config(activation="sigmoid"), Vocabulary(SIZE, 0))


# ------------------------------------------------------------------------------------------------ whole networks


class Assembled(nn.Module):
    """The same network put together from torch's own parts."""

    def __init__(self, cls: Callable[..., nn.RNNBase], embedding: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SIZE, embedding)
        self.core = cls(embedding, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, SIZE)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.core(self.embedding(ids))[0])


@pytest.mark.parametrize("slug", ["rnn", "gru", "lstm"])
def test_two_layer_network_equals_torch(slug: str) -> None:
    torch.manual_seed(0)
    cls = model_class(slug)
    network = cls(cls.Config(width=4, layers=2, embedding=6), Vocabulary(SIZE, 0)).double()
    twin = Assembled({"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[slug], 6, 4).double()
    pairs = {"embedding.weight": "embedding.weight", "readout.weight": "out.weight", "readout.bias": "out.bias"}
    pairs |= {f"layers.{i}.{name}": f"core.{name}_l{i}" for i in (0, 1) for name in NAMES}
    weights = network.state_dict()
    assert weights.keys() == pairs.keys()
    twin.load_state_dict({theirs: weights[ours] for ours, theirs in pairs.items()})

    ids = torch.randint(SIZE, (3, 8))
    loss = CausalObjective({"kind": "rows"}).loss(network, Batch(Inputs(ids[:, :-1]), ids[:, 1:]), None)
    expected = F.cross_entropy(twin(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    same(loss.value, expected)
    same(loss.nats, expected.detach() * 21)
    assert loss.count == 21
    loss.value.backward()
    expected.backward()
    theirs = dict(twin.named_parameters())
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None
        same(parameter.grad, theirs[pairs[name]].grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("slug", ["rnn", "gru", "lstm"])
def test_carried_state_equals_one_long_sequence(slug: str) -> None:
    """Two halves with the state carried give the outputs and the last state of the whole."""
    torch.manual_seed(0)
    cls = model_class(slug)
    network = cls(cls.Config(width=4, layers=2), Vocabulary(SIZE, 0)).double()
    ids = torch.randint(SIZE, (3, 8))
    whole, end = network.hidden(Inputs(ids), None)
    first, state = network.hidden(Inputs(ids[:, :5]), None)
    second, last = network.hidden(Inputs(ids[:, 5:]), state)
    for w, a, b in zip(whole, first, second, strict=True):
        same(w, torch.cat([a, b], 1))
    for w, b in zip(end, last, strict=True):
        for x, y in zip(w, b, strict=True):
            same(x, y)


# ------------------------------------------------------------------------------------------------ dropout, tying


@pytest.mark.parametrize("slug", ["rnn", "gru", "lstm"])
def test_dropout_applies_between_layers_not_through_time(slug: str) -> None:
    """Zaremba 2014, eq. (7): the top output is h with some units zero and the rest scaled; the state keeps h whole."""
    torch.manual_seed(1)
    cls = model_class(slug)
    p = 0.4
    network = cls(cls.Config(width=64, layers=2, dropout=p), Vocabulary(SIZE, 0)).double().train()
    ids = torch.randint(SIZE, (3, 1))
    layers, state = network.hidden(Inputs(ids), None)
    for output, (h, *_) in zip(layers[1:], state, strict=True):  # one step: each output is its layer's state, dropped
        kept = output[:, 0] != 0
        assert 0.3 < kept.double().mean() < 0.9
        assert (h != 0).all()
        same(output[:, 0][kept], h[kept] / (1 - p))
    embedded = network.embedding(ids)[:, 0]
    kept = layers[0][:, 0] != 0
    assert 0.3 < kept.double().mean() < 0.9
    same(layers[0][:, 0][kept], embedded[kept] / (1 - p))


def test_recurrent_path_is_unchanged_by_dropout() -> None:
    """Given the dropped input of a layer, running that layer alone without dropout gives its raw states: nothing was
    dropped between one step and the next."""
    torch.manual_seed(1)
    cls = model_class("lstm")
    network = cls(cls.Config(width=16, layers=2, dropout=0.5), Vocabulary(SIZE, 0)).double().train()
    layers, state = network.hidden(Inputs(torch.randint(SIZE, (2, 9))), None)
    for i, layer in enumerate(network.layers):
        y, memory = layer.stepwise(layers[i].transpose(0, 1), layer.start(2))
        kept = layers[i + 1].transpose(0, 1) != 0
        same(layers[i + 1].transpose(0, 1)[kept], 2 * y[kept])
        for ours, alone in zip(state[i], memory, strict=True):
            same(ours, alone)
    # a state that came in is not dropped either: with no input weights, it alone decides
    layer = network.layers[0]
    with torch.no_grad():
        layer.weight_ih.zero_()
    before = tuple(torch.randn(2, 16, dtype=torch.float64) for _ in range(2))
    _, after = network.hidden(Inputs(torch.zeros(2, 1, dtype=torch.long)), (before, network.layers[1].start(2)))
    same(after[0][0], layer.stepwise(torch.zeros(1, 2, 16, dtype=torch.float64), before)[1][0])


def test_dropout_is_off_in_eval_and_redrawn_in_training() -> None:
    cls = model_class("gru")
    torch.manual_seed(1)
    network = cls(cls.Config(width=32, dropout=0.5), Vocabulary(SIZE, 0))
    ids = torch.randint(SIZE, (2, 5))
    outputs = [network.train().hidden(Inputs(ids), None)[0][-1] for _ in range(2)]
    assert not torch.equal(*outputs)
    quiet = [network.eval().hidden(Inputs(ids), None)[0][-1] for _ in range(2)]
    assert torch.equal(*quiet)
    assert (quiet[0] != 0).all()


def test_tied_embedding_is_one_parameter_with_summed_gradients() -> None:
    torch.manual_seed(0)
    cls = model_class("lstm")
    tied = cls(cls.Config(width=6, tied=True), Vocabulary(SIZE, 0)).double()
    free = cls(cls.Config(width=6), Vocabulary(SIZE, 0)).double()
    weights = tied.state_dict()
    assert weights.keys() == free.state_dict().keys() - {"readout.weight"}
    assert sum(p.numel() for p in tied.parameters()) == sum(p.numel() for p in free.parameters()) - SIZE * 6
    free.load_state_dict({**weights, "readout.weight": weights["embedding.weight"]})
    ids = torch.randint(SIZE, (3, 8))
    losses = []
    for network in (tied, free):
        loss = CausalObjective({"kind": "rows"}).loss(network, Batch(Inputs(ids[:, :-1]), ids[:, 1:]), None)
        loss.value.backward()
        losses.append(loss.value)
    same(*losses)
    same(tied.embedding.weight.grad, free.embedding.weight.grad + free.readout.weight.grad)
    assert (free.readout.weight.grad != 0).any()
    assert (free.embedding.weight.grad != 0).any()


def test_tied_embedding_with_unequal_widths_raises() -> None:
    cls = model_class("lstm")
    with raises(InvalidSetting, key="model.embedding"):
        cls(cls.Config(width=6, embedding=4, tied=True), Vocabulary(SIZE, 0))
