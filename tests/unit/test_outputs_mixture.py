"""Mixture of softmaxes against its formula, against one softmax, and what it is for: a rank above the width."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nextword.contract import NextwordError
from nextword.layers.outputs.mixture import Mixture
from nextword.layers.softmax import Full

WIDTH, SIZE = 4, 15


def test_one_expert_that_changes_nothing_is_the_full_softmax() -> None:
    layer, full = Mixture(WIDTH, SIZE, experts=1, activation="none"), Full(WIDTH, SIZE)
    with torch.no_grad():
        layer.latent.weight.copy_(torch.eye(WIDTH))
        layer.latent.bias.zero_()
    full.load_state_dict(layer.words.state_dict())
    h, targets = torch.randn(7, WIDTH), torch.arange(7)
    torch.testing.assert_close(layer.nll(h, targets), full.nll(h, targets))
    torch.testing.assert_close(layer.log_probs(h), full.log_probs(h))


def test_it_is_the_papers_formula() -> None:
    layer = Mixture(WIDTH, SIZE, experts=3, latent=6)
    h = torch.randn(5, WIDTH)
    prior = torch.softmax(h @ layer.prior.weight.t(), -1)
    expected = torch.zeros(5, SIZE)
    for k in range(3):
        u, bias = layer.latent.weight[6 * k : 6 * k + 6], layer.latent.bias[6 * k : 6 * k + 6]
        z = torch.tanh(h @ u.t() + bias) @ layer.words.matrix.t() + layer.words.bias
        expected += prior[:, k : k + 1] * torch.softmax(z, -1)
    torch.testing.assert_close(layer.log_probs(h).exp(), expected)


def test_log_probabilities_have_a_rank_above_the_width() -> None:
    torch.manual_seed(0)
    h = 3 * torch.randn(40, WIDTH).double()
    one, many = Mixture(WIDTH, SIZE, experts=1).double(), Mixture(WIDTH, SIZE, experts=4).double()
    for layer in (one, many):
        nn.init.normal_(layer.words.matrix)
        nn.init.normal_(layer.latent.weight)
    rank = [int(torch.linalg.matrix_rank(layer.log_probs(h), rtol=1e-6)) for layer in (one, many)]
    assert rank[0] <= WIDTH + 2  # D, the bias, and the normaliser
    assert rank[1] == SIZE


def test_latents_are_dropped_in_training_alone() -> None:
    layer = Mixture(WIDTH, SIZE, experts=2, dropout=0.5)
    h, targets = torch.randn(20, WIDTH), torch.arange(20) % SIZE
    assert not torch.equal(layer.total(h, targets), layer.total(h, targets))
    layer.eval()
    assert torch.equal(layer.total(h, targets), layer.total(h, targets))


def test_a_tied_mixture_has_the_embeddings_width() -> None:
    embedding = nn.Embedding(SIZE, 6)
    layer = Mixture(WIDTH, SIZE, experts=2, embedding=embedding)
    assert layer.latent.out_features == 12
    with pytest.raises(NextwordError, match="latent = 5"):
        Mixture(WIDTH, SIZE, latent=5, embedding=embedding)
