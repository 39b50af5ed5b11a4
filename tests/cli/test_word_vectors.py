"""Word vector commands: train, nearest neighbors, embed, conversion in both directions, and errors."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.data.word_vectors import read_vectors
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
def test_embed_nearest_and_analogy_of_a_trained_run(cli: Cli, js: Js, place: Path, slug: str) -> None:
    result = js("embed", place / slug, "--nearest", "king", "-k", "4")
    assert len(result["words"]) == 4
    assert "king" not in [item["word"] for item in result["words"]]
    assert len(cli("embed", place / slug, "--nearest", "king", "-k", "4").stdout.splitlines()) == 4
    summed = js("embed", place / slug, "--analogy", "king - house + bread", "-k", "3")["words"]
    assert not {item["word"] for item in summed} & {"king", "house", "bread"}
    assert "not a language model" in (place / slug / "card.md").read_text()


@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("words", [("next", "the"), ("generate", "the"), ("evaluate",)])
def test_word_vector_run_refuses_language_model_commands(
    cli: Cli, place: Path, slug: str, words: tuple[str, ...]
) -> None:
    message = cli(words[0], place / slug, *words[1:], fails=True).stderr
    assert "nextword embed" in message
    assert "nextword embed" in message


def test_embed_lines_averages_word_vectors(cli: Cli, place: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the king said\nbread and water\n")
    cli("embed", place / "glove", tmp_path / "lines.txt", "--out", tmp_path / "v.npy")
    assert np.load(tmp_path / "v.npy").shape == (2, 32)


def test_embed_skips_and_counts_blank_lines(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the king said\n\nbread and water\n\n  \n")
    message = cli("embed", place / "glove", tmp_path / "lines.txt", "--out", tmp_path / "v.npy").stderr
    assert "3 blank lines have no vector" in " ".join(message.split())
    assert np.load(tmp_path / "v.npy").shape == (2, 32)
    facts = js("embed", place / "glove", tmp_path / "lines.txt", "--out", tmp_path / "w.npy")
    assert (facts["texts"], facts["empty"], facts["notes"]) == (2, [2, 4, 5], ["3 blank lines have no vector"])
    result = js("embed", place / "glove", tmp_path / "lines.txt", "--query", "bread and water", "-k", "1")
    assert (result["lines"][0]["line"], result["lines"][0]["text"]) == (3, "bread and water")
    assert result["empty"] == [2, 4, 5]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
def test_embed_table_gives_every_row_a_vector(cli: Cli, js: Js, place: Path, tmp_path: Path, ending: str) -> None:
    """Rows without text get zeros, so vectors align with rows; they match no query and no cluster."""
    texts = ["", "the king said", "  ", "bread and water", "see the house", ""]
    file = tmp_path / f"rows{ending}"
    mark = "\t" if ending == ".tsv" else ","
    rows = [f"{i}{mark}{text}\n" for i, text in enumerate(texts)]
    objects = [json.dumps({"n": i, "text": text}) + "\n" for i, text in enumerate(texts)]
    file.write_text("".join(objects) if ending == ".jsonl" else "".join([f"n{mark}text\n", *rows]))
    run = place / "glove"
    message = " ".join(cli("embed", run, file, "--out", tmp_path / "v.npy").stderr.split())
    assert "3 of 6 rows have no text (rows 1, 3, 6)" in message
    vectors = np.load(tmp_path / "v.npy")
    (tmp_path / "filled.txt").write_text("".join(f"{text}\n" for text in texts if text.strip()))
    cli("embed", run, tmp_path / "filled.txt")
    np.testing.assert_array_equal(vectors[[1, 3, 4]], np.load(tmp_path / "filled.npy"))
    assert not vectors[[0, 2, 5]].any()
    facts = js("embed", run, file, "--out", tmp_path / "w.safetensors")
    assert (facts["texts"], facts["empty"]) == (6, [1, 3, 6])
    assert any("3 of 6 rows have no text" in note for note in facts["notes"])
    assert sorted(row["line"] for row in js("embed", run, file, "--query", "king")["lines"]) == [2, 4, 5]
    in_groups = js("embed", run, file, "--clusters", 2)["clusters"]
    assert sorted(row["line"] for group in in_groups for row in group) == [2, 4, 5]
    file.write_text('{"text": ""}\n' if ending == ".jsonl" else f"n{mark}text\n1{mark}\n")
    assert "no row with a text" in cli("embed", run, file, "--query", "king", fails=True).stderr


def test_embed_writes_vectors_and_shows_results_together(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    run, lines = place / "glove", tmp_path / "lines.txt"
    lines.write_text("the king said\nbread and water :fire: [b]\n\nsee the house\n")
    cli("embed", run, lines, "--out", tmp_path / "alone.npy")
    for i, asked in enumerate((("--clusters", 2), ("--query", "bread"))):
        out = tmp_path / f"{i}.npy"
        message = " ".join(cli("embed", run, lines, *asked, "--out", out).stdout.split())
        assert "3 vectors of size 32" in message
        assert "bread and water :fire: [b]" in message  # as it stands there
        np.testing.assert_array_equal(np.load(out), np.load(tmp_path / "alone.npy"))
        result = js("embed", run, lines, *asked, "--out", tmp_path / f"{i}.safetensors")
        assert result["file"] == str(tmp_path / f"{i}.safetensors")
        assert {"clusters", "lines"} & set(result)
        assert (tmp_path / f"{i}.safetensors").is_file()
        assert "exists" in cli("embed", run, lines, *asked, "--out", out, fails=True).stderr
        assert ".npy or .safetensors" in cli("embed", run, lines, *asked, "--out", "v.txt", fails=True).stderr
        cli("embed", run, lines, *asked)
    assert not (tmp_path / "lines.npy").exists()  # unless asked for
    cli("embed", run, lines, "--clusters", 9, "--out", tmp_path / "none.npy", fails=True)
    assert not (tmp_path / "none.npy").exists()


def test_embed_shows_long_texts_shortened_on_one_line(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    """A table cell may span lines or hold a book."""
    rows, book = tmp_path / "rows.jsonl", "the king said " * 100
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("the king\n\nsaid", book)))
    shown = cli("embed", place / "glove", rows, "--query", "king").stdout.splitlines()
    assert sorted(line.split("  ")[-1] for line in shown) == ["the king said", book.strip()[:160].rstrip() + " …"]
    result = js("embed", place / "glove", rows, "--query", "king")["lines"]
    assert {row["text"] for row in result} == {"the king\n\nsaid", book}  # programs get all of it


def test_embed_notes_unknown_words(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    """All unknown words share the vector of <unk>."""
    (tmp_path / "lines.txt").write_text("the king said\nzweiback qwrtz\n")
    words = ("embed", place / "glove", tmp_path / "lines.txt", "--query", "qwrtz")
    message = " ".join(cli(*words).stderr.split())
    assert "40.0 % of the words are not in the vocabulary of the run" in message
    assert "100.0 % of the words of the query are not in the vocabulary of the run" in message
    assert len(js(*words)["notes"]) == 2
    assert js(*words[:-1], "king")["notes"] == js(*words)["notes"][:1]


def test_embed_reads_standard_input(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    run, given = place / "glove", "the king said\n\nbread and water\n"
    cli("embed", run, "-", "--out", tmp_path / "v.npy", stdin=given)
    (tmp_path / "lines.txt").write_text(given)
    cli("embed", run, tmp_path / "lines.txt")
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), np.load(tmp_path / "lines.npy"))
    assert js("embed", run, "-", "--query", "bread", "-k", 1, stdin=given)["lines"][0]["line"] == 3
    assert "--out" in cli("embed", run, "-", fails=True, stdin=given).stderr
    assert "standard input has no line" in cli("embed", run, "-", "--query", "a", fails=True, stdin="\n").stderr


@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("name", ["mine.vec", "mine.txt", "mine.vec.gz", "mine.txt.xz"])
def test_convert_word_vectors_round_trips_exactly(
    cli: Cli, js: Js, place: Path, tmp_path: Path, slug: str, name: str
) -> None:
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
        js("embed", item, "--nearest", "king")["words"] for item in (place / slug, tmp_path / name, tmp_path / "back")
    ]
    assert (
        [item["word"] for item in asked[0]]
        == [item["word"] for item in asked[1]]
        == [item["word"] for item in asked[2]]
    )


def test_convert_word_vectors_reports_words_and_size(cli: Cli, place: Path, tmp_path: Path) -> None:
    """It reports the words of the file, not parameters and tokens of the network."""
    message = cli("convert", place / "glove", tmp_path / "mine.vec").stdout
    assert f"{len(read_vectors(tmp_path / 'mine.vec')):,} words · vector size 32" in message
    assert "parameters" not in message


def test_convert_word_vectors_with_format_and_digits(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    js("convert", place / "glove", tmp_path / "mine.words", "--to", "word2vec", "--set", "vectors.digits=3")
    result, whole = read_vectors(tmp_path / "mine.words"), read_vectors(_written(js, place, tmp_path))
    np.testing.assert_allclose(result.matrix, whole.matrix, rtol=1e-2)
    message = cli("convert", place / "glove", tmp_path / "x.vec", "--set", "vectors.digits=20", fails=True).stderr
    assert "1, 2, 3" in message


def _written(js: Js, place: Path, tmp_path: Path) -> Path:
    js("convert", place / "glove", tmp_path / "whole.vec")
    return tmp_path / "whole.vec"


def test_written_vectors_are_read_by_gensim(js: Js, place: Path, tmp_path: Path) -> None:
    gensim = pytest.importorskip("gensim.models", reason="gensim is not installed")
    vectors = read_vectors(_written(js, place, tmp_path))
    js("convert", place / "glove", tmp_path / "whole.txt")
    for name, header in (("whole.vec", False), ("whole.txt", True)):
        theirs = gensim.KeyedVectors.load_word2vec_format(tmp_path / name, no_header=header)
        assert theirs.index_to_key == vectors.words
        assert theirs.vectors.tobytes() == vectors.matrix.tobytes()
    theirs.save_word2vec_format(tmp_path / "theirs.vec")
    np.testing.assert_array_equal(read_vectors(tmp_path / "theirs.vec").matrix, vectors.matrix)


def test_embed_nearest_uses_input_vectors_of_word_language_model(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    settings = ('tokenizer={kind="words"}', "model.width=16", "phase.0.steps=10")
    cli("train", "lstm/tiny", "--data", place / "text.txt", "--out", tmp_path / "lstm", *sets(*settings))
    assert js("embed", tmp_path / "lstm", "--nearest", "king", "-k", "2")["words"][0]["word"] in _words(place)
    cli("train", "lstm/tiny", "--data", place / "text.txt", "--out", tmp_path / "bytes",
        *sets('tokenizer={kind="bytes"}', *settings[1:]))  # fmt: skip
    assert "bytes" in cli("embed", tmp_path / "bytes", "--nearest", "king", fails=True).stderr


def _words(place: Path) -> set[str]:
    return set((place / "text.txt").read_text().split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nextword embed RUN FILE"),
        (("--nearest", "kingg"), "'kingg'"),
        (("--analogy", "king -house"), "sum"),
        (("--analogy", "king house"), "sum"),
        (("--analogy", "king +"), "sum"),
        (("--analogy", "king - king"), "king"),
        (("--nearest", "king", "--analogy", "king - house"), "--analogy"),
        (("lines.txt", "--nearest", "king"), "Leave FILE out"),
        (("--nearest", "king", "--out", "v.npy"), "--out"),
    ],
)
def test_embed_with_wrong_options_names_them(cli: Cli, place: Path, words: tuple[str, ...], message: str) -> None:
    assert message in cli("embed", place / "glove", *words, fails=True).stderr


def test_embed_with_missing_file_or_invalid_run_fails(cli: Cli, tmp_path: Path) -> None:
    assert "vectors" in cli("embed", tmp_path / "none.txt", "--nearest", "a", fails=True).stderr
    assert "manifest.json" in cli("embed", tmp_path, "--nearest", "a", fails=True).stderr
