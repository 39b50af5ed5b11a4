r"""The back-off model that every estimator makes and every file format holds, as plain arrays.

    level 0 (unigrams)   a            b            c
                         |  \          |
    level 1 (bigrams)   a b  a c      b c          children of a node lie side by side, words ascending
                         |             |
    level 2 (trigrams)  a b c         b c a

Level k holds the n-grams of k + 1 words, sorted by their words from first to last. A node is an n-gram; its children
are the n-grams that extend it by one word. `links` point to the same n-gram without its first word, one level up: where
to continue if a context was not seen.

    p(w | h) = exp(log_probs[h w])                            if h w is in the trie
             = exp(log_backoffs[h]) · p(w | h without its first word)   otherwise; a missing h has back-off weight 1

Unigrams are dense: node w of level 0 is word w. The `boundary` is one id with two meanings: as the first word of an
n-gram it is the beginning of a sentence (`<s>`, never predicted), as the last its end (`</s>`, after which no n-gram
continues). It never stands in between, and every context begins anew after it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nextword.core.jit import jit, mix_bits, run_parallel

NODE = np.uint32  # ids of words and of nodes within a level
NONE = 0xFFFFFFFF  # no word: in a stream of ids, resets the context; in a table, an empty slot
MAX_ORDER = 256  # far above what helps; a model's state and its files grow with the order
MAX_LOG_BACKOFF = 1e9  # below it, sums over all orders are finite


@dataclass
class Level:
    words: np.ndarray  # (U,) uint32: the last word of each n-gram
    links: np.ndarray | None  # (U,) uint32: the n-gram without its first word, one level up; None for unigrams
    first: np.ndarray | None  # (U + 1,) uint32: where its children begin in the next level; None for the last
    log_probs: np.ndarray  # (U,) float32, natural logarithm
    log_backoffs: np.ndarray | None  # (U,) float32, natural logarithm; None for the last level

    def __len__(self) -> int:
        return len(self.words)


@dataclass
class Trie:
    levels: Sequence[Level]
    boundary: int
    facts: dict[str, Any] = field(default_factory=dict)  # how it was estimated, as JSON values

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
        """The parent of each node of level k ≥ 1."""
        first = self.levels[k - 1].first
        assert first is not None
        return np.repeat(np.arange(len(first) - 1, dtype=NODE), np.diff(first))

    def ngrams(self, k: int) -> np.ndarray:
        """(U, k + 1): the words of every n-gram of level k."""
        columns = [self.levels[k].words]
        node = None
        for level in range(k, 0, -1):
            parents = self.parents(level)
            node = parents if node is None else parents[node]
            columns.append(self.levels[level - 1].words[node])
        return np.stack(columns[::-1], axis=1)


def find_trie_damage(trie: Trie) -> str:
    """What contradicts the definition above in a trie that was read from a file, or an empty string."""
    none = np.zeros(0, NODE)
    for k in range(1, trie.order):
        above, level = trie.levels[k - 1], trie.levels[k]
        shorter = none if k == 1 else trie.levels[k - 2].first
        links = none if k == 1 else above.links
        problems = run_parallel(
            len(above), is_damaged, above.first, level.words, level.links, above.words, links, shorter
        )
        if any(problems):
            return f"its {k + 1}-grams contradict its {k}-grams"
    return ""


@jit
def is_damaged(begin, end, first, words, links, above_words, above_links, shorter):
    """Whether the children of the nodes [begin, end) do not ascend, or are not linked to what their suffixes have."""
    for parent in range(begin, end):
        low, high = np.int64(0), np.int64(len(above_words))  # the children of the parent's link
        if len(shorter):
            low, high = np.int64(shorter[above_links[parent]]), np.int64(shorter[above_links[parent] + 1])
        for i in range(np.int64(first[parent]), np.int64(first[parent + 1])):
            link = np.int64(links[i])
            if link < low or link >= high or above_words[link] != words[i]:
                return True
            if i > first[parent] and words[i] <= words[i - 1]:
                return True
    return False


# ------------------------------------------------------------------------------------------------ building a trie

# A trie needs the parent and the link of every n-gram. If a file has left one out, as pruning does, it is inserted with
# the value that backing off gives and a back-off weight of 1, which changes no probability.


@dataclass
class Section:
    """The n-grams of one length, each once, in any order. Unigrams are dense and have no rows."""

    rows: np.ndarray  # (U, n) uint32
    log_probs: np.ndarray  # (U,) float32; NaN: to be computed by backing off
    log_backoffs: np.ndarray  # (U,) float32
    slots: np.ndarray  # the hash table over the rows, from make_slots

    def look_up(self, longer: np.ndarray, offset: int) -> np.ndarray:
        """The row that each longer n-gram begins (offset 0) or ends with (1); NONE if there is none."""
        nodes = np.empty(len(longer), NODE)
        run_parallel(
            len(longer), lambda begin, end: find_rows(longer, begin, end, offset, self.rows, self.slots, nodes)
        )
        return nodes


def build_section(rows: np.ndarray, log_probs: np.ndarray, log_backoffs: np.ndarray) -> tuple[Section, int]:
    """Build the hash table of these n-grams. Also returns the first row that occurs twice; −1 if there is none."""
    slots = make_slots(len(rows))
    duplicate = insert_rows(rows, slots)
    return Section(rows, log_probs, log_backoffs, slots), duplicate


def make_slots(count: int) -> np.ndarray:
    """An empty hash table for so many entries: a power of two of slots, and the seed of its hash function.

    The seed is random, so that nobody can write a file of entries that all collide, and take hours to insert.
    """
    slots = np.full((1 << max(4, (2 * count).bit_length())) + 1, NONE, np.uint32)
    slots[-1] = secrets.randbits(32)
    return slots


def build_trie(sections: list[Section], boundary: int, facts: dict[str, Any]) -> Trie:
    """Build the trie of these n-grams; `facts["inserted"]` counts inserted ones. Consumes the sections."""
    order, size = len(sections), len(sections[0].log_probs)
    inserted = 0
    parents: dict[int, np.ndarray] = {}
    links: dict[int, np.ndarray] = {}
    for k in range(order - 1, 0, -1):
        rows = sections[k].rows
        if k == 1:
            parents[k], links[k] = rows[:, 0], rows[:, 1]
            break
        parents[k], links[k] = (sections[k - 1].look_up(rows, offset) for offset in (0, 1))
        missing = np.concatenate([rows[parents[k] == NONE, :-1], rows[links[k] == NONE, 1:]])
        if len(missing):
            missing = np.unique(missing, axis=0)
            inserted += len(missing)
            sections[k - 1] = _insert(sections[k - 1], missing)
            parents[k], links[k] = (sections[k - 1].look_up(rows, offset) for offset in (0, 1))

    levels = [Level(np.arange(size, dtype=NODE), None, None, sections[0].log_probs, sections[0].log_backoffs)]
    rank = levels[0].words  # the node of each row of the section before
    for k in range(1, order):
        before, section = levels[-1], sections[k]
        last = section.rows[:, -1]
        above = rank[parents.pop(k)]
        by_words = np.argsort(above.astype(np.uint64) * np.uint64(size) + last)
        above = above[by_words]
        before.first = np.searchsorted(above, np.arange(len(before) + 1, dtype=NODE)).astype(NODE)
        link = rank[links.pop(k)][by_words]
        log_probs, log_backoffs = section.log_probs[by_words], section.log_backoffs[by_words]
        unknown = np.isnan(log_probs)
        if unknown.any():
            assert before.log_backoffs is not None
            log_probs[unknown] = before.log_backoffs[above[unknown]] + before.log_probs[link[unknown]]
        levels.append(Level(last[by_words], link, None, log_probs, log_backoffs))
        rank = np.empty(len(by_words), NODE)
        rank[by_words] = np.arange(len(by_words), dtype=NODE)
        sections[k] = sections[0]  # frees its memory
    levels[-1].log_backoffs = None
    return Trie(levels, boundary, {**facts, "inserted": inserted})


def _insert(old: Section, rows: np.ndarray) -> Section:
    """Add n-grams whose values are found by backing off."""
    return build_section(
        np.concatenate([old.rows, rows]),
        np.concatenate([old.log_probs, np.full(len(rows), np.nan, np.float32)]),
        np.concatenate([old.log_backoffs, np.zeros(len(rows), np.float32)]),
    )[0]


@jit
def slot_of_row(rows, row, offset, known, slots):
    """The slot of the words of a row, from `offset` on, in the hash table over `known`, or where to insert them."""
    n, mask = known.shape[1], len(slots) - 2
    h = mix_bits(np.uint64(slots[mask + 1]))
    for j in range(n):
        h = (h ^ np.uint64(rows[row, offset + j])) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(32)
    at = np.int64(h & np.uint64(mask))
    while slots[at] != NONE:
        same = True
        for j in range(n):
            if known[slots[at], j] != rows[row, offset + j]:
                same = False
                break
        if same:
            break
        at = (at + 1) & mask
    return at


@jit
def insert_rows(rows, slots):
    """Fill the hash table; returns the first row that is there already, or −1."""
    for row in range(len(rows)):
        at = slot_of_row(rows, row, 0, rows, slots)
        if slots[at] != NONE:
            return row
        slots[at] = row
    return -1


@jit
def find_rows(rows, begin, end, offset, known, slots, out):
    for row in range(begin, end):
        out[row] = slots[slot_of_row(rows, row, offset, known, slots)]
