"""Grouping positions of a text by the words that stand there: the inner loop of counting.

Positions that share their first k words lie side by side. `refine` sorts each such group by the word that follows,
which makes the groups of k + 1 words, and names a child for each of them. Groups are small after a few words: most
hold one position, which needs no sorting at all.
"""

from __future__ import annotations

import numpy as np

from nextword.compiled import compiled

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
