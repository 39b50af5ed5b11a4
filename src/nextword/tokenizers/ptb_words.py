"""Words as files of vectors have them: lower case, punctuation and clitics apart, and a word that is known kept whole.

    "Two dogs don't sit, outside the U.S."     two dogs do n't sit , outside the u.s.
    "a well-known light-footed man"            a well-known light - footed man        where "light-footed" is unknown

A run of non-space characters that is known stays as it is, which text that was split before relies on. Any other loses
the punctuation at its ends, then its clitic; what is left and still unknown is cut at hyphens and slashes, unless the
lexicon is one that keeps `hyphens`. With `whole` nothing is ever cut: a token is a run, as taggers need it. With
`digits` an unknown word is looked for with its digits as 0, so that all years that have no vector are one word, and all
prices another.

Ids are `<unk>` (0), `<eos>` (1), the commonest words of the text that it was learnt from, and then the others that are
known beforehand. So a network can write the first ones and read them all. Lossy: case and spaces do not come back.

`<eos>` ends a document. With `lines` it also stands wherever a line ends within one, once for any number of empty
lines; what ends the last line is the document's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.types import Encoding
from nextword.tokenizers import base as storage
from nextword.tokenizers.base import join, utf8
from nextword.tokenizers.words import batches

UNKNOWN, EOS = "<unk>", "<eos>"
CHOICES = ("lines", "hyphens", "whole", "digits")  # each true or false
KEPT = 1 << 22  # runs of characters whose ids are remembered
MANY = 1 << 14  # characters: from here on texts are split by compiled code
CLITICS = ("n't", "'s", "'re", "'ve", "'ll", "'d", "'m")
TIGHT = frozenset((*",.!?;:)]}%'", *CLITICS))  # no space is written before these

_RUN = re.compile(r"\S+")
_LINES = re.compile(r"\S+|\n")
_EDGES = re.compile(r"([^\w]*)(.*?)([^\w]*)", re.DOTALL)
_MARKS = re.compile(r"\.{2,}|-{2,}|``|''|.", re.DOTALL)
_CLITIC = re.compile(r"(.+?)(n't|'(?:s|re|ve|ll|d|m))", re.IGNORECASE | re.DOTALL)
_JOINTS = re.compile(r"([-/–—])")
_DIGIT = re.compile(r"\d")


class Lexicon:
    """Ids for these words after `<unk>` (0) and `<eos>` (1), in the order given."""

    kind = "lexicon"
    lossless = False

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
        self.special: Mapping[str, int] = {UNKNOWN: 0, EOS: 1}
        self.begin = 1
        self.end: int | None = 1
        self.pieces = [
            f" {UNKNOWN}".encode(),
            b"\n",
            *(utf8(word) if word in TIGHT else b" " + utf8(word) for word in self.words),
        ]
        self._ids = {word: i for i, word in enumerate(self.words, 2)}
        self._kept: dict[str, tuple[list[int], list[int]]] = {}
        self._runs: Runs | None = None  # made when first needed

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str) -> Encoding:
        ids: list[int] = []
        sizes: list[int] = []  # bytes of each piece
        starts: list[int] = []  # of the run that it lies in, at its first piece
        words: list[int] = []
        whole = utf8(text)
        narrow = len(whole) == len(text)  # a byte a character
        at = seen = 0
        number = -1
        for match in (_LINES if self.lines else _RUN).finditer(text.rstrip() if self.lines else text):
            run = match.group()
            if run == "\n":
                if not ids or ids[-1] == 1:
                    continue
                found, lengths = [1], [1]
            else:
                number += 1
                found, lengths = self._of_run(run)
            ids += found
            sizes += lengths
            start = match.start()
            if not narrow:
                at += len(text[seen:start].encode())
                seen, start = start, at
            for length in lengths:
                starts.append(start)
                start += length
            words += [max(number, 0)] * len(found)
        begins = np.array(starts, np.int64)
        spans = np.stack([begins, begins + np.array(sizes, np.int64)], 1)
        return Encoding(np.array(ids, np.int64), spans, np.array(words, np.int64))

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """As `encode` does each; of many texts, each run that is among them is looked at once."""
        if sum(map(len, texts)) < MANY:
            return [self.encode(text) for text in texts]
        if self._runs is None or len(self._runs) > KEPT:
            self._runs = Runs(self._of_run)
        return self._runs.encode(texts, self.lines)

    def _of_run(self, run: str) -> tuple[list[int], list[int]]:
        """The ids of a run of characters, and how many bytes each stands for."""
        found = self._kept.get(run)
        if found is None:
            parts = [run] if self.whole else split(run, self._ids, self.lower, self.hyphens)
            ids = [self._ids.get(spelled(part, self._ids, self.lower, self.digits), 0) for part in parts]
            found = self._kept[run] = ids, [len(part.encode()) for part in parts]
            if len(self._kept) > KEPT:
                self._kept.clear()
        return found

    def parts(self, text: str) -> list[str]:
        """The words of a plain text, punctuation and clitics apart, whether tokens are whole runs or not."""
        return [part for run in text.split() for part in split(run, self._ids, self.lower, self.hyphens)]

    def decode(self, ids: Iterable[int]) -> str:
        return join(self, ids)

    def piece(self, id: int) -> bytes:
        return self.pieces[id]

    def content(self) -> dict[str, Any]:
        header: dict[str, Any] = {"version": storage.VERSION, "kind": self.kind, "lower": self.lower}
        header |= {name: True for name in CHOICES if getattr(self, name)}
        return {"nextword": header, "words": list(self.words)}

    def save(self, path: Path) -> None:
        storage.write(path, self.content())


class Runs:
    """Runs of characters seen so far, and their parts: text after text is one look-up a run, compiled.

    runs          1: "dogs,"    2: "sat"      0 is a line end
    starts        0  1  3  4                  parts of run i are those from starts[i] to starts[i + 1]
    ids, sizes    <eos> dogs , sat
    """

    def __init__(self, of_run: Callable[[str], tuple[list[int], list[int]]]) -> None:
        from nextword.tokenizers.words import Tally

        self.of_run, self.tally = of_run, Tally()
        self.starts, self.ids, self.sizes = (np.array(values, np.int64) for values in ([0, 1], [1], [1]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def encode(self, texts: Sequence[str], lines: bool) -> list[Encoding]:
        from nextword.tokenizers.words import LINE_END, laid, scan

        raw, sizes = laid(texts)
        ends = np.empty(len(texts), np.int64)
        keys, spans, words = scan(raw, lines, ends)
        text = np.repeat(np.arange(len(texts)), np.diff(ends, prepend=0))
        line = keys == LINE_END if lines else np.zeros(len(keys), bool)
        runs = np.zeros(len(keys), np.int64)
        runs[~line] = self._numbers(raw, keys[~line], spans[~line])
        kept = ~line | _between(line, text, len(texts))
        runs, spans, words, text = runs[kept], spans[kept], (words - line)[kept], text[kept]

        counts = np.diff(self.starts)[runs]
        first = np.cumsum(counts) - counts
        parts = np.repeat(self.starts[runs] - first, counts) + np.arange(counts.sum())
        sized = self.sizes[parts]
        before = np.cumsum(sized) - sized  # bytes of all parts before, of which those of the same run count
        lead = before[first[counts > 0]] if len(parts) else before
        full = np.zeros(len(runs), np.int64)
        full[counts > 0] = lead
        begins = np.repeat(spans[:, 0] - full, counts) + before
        text = np.repeat(text, counts)
        begins -= (np.cumsum([0, *sizes[:-1]]) + np.arange(len(sizes)))[text]  # a byte stands between two texts
        places = np.stack([begins, begins + sized], 1)
        stops = np.searchsorted(text, np.arange(len(texts)), side="right").tolist()
        ids, words = self.ids[parts], np.repeat(words, counts)
        return [Encoding(ids[a:b], places[a:b], words[a:b]) for a, b in zip([0, *stops], stops, strict=False)]

    def _numbers(self, raw: np.ndarray, keys: np.ndarray, spans: np.ndarray) -> np.ndarray:
        from nextword.tokenizers.words import KNOWN

        found = self.tally.numbers(raw, keys, spans) - KNOWN + 1
        new = [self.of_run(run) for run in self.tally.since(len(self) + KNOWN - 1)]
        if new:
            counts = np.cumsum([len(ids) for ids, _ in new])
            self.starts = np.concatenate([self.starts, self.starts[-1] + counts])
            self.ids = np.concatenate([self.ids, np.array([id for ids, _ in new for id in ids], np.int64)])
            self.sizes = np.concatenate([self.sizes, np.array([n for _, sizes in new for n in sizes], np.int64)])
        return found


def _between(line: np.ndarray, text: np.ndarray, texts: int) -> np.ndarray:
    """Of line ends, the first of each run of them that has words before and after it in its text."""
    words = np.cumsum(~line)
    last = np.zeros(texts + 1, np.int64)
    np.maximum.at(last, text, words)  # words up to the end of each text
    follows = np.zeros(len(line), bool)
    follows[1:] = ~line[:-1] & (text[1:] == text[:-1])
    return line & follows & (words < last[text])


def split(run: str, known: Any, lower: bool = True, hyphens: bool = False) -> list[str]:
    """The parts of a run of non-space characters, which together are the run again."""

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
    parts = _MARKS.findall(before)
    if core:
        clitic = None if is_known(core) else _CLITIC.fullmatch(core)
        for part in (core,) if clitic is None else clitic.groups():
            whole = hyphens or is_known(part) or part.lower() in CLITICS
            parts += [part] if whole else [piece for piece in _JOINTS.split(part) if piece]
    return parts + _MARKS.findall(after)


def spelled(word: str, known: Any, lower: bool = True, digits: bool = False) -> str:
    """As the word is looked for: in lower case, and if it is unknown, with its digits as 0."""
    word = word.lower() if lower else word
    return _DIGIT.sub("0", word) if digits and word not in known else word


def train_lexicon(
    texts: Iterable[str],
    size: int,
    min_count: int,
    lower: bool,
    words: Sequence[str],
    **choices: bool,
) -> Lexicon:
    """The `size` − 2 commonest words of the texts, equally common ones in alphabetical order, and then `words`."""
    if size < 3:
        raise NextwordError(
            f"[tokenizer] size is {size}, which has no room for {UNKNOWN}, {EOS} and a word: give 3 or more."
        )
    given = [word for word in dict.fromkeys(words) if word not in (UNKNOWN, EOS)]
    known = frozenset(given)
    from nextword.tokenizers.words import Tally

    tally = Tally()
    for batch in batches(texts):
        tally.add(batch)
    counts: Counter[str] = Counter()
    whole, digits, hyphens = (choices.get(name, False) for name in ("whole", "digits", "hyphens"))
    for run, count in zip(*tally.result(), strict=True):
        for part in (run,) if whole else split(run, known, lower, hyphens):
            counts[spelled(part, known, lower, digits)] += count
    common = sorted((word for word, n in counts.items() if n >= min_count), key=lambda word: (-counts[word], word))
    common = [word for word in common if word not in (UNKNOWN, EOS)][: size - 2]
    first = frozenset(common)
    return Lexicon([*common, *(word for word in given if word not in first)], lower, **choices)
