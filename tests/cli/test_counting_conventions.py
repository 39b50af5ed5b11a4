"""`nextword evaluate` with a closed vocabulary: all counting conventions, and impossible texts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nextword import recipe
from nextword.model_card import write_card
from nextword.models import MODELS
from nextword.run_folder import RunFolder

from .conftest import QUICK, Cli

Js = Callable[..., Any]

# a → b or <unk>, each line begins with a: so says this training text, with certainty where there is no choice
COUNTING = """
[paper]
slug = "toy"
[tokenizer]
kind = "words"
[model]
add = 0.0
[[phase]]
kind = "count"
data = {data}
"""
NAMES = [
    "with <eos>, with <unk>",
    "without <eos>, with <unk>",
    "with <eos>, without <unk>",
    "without <eos>, without <unk>",
]


@pytest.fixture
def counted(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(MODELS, "toy", "tests.support.toy_bigram:Bigram")
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "valid", "test"):
        (data / f"{split}.txt").write_text("a b\na <unk>\n")
    (tmp_path / "toy.toml").write_text(COUNTING.format(data=json.dumps(str(data))))
    cli("train", tmp_path / "toy.toml", "--out", tmp_path / "run")
    return tmp_path / "run"


def test_evaluate_lists_all_conventions(js: Js, cli: Cli, counted: Path) -> None:
    """Two of six tokens cost one bit (b and <unk>); the rest are certain."""
    result = js("evaluate", counted)
    assert [(row["name"], row["tokens"]) for row in result["conventions"]] == list(
        zip(NAMES, (6, 4, 5, 3), strict=True)
    )
    perplexities = [2 ** (2 / 6), 2 ** (2 / 4), 2 ** (1 / 5), 2 ** (1 / 3)]
    assert [row["perplexity"] for row in result["conventions"]] == pytest.approx(perplexities)
    assert result["impossible"] == 0
    logged = json.loads((counted / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert logged["conventions"] == result["conventions"]

    lines = [line.split() for line in cli("evaluate", counted).stdout.splitlines()]
    first, *others = (line for line in lines if line[:1] in (["with"], ["without"]))
    assert first == [*NAMES[0].split(), "(as", "above)", "6", "1.26"]
    numbers = (("4", "1.41"), ("5", "1.15"), ("3", "1.26"))
    assert others == [[*name.split(), *two] for name, two in zip(NAMES[1:], numbers, strict=True)]


def test_train_word_network_lists_all_conventions(js: Js, text: Path, tmp_path: Path) -> None:
    words = ("--set", 'tokenizer={kind="words", size=20}')
    result = js("train", "lstm/tiny", "--data", text, "--out", tmp_path / "run", *QUICK, *words)
    assert [row["name"] for row in result["conventions"]] == NAMES
    first, *others = result["conventions"]
    assert (first["tokens"], first["perplexity"]) == (result["tokens"], result["token_perplexity"])
    assert all(row["tokens"] < first["tokens"] for row in others)


def test_evaluate_of_bytes_has_no_conventions(js: Js, cli: Cli, run: Path) -> None:
    assert js("evaluate", run)["conventions"] == []
    assert "counted tokens" not in cli("evaluate", run).stdout


def test_evaluate_impossible_text_reports_infinity(js: Js, cli: Cli, counted: Path, tmp_path: Path) -> None:
    """No training line started with b: one of eight tokens is impossible, and two others cost one bit."""
    other = tmp_path / "other.txt"
    other.write_text("a b\na <unk>\nb\n")
    printed = cli("evaluate", counted, "--data", other, "--json").stdout
    result = json.loads(printed, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (result["impossible"], result["tokens"]) == (1, 8)
    assert result["nats"] is result["token_perplexity"] is None
    assert [(row["perplexity"], row["impossible"]) for row in result["conventions"]] == [(None, 1)] * 4
    lines = [line.split() for line in cli("evaluate", counted, "--data", other).stdout.splitlines()]
    assert [line[-1] for line in lines if line[:1] in (["with"], ["without"])] == ["∞"] * 4
    message = f"· 1 token has probability 0; without it, token perplexity is {2 ** (2 / 7):.2f}"
    assert message.split() in lines


def test_card_lists_the_conventions(counted: Path) -> None:
    card = (counted / "card.md").read_text(encoding="utf-8")
    assert (
        "| counted | tokens | token perplexity |\n| --- | ---: | ---: |\n| with <eos>, with <unk> | 6 | 1.26 |" in card
    )
    assert "| without <eos>, without <unk> | 3 | 1.26 |\n" in card


def test_card_without_conventions_has_no_table(run: Path) -> None:
    assert "| counted |" not in (run / "card.md").read_text(encoding="utf-8")


def test_infinity_is_null_in_json_and_a_sign_in_print(cli: Cli, js: Js, counted: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("a b\na <unk>\nb\n")
    cli("evaluate", counted, "--data", other)
    *_, line = (counted / "log.jsonl").read_text(encoding="utf-8").splitlines()
    logged = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (logged["nats"], logged["impossible"]) == (None, 1)
    write_card(RunFolder.open(counted))
    card = (counted / "card.md").read_text(encoding="utf-8")
    assert "| – | ∞ | ∞ |" in card  # words have no bits per byte, not even infinite ones
    assert "| with <eos>, with <unk> | 8 | ∞ |" in card
    assert "∞" in cli("runs", "--folder", tmp_path).stdout
    assert js("runs", counted)["word_perplexity"] is None


def test_impossible_lines_have_infinite_perplexity(cli: Cli, js: Js, counted: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a b\nb a\n")
    shown = cli("evaluate", counted, "--data", tmp_path / "lines.txt", "--lines").stdout.splitlines()[1:]
    assert [line.split() for line in shown] == [["0.69", "–", "1.41", "a", "b"], ["∞", "–", "∞", "b", "a"]]
    assert shown[0].index("a b") == shown[1].index("b a")
    assert js("evaluate", counted, "--data", tmp_path / "lines.txt", "--lines")[1]["nats"] is None


def test_record_infinite_result_as_infinity(
    cli: Cli, js: Js, counted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = tmp_path / "recipes"
    (recipes / "toy").mkdir(parents=True)
    paper = 'slug = "toy"\ntitle = "T"\nauthors = "A"\nyear = 1'
    text = (tmp_path / "toy.toml").read_text().replace('slug = "toy"', paper)
    (recipes / "toy" / "tiny.toml").write_text(text)
    monkeypatch.setattr(recipe, "RECIPES", recipes)
    monkeypatch.setattr("nextword.models.MODELS", {"toy": MODELS["toy"]})
    manifest = json.loads((counted / "manifest.json").read_text())
    (counted / "manifest.json").write_text(json.dumps({**manifest, "recipe": "toy/tiny"}))
    (tmp_path / "other.txt").write_text("a b\nb\n")
    cli("evaluate", counted, "--data", tmp_path / "other.txt")
    assert "test ppl ∞" in cli("papers", "--record", counted).stdout
    measured = recipe.load_recipe("toy/tiny").measured
    assert (measured["test_perplexity"], measured["impossible"]) == (math.inf, 1)
    log = (recipes / "toy" / "tiny.log.jsonl").read_text()
    assert "Infinity" not in log
    assert "test ppl ∞" in cli("papers").stdout
    assert "test_perplexity: ∞" in cli("papers", "toy").stdout
    assert js("papers", "toy")["recipes"][0]["measured"]["test_perplexity"] is None
