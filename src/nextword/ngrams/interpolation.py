"""Linear interpolation of models, Σ λ p, with the weights that fit held-out text best; and the cache model.

Jelinek & Mercer (1980). Expectation-maximization: the share of each token that a model accounts for under the current
weights is, averaged over the tokens, its next weight. The likelihood is concave in the weights, so there is one best
value. With g = the mean of p_j / Σ λ p over the tokens, that value is at most ln max g_j better than the current one
(Jensen's inequality), which tells when to stop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nextword.core.errors import DataError
from nextword.core.jit import jit
from nextword.ngrams.trie import NONE


class FittedWeights(NamedTuple):
    weights: np.ndarray  # (J,) float64, sum to one
    history: list[float]  # mean nats per token, −ln Σ λ p, at the start and after each round
    left_out: int  # tokens to which no model gives any probability


def fit_weights(log_probs: np.ndarray, tolerance: float = 1e-6, most: int = 200) -> FittedWeights:
    """Fit the weights of J models to their log probabilities of N held-out tokens (J, N), from equal weights on.

    Ends within `tolerance` nats per token of the best weights, or after `most` rounds.
    """
    weights = np.full(len(log_probs), 1 / len(log_probs))
    best = log_probs.max(axis=0)
    known = best > -np.inf
    if not known.any():
        raise DataError(f"No model gives any of {len(known):,} held-out tokens a probability. Use another text.")
    best = best[known].astype(np.float64)
    # Relative to the best model of each token, so that no token underflows in all models
    relative = np.exp(log_probs[:, known] - best)
    history: list[float] = []
    while True:
        mixture = weights @ relative
        history.append(float(-np.mean(np.log(mixture) + best)))
        growth = (relative @ (1 / mixture)) / len(best)
        if len(history) > most or np.log(growth.max()) < tolerance:
            return FittedWeights(weights, history, int(len(known) - len(best)))
        weights = weights * growth
        weights /= weights.sum()


# ------------------------------------------------------------------------------------------------ the cache model

# Kuhn & De Mori (1990), "A Cache-Based Natural Language Model for Speech Recognition": recent words are likely to occur
# again. Theirs has a cache per part of speech; this is the common one without. p(w) = the share of w among the last
# `window` ids; mixed with an n-gram it makes a model. The state is those ids, padded on the left with NONE. Every id
# enters the cache, also the boundary and <unk>: they are predicted like any other, so that the cache is a distribution
# over all ids. NONE empties the cache, as it resets the context of an n-gram.


def cache_probabilities(ids: np.ndarray, history: np.ndarray) -> np.ndarray:
    """(T,) float32: p of each id given the up to M ids before it, of `history` (M,) first and then of `ids` (T,).

    −1 if the cache is empty, and at NONE: there the n-gram model counts alone. The next state is the last M of history
    and ids together.
    """
    return _cache_shares(np.concatenate([history, ids]).astype(np.uint32, copy=False), len(history))


def cache_distribution(history: np.ndarray, size: int) -> np.ndarray:
    """(size,) float32: p of every word after this history; −1 for all if it is empty."""
    after = np.flatnonzero(history == NONE)
    recent = history[after[-1] + 1 :] if len(after) else history
    if not len(recent):
        return np.full(size, -1, np.float32)
    if recent.max() >= size:
        raise ValueError(f"Id {recent.max()} in the history is outside the vocabulary of {size:,} words.")
    return (np.bincount(recent, minlength=size) / len(recent)).astype(np.float32)


@jit
def _cache_shares(ids, window):
    """The share of each id, from `window` on, among the up to `window` ids before it."""
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
