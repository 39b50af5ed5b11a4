"""Vectors of words in text files, as GloVe, word2vec and fastText write them, plain or compressed.

    400000 100                      word2vec's first line: how many there are, and how wide. GloVe has none
    the -0.038 -0.245 0.728 …       a word, then its numbers, one space between any two
    . . . 0.11 0.05 …               the largest GloVe has a few words with spaces in them: what precedes the numbers

    found = read_vectors("glove.6B.100d.txt.xz", only=words)      # lines of other words are not even parsed
    found.matrix_of(words)                                        # (n, width); zeros for a word that has no vector
    found.nearest({"king": 1, "man": -1, "woman": 1}, k=10)       # words and cosines, those asked for left out

A word that occurs twice has its first vector; how often that happened is told. weights/vectors.py writes such files.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.types import Vocabulary
from nextword.data.catalog import ALL, absent, find
from nextword.data.files import lines

TOGETHER = 4096  # lines whose numbers are parsed at once
KIND = "vectors"  # of the catalog's entries


@dataclass(frozen=True)
class Vectors:
    name: str
    words: list[str] = field(repr=False)
    matrix: np.ndarray = field(repr=False)  # (words, width) float32
    repeated: int = 0  # lines left out, for their word had come before

    def __len__(self) -> int:
        return len(self.words)

    @property
    def width(self) -> int:
        return self.matrix.shape[1]

    @cached_property
    def places(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def matrix_of(self, words: Sequence[str]) -> np.ndarray:
        """(words, width) in the order of these words; zeros where there is no vector."""
        found = np.zeros((len(words), self.width), np.float32)
        at = np.fromiter((self.places.get(word, -1) for word in words), np.int64, len(words))
        found[at >= 0] = self.matrix[at[at >= 0]]
        return found

    @cached_property
    def unit(self) -> np.ndarray:
        """Every vector at length one; one of zeros stays what it is."""
        lengths = np.linalg.norm(self.matrix, axis=1, keepdims=True)
        return self.matrix / np.where(lengths > 0, lengths, 1)

    def nearest(self, weights: Mapping[str, float], k: int = 10) -> list[tuple[str, float]]:
        """The words whose vectors point most nearly as this sum does, each vector at length one (3CosAdd)."""
        if k < 1:
            raise NextwordError(f"k = {k}: ask for at least one word.")
        asked = [self.place(word) for word in weights]
        wanted = np.array(list(weights.values()), np.float32) @ self.unit[asked]
        length = float(np.linalg.norm(wanted))
        if length < 1e-6:
            raise NextwordError(f"{' and '.join(weights)}: these vectors add up to nothing; nothing is near to that.")
        cosines = self.unit @ (wanted / length)
        cosines[asked] = -np.inf
        k = min(k, len(self) - len(set(asked)))
        best = np.argpartition(-cosines, k - 1)[:k] if k else np.zeros(0, np.int64)
        best = best[np.argsort(-cosines[best], kind="stable")]
        return [(self.words[i], float(cosines[i])) for i in best]

    def place(self, word: str) -> int:
        """Which of the words it is, as it is written or in lower case."""
        found = self.places.get(word, self.places.get(word.lower()))
        if found is None:
            near = get_close_matches(word.lower(), self.words, n=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise NextwordError(f"{self.name} has no vector of {word!r}, only of {len(self):,} other words.{hint}")
        return found


def parse_sum(text: str) -> dict[str, float]:
    """`king - man + woman` as weights of words; signs stand alone, so that a word may have a hyphen inside."""
    weights: dict[str, float] = {}
    sign: float | None = 1.0
    for part in text.split():
        if part in ("+", "-", "−") and weights and sign is None:
            sign = 1.0 if part == "+" else -1.0
        elif sign is not None and part not in ("+", "-", "−"):
            weights[part] = weights.get(part, 0.0) + sign
            sign = None
        else:
            sign, weights = None, {}
            break
    if sign is not None or not weights:
        raise NextwordError(
            f"{text!r} is no sum of words. Expected words with + or - between them: king - man + woman."
        )
    return weights


def find_vectors(spec: str | Path) -> Path:
    """The file at a path, or of a name in the catalog (`glove`), the first of its files that is here."""
    entry = find(spec) if isinstance(spec, str) else None
    if entry is not None and entry.kind == KIND:
        folder = entry.place()
        if folder is None:
            raise absent(entry)
        return entry.locate(folder)[ALL][0]
    path = Path(spec).expanduser()
    if not path.is_file():
        raise NextwordError(
            f"There is no file of vectors {spec}. Expected a text file with a word and its numbers on each line, also "
            "as .gz or .xz, or a name as glove (`nextword data` lists them)."
        )
    return path


def has_vectors(path: Path) -> bool | None:
    """Whether a file of vectors has word2vec's first line; None where it is no such file."""
    try:
        source = lines(path)
        first, second = next(source, ""), next(source, "")
        head = first.split()
        if len(head) == 2 and all(part.isdigit() for part in head):
            return True if len(second.split(" ")) > int(head[1]) >= 1 else None
        width, _ = _opened(path)
        return False if width > 1 else None
    except NextwordError:
        return None


def read_words(spec: str | Path, most: int = 0) -> list[str]:
    """The words that have vectors, each once, the first `most` of them (0: all); their numbers are not looked at."""
    path = find_vectors(spec)
    width, rows = _opened(path)
    found: dict[str, None] = {}
    for number, line in rows:
        found.setdefault(_parts(path, number, line, width)[0])
        if most and len(found) == most:
            break
    return list(found)


def read_vectors(spec: str | Path, only: Collection[str] | None = None) -> Vectors:
    """All vectors of a file, or those of the words asked for."""
    path = find_vectors(spec)
    wanted = None if only is None else frozenset(only)
    width, rows = _opened(path)
    places: dict[str, int] = {}
    blocks: list[np.ndarray] = []
    held: list[tuple[int, str]] = []  # number of the line, its numbers
    repeated = 0
    for number, line in rows:
        word, numbers = _parts(path, number, line, width)
        if wanted is not None and word not in wanted:
            continue
        if word in places:
            repeated += 1
            continue
        places[word] = len(places)
        held.append((number, numbers))
        if len(held) == TOGETHER:
            blocks.append(_parsed(path, held, width))
            held = []
    blocks.append(_parsed(path, held, width))
    return Vectors(str(path), list(places), np.concatenate(blocks), repeated)


def vectors_for(vocabulary: Vocabulary, spec: str | Path, width: int, key: str) -> np.ndarray:
    """(V, width): a row for each word of a tokenizer; zeros where there is no vector, and for special tokens.

    `key` is what the width is called in the recipe's [model].
    """
    words = [piece.decode("utf-8", "replace").strip() for piece in vocabulary.pieces]
    found = read_vectors(spec, only=words)
    if found.width != width:
        raise NextwordError(
            f"[model] {key} = {width}, but the vectors in {found.name} have {found.width} numbers. Set "
            f"{key} = {found.width}, or name other vectors."
        )
    if not len(found):
        raise NextwordError(
            f"None of the {len(words):,} words of the tokenizer has a vector in {found.name}. Use a tokenizer of "
            'kind "lexicon", which knows them.'
        )
    matrix = found.matrix_of(words)
    matrix[list(vocabulary.special.values())] = 0
    return matrix


# ------------------------------------------------------------------------------------------------ lines


def _opened(path: Path) -> tuple[int, Iterator[tuple[int, str]]]:
    """The width, and the lines that have vectors with their numbers; what the first line is decides both."""
    source = enumerate(lines(path), 1)
    number, first = next(source, (0, ""))
    head = first.split()
    if len(head) == 2 and all(part.isdigit() for part in head):
        return _positive(path, int(head[1])), _whole(path, int(head[0]), _not_empty(source))
    width = len(head) - 1
    while width > 1 and not all(map(_is_number, head[-width:])):  # a word of several parts
        width -= 1
    if width < 1 or not _is_number(head[-1]):
        raise NextwordError(
            f"{path}, line {number or 1} is {first.strip()[:60]!r}. Expected a word and its numbers, as in "
            "`the 0.1 -0.2 …`, or how many words there are and how wide their vectors are."
        )

    def rows() -> Iterator[tuple[int, str]]:
        yield number, first
        yield from _not_empty(source)

    return width, rows()


def _positive(path: Path, width: int) -> int:
    if width < 1:
        raise NextwordError(f"{path}, line 1 says that vectors have {width} numbers. Expected at least one.")
    return width


def _whole(path: Path, said: int, rows: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines, of which there are to be as many as the first one says."""
    count = 0
    for row in rows:
        count += 1
        yield row
    if count < said:
        raise NextwordError(
            f"{path}, line 1 says that there are {said:,} words, and only {count:,} follow: the rest is missing. Copy "
            "the file again."
        )


def _not_empty(source: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in source if line.strip())


def _parts(path: Path, number: int, line: str, width: int) -> tuple[str, str]:
    """The word of a line, and its numbers as text."""
    line = line.rstrip(" \n")
    spaces = line.count(" ")
    if spaces == width:
        word, _, numbers = line.partition(" ")
        return word, numbers
    parts = line.split(" ")
    word, rest = " ".join(parts[:-width]), parts[1:-width]
    if spaces < width or all(map(_is_number, rest)):
        raise NextwordError(
            f"{path}, line {number} has {spaces} numbers after {parts[0][:40]!r}, and the vectors of this file have "
            f"{width}. The line was cut or is of another file: mend or remove it."
        )
    return word, " ".join(parts[-width:])


def _parsed(path: Path, held: Sequence[tuple[int, str]], width: int) -> np.ndarray:
    """(lines, width) float32."""
    if not held:
        return np.zeros((0, width), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what is no number: found out below
        try:
            found = np.fromstring(" ".join(numbers for _, numbers in held), np.float32, sep=" ")
        except ValueError:  # as numpy will say it one day
            found = np.zeros(0, np.float32)
    if len(found) != len(held) * width or not np.isfinite(found).all():
        raise _wrong(path, held, width)
    return found.reshape(len(held), width)


def _wrong(path: Path, held: Sequence[tuple[int, str]], width: int) -> NextwordError:
    for number, numbers in held:
        odd = next((part for part in numbers.split() if not _is_number(part)), None)
        if odd is not None or len(numbers.split()) != width:
            what = f"{odd!r} where a number should be" if odd is not None else f"{len(numbers.split())} numbers"
            return NextwordError(f"{path}, line {number} has {what}; expected {width} numbers. Mend or remove it.")
    return NextwordError(f"{path}, lines {held[0][0]} to {held[-1][0]} cannot be read as numbers. Mend the file.")


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
