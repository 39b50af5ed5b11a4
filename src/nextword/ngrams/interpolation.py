"""Linear interpolation of models, Σ λ p, with the weights that suit held-out text best.

Jelinek & Mercer (1980). Expectation-maximisation: how much of each token a model accounts for under the present
weights is, on average over the tokens, its next weight. The likelihood is concave in the weights, so that there is
one best value; and with g = the mean of p_j / Σ λ p over the tokens, it lies at most ln max g_j above the present one
(Jensen's inequality), which tells when to stop.

A cache of what was just read: words that came lately come again.

Kuhn & De Mori (1990), A Cache-Based Natural Language Model for Speech Recognition; theirs keeps a cache for each part
of speech, this is the common one without. p(w) = the share of w among the last `window` ids; a mixture with an n-gram
makes a model of it. The state is those ids themselves, padded on the left with `NONE`. Every id enters the cache, the
boundary and `<unk>` too: they are predicted like any other, so that the cache is a distribution over all of them, and
each has about its usual share. `NONE` empties it, as it empties the context of an n-gram.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.jit import compiled
from nextword.ngrams.trie import NONE


class Fitted(NamedTuple):
    weights: np.ndarray  # (J,) float64, sum to one
    history: list[float]  # mean nats of a token, −ln Σ λ p, at the start and after each round
    left_out: int  # tokens that no model can predict, of no account to the rest


def em(log_probs: np.ndarray, start: np.ndarray | None = None, tolerance: float = 1e-6, most: int = 200) -> Fitted:
    """Weights of J models from what each gives to N held-out tokens (J, N), starting from equal ones.

    Ends within `tolerance` nats a token of the best weights, or after `most` rounds.
    """
    if log_probs.ndim != 2 or not log_probs.size:
        raise NextwordError(f"Weights need log probabilities of shape (models, tokens), but got {log_probs.shape}.")
    if np.isnan(log_probs).any() or np.isposinf(log_probs).any():
        raise NextwordError("Log probabilities of held-out tokens hold NaN or +∞. Look for a damaged model.")
    weights = _positive(start, len(log_probs))
    best = log_probs.max(axis=0)
    known = best > -np.inf
    if not known.any():
        raise NextwordError(f"None of {len(known):,} held-out tokens has a probability in any model. Give other text.")
    best = best[known].astype(np.float64)
    relative = np.exp(log_probs[:, known] - best)  # to the best model of each token, so that none underflows everywhere
    history: list[float] = []
    while True:
        mixture = weights @ relative
        history.append(float(-np.mean(np.log(mixture) + best)))
        growth = (relative @ (1 / mixture)) / len(best)
        if len(history) > most or np.log(growth.max()) < tolerance:
            return Fitted(weights, history, int(len(known) - len(best)))
        weights = weights * growth
        weights /= weights.sum()


def mixed(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """ln Σ λ p over the first axis, in the type of `log_probs`; −∞ where no model of positive weight has any p."""
    with np.errstate(divide="ignore"):
        terms = log_probs + np.log(weights).astype(log_probs.dtype).reshape(-1, *[1] * (log_probs.ndim - 1))
        best = terms.max(axis=0)
        best[np.isneginf(best)] = 0
        return best + np.log(np.exp(terms - best).sum(axis=0))


def _positive(start: np.ndarray | None, models: int) -> np.ndarray:
    """A weight of zero would stay zero, and could make a token impossible."""
    weights = np.full(models, 1 / models) if start is None else np.asarray(start, np.float64)
    if weights.shape != (models,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise NextwordError(
            f"The starting weights are {weights.tolist()}; expected {models} positive numbers, one a model."
        )
    return weights / weights.sum()


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
