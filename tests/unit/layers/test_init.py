"""Measured statistics of each initialization."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from nextword.core.types import Vocabulary
from nextword.layers.init import INITIALIZATIONS, unigram_bias
from nextword.models.rnn import LSTM

WIDTH, SIZE, SCALE = 64, 300, 0.07


def make_network(kind: str, seed: int = 0) -> LSTM:
    net = LSTM(LSTM.Config(width=WIDTH, embedding=80), Vocabulary(SIZE, 0))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(9)  # so that untouched parameters are detected
    torch.manual_seed(seed)
    INITIALIZATIONS[kind](net, SCALE)
    return net


def select_matrices(net: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in net.named_parameters() if p.dim() > 1}


def select_vectors(net: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in net.named_parameters() if p.dim() == 1}


def test_normal_initialization_has_expected_deviation() -> None:
    net = make_network("normal")
    for name, w in select_matrices(net).items():
        assert w.std().item() == pytest.approx(SCALE, rel=0.05), name
        assert abs(w.mean().item()) < 4 * SCALE / math.sqrt(w.numel())
        assert w.abs().max() > 3 * SCALE  # it has tails
    assert all((b == 0).all() for b in select_vectors(net).values())


def test_uniform_initialization_stays_within_the_scale() -> None:
    net = make_network("uniform")
    for name, w in {**select_matrices(net), **select_vectors(net)}.items():
        assert w.abs().max() <= SCALE, name
        assert w.std().item() == pytest.approx(SCALE / math.sqrt(3), rel=0.15), name
    assert len(select_vectors(net)) == 3  # two of the layer, one of the readout


def test_xavier_initialization_has_expected_deviation() -> None:
    net = make_network("xavier")
    for name, w in select_matrices(net).items():
        expected = SCALE if name == "embedding.weight" else math.sqrt(2 / sum(w.shape))
        assert w.std().item() == pytest.approx(expected, rel=0.05), name
    assert all((b == 0).all() for b in select_vectors(net).values())


def test_xavier_keeps_the_variance_of_a_square_layer() -> None:
    layer = nn.Linear(400, 400)
    torch.manual_seed(0)
    INITIALIZATIONS["xavier"](layer, SCALE)
    x = torch.randn(200, 400)
    assert layer(x).var().item() == pytest.approx(1.0, rel=0.1)


def test_orthogonal_initialization_makes_orthogonal_gates() -> None:
    net = make_network("orthogonal")
    gates = net.layers[0].weight_hh.detach().split(WIDTH)
    assert len(gates) == 4
    for gate in gates:
        torch.testing.assert_close(gate @ gate.t(), torch.eye(WIDTH), atol=1e-5, rtol=0)
    assert not torch.allclose(gates[0], gates[1])
    same = make_network("xavier")
    assert torch.equal(net.readout.weight, same.readout.weight)  # the rest is initialized as with Xavier


def test_zeros_initialization_sets_all_parameters_to_zero() -> None:
    assert all((p == 0).all() for p in make_network("zeros").parameters())


@pytest.mark.parametrize("kind", INITIALIZATIONS)
def test_initialization_with_same_seed_repeats(kind: str) -> None:
    a, b, c = make_network(kind).state_dict(), make_network(kind).state_dict(), make_network(kind, seed=1).state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
    if kind != "zeros":
        assert not all(torch.equal(a[name], c[name]) for name in a)


def test_tied_embedding_is_initialized_as_an_embedding() -> None:
    net = LSTM(LSTM.Config(width=WIDTH, tied=True), Vocabulary(SIZE, 0))
    INITIALIZATIONS["xavier"](net, SCALE)
    assert net.embedding.weight.std().item() == pytest.approx(SCALE, rel=0.05)


def test_unigram_bias_equals_log_of_smoothed_frequencies() -> None:
    """Counts 6, 1, 0 plus one each give 7/10, 2/10, 1/10."""
    bias = torch.zeros(3)
    unigram_bias(bias, [6, 1, 0])
    torch.testing.assert_close(bias.exp(), torch.tensor([0.7, 0.2, 0.1]))
    torch.testing.assert_close(bias.softmax(0), torch.tensor([0.7, 0.2, 0.1]))
