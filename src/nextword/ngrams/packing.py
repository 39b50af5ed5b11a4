"""Numbers in as few bits as they need, read back one at a time from anywhere.

Fields lie in an array of 64-bit words, the lowest bit first, and may straddle two words; an array ends with one spare
word, so that reading never asks whether there is a second. Rising numbers are kept as Elias and Fano did:

    0 0 1 4 4 9     low bits (here 1)   0 0 1 0 0 1        side by side
                    the rest            0 0 0 2 2 4   →    1 1 1 0 0 1 1 0 0 1: a 1 for each, a 0 for each step up

Number i is the zeros before the i-th 1, then its low bits. Every 64th 1 has its position noted, so finding one takes
a look at a word or two: about 2 + log2(mean step) bits a number, whatever their size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nextword.compiled import compiled, leaf

NOTED = 6  # log2 of how many numbers share one noted position

ONE, TWO, FOUR, EIGHT, LAST, SHIFT = (np.uint64(n) for n in (1, 2, 4, 8, 56, 63))
ODD, PAIRS, NIBBLES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
BYTES, TOPS, BYTE = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080), np.uint64(0xFF)


def bits_for(count: int) -> int:
    """Bits that tell `count` things apart."""
    return max(count - 1, 0).bit_length()


def words_for(bits: int) -> int:
    """Words of 64 bits that hold so many bits, with the spare one."""
    return -(-bits // 64) + 1


def low_bits(numbers: int, largest: int) -> int:
    """How many low bits of each rising number to keep side by side, for the fewest bits in all."""
    return max(largest // max(numbers, 1), 1).bit_length() - 1


def high_length(numbers: int, largest: int) -> int:
    return (largest >> low_bits(numbers, largest)) + numbers + 1


def notes_length(numbers: int) -> int:
    return (numbers >> NOTED) + 1


@leaf
def field(packed: np.ndarray, at: int, mask: np.uint64) -> np.uint64:
    """The bits from `at` on, as many as the mask has."""
    word = at >> 6
    shift = np.uint64(at) & SHIFT
    return ((packed[word] >> shift) | ((packed[word + 1] << ONE) << (SHIFT - shift))) & mask


@leaf
def put(packed: np.ndarray, at: int, value: np.uint64) -> None:
    """Into bits that are still 0."""
    word = at >> 6
    shift = np.uint64(at) & SHIFT
    packed[word] |= value << shift
    packed[word + 1] |= (value >> ONE) >> (SHIFT - shift)


@compiled
def put_column(packed: np.ndarray, at: int, stride: int, values: np.ndarray) -> None:
    """One field of consecutive records that are `stride` bits long."""
    for i in range(len(values)):
        put(packed, at + i * stride, np.uint64(values[i]))


@compiled
def get_column(packed: np.ndarray, at: int, width: int, out: np.ndarray) -> None:
    mask = (ONE << np.uint64(width)) - ONE
    for i in range(len(out)):
        out[i] = field(packed, at + i * width, mask)


@compiled
def put_rising(
    packed: np.ndarray, high: int, low: int, low_width: int, notes: np.ndarray, begin: int, numbers: np.ndarray
) -> None:
    """Numbers `begin`, `begin + 1`, … of a rising sequence whose high and low parts start at these bits."""
    mask = (ONE << np.uint64(low_width)) - ONE
    for j in range(len(numbers)):
        i = begin + j
        place = (np.int64(numbers[j]) >> low_width) + i
        put(packed, high + place, ONE)
        put(packed, low + i * low_width, np.uint64(numbers[j]) & mask)
        if i & ((1 << NOTED) - 1) == 0:
            notes[i >> NOTED] = place


@leaf
def ones(word: np.uint64) -> np.uint64:
    word = word - ((word >> ONE) & ODD)
    word = (word & PAIRS) + ((word >> TWO) & PAIRS)
    return (((word + (word >> FOUR)) & NIBBLES) * BYTES) >> LAST


@leaf
def lowest(word: np.uint64) -> np.uint64:
    """The place of the lowest 1."""
    return ones((word & (~word + ONE)) - ONE)


@leaf
def nth(word: np.uint64, n: np.uint64) -> np.uint64:
    """The place of the n-th 1, from 0 on: first its byte, by sums of all bytes at once, then within the byte."""
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


@leaf
def rising_pair(packed: np.ndarray, high: int, low: int, low_width: int, note: np.uint32, i: int) -> Any:
    """Numbers i and i + 1: where the children of a node begin and end. The note is that of i."""
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
