"""Taking n-grams out of a trie: what is left moves together, and children and links are numbered anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nextword.compiled import compiled
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
