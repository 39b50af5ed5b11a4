"""Relative-entropy pruning: drop the n-grams that the model hardly misses.

Stolcke (1998), "Entropy-based Pruning of Backoff Language Models". For each n-gram h w, with h′ = h without its first
word, the model is compared with the same model without the n-gram. There w is predicted through the back-off of h,
which grows from α to α′ (sums over the words stored after h):

    α′ = (1 − Σ p(v | h) + p(w | h)) / (1 − Σ p(v | h′) + p(w | h′))
    D  = p(h) · {p(w | h) · [ln p(w | h) − ln p(w | h′) − ln α′] + (1 − Σ p(v | h)) · [ln α − ln α′]}

The n-gram is dropped if exp(D) − 1 < threshold: the perplexity on text as the model expects it rises by less than that
fraction. As in the paper, each n-gram is judged as if it were dropped alone. What a context loses with several may be
more than the sum, above all if it stores nearly every word (small alphabets): there α′ gives back to each alone just
what it had. p(h) follows from the chain rule over the model's own probabilities. The beginning of a sentence is never
predicted; a context that opens with it starts from p(`</s>`), because each sentence has one of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from nextword.core.jit import jit, run_parallel
from nextword.ngrams.trie import NODE, Level, Trie


def prune_by_entropy(trie: Trie, threshold: float) -> Trie:
    """Drop the n-grams whose loss raises the perplexity by less than `threshold` (1e-8 is mild).

    Orders are pruned from the highest down. Unigrams always stay, and so do the parent and the link of every n-gram
    that stays. Stored probabilities do not change. A context that loses some of its words gets the back-off that makes
    it sum to one again; one that loses all gets back-off weight 1. With a threshold of 0 nothing is dropped, not even
    n-grams that cost nothing. The order stays, with empty levels if need be.
    """
    levels = list(trie.levels)
    keep = [np.ones(len(level), np.bool_) for level in levels]
    needed = np.zeros(len(levels[-1]), np.bool_)  # parents and links of n-grams of the next order that stay
    for k in range(trie.order - 1, 0, -1):
        above, level = trie.levels[k - 1], trie.levels[k]
        assert above.first is not None
        assert above.log_backoffs is not None
        new_backoffs = above.log_backoffs.copy()
        stored = (above.first, level.log_probs, level.links, above.log_probs, above.log_backoffs)
        rest = (_log_histories(trie, k - 1), needed, float(threshold), keep[k], new_backoffs)
        run_parallel(len(above), partial(_prune_contexts, *stored, *rest))
        levels[k - 1] = replace(above, log_backoffs=new_backoffs)
        needed = _find_needed(keep[k], above.first, level.links)
    out = drop_ngrams(replace(trie, levels=levels), keep)
    out.facts |= {"entropy": float(threshold), "pruned": [int(len(mask) - mask.sum()) for mask in keep]}
    return out


def _log_histories(trie: Trie, k: int) -> np.ndarray:
    """ln p(h) of the n-grams of level k as histories; computed from level 0 each time, to hold only one level."""
    out = trie.levels[0].log_probs.astype(np.float64)
    for above, level in zip(trie.levels[:k], trie.levels[1 : k + 1], strict=True):
        out = _extend_histories(out, above.first, level.log_probs)
    return out


@jit
def _extend_histories(histories, first, log_probs):
    out = np.empty(len(log_probs), np.float64)
    for parent in range(len(histories)):
        for node in range(np.int64(first[parent]), np.int64(first[parent + 1])):
            out[node] = histories[parent] + log_probs[node]
    return out


@jit
def _find_needed(keep, first, links):
    """Which nodes one level up are the parent or the link of a node that stays."""
    out = np.zeros(len(first) - 1, np.bool_)
    for parent in range(len(out)):
        for node in range(np.int64(first[parent]), np.int64(first[parent + 1])):
            if keep[node]:
                out[parent] = True
                out[links[node]] = True
    return out


@jit
def _prune_contexts(
    first, log_probs, links, lower, backoffs, histories, needed, threshold, keep, new_backoffs, begin, end
):
    """Decide which words after the contexts of a range stay; `lower` are the log probabilities one level up."""
    for context in range(begin, end):
        start, stop = np.int64(first[context]), np.int64(first[context + 1])
        left, beneath = 1.0, 1.0  # mass of all other words, here and in the shorter context
        for node in range(start, stop):
            left -= np.exp(np.float64(log_probs[node]))
            beneath -= np.exp(np.float64(lower[links[node]]))
        # Rounding may leave a negative mass. From here on both only grow, so that nothing more can cancel.
        log_backoff = np.float64(backoffs[context])
        left, beneath = max(left, 0.0) if log_backoff > -np.inf else 0.0, max(beneath, 0.0)
        left_now, beneath_now, gone = left, beneath, 0
        for node in range(start, stop):
            log_p, log_q = np.float64(log_probs[node]), np.float64(lower[links[node]])
            p, q = np.exp(log_p), np.exp(log_q)
            if needed[node] or p == 0 or q == 0:  # a word that the shorter context cannot predict stays
                continue
            renewal = np.log(left + p) - np.log(beneath + q)
            loss = p * (log_p - log_q - renewal)
            if left > 0:
                loss += left * (log_backoff - renewal)
            if np.expm1(max(loss, 0.0) * np.exp(histories[context])) < threshold:
                keep[node] = False
                left_now, beneath_now, gone = left_now + p, beneath_now + q, gone + 1
        if gone:
            new_backoffs[context] = np.log(left_now) - np.log(beneath_now) if gone < stop - start else 0.0


# ------------------------------------------------------------------------------------------------ dropping n-grams


def drop_ngrams(trie: Trie, keep: Sequence[np.ndarray]) -> Trie:
    """A copy of the trie with the n-grams that `keep` (a mask for each level) marks; children and links are renumbered.

    The caller must keep all unigrams, and the parent and the link of every n-gram that stays. Probabilities and
    back-offs are not changed: the caller must make them sum to one. A level may become empty.
    """
    levels = []
    above: np.ndarray | None = None
    numbers: np.ndarray | None = _new_numbers(keep[0])
    for k, (level, mask) in enumerate(zip(trie.levels, keep, strict=True)):
        below, first = None, None
        if level.first is not None:
            below = _new_numbers(keep[k + 1])
            first = np.append(_renumber(level.first, mask, below), below[-1])
        links = None if level.links is None else _renumber(level.links, mask, above)
        backoffs = None if level.log_backoffs is None else level.log_backoffs[mask]
        levels.append(Level(level.words[mask], links, first, level.log_probs[mask], backoffs))
        above, numbers = numbers, below
    return Trie(levels, trie.boundary, dict(trie.facts))


def _new_numbers(mask: np.ndarray) -> np.ndarray:
    """(U + 1,): the new number of each node that stays; the last entry is how many stay."""
    out = np.zeros(len(mask) + 1, NODE)
    np.cumsum(mask, dtype=NODE, out=out[1:])
    return out


@jit
def _renumber(nodes, mask, places):
    """The new numbers of the nodes that remaining nodes point to."""
    out = np.empty(mask.sum(), np.uint32)
    at = 0
    for i in range(len(mask)):
        if mask[i]:
            out[at] = places[nodes[i]]
            at += 1
    return out
