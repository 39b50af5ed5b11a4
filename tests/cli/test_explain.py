"""`nextword next --explain` and `nextword evaluate --explain` print what the lens returns, as text, JSON and a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nextword
from nextword import lens
from nextword.cli.views import NEXT_VIEWS
from nextword.core.types import Beam, Stop
from tests.cli.conftest import Cli

TEXT = "the king went to"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, text: Path, cli: Cli) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    for recipe in ("gpt2", "lstm", "ngram", "bert"):
        steps = () if recipe == "ngram" else ("--set", "phase.0.steps=4")
        cli("train", f"{recipe}/tiny", "--data", text, "--out", folder / recipe, "--quiet", *steps)
    return folder


@pytest.mark.parametrize(
    ("run", "view"),
    [("lstm", view) for view in ("saliency", "gates", "gradient", "beam")]
    + [("gpt2", view) for view in ("saliency", "attention", "layers", "beam")],
)
def test_view_is_printed_as_text_json_and_page(run: str, view: str, runs: Path, cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    printed = cli("next", runs / run, TEXT, "--explain", view, "-k", "3", "--html", page)
    assert ("embedding" if view == "layers" else "king") in printed.stdout
    assert str(page) in printed.stdout.replace("\n", "")
    lm = nextword.load(runs / run, device="cpu")
    expected = {
        "saliency": lambda: lens.attribute_word(lm, TEXT),
        "gates": lambda: lens.trace_gates(lm, TEXT),
        "gradient": lambda: lens.trace_gradient(lm, TEXT),
        "attention": lambda: lens.read_attention(lm, TEXT),
        "layers": lambda: lens.predict_by_layer(lm, TEXT, k=3),
        "beam": lambda: lens.trace_beam(lm, TEXT, Beam(3), Stop(max_tokens=5)),
    }[view]()
    assert page.read_text() == expected.page()
    as_json = cli("next", runs / run, TEXT, "--explain", view, "-k", "3", "--json", "--device", "cpu")
    assert json.loads(as_json.stdout) == json.loads(expected.to_json())


@pytest.mark.parametrize("view", ["attention", "layers", "saliency"])
def test_blank_of_masked_model_is_explained(view: str, runs: Path, cli: Cli) -> None:
    printed = cli("next", runs / "bert", "the ___ went to", "--explain", view).stdout
    assert ("[MASK] attends to" in printed) == (view == "attention")


def test_surprisal_of_a_file(runs: Path, cli: Cli, tmp_path: Path) -> None:
    text = "the king went\nto see his house"
    (tmp_path / "short.txt").write_text(text + "\n")
    arguments = ("evaluate", runs / "lstm", "--data", tmp_path / "short.txt", "--explain")
    values = json.loads(cli(*arguments, "--json").stdout)
    assert values["text"] == text
    lm = nextword.load(runs / "lstm", device="cpu")
    assert values["nats"] == pytest.approx(lm.score(text).nats, rel=1e-5)
    assert "likeliest" in cli(*arguments).stdout
    assert "king" in cli("evaluate", runs / "ngram", "--data", "-", "--explain", stdin=text).stdout
    page = tmp_path / "page.html"
    cli(*arguments, "--html", page, "--quiet")
    assert page.read_text().startswith("<!doctype html>")


def test_impossible_requests_are_errors(runs: Path, cli: Cli, tmp_path: Path) -> None:
    cli("next", runs / "lstm", TEXT, "--explain", "magic", fails=True)
    cli("next", runs / "lstm", TEXT, "--explain", "attention", fails=True)
    cli("next", runs / "ngram", TEXT, "--explain", "saliency", fails=True)
    cli("next", runs / "bert", TEXT, "--explain", "saliency", fails=True)  # no blank
    cli("next", runs / "lstm", TEXT, "--html", tmp_path / "page.html", fails=True)
    cli("next", runs / "lstm", TEXT, "--explain", "gates", "--html", tmp_path, fails=True)  # a folder
    cli("evaluate", runs / "lstm", "--explain", fails=True)
    cli("evaluate", runs / "lstm", "--html", tmp_path / "page.html", fails=True)
    cli("evaluate", runs / "lstm", "--explain", "--data", tmp_path / "absent.txt", fails=True)
    cli("evaluate", runs / "lstm", "--explain", "--data", "-", "--lines", fails=True)
    (tmp_path / "long.txt").write_text("word " * 5000)
    cli("evaluate", runs / "lstm", "--explain", "--data", tmp_path / "long.txt", fails=True)


def test_every_view_of_the_option_is_one_of_the_lens() -> None:
    assert set(NEXT_VIEWS) < set(lens.VIEWS)
