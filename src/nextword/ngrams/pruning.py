"""Relative-entropy pruning: leaving out the n-grams that the model hardly misses.

Stolcke (1998), Entropy-based Pruning of Backoff Language Models. For each n-gram h w, with h' = h without its first
word, the model is compared with the same model without it, in which w is predicted through the back-off of h, which
grows from α to α′ (sums over the words stored after h):

    α′ = (1 − Σ p(v | h) + p(w | h)) / (1 − Σ p(v | h') + p(w | h'))
    D  = p(h) · {p(w | h) · [ln p(w | h) − ln p(w | h') − ln α′] + (1 − Σ p(v | h)) · [ln α − ln α′]}

It goes if exp(D) − 1 < threshold: the perplexity on text as the model expects it rises by less than that share. As in
the paper each is judged as if it went alone; what a context loses with several may be more than their sum, and most
so where it stores nearly every word (small alphabets): there α′ gives back to each alone just what it had.
p(h) is the chain rule over the model's own probabilities. The beginning of a sentence is never predicted; a context
that opens with it starts from p(`</s>`), as each sentence has one of both.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from nextword.compiled import compiled, spread
from nextword.contract_errors import NextwordError
from nextword.ngrams.compaction import drop
from nextword.ngrams.trie import Trie


def prune(trie: Trie, threshold: float) -> Trie:
    """The trie without the n-grams whose loss raises the perplexity by less than `threshold` (1e-8 is mild).

    Orders are pruned from the highest down. Unigrams always stay; so do n-grams that a kept longer one goes on from
    (its parent) or leads to (its link): the trie stays closed, and stored probabilities stay what they were. Contexts
    that lose some of their words get the back-off that makes them sum to one again, those that lose all back-off 1,
    and those that lose none keep the one they have. With a threshold of 0 nothing goes, not even what costs nothing.
    The order stays too, if need be with empty levels.
    """
    if not threshold >= 0:
        raise NextwordError(f"The pruning threshold is {threshold}, but must be 0 (prune nothing) or more: try 1e-8.")
    levels = list(trie.levels)
    keep = [np.ones(len(level), np.bool_) for level in levels]
    held = np.zeros(len(levels[-1]), np.bool_)  # what kept n-grams of the next order need
    for k in range(trie.order - 1, 0, -1):
        above, level = trie.levels[k - 1], trie.levels[k]
        assert above.first is not None
        assert above.log_backoffs is not None
        renewed = above.log_backoffs.copy()
        stored = (above.first, level.log_probs, level.links, above.log_probs, above.log_backoffs)
        rest = (_histories(trie, k - 1), held, float(threshold), keep[k], renewed)
        spread(len(above), partial(_judge, *stored, *rest))
        levels[k - 1] = replace(above, log_backoffs=renewed)
        held = _needed(keep[k], above.first, level.links)
    out = drop(replace(trie, levels=levels), keep)
    out.facts |= {"entropy": float(threshold), "pruned": [int(len(mask) - mask.sum()) for mask in keep]}
    return out


def _histories(trie: Trie, k: int) -> np.ndarray:
    """ln p(h) of the n-grams of level k as histories. Each level is made anew from the first, so as to hold but one."""
    out = trie.levels[0].log_probs.astype(np.float64)
    for above, level in zip(trie.levels[:k], trie.levels[1 : k + 1], strict=True):
        out = _extended(out, above.first, level.log_probs)
    return out


@compiled
def _extended(histories, first, log_probs):
    out = np.empty(len(log_probs), np.float64)
    for parent in range(len(histories)):
        for node in range(np.int64(first[parent]), np.int64(first[parent + 1])):
            out[node] = histories[parent] + log_probs[node]
    return out


@compiled
def _needed(keep, first, links):
    """Which nodes of the level before are parent or link of a node that stays."""
    out = np.zeros(len(first) - 1, np.bool_)
    for parent in range(len(out)):
        for node in range(np.int64(first[parent]), np.int64(first[parent + 1])):
            if keep[node]:
                out[parent] = True
                out[links[node]] = True
    return out


@compiled
def _judge(first, log_probs, links, lower, backoffs, histories, held, threshold, keep, renewed, begin, end):
    """Decide on the words after each context of a range; `lower` are the log probabilities that links lead to."""
    for context in range(begin, end):
        start, stop = np.int64(first[context]), np.int64(first[context + 1])
        left, beneath = 1.0, 1.0  # what is left to other words here and in the shorter context
        for node in range(start, stop):
            left -= np.exp(np.float64(log_probs[node]))
            beneath -= np.exp(np.float64(lower[links[node]]))
        # Rounding may leave less than nothing. From here on the two only grow, so that nothing more can cancel
        log_backoff = np.float64(backoffs[context])
        left, beneath = max(left, 0.0) if log_backoff > -np.inf else 0.0, max(beneath, 0.0)
        left_now, beneath_now, gone = left, beneath, 0
        for node in range(start, stop):
            log_p, log_q = np.float64(log_probs[node]), np.float64(lower[links[node]])
            p, q = np.exp(log_p), np.exp(log_q)
            if held[node] or p == 0 or q == 0:  # what the shorter context cannot predict at all stays
                continue
            renewal = np.log(left + p) - np.log(beneath + q)
            loss = p * (log_p - log_q - renewal)
            if left > 0:
                loss += left * (log_backoff - renewal)
            if np.expm1(max(loss, 0.0) * np.exp(histories[context])) < threshold:
                keep[node] = False
                left_now, beneath_now, gone = left_now + p, beneath_now + q, gone + 1
        if gone:
            renewed[context] = np.log(left_now) - np.log(beneath_now) if gone < stop - start else 0.0
