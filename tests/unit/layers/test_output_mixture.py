"""Mixture of softmaxes compared with its formula and with a single softmax, and its rank above the width."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from nextword.core.errors import InvalidSetting
from nextword.core.types import IGNORE, Batch, Inputs, Vocabulary
from nextword.kernels import triton_kernels as kernels
from nextword.layers.output.mixture import MixtureOfSoftmaxes
from nextword.layers.output.softmax import FullSoftmax
from nextword.models.awd_lstm import AWDLSTM, AWDConfig
from nextword.objectives.causal import CausalObjective
from tests.support.errors import raises

WIDTH, SIZE = 4, 15


def test_mixture_of_one_identity_expert_equals_full_softmax() -> None:
    layer, full = MixtureOfSoftmaxes(WIDTH, SIZE, experts=1, activation="none"), FullSoftmax(WIDTH, SIZE)
    with torch.no_grad():
        layer.latent.weight.copy_(torch.eye(WIDTH))
        layer.latent.bias.zero_()
    full.load_state_dict(layer.words.state_dict())
    h, targets = torch.randn(7, WIDTH), torch.arange(7)
    torch.testing.assert_close(layer.nll(h, targets), full.nll(h, targets))
    torch.testing.assert_close(layer.log_probs(h), full.log_probs(h))


def test_mixture_of_softmaxes_equals_formula_of_the_paper() -> None:
    layer = MixtureOfSoftmaxes(WIDTH, SIZE, experts=3, latent=6)
    h = torch.randn(5, WIDTH)
    prior = torch.softmax(h @ layer.prior.weight.t(), -1)
    expected = torch.zeros(5, SIZE)
    for k in range(3):
        u, bias = layer.latent.weight[6 * k : 6 * k + 6], layer.latent.bias[6 * k : 6 * k + 6]
        z = torch.tanh(h @ u.t() + bias) @ layer.words.matrix.t() + layer.words.bias
        expected += prior[:, k : k + 1] * torch.softmax(z, -1)
    torch.testing.assert_close(layer.log_probs(h).exp(), expected)


def test_mixture_log_probs_have_a_rank_above_the_width() -> None:
    torch.manual_seed(0)
    h = 3 * torch.randn(40, WIDTH).double()
    single, many = (
        MixtureOfSoftmaxes(WIDTH, SIZE, experts=1).double(),
        MixtureOfSoftmaxes(WIDTH, SIZE, experts=4).double(),
    )
    for layer in (single, many):
        nn.init.normal_(layer.words.matrix)
        nn.init.normal_(layer.latent.weight)
    rank = [int(torch.linalg.matrix_rank(layer.log_probs(h), rtol=1e-6)) for layer in (single, many)]
    assert rank[0] <= WIDTH + 2  # D, the bias, and the normalizer
    assert rank[1] == SIZE


def test_mixture_drops_latents_only_in_training() -> None:
    layer = MixtureOfSoftmaxes(WIDTH, SIZE, experts=2, dropout=0.5)
    h, targets = torch.randn(20, WIDTH), torch.arange(20) % SIZE
    assert not torch.equal(layer.total(h, targets), layer.total(h, targets))
    layer.eval()
    assert torch.equal(layer.total(h, targets), layer.total(h, targets))


def test_mixture_drops_the_same_latents_at_every_step_of_a_row() -> None:
    """Given the number of rows, it draws one mask per row for all experts; the steps of a row are adjacent."""
    torch.manual_seed(0)
    rows, time, experts, latent = 3, 5, 2, 40
    layer = MixtureOfSoftmaxes(WIDTH, SIZE, experts, latent, dropout=0.29)
    h = torch.randn(rows * time, WIDTH)
    full = layer.eval()._experts(h)[1]
    layer.train().rows = rows
    kept = (layer._experts(h)[1] / full).detach().view(rows, time, experts, latent)
    torch.testing.assert_close(kept, kept[:, :1].expand_as(kept), rtol=1e-4, atol=1e-4)
    scale = torch.tensor([0.0, 1 / 0.71])
    assert ((kept[..., None] - scale).abs().min(-1).values < 1e-4).all()  # dropped, or scaled to keep the mean
    masks = kept[:, 0] > 0
    assert 0.5 < masks.float().mean() < 0.9
    assert len({tuple(mask.tolist()) for mask in masks.flatten(0, 1)}) == rows * experts  # each row has its own mask
    assert not torch.equal(layer._experts(h)[1], layer._experts(h)[1])  # and each batch


def test_mixture_without_number_of_rows_masks_every_vector_separately() -> None:
    torch.manual_seed(0)
    layer = MixtureOfSoftmaxes(WIDTH, SIZE, experts=2, latent=40, dropout=0.5)
    kept = layer._experts(torch.randn(6, WIDTH))[1].flatten(1) != 0
    assert len({tuple(row.tolist()) for row in kept}) == 6


def test_network_passes_the_number_of_rows_to_the_mixture() -> None:
    """Also if only the last positions are predicted."""
    torch.manual_seed(0)
    options = {"kind": "mixture", "experts": 2, "dropout": 0.5}
    config = AWDConfig(embedding=6, width=8, last_width=5, layers=2, readout=options)
    network = AWDLSTM(config, Vocabulary(SIZE, 0)).train()
    ids = torch.randint(SIZE, (4, 8))
    for targets in (ids[:, 1:], ids[:, 4:]):
        loss = CausalObjective({}, activation_penalty=2.0, temporal_penalty=1.0).loss(
            network, Batch(Inputs(ids[:, :-1]), targets), None
        )
        loss.value.backward()
        assert network.readout.rows == 4
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def compute_gradients(
    layer: MixtureOfSoftmaxes, h: torch.Tensor, total: Callable[[], torch.Tensor]
) -> list[torch.Tensor]:
    value = total()
    return [value.detach(), *torch.autograd.grad(3 * value, [h, *layer.parameters()])]


@pytest.mark.skipif(not kernels.available(), reason="NO GPU WITH TRITON HERE: this test proves nothing")
@pytest.mark.parametrize("dropout", [0.0, 0.29])
def test_mixture_total_in_16_bits_on_gpu_equals_float32(dropout: float) -> None:
    """Also in a captured graph, whose replays draw new masks."""
    torch.manual_seed(0)
    layer = MixtureOfSoftmaxes(40, 1001, experts=5, latent=24, dropout=dropout).cuda()
    h = torch.randn(60, 40, device="cuda", requires_grad=True)
    targets = torch.randint(1001, (60,), device="cuda")
    targets[5] = IGNORE
    layer.rows = 4
    if not dropout:  # two data types may draw different masks
        result = []
        for narrow in (True, False):
            with torch.autocast("cuda", torch.bfloat16, enabled=narrow):
                result.append(compute_gradients(layer, h, lambda: layer.total(h, targets)))
        torch.testing.assert_close(result[0][0], result[1][0], rtol=3e-3, atol=0)
        for a, b in zip(result[0][1:], result[1][1:], strict=True):
            assert (a - b).norm() < 0.03 * b.norm()
    with torch.autocast("cuda", torch.bfloat16):
        layer.total(h, targets)  # initializes the libraries
    torch.cuda.synchronize()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream), torch.autocast("cuda", torch.bfloat16):
        value = layer.total(h, targets)
    seen = set()
    for _ in range(3):
        graph.replay()
        seen.add(value.item())
    assert len(seen) == (3 if dropout else 1)


def test_tied_mixture_has_the_width_of_the_embedding() -> None:
    embedding = nn.Embedding(SIZE, 6)
    layer = MixtureOfSoftmaxes(WIDTH, SIZE, experts=2, embedding=embedding)
    assert layer.latent.out_features == 12
    with raises(InvalidSetting, key="model.readout.latent"):
        MixtureOfSoftmaxes(WIDTH, SIZE, latent=5, embedding=embedding)
