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

Taking n-grams out of a trie: what is left moves together, and children and links are numbered anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.jit import compiled, spread
from nextword.ngrams.trie import NODE, Level, Trie


def drop(trie: Trie, keep: Sequence[np.ndarray]) -> Trie:
    """The trie of the n-grams that `keep` (a mask for each level) marks, as a copy of the same order and facts.

    It has to stay closed: all unigrams stay, and so do the parent and the link of whatever stays. Probabilities and
    back-offs are taken over as they are; whether they still sum to one is for the caller to see to. A level may end
    up empty.
    """
    _check(trie, keep)
    levels = []
    above: np.ndarray | None = None
    here: np.ndarray | None = _places(keep[0])
    for k, (level, mask) in enumerate(zip(trie.levels, keep, strict=True)):
        below, first = None, None
        if level.first is not None:
            below = _places(keep[k + 1])
            first = np.append(_moved(level.first, mask, below), below[-1])
        links = None if level.links is None else _moved(level.links, mask, above)
        backoffs = None if level.log_backoffs is None else level.log_backoffs[mask]
        levels.append(Level(level.words[mask], links, first, level.log_probs[mask], backoffs))
        above, here = here, below
    return Trie(levels, trie.boundary, dict(trie.facts))


def _check(trie: Trie, keep: Sequence[np.ndarray]) -> None:
    lengths, given = [len(level) for level in trie.levels], [len(mask) for mask in keep]
    if given != lengths:
        raise ValueError(f"Masks of lengths {given} were given for levels of {lengths} n-grams. Give one mask a level.")
    if not keep[0].all():
        raise ValueError(f"{np.sum(~keep[0]):,} unigrams were to go, but node w of level 0 is word w. Keep all.")
    for k in range(1, trie.order):
        wrong = _unclosed(keep[k], trie.levels[k - 1].first, trie.levels[k].links, keep[k - 1])
        if wrong >= 0:
            words = trie.spelled(k)[wrong].tolist()
            raise ValueError(
                f"The n-gram {words} was to stay, but not the one without its last or its first word. Keep both."
            )


def _places(mask: np.ndarray) -> np.ndarray:
    """(U + 1,): how many nodes stay before each, which is the new number of each that stays; last, how many in all."""
    out = np.zeros(len(mask) + 1, NODE)
    np.cumsum(mask, dtype=NODE, out=out[1:])
    return out


@compiled
def _moved(nodes, mask, places):
    """The new numbers of the nodes that those that stay point to."""
    out = np.empty(mask.sum(), np.uint32)
    at = 0
    for i in range(len(mask)):
        if mask[i]:
            out[at] = places[nodes[i]]
            at += 1
    return out


@compiled
def _unclosed(mask, first, links, mask_before):
    """The first node that stays without its parent or its link; −1 if there is none."""
    for parent in range(len(first) - 1):
        for node in range(np.int64(first[parent]), np.int64(first[parent + 1])):
            if mask[node] and not (mask_before[parent] and mask_before[links[node]]):
                return node
    return -1


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
