"""Count every n-gram of a text, of all orders at once, in memory or, for a text that is too long, through disk.

    text  →  positions grouped by first word  →  refined word by word  →  the trie of all n-grams with their counts

Positions that share their first k words lie side by side. `refine` sorts each such group by the next word, which makes
the groups of k + 1 words, and names a child for each of them. Most groups hold a single position after a few words,
which needs no sorting.

Under a memory cap, the first words are cut into ranges that fit. Each range gives a sorted run of every level, and the
runs of a level, end to end, are the level: nothing needs merging. The runs lie in mapped files, which are read in
blocks. Both ways run the same code and give the same trie.

Kneser-Ney's continuation counts are `NgramCounts.continuation_counts`.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nextword.core.errors import DataError, invalid
from nextword.core.jit import jit, run_parallel
from nextword.core.scratch import Scratch
from nextword.ngrams.layouts import reserve_space
from nextword.ngrams.trie import MAX_ORDER, NODE

END = np.uint32(0xFFFFFFFF)  # after the last token
FEW = 40  # a group up to this size is sorted by insertion
BLOCK = 1 << 22  # tokens read at once
MAX_NODES = 2**32 - 2  # of one level
MIN_BUFFER = 32 << 20  # bytes that a memory cap must leave for buffers


class ArrayStore:
    """Allocate large arrays in memory, or in files of a temporary folder that is deleted with this object."""

    def __init__(self, folder: Path | None = None, on_disk: bool = False) -> None:
        self._scratch = Scratch(folder) if on_disk else None
        self.folder = None if self._scratch is None else self._scratch.path
        self._made = 0

    def new(self, length: int, kind: np.dtype | type[np.generic] = NODE) -> np.ndarray:
        if self.folder is None or not length:
            return np.zeros(length, kind)
        self._made += 1
        path = self.folder / f"{self._made}.bin"
        with path.open("wb") as file:
            reserve_space(file.fileno(), length * np.dtype(kind).itemsize, path)
        return np.memmap(path, kind, "r+", shape=(length,))

    def concatenate(self, parts: list[np.ndarray]) -> np.ndarray:
        """Concatenate the parts; the list is emptied on the way, to free memory."""
        if len(parts) == 1 and self.folder is None:
            return parts[0]
        out = self.new(sum(len(part) for part in parts), parts[0].dtype)
        at = 0
        while parts:
            part = parts.pop(0)
            out[at : at + len(part)] = part
            at += len(part)
            release_pages(out)
            self.remove(part)
        return out

    def remove(self, array: np.ndarray | None) -> None:
        if isinstance(array, np.memmap) and self.folder is not None:
            Path(str(array.filename)).unlink(missing_ok=True)

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.close()

    def __del__(self) -> None:
        self.close()


def release_pages(*arrays: object) -> None:
    """Drop the pages of mapped arrays from this process's memory; they are read from their files again if needed."""
    for array in arrays:
        if isinstance(array, np.memmap) and array._mmap is not None:  # type: ignore[attr-defined]
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


@dataclass
class NgramCounts:
    """The n-grams of a text with their counts. For levels, nodes, links and the boundary see trie.py."""

    boundary: int
    size: int
    arrays: ArrayStore
    block: int  # entries processed at once, so that memory stays below the cap
    words: list[np.ndarray] = field(default_factory=list)
    counts: list[np.ndarray] = field(default_factory=list)  # occurrences in the text
    first: list[np.ndarray] = field(default_factory=list)
    links: list[np.ndarray] = field(default_factory=list)  # of level 1 and up; [0] is empty

    @property
    def order(self) -> int:
        return len(self.words)

    def beginning(self, k: int) -> tuple[int, int]:
        """The range of nodes of level k that begin with the boundary: beginnings of sentences."""
        low, high = self.boundary, self.boundary + 1
        for level in range(k):
            low, high = int(self.first[level][low]), int(self.first[level][high])
        return low, high

    def continuation_counts(self, k: int) -> np.ndarray:
        """Kneser-Ney's counts of lower orders: the number of distinct words that precede each n-gram of level k.

        Nothing precedes the beginning of a sentence: there, the count is the number of occurrences.
        """
        out = self.arrays.new(len(self.words[k]), np.uint32)
        links = self.links[k + 1]
        for low, high in blocks(len(out), self.block):
            for at, end in blocks(len(links), self.block):
                run_parallel(1, count_links, links, at, end, low, high, out)
                release_pages(links)
            release_pages(out)
        low, high = self.beginning(k)
        if k:
            out[low:high] = self.counts[k][low:high]
        return out


def blocks(total: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the blocks of a range; of an empty range, one empty block."""
    for low in range(0, max(total, 1), size):
        yield low, min(low + size, total)


def run_in_blocks(total: int, block: int, work: Callable[..., object], *args: object) -> None:
    """Run a compiled function over a range, block by block, and release mapped arrays after each block."""
    for low, high in blocks(total, block):
        run_parallel(high - low, lambda begin, end, *rest, low=low: work(low + begin, low + end, *rest), *args)
        release_pages(*args)


def count_ngrams(
    ids: np.ndarray,
    order: int,
    size: int,
    boundary: int,
    memory: int,
    folder: Path | None = None,
    on_disk: bool = False,
) -> Iterator[tuple[float, str] | NgramCounts]:
    """Yield progress (fraction, message) and at last the counts."""
    check_order(order, len(ids))
    tokens = len(ids) + 1
    on_disk = on_disk or bytes_in_memory(tokens, order) > memory or tokens > MAX_NODES
    ranges = [(0, size)]
    if on_disk:
        ranges = _cut_ranges(ids, order, size, boundary, memory)
    result = NgramCounts(
        boundary, size, ArrayStore(folder, on_disk), max(1 << 16, memory // 170) if on_disk else MAX_NODES
    )
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
                    stored = result.arrays.new(len(array), np.uint32)
                    stored[:] = array
                    release_pages(stored)
                    array = stored
                parts[k][name].append(array)
            before[k] += len(level[0])
            if before[k] > MAX_NODES:
                raise DataError(f"The text has more than {MAX_NODES:,} distinct {k + 1}-grams. Choose a lower order.")
            yield 0.75 * (i + (k + 1) / order) / len(ranges), f"counting {k + 1}-grams"
    for k in range(order):
        result.words.append(result.arrays.concatenate(parts[k]["words"]))
        result.counts.append(result.arrays.concatenate(parts[k]["counts"]))
        if k < order - 1:
            result.first.append(result.arrays.concatenate(parts[k]["first"]))
    result.counts[0][boundary] -= 1  # the boundary before the text does not end a sentence
    for k in range(order):
        result.links.append(_link_level(result, k))
        yield 0.75 + 0.25 * (k + 1) / order, f"linking {k + 1}-grams"
    yield result


def check_order(order: int, tokens: int) -> None:
    """Raise InvalidSetting if a text of this length cannot have n-grams of this order."""
    if not 1 <= order <= MAX_ORDER:
        raise invalid("model.order", order, f"must be from 1 to {MAX_ORDER} words.")
    if order > tokens + 1:
        raise invalid("model.order", order, f"is too high for a text of {tokens:,} tokens.")


def bytes_in_memory(tokens: int, order: int) -> int:
    """Bytes to count in memory: text, positions, counts, model and file, for about three distinct n-grams per token."""
    return tokens * (16 + 27 * order)


def _cut_ranges(ids: np.ndarray, order: int, size: int, boundary: int, memory: int) -> list[tuple[int, int]]:
    """Cut the first words into ranges whose positions fit into three eighths of the memory.

    The rest is for the levels made from them, and for what this process holds already, above all the vocabulary.
    """
    occurrences = np.zeros(size, np.int64)
    for at in range(0, len(ids), BLOCK):
        occurrences += np.bincount(ids[at : at + BLOCK], minlength=size)
    each = 4 * order + 16 + 8 * order + 16
    most = min(memory * 3 // 8 // each, MAX_NODES // order)
    if size * 16 + MIN_BUFFER > memory or most < occurrences.max():
        needed = max(size * 16 + MIN_BUFFER, 8 * each * int(occurrences.max()) // 3)
        size_of_both = f"the most frequent word and the vocabulary alone need {needed / 2**20:,.0f} MB"
        raise invalid("estimator.memory", f"{memory / 2**20:,.0f} MB", f"is too small: {size_of_both}.")
    out, low, held = [], 0, 0
    for w in range(size):
        if held + occurrences[w] > most and held:
            out.append((low, w))
            low, held = w, 0
        held += int(occurrences[w])
    return [*out, (low, size)]


def _levels(
    ids: np.ndarray, order: int, boundary: int, low: int, high: int, in_memory: bool
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Yield words, counts and first children of every level, for n-grams whose first word lies in [low, high)."""
    if in_memory:
        tokens = np.full(len(ids) + 1 + order, END, np.uint32)
        tokens[0] = boundary
        tokens[1 : len(ids) + 1] = ids
        groups = np.zeros(high - low + 1, np.uint32)
        at = np.empty(len(ids) + 1, np.uint32)
        group_by_first_word(tokens, low, high, groups, at)
    else:
        tokens = _read_windows(ids, order, boundary, low, high)
        heads = np.ascontiguousarray(tokens[::order])
        groups = np.zeros(high - low + 1, np.uint32)
        at = np.empty(len(heads), np.uint32)
        group_by_first_word(heads, low, high, groups, at)
        at *= NODE(order)
    words = np.arange(low, high, dtype=NODE)
    for k in range(order):
        counts = np.diff(groups)
        if k == order - 1:
            yield words, counts, None
            return
        new_words, new_groups, first = _refine_level(tokens, at, groups, words, boundary, k + 1)
        yield words, counts, first
        words, groups = new_words, new_groups


def _read_windows(ids: np.ndarray, order: int, boundary: int, low: int, high: int) -> np.ndarray:
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
        copy_windows(block, heads, low, high, order, parts[-1])
    return np.concatenate(parts)


def _refine_level(
    tokens: np.ndarray, at: np.ndarray, groups: np.ndarray, words: np.ndarray, boundary: int, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make the next level, in parallel over parts with equally many positions; each part writes to its own place."""
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
    for low, high, children, positions in sorted(run_parallel(alive, work)):
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


def _link_level(counted: NgramCounts, k: int) -> np.ndarray:
    if k == 0:
        return np.zeros(0, np.uint32)
    words = counted.words[k]
    if k == 1:
        return words
    links = counted.arrays.new(len(words), np.uint32)
    above, shorter, named = counted.links[k - 1], counted.first[k - 2], counted.words[k - 1]
    for low, high in blocks(len(named), counted.block):
        run_in_blocks(
            len(above), counted.block, find_links, words, counted.first[k - 1], above, shorter, named, low, high, links
        )
    return links


def counts_of_counts(counts: np.ndarray, most: int) -> np.ndarray:
    """The number of n-grams with count 1, 2, … `most`: (most + 1,), the first being zero."""
    result = np.zeros(most + 1, np.int64)
    for low, high in blocks(len(counts), BLOCK):
        part = counts[low:high]
        result += np.bincount(part[part <= most], minlength=most + 1)
        release_pages(counts)
    result[0] = 0
    return result


# ------------------------------------------------------------------------------------------------ compiled loops


@jit
def group_by_first_word(tokens, low, high, starts, at):
    """Group the positions of words in [low, high) by word, into `at`; `starts` (high − low + 1) gets the bounds."""
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


@jit
def refine(begin, end, tokens, at, groups, words, boundary, k, new_words, new_groups, first):
    """Make the children of the nodes [begin, end) of level k − 1, sorted by word; returns their number and positions.

    The positions of node u are at[groups[u] : groups[u + 1]]. Those of its children are written back from groups[begin]
    on, without those at the end of the text. New words and groups are written from the same place on.
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
            _radix_sort(keys, spare, n)
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


@jit
def _radix_sort(keys, spare, n):
    """Radix sort by the word in the upper half; positions are ascending already and stay so."""
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


@jit
def copy_windows(tokens, heads, low, high, length, out):
    """Copy, end to end, the `length` tokens from each of the first `heads` positions with a word in [low, high)."""
    n = 0
    for i in range(heads):
        if low <= tokens[i] < high:
            for j in range(length):
                out[n + j] = tokens[i + j]
            n += length


@jit
def find_links(begin, end, words, first, above, shorter, shorter_words, low, high, links):
    """Find the links of the children of the nodes [begin, end), if they lie in [low, high).

    The suffix of a child is the child, by the same word, of its parent's suffix. Both lists of children ascend, so the
    search gallops forward.
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


@jit
def count_links(_, __, links, at, end, low, high, out):
    """Count how often each node in [low, high) is linked to."""
    for link in links[at:end]:
        if low <= link < high:
            out[link] += np.uint32(1)
