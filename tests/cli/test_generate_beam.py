"""`nextword generate --beam`: the n best with their scores, and options of the beam."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli

Js = Callable[..., Any]


def test_n_best_are_sorted_by_score(cli: Cli, js: Js, trained: Path) -> None:
    words = ("generate", trained, "The", "--max-tokens", 12, "--beam", 5, "--n-best", 3)
    result = js(*words)
    assert result["prompt"] == "The"
    assert [row["rank"] for row in result["best"]] == [1, 2, 3]
    scores = [row["score"] for row in result["best"]]
    assert scores == sorted(scores, reverse=True)
    assert [-row["nats"] for row in result["best"]] == pytest.approx(scores)  # without a penalty they are the same
    assert result["best"][0]["text"] == js(*words[:-2])["text"]
    shown = cli(*words).stdout.splitlines()
    for line, row in zip(shown, result["best"], strict=True):
        rank, score, rest = line.split("  ", 2)
        assert (int(rank), float(score)) == (row["rank"], pytest.approx(row["score"], abs=1e-4))
        text = rest.removesuffix(" …") if not row["complete"] else rest
        assert text == "The" + row["text"].replace("\n", "\\n")


def test_beam_penalties_groups_and_lengths_change_the_result(js: Js, trained: Path) -> None:
    def write(*more: Any) -> Any:
        return js("generate", trained, "The", "--max-tokens", 12, "--beam", 4, "--n-best", 4, *more)["best"]

    for row in write("--set", "beam.length_penalty=1"):
        assert row["score"] == pytest.approx(-row["nats"] / row["tokens"])
    for row in write("--set", "beam.length_penalty=0.6", "--set", "beam.normalization=gnmt"):
        assert row["score"] == pytest.approx(-row["nats"] / ((5 + row["tokens"]) / 6) ** 0.6)
    alike, apart = write(), write("--set", "beam.groups=4", "--set", "beam.diversity=9")
    assert len({row["text"][0] for row in apart}) == 4  # four groups of one: not two begin alike
    assert sum(row["nats"] for row in apart) > sum(row["nats"] for row in alike)


def test_n_best_of_a_file_equals_single_prompts(cli: Cli, js: Js, trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("The king\na\n")
    words = ("generate", trained, "--file", file, "--max-tokens", 6, "--beam", 3, "--n-best", 2)
    result = js(*words)
    assert [row["prompt"] for row in result] == ["The king", "a"]
    for row in result:
        alone = js("generate", trained, row["prompt"], "--max-tokens", 6, "--beam", 3, "--n-best", 2)
        assert [x["text"] for x in alone["best"]] == [x["text"] for x in row["best"]]
    lines = cli(*words).stdout.splitlines()
    assert [lines[0], lines[3]] == ["The king", "a"]
    assert [line[0] for line in lines if line not in ("The king", "a")] == ["1", "2", "1", "2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--beam", "0"], "--beam"),
        (["--n-best", "3"], "--beam WIDTH"),
        (["--set", "beam.groups=2"], "--beam WIDTH"),
        (["--set", "beam.coverage=0.2", "--temperature", "0"], "--beam WIDTH"),
        (["--beam", "4", "--set", "beam.normalization=gnmt"], "beam.length_penalty"),
        (["--beam", "4", "--set", "beam.diversity=1"], "beam.groups"),
        (["--beam", "4", "--set", "beam.width=9"], "'beam.width'"),
        (["--beam", "4", "--set", "beam.group=2"], "'beam.groups'"),
        (["--beam", "4", "--set", "beam.coverage=much"], "expected a number"),
        (["--beam", "4", "--n-best", "5"], "5"),
        (["--beam", "4", "--n-best", "0"], "0"),
        (["--beam", "4", "--set", "beam.groups=3"], "groups"),
        (["--beam", "4", "--set", "beam.coverage=-1"], "coverage"),
        (["--beam", "4", "--set", "beam.coverage=0.2"], "coverage"),
        (["--beam", "0", "--contrastive", "0.5"], "--beam"),
    ],
)
def test_generate_beam_with_a_wrong_option_names_it(cli: Cli, trained: Path, words: list[str], message: str) -> None:
    assert message in " ".join(cli("generate", trained, "The", *words, fails=True).stderr.split())
