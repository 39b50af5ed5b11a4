"""The `compact` layout: the trie with every number in as few bits as it needs, and nothing that can be recomputed.

An n-gram is the code of its last word and a record of its log probability and back-off; the codes of a level lie side
by side, and so do the records. All words after "saw the cat" also occurred after "the cat", and these are few. So the
code of a word is not its id but its position among the children of the shorter context; for bigrams it is the id.

    children of "the cat"        children of "saw the cat"
    0 and   1 is   2 sat         0 and   2 sat

Reading goes from the shortest context to the longest, so the position is known before it is searched for, and if a
context lacks a word, all longer ones do. Links need no space either: a link is the shorter context's child at that
position. The starts of children are rising numbers in Elias-Fano coding; log probabilities and back-offs are columns.

    1. bits          fields of any width, and Elias-Fano coding of rising numbers
    2. columns       float32 values in few bits, with or without loss
    3. writing       the file
    4. reading       the file
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nextword.core.errors import invalid
from nextword.core.jit import jit, jit_leaf, run_parallel
from nextword.ngrams.layouts import MAX_LOG_PROB, Layout, NgramFile, create_file, damaged_file
from nextword.ngrams.trie import MAX_LOG_BACKOFF, NODE, NONE, Level, Trie

# ------------------------------------------------------------------------------------------------ bits

# Fields lie in an array of 64-bit words, lowest bit first, and may span two words. An array ends with one spare word,
# so that reading need not ask whether there is a second. Rising numbers are coded as by Elias and Fano:
#
#     0 0 1 4 4 9     low bits (here 1)   0 0 1 0 0 1        side by side
#                     the rest            0 0 0 2 2 4   →    1 1 1 0 0 1 1 0 0 1: a 1 for each, a 0 for each step up
#
# Number i is the number of zeros before the i-th 1, then its low bits. The position of every 64th 1 is stored, so
# finding one takes a look at a word or two: about 2 + log2(mean step) bits per number, whatever their size.

NOTED = 6  # log2 of how many numbers share one stored position

ONE, TWO, FOUR, EIGHT, LAST, SHIFT = (np.uint64(n) for n in (1, 2, 4, 8, 56, 63))
ODD, PAIRS, NIBBLES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
BYTES, TOPS, BYTE = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080), np.uint64(0xFF)


def bits_for(count: int) -> int:
    """Bits that distinguish `count` values."""
    return max(count - 1, 0).bit_length()


def words_for(bits: int) -> int:
    """64-bit words that hold this many bits, with the spare one."""
    return bits // 64 + 2


def low_bits(numbers: int, largest: int) -> int:
    """The number of low bits of each rising number that minimizes the total."""
    return max(largest // max(numbers, 1), 1).bit_length() - 1


def high_length(numbers: int, largest: int) -> int:
    """Bits of the high parts."""
    return (largest >> low_bits(numbers, largest)) + numbers + 1


def notes_length(numbers: int) -> int:
    """Stored positions."""
    return (numbers >> NOTED) + 1


@jit_leaf
def field(packed, at, mask):
    """The bits from `at` on, as many as the mask has."""
    word = at >> 6
    shift = np.uint64(at) & SHIFT
    return ((packed[word] >> shift) | ((packed[word + 1] << ONE) << (SHIFT - shift))) & mask


@jit_leaf
def put(packed, at, value):
    """Write a value into bits that are still 0."""
    word = at >> 6
    shift = np.uint64(at) & SHIFT
    packed[word] |= value << shift
    packed[word + 1] |= (value >> ONE) >> (SHIFT - shift)


@jit
def put_column(packed, at, stride, values):
    """Write one field of consecutive records that are `stride` bits long."""
    for i in range(len(values)):
        put(packed, at + i * stride, np.uint64(values[i]))


@jit
def get_column(packed, at, width, out):
    """Read consecutive fields."""
    mask = (ONE << np.uint64(width)) - ONE
    for i in range(len(out)):
        out[i] = field(packed, at + i * width, mask)


@jit
def put_rising(packed, high, low, low_width, notes, begin, numbers):
    """Write the numbers `begin`, `begin + 1`, … of a rising sequence whose high and low parts start at these bits."""
    mask = (ONE << np.uint64(low_width)) - ONE
    for j in range(len(numbers)):
        i = begin + j
        place = (np.int64(numbers[j]) >> low_width) + i
        put(packed, high + place, ONE)
        put(packed, low + i * low_width, np.uint64(numbers[j]) & mask)
        if i & ((1 << NOTED) - 1) == 0:
            notes[i >> NOTED] = place


@jit_leaf
def ones(word):
    """The number of 1s."""
    word = word - ((word >> ONE) & ODD)
    word = (word & PAIRS) + ((word >> TWO) & PAIRS)
    return (((word + (word >> FOUR)) & NIBBLES) * BYTES) >> LAST


@jit_leaf
def lowest(word):
    """The position of the lowest 1."""
    return ones((word & (~word + ONE)) - ONE)


@jit_leaf
def nth(word, n):
    """The position of the n-th 1, from 0 on: first its byte, by sums over all bytes at once, then within the byte."""
    sums = word - ((word >> ONE) & ODD)
    sums = (sums & PAIRS) + ((sums >> TWO) & PAIRS)
    sums = ((sums + (sums >> FOUR)) & NIBBLES) * BYTES
    byte = ones((((n * BYTES) | TOPS) - sums) & TOPS) * EIGHT
    n -= ((sums << EIGHT) >> byte) & BYTE
    rest = word >> byte
    while n:
        rest &= rest - ONE
        n -= ONE
    return byte + lowest(rest)


@jit_leaf
def rising_pair(packed, high, low, low_width, note, i):
    """Numbers i and i + 1: where the children of a node begin and end. `note` is the stored position before i."""
    place = high + np.int64(note)
    skip = np.uint64(i & ((1 << NOTED) - 1))
    at = place >> 6
    word = packed[at] & (~np.uint64(0) << (np.uint64(place) & SHIFT))
    count = ones(word)
    while count <= skip:
        skip -= count
        at += 1
        word = packed[at]
        count = ones(word)
    within = nth(word, skip)
    first = (at << 6) + np.int64(within) - high - i
    word &= ~np.uint64(0) << within
    word &= word - ONE
    while word == 0:
        at += 1
        word = packed[at]
    second = (at << 6) + np.int64(lowest(word)) - high - i - 1
    if low_width:
        mask = (ONE << np.uint64(low_width)) - ONE
        mine = low + i * low_width
        first = (first << low_width) | np.int64(field(packed, mine, mask))
        second = (second << low_width) | np.int64(field(packed, mine + low_width, mask))
    return first, second


# ------------------------------------------------------------------------------------------------ columns

# Without loss: back-offs take few distinct values (they depend on a handful of small counts), so a table of these and
# an index is often shorter. Log probabilities differ, but all lie in a small range of float32's bit patterns, and the
# distance from the smallest pattern needs 26 to 29 bits instead of 32.
#
# With loss: a table of 2^bits values that makes the mean squared error in nats small. Values are weighted by the square
# root of how many n-grams have about that value: unusual values belong to frequent contexts, which text asks for most
# often. On WikiText-2 with 8 bits, ln p is off by 0.01 on average, a seventh of what equally filled bins give (both as
# root mean square). 0 and −∞ are kept exactly.

CHUNK = 1 << 18  # values processed at once
ROUNDS = 40  # of Lloyd's algorithm
LONGEST = 1 << 20  # entries of a lossless table: a longer one would not stay in the cache
CELLS = 1 << 10  # of the density histogram
EVENLY = 0.1  # share of the table that is spread evenly, whatever the density
MINUS_ZERO = np.uint32(0x80000000)


@dataclass(frozen=True)
class Column:
    """A value is `table[code]` or, without a table, the bit pattern `low + code`."""

    bits: int
    low: int = 0
    table: np.ndarray | None = None  # float32, ascending

    def encode(self, values: np.ndarray) -> np.ndarray:
        if self.table is None:
            return patterns(values) - np.uint32(self.low)
        wide = self.table.astype(np.float64)
        middles = (wide[1:] + wide[:-1]) / 2
        return np.searchsorted(middles, values).astype(np.uint32)


def patterns(values: np.ndarray) -> np.ndarray:
    """Bit patterns, with −0 for 0: so all values that are not positive lie in one half of them."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return np.where(bits == 0, MINUS_ZERO, bits)


def encode_losslessly(values: np.ndarray) -> Column:
    """Choose the shorter of the two exact codings."""
    if not len(values):
        return Column(0)
    low, high = 2**32 - 1, 0
    for chunk in _chunks(values):
        bits = patterns(chunk)
        low, high = min(low, int(bits.min())), max(high, int(bits.max()))
    plain = Column(bits_for(high - low + 1), low)
    table = _distinct(values, LONGEST, plain.bits * len(values))
    return plain if table is None else Column(bits_for(len(table)), table=table)


def quantize_column(values: np.ndarray, bits: int) -> Column:
    """Choose a table of at most 2^bits values."""
    table = _distinct(values, most=1 << bits)
    if table is None:
        table = _fit_table(values, 1 << bits)
    return Column(bits_for(len(table)), table=table)


def _chunks(values: np.ndarray) -> Iterator[np.ndarray]:
    for at in range(0, len(values), CHUNK):
        yield np.asarray(values[at : at + CHUNK])


def _distinct(values: np.ndarray, most: int, worth: float = math.inf) -> np.ndarray | None:
    """The distinct values, ascending; None if they are more than `most` or a table of them takes `worth` bits."""
    distinct = np.zeros(0, np.float32)
    for chunk in _chunks(values):
        distinct = np.union1d(distinct, chunk + np.float32(0))  # + 0 makes −0 equal to 0
        if len(distinct) > most or 32 * len(distinct) + bits_for(len(distinct)) * len(values) >= worth:
            return None
    return distinct


def _fit_table(values: np.ndarray, length: int) -> np.ndarray:
    """At most `length` values that stand for all of these, by Lloyd's algorithm on a fine histogram."""
    kept: set[float] = set()
    least, most = np.inf, -np.inf
    for chunk in _chunks(values):
        kept |= {value for value in (0.0, -np.inf) if (chunk == value).any()}
        usual = chunk[_is_usual(chunk)]
        if len(usual):
            least, most = min(least, float(usual.min())), max(most, float(usual.max()))
    bins = min(256 * length, 1 << 20)
    scale = (bins - 1) / (most - least)
    counts, sums = np.zeros(bins), np.zeros(bins)
    for chunk in _chunks(values):
        usual = chunk[_is_usual(chunk)].astype(np.float64)
        place = ((usual - least) * scale).astype(np.int64)
        counts += np.bincount(place, minlength=bins)
        sums += np.bincount(place, usual, minlength=bins)
    filled = counts > 0
    places, weights = sums[filled] / counts[filled], np.sqrt(counts[filled])
    centers = _run_lloyd(places, weights, _initial_centers(places, weights, length - len(kept)))
    return np.unique(np.concatenate([centers, sorted(kept)]).astype(np.float32))


def _is_usual(values: np.ndarray) -> np.ndarray:
    """Neither 0 nor −∞, which have entries of their own."""
    return (values != 0) & np.isfinite(values)


def _initial_centers(places: np.ndarray, weights: np.ndarray, length: int) -> np.ndarray:
    """Centers as dense as the cube root of the density, optimal in the limit (Panter and Dite), and some everywhere."""
    cells = ((places - places[0]) / (places[-1] - places[0]) * (CELLS - 1)).astype(np.int64)
    density = np.cbrt(np.bincount(cells, weights, minlength=CELLS))
    density += EVENLY * density.mean()  # so that an isolated value has a center nearby
    mass = np.concatenate([[0.0], np.cumsum(density)])
    wanted = (np.arange(length) + 0.5) / length * mass[-1]
    return np.interp(wanted, mass, np.linspace(places[0], places[-1], CELLS + 1))


def _run_lloyd(places: np.ndarray, weights: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Assign each value to the nearest center and move each center to the mean of its values, repeatedly."""
    weighed = np.concatenate([[0.0], np.cumsum(weights)])
    summed = np.concatenate([[0.0], np.cumsum(weights * places)])
    for _ in range(ROUNDS):
        edges = np.searchsorted(places, (centers[1:] + centers[:-1]) / 2)
        edges = np.concatenate([[0], edges, [len(places)]])
        weight = np.diff(weighed[edges])
        moved = np.divide(np.diff(summed[edges]), weight, out=centers.copy(), where=weight > 0)
        if np.array_equal(moved, centers):
            break
        centers = moved
    return centers


# ------------------------------------------------------------------------------------------------ writing

LAYOUT = "compact"
MIN_BITS, MAX_BITS = 2, 16  # of a quantized value

# A level is described by a row of `plan`. Offsets are in bits, or in entries of an array.
CODES, CODE = 0, 1  # offset of its codes, and the width of one
RECORDS, PROB, BACKOFF = 2, 3, 4  # offset of its records, and the widths of their two values
PROB_LOW, PROB_TABLE, BACKOFF_LOW, BACKOFF_TABLE = 5, 6, 7, 8  # see Column; the offset of a table, or −1
HIGH, LOW, LOW_BITS, NOTES = 9, 10, 11, 12  # the parts of the rising numbers that tell where children begin
PLAN = 13


def write_trie_layout(trie: Trie, path: Path, bits: int = 0) -> None:
    """Write the trie; with `bits`, log probabilities and back-offs are quantized to 2^bits values for each order."""
    if bits and not MIN_BITS <= bits <= MAX_BITS:
        raise invalid("bits", bits, f"must be 0 (lossless) or {MIN_BITS} to {MAX_BITS}; 8 is usual.")
    plan, columns = np.zeros((trie.order, PLAN), np.int64), []
    entries = [len(level) for level in trie.levels]
    at, values, numbers = 0, 2 * trie.size, trie.size + 1
    for k, level in enumerate(trie.levels[1:], 1):
        row = plan[k]
        row[[PROB_TABLE, BACKOFF_TABLE]] = -1
        pair = [_choose_column(level.log_probs, bits), _choose_column(level.log_backoffs, bits)]
        columns.append(pair)
        row[CODE] = bits_for(trie.size if k == 1 else _max_children(trie.levels[k - 2].first))
        row[[PROB, BACKOFF]] = [column.bits for column in pair]
        row[[PROB_LOW, BACKOFF_LOW]] = [column.low for column in pair]
        for column, place in zip(pair, (PROB_TABLE, BACKOFF_TABLE), strict=True):
            if column.table is not None:
                row[place] = values
                values += len(column.table)
        at, numbers = _place_level(row, entries, k, at, numbers)
    facts = {"order": trie.order, "size": trie.size, "boundary": trie.boundary, "entries": entries, "bits": bits}
    lengths = {"bits": words_for(at), "values": values, "numbers": numbers, "plan": plan.size}
    shapes = {name: (TrieLayout.types[name], length) for name, length in lengths.items()}
    made = create_file(path, LAYOUT, {**trie.facts, **facts}, shapes)
    made["plan"][:] = plan.ravel()
    unigrams = trie.levels[0]
    made["values"][: trie.size] = unigrams.log_probs
    if unigrams.first is not None:
        made["numbers"][: trie.size + 1] = unigrams.first
        made["values"][trie.size : 2 * trie.size] = unigrams.log_backoffs
    for k in range(1, trie.order):
        _write_level(trie, k, plan[k], columns[k - 1], made)


def _place_level(row: np.ndarray, entries: Sequence[int], k: int, at: int, numbers: int) -> tuple[int, int]:
    """Fill in the offsets of level k, which follow from its widths; returns the next free bit and number."""
    row[CODES] = at
    row[RECORDS] = row[CODES] + row[CODE] * entries[k]
    row[LOW] = row[HIGH] = row[RECORDS] + (row[PROB] + row[BACKOFF]) * entries[k]
    if k == len(entries) - 1:
        return int(row[HIGH]), numbers
    count, largest = entries[k] + 1, entries[k + 1]
    row[LOW_BITS], row[NOTES] = low_bits(count, largest), numbers
    row[HIGH] += row[LOW_BITS] * count
    return int(row[HIGH]) + high_length(count, largest), numbers + notes_length(count)


def _choose_column(values: np.ndarray | None, bits: int) -> Column:
    if values is None:
        return Column(0)
    return quantize_column(values, bits) if bits else encode_losslessly(values)


def _max_children(first: np.ndarray | None) -> int:
    """The most children of a node of a level."""
    assert first is not None
    starts = range(0, len(first) - 1, CHUNK)
    return max((int(np.diff(first[begin : begin + CHUNK + 1]).max()) for begin in starts), default=0)


def _write_level(trie: Trie, k: int, row: np.ndarray, columns: list[Column], made: dict[str, np.ndarray]) -> None:
    level, above, bits = trie.levels[k], trie.levels[k - 1], made["bits"]
    assert level.links is not None
    none = np.zeros(0, NODE)
    shorter = (none, none) if k == 1 else (above.links, trie.levels[k - 2].first)
    put_codes(bits, row[CODES], row[CODE], *(np.asarray(a) for a in (level.links, above.first, *shorter)))
    for column, place in zip(columns, (PROB_TABLE, BACKOFF_TABLE), strict=True):
        if column.table is not None:
            made["values"][row[place] : row[place] + len(column.table)] = column.table
    record = row[PROB] + row[BACKOFF]
    for begin in range(0, len(level), CHUNK):
        part, at = slice(begin, begin + CHUNK), row[RECORDS] + begin * record
        put_column(bits, at, record, columns[0].encode(level.log_probs[part]))
        if level.log_backoffs is not None:
            put_column(bits, at + row[PROB], record, columns[1].encode(level.log_backoffs[part]))
    if level.first is not None:
        notes = made["numbers"][row[NOTES] :]
        for begin in range(0, len(level) + 1, CHUNK):
            part = slice(begin, begin + CHUNK)
            put_rising(bits, row[HIGH], row[LOW], row[LOW_BITS], notes, begin, np.asarray(level.first[part]))


@jit
def put_codes(bits, at, width, links, first, above_links, shorter):
    """Write each node's position among the children of its parent's link; for a bigram that is the root."""
    for parent in range(len(first) - 1):
        base = np.int64(shorter[above_links[parent]]) if len(shorter) else np.int64(0)
        for i in range(first[parent], first[parent + 1]):
            put(bits, at + i * width, np.uint64(np.int64(links[i]) - base))


# ------------------------------------------------------------------------------------------------ reading


class TrieLayout(Layout):
    """A model in a file of this layout."""

    types: ClassVar[Mapping[str, Any]] = {
        "bits": np.uint64,
        "values": np.float32,
        "numbers": np.uint32,
        "plan": np.int64,
    }

    def __init__(self, opened: NgramFile) -> None:
        super().__init__(opened)
        self._bits, self._values, self._numbers = (opened.arrays[name] for name in ("bits", "values", "numbers"))
        self._plan = opened.arrays["plan"].reshape(self.order, PLAN)
        self._arrays = self._bits, self._values, self._numbers, self._plan, self.size

    def read(self, ids: np.ndarray) -> np.ndarray:
        """ln p of each id given those before it."""
        ids = self.check_ids(ids)
        out = np.empty(len(ids), np.float32)
        run_parallel(len(ids), read, *self._arrays, ids, self.boundary, out)
        return out

    def distributions(self, contexts: np.ndarray) -> np.ndarray:
        contexts = self.check_ids(contexts)
        out = np.empty((len(contexts), self.size), np.float32)
        run_parallel(len(out), distribute, *self._arrays, contexts, self.boundary, out, least=8)
        return out

    @staticmethod
    def find_damage(opened: NgramFile) -> str:
        order, size, entries = (opened.facts[key] for key in ("order", "size", "entries"))
        bits, values, numbers, plan = (opened.arrays[name] for name in TrieLayout.types)
        if len(plan) != order * PLAN or len(values) < 2 * size or len(numbers) < size + 1:
            return "its arrays are not as long as its numbers of n-grams require"
        plan = plan.reshape(order, PLAN)
        tables = _check_plan(plan, entries, len(bits), len(values), len(numbers))
        if tables is None:
            return "its plan contradicts its numbers of n-grams"
        if any(run_parallel(size, has_bad_unigram, values, size)):
            return "its 1-grams have invalid values"
        if order > 1 and not is_rising(numbers, size + 1, entries[1], size):
            return "its 1-grams are out of order"
        for k in range(1, order):
            if any(run_parallel(entries[k], has_bad_ngram, bits, values, plan, size, k, *tables[k])):
                return f"its {k + 1}-grams have invalid values"
            if k < order - 1 and not is_rising_coded(bits, numbers, plan, k, entries[k] + 1, entries[k + 1], size):
                return f"its {k + 1}-grams are out of order"
        return ""

    def rebuild(self) -> Trie:
        """Rebuild the trie; quantized values stay quantized."""
        size, rows = self.size, self._plan
        levels = [Level(np.arange(size, dtype=NODE), None, None, self._values[:size].copy(), None)]
        if self.order > 1:
            levels[0].first = self._numbers[: size + 1].copy()
            levels[0].log_backoffs = self._values[size : 2 * size].copy()
        for k in range(1, self.order):
            above, count = levels[-1], self.entries[k]
            links = np.empty(count, NODE)
            get_column(self._bits, rows[k, CODES], rows[k, CODE], links)
            if k > 1:
                shorter, first = levels[k - 2].first, above.first
                assert shorter is not None
                assert first is not None
                links += np.repeat(shorter[above.links], np.diff(first))
                if (links >= len(above)).any():
                    raise damaged_file(self.path, f"its {k + 1}-grams contradict its {k}-grams")
            log_probs, log_backoffs = np.empty(count, np.float32), np.empty(count, np.float32)
            first = np.zeros(count + 1, NODE)
            last = k == self.order - 1
            unpack(*self._arrays, k, last, log_probs, log_backoffs, first)
            rest = (None, log_probs, None) if last else (first, log_probs, log_backoffs)
            levels.append(Level(above.words[links], links, *rest))
        return Trie(levels, self.boundary, self.facts)


def _check_plan(plan: np.ndarray, entries: list[int], bits: int, values: int, numbers: int) -> np.ndarray | None:
    """The lengths of the two tables of each level, −1 for none; None if this is no plan that writing makes.

    A plan follows from the numbers of n-grams, the widths, and which columns have tables; these fill `values` to its
    end, side by side. `bits`, `values` and `numbers` are the lengths of these arrays.
    """
    widths, lows = plan[:, [CODE, PROB, BACKOFF]], plan[:, [PROB_LOW, BACKOFF_LOW]]
    if widths.min() < 0 or widths.max() > 32 or lows.min() < 0 or lows.max() > NONE:
        return None
    tables = np.full((len(entries), 2), -1)
    for k in range(len(entries) - 1, 0, -1):
        for i, (width, place) in ((1, (BACKOFF, BACKOFF_TABLE)), (0, (PROB, PROB_TABLE))):
            if plan[k, place] != -1:
                tables[k, i] = values - plan[k, place]
                values = int(plan[k, place])
                if tables[k, i] < 0 or bits_for(int(tables[k, i])) != plan[k, width]:
                    return None
    expected = np.zeros_like(plan)
    given = [CODE, PROB, BACKOFF, PROB_LOW, PROB_TABLE, BACKOFF_LOW, BACKOFF_TABLE]
    expected[1:, given] = plan[1:, given]
    at, notes = 0, entries[0] + 1
    for k in range(1, len(entries)):
        at, notes = _place_level(expected[k], entries, k, at, notes)
    is_exact = (words_for(at), 2 * entries[0], notes) == (bits, values, numbers) and np.array_equal(plan, expected)
    return tables if is_exact else None


@jit
def has_bad_unigram(begin, end, values, size):
    """Whether one of the words [begin, end) has a value that is NaN or too large."""
    for w in range(begin, end):
        if not values[w] <= MAX_LOG_PROB:
            return True
        if not values[size + w] < MAX_LOG_BACKOFF:
            return True
    return False


@jit
def has_bad_ngram(begin, end, bits, values, plan, size, k, probs, backoffs):
    """Whether one of the nodes [begin, end) of a level has a value that is NaN, too large or outside its table.

    `probs` and `backoffs` are the lengths of the tables. The code of a bigram is a word, and must be one.
    """
    record, code_mask = plan[k, PROB] + plan[k, BACKOFF], mask_of(plan[k, CODE])
    prob_mask, backoff_mask = mask_of(plan[k, PROB]), mask_of(plan[k, BACKOFF])
    for node in range(begin, end):
        at = plan[k, RECORDS] + node * record
        if probs >= 0 and np.int64(field(bits, at, prob_mask)) >= probs:
            return True
        if backoffs >= 0 and np.int64(field(bits, at + plan[k, PROB], backoff_mask)) >= backoffs:
            return True
        if not log_prob(bits, values, plan, k, node) <= MAX_LOG_PROB:
            return True
        if not log_backoff(bits, values, plan, size, k, node) < MAX_LOG_BACKOFF:
            return True
        if k == 1 and np.int64(field(bits, plan[k, CODES] + node * plan[k, CODE], code_mask)) >= size:
            return True
    return False


@jit
def is_rising(numbers, count, largest, most):
    """Whether `count` numbers rise from 0 to `largest`, in steps of at most `most`."""
    for i in range(1, count):
        if not np.int64(0) <= np.int64(numbers[i]) - np.int64(numbers[i - 1]) <= most:
            return False
    return numbers[0] == 0 and numbers[count - 1] == largest


@jit
def is_rising_coded(bits, numbers, plan, k, count, largest, most):
    """The same of the numbers of level k in Elias-Fano coding, whose 1s must be as many, and noted where they are."""
    high, low, width, notes = plan[k, HIGH], plan[k, LOW], plan[k, LOW_BITS], plan[k, NOTES]
    end = high + (largest >> width) + count + 1
    mask = mask_of(width)
    i, before = np.int64(0), np.int64(0)
    for at in range(high >> 6, (end + 63) >> 6):
        word = bits[at]
        if at == high >> 6:
            word &= ~np.uint64(0) << (np.uint64(high) & SHIFT)
        if at == end >> 6:
            word &= (ONE << (np.uint64(end) & SHIFT)) - ONE
        while word:
            place = (at << 6) + np.int64(lowest(word)) - high
            word &= word - ONE
            if i == count or (i & ((1 << NOTED) - 1) == 0 and numbers[notes + (i >> NOTED)] != place):
                return False
            number = ((place - i) << width) | np.int64(field(bits, low + i * width, mask))
            if not (before <= number <= before + most and (i > 0 or number == 0)):
                return False
            i, before = i + 1, number
    return i == count and before == largest


@jit_leaf
def mask_of(width):
    return (np.uint64(1) << np.uint64(width)) - np.uint64(1)


@jit_leaf
def value(bits, values, at, width, low, table):
    code = np.int64(field(bits, at, mask_of(width)))
    if table >= 0:
        return values[table + code]
    return np.uint32(low + code).view(np.float32) + np.float32(0)  # + 0 makes −0 into 0


@jit_leaf
def log_prob(bits, values, plan, k, node):
    if k == 0:
        return values[node]
    at = plan[k, RECORDS] + node * (plan[k, PROB] + plan[k, BACKOFF])
    return value(bits, values, at, plan[k, PROB], plan[k, PROB_LOW], plan[k, PROB_TABLE])


@jit_leaf
def log_backoff(bits, values, plan, size, k, node):
    if k == 0:
        return values[size + node]
    at = plan[k, RECORDS] + node * (plan[k, PROB] + plan[k, BACKOFF]) + plan[k, PROB]
    return value(bits, values, at, plan[k, BACKOFF], plan[k, BACKOFF_LOW], plan[k, BACKOFF_TABLE])


@jit_leaf
def children(bits, numbers, plan, k, node):
    """Where the children of a node of level k begin and end in the next level."""
    if k == 0:
        return np.int64(numbers[node]), np.int64(numbers[node + 1])
    note = numbers[plan[k, NOTES] + (node >> NOTED)]
    return rising_pair(bits, plan[k, HIGH], plan[k, LOW], plan[k, LOW_BITS], note, node)


@jit_leaf
def search(bits, plan, k, begin, end, code, siblings):
    """The node of level k with this code, or −1. Codes rise and are below `siblings`, which narrows the search."""
    at, width = plan[k, CODES], plan[k, CODE]
    mask, wanted = mask_of(width), np.uint64(code)
    least = max(begin, end - siblings + code)
    count = min(end, begin + code + 1) - least
    if count <= 0:
        return np.int64(-1)
    while count > 1:
        half = count >> 1
        least += half * (field(bits, at + (least + half) * width, mask) <= wanted)
        count -= half
    return least if field(bits, at + least * width, mask) == wanted else np.int64(-1)


@jit_leaf
def advance(bits, values, numbers, plan, size, context, length, word, boundary):
    """ln p of a word, and the length of the context after it. `context[j]` is the node of its last j + 1 words."""
    node, context[0] = context[0], word
    code, siblings = word, size
    k = 0
    while k < length:
        begin, end = children(bits, numbers, plan, k, node)
        child = search(bits, plan, k + 1, begin, end, code, siblings)
        if child < 0:
            break
        code, siblings = child - begin, end - begin
        k += 1
        node, context[k] = context[k], child
    paid = np.float32(0)
    for j in range(length - 1, k, -1):
        paid += log_backoff(bits, values, plan, size, j, context[j])
    if k < length:
        paid += log_backoff(bits, values, plan, size, k, node)
    log_p = log_prob(bits, values, plan, k, context[k])
    return paid + log_p, min(1 if word == boundary else k + 1, len(plan) - 1)


@jit
def read(begin, end, bits, values, numbers, plan, size, ids, boundary, out):
    """Log probabilities of a part of a stream; its first context is found from the ids before it."""
    context = np.zeros(len(plan) + 1, np.int64)
    length = 0
    for i in range(max(0, begin - len(plan) + 1), end):
        if ids[i] == NONE:
            log_p, length = np.float32(0), 0
        else:
            word = np.int64(ids[i])
            log_p, length = advance(bits, values, numbers, plan, size, context, length, word, boundary)
        if i >= begin:
            out[i] = log_p


@jit
def distribute(begin, end, bits, values, numbers, plan, size, given, boundary, out):
    """ln p of every word after each context; longer contexts overwrite shorter ones."""
    context = np.zeros(len(plan) + 1, np.int64)
    paid = np.zeros(len(plan) + 1, np.float32)
    words = np.empty(size, np.int64)
    for b in range(begin, end):
        length, known = 0, size
        for i in range(given.shape[1]):
            if given[b, i] == NONE:
                length = 0
            else:
                word = np.int64(given[b, i])
                _, length = advance(bits, values, numbers, plan, size, context, length, word, boundary)
        paid[length] = 0
        for k in range(length - 1, -1, -1):
            paid[k] = paid[k + 1] + log_backoff(bits, values, plan, size, k, context[k])
        for other in range(size):
            out[b, other] = paid[0] + values[other]
        for k in range(length):
            low, high = children(bits, numbers, plan, k, context[k])
            at, width = plan[k + 1, CODES], plan[k + 1, CODE]
            if known == 0:  # only in a file that contradicts itself: what follows relies on words[0]
                break
            for i in range(high - low):
                # A code is at least i, so words[code] is still an entry of the shorter context. It is below `known`,
                # the number of these, but only a comparison with the shorter context could validate that.
                code = min(np.int64(field(bits, at + (low + i) * width, mask_of(width))), known - 1)
                words[i] = words[code] if k else code
                out[b, words[i]] = paid[k + 1] + log_prob(bits, values, plan, k + 1, low + i)
            known = high - low


@jit
def unpack(bits, values, numbers, plan, size, k, last, log_probs, log_backoffs, first):
    """Read all values of level k."""
    for node in range(len(log_probs)):
        log_probs[node] = log_prob(bits, values, plan, k, node)
        if not last:
            log_backoffs[node] = log_backoff(bits, values, plan, size, k, node)
            _, first[node + 1] = children(bits, numbers, plan, k, node)
