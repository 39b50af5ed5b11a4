"""GPT-2's rule for cutting a text into words, and the ids of each word looked up instead of computed again.

    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+

The library applies the rule and the merges to every word of the text. But a text has few different words, so most of
that work is repeated: cutting with Python's `re` and remembering each word's ids is some ten times faster. `re` has no
\\p{L}; the classes are spelled out from `unicodedata`, for the characters whose class has been the same since Unicode
3.2 and so is the same in the library. A portion of text with any other character goes to the library whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, compress

import numpy as np

# The rule always cuts between a letter and " letter", so cutting there first changes no id.
_SEAM = re.compile(r"[A-Za-z](?= [A-Za-z])")
_PORTION = 1 << 12  # characters
_MEMORY = 1 << 18  # words to remember before beginning anew
# Unicode's White_Space, which is what \s means to the library; Python's \s has four more
_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


@cache
def rule() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The rule, and a pattern that finds the characters it may not be applied to."""
    letters: list[int] = []
    numbers: list[int] = []
    others: list[int] = []
    for point in range(0x10000):
        now, then = (_class(source.category(chr(point))) for source in (unicodedata, unicodedata.ucd_3_2_0))
        if now == then != "C":
            {"L": letters, "N": numbers}.get(now, others).append(point)
    known = _ranges([*letters, *numbers, *others, *range(0xA0)])
    letter, number = _ranges(letters), _ranges(numbers)
    pattern = (
        rf"'(?:[stmd]|re|ve|ll)| ?[{letter}]+| ?[{number}]+| ?[^{_SPACE}{letter}{number}]+"
        rf"|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
    )
    return re.compile(pattern), re.compile(f"[^{known}]")


def _class(category: str) -> str:
    """L letter, N number, Z separator, C control or unassigned; S is all the rest, which the rule treats alike."""
    return category[0] if category[0] in "LNZC" else "S"


def _ranges(points: Sequence[int]) -> str:
    """The inside of a character class."""
    ordered = np.unique(points)
    breaks = np.flatnonzero(np.diff(ordered) > 1)
    starts, ends = ordered[np.append(0, breaks + 1)], ordered[np.append(breaks, len(ordered) - 1)]
    return "".join(f"\\u{start:04x}-\\u{end:04x}" for start, end in zip(starts, ends, strict=True))


def portions(text: str) -> list[str]:
    """The text cut at seams every few thousand characters."""
    found, start = [], 0
    while len(text) - start > _PORTION:
        seam = _SEAM.search(text, start + _PORTION)
        if seam is None:
            break
        found.append(text[start : seam.end()])
        start = seam.end()
    return [*found, text[start:]]


class Memory:
    """Ids of many portions at once, through the ids of their words. `compute` is the library, for a list of texts."""

    def __init__(self, compute: Callable[[list[str]], list[list[int]]]) -> None:
        self._compute = compute
        self._ids: dict[str, list[int]] = {}  # entries never change, so that threads may share it

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        cut, strange = rule()
        plain = [text.isascii() or strange.search(text) is None for text in texts]
        words = [cut.findall(text) if ours else [] for text, ours in zip(texts, plain, strict=True)]
        by_word = self._by_word(words)
        rest = iter(self._compute(list(compress(texts, [not ours for ours in plain]))))
        return [
            found if ours else np.array(next(rest), dtype=np.int64) for found, ours in zip(by_word, plain, strict=True)
        ]

    def _by_word(self, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        row_of = {word: row for row, word in enumerate(dict.fromkeys(chain.from_iterable(texts)))}
        rows = self._rows(list(row_of))
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=lengths.sum())
        first = np.cumsum(lengths) - lengths
        found = []
        for words in texts:
            row = np.fromiter(map(row_of.__getitem__, words), dtype=np.int64, count=len(words))
            length = lengths[row]
            before = np.cumsum(length) - length
            found.append(flat[np.repeat(first[row] - before, length) + np.arange(length.sum())])
        return found

    def _rows(self, words: list[str]) -> list[list[int]]:
        """The ids of each word, remembered or computed."""
        found = [self._ids.get(word) for word in words]
        missing = [word for word, ids in zip(words, found, strict=True) if ids is None]
        computed = dict(zip(missing, self._compute(missing), strict=True))
        if len(self._ids) > _MEMORY:
            self._ids.clear()
        self._ids.update(computed)
        return [computed[word] if ids is None else ids for word, ids in zip(words, found, strict=True)]
