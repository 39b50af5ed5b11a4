"""Entropy pruning equals hand computation, and is robust to rounding."""

import math

import numpy as np
import pytest

from nextword.ngrams.pruning import prune_by_entropy
from tests.support.tiny_ngrams import Plain, estimate_witten_bell, to_plain, to_trie


def bigrams() -> Plain:
    """Three words of 1/2, 1/4, 1/4; after word 1 the boundary has 5/8, the others 3/8 in total: back-off 3/4."""
    probs = {(0,): 1 / 2, (1,): 1 / 4, (2,): 1 / 4, (1, 0): 5 / 8}
    return Plain(2, 3, probs, {(1,): 3 / 4})


def test_pruning_threshold_equals_hand_computed_divergence() -> None:
    # without it p(· | 1) falls back to 1/2, 1/4, 1/4: D = 1/4 · (5/8 ln 5/4 + 3/8 ln 3/4)
    rise = math.expm1((5 / 8 * math.log(5 / 4) + 3 / 8 * math.log(3 / 4)) / 4)
    assert rise == pytest.approx(0.0079272, rel=1e-4)
    assert len(prune_by_entropy(to_trie(bigrams()), rise * 0.999)) == 4
    pruned = prune_by_entropy(to_trie(bigrams()), rise * 1.001)
    assert to_plain(pruned).probs == pytest.approx({(0,): 1 / 2, (1,): 1 / 4, (2,): 1 / 4})
    assert to_plain(pruned).backoffs == {(0,): 1, (1,): 1, (2,): 1}
    assert pruned.facts == {"entropy": rise * 1.001, "pruned": [0, 1]}


def test_sentence_start_has_the_probability_of_sentence_end() -> None:
    model = bigrams()
    model.probs[(0, 0)], model.backoffs[(0,)] = model.probs.pop((1, 0)), model.backoffs.pop((1,))
    rise = math.expm1((5 / 8 * math.log(5 / 4) + 3 / 8 * math.log(3 / 4)) / 2)  # p(<s>) = p(</s>) = 1/2
    assert len(prune_by_entropy(to_trie(model), rise * 0.999)) == 4
    assert len(prune_by_entropy(to_trie(model), rise * 1.001)) == 3


def test_context_with_every_word_stays_finite() -> None:
    """With every word in the context no mass is left to back off, so both masses are rounding errors."""
    rng = np.random.default_rng(0)
    size = 200
    weights = {h: rng.dirichlet(np.full(size, 0.3)).clip(1e-12) for h in range(-1, size)}
    probs = {(w,): p / weights[-1].sum() for w, p in enumerate(weights[-1])}
    probs |= {(h, w): p / weights[h].sum() for h in range(size) for w, p in enumerate(weights[h])}
    trie = to_trie(Plain(2, size, probs, {(h,): 0.3 for h in range(size)}))
    pruned = prune_by_entropy(trie, 1e-7)
    assert 0 < len(pruned) < len(trie)
    backoffs = pruned.levels[0].log_backoffs
    assert np.isfinite(backoffs).all()
    actual = to_plain(pruned)
    assert max(abs(sum(actual.distribution((h,))) - 1) for h in range(size)) < 5e-6


def test_negative_mass_from_rounding_is_handled() -> None:
    """Probabilities after word 1 sum to 1 + 2e-9, also in the shorter context; a trigram needs one of them."""
    rare = 1e-9
    probs = {(0,): 1.0, (1,): rare, (2,): rare, (1, 0): 1.0, (1, 1): rare, (1, 2): rare, (2, 1): 0.5, (2, 1, 0): 0.1}
    model = Plain(3, 3, probs, {(1,): 0.3, (2,): 0.5, (2, 1): 0.9 / rare})
    actual = to_plain(prune_by_entropy(to_trie(model), 1e-12))
    assert set(probs) - set(actual.probs) == {(1, 1), (1, 2)}
    assert actual.backoffs[(1,)] == pytest.approx(1)  # 2e-9 over 2e-9


def test_words_impossible_in_the_shorter_context_are_kept() -> None:
    model = bigrams()
    model.probs |= {(1, 0): 1 / 2, (1, 1): 1 / 4, (1, 2): 1 / 4}
    trie = to_trie(model)
    trie.levels[0].log_probs[:] = [-np.inf, *np.log([0.5, 0.5])]
    remaining = to_plain(prune_by_entropy(trie, 1e9))
    assert set(remaining.probs) == {(0,), (1,), (2,), (1, 0)}
    assert sum(remaining.distribution((1,))) == pytest.approx(1)


def test_zero_backoff_gives_no_mass_to_other_words() -> None:
    """As in maximum likelihood, mass below one from rounding is not free for other words."""
    trie = to_trie(bigrams())
    trie.levels[1].log_probs[:] = -1e-7
    trie.levels[0].log_backoffs[1] = -np.inf
    assert len(prune_by_entropy(trie, 0.18)) == 4  # D = 1/4 · ln 2
    assert len(prune_by_entropy(trie, 0.20)) == 3


def test_input_is_not_changed() -> None:
    trie = to_trie(estimate_witten_bell([[1, 2, 1], [2, 2], [1, 2, 3]], 3, 4))
    before = to_plain(trie)
    trie.facts["kind"] = "witten-bell"
    assert prune_by_entropy(trie, 0.01).facts["kind"] == "witten-bell"
    assert to_plain(trie) == before
    assert trie.facts == {"kind": "witten-bell"}
