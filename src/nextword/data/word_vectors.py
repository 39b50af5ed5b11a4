"""Word vectors in text files, as GloVe, word2vec and fastText write them, plain or compressed.

    400000 100                      word2vec's header: number of words, dimension. GloVe has none
    the -0.038 -0.245 0.728 …       a word and its numbers, separated by single spaces
    . . . 0.11 0.05 …               in the largest GloVe a few words contain spaces

    vectors = read_vectors("glove.6B.100d.txt.xz", only=words)     # the lines of other words are not parsed
    vectors.matrix_of(words)                                       # (n, width); zeros for words without a vector
    vectors.nearest({"king": 1, "man": -1, "woman": 1}, k=10)      # words and cosines, without the given words

Of a word that occurs twice the first vector counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, takewhile
from pathlib import Path

import numpy as np

from nextword.core.errors import (
    DataError,
    InvalidSetting,
    MissingFile,
    NextwordError,
    UnknownName,
    bad_data,
    did_you_mean,
    invalid,
)
from nextword.core.io import user_path
from nextword.core.types import Vocabulary
from nextword.data.catalog import ALL, find_entry
from nextword.data.files import TextStream, split_lines

BLOCK_SIZE = 4096  # lines to parse at once
MAX_LINE = 1 << 24  # characters: a vector of a million numbers
KIND = "vectors"  # of entries of the catalog


@dataclass(frozen=True)
class Vectors:
    name: str
    words: list[str] = field(repr=False)
    matrix: np.ndarray = field(repr=False)  # (words, width) float32
    repeated: int = 0  # lines skipped because their word occurred before

    def __len__(self) -> int:
        return len(self.words)

    @property
    def width(self) -> int:
        return self.matrix.shape[1]

    @cached_property
    def rows(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def matrix_of(self, words: Sequence[str]) -> np.ndarray:
        """Return (words, width) in the order of these words; zeros for words without a vector."""
        matrix = np.zeros((len(words), self.width), np.float32)
        rows = np.fromiter((self.rows.get(word, -1) for word in words), np.int64, len(words))
        matrix[rows >= 0] = self.matrix[rows[rows >= 0]]
        return matrix

    @cached_property
    def unit(self) -> np.ndarray:
        """The vectors normalized to length one; a zero vector stays zero."""
        lengths = np.linalg.norm(self.matrix, axis=1, keepdims=True)
        return self.matrix / np.where(lengths > 0, lengths, 1)

    def nearest(self, weights: Mapping[str, float], k: int = 10) -> list[tuple[str, float]]:
        """Return the k words closest to this weighted sum of normalized vectors, with cosines (3CosAdd)."""
        if k < 1:
            raise invalid("k", k, "must be 1 or more.")
        given = [self.row_of(word) for word in weights]
        query = np.array(list(weights.values()), np.float32) @ self.unit[given]
        length = float(np.linalg.norm(query))
        if length < 1e-6:
            raise bad_data(self.name, f"the vectors of {' and '.join(weights)} sum to zero, which has no direction.")
        cosines = self.unit @ (query / length)
        cosines[given] = -np.inf
        k = min(k, len(self) - len(set(given)))
        best = np.argpartition(-cosines, k - 1)[:k] if k else np.zeros(0, np.int64)
        best = best[np.argsort(-cosines[best], kind="stable")]
        return [(self.words[i], float(cosines[i])) for i in best]

    def row_of(self, word: str) -> int:
        """Return the row of a word, as written or lowercased."""
        index = self.rows.get(word, self.rows.get(word.lower()))
        if index is None:
            hint = did_you_mean(word.lower(), self.words)
            raise UnknownName(f"{self.name} has no vector for {word!r}.{hint}", name=word, known=self.words)
        return index


def parse_sum(text: str) -> dict[str, float]:
    """Parse `king - man + woman` into weights. Signs are separated by spaces, since words may contain hyphens."""
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
        message = f"{text!r} is not a sum of words. Expected words separated by + or -: king - man + woman."
        raise InvalidSetting(message, key="words", value=text)
    return weights


def find_vectors(spec: str | Path) -> Path:
    """Return the file at a path, or the first file of a name in the catalog (`glove`)."""
    entry = find_entry(spec) if isinstance(spec, str) else None
    if entry is not None and entry.kind == KIND:
        return entry.locate(entry.require_folder())[ALL][0]
    path = user_path(spec)
    if not path.is_file():
        expected = "a text file with a word and its numbers per line, perhaps as .gz or .xz, or a name such as glove"
        raise MissingFile(f"No word vectors at {spec}. Expected {expected}.", path=spec)
    return path


def has_vectors(path: Path) -> bool | None:
    """Whether a file of vectors has word2vec's header; None if it is not a file of vectors."""
    try:
        source = _read_lines(path)
        first, second = next(source, ""), next(source, "")
        header = _parse_header(first)
        if header is not None:
            return True if len(second.split(" ")) > header[1] >= 1 else None
        width, _ = _open_rows(path)
        return False if width > 1 else None
    except NextwordError:
        return None


def read_words(spec: str | Path, most: int = 0) -> list[str]:
    """Return the first `most` words of a file of vectors (0: all), without parsing their numbers."""
    path = find_vectors(spec)
    width, rows = _open_rows(path)
    words: dict[str, None] = {}
    for number, line in rows:
        words.setdefault(_split_line(path, number, line, width)[0])
        if most and len(words) == most:
            break
    return list(words)


def read_vectors(spec: str | Path, only: Collection[str] | None = None) -> Vectors:
    """Read all vectors of a file, or only those of some words."""
    path = find_vectors(spec)
    wanted = None if only is None else frozenset(only)
    width, rows = _open_rows(path)
    row_of: dict[str, int] = {}
    blocks: list[np.ndarray] = []
    block: list[tuple[int, str]] = []  # line number, numbers as text
    repeated = 0
    for number, line in rows:
        word, numbers = _split_line(path, number, line, width)
        if wanted is not None and word not in wanted:
            continue
        if word in row_of:
            repeated += 1
            continue
        row_of[word] = len(row_of)
        block.append((number, numbers))
        if len(block) == BLOCK_SIZE:
            blocks.append(_parse_numbers(path, block, width))
            block = []
    blocks.append(_parse_numbers(path, block, width))
    return Vectors(str(path), list(row_of), np.concatenate(blocks), repeated)


def vectors_for(vocabulary: Vocabulary, spec: str | Path, width: int) -> np.ndarray:
    """Return (V, width): a row per word of a tokenizer; zeros for special tokens and words without a vector."""
    words = [piece.decode("utf-8", "replace").strip() for piece in vocabulary.pieces]
    vectors = read_vectors(spec, only=words)
    if vectors.width != width:
        problem = f"is not the dimension of the vectors in {vectors.name}, {vectors.width}. Set vector_width to that."
        raise invalid("vector_width", width, problem, "[model]")
    if not len(vectors):
        problem = f"no vector for any of the {len(words):,} words of the tokenizer."
        raise bad_data(vectors.name, f'{problem} Use a tokenizer of kind "lexicon".')
    matrix = vectors.matrix_of(words)
    matrix[list(vocabulary.special.values())] = 0
    return matrix


# ------------------------------------------------------------------------------------------------ lines


def _read_lines(path: Path) -> Iterator[str]:
    """The lines of a file; an error instead of a line that fills the memory, as a small compressed file may hold."""

    def chunks() -> Iterator[str]:
        length = 0  # of the line that is not complete
        for chunk in TextStream(path).chunks():
            first, last = chunk.find("\n"), chunk.rfind("\n")
            if length + (first if first >= 0 else len(chunk)) > MAX_LINE:
                raise bad_data(path, f"a line of more than {MAX_LINE:,} characters, the limit. Copy the file again.")
            length = len(chunk) - last - 1 if first >= 0 else length + len(chunk)
            yield chunk

    return split_lines(chunks())


def _parse_header(line: str) -> tuple[int, int] | None:
    """Return the number of words and the dimension, if this is word2vec's header."""
    cells = line.split()
    is_header = len(cells) == 2 and all(cell.isascii() and cell.isdigit() and len(cell) < 20 for cell in cells)
    return (int(cells[0]), int(cells[1])) if is_header else None


def _open_rows(path: Path) -> tuple[int, Iterator[tuple[int, str]]]:
    """Return the dimension, and the lines with vectors, numbered. The first line decides about both."""
    source = enumerate(_read_lines(path), 1)
    number, first = next(source, (1, ""))
    rows = ((number, line) for number, line in source if line.strip())
    cells = first.split()
    if header := _parse_header(first):
        count, width = header
        if width < 1:
            raise bad_data(path, f"the dimension is {width}; expected 1 or more.", 1)
        return width, _check_count(path, count, rows)
    # All numbers at the end; a word may have spaces
    width = min(len(cells) - 1, sum(1 for _ in takewhile(_is_number, reversed(cells))) or 1)
    if width < 1 or not _is_number(cells[-1]):
        expected = "a word and its numbers, such as `the 0.1 -0.2 …`, or the number of words and the dimension"
        raise bad_data(path, f"{first.strip()[:60]!r}. Expected {expected}.", number)
    return width, chain([(number, first)], rows)


def _check_count(path: Path, expected: int, rows: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Pass on the rows; raise if there are fewer than the header says."""
    count = 0
    for row in rows:
        count += 1
        yield row
    if count < expected:
        counts = f"its header says {expected:,} words, but only {count:,} follow"
        raise bad_data(path, f"truncated: {counts}. Copy the file again.")


def _split_line(path: Path, number: int, line: str, width: int) -> tuple[str, str]:
    """Return the word of a line, and its numbers as text."""
    line = line.rstrip(" \n")
    spaces = line.count(" ")
    if spaces == width:
        word, _, numbers = line.partition(" ")
        return word, numbers
    parts = line.split(" ")
    word, rest = " ".join(parts[:-width]), parts[1:-width]
    if spaces < width or all(map(_is_number, rest)):
        problem = f"{spaces} numbers after {parts[0][:40]!r}; expected {width}."
        raise bad_data(path, f"{problem} Correct or remove the line.", number)
    return word, " ".join(parts[-width:])


def _parse_numbers(path: Path, block: Sequence[tuple[int, str]], width: int) -> np.ndarray:
    """Return (lines, width) float32."""
    if not block:
        return np.zeros((0, width), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy warns of what is not a number; checked below
        try:
            values = np.fromstring(" ".join(numbers for _, numbers in block), np.float32, sep=" ")
        except ValueError:  # what the warning will become
            values = np.zeros(0, np.float32)
    if len(values) != len(block) * width or not np.isfinite(values).all():
        raise _number_error(path, block, width)
    return values.reshape(len(block), width)


def _number_error(path: Path, block: Sequence[tuple[int, str]], width: int) -> DataError:
    for number, numbers in block:
        odd = next((part for part in numbers.split() if not _is_number(part)), None)
        if odd is not None or len(numbers.split()) != width:
            problem = f"{odd!r}, which is not a number" if odd is not None else f"{len(numbers.split())} numbers"
            return bad_data(path, f"{problem}; expected {width} numbers. Correct or remove the line.", number)
    return bad_data(path, f"cannot parse the numbers in lines {block[0][0]} to {block[-1][0]}.")


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
