"""Pruning equals the simplest implementation, compared on entire distributions and rebuilt models."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nextword.ngrams.pruning import drop_ngrams, prune_by_entropy
from tests.support.tiny_ngrams import Plain, estimate_witten_bell, to_plain, to_trie


@st.composite
def models(draw):
    size = draw(st.integers(2, 5))
    words = st.lists(st.integers(1, size - 1), max_size=6)
    return estimate_witten_bell(draw(st.lists(words, min_size=1, max_size=8)), draw(st.integers(1, 4)), size)


def without(model: Plain, gone: set[tuple[int, ...]]) -> Plain:
    """The model without some n-grams; back-offs from the mass that the words not stored have in the shorter context."""
    probs = {gram: p for gram, p in model.probs.items() if gram not in gone}
    backoffs = {}
    for h in sorted(model.contexts(), key=len)[1:]:
        stored = {w for w in range(model.size) if (*h, w) in probs}
        shorter = Plain(model.order, model.size, probs, backoffs).distribution(h[1:])
        others = [shorter[w] for w in range(model.size) if w not in stored]
        backoffs[h] = (1 - sum(probs[(*h, w)] for w in stored)) / sum(others) if stored and others else 1.0
    return Plain(model.order, model.size, probs, backoffs)


def history(model: Plain, context: tuple[int, ...]) -> float:
    return math.prod(model.p(word, context[:at]) for at, word in enumerate(context))


def rise(model: Plain, gram: tuple[int, ...]) -> float:
    """exp(D) − 1 for the divergence of the model without this n-gram from the model with it, after its context."""
    h = gram[:-1]
    pairs = zip(model.distribution(h), without(model, {gram}).distribution(h), strict=True)
    return math.expm1(history(model, h) * sum(p * math.log(p / q) for p, q in pairs))


def prunable(model: Plain, rises: dict[tuple[int, ...], float], threshold: float) -> set[tuple[int, ...]]:
    gone: set[tuple[int, ...]] = set()
    for n in range(model.order, 1, -1):
        kept = [gram for gram in model.probs if len(gram) == n + 1 and gram not in gone]
        needed = {gram[:-1] for gram in kept} | {gram[1:] for gram in kept}
        gone |= {gram for gram in rises if len(gram) == n and rises[gram] < threshold and gram not in needed}
    return gone


def between(rises: dict[tuple[int, ...], float], share: float) -> float:
    """A threshold that no n-gram comes near to, so that rounding cannot decide; about `share` of them lie below."""
    edges = [1e-6, *sorted(value for value in rises.values() if value > 1e-6), 1.0]
    gaps = [(low, high) for low, high in pairwise(edges) if high > 1.01 * low]
    assume(gaps)
    low, high = gaps[int(share * (len(gaps) - 1))]
    return math.sqrt(low * high)


@settings(max_examples=60, deadline=None)
@given(models(), st.floats(0, 1))
def test_entropy_pruning_equals_brute_force(model, share):
    trie = to_trie(model)
    model = to_plain(trie)  # as rounded
    rises = {gram: rise(model, gram) for gram in model.probs if len(gram) > 1}
    threshold = between(rises, share)
    gone = prunable(model, rises, threshold)
    pruned = prune_by_entropy(trie, threshold)
    expected, found = without(model, gone), to_plain(pruned)
    assert found.probs == expected.probs
    for h, backoff in found.backoffs.items():
        lost = any(gram[:-1] == h for gram in gone)
        others = [w for w in range(model.size) if (*h, w) not in found.probs]
        if not lost:
            assert backoff == model.backoffs[h]
        elif others:
            assert backoff == pytest.approx(expected.backoffs[h], rel=1e-6, abs=1e-6)
    counts = [sum(len(gram) == n for gram in gone) for n in range(1, model.order + 1)]
    assert pruned.facts == {"entropy": threshold, "pruned": counts}


@settings(max_examples=60, deadline=None)
@given(models(), st.floats(1e-9, 0.1))
def test_pruned_model_is_closed_and_sums_to_one(model, threshold):
    pruned = prune_by_entropy(to_trie(model), threshold)
    found = to_plain(pruned)
    for h in found.contexts():
        assert sum(found.distribution(h)) == pytest.approx(1, abs=2e-6)
    again = to_trie(found)  # sorts and links by itself
    for level, other in zip(pruned.levels, again.levels, strict=True):
        assert np.array_equal(level.words, other.words)
        for mine, theirs in [(level.first, other.first), (level.links, other.links)]:
            assert (mine is None) == (theirs is None)
            assert mine is None or (mine.dtype == np.uint32 and np.array_equal(mine, theirs))


@settings(max_examples=20, deadline=None)
@given(models())
def test_pruning_threshold_zero_keeps_all_and_infinity_keeps_unigrams(model):
    trie = to_trie(model)
    same, bare = prune_by_entropy(trie, 0.0), prune_by_entropy(trie, math.inf)
    for level, other in zip(trie.levels, same.levels, strict=True):
        assert np.array_equal(level.words, other.words)
        assert np.array_equal(level.log_probs, other.log_probs)
        assert level.log_backoffs is None or np.array_equal(level.log_backoffs, other.log_backoffs)
    assert [len(level) for level in bare.levels] == [model.size] + [0] * (model.order - 1)
    if model.order > 1:
        assert not bare.levels[0].log_backoffs.any()


@settings(max_examples=40, deadline=None)
@given(models(), st.data())
def test_drop_keeps_marked_ngrams(model, data):
    trie = to_trie(model)
    wanted = data.draw(st.sets(st.sampled_from(sorted(model.probs))))
    kept = {(word,) for word in range(model.size)}
    for gram in wanted:  # with everything inside it, which closes the set
        kept |= {gram[i:j] for i in range(len(gram)) for j in range(i + 1, len(gram) + 1)}
    spelled = [list(map(tuple, trie.ngrams(k).tolist())) for k in range(trie.order)]
    keep = [np.array([gram in kept for gram in level], bool) for level in spelled]
    found = to_plain(drop_ngrams(trie, keep))
    before = to_plain(trie)
    assert found.probs == {gram: p for gram, p in before.probs.items() if gram in kept}
    assert found.backoffs == {gram: b for gram, b in before.backoffs.items() if gram in kept}
