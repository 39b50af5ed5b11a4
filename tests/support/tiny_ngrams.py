"""Back-off models as dictionaries, small enough for the simplest algorithms. Id 0 is the boundary."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from nextword.ngrams.trie import NODE, Level, Trie


@dataclass
class Plain:
    """p and back-off of each n-gram (a tuple of words)."""

    order: int
    size: int
    probs: dict[tuple[int, ...], float]
    backoffs: dict[tuple[int, ...], float]

    def p(self, word: int, context: tuple[int, ...]) -> float:
        if (*context, word) in self.probs:
            return self.probs[(*context, word)]
        return self.backoffs.get(context, 1.0) * self.p(word, context[1:])

    def distribution(self, context: tuple[int, ...]) -> list[float]:
        return [self.p(word, context) for word in range(self.size)]

    def contexts(self) -> list[tuple[int, ...]]:
        """All contexts of a word; the boundary can only come first."""
        return [(), *(gram for gram in self.probs if len(gram) < self.order and 0 not in gram[1:])]


def estimate_witten_bell(sentences: list[list[int]], order: int, size: int) -> Plain:
    """Interpolated Witten-Bell: p(w | h) = (c(h w) + t(h) p(w | h')) / (c(h) + t(h)), t(h) = distinct words after h."""
    counts: Counter[tuple[int, ...]] = Counter()
    for words in sentences:
        line = [0, *words, 0]
        for end in range(1, len(line)):
            counts.update(tuple(line[begin : end + 1]) for begin in range(max(0, end - order + 1), end + 1))
    after: dict[tuple[int, ...], list[int]] = {}
    for gram, count in counts.items():
        after.setdefault(gram[:-1], []).append(count)
    share = {h: len(seen) / (sum(seen) + len(seen)) for h, seen in after.items()}  # of the shorter context
    model = Plain(order, size, {}, {h: lower for h, lower in share.items() if h})
    for word in range(size):
        model.probs[(word,)] = (1 - share[()]) * counts[(word,)] / sum(after[()]) + share[()] / size
    for gram in sorted(counts, key=len):
        if len(gram) > 1:
            h = gram[:-1]
            seen = (1 - share[h]) * counts[gram] / sum(after[h])
            model.probs[gram] = seen + share[h] * model.probs[gram[1:]]
    return model


def to_trie(model: Plain) -> Trie:
    grams = [sorted(gram for gram in model.probs if len(gram) == n) for n in range(1, model.order + 1)]
    places = [{gram: at for at, gram in enumerate(level)} for level in grams]
    levels = []
    for k, level in enumerate(grams):
        links = first = backoffs = None
        if k:
            links = np.array([places[k - 1][gram[1:]] for gram in level], NODE)
        if k < model.order - 1:
            children = Counter(gram[:-1] for gram in grams[k + 1])
            first = np.cumsum([0, *(children[gram] for gram in level)]).astype(NODE)
            backoffs = np.array([math.log(model.backoffs.get(gram, 1)) for gram in level], np.float32)
        words = np.array([gram[-1] for gram in level], NODE)
        levels.append(Level(words, links, first, np.log([model.probs[g] for g in level]).astype(np.float32), backoffs))
    return Trie(levels, 0)


def to_plain(trie: Trie) -> Plain:
    model = Plain(trie.order, trie.size, {}, {})
    for k, level in enumerate(trie.levels):
        for at, gram in enumerate(map(tuple, trie.ngrams(k).tolist())):
            model.probs[gram] = math.exp(float(level.log_probs[at]))
            if level.log_backoffs is not None:
                model.backoffs[gram] = math.exp(float(level.log_backoffs[at]))
    return model
