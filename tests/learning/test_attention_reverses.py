"""Bahdanau et al. 2015: without attention, long sentences lose what must pass through a single vector.

    source   7 3 9 … 4          20 symbols
    target   4 … 9 3 7          the same reversed

Both networks have one layer of equal width and see the same pairs; only one of them attends to the source. Its
attention weights then form the antidiagonal of the map.
"""

from __future__ import annotations

import statistics

import numpy as np
import torch

from nextword.batching.seq2seq import Pairs
from nextword.batching.token_stream import ROW, Stream
from nextword.core.types import Inputs, Vocabulary
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig
from nextword.objectives.seq2seq import Seq2SeqObjective

SYMBOLS, LONG, STEPS = 12, 20, 350
VOCABULARY = Vocabulary(SYMBOLS + 2, 0, {}, end=1)


def stream(texts: list[np.ndarray]) -> Stream:
    documents = np.zeros(len(texts), ROW)
    documents["start"] = np.cumsum([0, *map(len, texts[:-1])])
    ids = np.concatenate(texts).astype(np.uint8)
    return Stream(ids, np.ones(len(ids), np.uint8), documents, len(ids), len(ids), 0)


def pairs(count: int, least: int, seed: int) -> Pairs:
    draw = np.random.default_rng(seed)
    sources = [draw.integers(2, SYMBOLS + 2, draw.integers(least, LONG + 1)) for _ in range(count)]
    ended = [np.append(one, 1) for one in sources]
    return Pairs(stream(ended), stream([np.append(one[::-1], 1) for one in sources]), 0, np.arange(count))


def trained(attention: str, seed: int) -> Seq2Seq:
    torch.manual_seed(seed)
    config = Seq2SeqConfig(width=48, embedding=24, cell="gru", attention=attention, input_feeding=False)
    network, objective = Seq2Seq(config, VOCABULARY), Seq2SeqObjective({"rows": 32, "length": LONG + 1})
    optimizer = torch.optim.Adam(network.parameters(), 5e-3)
    batches = objective.batches(pairs(3000, 4, seed), seed, 0)
    for _ in range(STEPS):
        loss = objective.loss(network, next(batches), None).value
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    return network.eval()


@torch.no_grad()
def right(network: Seq2Seq) -> float:
    """The share of symbols of long targets that are the first guess."""
    batch = next(Seq2SeqObjective({"rows": 64, "length": LONG + 1}).batches(pairs(64, LONG, 99), 0, 0))
    h = network.hidden(batch.inputs, None)[0][-1]
    return float((network.readout.logits(h).argmax(-1) == batch.targets).float().mean())


def test_attention_reverses_long_sequences_and_fixed_vector_does_not() -> None:
    looking = [trained("luong", seed) for seed in range(3)]
    with_it = statistics.median(right(network) for network in looking)
    without = statistics.median(right(trained("none", seed)) for seed in range(3))
    assert with_it > 0.9, with_it
    assert without < 0.6, without

    best = max(looking, key=right)
    source = torch.tensor([[2, 9, 4, 7, 13, 3, 8, 5, 11, 6, 12, 10, 2, 7, 3, 9, 13, 4, 6, 8, 1]])
    target = torch.cat([torch.tensor([[0]]), source[:, :-1].flip(1)], 1)
    weights = best.attention(Inputs(target[:, :LONG], source=Inputs(source)))[0]  # (T, S)
    looked = weights.argmax(-1)
    assert ((looked - torch.arange(LONG - 1, -1, -1)).abs() <= 1).float().mean() > 0.8
