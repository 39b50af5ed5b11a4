"""The lines of an ARPA file, from bytes to numbers and back, compiled.

    -0.4638903 <tab> looking on <tab> -0.4771212        log10 p, the words, log10 of the back-off (may be missing)

Columns are parted by ASCII tabs and spaces alone, so that any other character may stand in a word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nextword.compiled import compiled
from nextword.ngrams.trie import NONE

BEGIN, END = 0xFFFFFFFE, 0xFFFFFFFD  # in the table of words: <s> and </s>, which have their places in an n-gram
BOUNDARY = 1

# How parsing stopped
DRY, SECTION, FULL, SURPLUS = 0, 1, 2, 3
COLUMNS, BAD_PROB, BAD_BACKOFF, POSITIVE, UNKNOWN_BYTES, BEGIN_LATE, END_EARLY = 10, 11, 12, 13, 14, 15, 16

DIGITS = 8  # after the point: 1e-8 nats, finer than float32 for all but the surest words
LINE = 64  # bytes that two numbers, the tabs and the line end take at most

_TEN = 10.0 ** np.arange(23)  # all exact
_LN10 = math.log(10)
_TAB, _NEWLINE, _RETURN, _SPACE, _MINUS, _PLUS, _POINT, _ZERO, _SLASH = 9, 10, 13, 32, 45, 43, 46, 48, 92


class WordTable:
    """Words by their bytes: a hash table that the compiled functions look into."""

    def __init__(self, words: Sequence[bytes], ids: np.ndarray) -> None:
        self.text = np.frombuffer(bytearray(b"".join(words) or b"\0"), np.uint8)
        self.starts = np.zeros(len(words) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, words), np.int64, len(words)), out=self.starts[1:])
        self.ids = ids
        self.slots = np.full(1 << max(4, (2 * len(words)).bit_length()), NONE, np.uint32)
        fill_table(self.text, self.starts, self.slots)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return self.text, self.starts, self.ids, self.slots


@compiled
def slot_of(text, begin, end, known, starts, slots):
    """Where the bytes text[begin:end] are in the table, or the empty slot where they would be."""
    h = np.uint64(0xCBF29CE484222325)
    for i in range(begin, end):
        h = (h ^ np.uint64(text[i])) * np.uint64(0x100000001B3)
    h ^= h >> np.uint64(29)
    mask = len(slots) - 1
    at = np.int64(h & np.uint64(mask))
    while slots[at] != NONE:
        start = starts[slots[at]]
        same = starts[slots[at] + 1] - start == end - begin
        i = 0
        while same and i < end - begin:
            same = known[start + i] == text[begin + i]
            i += 1
        if same:
            break
        at = (at + 1) & mask
    return at


@compiled
def fill_table(text, starts, slots):
    for i in range(len(starts) - 1):
        slots[slot_of(text, starts[i], starts[i + 1], text, starts, slots)] = i


@compiled
def number(text, begin, end):
    """The decimal number text[begin:end], to the last bits of a double; NaN unless all of it is one."""
    at = begin
    negative = at < end and text[at] == _MINUS
    if at < end and (text[at] == _MINUS or text[at] == _PLUS):
        at += 1
    if (end - at == 3 or end - at == 8) and text[at] | 32 == 105:  # inf, Infinity
        name = b"infinity"
        for i in range(end - at):
            if text[at + i] | 32 != name[i]:
                return np.nan
        return -np.inf if negative else np.inf
    digits, seen, scale, pointed = np.int64(0), 0, np.int64(0), False
    while at < end:
        c = text[at]
        if _ZERO <= c < _ZERO + 10:
            seen += 1
            if digits < 100_000_000_000_000_000:
                digits = digits * 10 + (np.int64(c) - _ZERO)
                scale -= pointed
            else:
                scale += not pointed
        elif c == _POINT and not pointed:
            pointed = True
        else:
            break
        at += 1
    if not seen:
        return np.nan
    if at < end and text[at] | 32 == 101:  # e
        at += 1
        down = at < end and text[at] == _MINUS
        if at < end and (text[at] == _MINUS or text[at] == _PLUS):
            at += 1
        power, seen = np.int64(0), 0
        while at < end and _ZERO <= text[at] < _ZERO + 10:
            if power < 100_000:
                power = power * 10 + (np.int64(text[at]) - _ZERO)
            seen += 1
            at += 1
        if not seen:
            return np.nan
        scale += -power if down else power
    if at != end:
        return np.nan
    if digits == 0:
        value = 0.0
    elif -23 < scale < 0:
        value = digits / _TEN[-scale]
    elif 0 <= scale < 23:
        value = digits * _TEN[scale]
    elif scale < -300:
        value = digits * 1e-300 * 10.0 ** (scale + 300)
    else:
        value = digits * 10.0**scale
    return -value if negative else value


@compiled
def parse(text, at, end, n, known, starts, ids, slots, rows, log_probs, log_backoffs, lines, filled, total, line):
    """Whole lines of text[at:end] into the arrays, from entry `filled` and line number `line` on.

    Returns (how it stopped, at, filled, line, begin, end); the last two are the column that it stopped at. A row holds
    ids of words; for unigrams, whose words are not known yet, the place of the word in the text.
    """
    columns = np.empty((n + 2, 2), np.int64)
    while at < end:
        stop = at
        while stop < end and text[stop] != _NEWLINE:
            stop += 1
        found, i = 0, at
        while True:
            while i < stop and (text[i] == _TAB or text[i] == _SPACE or text[i] == _RETURN):
                i += 1
            if i == stop:
                break
            begin = i
            while i < stop and text[i] != _TAB and text[i] != _SPACE and text[i] != _RETURN:
                i += 1
            if found < n + 2:
                columns[found, 0], columns[found, 1] = begin, i
            found += 1
        if found == 0:
            at, line = stop + 1, line + 1
            continue
        if text[columns[0, 0]] == _SLASH:
            return SECTION, at, filled, line, columns[0, 0], stop
        if filled == total:
            return SURPLUS, at, filled, line, at, stop
        if filled == len(log_probs):
            return FULL, at, filled, line, at, stop
        value = number(text, columns[0, 0], columns[0, 1])
        if np.isnan(value):
            return BAD_PROB, at, filled, line, columns[0, 0], columns[0, 1]
        if found != n + 1 and found != n + 2:
            return COLUMNS, at, filled, line, np.int64(found), stop
        begin, i = columns[1, 0], columns[1, 1]
        never = n == 1 and i - begin == 3 and text[begin] == 60 and text[begin + 1] == 115 and text[begin + 2] == 62
        if value > 0 and not never:  # <s> is not predicted, so that its value says nothing
            return POSITIVE, at, filled, line, columns[0, 0], columns[0, 1]
        log_probs[filled] = value * _LN10
        value = 0.0
        if found == n + 2:
            value = number(text, columns[n + 1, 0], columns[n + 1, 1])
            if np.isnan(value) or value == np.inf:
                return BAD_BACKOFF, at, filled, line, columns[n + 1, 0], columns[n + 1, 1]
        log_backoffs[filled] = value * _LN10
        lines[filled] = line
        if n == 1:
            rows[filled, 0], rows[filled, 1] = begin, i
        else:
            for j in range(n):
                begin, i = columns[j + 1, 0], columns[j + 1, 1]
                slot = slots[slot_of(text, begin, i, known, starts, slots)]
                if slot == NONE:
                    return UNKNOWN_BYTES, at, filled, line, begin, i
                word = ids[slot]
                if word == BEGIN:
                    if j > 0:
                        return BEGIN_LATE, at, filled, line, begin, i
                    word = BOUNDARY
                elif word == END:
                    if j < n - 1:
                        return END_EARLY, at, filled, line, begin, i
                    word = BOUNDARY
                rows[filled, j] = word
        filled += 1
        at, line = stop + 1, line + 1
    return DRY, min(at, end), filled, line, np.int64(0), np.int64(0)


@compiled
def write_number(value, out, at):
    """A natural logarithm as log10, without zeros at the end; log 0 is -99, as in SRILM."""
    value /= _LN10
    if value < -1e9:
        value = -99.0
    whole = np.uint64(abs(value) * 10.0**DIGITS + 0.5)
    if whole == 0:
        out[at] = _ZERO
        return at + 1
    if value < 0:
        out[at] = _MINUS
        at += 1
    fraction = whole % np.uint64(10**DIGITS)
    whole //= np.uint64(10**DIGITS)
    length, rest = 1, whole
    while rest >= np.uint64(10):
        rest //= np.uint64(10)
        length += 1
    for i in range(length):
        out[at + length - 1 - i] = _ZERO + whole % np.uint64(10)
        whole //= np.uint64(10)
    at += length
    if fraction == 0:
        return at
    out[at] = _POINT
    for i in range(DIGITS):
        out[at + DIGITS - i] = _ZERO + fraction % np.uint64(10)
        fraction //= np.uint64(10)
    at += DIGITS
    while out[at] == _ZERO:
        at -= 1
    return at + 1


@compiled
def format_lines(rows, log_probs, log_backoffs, bare, known, starts, out, row):
    """Lines for the n-grams from `row` on while there is room: (the next row, bytes written).

    N-grams that end in the word `bare` have no back-off; where no n-gram has one, `log_backoffs` is empty.
    """
    n = rows.shape[1]
    at = 0
    while row < len(rows):
        length = LINE
        for j in range(n):
            length += starts[rows[row, j] + 1] - starts[rows[row, j]] + 1
        if at + length > len(out):
            break
        at = write_number(np.float64(log_probs[row]), out, at)
        for j in range(n):
            out[at] = _SPACE if j else _TAB
            at += 1
            for i in range(starts[rows[row, j]], starts[rows[row, j] + 1]):
                out[at] = known[i]
                at += 1
        if len(log_backoffs) and rows[row, n - 1] != bare:
            out[at] = _TAB
            at = write_number(np.float64(log_backoffs[row]), out, at + 1)
        out[at] = _NEWLINE
        at += 1
        row += 1
    return row, at
