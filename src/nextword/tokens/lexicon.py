"""Words as files of vectors have them: lower case, punctuation and clitics apart, and a word that is known kept whole.

    "Two dogs don't sit, outside the U.S."     two dogs do n't sit , outside the u.s.
    "a well-known light-footed man"            a well-known light - footed man        where "light-footed" is unknown

A run of non-space characters that is known stays as it is, which text that was split before relies on. Any other loses
the punctuation at its ends, then its clitic; what is left and still unknown is cut at hyphens and slashes. With `whole`
nothing is ever cut: a token is a run, as taggers need it. With `digits` an unknown word is looked for with its digits
as 0, so that all years that have no vector are one word, and all prices another.

Ids are `<unk>` (0), `<eos>` (1), the commonest words of the text that it was learnt from, and then the others that are
known beforehand. So a network can write the first ones and read them all. Lossy: case and spaces do not come back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nextword.contract import Encoding, NextwordError
from nextword.tokens import storage
from nextword.tokens.decoder import join
from nextword.tokens.spans import utf8

UNKNOWN, EOS = "<unk>", "<eos>"
KEPT = 1 << 20  # runs of characters whose ids are remembered
CLITICS = ("n't", "'s", "'re", "'ve", "'ll", "'d", "'m")
TIGHT = frozenset((*",.!?;:)]}%'", *CLITICS))  # no space is written before these

_RUN = re.compile(r"\S+")
_EDGES = re.compile(r"([^\w]*)(.*?)([^\w]*)", re.DOTALL)
_MARKS = re.compile(r"\.{2,}|-{2,}|``|''|.", re.DOTALL)
_CLITIC = re.compile(r"(.+?)(n't|'(?:s|re|ve|ll|d|m))", re.IGNORECASE | re.DOTALL)
_JOINTS = re.compile(r"([-/–—])")
_DIGIT = re.compile(r"\d")


class Lexicon:
    """Ids for these words after `<unk>` (0) and `<eos>` (1), in the order given."""

    kind = "lexicon"
    lossless = False

    def __init__(self, words: Sequence[str], lower: bool = True, whole: bool = False, digits: bool = False) -> None:
        self.words, self.lower, self.whole, self.digits = tuple(words), lower, whole, digits
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
        for number, match in enumerate(_RUN.finditer(text)):
            found, lengths = self._of_run(match.group())
            ids += found
            sizes += lengths
            start = match.start()
            if not narrow:
                at += len(text[seen:start].encode())
                seen, start = start, at
            for length in lengths:
                starts.append(start)
                start += length
            words += [number] * len(found)
        begins = np.array(starts, np.int64)
        spans = np.stack([begins, begins + np.array(sizes, np.int64)], 1)
        return Encoding(np.array(ids, np.int64), spans, np.array(words, np.int64))

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        return [self.encode(text) for text in texts]

    def _of_run(self, run: str) -> tuple[list[int], list[int]]:
        """The ids of a run of characters, and how many bytes each stands for."""
        found = self._kept.get(run)
        if found is None:
            parts = [run] if self.whole else split(run, self._ids, self.lower)
            ids = [self._ids.get(spelled(part, self._ids, self.lower, self.digits), 0) for part in parts]
            found = self._kept[run] = ids, [len(part.encode()) for part in parts]
            if len(self._kept) > KEPT:
                self._kept.clear()
        return found

    def parts(self, text: str) -> list[str]:
        """The words of a plain text, punctuation and clitics apart, whether tokens are whole runs or not."""
        return [part for run in text.split() for part in split(run, self._ids, self.lower)]

    def decode(self, ids: Iterable[int]) -> str:
        return join(self, ids)

    def piece(self, id: int) -> bytes:
        return self.pieces[id]

    def content(self) -> dict[str, Any]:
        header: dict[str, Any] = {"version": storage.VERSION, "kind": self.kind, "lower": self.lower}
        header |= {name: True for name in ("whole", "digits") if getattr(self, name)}
        return {"nextword": header, "words": list(self.words)}

    def save(self, path: Path) -> None:
        storage.write(path, self.content())


def split(run: str, known: Any, lower: bool = True) -> list[str]:
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
            whole = is_known(part) or part.lower() in CLITICS
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
    whole: bool = False,
    digits: bool = False,
) -> Lexicon:
    """The `size` − 2 commonest words of the texts, equally common ones in alphabetical order, and then `words`."""
    if size < 3:
        raise NextwordError(
            f"[tokenizer] size is {size}, which has no room for {UNKNOWN}, {EOS} and a word: give 3 or more."
        )
    given = [word for word in dict.fromkeys(words) if word not in (UNKNOWN, EOS)]
    known = frozenset(given)
    runs: Counter[str] = Counter()
    for text in texts:
        runs.update(text.split())
    counts: Counter[str] = Counter()
    for run, count in runs.items():
        for part in (run,) if whole else split(run, known, lower):
            counts[spelled(part, known, lower, digits)] += count
    common = sorted((word for word, n in counts.items() if n >= min_count), key=lambda word: (-counts[word], word))
    common = [word for word in common if word not in (UNKNOWN, EOS)][: size - 2]
    first = frozenset(common)
    return Lexicon([*common, *(word for word in given if word not in first)], lower, whole, digits)
