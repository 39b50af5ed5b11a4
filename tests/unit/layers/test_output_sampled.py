"""Sampled softmax and NCE: proposals, corrections and gradients; both learn the true distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.layers.output import sampled as sampling
from nextword.layers.output.sampled import Proposal, SampledSoftmax
from nextword.layers.output.softmax import FullSoftmax

WIDTH, SIZE = 5, 14
TEXT = np.repeat(np.arange(SIZE), np.arange(SIZE) ** 2)  # id 13 is the most frequent, id 0 never occurs


def draw_rows(number: int = 9) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(number, WIDTH, generator=g), torch.randint(SIZE, (number,), generator=g)


@pytest.mark.parametrize("kind", ["unigram", "log-uniform"])
def test_proposal_samples_follow_its_probabilities(kind: str) -> None:
    proposal = Proposal(SIZE, kind)
    proposal.fit_vocabulary(TEXT)
    torch.manual_seed(0)
    share = torch.bincount(proposal.draw(200_000), minlength=SIZE) / 200_000
    torch.testing.assert_close(share, proposal.q, atol=0.004, rtol=0)
    assert proposal.q.argmax() == 13
    assert (proposal.q > 0).all()


def test_proposal_probabilities_equal_hand_computation() -> None:
    proposal = Proposal(3, "log-uniform")
    proposal.fit_vocabulary(np.array([2, 2, 0]))
    expected = torch.tensor([math.log(3 / 2), math.log(4 / 3), math.log(2)]) / math.log(4)
    torch.testing.assert_close(proposal.q, expected)
    proposal = Proposal(3, "unigram", power=0.5)
    proposal.fit_vocabulary(np.array([2] * 8 + [0] * 3))
    torch.testing.assert_close(proposal.q, torch.tensor([2.0, 1.0, 3.0]) / 6)  # √(3+1), √(0+1), √(8+1)


def test_sampled_softmax_of_all_words_equals_full_softmax() -> None:
    full = FullSoftmax(WIDTH, SIZE)
    layer = SampledSoftmax(full, SIZE, samples=SIZE)
    h, targets = draw_rows()
    x, y = h.clone().requires_grad_(), h.clone().requires_grad_()
    ours, exact = layer.train().total(x, targets), full.total(y, targets)
    torch.testing.assert_close(ours, exact)
    result = torch.autograd.grad(ours, [x, full.weight, full.bias])  # type: ignore[list-item]
    wanted = torch.autograd.grad(exact, [y, full.weight, full.bias])  # type: ignore[list-item]
    for a, b in zip(result, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_sampled_softmax_equals_row_by_row_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Score target and distinct samples of each row by their logits minus the log of the sampling probability."""
    full = FullSoftmax(WIDTH, SIZE)
    layer = SampledSoftmax(full, SIZE, samples=4)
    layer.fit_vocabulary(TEXT)
    drawn = [13, 2, 13, 5]
    monkeypatch.setattr(layer.proposal, "draw", lambda number: torch.tensor(drawn)[:number])
    h, targets = draw_rows()
    targets[0] = 2  # also sampled
    z = full.logits(h) - torch.log(1 - (1 - layer.proposal.q) ** 4)
    expected = torch.zeros(())
    for row, target in zip(z, targets.tolist(), strict=True):
        there = sorted({target, *drawn})
        expected = expected - torch.log_softmax(row[there], -1)[there.index(target)]
    torch.testing.assert_close(layer.total(h, targets), expected)
    layer.eval()
    torch.testing.assert_close(layer.total(h, targets), full.total(h, targets))


def test_nce_equals_row_by_row_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    full = FullSoftmax(WIDTH, SIZE)
    layer = SampledSoftmax(full, SIZE, samples=4, contrastive=True)
    layer.fit_vocabulary(TEXT)
    drawn = [13, 2, 13, 5]
    monkeypatch.setattr(layer.proposal, "draw", lambda number: torch.tensor(drawn)[:number])
    h, targets = draw_rows()
    targets[0] = 2
    p, noise = full.logits(h).exp() / SIZE, 4 * layer.proposal.q
    expected = torch.zeros(())
    for row, target in zip(p, targets.tolist(), strict=True):
        expected = expected - torch.log(row[target] / (row[target] + noise[target]))
        for word in drawn:
            expected = expected - torch.log(noise[word] / (row[word] + noise[word]))
    torch.testing.assert_close(layer.total(h, targets), expected)


@pytest.mark.parametrize("contrastive", [False, True])
@pytest.mark.parametrize("proposal", ["unigram", "log-uniform"])
def test_sampled_softmax_and_nce_learn_the_true_distribution(contrastive: bool, proposal: str) -> None:
    """A single context with a distribution unlike the proposal, which a loss without correction would miss."""
    torch.manual_seed(0)
    truth = torch.softmax(torch.randn(SIZE), -1)
    full = FullSoftmax(1, SIZE, bias=False)
    layer = SampledSoftmax(full, SIZE, samples=30 if contrastive else 6, proposal=proposal, contrastive=contrastive)
    layer.fit_vocabulary(TEXT)
    rate = 0.05
    optimizer = torch.optim.Adam(full.parameters(), rate)
    for step in range(600):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / 600)
        targets = torch.multinomial(truth, 256, replacement=True)
        optimizer.zero_grad()
        (layer.total(torch.ones(256, 1), targets) / 256).backward()
        optimizer.step()
    result = layer.log_probs(torch.ones(1, 1))[0].detach()
    divergence = float((truth * (truth.log() - result)).sum())
    uniform = float((truth * (truth.log() + math.log(SIZE))).sum())
    assert divergence < 0.06 < 0.2 < uniform
    if contrastive:  # NCE assumes this normalizer
        assert abs(float(torch.logsumexp(full.weight.detach(), 0)) - math.log(SIZE)) < 0.3


def test_sampled_softmax_reads_only_needed_words(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = []
    full = FullSoftmax(WIDTH, 10_000)
    layer = SampledSoftmax(full, 10_000, samples=20)
    read = F.embedding
    monkeypatch.setattr(sampling.F, "embedding", lambda ids, matrix: inputs.append(len(ids)) or read(ids, matrix))
    h, targets = draw_rows()
    layer.total(h, targets)
    assert inputs[0] <= 20 + len(targets)
