"""Every estimator in its simplest form: n-grams counted in a dictionary, p(w | h) computed from its definition."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nextword.ngrams.discounts import DISCOUNTS, MAX_COUNT
from nextword.ngrams.estimators import INTERPOLABLE, USES_CONTINUATION_COUNTS, Estimator

Gram = tuple[int, ...]


def split_sentences(ids: Sequence[int], boundary: int) -> list[list[int]]:
    """Split ids into sentences with the boundary before and after each; the last may lack its end."""
    lines = [[boundary]]
    for word in ids:
        lines[-1].append(word)
        if word == boundary:
            lines.append([boundary])
    return lines


def count_ngrams_with_dict(ids: Sequence[int], order: int, boundary: int) -> Counter[Gram]:
    counts: Counter[Gram] = Counter()
    for line in split_sentences(ids, boundary):
        for end in range(1, len(line)):
            for begin in range(max(0, end - order + 1), end + 1):
                counts[tuple(line[begin : end + 1])] += 1
    return counts


@dataclass
class PlainModel:
    how: Estimator
    order: int
    size: int
    boundary: int
    closed: frozenset[int]
    occurs: Counter[Gram]
    counts: dict[Gram, int] = field(init=False)  # the counts that the estimator uses
    after: dict[Gram, list[int]] = field(init=False)
    tables: list[np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        self.interpolated = self.how.kind in INTERPOLABLE and self.how.interpolated
        self.counts = dict(self.occurs)
        if self.how.kind in USES_CONTINUATION_COUNTS:
            before = defaultdict(set)
            for gram in self.occurs:
                before[gram[1:]].add(gram[0])
            for gram in self.occurs:
                if len(gram) < self.order and (len(gram) == 1 or gram[0] != self.boundary):
                    self.counts[gram] = len(before[gram])
        self.after = defaultdict(list)
        for gram in sorted(self.counts):
            self.after[gram[:-1]].append(gram[-1])
        self.tables = [self._table(n) for n in range(1, self.order + 1)]
        self._made: dict[Gram, list[float]] = {}

    def _table(self, n: int) -> np.ndarray:
        if self.how.kind not in DISCOUNTS:
            return np.zeros(1)
        of = np.zeros(MAX_COUNT + 1, np.int64)
        for gram, count in self.counts.items():
            if len(gram) == n and 0 < count <= MAX_COUNT:
                of[count] += 1
        return DISCOUNTS[self.how.kind](of, self.how.cutoff, self.interpolated)[0]

    def kept(self, gram: Gram) -> bool:
        prune = self.how.prune
        return len(gram) == 1 or not prune or self.occurs[gram] > prune[min(len(gram), len(prune)) - 1]

    def context(self, before: Sequence[int]) -> Gram:
        """Cut the context to the words after the last boundary, at most order − 1."""
        before = tuple(before)
        if self.boundary in before:
            before = before[len(before) - 1 - before[::-1].index(self.boundary) :]
        return before[max(0, len(before) - self.order + 1) :]

    def distribution(self, before: Sequence[int]) -> list[float]:
        h = self.context(before)
        if h not in self._made:
            lower = self.distribution(h[1:]) if h else self._uniform()
            self._made[h] = self._smoothed(h, lower)
        return self._made[h]

    def _uniform(self) -> list[float]:
        opened = self.size - len(self.closed)
        return [0.0 if w in self.closed else 1 / opened for w in range(self.size)]

    def _smoothed(self, h: Gram, lower: list[float]) -> list[float]:
        how, all_seen = self.how, self.after[h]
        seen = [w for w in all_seen if self.kept((*h, w))]
        c = {w: self.counts[(*h, w)] for w in all_seen}
        if how.kind == "additive":
            if len(h) < self.order - 1 and h[:1] != (self.boundary,):
                return self._uniform()
            total = sum(c[w] for w in seen) + how.add * (self.size - len(self.closed))
            raised = [(c[w] if w in seen else 0) + how.add for w in range(self.size)]
            return [0.0 if w in self.closed else raised[w] / total for w in range(self.size)]
        if not seen:
            return lower
        if how.kind in ("maximum-likelihood", "stupid"):
            total = sum(c[w] for w in seen)
            share = 0.0 if how.kind == "maximum-likelihood" else how.alpha
            raw = [c[w] / total if w in seen else share * lower[w] for w in range(self.size)]
            return [p / sum(raw) for p in raw]
        total = sum(c.values())
        table = self.tables[len(h)]
        if how.kind == "witten-bell":
            given = {w: c[w] / (total + len(c)) for w in seen}
        else:
            given = {w: (c[w] - table[min(c[w], len(table) - 1)]) / total for w in seen}
        others = [w for w in range(self.size) if w not in given and w not in self.closed]
        if how.kind != "witten-bell" and sum(given.values()) > 1 - 1e-9 and others:
            given = {w: c[w] / (total + 1) for w in seen}
        free = 1 - sum(given.values())
        if self.interpolated:
            return [given.get(w, 0.0) + free * lower[w] for w in range(self.size)]
        if not others:
            return [given.get(w, 0.0) / sum(given.values()) for w in range(self.size)]
        rest = sum(lower[w] for w in others)
        return [given[w] if w in given else free * lower[w] / rest for w in range(self.size)]
