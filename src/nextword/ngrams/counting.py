"""Counting every n-gram of a text, of all orders at once, in memory or, for a text that is too long, through disk.

    text  →  positions grouped by first word  →  refined word by word  →  the trie of all n-grams with their counts

Under a memory cap the first words are cut into ranges that fit. Each range gives a sorted run of every level, and the
runs of one level end to end are the level: no merging. The runs lie in files, mapped; what follows reads them in
blocks. Both ways run the same code and give the same trie.

Grouping positions of a text by the words that stand there: the inner loop of counting.

Positions that share their first k words lie side by side. `refine` sorts each such group by the word that follows,
which makes the groups of k + 1 words, and names a child for each of them. Groups are small after a few words: most
hold one position, which needs no sorting at all.
"""

from __future__ import annotations

import mmap
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.jit import compiled, spread
from nextword.ngrams.layouts import reserve
from nextword.ngrams.trie import NODE

END = np.uint32(0xFFFFFFFF)  # after the last token
FEW = 40  # a group up to this size is sorted by insertion


@compiled
def by_first_word(tokens, low, high, starts, at):
    """Positions of the words in [low, high), grouped by word, ascending; `starts` (high − low + 1) gets the groups."""
    for i in range(len(tokens)):
        w = tokens[i]
        if low <= w < high:
            starts[w - low + 1] += np.uint32(1)
    for w in range(1, len(starts)):
        starts[w] += starts[w - 1]
    for i in range(len(tokens)):
        w = tokens[i]
        if low <= w < high:
            at[starts[w - low]] = i
            starts[w - low] += np.uint32(1)
    for w in range(len(starts) - 1, 0, -1):
        starts[w] = starts[w - 1]
    starts[0] = 0


@compiled
def refine(begin, end, tokens, at, groups, words, boundary, k, new_words, new_groups, first):
    """Children of the nodes [begin, end) of level k − 1, sorted by word; returns how many, and of how many positions.

    The positions of node u are at[groups[u] : groups[u + 1]]; those of its children are written back from
    groups[begin] on, without those after which the text ends. New words and groups go to the same place onwards.
    """
    out = np.int64(groups[begin])  # where the next position goes
    made = np.int64(groups[begin])  # where the next child goes
    keys = np.empty(1024, np.uint64)
    spare = np.empty(0, np.uint64)
    for u in range(begin, end):
        first[u] = made - groups[begin]
        low, high = np.int64(groups[u]), np.int64(groups[u + 1])
        if low == high or (k > 1 and words[u] == boundary):
            continue
        if high - low == 1:
            p = at[low]
            w = tokens[np.int64(p) + k]
            if w != END:
                new_words[made] = w
                new_groups[made] = out
                at[out] = p
                out += 1
                made += 1
            continue
        n = np.int64(0)
        if high - low > len(keys):
            keys = np.empty(high - low, np.uint64)
        for i in range(low, high):
            w = tokens[np.int64(at[i]) + k]
            if w != END:
                keys[n] = (np.uint64(w) << np.uint64(32)) | np.uint64(at[i])
                n += 1
        if n <= FEW:
            for i in range(1, n):
                x = keys[i]
                j = i - 1
                while j >= 0 and keys[j] > x:
                    keys[j + 1] = keys[j]
                    j -= 1
                keys[j + 1] = x
        else:
            if len(spare) < n:
                spare = np.empty(n, np.uint64)
            _radix(keys, spare, n)
        last = END
        for i in range(n):
            w = np.uint32(keys[i] >> np.uint64(32))
            if w != last:
                new_words[made] = w
                new_groups[made] = out
                made += 1
                last = w
            at[out] = np.uint32(keys[i])
            out += 1
    return made - np.int64(groups[begin]), out - np.int64(groups[begin])


@compiled
def _radix(keys, spare, n):
    """Sort by the word in the upper half: positions come in ascending order and stay so."""
    most = np.uint64(0)
    for i in range(n):
        most |= keys[i]
    digit = 8 if n < 4096 else 11
    shift = 32
    flipped = False
    a, b = keys, spare
    counts = np.empty((1 << digit) + 1, np.int64)
    while (most >> np.uint64(shift)) > 0:
        counts[:] = 0
        mask = np.uint64((1 << digit) - 1)
        for i in range(n):
            counts[((a[i] >> np.uint64(shift)) & mask) + np.uint64(1)] += 1
        for d in range(1, len(counts)):
            counts[d] += counts[d - 1]
        for i in range(n):
            d = (a[i] >> np.uint64(shift)) & mask
            b[counts[d]] = a[i]
            counts[d] += 1
        a, b = b, a
        flipped = not flipped
        shift += digit
    if flipped:
        for i in range(n):
            keys[i] = spare[i]


@compiled
def windows(tokens, heads, low, high, length, out):
    """Copies, end to end, of the `length` tokens from each of the first `heads` that is a word in [low, high)."""
    n = 0
    for i in range(heads):
        if low <= tokens[i] < high:
            for j in range(length):
                out[n + j] = tokens[i + j]
            n += length


BLOCK = 1 << 22  # tokens read at once
MOST = 2**32 - 2  # nodes of one level
FLOOR = 32 << 20  # bytes that a cap must leave for buffers


class Arrays:
    """Where large arrays live: in memory, or in files of a temporary folder, which goes with this object."""

    def __init__(self, folder: Path | None = None, on_disk: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ngrams-", suffix=".part", dir=folder)) if on_disk else None
        self._made = 0

    def new(self, length: int, kind: Any = NODE) -> np.ndarray:
        if self.folder is None or not length:
            return np.zeros(length, kind)
        self._made += 1
        path = self.folder / f"{self._made}.bin"
        with path.open("wb") as file:
            reserve(file.fileno(), length * np.dtype(kind).itemsize, path)
        return np.memmap(path, kind, "r+", shape=(length,))

    def joined(self, parts: list[np.ndarray]) -> np.ndarray:
        """One array of all parts, which are emptied on the way."""
        if len(parts) == 1 and self.folder is None:
            return parts[0]
        out = self.new(sum(len(part) for part in parts), parts[0].dtype)
        at = 0
        while parts:
            part = parts.pop(0)
            out[at : at + len(part)] = part
            at += len(part)
            release(out)
            self.remove(part)
        return out

    def remove(self, array: np.ndarray | None) -> None:
        if isinstance(array, np.memmap) and self.folder is not None:
            Path(str(array.filename)).unlink(missing_ok=True)

    def close(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __del__(self) -> None:
        self.close()


def release(*arrays: Any) -> None:
    """Take mapped arrays out of this process's memory: what was written belongs to their files, and comes back."""
    for array in arrays:
        if isinstance(array, np.memmap) and array._mmap is not None:  # type: ignore[attr-defined]
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


@dataclass
class Counted:
    """The n-grams of a text. Levels, nodes, links and the boundary are those of `trie.py`."""

    boundary: int
    size: int
    arrays: Arrays
    block: int  # entries to work on at once, so that what is in memory stays below the cap
    words: list[np.ndarray] = field(default_factory=list)
    counts: list[np.ndarray] = field(default_factory=list)  # occurrences in the text
    first: list[np.ndarray] = field(default_factory=list)
    links: list[np.ndarray] = field(default_factory=list)  # of level 1 and up; [0] is empty

    @property
    def order(self) -> int:
        return len(self.words)

    def beginning(self, k: int) -> tuple[int, int]:
        """The nodes of level k that begin with the boundary: beginnings of sentences."""
        low, high = self.boundary, self.boundary + 1
        for level in range(k):
            low, high = int(self.first[level][low]), int(self.first[level][high])
        return low, high

    def extensions(self, k: int) -> np.ndarray:
        """Kneser and Ney's counts of the lower orders: how many different words stand before each n-gram of level k.

        Nothing stands before the beginning of a sentence: there it is how often the n-gram occurs.
        """
        out = self.arrays.new(len(self.words[k]), np.uint32)
        links = self.links[k + 1]
        for low, high in blocks(len(out), self.block):
            for at, end in blocks(len(links), self.block):
                spread(1, count_links, links, at, end, low, high, out)
                release(links)
            release(out)
        low, high = self.beginning(k)
        if k:
            out[low:high] = self.counts[k][low:high]
        return out


def blocks(total: int, size: int) -> Iterator[tuple[int, int]]:
    for low in range(0, max(total, 1), size):
        yield low, min(low + size, total)


def sweep(total: int, block: int, work: Any, *args: Any) -> None:
    """A compiled function over a range, a block at a time; after each, its arrays leave memory if they are mapped."""
    for low, high in blocks(total, block):
        spread(high - low, lambda begin, end, *rest, low=low: work(low + begin, low + end, *rest), *args)
        release(*args)


def count_ngrams(
    ids: np.ndarray,
    order: int,
    size: int,
    boundary: int,
    memory: int,
    folder: Path | None = None,
    on_disk: bool = False,
) -> Iterator[tuple[float, str] | Counted]:
    """Progress as (share done, what is being done), and at last the counts."""
    check_order(order, len(ids))
    tokens = len(ids) + 1
    on_disk = on_disk or in_memory_needs(tokens, order) > memory or tokens > MOST
    ranges = [(0, size)]
    if on_disk:
        ranges = _ranges(ids, order, size, boundary, memory)
    result = Counted(boundary, size, Arrays(folder, on_disk), max(1 << 16, memory // 170) if on_disk else MOST)
    parts: list[dict[str, list[np.ndarray]]] = [{"words": [], "counts": [], "first": []} for _ in range(order)]
    before = [0] * (order + 1)
    for i, (low, high) in enumerate(ranges):
        for k, level in enumerate(_levels(ids, order, boundary, low, high, not on_disk)):
            for name, array in zip(("words", "counts", "first"), level, strict=True):
                if array is None:
                    continue
                if name == "first":
                    array = (array if i == len(ranges) - 1 else array[:-1]) + NODE(before[k + 1])
                if on_disk:
                    kept = result.arrays.new(len(array), np.uint32)
                    kept[:] = array
                    release(kept)
                    array = kept
                parts[k][name].append(array)
            before[k] += len(level[0])
            if before[k] > MOST:
                raise NextwordError(f"More than {MOST:,} different {k + 1}-grams: choose a lower order.")
            yield 0.75 * (i + (k + 1) / order) / len(ranges), f"counting {k + 1}-grams"
    for k in range(order):
        result.words.append(result.arrays.joined(parts[k]["words"]))
        result.counts.append(result.arrays.joined(parts[k]["counts"]))
        if k < order - 1:
            result.first.append(result.arrays.joined(parts[k]["first"]))
    result.counts[0][boundary] -= 1  # the beginning of the text is no end of a sentence
    for k in range(order):
        result.links.append(_links(result, k))
        yield 0.75 + 0.25 * (k + 1) / order, f"linking {k + 1}-grams"
    yield result


def check_order(order: int, tokens: int) -> None:
    if order < 1:
        raise NextwordError(f"[model] order = {order}: an n-gram has at least one word.")
    if order > tokens + 1:
        raise NextwordError(
            f"[model] order = {order}, but the text has {tokens:,} tokens. Choose a lower order, or give more text."
        )


def in_memory_needs(tokens: int, order: int) -> int:
    """Bytes: the text and its positions; then counts, model and its file, for about three different n-grams a token."""
    return tokens * (16 + 27 * order)


def _ranges(ids: np.ndarray, order: int, size: int, boundary: int, memory: int) -> list[tuple[int, int]]:
    """First words cut so that the positions of each range fit in three eighths of the memory.

    The rest is for what comes of them, and for what this process holds already: the vocabulary, above all.
    """
    found = np.zeros(size, np.int64)
    for at in range(0, len(ids), BLOCK):
        found += np.bincount(ids[at : at + BLOCK], minlength=size)
    each = 4 * order + 16 + 8 * order + 16
    most = min(memory * 3 // 8 // each, MOST // order)
    if size * 16 + FLOOR > memory or most < found.max():
        needed = max(size * 16 + FLOOR, 8 * each * int(found.max()) // 3)
        raise NextwordError(
            f"memory = {memory / 2**20:,.0f} MB is too small for this text: its commonest word and its vocabulary "
            f"alone need {needed / 2**20:,.0f} MB. Raise memory in [phase] estimator, or lower the order."
        )
    out, low, held = [], 0, 0
    for w in range(size):
        if held + found[w] > most and held:
            out.append((low, w))
            low, held = w, 0
        held += int(found[w])
    return [*out, (low, size)]


def _levels(
    ids: np.ndarray, order: int, boundary: int, low: int, high: int, whole: bool
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Words, counts and first children of every level, for n-grams whose first word lies in [low, high)."""
    if whole:
        tokens = np.full(len(ids) + 1 + order, END, np.uint32)
        tokens[0] = boundary
        tokens[1 : len(ids) + 1] = ids
        groups = np.zeros(high - low + 1, np.uint32)
        at = np.empty(len(ids) + 1, np.uint32)
        by_first_word(tokens, low, high, groups, at)
    else:
        tokens = _gathered(ids, order, boundary, low, high)
        heads = np.ascontiguousarray(tokens[::order])
        groups = np.zeros(high - low + 1, np.uint32)
        at = np.empty(len(heads), np.uint32)
        by_first_word(heads, low, high, groups, at)
        at *= NODE(order)
    words = np.arange(low, high, dtype=NODE)
    for k in range(order):
        counts = np.diff(groups)
        if k == order - 1:
            yield words, counts, None
            return
        new_words, new_groups, first = _refined(tokens, at, groups, words, boundary, k + 1)
        yield words, counts, first
        words, groups = new_words, new_groups


def _gathered(ids: np.ndarray, order: int, boundary: int, low: int, high: int) -> np.ndarray:
    """The windows of `order` tokens that begin with a word in [low, high), end to end, read block by block."""
    parts = []
    for at in range(0, len(ids), BLOCK):
        block = np.asarray(ids[at : at + BLOCK + order], dtype=np.uint32)
        heads = min(BLOCK, len(ids) - at)
        if at == 0:
            block, heads = np.concatenate([np.array([boundary], np.uint32), block]), heads + 1
        block = np.concatenate([block, np.full(order, END, np.uint32)])
        mine = (block[:heads] >= low) & (block[:heads] < high)
        parts.append(np.empty(int(mine.sum()) * order, np.uint32))
        windows(block, heads, low, high, order, parts[-1])
    return np.concatenate(parts)


def _refined(
    tokens: np.ndarray, at: np.ndarray, groups: np.ndarray, words: np.ndarray, boundary: int, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The next level, in parallel over parts of equal numbers of positions; each part writes where its own begin."""
    alive = int(groups[-1])
    new_words, new_groups = np.empty(alive, np.uint32), np.empty(alive + 1, np.uint32)
    first = np.empty(len(groups), np.uint32)

    def work(begin: int, end: int) -> tuple[int, int, int, int]:
        low, high = (int(np.searchsorted(groups, x)) for x in (begin, end))
        if begin == 0:
            low = 0
        if end == alive:
            high = len(groups) - 1
        done = refine(low, high, tokens, at, groups, words, boundary, k, new_words, new_groups, first)
        return low, high, *done

    made = held = 0
    for low, high, children, positions in sorted(spread(alive, work)):
        start = int(groups[low])
        if start != made:
            new_words[made : made + children] = new_words[start : start + children]
        if start != held:
            at[held : held + positions] = at[start : start + positions]
        new_groups[made : made + children] = new_groups[start : start + children] - NODE(start - held)
        first[low:high] += NODE(made)
        made, held = made + children, held + positions
    first[-1] = made
    new_groups[made] = held
    new_words.resize(made, refcheck=False)
    new_groups.resize(made + 1, refcheck=False)
    return new_words, new_groups, first


def _links(counted: Counted, k: int) -> np.ndarray:
    if k == 0:
        return np.zeros(0, np.uint32)
    words = counted.words[k]
    if k == 1:
        return words
    links = counted.arrays.new(len(words), np.uint32)
    above, shorter, named = counted.links[k - 1], counted.first[k - 2], counted.words[k - 1]
    for low, high in blocks(len(named), counted.block):
        sweep(
            len(above), counted.block, find_links, words, counted.first[k - 1], above, shorter, named, low, high, links
        )
    return links


@compiled
def find_links(begin, end, words, first, above, shorter, shorter_words, low, high, links):
    """Links of the children of the nodes [begin, end), where they lie in [low, high).

    The suffix of a child is the child, by the same word, of the suffix of its parent; both lists of children ascend.
    """
    for parent in range(begin, end):
        if first[parent] == first[parent + 1]:
            continue
        suffix = above[parent]
        a, stop = np.int64(shorter[suffix]), np.int64(shorter[suffix + 1])
        if stop <= low or a >= high:
            continue
        for child in range(first[parent], first[parent + 1]):
            w = words[child]
            step = np.int64(1)
            while a + step < stop and shorter_words[a + step] <= w:
                a += step
                step *= 2
            top = min(a + step, stop)
            while top - a > 1:
                middle = (a + top) // 2
                if shorter_words[middle] <= w:
                    a = middle
                else:
                    top = middle
            if low <= a < high:
                links[child] = a


@compiled
def count_links(_, __, links, at, end, low, high, out):
    for link in links[at:end]:
        if low <= link < high:
            out[link] += np.uint32(1)


def counts_of_counts(counts: np.ndarray, most: int) -> np.ndarray:
    """How many n-grams have count 1, 2, … `most`: (most + 1,), the first being zero."""
    found = np.zeros(most + 1, np.int64)
    for low, high in blocks(len(counts), BLOCK):
        part = counts[low:high]
        found += np.bincount(part[part <= most], minlength=most + 1)
        release(counts)
    found[0] = 0
    return found
