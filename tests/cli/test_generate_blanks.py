"""Commands on a blank-infilling run: blanks of any length, n best, files of texts, and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nextword
from nextword.core.types import Beam, Stop
from tests.cli.conftest import Cli, sets

Js = Callable[..., Any]
TEXT = "The king of the ___ went to see his ___."


@pytest.fixture(scope="module")
def glm(cli: Cli, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pieces") / "glm"
    small = ('tokenizer={kind="wordpiece", size=150}', "model.width=16", "model.layers=1", "model.heads=2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        options = sets(*small, "phase.0.batches.length=24", "phase.0.steps=8")
        cli("train", "glm/tiny", "--data", text, "--out", folder, *options)
    return folder


def test_generate_fills_blanks(cli: Cli, js: Js, glm: Path) -> None:
    lm: Any = nextword.load(glm)
    (wanted,) = lm.infill(TEXT, Beam(4), Stop(20))
    answer = js("generate", glm, TEXT, "--beam", "4", "--max-tokens", "20")
    assert (answer["text"], answer["blanks"], answer["tokens"]) == (wanted.text, list(wanted.blanks), wanted.tokens)
    assert answer["nats"] == pytest.approx(-wanted.log_prob)
    assert cli("generate", glm, TEXT, "--beam", "4", "--max-tokens", "20").stdout == wanted.text + "\n"
    greedy = js("generate", glm, TEXT, "--max-tokens", "20")  # nothing is drawn unless one asks for it
    assert greedy["text"] == lm.infill(TEXT, stop=Stop(20))[0].text
    drawn = [js("generate", glm, TEXT, "--seed", "3", "--max-tokens", "20")["text"] for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_fill_blanks_n_best_and_files(cli: Cli, js: Js, glm: Path, tmp_path: Path) -> None:
    best = js("generate", glm, TEXT, "--beam", "4", "--n-best", "3", "--max-tokens", "12")["best"]
    assert len(best) == 3
    assert [row["score"] for row in best] == sorted((row["score"] for row in best), reverse=True)
    message = cli("generate", glm, TEXT, "--beam", "4", "--n-best", "3", "--max-tokens", "12").stdout
    assert [line.split("  ")[0] for line in message.splitlines()] == ["1", "2", "3"]
    lines = tmp_path / "lines.txt"
    lines.write_text(f"{TEXT}\nthe people [gMASK]\n")
    many = js("generate", glm, "--file", lines, "--beam", "2", "--max-tokens", "12")
    assert [row["prompt"] for row in many] == lines.read_text().splitlines()
    assert many[0]["text"] == js("generate", glm, TEXT, "--beam", "2", "--max-tokens", "12")["text"]
    assert cli("generate", glm, "--file", lines, "--beam", "2", "--max-tokens", "12").stdout.count("\n") == 2


def test_generate_without_a_blank_continues_the_text(js: Js, glm: Path) -> None:
    answer = js("generate", glm, "The king", "--temperature", "0", "--max-tokens", "6")
    assert answer["reason"] in ("length", "end")
    assert "blanks" not in answer


def test_next_guesses_pieces_and_notes_truncated_text(cli: Cli, js: Js, glm: Path) -> None:
    answer = js("next", glm, TEXT, "-k", "3")
    assert [len(guesses) for guesses in answer["blanks"]] == [3, 3]
    note = cli("next", glm, "the king " * 60 + "___" + " of a land" * 60).stderr
    assert "48" in note


def test_evaluate_blank_infilling_run_gives_exact_likelihood(js: Js, glm: Path, text: Path) -> None:
    result = js("evaluate", glm, "--data", text)
    assert result["kind"] == "exact"


def test_generate_truncates_long_text_around_a_blank_with_a_note(cli: Cli, glm: Path) -> None:
    """As in `next`, unread text stays in the output; `--overflow error` fails instead."""
    long = "the king " * 60 + "___" + " of a land" * 60
    answer = cli("generate", glm, long, "--max-tokens", "4")
    assert "48" in answer.stderr
    assert answer.stdout.startswith("the king the king")
    assert answer.stdout.endswith(" of a land\n")
    assert len(answer.stdout.split()) >= len(long.split())
    lm: Any = nextword.load(glm)
    near, far = ("x " * n + "the king ___ of a land" + " x" * n for n in (40, 80))
    assert lm.infill(near, stop=Stop(6))[0].blanks == lm.infill(far, stop=Stop(6))[0].blanks
    assert lm.num_unread(far) - lm.num_unread(near) > 0
    assert lm.num_unread("the ___") == 0
    assert "--overflow slide" in cli("generate", glm, long, "--overflow", "error", fails=True).stderr


def test_generate_from_file_with_a_line_without_blank_names_it(cli: Cli, glm: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text(f"{TEXT}\n\nno blank here\n")
    assert "lines.txt, line 3: 'no blank here'" in " ".join(
        cli("generate", glm, "--file", lines, fails=True).stderr.split()
    )


def test_train_with_rows_longer_than_the_window_fails_before_training(cli: Cli, text: Path, tmp_path: Path) -> None:
    more = ("--set", "phase.0.batches.length=99", "--set", "model.window=48")
    output = cli("train", "glm/tiny", "--data", text, "--out", tmp_path / "run", *more, fails=True).stderr
    assert "99" in output
    assert "48" in output
    assert "train:" not in output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["the ___", "--stop", "x"], "strings"),
        (["the ___ " * 70], "48"),
        (["the ___", "--contrastive", "0.5"], "ontrastive"),
        (["the ___", "--beam", "2", "--n-best", "5"], "1 to 2"),
    ],
)
def test_generate_blanks_with_a_wrong_option_names_it(cli: Cli, glm: Path, words: list[str], message: str) -> None:
    result = cli("generate", glm, *words, fails=True)
    assert message in " ".join(result.stderr.split())
