"""Class-based softmax compared with its definition; classes by frequency and by exchange."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.errors import InvalidSetting
from nextword.layers.output.class_based import ClassSoftmax, bigrams, by_mass, exchange, gain
from nextword.layers.output.softmax import FullSoftmax
from tests.support.errors import raises

WIDTH, SIZE = 5, 12


def draw_rows(number: int = 8) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(number, WIDTH, generator=g), torch.randint(SIZE, (number,), generator=g)


def test_class_softmax_of_one_class_equals_full_softmax() -> None:
    layer, full = ClassSoftmax(WIDTH, SIZE, classes=1), FullSoftmax(WIDTH, SIZE)
    with torch.no_grad():
        full.weight.copy_(layer.word_weight[layer.place])
        full.bias.copy_(layer.word_bias[layer.place])  # type: ignore[union-attr]
    h, targets = draw_rows()
    torch.testing.assert_close(layer.nll(h, targets), full.nll(h, targets))
    torch.testing.assert_close(layer.log_probs(h), full.log_probs(h))


def test_class_softmax_of_one_word_per_class_equals_full_softmax() -> None:
    layer, full = ClassSoftmax(WIDTH, SIZE, classes=SIZE), FullSoftmax(WIDTH, SIZE)
    with torch.no_grad():
        full.weight.copy_(layer.class_weight[layer.classes_of])
        full.bias.copy_(layer.class_bias[layer.classes_of])  # type: ignore[union-attr]
    h, targets = draw_rows()
    torch.testing.assert_close(layer.nll(h, targets), full.nll(h, targets))


def test_class_softmax_equals_product_of_two_softmaxes() -> None:
    layer = ClassSoftmax(WIDTH, SIZE, classes=3)
    layer.fit_vocabulary(np.array([7, 7, 7, 2, 2, 9, 0, 1, 3]))
    h, _ = draw_rows(3)
    p_class = torch.softmax(F.linear(h, layer.class_weight, layer.class_bias), -1)
    log_p = layer.log_probs(h)
    for word in range(SIZE):
        c = layer.classes_of[word]
        mates = [w for w in range(SIZE) if layer.classes_of[w] == c]
        z = F.linear(h, layer.word_weight[layer.place[mates]], layer.word_bias[layer.place[mates]])
        expected = p_class[:, c] * torch.softmax(z, -1)[:, mates.index(word)]
        torch.testing.assert_close(log_p[:, word].exp(), expected)


def test_by_mass_equals_hand_computation() -> None:
    # each of four classes gets 4 of 16: a word of 4, another one, two of 2, four of 1
    mass = np.array([4, 4, 2, 2, 1, 1, 1, 1], float)
    assert by_mass(mass, 4).tolist() == [0, 1, 2, 2, 3, 3, 3, 3]
    assert by_mass(mass[::-1].copy(), 4).tolist() == [3, 3, 3, 3, 2, 2, 0, 1]  # sorted by frequency, not by id
    assert by_mass(np.array([90, 1, 1, 1], float), 2).tolist() == [0, 1, 1, 1]
    assert by_mass(np.array([90, 1, 1, 1], float), 4).tolist() == [0, 1, 2, 3]
    assert by_mass(np.array([1, 1, 1, 90], float), 3).tolist() == [1, 2, 2, 0]
    assert by_mass(np.zeros(4), 2).tolist() == [0, 0, 1, 1]


def test_by_mass_of_square_roots_shrinks_the_last_class() -> None:
    counts = 10_000 / np.arange(1, 1001)
    sizes = [np.bincount(by_mass(counts**power, 30))[-1] for power in (1.0, 0.5)]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("classes", [1, 2, 7, 50, 99, 100])
def test_by_mass_leaves_no_class_empty(classes: int) -> None:
    rng = np.random.default_rng(classes)
    mass = rng.pareto(0.3, 100) * (rng.random(100) < 0.7)
    assert (np.bincount(by_mass(mass, classes), minlength=classes) > 0).all()


def test_more_classes_than_words_raises() -> None:
    with raises(InvalidSetting, key="model.readout.classes"):
        ClassSoftmax(WIDTH, SIZE, classes=13)


# ------------------------------------------------------------------------------------------------ by exchange


def test_bigrams_returns_sparse_counts() -> None:
    begins, words, counts = bigrams(np.array([1, 2, 1, 2, 2, 0]), 4)
    assert begins.tolist() == [0, 0, 1, 4, 4]
    assert words.tolist() == [2, 0, 1, 2]
    assert counts.tolist() == [2, 1, 1, 1]


def draw_alternating_words(length: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Draw a text in which words of three kinds alternate: 0–3, then 4–7, then 8–11."""
    rng = np.random.default_rng(0)
    return np.arange(length) % 3 * 4 + rng.integers(4, size=length), np.arange(12) // 4


def test_exchange_groups_words_with_similar_contexts() -> None:
    ids, kinds = draw_alternating_words()
    shuffle = np.random.default_rng(1).permutation(12)
    result = exchange(shuffle[ids], np.arange(12) % 3, 3, sweeps=10)
    groups = {frozenset(shuffle[kinds == k].tolist()) for k in range(3)}
    assert {frozenset(np.flatnonzero(result == k).tolist()) for k in range(3)} == groups


def test_exchange_reaches_a_local_optimum() -> None:
    """Every sweep improves the objective, which is recomputed from scratch here."""
    rng = np.random.default_rng(2)
    ids = np.concatenate([rng.integers(9, size=60), np.repeat(rng.integers(9, size=40), 2)])  # some follow themselves
    start = np.arange(10) % 3  # id 9 never occurs
    gains = [gain(ids, exchange(ids, start, 3, sweeps), 3) for sweeps in range(4)]
    assert gains == sorted(gains)
    assert gains[-1] > gains[0] + 0.1
    best = exchange(ids, start, 3, 50)
    assert best[9] == start[9]
    top = gain(ids, best, 3)
    for word, c in itertools.product(range(10), range(3)):
        moved = best.copy()
        moved[word] = c
        if len(set(moved.tolist())) == 3:
            assert gain(ids, moved, 3) <= top + 1e-9


def test_exchange_leaves_no_class_empty() -> None:
    ids = np.random.default_rng(3).integers(6, size=500)
    result = exchange(ids, np.arange(6) % 5, 5, 20)
    assert len(set(result.tolist())) == 5
