"""A cache of what was just read: words that came lately come again.

Kuhn & De Mori (1990), A Cache-Based Natural Language Model for Speech Recognition; theirs keeps a cache for each part
of speech, this is the common one without. p(w) = the share of w among the last `window` ids; a mixture with an n-gram
makes a model of it. The state is those ids themselves, padded on the left with `NONE`. Every id enters the cache, the
boundary and `<unk>` too: they are predicted like any other, so that the cache is a distribution over all of them, and
each has about its usual share. `NONE` empties it, as it empties the context of an n-gram.
"""

from __future__ import annotations

import numpy as np

from nextword.compiled import compiled
from nextword.ngrams.trie import NONE


def cache_read(ids: np.ndarray, history: np.ndarray) -> np.ndarray:
    """(T,) float32: p of each id given the up to M ids before it, of `history` (M,) first and then of `ids` (T,).

    −1 where nothing is in the cache yet, and at `NONE`: there the n-gram has to speak alone. The next state is the
    last M of history and ids together.
    """
    return _read(np.concatenate([history, ids]).astype(np.uint32, copy=False), len(history))


def cache_distribution(history: np.ndarray, size: int) -> np.ndarray:
    """(size,) float32: p of every word after this history; −1 for all where it is empty."""
    after = np.flatnonzero(history == NONE)
    recent = history[after[-1] + 1 :] if len(after) else history
    if not len(recent):
        return np.full(size, -1, np.float32)
    if recent.max() >= size:
        raise ValueError(
            f"Id {recent.max()} is in the history, but the vocabulary has {size:,} words. Give its own ids."
        )
    return (np.bincount(recent, minlength=size) / len(recent)).astype(np.float32)


@compiled
def _read(ids, window):
    largest = np.int64(0)
    for word in ids:
        if word != NONE and word > largest:
            largest = np.int64(word)
    counts = np.zeros(largest + 1, np.int32)
    out = np.empty(len(ids) - window, np.float32)
    oldest = 0  # the cache holds the ids from here on
    for at in range(len(ids)):
        word = ids[at]
        if at >= window:
            out[at - window] = counts[word] / (at - oldest) if at > oldest and word != NONE else -1
        if word == NONE:
            for gone in range(oldest, at):
                counts[ids[gone]] -= 1
            oldest = at + 1
            continue
        counts[word] += 1
        if at - oldest == window:
            counts[ids[oldest]] -= 1
            oldest += 1
    return out
