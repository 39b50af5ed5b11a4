"""Direct connections compared with an explicit maximum entropy model, and within recurrent networks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.errors import InvalidSetting, UnknownName
from nextword.core.types import IGNORE, Inputs, Vocabulary
from nextword.evaluation.dynamic import DynamicEvaluator, DynamicSettings, collect_statistics, dynamic_nats
from nextword.evaluation.neural_cache import CacheSettings, cache_nats
from nextword.evaluation.neural_cache import read_blocks as read_text
from nextword.layers.output import maxent_ngram as module
from nextword.layers.output.maxent_ngram import DirectConnections
from nextword.models.rnn import GRU, LSTM, RNN
from nextword.training.trainer import run_gradient_phase
from tests.support.errors import raises
from tests.support.small_job import draw_walk, filter_events, make_small_job, train_small_job

V, WIDTH, SIZE = 7, 3, 1 << 20
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "classes": {"kind": "classes", "classes": 3},
    "one class": {"kind": "classes", "classes": 1},
}
TEXT = np.random.default_rng(0).integers(0, V, 300) ** 2 % V  # some words are frequent, some rare


def make_network(kind: str = "classes", order: int = 3, size: int = SIZE, cls: Any = RNN, **options: Any) -> Any:
    torch.manual_seed(0)
    config = cls.Config(width=WIDTH, readout=KINDS[kind], direct={"size": size, "order": order}, **options)
    net = cls(config, Vocabulary(V, begin=0))
    net.readout.fit_vocabulary(TEXT)
    with torch.no_grad():
        net.readout.table.normal_()
    return net


def draw_ids(rows: int = 2, length: int = 9) -> Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(1))


def read_hidden(net: Any, ids: Tensor) -> Tensor:
    """Return the input of the readout, (N, D + order − 1)."""
    h = net.hidden(Inputs(ids), None)[0][-1]
    return h.reshape(-1, h.shape[-1])


# ------------------------------------------------------------------------------------------------ the model


class Maxent:
    """Weights λ of every context of up to two words with each word and class, without a hash table."""

    def __init__(self, classes: int) -> None:
        g = torch.Generator().manual_seed(3)
        contexts = [(), *itertools.product(range(V)), *itertools.product(range(V), repeat=2)]
        self.words = {c: torch.randn(V, generator=g) for c in contexts}
        self.classes = {c: torch.randn(classes, generator=g) for c in contexts}

    def log_probs(self, h: Tensor, past: tuple[int, ...], readout: Any) -> Tensor:
        contexts = [past[len(past) - n :] for n in range(3)]
        of_words, of_classes = (
            torch.stack([weights[c] for c in contexts]).sum(0) for weights in (self.words, self.classes)
        )
        if not len(of_classes):
            return F.log_softmax(readout.weight @ h + readout.bias + of_words, -1)
        log_class = F.log_softmax(readout.class_weight @ h + readout.class_bias + of_classes, -1)
        z = (readout.word_weight @ h + readout.word_bias)[readout.place] + of_words
        log_p = torch.empty(V)
        for k, log_k in enumerate(log_class):
            members = readout.classes_of == k
            log_p[members] = log_k + F.log_softmax(z[members], -1)
        return log_p

    def put_into(self, readout: DirectConnections) -> None:
        """Write all weights into the table of the readout, without collisions."""
        used: list[int] = []
        with torch.no_grad():
            for context, weights in self.words.items():
                ids = torch.tensor([[0, 0, *context]])
                beside, _ = readout.append_words(torch.zeros(1, ids.shape[1], WIDTH), ids, readout.begin(1))
                key = readout._split(beside[:, -1])[1][len(context)]
                begin = readout.places(key)
                if len(self.classes[context]):
                    places = begin + torch.arange(len(self.classes[context]))
                    readout.table[places] = self.classes[context]
                    used += places.tolist()
                    words = readout.words
                    own = words.classes_of
                    places = readout.places_within(key, own) + words.place - words.first[own]
                else:
                    places = begin + torch.arange(V)
                readout.table[places] = weights
                used += places.tolist()
        assert len(used) == len(set(used))


@pytest.mark.parametrize("kind", KINDS)
def test_direct_connections_equal_explicit_maxent_model(kind: str) -> None:
    net = make_network(kind, order=3)
    maxent = Maxent(KINDS[kind].get("classes", 0))
    maxent.put_into(net.readout)
    with torch.no_grad():
        net.readout.table /= 2
    net.readout.scale = 2.0
    ids = torch.tensor([[0, 5, 1, 1, 6, 2, 3]])
    h = read_hidden(net, ids)
    result = net.readout.log_probs(h)
    nll = net.readout.nll(h[:-1], ids[0, 1:])
    for t in range(1, ids.shape[1]):
        expected = maxent.log_probs(h[t, :WIDTH], tuple(ids[0, t - 1 : t + 1].tolist()), net.readout.words)
        torch.testing.assert_close(result[t], expected)
        if t < len(nll):
            torch.testing.assert_close(nll[t], -expected[ids[0, t + 1]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("order", "size"), [(1, SIZE), (2, SIZE), (5, 14)])  # 14: everything collides
def test_log_probs_sum_to_one_and_match_nll(kind: str, order: int, size: int, monkeypatch: Any) -> None:
    net = make_network(kind, order, size)
    h, targets = read_hidden(net, draw_ids()), draw_ids().flatten()
    full = net.readout.log_probs(h)
    torch.testing.assert_close(full.exp().sum(-1), torch.ones(len(h)))
    monkeypatch.setattr(module, "MAX_READ", 1)  # row by row
    torch.testing.assert_close(net.readout.log_probs(h), full)
    targets[3] = IGNORE
    expected = -full[torch.arange(len(h)), targets.clamp(min=0)]
    expected[3] = 0
    torch.testing.assert_close(net.readout.nll(h, targets), expected)
    torch.testing.assert_close(net.readout.total(h, targets), expected.sum())
    assert net.readout.nll(h[:1], torch.tensor([IGNORE])).tolist() == [0]


def test_direct_connections_read_only_words_within_their_order() -> None:
    """The scores depend on the word n − 1 back only if the order is at least n."""
    for order in (1, 2, 3, 4):
        net = make_network("full", order)
        with torch.no_grad():
            net.readout.words.weight.zero_()  # the hidden layer is silent
        ids = draw_ids(1)
        last = net.readout.log_probs(read_hidden(net, ids)[-1:])
        for back in range(1, 6):
            other = ids.clone()
            other[0, -back] = (other[0, -back] + 1) % V
            same = torch.equal(net.readout.log_probs(read_hidden(net, other)[-1:]), last)
            assert same == (back >= order), (order, back)


@pytest.mark.parametrize("cls", [RNN, GRU, LSTM])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_stepwise_reading_equals_reading_the_sequence(cls: Any, order: int) -> None:
    net = make_network(order=order, cls=cls, layers=2).eval()
    ids = draw_ids(3, 10)
    ids[:, 0] = net.vocabulary.begin
    full = net.readout.log_probs(read_hidden(net, ids)).view(3, 10, V)
    scores, _ = net.score(ids, torch.full((3,), 10), None)
    last, state = net.start(3)
    for t in range(9):
        log_p, state = net.step(last, state)
        torch.testing.assert_close(log_p, full[:, t])
        last = ids[:, t + 1]
        torch.testing.assert_close(scores[:, t], log_p.gather(1, last[:, None]).squeeze(1))
    first, state = net.hidden(Inputs(ids[:, :4]), None)
    rest, _ = net.hidden(Inputs(ids[:, 4:]), state)
    torch.testing.assert_close(torch.cat([first[-1], rest[-1]], 1).flatten(0, 1), read_hidden(net, ids))


# ------------------------------------------------------------------------------------------------ learning


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [SIZE, 40])  # indices and values, converted to a dense gradient
def test_gradients_equal_finite_differences(kind: str, size: int) -> None:
    net = make_network(kind, 3, size).double()
    net.readout.scale = 1.5
    ids, targets = draw_ids(), draw_ids().flatten()
    weights = torch.linspace(0.5, 2, len(targets), dtype=torch.double)

    def cost() -> Tensor:
        return (net.readout.nll(read_hidden(net, ids), targets) * weights).sum()

    cost().backward()
    table = net.readout.table
    assert table.grad.count_nonzero() > 10
    for name, parameter in net.named_parameters():
        grad = parameter.grad
        flat = parameter.detach().view(-1)
        for at in [*grad.flatten().abs().topk(min(8, grad.numel())).indices.tolist(), 0]:
            kept, there = flat[at].item(), []
            for change in (1e-5, -1e-5):
                flat[at] = kept + change
                there.append(cost().item())
            flat[at] = kept
            assert (there[0] - there[1]) / 2e-5 == pytest.approx(grad.flatten()[at].item(), abs=1e-6), (name, at)


OPTIMIZERS: list[dict[str, Any]] = [
    {"kind": "sgd", "rate": 0.5},
    {"kind": "sgd", "rate": 0.5, "weight_decay": 0.01},
    {"kind": "adam", "rate": 0.01},
    {"kind": "nt-asgd", "rate": 0.5, "start": 3},
]


def test_direct_table_keeps_zeros_and_resumes_bit_identically(tmp_path: Path) -> None:
    model = {"width": 6, "readout": {"kind": "classes"}, "direct": {"size": 5_000, "order": 4}}
    phase: dict[str, Any] = {
        "batches": {"kind": "rows", "rows": 4, "length": 5}, "optimizer": {"kind": "sgd", "rate": 0.5},
        "initialization": {"kind": "uniform", "scale": 0.1}, "clip": 1.0, "steps": 20, "log_every": 5,
        "validate_every": 10,
    }  # fmt: skip
    ids, valid = draw_walk(19, 500), draw_walk(19, 200, seed=1)
    uninterrupted, events = train_small_job(tmp_path / "whole", "rnn", model, 20, ids, valid, **phase)
    call_count = 0

    def stop() -> bool:
        nonlocal call_count
        call_count += 1
        return call_count == 7

    list(run_gradient_phase(make_small_job(tmp_path / "cut", "rnn", model, 20, ids, valid, stop=stop, **phase)))
    again, more = train_small_job(tmp_path / "cut", "rnn", model, 20, ids, valid, **phase)
    assert filter_events(more, "valid")[-1].values["valid"] == filter_events(events, "valid")[-1].values["valid"]
    for name, value in uninterrupted.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert (uninterrupted.readout.table == 0).any()  # untouched entries stay zero and are not initialized with noise
    loaded = type(uninterrupted).load(tmp_path / "whole", uninterrupted.config, uninterrupted.vocabulary)
    assert torch.equal(loaded.readout.table, uninterrupted.readout.table)


def test_direct_connections_let_one_unit_learn_trigrams(tmp_path: Path) -> None:
    """The next word follows from two words and from neither alone: a table stores this, one hidden unit cannot."""
    rng = np.random.default_rng(0)
    words = 6
    rule = rng.permuted(np.tile(np.arange(words), (words, 1)), axis=1)
    text = [0, 1]
    for _ in range(1600):
        noise = rng.random() < 0.1  # so that all pairs occur
        text.append(int(rng.integers(words)) if noise else int(rule[text[-2], text[-1]]))
    ids = np.array(text, np.uint8)
    phase: dict[str, Any] = {
        "objective": {"kind": "causal", "reduce": "sequence"}, "batches": {"kind": "rows", "rows": 8, "length": 10},
        "optimizer": {"kind": "sgd", "rate": 0.5}, "clip": 5.0, "steps": 100, "validate_every": 100, "log_every": 50,
    }  # fmt: skip
    nats = {}
    for order in (0, 2, 3):
        model: dict[str, Any] = {"width": 1, "readout": {"kind": "classes"}}
        if order:
            model["direct"] = {"size": 100_000, "order": order, "scale": 2.0}
        _, events = train_small_job(tmp_path / str(order), "rnn", model, words + 1, ids[:1300], ids[1300:], **phase)
        nats[order] = filter_events(events, "valid")[-1].values["valid"]
    assert nats[3] < 1.0, nats  # the noise alone is half a nat
    assert min(nats[0], nats[2]) > 1.4, nats


# ------------------------------------------------------------------------------------------------ beside the rest


def test_network_without_direct_has_no_extra_parameters() -> None:
    torch.manual_seed(0)
    net = RNN(RNN.Config(width=WIDTH), Vocabulary(V, begin=0))
    assert set(net.state_dict()) == {
        "embedding.weight", "layers.0.weight_ih", "layers.0.weight_hh", "layers.0.bias_ih", "layers.0.bias_hh",
        "readout.weight", "readout.bias",
    }  # fmt: skip
    assert isinstance(net.initial(2), tuple)
    assert net.hidden(Inputs(draw_ids()), None)[0][-1].shape[-1] == WIDTH


def test_embeddings_and_cache_ignore_direct_connections() -> None:
    net, plain = make_network("full").eval(), RNN(RNN.Config(width=WIDTH), Vocabulary(V, begin=0)).eval()
    plain.load_state_dict({n.replace("readout.words", "readout"): t for n, t in net.state_dict().items()
                           if n not in ("readout.table", "readout.prepared")})  # fmt: skip
    with torch.no_grad():
        net.readout.table.zero_()
    layers, _ = net.encode(Inputs(draw_ids()))
    assert [layer.shape[-1] for layer in layers] == net.widths
    torch.testing.assert_close(layers[-1], plain.encode(Inputs(draw_ids()))[0][-1], rtol=0, atol=0)
    assert torch.equal(
        read_hidden(net, draw_ids()) @ read_hidden(net, draw_ids()).t(),
        read_hidden(plain, draw_ids()) @ read_hidden(plain, draw_ids()).t(),
    )
    cache = CacheSettings(0.3, 1.0, 50)
    results, expected = (cache_nats(read_text(n, TEXT[:100], block=30), cache)[0] for n in (net, plain))
    np.testing.assert_allclose(results, expected, rtol=1e-6)


def test_dynamic_evaluation_updates_the_direct_table() -> None:
    net = make_network("classes").eval()
    before = net.readout.table.detach().clone()
    statistics = collect_statistics(net, TEXT, length=5)
    for given, gradients in (
        (DynamicSettings(0.1, 0.0, 0.0, kind="sgd"), None),
        (DynamicSettings(1e-3, 0.01, 1e-3), statistics),
    ):
        adapting = DynamicEvaluator(net, given, gradients)
        assert np.isfinite(dynamic_nats(adapting, TEXT[:60])).all()
        moved = (adapting.network.readout.table != before).sum().item()
        assert 20 < moved < len(before)
    assert torch.equal(net.readout.table, before)


def test_autocast_keeps_word_ids_exact() -> None:
    net = make_network("classes", order=3)
    ids = draw_ids()
    with torch.autocast("cpu", torch.bfloat16):
        h = read_hidden(net, ids)
        _, keys = net.readout._split(h)
        assert torch.isfinite(net.readout.total(h, ids.flatten()))
    assert torch.equal(keys, net.readout._split(read_hidden(net, ids))[1])
    large = DirectConnections(net.readout.words, V, order=3)  # ids as large as in real vocabularies
    ids = torch.tensor([[500_000, (1 << 24) - 2]])
    h, _ = large.append_words(torch.zeros(1, 2, WIDTH), ids, large.begin(1))
    assert (h[0, 1, WIDTH:] / module.SMALL - 1).tolist() == ids.flip(1)[0].tolist()


@pytest.mark.parametrize(
    ("readout", "direct", "key"),
    [
        ({"kind": "tree"}, {"order": 3}, "model.direct"),
        ({"kind": "sampled", "samples": 3}, {"order": 3}, "model.direct"),
        ({}, {"order": 0}, "model.direct.order"),
        ({}, {"order": 2.5}, "model.direct.order"),
        ({}, {"scale": 0}, "model.direct.scale"),
        ({}, {"size": 13}, "model.direct.size"),
        ({}, {"size": "2M"}, "model.direct.size"),
    ],
)
def test_invalid_direct_connections_raise(readout: dict[str, Any], direct: dict[str, Any], key: str) -> None:
    with raises(InvalidSetting, key=key):
        RNN(RNN.Config(width=WIDTH, readout=readout, direct=direct), Vocabulary(V, begin=0))


def test_unknown_key_of_direct_raises() -> None:
    with raises(UnknownName, name="orders"):
        RNN(RNN.Config(width=WIDTH, direct={"orders": 3}), Vocabulary(V, begin=0))
