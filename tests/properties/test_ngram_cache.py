"""The cache equals recounting at every token."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.ngrams.interpolation import cache_distribution, cache_probabilities
from nextword.ngrams.trie import NONE

SIZE = 5
streams = st.lists(st.integers(0, SIZE - 1) | st.just(NONE), max_size=40)


def plain(word: int, before: list[int]) -> float:
    while NONE in before:
        before = before[before.index(NONE) + 1 :]
    return before.count(word) / len(before) if before and word != NONE else -1


@settings(max_examples=200, deadline=None)
@given(streams, streams)
def test_cache_probabilities_equal_counts_from_scratch(history, ids):
    window = len(history)
    got = cache_probabilities(np.array(ids, np.uint32), np.array(history, np.uint32))
    everything = history + ids
    expected = [plain(word, everything[at : at + window]) for at, word in enumerate(ids)]
    assert got.dtype == np.float32
    assert got.tolist() == np.array(expected, np.float32).tolist()


@settings(deadline=None)
@given(streams)
def test_distribution_sums_to_one_and_matches_reading(history):
    history = np.array(history, np.uint32)
    all_words = cache_distribution(history, SIZE)
    each = [cache_probabilities(np.array([word], np.uint32), history)[0] for word in range(SIZE)]
    assert all_words.dtype == np.float32
    assert all_words.tolist() == [float(p) for p in each]
    if not len(history) or history[-1] == NONE:
        assert (all_words == -1).all()
    else:
        assert all_words.sum() == pytest.approx(1, abs=1e-6)


@settings(deadline=None)
@given(streams, streams, st.integers(1, 10))
def test_cache_read_in_two_parts_equals_one_pass(first, second, window):
    first, second = np.array(first, np.uint32), np.array(second, np.uint32)
    empty = np.full(window, NONE, np.uint32)
    state = np.concatenate([empty, first])[-window:]
    parts = [cache_probabilities(first, empty), cache_probabilities(second, state)]
    assert np.concatenate(parts).tolist() == cache_probabilities(np.concatenate([first, second]), empty).tolist()


def test_cache_probabilities_equal_hand_computation():
    history = np.array([NONE, NONE, 3, 1], np.uint32)
    assert cache_probabilities(np.array([3, 1, 1, 2, 1], np.uint32), history).tolist() == [
        np.float32(share) for share in [1 / 2, 1 / 3, 2 / 4, 0 / 4, 2 / 4]
    ]
    assert cache_distribution(history, 4).tolist() == [0, 0.5, 0, 0.5]


def test_cache_distribution_with_id_outside_vocabulary_raises():
    with pytest.raises(ValueError, match="Id 7"):
        cache_distribution(np.array([1, 7], np.uint32), 7)
