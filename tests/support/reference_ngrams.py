"""Look up probabilities in a trie directly from the definition: slow, but short enough to verify by reading."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nextword.ngrams.trie import Trie


def find_node(trie: Trie, ngram: Sequence[int]) -> int | None:
    """Return the node of an n-gram, or None."""
    node = int(ngram[0])
    for k, word in enumerate(ngram[1:]):
        first = trie.levels[k].first
        assert first is not None
        children = range(int(first[node]), int(first[node + 1]))
        node = next((c for c in children if trie.levels[k + 1].words[c] == word), -1)
        if node < 0:
            return None
    return node


def log_prob(trie: Trie, context: Sequence[int], word: int) -> float:
    """ln p(word | context). The context may have any length; words before its last boundary are ignored."""
    context = list(context)
    if trie.boundary in context:
        last = len(context) - 1 - context[::-1].index(trie.boundary)
        context = context[last:]
    context = context[max(0, len(context) - trie.order + 1) :]
    return _log_prob(trie, context, word)


def _log_prob(trie: Trie, context: list[int], word: int) -> float:
    node = find_node(trie, [*context, word])
    if node is not None:
        return float(trie.levels[len(context)].log_probs[node])
    seen = find_node(trie, context)
    level = trie.levels[len(context) - 1]
    assert level.log_backoffs is not None
    backoff = 0.0 if seen is None else float(level.log_backoffs[seen])
    return backoff + _log_prob(trie, context[1:], word)


def log_probs(trie: Trie, ids: Sequence[int]) -> list[float]:
    """Compute ln p of each id given all previous ids."""
    return [log_prob(trie, ids[:t], ids[t]) for t in range(len(ids))]


def assert_sound(trie: Trie) -> None:
    """Assert the invariants of trie.py: sorted n-grams, all words in the first level, correct links."""
    assert np.array_equal(trie.levels[0].words, np.arange(trie.size))
    for k, level in enumerate(trie.levels):
        last = k == trie.order - 1
        assert (level.first is None) == (level.log_backoffs is None) == last
        assert (level.links is None) == (k == 0)
        assert level.words.dtype == np.uint32
        assert level.log_probs.dtype == np.float32
        assert len(level.log_probs) == len(level)
        if not last:
            assert level.first is not None
            assert level.log_backoffs is not None
            assert level.first.dtype == np.uint32
            assert len(level.first) == len(level) + 1
            assert len(level.log_backoffs) == len(level)
            assert level.first[0] == 0
            assert level.first[-1] == len(trie.levels[k + 1])
        if k:
            rows = trie.ngrams(k)
            assert [*map(tuple, rows.tolist())] == sorted(set(map(tuple, rows.tolist())))
            assert np.array_equal(rows[:, 1:], trie.ngrams(k - 1)[level.links])
            assert not (rows[:, 1:-1] == trie.boundary).any()
