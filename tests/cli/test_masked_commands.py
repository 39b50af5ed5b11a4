"""Commands on a masked language model: labeled results, and errors that suggest another command."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nextword
from nextword.run_folder import RunFolder
from tests.cli.conftest import Cli, sets

Js = Callable[..., Any]


@pytest.fixture(scope="module")
def bert(cli: Cli, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filling") / "bert"
    small = ("tokenizer.size=150", "model.width=16", "model.layers=1", "model.heads=2", "phase.0.batches.length=24")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        options = sets(*small, "phase.0.steps=8")
        message = cli("train", "bert/tiny", "--data", text, "--out", folder, *options).stdout
    assert "pseudo token ppl" in message
    assert "pseudo-likelihood" in message
    assert f'nextword next {folder} "The ___ is"' in message
    assert "nextword generate" not in message
    return folder


def test_next_guesses_words_for_every_blank(cli: Cli, js: Js, bert: Path) -> None:
    answer = js("next", bert, "The king of the ___ went to see his ___.", "-k", "3")
    lm = nextword.load(bert)
    wanted = lm.fill("The king of the ___ went to see his ___.", k=3)  # type: ignore[union-attr]
    assert [[g["text"] for g in blank] for blank in answer["blanks"]] == [[g.text for g in item] for item in wanted]
    assert answer["guesses"] == answer["blanks"][0]
    message = cli("next", bert, "The king of the ___ went to see his ___.", "-k", "3").stdout
    assert message.count("%") == 6
    assert "blank 2" in message
    assert cli("next", bert, "The ___ went", "-k", "2", "--tokens").stdout.count("%") == 2
    assert len(js("next", bert, "___", "-k", "100000", "--tokens")["guesses"]) == len(lm.tokenizer)


def test_next_truncates_long_text_around_a_blank_with_a_note(cli: Cli, bert: Path) -> None:
    note = cli("next", bert, "the king " * 40 + "___" + " of a land" * 40).stderr
    assert "the window 22" in note
    assert cli("next", bert, "the ___ of a land").stderr == ""


def test_masked_model_with_unsupported_command_suggests_another(cli: Cli, bert: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the king\n")
    for words, message in (
        (["next", bert, "the king of"], '"the king of ___"'),
        (["next", bert, ""], '"___"'),
        (["next", bert, "the [MASK] of"], "___"),
        (["next", bert, "the [MASK] of ___"], "Write ___"),
        (["next", bert, "the ___", "-k", "0"], "--top"),
        (["generate", bert, "the king"], "can generate"),
        (["generate", bert, "--file", lines], "can generate"),
        (["evaluate", bert, "--cache"], "--cache"),
        (["evaluate", bert, "--overlap-with", lines], "--overlap-with"),
        (["evaluate", bert, "--lines", "--data", lines, "--limit", "3"], "--limit"),
        (["evaluate", bert, "--context", "1000"], "22 tokens"),
        (["embed", bert, lines, "--layer", "last"], "-4:"),
        (["embed", bert, lines, "--layer", "7"], "7"),
        (["embed", bert, lines, "--pool", "median"], "mean, text, first"),
    ):
        assert message in cli(*words, fails=True).stderr, words


def test_evaluate_masked_model_labels_pseudo_likelihood(cli: Cli, js: Js, bert: Path, tmp_path: Path) -> None:
    result = js("evaluate", bert, "--limit", "50")
    assert (result["kind"], result["tokens"], result["stride"]) == ("pseudo", 50, 1)
    assert result["bits_per_byte"] is None
    assert any("sample of 50 of" in note for note in result["notes"])
    message = cli("evaluate", bert, "--limit", "50").stdout
    assert "pseudo word ppl" in message
    lines = tmp_path / "lines.txt"
    lines.write_text("the king of a land\nland a of king the\n")
    assert [row["kind"] for row in js("evaluate", bert, "--data", lines, "--lines")] == ["pseudo"] * 2
    assert "pseudo" in cli("evaluate", bert, "--data", lines, "--lines").stdout
    card = (bert / "card.md").read_text()
    assert "pseudo token perplexity" in card
    assert "nextword generate" not in card


def test_evaluate_causal_model_with_limit_fails(cli: Cli, trained: Path) -> None:
    assert "--task" in cli("evaluate", trained, "--limit", "5", fails=True).stderr


def test_compare_does_not_rank_pseudo_likelihoods(
    js: Js, bert: Path, trained: Path, text: Path, tmp_path: Path
) -> None:
    for name, run in (("a", bert), ("b", trained)):
        shutil.copytree(run, tmp_path / name)
    answer = js("compare", tmp_path / "a", tmp_path / "b", "--data", text, "--out", tmp_path / "out")
    assert [(m["name"], m["kind"], m["status"]) for m in answer["models"]] == [
        ("b", "exact", "done"),
        ("a", "pseudo", "done"),
    ]
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Not ranked: pseudo-likelihoods" in report
    assert RunFolder.open(tmp_path / "a").read_log()[-1]["kind"] == "pseudo"


@pytest.mark.parametrize("pool", ["mean", "text", "first", "last", "max"])
def test_embed_masked_model_with_every_pooling(cli: Cli, bert: Path, tmp_path: Path, pool: str) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the king of a land\nwater is far\n" + "the people of the land " * 20 + "\n")
    message = cli("embed", bert, lines, "--layer", "0,-1", "--pool", pool, "--out", tmp_path / "v.npy").stderr
    assert "1 of 3 lines are longer than the window of 22 tokens" in message
    wanted = nextword.load(bert).embed(lines.read_text().splitlines(), "mean", pool)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_embed_query_lists_the_nearest_lines(js: Js, bert: Path, trained: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("water is far\nthe king of a land\n\nwe have no bread\n")
    for run, more in ((bert, ("--pool", "first")), (bert, ("--layer", "-2:")), (trained, ("--pool", "last"))):
        answer = js("embed", run, lines, "--query", "the king of a land", "-k", "2", *more)
        assert len(answer["lines"]) == 2
        assert answer["lines"][0]["text"] == "the king of a land"
        assert answer["lines"][0]["similarity"] == pytest.approx(1, abs=1e-4)
        assert -1 <= answer["lines"][1]["similarity"] <= answer["lines"][0]["similarity"]
