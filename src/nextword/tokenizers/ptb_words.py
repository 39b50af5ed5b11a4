"""Words as word vectors have them: punctuation and clitics separate, lowercased, and known words kept whole.

    "Two dogs don't sit, outside the U.S."     two dogs do n't sit , outside the u.s.
    "a well-known light-footed man"            a well-known light - footed man        if "light-footed" is unknown

A run of non-space characters that is a known word stays as it is, so text that is already tokenized is left alone. Any
other run loses the punctuation at its ends, then its clitic; the rest, if still unknown, is cut at hyphens and slashes.
Options:

    hyphens   do not cut at hyphens and slashes
    whole     never cut: a token is a run of non-space characters, as taggers need it
    digits    look an unknown word up with every digit as 0, so that all years without a vector share one
    lines     emit `<eos>` also where a line ends within a document, once for any number of empty lines

Ids are `<unk>` (0), `<eos>` (1), the most frequent words of the training text, then the other known words. So a network
can predict the former and read all of them. `<eos>` ends a document. Lossy: case and spaces are not recoverable.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import numpy as np

from nextword.core.types import Encoding
from nextword.tokenizers.alignment import utf8
from nextword.tokenizers.base import VERSION, Tokenizer
from nextword.tokenizers.words import (
    EOS,
    FIRST_ID,
    LINE_END,
    UNKNOWN,
    WordCounter,
    batch_texts,
    check_size,
    concatenate,
    scan,
)

OPTIONS = ("lines", "hyphens", "whole", "digits")  # each true or false
CACHE_SIZE = 1 << 22  # runs of characters whose ids are cached
MIN_COMPILED = 1 << 14  # characters; longer texts are split by compiled code
CLITICS = ("n't", "'s", "'re", "'ve", "'ll", "'d", "'m")
NO_SPACE_BEFORE = frozenset((*",.!?;:)]}%'", *CLITICS))  # when decoding

_RUN = re.compile(r"\S+")
_RUN_OR_LINE_END = re.compile(r"\S+|\n")
_EDGES = re.compile(r"([^\w]*)(.*?)([^\w]*)", re.DOTALL)
_PUNCTUATION = re.compile(r"\.{2,}|-{2,}|``|''|.", re.DOTALL)
_CLITIC = re.compile(r"(.+?)(n't|'(?:s|re|ve|ll|d|m))", re.IGNORECASE | re.DOTALL)
_JOINTS = re.compile(r"([-/–—])")
_DIGIT = re.compile(r"\d")


class Lexicon(Tokenizer):
    """Ids for these words after `<unk>` (0) and `<eos>` (1), in this order."""

    kind = "lexicon"
    lossless = False
    words: tuple[str, ...]

    def __init__(
        self,
        words: Sequence[str],
        lower: bool = True,
        *,
        lines: bool = False,
        hyphens: bool = False,
        whole: bool = False,
        digits: bool = False,
    ) -> None:
        self.words, self.lower, self.lines, self.hyphens = tuple(words), lower, lines, hyphens
        self.whole, self.digits = whole, digits
        self.special = {UNKNOWN: 0, EOS: 1}
        self.begin = 1
        self.end = 1
        self.pieces = [
            f" {UNKNOWN}".encode(),
            b"\n",
            *(utf8(word) if word in NO_SPACE_BEFORE else b" " + utf8(word) for word in self.words),
        ]
        self._ids = {word: i for i, word in enumerate(self.words, 2)}
        self._cache: dict[str, tuple[list[int], list[int]]] = {}
        self._table: RunTable | None = None  # built on first use

    def encode(self, text: str) -> Encoding:
        ids: list[int] = []
        sizes: list[int] = []  # bytes of each piece
        starts: list[int] = []  # first byte of each piece
        words: list[int] = []
        has_wide = len(utf8(text)) != len(text)
        byte = character = 0  # the same place in the text, in bytes and in characters
        word = -1
        pattern = _RUN_OR_LINE_END if self.lines else _RUN
        for match in pattern.finditer(text.rstrip() if self.lines else text):
            run = match.group()
            if run == "\n":
                if not ids or ids[-1] == 1:
                    continue
                run_ids, run_sizes = [1], [1]
            else:
                word += 1
                run_ids, run_sizes = self._encode_run(run)
            ids += run_ids
            sizes += run_sizes
            start = match.start()
            if has_wide:
                byte += len(text[character:start].encode())
                character, start = start, byte
            for size in run_sizes:
                starts.append(start)
                start += size
            words += [max(word, 0)] * len(run_ids)
        first_bytes = np.array(starts, np.int64)
        spans = np.stack([first_bytes, first_bytes + np.array(sizes, np.int64)], 1)
        return Encoding(np.array(ids, np.int64), spans, np.array(words, np.int64))

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode many texts, splitting each distinct run only once."""
        if sum(map(len, texts)) < MIN_COMPILED:
            return [self.encode(text) for text in texts]
        if self._table is None or len(self._table) > CACHE_SIZE:
            self._table = RunTable(self._encode_run)
        return self._table.encode(texts, self.lines)

    def _encode_run(self, run: str) -> tuple[list[int], list[int]]:
        """Return the ids of a run of non-space characters, and the number of bytes of each."""
        cached = self._cache.get(run)
        if cached is None:
            parts = [run] if self.whole else split(run, self._ids, self.lower, self.hyphens)
            ids = [self._ids.get(lookup_form(part, self._ids, self.lower, self.digits), 0) for part in parts]
            cached = self._cache[run] = ids, [len(part.encode()) for part in parts]
            if len(self._cache) > CACHE_SIZE:
                self._cache.clear()
        return cached

    def split_words(self, text: str) -> list[str]:
        """Split a text into words, also if `whole` keeps runs together in `encode`."""
        return [part for run in text.split() for part in split(run, self._ids, self.lower, self.hyphens)]

    def content(self) -> dict[str, Any]:
        header: dict[str, Any] = {"version": VERSION, "kind": self.kind, "lower": self.lower}
        header |= {name: True for name in OPTIONS if vars(self)[name]}
        return {"nextword": header, "words": list(self.words)}


class RunTable:
    """The parts of all runs seen so far, so that encoding is one compiled look-up per run.

    runs          1: "dogs,"    2: "sat"      0 is a line end
    starts        0  1  3  4                  the parts of run i are those from starts[i] to starts[i + 1]
    ids, sizes    <eos> dogs , sat
    """

    def __init__(self, encode_run: Callable[[str], tuple[list[int], list[int]]]) -> None:
        self.encode_run, self.counter = encode_run, WordCounter()
        self.starts, self.ids, self.sizes = (np.array(values, np.int64) for values in ([0, 1], [1], [1]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def encode(self, texts: Sequence[str], lines: bool) -> list[Encoding]:
        raw, sizes = concatenate(texts)
        ends = np.empty(len(texts), np.int64)
        keys, spans, words = scan(raw, lines, ends)
        text = np.repeat(np.arange(len(texts)), np.diff(ends, prepend=0))
        is_line_end = keys == LINE_END if lines else np.zeros(len(keys), bool)
        runs = np.zeros(len(keys), np.int64)
        runs[~is_line_end] = self._find_or_add(raw, keys[~is_line_end], spans[~is_line_end])
        keep = ~is_line_end | separating_line_ends(is_line_end, text, len(texts))
        runs, spans, words, text = runs[keep], spans[keep], (words - is_line_end)[keep], text[keep]

        # From runs to parts: part k of a run begins where the run begins, plus the bytes of its earlier parts.
        counts = np.diff(self.starts)[runs]
        first = np.cumsum(counts) - counts
        parts = np.repeat(self.starts[runs] - first, counts) + np.arange(counts.sum())
        part_sizes = self.sizes[parts]
        bytes_before = np.cumsum(part_sizes) - part_sizes  # of all earlier parts, also of other runs
        before_run = np.zeros(len(runs), np.int64)
        before_run[counts > 0] = bytes_before[first[counts > 0]] if len(parts) else bytes_before
        first_bytes = np.repeat(spans[:, 0] - before_run, counts) + bytes_before
        text = np.repeat(text, counts)
        first_bytes -= (np.cumsum([0, *sizes[:-1]]) + np.arange(len(sizes)))[text]  # there is a byte between two texts
        part_spans = np.stack([first_bytes, first_bytes + part_sizes], 1)
        stops = np.searchsorted(text, np.arange(len(texts)), side="right").tolist()
        ids, words = self.ids[parts], np.repeat(words, counts)
        return [Encoding(ids[a:b], part_spans[a:b], words[a:b]) for a, b in zip([0, *stops], stops, strict=False)]

    def _find_or_add(self, raw: np.ndarray, keys: np.ndarray, spans: np.ndarray) -> np.ndarray:
        """Return the index of each run in the table; split and add the new ones."""
        runs = self.counter.ids_of(raw, keys, spans) - FIRST_ID + 1
        new = [self.encode_run(run) for run in self.counter.words_from(len(self) + FIRST_ID - 1)]
        if new:
            counts = np.cumsum([len(ids) for ids, _ in new])
            self.starts = np.concatenate([self.starts, self.starts[-1] + counts])
            self.ids = np.concatenate([self.ids, np.array([id for ids, _ in new for id in ids], np.int64)])
            self.sizes = np.concatenate([self.sizes, np.array([n for _, sizes in new for n in sizes], np.int64)])
        return runs


def separating_line_ends(is_line_end: np.ndarray, text: np.ndarray, texts: int) -> np.ndarray:
    """Mark the line ends that become `<eos>`: the first after a word, if another word follows in the same text."""
    words = np.cumsum(~is_line_end)
    last = np.zeros(texts + 1, np.int64)
    np.maximum.at(last, text, words)  # words up to the end of each text
    follows_word = np.zeros(len(is_line_end), bool)
    follows_word[1:] = ~is_line_end[:-1] & (text[1:] == text[:-1])
    return is_line_end & follows_word & (words < last[text])


def split(run: str, known: Container[str], lower: bool = True, hyphens: bool = False) -> list[str]:
    """Split a run of non-space characters into parts, which concatenated are the run again."""

    def is_known(text: str) -> bool:
        return (text.lower() if lower else text) in known

    if is_known(run) or run.lower() in CLITICS or run == UNKNOWN:
        return [run]
    edges = _EDGES.fullmatch(run)
    assert edges is not None
    before, core, after = edges.groups()
    if core and is_known(core + after):  # an abbreviation: (etc.
        core, after = core + after, ""
    elif core and after.startswith(".") and is_known(core + "."):
        core, after = core + ".", after[1:]
    parts = _PUNCTUATION.findall(before)
    if core:
        clitic = None if is_known(core) else _CLITIC.fullmatch(core)
        for part in (core,) if clitic is None else clitic.groups():
            keep = hyphens or is_known(part) or part.lower() in CLITICS
            parts += [part] if keep else [piece for piece in _JOINTS.split(part) if piece]
    return parts + _PUNCTUATION.findall(after)


def lookup_form(word: str, known: Container[str], lower: bool = True, digits: bool = False) -> str:
    """Return the form under which a word is looked up: lowercased, and with digits as 0 if it is unknown otherwise."""
    word = word.lower() if lower else word
    return _DIGIT.sub("0", word) if digits and word not in known else word


def train_lexicon(
    texts: Iterable[str],
    size: int,
    min_count: int,
    lower: bool,
    words: Sequence[str],
    **options: bool,
) -> Lexicon:
    """Keep the `size` − 2 most frequent words, ties in alphabetical order, and append the other `words`."""
    check_size(size)
    given = [word for word in dict.fromkeys(words) if word not in (UNKNOWN, EOS)]
    known = frozenset(given)
    counter = WordCounter()
    for batch in batch_texts(texts):
        counter.add(batch)
    counts: Counter[str] = Counter()
    whole, digits, hyphens = (options.get(name, False) for name in ("whole", "digits", "hyphens"))
    for run, count in zip(*counter.result(), strict=True):
        for part in (run,) if whole else split(run, known, lower, hyphens):
            counts[lookup_form(part, known, lower, digits)] += count
    frequent = sorted((word for word, n in counts.items() if n >= min_count), key=lambda word: (-counts[word], word))
    frequent = [word for word in frequent if word not in (UNKNOWN, EOS)][: size - 2]
    first = frozenset(frequent)
    return Lexicon([*frequent, *(word for word in given if word not in first)], lower, **options)
