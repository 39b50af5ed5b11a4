"""Word vector files: formats, subsets, words without a vector, and errors with their line."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest

from nextword.core.errors import DataError, MissingFile
from nextword.data.word_vectors import BLOCK_SIZE, MAX_LINE, read_vectors, read_words
from tests.support.errors import raises

GLOVE = "the 0.5 -0.25 1e-1\ncat 1 2 3\n. . . 7 8 9\nÅngström -1 -2 -3\n"


def write(folder: Path, text: str, name: str = "vectors.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_read_words_and_numbers(tmp_path: Path) -> None:
    vectors = read_vectors(write(tmp_path, GLOVE))
    assert vectors.words == ["the", "cat", ". . .", "Ångström"]
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(
        vectors.matrix, np.array([[0.5, -0.25, 0.1], [1, 2, 3], [7, 8, 9], [-1, -2, -3]], np.float32)
    )
    assert vectors.width == 3
    assert read_words(tmp_path / "vectors.txt") == vectors.words
    assert read_words(tmp_path / "vectors.txt", 2) == ["the", "cat"]


@pytest.mark.parametrize("form", ["header", "trailing spaces", "windows", "blank lines", ".gz", ".xz"])
def test_read_every_format_gives_the_same_vectors(tmp_path: Path, form: str) -> None:
    plain = read_vectors(write(tmp_path, GLOVE))
    path = tmp_path / "other.txt"
    if form == ".gz":
        path = tmp_path / "other.txt.gz"
        path.write_bytes(gzip.compress(GLOVE.encode()))
    elif form == ".xz":
        path = tmp_path / "other.txt.xz"
        path.write_bytes(lzma.compress(GLOVE.encode()))
    else:
        changed = {
            "header": "4 3\n" + GLOVE,
            "trailing spaces": GLOVE.replace("\n", " \n"),
            "windows": GLOVE.replace("\n", "\r\n"),
            "blank lines": GLOVE.replace("cat", "\ncat") + "\n",
        }[form]
        path.write_bytes(changed.encode())
    vectors = read_vectors(path)
    assert vectors.words == plain.words
    np.testing.assert_array_equal(vectors.matrix, plain.matrix)


def test_read_only_some_words_and_zeros_for_the_others(tmp_path: Path) -> None:
    vectors = read_vectors(write(tmp_path, GLOVE), only=["cat", "dog"])
    assert vectors.words == ["cat"]
    np.testing.assert_array_equal(vectors.matrix_of(["dog", "cat", "dog"]), [[0, 0, 0], [1, 2, 3], [0, 0, 0]])


def test_read_repeated_word_keeps_its_first_vector(tmp_path: Path) -> None:
    vectors = read_vectors(write(tmp_path, GLOVE + "cat 9 9 9\n"))
    assert vectors.repeated == 1
    np.testing.assert_array_equal(vectors.matrix_of(["cat"]), [[1, 2, 3]])
    assert read_words(tmp_path / "vectors.txt").count("cat") == 1


def test_read_more_than_one_block(tmp_path: Path) -> None:
    wanted = np.random.default_rng(0).normal(size=(2 * BLOCK_SIZE + 7, 4)).astype(np.float32)
    lines = [f"w{i} " + " ".join(map(repr, map(float, row))) for i, row in enumerate(wanted)]
    vectors = read_vectors(write(tmp_path, "\n".join(lines)))
    np.testing.assert_array_equal(vectors.matrix, wanted)
    assert vectors.words[-1] == f"w{len(wanted) - 1}"


@pytest.mark.parametrize(
    ("text", "line", "value"),
    [
        (GLOVE + "dog 1 2\n", 5, "'dog'"),
        (GLOVE + "dog 1 2 3 4\n", 5, "'dog'"),
        ("the 1 2\ncat 1 two\n", 2, "'two'"),
        ("the 1 2\ncat 1 nan\n", 2, "'nan'"),
        ("the\ncat\n", 1, "'the'"),
        ("", 1, "''"),
        ("3 0\n", 1, "0"),
        ("3 2\nthe 1 2\ncat 1 2\n", None, "3 words.*2"),
    ],
)
def test_read_bad_file_gives_its_line(tmp_path: Path, text: str, line: int | None, value: str) -> None:
    path = write(tmp_path, text)
    with raises(DataError, match=value, path=path, line=line):
        read_vectors(path)


def test_read_missing_file_or_name_raises(tmp_path: Path) -> None:
    with raises(MissingFile, path=tmp_path / "none.txt"):
        read_vectors(tmp_path / "none.txt")
    with raises(MissingFile, path="glove-6b"):
        read_words("glove")


def test_read_by_name_of_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "glove").mkdir()
    write(tmp_path / "glove", GLOVE, "glove.6B.100d.txt")
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    assert len(read_vectors("glove")) == 4


def test_read_glove_has_sensible_cosines(shared: Path) -> None:
    vectors = read_vectors(shared / "glove/glove.6B.100d.subset.txt.xz", only=["the", "king", "queen", "cabbage"])
    the, king, queen, cabbage = vectors.matrix_of(["the", "king", "queen", "cabbage"])
    np.testing.assert_allclose(the[:3], [-0.038, -0.245, 0.728])
    cosine = lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b)  # noqa: E731
    assert cosine(king, queen) > 0.7 > 0.3 > cosine(king, cabbage)


def test_line_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt.gz"
    path.write_bytes(gzip.compress(b"the 0.1 0.2\n" + b"0" * (MAX_LINE + (1 << 20)), 1, mtime=0))
    with raises(DataError, path=path):
        read_vectors(path)


@pytest.mark.parametrize("header", ["1000000000 2", "2 1000000000", "2 1000000", "2 0", "²  2", "1" * 5000 + " 2"])
def test_header_that_claims_more_than_there_is_is_refused(tmp_path: Path, header: str) -> None:
    path = write(tmp_path, f"{header}\nthe 0.1 0.2\na 0.3 0.4\n")
    with raises(DataError, path=path):
        read_vectors(path)


def test_long_first_line_without_numbers_is_refused_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "word " * 300_000 + "0.5 word\n")  # hours, if every width were tried in full
    with raises(DataError, path=path):
        read_vectors(path)
