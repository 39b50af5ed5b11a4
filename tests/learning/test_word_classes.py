"""Words with similar contexts get similar vectors, and analogies are directions (word2vec, GloVe).

In this artificial language each of 24 names has one of six kinds and one of two genders, and two names share both.
Around a name are words of its kind and of its gender in any order. No two names ever occur together.

    k3 mara k3 f1        name(kind 3, she): company k3…, f…
"""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import torch

from nextword.batching.token_stream import Stream
from nextword.core.types import Vocabulary
from nextword.data.word_vectors import Vectors
from nextword.models.glove import GloVe, GloVeConfig
from nextword.models.word2vec import Word2Vec, Word2VecConfig
from nextword.objectives.word_vectors import CooccurrenceObjective, NegativeSamplingObjective

KINDS, SAME, COMPANY = 6, 2, 4  # names of each kind and gender; words of each kind's and gender's company
STRAY = 0.3  # share of the company that is anybody's: GloVe learns nothing of pairs that never stand together
NAMES = [f"{kind}{gender}{n}" for kind in range(KINDS) for gender in "mf" for n in range(SAME)]
OTHERS = [f"k{kind}{n}" for kind in range(KINDS) for n in range(COMPANY)] + [f"{g}{n}" for g in "mf" for n in range(4)]
WORDS = ["<unk>", "<eos>", *NAMES, *OTHERS]
VOCABULARY = Vocabulary(len(WORDS), 1, {"<unk>": 0, "<eos>": 1}, 1)


def text(seed: int, lines: int = 12_000) -> Stream:
    draw, ids = np.random.default_rng(seed), []
    place = {word: i for i, word in enumerate(WORDS)}
    for name in draw.choice(NAMES, lines):
        kind, gender = name[0], name[1]
        near = [f"k{kind}{n}" for n in draw.integers(0, COMPANY, 2)] + [f"{gender}{n}" for n in draw.integers(0, 4, 2)]
        line = [str(name), *(str(draw.choice(OTHERS)) if draw.random() < STRAY else word for word in near)]
        draw.shuffle(line)
        ids += [place[word] for word in line] + [1]
    return Stream.from_ids(np.array(ids))


def learnt(how: str, seed: int) -> Vectors:
    torch.manual_seed(seed)
    train = text(seed)
    if how == "glove":
        network: GloVe | Word2Vec = GloVe(GloVeConfig(width=16), VOCABULARY)
        objective: CooccurrenceObjective | NegativeSamplingObjective = CooccurrenceObjective(
            {"cells": 256}, VOCABULARY, window=4, x_max=200.0
        )
        optimizer: torch.optim.Optimizer = torch.optim.Adagrad(network.parameters(), 0.05, initial_accumulator_value=1)
        epochs = 200
    else:
        network = Word2Vec(Word2VecConfig(width=16, cbow=how == "cbow"), VOCABULARY)
        objective = NegativeSamplingObjective({"words": 4096, "window": 4, "subsample": 0}, VOCABULARY)
        optimizer = torch.optim.SGD(network.parameters(), 0.05)
        epochs = 10
    batches = objective.batches(train, seed, 0)
    for _ in range(epochs * objective.batches_per_epoch(train)):
        network.learn(next(batches), optimizer)
    return Vectors("made", WORDS[2:], network.table[2:].detach().numpy())


@pytest.mark.parametrize("how", ["skip-gram", "cbow", "glove"])
def test_word_vectors_capture_kinds_and_analogies(how: str) -> None:
    """The nearest name to each is the one of its kind and gender; chance is one in 23."""
    right, analogies = [], []
    for seed in range(3):
        found = learnt(how, seed)
        names = Vectors("names", NAMES, found.matrix[: len(NAMES)])
        right.append(np.mean([names.nearest({name: 1}, 1)[0][0][:2] == name[:2] for name in NAMES]))
        asked = [(a, b) for a in range(KINDS) for b in range(KINDS) if a != b]
        analogies.append(
            np.mean([names.nearest({f"{a}m0": 1, f"{b}m0": -1, f"{b}f0": 1}, 1)[0][0][:2] == f"{a}f" for a, b in asked])
        )
    assert statistics.median(right) > 0.8
    assert statistics.median(analogies) > 0.7  # king − man + woman = queen; chance is one in 21
