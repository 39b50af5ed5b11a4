"""Bengio et al. 2003: similar words get similar embeddings, so NPLM gives an unseen n-gram of known classes nearly the
probability of a seen one. An n-gram model cannot.

    the|a  NOUN  VERB .        animals run, eat, sleep …; tools cut, break, rust …; each noun occurs with half its verbs
"""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.small_job import train_small_job

CLASSES, NOUNS, VERBS = 2, 12, 8  # nouns and verbs of each class
DETERMINERS = (0, 1)
STOP = 2
FIRST_NOUN, FIRST_VERB = 3, 3 + CLASSES * NOUNS
SIZE = FIRST_VERB + CLASSES * VERBS + 1


def pairs(seed: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(noun, verb) pairs of the same class: seen in training, and held out of it. Each noun has half of each."""
    rng = np.random.default_rng(seed)
    seen, unseen = [], []
    for c in range(CLASSES):
        for n in range(NOUNS):
            verbs = rng.permutation(VERBS)
            for i, v in enumerate(verbs):
                pair = (FIRST_NOUN + c * NOUNS + n, FIRST_VERB + c * VERBS + int(v))
                (seen if i < VERBS // 2 else unseen).append(pair)
    return seen, unseen


def text(seen: list[tuple[int, int]], sentences: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(seen), sentences)
    return np.array([(rng.integers(2), *seen[i], STOP) for i in chosen], np.uint8).ravel()


def trigram(ids: np.ndarray, delta: float = 0.1) -> dict[tuple[int, int, int], float]:
    """Add-δ estimates of every p(w | determiner, noun)."""
    three = Counter(zip(*(ids[i : len(ids) - 2 + i].tolist() for i in range(3)), strict=True))
    two = Counter(key[:2] for key in three.elements())
    return {
        (d, n, w): (three[d, n, w] + delta) / (two[d, n] + delta * SIZE)
        for d in DETERMINERS
        for n in range(FIRST_NOUN, FIRST_VERB)
        for w in range(SIZE)
    }


def measured(folder: Path, seed: int) -> tuple[float, float, float]:
    """Mean p(verb | determiner, noun): NPLM on unseen pairs, on seen pairs; the trigram on unseen pairs."""
    seen, unseen = pairs(seed)
    ids = text(seen, 3000, seed)
    network, _ = train_small_job(
        folder, "nplm", {"context": 2, "embedding": 2, "width": 16}, SIZE, ids,
        batches={"kind": "windows", "rows": 64, "context": 2}, optimizer={"kind": "adam", "rate": 0.01},
        steps=250, seed=seed, log_every=100, save_every=1e9,
    )  # fmt: skip
    counted = trigram(ids)
    found = []
    for group in (unseen, seen):
        contexts = torch.tensor([[d, noun] for noun, _ in group for d in DETERMINERS])
        verbs = torch.tensor([verb for _, verb in group for _ in DETERMINERS])
        targets = torch.cat([contexts, verbs[:, None]], 1)
        with torch.no_grad():
            log_p, _ = network.score(targets, torch.full((len(targets),), 3), None)
        found.append(log_p[:, -1].exp().mean().item())
    table = statistics.mean(counted[d, noun, verb] for noun, verb in unseen for d in DETERMINERS)
    return found[0], found[1], table


@pytest.mark.slow
def test_nplm_generalizes_to_unseen_pairs_and_trigram_does_not(tmp_path: Path) -> None:
    found = [measured(tmp_path / str(seed), seed) for seed in (1, 2, 3)]
    unseen, seen, trigram_unseen = (statistics.median(column) for column in zip(*found, strict=True))
    assert unseen > 10 * trigram_unseen, found
    assert unseen > seen / 3, found
    assert unseen > 3 / SIZE, found  # and it is no matter of being unsure of everything
