"""How a column of float32 values is written in few bits, without loss or with a given number of bits a value.

Without loss: back-offs take few different values (they depend on a handful of small counts), so a table of these and
a place in it is often shorter; log-probabilities differ, but all lie in a small range of float32's bit patterns, and
the distance from the smallest pattern needs 26 to 29 bits instead of 32.

With loss: a table of 2^bits values that make the mean squared error in nats small. Values count by the square root of
how many n-grams have about that value: the unusual ones belong to frequent contexts, which text asks for most often.
On WikiText-2 with 8 bits ln p is off by 0.01 on average, a seventh of what equally full bins give (both as root mean
square). 0 and −∞ stay what they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nextword.ngrams.packing import bits_for

CHUNK = 1 << 18  # values looked at together
ROUNDS = 40  # of moving each value of a table to the mean of those it stands for
LONGEST = 1 << 20  # of a table without loss: a longer one is too large to be at hand
CELLS = 1 << 10  # of the histogram that says how dense the values lie
EVENLY = 0.1  # of the table is laid out evenly, whatever the density
MINUS_ZERO = np.uint32(0x80000000)


@dataclass(frozen=True)
class Column:
    """A value is `table[code]`, or the bit pattern `low + code` where there is no table."""

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
    """Bit patterns, 0 taken as −0: so all that is not positive lies in one half of them."""
    found = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return np.where(found == 0, MINUS_ZERO, found)


def lossless(values: np.ndarray) -> Column:
    """The shorter of the two exact ways."""
    if not len(values):
        return Column(0)
    low, high = 2**32 - 1, 0
    for chunk in _chunks(values):
        found = patterns(chunk)
        low, high = min(low, int(found.min())), max(high, int(found.max()))
    plain = Column(bits_for(high - low + 1), low)
    table = _distinct(values, LONGEST, plain.bits * len(values))
    return plain if table is None else Column(bits_for(len(table)), table=table)


def quantised(values: np.ndarray, bits: int) -> Column:
    table = _distinct(values, most=1 << bits)
    if table is None:
        table = _table(values, 1 << bits)
    return Column(bits_for(len(table)), table=table)


def _chunks(values: np.ndarray) -> Iterator[np.ndarray]:
    for at in range(0, len(values), CHUNK):
        yield np.asarray(values[at : at + CHUNK])


def _distinct(values: np.ndarray, most: int, worth: float = math.inf) -> np.ndarray | None:
    """The different values ascending; None where they are more than `most` or a table of them takes `worth` bits."""
    found = np.zeros(0, np.float32)
    for chunk in _chunks(values):
        found = np.union1d(found, chunk + np.float32(0))  # + 0 makes −0 the same as 0
        if len(found) > most or 32 * len(found) + bits_for(len(found)) * len(values) >= worth:
            return None
    return found


def _table(values: np.ndarray, length: int) -> np.ndarray:
    """`length` values or fewer for all of these, by Lloyd's method on a fine histogram."""
    kept: set[float] = set()
    least, most = np.inf, -np.inf
    for chunk in _chunks(values):
        kept |= {value for value in (0.0, -np.inf) if (chunk == value).any()}
        usual = chunk[_usual(chunk)]
        if len(usual):
            least, most = min(least, float(usual.min())), max(most, float(usual.max()))
    bins = min(256 * length, 1 << 20)
    scale = (bins - 1) / (most - least)
    counts, sums = np.zeros(bins), np.zeros(bins)
    for chunk in _chunks(values):
        usual = chunk[_usual(chunk)].astype(np.float64)
        place = ((usual - least) * scale).astype(np.int64)
        counts += np.bincount(place, minlength=bins)
        sums += np.bincount(place, usual, minlength=bins)
    filled = counts > 0
    places, weights = sums[filled] / counts[filled], np.sqrt(counts[filled])
    centres = _settled(places, weights, _start(places, weights, length - len(kept)))
    return np.unique(np.concatenate([centres, sorted(kept)]).astype(np.float32))


def _usual(values: np.ndarray) -> np.ndarray:
    """Neither 0 nor −∞: these have a place of their own."""
    return (values != 0) & np.isfinite(values)


def _start(places: np.ndarray, weights: np.ndarray, length: int) -> np.ndarray:
    """As dense as the cube root of the density, best in the limit of many (Panter and Dite), and some everywhere."""
    cells = ((places - places[0]) / (places[-1] - places[0]) * (CELLS - 1)).astype(np.int64)
    density = np.cbrt(np.bincount(cells, weights, minlength=CELLS))
    density += EVENLY * density.mean()  # so that a lone value far out is not far off
    mass = np.concatenate([[0.0], np.cumsum(density)])
    wanted = (np.arange(length) + 0.5) / length * mass[-1]
    return np.interp(wanted, mass, np.linspace(places[0], places[-1], CELLS + 1))


def _settled(places: np.ndarray, weights: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Each place goes to the nearest centre, each centre to the mean of its places, over and over."""
    weighed = np.concatenate([[0.0], np.cumsum(weights)])
    summed = np.concatenate([[0.0], np.cumsum(weights * places)])
    for _ in range(ROUNDS):
        edges = np.searchsorted(places, (centres[1:] + centres[:-1]) / 2)
        edges = np.concatenate([[0], edges, [len(places)]])
        weight = np.diff(weighed[edges])
        moved = np.divide(np.diff(summed[edges]), weight, out=centres.copy(), where=weight > 0)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres
