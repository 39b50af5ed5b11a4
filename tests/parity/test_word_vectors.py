"""word2vec and GloVe compared with explicit sums (loss, gradients, compiled steps), and with gensim if installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from nextword.batching.token_stream import Stream
from nextword.core.types import IGNORE, Batch, Inputs, Vocabulary
from nextword.models.glove import GloVe, GloVeConfig
from nextword.models.word2vec import Word2Vec, Word2VecConfig
from nextword.objectives.word_vectors import CooccurrenceObjective, NegativeSamplingObjective

WORDS = Vocabulary(12, 1, {"<unk>": 0, "<eos>": 1}, 1)
AROUND = np.array([[2, 3, 4, -1], [5, -1, -1, -1], [2, 2, 6, 7]])
TARGETS = np.array([[8, 9, 10], [3, 4, IGNORE], [5, 11, 9]])


def word2vec(cbow: bool) -> Word2Vec:
    torch.manual_seed(0)
    network = Word2Vec(Word2VecConfig(width=5, cbow=cbow), WORDS)
    network.words.data.normal_()
    network.contexts.data.normal_()
    return network


def batch(around: np.ndarray = AROUND, targets: np.ndarray = TARGETS) -> Batch:
    return Batch(Inputs(torch.from_numpy(around), torch.from_numpy(around >= 0)), torch.from_numpy(targets))


def by_hand(network: Word2Vec, around: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Eq. (4) and its derivative, one product at a time."""
    v, u = (t.detach().double().numpy() for t in (network.words, network.contexts))
    dv, du, nats = np.zeros_like(v), np.zeros_like(u), 0.0
    for row, asked in zip(around, targets, strict=True):
        ids = [id for id in row if id >= 0]
        for group in [ids] if network.config.cbow else [[id] for id in ids]:
            x = np.mean([v[id] for id in group], axis=0)
            for k, w in enumerate(asked):
                if w < 0:
                    continue
                p = 1 / (1 + np.exp(-u[w] @ x))
                nats -= np.log(p if k == 0 else 1 - p)
                error = p - (1 if k == 0 else 0)
                du[w] += error * x
                for id in group:
                    dv[id] += error * u[w] / len(group)
    return nats, dv, du


@pytest.mark.parametrize("cbow", [False, True])
def test_negative_sampling_loss_and_gradient_equal_formula(cbow: bool) -> None:
    network, objective = word2vec(cbow), NegativeSamplingObjective({"kind": "contexts"}, WORDS)
    loss = objective.loss(network, batch(), None)
    nats, dv, du = by_hand(network, AROUND, TARGETS)
    assert loss.nats.item() == pytest.approx(nats, rel=1e-5)
    assert loss.count == (3 if cbow else 8)
    (loss.value * loss.count).backward()
    np.testing.assert_allclose(network.words.grad, dv, atol=1e-5)
    np.testing.assert_allclose(network.contexts.grad, du, atol=1e-5)


@pytest.mark.parametrize("cbow", [False, True])
def test_compiled_step_equals_sequential_sgd(cbow: bool) -> None:
    network, other = word2vec(cbow), word2vec(cbow)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    loss = network.learn(batch(), optimizer)
    for n in range(len(AROUND)):
        nats, dv, du = by_hand(other, AROUND[n : n + 1], TARGETS[n : n + 1])
        if n == 0:  # the one of sixteen that is asked
            assert loss.nats.item() / loss.count == pytest.approx(nats / (1 if cbow else 3), rel=1e-5)
        other.words.data -= 0.1 * torch.from_numpy(dv).float()
        other.contexts.data -= 0.1 * torch.from_numpy(du).float()
    torch.testing.assert_close(network.words, other.words)
    torch.testing.assert_close(network.contexts, other.contexts)


def test_extreme_products_stay_finite() -> None:
    network = word2vec(False)
    network.words.data[2] = 60.0
    network.contexts.data[8] = -60.0
    loss = network.learn(batch(np.array([[2, -1]]), np.array([[8, 9]])), torch.optim.SGD(network.parameters(), lr=0.1))
    assert loss.nats.item() >= 60 * 60 * 5
    assert torch.isfinite(network.words).all()


# ------------------------------------------------------------------------------------------------ GloVe


def glove() -> GloVe:
    torch.manual_seed(0)
    network = GloVe(GloVeConfig(width=5), WORDS)
    for table in network.parameters():
        table.data.normal_()
    return network


IDS = np.random.default_rng(3).integers(2, 12, 60)


def made(cells: int = 1000, **more: Any) -> tuple[CooccurrenceObjective, Stream]:
    return CooccurrenceObjective(
        {"kind": "cells", "cells": cells}, WORDS, window=4, x_max=3.0, **more
    ), Stream.from_ids(IDS)


def test_glove_loss_equals_sum_over_cells() -> None:
    objective, text = made()
    network = glove()
    one = next(objective.batches(text, 1, 0))
    x = np.zeros((12, 12))
    for i in range(len(IDS)):
        for j in range(max(0, i - 4), i):
            x[IDS[i], IDS[j]] += 1 / (i - j)
            x[IDS[j], IDS[i]] += 1 / (i - j)
    w, c, b, d = (t.detach().double().numpy() for t in network.parameters())
    total = 0.0
    for i in range(12):
        for j in range(12):
            if x[i, j]:
                f = min(1.0, (x[i, j] / 3.0) ** 0.75)
                total += 0.5 * f * (w[i] @ c[j] + b[i, 0] + d[j, 0] - np.log(x[i, j])) ** 2
    loss = objective.loss(network, one, None)
    assert loss.nats.item() == pytest.approx(total, rel=1e-5)
    assert loss.count == np.count_nonzero(x)


def test_compiled_step_equals_sequential_adagrad() -> None:
    objective, text = made()
    cells = next(objective.batches(text, 1, 0))
    network, other = glove(), glove()
    mine, theirs = (
        torch.optim.Adagrad(n.parameters(), lr=0.05, initial_accumulator_value=1.0) for n in (network, other)
    )
    network.learn(cells, mine)
    for n in range(len(cells.targets)):
        theirs.zero_grad()
        one = Batch(Inputs(cells.inputs.ids[n : n + 1]), cells.targets[n : n + 1])
        objective.loss(other, one, None).value.backward()
        theirs.step()
    for a, b in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine.state[a]["sum"], theirs.state[b]["sum"], rtol=1e-4, atol=1e-5)
    assert torch.equal(network.table, network.words + network.contexts)


# ------------------------------------------------------------------------------------------------ gensim


def test_subsampling_and_noise_tables_equal_gensim() -> None:
    """Who stays, and the noise: its tables are made of the same counts by the same formulas."""
    gensim = pytest.importorskip("gensim.models", reason="gensim is not installed")
    from nextword.batching.word_vectors import build_word_sampler

    draw = np.random.default_rng(0)
    ids = (2 + draw.zipf(1.3, 5000) % 10).astype(np.int64)
    theirs = gensim.Word2Vec([[str(i) for i in ids]], vector_size=4, min_count=1, sample=1e-2, epochs=1)
    draws = build_word_sampler(ids, WORDS, 1e-2, 0.75)
    noise = np.diff(theirs.cum_table.astype(np.float64), prepend=0) / theirs.cum_table[-1]
    ours = np.where(draws.threshold < 1, draws.threshold, 1.0)
    mine = np.zeros(12)
    np.add.at(mine, np.arange(12), ours / 12)
    np.add.at(mine, draws.alias, (1 - ours) / 12)
    for word, at in theirs.wv.key_to_index.items():
        kept = theirs.wv.get_vecattr(word, "sample_int") / (2**32 - 1)
        assert min(1.0, draws.keep[int(word)]) == pytest.approx(kept, abs=1e-6)
        assert mine[int(word)] == pytest.approx(noise[at], abs=1e-6)
