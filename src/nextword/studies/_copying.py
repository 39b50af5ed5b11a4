"""Copying random symbols: 7 3 9 … 4 → 7 3 9 … 4.

Nothing in a target can be guessed except from its source, so a network is right only as far as it carries information.
Small networks learn the task in seconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from nextword.batching.seq2seq import Pairs
from nextword.core.types import Vocabulary
from nextword.models.seq2seq import Seq2Seq
from nextword.objectives.seq2seq import Seq2SeqObjective
from nextword.studies._translators import TranslatorSize, ids_to_stream, to_device, train_seq2seq
from nextword.training.device import choose_device

SYMBOLS = 12
BEGIN, END = 0, 1
VOCABULARY = Vocabulary(SYMBOLS + 2, BEGIN, {}, end=END)
TRAINED, TESTED = 4000, 200  # training sequences; test sequences of each length
TEST_LENGTHS = (4, 8, 12, 16, 20)


class Lengths(NamedTuple):
    shortest: int
    longest: int


def make_copies(count: int, lengths: Lengths, seed: int) -> Pairs:
    """Random sequences, each paired with itself."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(lengths.shortest, lengths.longest + 1, count)
    sequences = [np.append(draw.integers(2, SYMBOLS + 2, n), END) for n in sizes]
    return Pairs(ids_to_stream(sequences), ids_to_stream(sequences), BEGIN, np.arange(count))


def train_copier(seed: int, size: TranslatorSize, lengths: Lengths, **config: Any) -> Seq2Seq:
    torch.manual_seed(seed)
    network = Seq2Seq(size.config(**config), VOCABULARY).to(choose_device())
    objective = Seq2SeqObjective({"rows": size.rows, "length": size.length})
    train_seq2seq(network, objective, make_copies(TRAINED, lengths, seed), seed, size)
    return network


@torch.no_grad()
def score_copies(network: Seq2Seq, length: int) -> np.ndarray:
    """(TESTED, 3) for sequences of one length: nats, symbols predicted correctly given the truth, and symbols."""
    objective = Seq2SeqObjective({"rows": TESTED, "length": length + 1})
    copies = make_copies(TESTED, Lengths(length, length), 10**6)
    parts = []
    for batch in to_device(objective.validation_batches(copies), network.device):
        log_p = network.readout.log_probs(network.hidden(batch.inputs, None)[0][-1])  # (B, T, V)
        nats = -log_p.gather(2, batch.targets.unsqueeze(2)).squeeze(2)
        hits = log_p.argmax(2) == batch.targets
        count = torch.full((len(nats),), nats.shape[1])
        parts.append(torch.stack([nats.sum(1).cpu(), hits.sum(1).cpu(), count], 1))
    return torch.cat(parts).double().numpy()
