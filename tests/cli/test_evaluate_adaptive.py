"""`nextword evaluate --cache` and `--dynamic`: searched and reported settings, kept separate from the plain model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.model_card import write_card
from nextword.models import MODELS
from nextword.run_folder import RunFolder

from .conftest import Cli, contents, sentences, sets

Js = Callable[..., Any]

QUICKLY = ("--set", "dynamic.search=300", "--set", "dynamic.segments=10")
GIVEN = ("--set", "cache.lambda=0.1", "--set", "cache.theta=1", "--set", "cache.window=500")


def events(run: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_evaluate_with_cache_reports_settings_and_their_source(js: Js, cli: Cli, run: Path) -> None:
    result = js("evaluate", run, "--cache")
    assert result["method"] == "cache"
    assert result["settings"]["cache"].keys() == {"lambda", "theta", "window"}
    assert result["found"] == ["cache.lambda", "cache.theta", "cache.window"]
    assert result["found_on"].startswith("my.txt valid (")
    plain = js("evaluate", run)
    assert "method" not in plain
    assert result["without_cache"]["token_perplexity"] == pytest.approx(plain["token_perplexity"], rel=1e-5)
    assert result["tokens"] == plain["tokens"]
    assert result["kind"] == "exact"
    message = cli("evaluate", run, "--cache", *GIVEN).stdout
    assert "with cache" in message
    assert "lambda 0.1, theta 1, window 500" in message
    assert "without the cache, token perplexity is" in message


def test_evaluate_with_given_cache_settings_skips_the_search(js: Js, run: Path) -> None:
    result = js("evaluate", run, "--cache", *GIVEN)
    assert result["settings"] == {"cache": {"lambda": 0.1, "theta": 1.0, "window": 500}}
    assert (result["found"], result["found_on"]) == ([], None)


def test_dynamic_evaluation_leaves_the_run_unchanged(js: Js, run: Path) -> None:
    before = contents(run)
    result = js("evaluate", run, "--dynamic", *QUICKLY)
    assert result["method"] == "dynamic"
    table = result["settings"]["dynamic"]
    assert table.keys() == {"rate", "lambda", "epsilon", "length", "kind"}
    assert result["found"] == ["dynamic.rate", "dynamic.lambda"]
    assert result["found_on"] == "my.txt valid (300 tokens)"
    after = contents(run)
    assert after.pop("gradients.safetensors")
    assert {name for name in before if after[name] != before[name]} == {"log.jsonl"}
    given = [f"dynamic.{key}={table[key]}" for key in ("rate", "lambda", "epsilon")]
    again = js("evaluate", run, "--dynamic", *QUICKLY, *sets(*given))
    assert again["nats"] == pytest.approx(result["nats"], rel=1e-6)
    assert again["found"] == []


def test_cache_combines_with_dynamic_sgd(js: Js, run: Path) -> None:
    sgd = ("--set", "dynamic.kind=sgd", "--set", "dynamic.rate=0.1", "--set", "dynamic.lambda=0.001")
    alone = js("evaluate", run, "--dynamic", *sgd)
    assert not (run / "gradients.safetensors").exists()
    both = js("evaluate", run, "--cache", "--dynamic", *GIVEN, *sgd)
    assert both["method"] == "cache + dynamic"
    assert both["settings"].keys() == {"cache", "dynamic"}
    assert both["without_cache"]["nats"] == pytest.approx(alone["nats"], rel=1e-6)


def test_adapted_result_does_not_replace_the_plain_result(js: Js, cli: Cli, run: Path) -> None:
    """The card, the list of runs, and the log of evaluations still show the plain model."""
    folder = RunFolder.open(run)
    plain = js("runs", run)
    write_card(folder)
    card = (run / "card.md").read_text()
    evaluations = events(run).count("evaluation")
    js("evaluate", run, "--cache", *GIVEN)
    js("evaluate", run, "--dynamic", *QUICKLY)
    assert events(run).count("evaluation") == evaluations
    assert events(run)[-2:] == ["adapted", "adapted"]
    assert js("runs", run) == plain
    write_card(folder)
    assert (run / "card.md").read_text() == card


def test_evaluate_with_cache_window_longer_than_text_notes_it(cli: Cli, run: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("the king of a land\n", encoding="utf-8")
    message = cli("evaluate", run, "--data", tmp_path / "short.txt", "--cache", *GIVEN).stdout
    assert "window of 500" in message


def test_evaluate_other_text_searches_settings_on_validation_text_of_the_run(js: Js, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("\n".join(sentences(50, seed=9)), encoding="utf-8")
    result = js("evaluate", run, "--data", other, "--cache")
    assert result["bytes"] == len(other.read_bytes())
    assert result["found_on"].startswith("my.txt valid")


def test_evaluate_with_unknown_words_notes_them(js: Js, text: Path, tmp_path: Path) -> None:
    small = ("--set", 'tokenizer={kind="words", size=20}', "--set", "model.width=16", "--set", "phase.0.steps=5")
    js("train", "lstm/tiny", "--data", text, "--out", tmp_path / "run", *small)
    result = js("evaluate", tmp_path / "run", "--cache", *GIVEN)
    assert any("scored as <unk>" in note for note in result["notes"])
    assert np.isfinite(result["nats"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--cache", "--set", "cache.lambda=1"], "below 1"),
        (["--cache", "--set", "cache.theta=-0.5"], "0 or more"),
        (["--cache", "--set", "cache.window=0"], "cache.window"),
        (["--cache", "--set", "cache.window=2.5"], "a whole number"),
        (["--cache", "--set", "cache.thta=1"], "Did you mean 'theta'"),
        (["--cache", "--set", "theta=1"], "cache.KEY=VALUE"),
        (["--cache", "--set", "dynamic.rate=1"], "--dynamic"),
        (["--dynamic", "--set", "dynamic.rate=fast"], "a number"),
        (["--dynamic", "--set", "dynamic.rate=-1"], "0 or more"),
        (["--dynamic", "--set", "dynamic.kind=adam"], "rms or sgd"),
        (["--dynamic", "--set", "dynamic.legacy_units=1"], "true or false"),
        (["--set", "cache.window=5"], "--cache"),
        (["--cache", "--context", "5"], "--context"),
        (["--dynamic", "--lines", "--data", "-"], "--lines"),
    ],
)
def test_evaluate_adaptively_with_wrong_settings_names_them(
    cli: Cli, trained: Path, words: list[str], says: str
) -> None:
    before = contents(trained)
    assert says in cli("evaluate", trained, *words, fails=True).stderr
    assert contents(trained) == before


COUNTING = """
[paper]
slug = "toy"
[tokenizer]
kind = "words"
[model]
[[phase]]
kind = "count"
data = {data}
"""


def test_evaluate_count_model_with_cache_or_dynamic_fails(
    cli: Cli, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, "toy", "tests.support.toy_bigram:Bigram")
    (tmp_path / "toy.toml").write_text(COUNTING.format(data=json.dumps(str(text))))
    cli("train", tmp_path / "toy.toml", "--out", tmp_path / "run")
    for flag in ("--cache", "--dynamic"):
        message = cli("evaluate", tmp_path / "run", flag, fails=True).stderr
        assert "no hidden states" in message
        assert "recurrent" in message
