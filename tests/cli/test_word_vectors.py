"""Vectors of words from the command line: train, ask for neighbours, embed, convert there and back, and be refused."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.corpora.vectors import read_vectors
from tests.cli.conftest import Cli, sentences, sets

Js = Callable[..., Any]
SLUGS = ("word2vec", "glove")


@pytest.fixture(scope="module")
def place(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "text.txt").write_text("\n\n".join(sentences(400)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        for slug in SLUGS:
            cli(
                "train",
                f"{slug}/tiny",
                "--data",
                folder / "text.txt",
                "--out",
                folder / slug,
                "--set",
                "phase.0.steps=20",
            )
    return folder


@pytest.mark.parametrize("slug", SLUGS)
def test_trained_and_asked(cli: Cli, js: Js, place: Path, slug: str) -> None:
    found = js("embed", place / slug, "--nearest", "king", "-k", "4")
    assert len(found["words"]) == 4
    assert "king" not in [one["word"] for one in found["words"]]
    assert len(cli("embed", place / slug, "--nearest", "king", "-k", "4").stdout.splitlines()) == 4
    summed = js("embed", place / slug, "--analogy", "king - house + bread", "-k", "3")["words"]
    assert not {one["word"] for one in summed} & {"king", "house", "bread"}
    assert "no language model" in (place / slug / "card.md").read_text()


@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("words", [("next", "the"), ("generate", "the"), ("evaluate",)])
def test_no_language_model(cli: Cli, place: Path, slug: str, words: tuple[str, ...]) -> None:
    said = cli(words[0], place / slug, *words[1:], fails=True).stderr
    assert "no language model" in said
    assert "nextword embed" in said


def test_lines_embedded(cli: Cli, place: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the king said\nbread and water\n")
    cli("embed", place / "glove", tmp_path / "lines.txt", "--out", tmp_path / "v.npy")
    assert np.load(tmp_path / "v.npy").shape == (2, 32)


def test_blank_lines_have_no_vector_and_are_counted(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the king said\n\nbread and water\n")
    said = cli("embed", place / "glove", tmp_path / "lines.txt", "--out", tmp_path / "v.npy").stdout
    assert "1 blank line" in " ".join(said.split())
    found = js("embed", place / "glove", tmp_path / "lines.txt", "--query", "bread and water", "-k", "1")["lines"]
    assert (found[0]["line"], found[0]["text"]) == (3, "bread and water")


@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("name", ["mine.vec", "mine.txt", "mine.vec.gz", "mine.txt.xz"])
def test_there_and_back_changes_no_bit(cli: Cli, js: Js, place: Path, tmp_path: Path, slug: str, name: str) -> None:
    js("convert", place / slug, tmp_path / name)
    written = read_vectors(tmp_path / name)
    opener = gzip.open if name.endswith(".gz") else open
    if not name.endswith(".xz"):
        with opener(tmp_path / name, "rt", encoding="utf-8") as file:
            first = file.readline().split()
        assert (first == [str(len(written)), "32"]) == (".vec" in name)
    js("convert", tmp_path / name, tmp_path / "back")
    js("convert", tmp_path / "back", tmp_path / "again.txt")
    again = read_vectors(tmp_path / "again.txt")
    assert again.words == written.words
    assert again.matrix.tobytes() == written.matrix.tobytes()
    asked = [
        js("embed", one, "--nearest", "king")["words"] for one in (place / slug, tmp_path / name, tmp_path / "back")
    ]
    assert [one["word"] for one in asked[0]] == [one["word"] for one in asked[1]] == [one["word"] for one in asked[2]]


def test_what_was_written_is_told(cli: Cli, place: Path, tmp_path: Path) -> None:
    """Words of the file, not parameters and tokens of the network."""
    said = cli("convert", place / "glove", tmp_path / "mine.vec").stdout
    assert f"{len(read_vectors(tmp_path / 'mine.vec')):,} words · width 32" in said
    assert "parameters" not in said


def test_asked_for_by_format_and_with_fewer_digits(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    js("convert", place / "glove", tmp_path / "mine.words", "--to", "word2vec", "--set", "vectors.digits=3")
    found, whole = read_vectors(tmp_path / "mine.words"), read_vectors(_written(js, place, tmp_path))
    np.testing.assert_allclose(found.matrix, whole.matrix, rtol=1e-2)
    said = cli("convert", place / "glove", tmp_path / "x.vec", "--set", "vectors.digits=20", fails=True).stderr
    assert "expected 1 to 9" in said


def _written(js: Js, place: Path, tmp_path: Path) -> Path:
    js("convert", place / "glove", tmp_path / "whole.vec")
    return tmp_path / "whole.vec"


def test_gensim_reads_what_is_written(js: Js, place: Path, tmp_path: Path) -> None:
    gensim = pytest.importorskip("gensim.models", reason="gensim is not installed")
    vectors = read_vectors(_written(js, place, tmp_path))
    js("convert", place / "glove", tmp_path / "whole.txt")
    for name, header in (("whole.vec", False), ("whole.txt", True)):
        theirs = gensim.KeyedVectors.load_word2vec_format(tmp_path / name, no_header=header)
        assert theirs.index_to_key == vectors.words
        assert theirs.vectors.tobytes() == vectors.matrix.tobytes()
    theirs.save_word2vec_format(tmp_path / "theirs.vec")
    np.testing.assert_array_equal(read_vectors(tmp_path / "theirs.vec").matrix, vectors.matrix)


def test_input_vectors_of_a_language_model_that_reads_words(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    settings = ('tokenizer={kind="words"}', "model.width=16", "phase.0.steps=10")
    cli("train", "lstm/tiny", "--data", place / "text.txt", "--out", tmp_path / "lstm", *sets(*settings))
    assert js("embed", tmp_path / "lstm", "--nearest", "king", "-k", "2")["words"][0]["word"] in _words(place)
    cli("train", "lstm/tiny", "--data", place / "text.txt", "--out", tmp_path / "bytes",
        *sets('tokenizer={kind="bytes"}', *settings[1:]))  # fmt: skip
    assert "reads bytes tokens" in cli("embed", tmp_path / "bytes", "--nearest", "king", fails=True).stderr


def _words(place: Path) -> set[str]:
    return set((place / "text.txt").read_text().split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Embed what?"),
        (("--nearest", "kingg"), "no vector of 'kingg'"),
        (("--analogy", "king -house"), "is no sum of words"),
        (("--analogy", "king house"), "is no sum of words"),
        (("--analogy", "king +"), "is no sum of words"),
        (("--analogy", "king - king"), "add up to nothing"),
        (("--nearest", "king", "--analogy", "king - house"), "give one of them"),
        (("lines.txt", "--nearest", "king"), "no file of texts"),
    ],
)
def test_mistakes(cli: Cli, place: Path, words: tuple[str, ...], said: str) -> None:
    assert said in cli("embed", place / "glove", *words, fails=True).stderr


def test_a_file_that_is_not_there_and_a_folder_that_is_no_run(cli: Cli, tmp_path: Path) -> None:
    assert "There is no file of vectors" in cli("embed", tmp_path / "none.txt", "--nearest", "a", fails=True).stderr
    assert "is no run" in cli("embed", tmp_path, "--nearest", "a", fails=True).stderr
