"""The back-off model that every estimator makes and every file format holds, as plain arrays.

    level 0 (unigrams)   a            b            c
                         |  \\          |
    level 1 (bigrams)   a b  a c      b c          children of a node lie side by side, words ascending
                         |             |
    level 2 (trigrams)  a b c         b c a

Level k holds the n-grams of k + 1 words, sorted by their words from the first to the last. A node is an n-gram; its
children are the n-grams that go on from it by one word. `links` lead to the same n-gram without its first word, one
level up: the place to go on from when a context has not been seen.

    p(w | h) = exp(log_probs[h w])                            where h w is in the trie
             = exp(log_backoffs[h]) · p(w | h without its first word)   where it is not; a missing h has back-off 1

Unigrams are dense: node w of level 0 is word w. The `boundary` is one id with two meanings: as the first word of an
n-gram it is the beginning of a sentence (`<s>`, never predicted), as the last its end (`</s>`, after which no n-gram
goes on). It never stands in between, and every context begins anew after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NODE = np.uint32  # ids of words and of nodes within a level
NONE = 0xFFFFFFFF  # no word: in a stream of ids, forget all before; in a table, nothing here


@dataclass
class Level:
    words: np.ndarray  # (U,) uint32: the last word of each n-gram
    links: np.ndarray | None  # (U,) uint32: the n-gram without its first word, in the level before; None for unigrams
    first: np.ndarray | None  # (U + 1,) uint32: where the children of each begin in the next level; None for the last
    log_probs: np.ndarray  # (U,) float32, natural logarithm
    log_backoffs: np.ndarray | None  # (U,) float32, natural logarithm; None for the last level

    def __len__(self) -> int:
        return len(self.words)


@dataclass
class Trie:
    levels: Sequence[Level]
    boundary: int
    facts: dict[str, Any] = field(default_factory=dict)  # how it was estimated, in JSON's terms

    @property
    def order(self) -> int:
        return len(self.levels)

    @property
    def size(self) -> int:
        """Words in the vocabulary."""
        return len(self.levels[0])

    def __len__(self) -> int:
        """Stored n-grams of all orders."""
        return sum(len(level) for level in self.levels)

    def parents(self, k: int) -> np.ndarray:
        """For each node of level k ≥ 1, the node of level k − 1 that it is a child of."""
        first = self.levels[k - 1].first
        assert first is not None
        return np.repeat(np.arange(len(first) - 1, dtype=NODE), np.diff(first))

    def spelled(self, k: int) -> np.ndarray:
        """(U, k + 1): every n-gram of level k as its words."""
        columns = [self.levels[k].words]
        node = None
        for level in range(k, 0, -1):
            parents = self.parents(level)
            node = parents if node is None else parents[node]
            columns.append(self.levels[level - 1].words[node])
        return np.stack(columns[::-1], axis=1)
