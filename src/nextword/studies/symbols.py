"""Sequences made up: what a network must carry from a source to a target, and nothing else.

    copied      7 3 9 … 4   →   7 3 9 … 4

Symbols are drawn at random, so nothing of a target can be guessed but from its source. Small networks learn this in
seconds, and lengths are whatever a study asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nextword.batching.sequences import Pairs
from nextword.contract import Vocabulary
from nextword.models.seq2seq import Seq2Seq
from nextword.objectives.sequence import Seq2SeqObjective
from nextword.studies.translators import TranslatorSize, learn_translation, on_device, stream_of_pairs
from nextword.training.scale import choose_device

SYMBOLS = 12
BEGIN, END = 0, 1
VOCABULARY = Vocabulary(SYMBOLS + 2, BEGIN, {}, end=END)
COUNT, ASKED = 4000, 200  # sequences to learn from, and asked of each length


@dataclass(frozen=True)
class Lengths:
    least: int
    most: int


def copies(count: int, lengths: Lengths, seed: int) -> Pairs:
    """So many sequences, each to be written again."""
    draw = np.random.default_rng(seed)
    sizes = draw.integers(lengths.least, lengths.most + 1, count)
    ended = [np.append(draw.integers(2, SYMBOLS + 2, n), END) for n in sizes]
    return Pairs(stream_of_pairs(ended), stream_of_pairs(ended), BEGIN, np.arange(count))


def copier(seed: int, size: TranslatorSize, lengths: Lengths, **model: Any) -> Seq2Seq:
    """A network that has learnt to copy sequences of these lengths, as far as it could."""
    torch.manual_seed(seed)
    network = Seq2Seq(size.built(**model), VOCABULARY).to(choose_device())
    learn_translation(network, Seq2SeqObjective({"rows": size.rows, "length": size.length}), copies(COUNT, lengths, seed), seed, size)
    return network


@torch.no_grad()
def copied(network: Seq2Seq, length: int) -> np.ndarray:
    """(ASKED, 3): nats, symbols written right when fed the truth, and symbols, of sequences of one length."""
    asked = Seq2SeqObjective({"rows": ASKED, "length": length + 1})
    parts = []
    for batch in on_device(asked.held_out(copies(ASKED, Lengths(length, length), 10**6)), network.device):
        log_p = network.readout.log_probs(network.hidden(batch.inputs, None)[0][-1])  # (B, T, V)
        nats = -log_p.gather(2, batch.targets.unsqueeze(2)).squeeze(2)
        right = log_p.argmax(2) == batch.targets
        count = torch.full((len(nats),), nats.shape[1])
        parts.append(torch.stack([nats.sum(1).cpu(), right.sum(1).cpu(), count], 1))
    return torch.cat(parts).double().numpy()
