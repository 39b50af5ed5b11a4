"""The `fast` layout: an automaton whose states are contexts, each with a small hash table of the words seen after it.

    contexts   where its words lie, how many slots they take, its back-off, and the context to fall back to
    slots      word, log p(word | context), and the context after that word

To read a word, look it up among the words of the context; if it is missing, pay the back-off, fall back to the next
shorter context and look again. Context 0 is the empty one; its table is dense, one slot per word, so that every search
ends there. Up to eight words lie side by side and are searched linearly; more are hashed into twice as many slots. All
words after a context can be listed, so that a whole distribution needs no search.

Contexts after which nothing was seen are never entered: what leads to one leads to its longest suffix with words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nextword.core.jit import jit, jit_leaf, run_parallel
from nextword.ngrams.counting import blocks, find_links, release_pages
from nextword.ngrams.layouts import MAX_LOG_PROB, Layout, NgramFile, create_file
from nextword.ngrams.trie import MAX_LOG_BACKOFF, NONE, Level, Trie

LAYOUT = "fast"
ROW = 8  # up to this many words are searched linearly
LANES = 16  # parts of a stream read side by side, so that their memory loads overlap
BAD = np.int64(-1 << 40)  # outweighs any number of words
MAX_RUN = 4096  # full slots in a row; half of the slots are empty, so a tenth of it is astronomically improbable

CONTEXT = np.dtype([("first", "<u4"), ("places", "<u4"), ("backoff", "<f4"), ("fall", "<u4")])
SLOT = np.dtype([("word", "<u4"), ("log_prob", "<f4"), ("next", "<u4")])


def write_hash_layout(trie: Trie, path: Path, block: int = 1 << 32) -> None:
    """Write the file, `block` nodes at a time, to bound memory."""
    counts = [len(level) for level in trie.levels]
    bases = _bases(counts)
    places = trie.size + sum(count_places(level.first, block) for level in trie.levels if level.first is not None)
    facts = {**trie.facts, "order": trie.order, "size": trie.size, "boundary": trie.boundary, "entries": counts}
    lengths = {"contexts": bases[-1], "slots": places, "starts": trie.order + 1}
    made = create_file(path, LAYOUT, facts, {name: (HashLayout.types[name], n) for name, n in lengths.items()})
    contexts, slots = made["contexts"], made["slots"]
    contexts[0] = (0, trie.size, 0.0, 0)
    unigrams = trie.levels[0]
    slots["word"][: trie.size] = unigrams.words
    slots["log_prob"][: trie.size] = unigrams.log_probs
    slots["next"][: trie.size] = 1 + unigrams.words if trie.order > 1 else 0
    at = trie.size
    for k in range(1, trie.order):
        above, level = trie.levels[k - 1], trie.levels[k]
        made["starts"][k] = at
        top = k == trie.order - 1
        bounds = (bases[k - 1], bases[k - 2] if k > 1 else -1, bases[k - 1] if top else bases[k], top, trie.boundary)
        for low, high in blocks(counts[k - 1], block):
            links = level.words if above.links is None else above.links  # of unigrams: none, not looked at
            lists = (links, above.log_backoffs, above.first, level.words, level.log_probs, level.links)
            (at,) = run_parallel(1, fill_contexts, low, high, contexts, slots, at, *lists, *bounds)
            release_pages(contexts, slots, *lists)
    made["starts"][trie.order] = at
    target = np.zeros(len(contexts), np.uint32)
    for low, high in blocks(len(contexts), block):
        run_parallel(1, resolve_targets, low, high, contexts, target)
        release_pages(contexts)
    for low, high in blocks(len(slots), block):
        run_parallel(1, redirect_slots, low, high, slots, target)
        release_pages(slots)


def _bases(counts: Sequence[int]) -> np.ndarray:
    """The context of the first node of each level; context 0 is the empty one."""
    return np.concatenate([[1], 1 + np.cumsum(counts[:-1])]).astype(np.int64)


def count_places(first: np.ndarray, block: int) -> int:
    """Slots for the words of all contexts of a level."""
    places = 0
    for low, high in blocks(len(first) - 1, min(block, 1 << 22)):
        words = np.diff(first[low : high + 1]).astype(np.int64)
        places += int(np.where(words <= ROW, words, 2 * words).sum())
        release_pages(first)
    return places


@jit
def fill_contexts(
    _, __, low, high, contexts, slots, at,
    links, backoffs, first, words, log_probs, next_links, base, shorter, longer, top, boundary,
):  # fmt: skip
    """Fill the contexts of a level's nodes [low, high) and the slots of their words; returns the next free slot."""
    for h in range(low, high):
        begin, end = np.int64(first[h]), np.int64(first[h + 1])
        n = end - begin
        places = n if n <= ROW else 2 * n
        c = contexts[base + h]
        c.first = at
        c.places = places
        c.backoff = backoffs[h]
        c.fall = shorter + links[h] if shorter >= 0 else 0
        if n > ROW:
            for i in range(at, at + places):
                slots[i].word = NONE
        for i in range(begin, end):
            w = words[i]
            s = at + i - begin
            if n > ROW:
                s = at + hash_slot(w, places)
                while slots[s].word != NONE:
                    s += 1
                    if s == at + places:
                        s = at
            slots[s].word = w
            slots[s].log_prob = log_probs[i]
            if w == boundary:
                slots[s].next = 1 + boundary
            else:
                slots[s].next = longer + (next_links[i] if top else i)
        at += places
    return at


@jit_leaf
def hash_slot(word, places):
    """The slot where a word belongs: its hash, scaled to the number of slots."""
    mixed = (np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    return np.int64((mixed * np.uint64(places)) >> np.uint64(32))


@jit
def resolve_targets(_, __, low, high, contexts, target):
    """Find the context to enter instead of each: itself, or a shorter one if it has no words."""
    for h in range(max(low, 1), high):
        contexts[h].fall = target[contexts[h].fall]  # shorter contexts come first, so theirs is known
        nothing = contexts[h].places == 0 and contexts[h].backoff == 0.0
        target[h] = contexts[h].fall if nothing else h


@jit
def redirect_slots(_, __, low, high, slots, target):
    """Let slots lead to contexts that have words."""
    for s in range(low, high):
        if slots[s].word != NONE:
            slots[s].next = target[slots[s].next]


class HashLayout(Layout):
    """A model in a file of this layout."""

    types: ClassVar[Mapping[str, Any]] = {"contexts": CONTEXT, "slots": SLOT, "starts": np.int64}

    def __init__(self, opened: NgramFile) -> None:
        super().__init__(opened)
        self.contexts, self.slots = opened.arrays["contexts"], opened.arrays["slots"]
        self._starts = opened.arrays["starts"]

    def read(self, ids: np.ndarray) -> np.ndarray:
        """ln p of each id given those before it."""
        ids = np.ascontiguousarray(ids, np.uint32)
        out = np.empty(len(ids), np.float32)
        if not read(self.contexts, self.slots, ids, self.order - 1, out):
            self.check_ids(ids)
        return out

    def distributions(self, contexts: np.ndarray) -> np.ndarray:
        contexts = np.ascontiguousarray(contexts, np.uint32)
        out = np.empty((len(contexts), self.size), np.float32)
        if not distribute(self.contexts, self.slots, contexts, out):
            self.check_ids(contexts)
        return out

    @staticmethod
    def find_damage(opened: NgramFile) -> str:
        size, entries = opened.facts["size"], opened.facts["entries"]
        contexts, slots, starts = (opened.arrays[name] for name in HashLayout.types)
        bases = _bases(entries)
        if len(contexts) != bases[-1] or len(slots) < size or len(starts) != len(entries) + 1:
            return "its arrays are not as long as its numbers of n-grams require"
        above = bases[min(1, len(entries) - 1)]
        if contexts[0].tolist() != (0, size, 0.0, 0) or any(run_parallel(size, is_bad_unigram, slots, above)):
            return "its 1-grams are out of order"
        for k in range(1, len(entries)):
            low, count = int(bases[k - 1]), entries[k - 1]
            first = contexts["first"][low] if low < len(contexts) else len(slots)
            results = run_parallel(
                count, check_contexts, contexts, slots, low, bases[min(k + 1, len(entries) - 1)], size
            )
            if starts[k] != first or sum(results) != entries[k] or min(results) < 0:
                return f"its {k + 1}-grams are out of order"
        return "" if starts[1] == size and starts[-1] == len(slots) else "its levels begin elsewhere than it says"

    def rebuild(self) -> Trie:
        """Rebuild the trie: sort the words of each context again."""
        counts, bases = self.entries, _bases(self.entries)
        levels = [
            Level(np.arange(self.size, dtype=np.uint32), None, None, self.slots["log_prob"][: self.size].copy(), None)
        ]
        for k in range(1, self.order):
            contexts = self.contexts[bases[k - 1] : bases[k - 1] + counts[k - 1]]
            slots = self.slots[self._starts[k] : self._starts[k + 1]]
            owner = np.repeat(np.arange(len(contexts), dtype=np.uint32), contexts["places"])
            full = slots["word"] != NONE
            owner, slots = owner[full], slots[full]
            order = np.lexsort((slots["word"], owner))
            first = np.searchsorted(owner, np.arange(len(contexts) + 1)).astype(np.uint32)
            levels[-1].first, levels[-1].log_backoffs = first, contexts["backoff"].copy()
            words = slots["word"][order]
            levels.append(Level(words, None, None, slots["log_prob"][order], None))
        find_all_links(levels)
        return Trie(levels, self.boundary, self.facts)


@jit
def is_bad_unigram(begin, end, slots, contexts):
    """Whether one of the slots [begin, end) is not that of its word, or leads to none of the first `contexts`."""
    for w in range(begin, end):
        s = slots[w]
        if s.word != w or s.next >= contexts or not s.log_prob <= MAX_LOG_PROB:  # also if it is NaN
            return True
    return False


@jit
def check_contexts(begin, end, contexts, slots, low, longer, size):
    """Check the contexts [low + begin, low + end) of one length, for all that reading relies on; returns their words.

    The number is negative if something is wrong. Contexts must share out the slots in order, fall back to shorter
    contexts, and lead to those of at most one word more, which come before `longer`. So a search never leaves the
    slots, falling back ends, and after m words it takes at most m steps. A hash table must have an empty slot, where a
    search ends, and no long run without one: also a search that the author of the file made slow is over soon.
    """
    words = 0
    for h in range(low + begin, low + end):
        c = contexts[h]
        first, places = np.int64(c.first), np.int64(c.places)
        stop = np.int64(contexts[h + 1].first) if h + 1 < len(contexts) else len(slots)
        if first + places != stop or stop > len(slots) or c.fall >= low or not c.backoff < MAX_LOG_BACKOFF:
            return BAD
        run, before_first_empty = 0, -1
        for i in range(first, stop):
            s = slots[i]
            if s.word == NONE:
                if places <= ROW or s.next != 0 or s.log_prob != 0:
                    return BAD
                if before_first_empty < 0:
                    before_first_empty = run
                run = 0
                continue
            run += 1
            words += 1
            if s.word >= size or s.next >= longer or not s.log_prob <= MAX_LOG_PROB or run > MAX_RUN:
                return BAD
        if places > ROW and (before_first_empty < 0 or before_first_empty + run > MAX_RUN):
            return BAD
    return np.int64(words)


def find_all_links(levels: list[Level]) -> None:
    """Find the links of a trie that has everything else."""
    for k in range(1, len(levels)):
        words = levels[k].words
        levels[k].links = words
        if k > 1:
            levels[k].links = np.zeros(len(words), np.uint32)
            above, named = levels[k - 1].links, levels[k - 1].words
            shorter, first = levels[k - 2].first, levels[k - 1].first
            find_links(0, len(named), words, first, above, shorter, named, 0, len(named), levels[k].links)


@jit_leaf
def find_slot(contexts, slots, h, word):
    """The slot of a word after a context, or −1."""
    if h == 0:
        return np.int64(word)
    c = contexts[h]
    places = np.int64(c.places)
    if places == 0:
        return np.int64(-1)
    s = np.int64(c.first) + (hash_slot(word, places) if places > ROW else 0)
    return s if slots[s].word == word else probe(contexts, slots, h, word, s)


@jit_leaf
def probe(contexts, slots, h, word, s):
    """Continue the search of `find_slot`, if the first slot s has another word."""
    first, places = np.int64(contexts[h].first), np.int64(contexts[h].places)
    if places <= ROW:
        for i in range(first + 1, first + places):
            if slots[i].word == word:
                return i
        return np.int64(-1)
    while slots[s].word != NONE:
        s += 1
        if s == first + places:
            s = first
        if slots[s].word == word:
            return s
    return np.int64(-1)


@jit_leaf
def advance(contexts, slots, h, word):
    """ln p of a word after a context, and the context after the word."""
    total = np.float32(0.0)
    s = find_slot(contexts, slots, h, word)
    while s < 0:
        total += contexts[h].backoff
        h = np.int64(contexts[h].fall)
        s = find_slot(contexts, slots, h, word)
    return total + slots[s].log_prob, np.int64(slots[s].next)


@jit
def read(contexts, slots, ids, back, out):
    """Log probabilities along a stream, in lanes; a lane finds its first context from the `back` ids before it.

    Returns False, and reads nothing, if an id is outside the vocabulary.
    """
    outside, size = 0, contexts[0].places
    for i in range(len(ids)):
        outside += (ids[i] >= size) & (ids[i] != NONE)
    if outside:
        return False
    lanes = LANES if len(ids) >= 64 * LANES else 1
    n, words, paid = np.zeros((5, lanes), np.int64), np.zeros((2, lanes), np.uint32), np.zeros(lanes, np.float32)
    _read_lanes(contexts, slots, ids, back, out, paid, words[0], words[1], n[0], n[1], n[2], n[3], n[4])
    return True


@jit_leaf
def _read_lanes(contexts, slots, ids, back, out, paid, here, word, state, at, stop, first, places):
    """Each round visits every lane three times: for its context, for the first slot of its word, and only then for the
    slot's content. So the loads of all lanes overlap, and no branch waits for one load before the next begins.
    """
    n, lanes = len(ids), len(state)
    each = (n + lanes - 1) // lanes
    running = 0
    for lane in range(lanes):
        begin = min(lane * each, n)
        h = np.int64(0)
        for i in range(max(begin - back, 0), begin):
            if ids[i] == NONE:
                h = np.int64(0)
            else:
                _, h = advance(contexts, slots, h, ids[i])
        state[running], at[running], stop[running] = h, begin, min(begin + each, n)
        if begin < n:
            running += 1
    while running:
        for lane in range(running):
            c = contexts[state[lane]]
            word[lane] = ids[at[lane]]
            places[lane] = c.places
            first[lane] = c.first if c.places else 0
        for lane in range(running):
            if state[lane] == 0:
                first[lane] = np.int64(word[lane]) if word[lane] != NONE else 0
            elif places[lane] > ROW:
                first[lane] += hash_slot(word[lane], places[lane])
            here[lane] = slots[first[lane]].word
        over = False
        for lane in range(running):
            w, h, s = word[lane], state[lane], first[lane]
            if here[lane] != w or not places[lane]:  # a context without words has no slot, whatever was loaded
                if w == NONE:
                    out[at[lane]] = 0.0
                    state[lane], paid[lane] = 0, 0.0
                    at[lane] += 1
                    over = over or at[lane] == stop[lane]
                    continue
                s = np.int64(-1) if places[lane] <= 1 else probe(contexts, slots, h, w, s)
                if s < 0:
                    paid[lane] += contexts[h].backoff
                    state[lane] = contexts[h].fall
                    continue
            out[at[lane]] = paid[lane] + slots[s].log_prob
            state[lane], paid[lane] = slots[s].next, 0.0
            at[lane] += 1
            over = over or at[lane] == stop[lane]
        if over:  # compact the lanes that continue
            left = 0
            for lane in range(running):
                if at[lane] < stop[lane]:
                    state[left], at[left], stop[left], paid[left] = state[lane], at[lane], stop[lane], paid[lane]
                    left += 1
            running = left


@jit
def distribute(contexts, slots, given, out):
    """ln p of every word after each context; longer contexts overwrite shorter ones.

    Returns False at an id outside the vocabulary.
    """
    chain = np.empty(given.shape[1] + 2, np.int64)
    costs = np.empty(given.shape[1] + 2, np.float32)  # back-offs of the longer contexts
    for row in range(len(given)):
        h = np.int64(0)
        for i in range(given.shape[1]):
            if given[row, i] == NONE:
                h = np.int64(0)
            elif given[row, i] >= contexts[0].places:
                return False
            else:
                _, h = advance(contexts, slots, h, given[row, i])
        n = 0
        paid = np.float32(0.0)
        while h != 0:
            chain[n], costs[n] = h, paid
            n += 1
            paid += contexts[h].backoff
            h = np.int64(contexts[h].fall)
        mine = out[row]
        for w in range(len(mine)):
            mine[w] = slots[w].log_prob + paid
        for i in range(n - 1, -1, -1):
            c = contexts[chain[i]]
            for s in range(np.int64(c.first), np.int64(c.first) + np.int64(c.places)):
                if slots[s].word != NONE:
                    mine[slots[s].word] = slots[s].log_prob + costs[i]
    return True
