"""Files of vectors: what each line may be, what is refused with its line, and what comes of words without one."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest

from nextword.core.errors import NextwordError
from nextword.data.word_vectors import TOGETHER, read_vectors, read_words

GLOVE = "the 0.5 -0.25 1e-1\ncat 1 2 3\n. . . 7 8 9\nÅngström -1 -2 -3\n"


def written(folder: Path, text: str, name: str = "vectors.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_words_and_numbers(tmp_path: Path) -> None:
    found = read_vectors(written(tmp_path, GLOVE))
    assert found.words == ["the", "cat", ". . .", "Ångström"]
    assert found.matrix.dtype == np.float32
    np.testing.assert_array_equal(
        found.matrix, np.array([[0.5, -0.25, 0.1], [1, 2, 3], [7, 8, 9], [-1, -2, -3]], np.float32)
    )
    assert found.width == 3
    assert read_words(tmp_path / "vectors.txt") == found.words
    assert read_words(tmp_path / "vectors.txt", 2) == ["the", "cat"]


@pytest.mark.parametrize("form", ["header", "trailing spaces", "windows", "blank lines", ".gz", ".xz"])
def test_the_same_in_every_form(tmp_path: Path, form: str) -> None:
    plain = read_vectors(written(tmp_path, GLOVE))
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
    found = read_vectors(path)
    assert found.words == plain.words
    np.testing.assert_array_equal(found.matrix, plain.matrix)


def test_some_words_alone_and_zeros_for_the_unknown(tmp_path: Path) -> None:
    found = read_vectors(written(tmp_path, GLOVE), only=["cat", "dog"])
    assert found.words == ["cat"]
    np.testing.assert_array_equal(found.matrix_of(["dog", "cat", "dog"]), [[0, 0, 0], [1, 2, 3], [0, 0, 0]])


def test_a_word_twice_has_its_first_vector(tmp_path: Path) -> None:
    found = read_vectors(written(tmp_path, GLOVE + "cat 9 9 9\n"))
    assert found.repeated == 1
    np.testing.assert_array_equal(found.matrix_of(["cat"]), [[1, 2, 3]])
    assert read_words(tmp_path / "vectors.txt").count("cat") == 1


def test_more_lines_than_are_parsed_at_once(tmp_path: Path) -> None:
    wanted = np.random.default_rng(0).normal(size=(2 * TOGETHER + 7, 4)).astype(np.float32)
    lines = [f"w{i} " + " ".join(map(repr, map(float, row))) for i, row in enumerate(wanted)]
    found = read_vectors(written(tmp_path, "\n".join(lines)))
    np.testing.assert_array_equal(found.matrix, wanted)
    assert found.words[-1] == f"w{len(wanted) - 1}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GLOVE + "dog 1 2\n", r"line 5 has 2 numbers after 'dog', and the vectors of this file have 3"),
        (GLOVE + "dog 1 2 3 4\n", r"line 5 has 4 numbers after 'dog'"),
        ("the 1 2\ncat 1 two\n", "line 2 has 'two' where a number should be"),
        ("the 1 2\ncat 1 nan\n", "line 2 has 'nan' where a number should be"),
        ("the\ncat\n", "line 1 is 'the'"),
        ("", "line 1 is ''"),
        ("3 0\n", "vectors have 0 numbers"),
        ("3 2\nthe 1 2\ncat 1 2\n", "says that there are 3 words, and only 2 follow"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(NextwordError, match=said):
        read_vectors(written(tmp_path, text))


def test_a_file_or_a_name_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NextwordError, match="There is no file of vectors"):
        read_vectors(tmp_path / "none.txt")
    with pytest.raises(NextwordError, match=r"glove-6b .* is not on this machine"):
        read_words("glove")


def test_by_the_name_of_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "glove").mkdir()
    written(tmp_path / "glove", GLOVE, "glove.6B.100d.txt")
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    assert len(read_vectors("glove")) == 4


def test_real_vectors(shared: Path) -> None:
    found = read_vectors(shared / "glove/glove.6B.100d.subset.txt.xz", only=["the", "king", "queen", "cabbage"])
    the, king, queen, cabbage = found.matrix_of(["the", "king", "queen", "cabbage"])
    np.testing.assert_allclose(the[:3], [-0.038, -0.245, 0.728])
    cosine = lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b)  # noqa: E731
    assert cosine(king, queen) > 0.7 > 0.3 > cosine(king, cabbage)
