"""`nextword generate` with all its options, on a recurrent run and on one with a window."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, start

Js = Callable[..., Any]


@pytest.fixture(scope="module")
def windowed(cli: Cli, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a window of 16 bytes."""
    folder = tmp_path_factory.mktemp("windowed") / "gpt2"
    small = ('tokenizer={kind="bytes"}', "model.width=16", "model.layers=1", "model.heads=2", "model.window=16")
    more = ("phase.0.batches.length=16", "phase.0.steps=8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        cli("train", "gpt2/tiny", "--data", text, "--out", folder, *(w for row in small + more for w in ("--set", row)))
    return folder


def test_typical_sampling_with_same_seed_repeats(js: Js, trained: Path) -> None:
    def write(*more: str | float) -> Any:
        return js("generate", trained, "The", "--max-tokens", 20, "--seed", 1, "--temperature", 1, *more)

    assert write("--typical-p", 0.2) == write("--typical-p", 0.2)
    assert write("--typical-p", 0.2)["text"] != write()["text"]
    assert write("--typical-p", 1)["text"] == write()["text"]


def test_contrastive_search_with_no_penalty_is_greedy(js: Js, trained: Path, windowed: Path) -> None:
    for run in (trained, windowed):
        greedy = js("generate", run, "The", "--max-tokens", 12, "--temperature", 0)
        assert js("generate", run, "The", "--max-tokens", 12, "--contrastive", 0)["text"] == greedy["text"]
        assert (
            js("generate", run, "The", "--max-tokens", 12, "--contrastive", 0.6, "--top-k", 1)["text"] == greedy["text"]
        )
        other = js("generate", run, "The", "--max-tokens", 12, "--contrastive", 0.9, "--top-k", 8)
        assert other["text"] != greedy["text"]
        assert other["nats"] > greedy["nats"] > 0


def test_min_tokens_delays_the_end(js: Js, trained: Path) -> None:
    eager = ("generate", trained, "The", "--max-tokens", 30, "--seed", 1, "--bias", "<|endoftext|>=50")
    assert js(*eager)["tokens"] == 1
    late = js(*eager, "--min-tokens", 7)
    assert (late["tokens"], late["reason"]) == (8, "end")


def test_bias_raises_and_bans_tokens(js: Js, trained: Path) -> None:
    def write(*biases: str) -> str:
        words = [word for bias in biases for word in ("--bias", bias)]
        return str(js("generate", trained, "The", "--max-tokens", 20, "--temperature", 0, *words)["text"])

    assert write("z=60") == write("id:122=60") == "z" * 20
    assert write("==60") == "=" * 20
    assert write("\\n=60") == "\n" * 20
    free = write()
    assert free[0] not in write(f"{free[0]}=-inf")
    assert write("z=60", "y=61") == "y" * 20


def test_generate_from_file_equals_single_prompts(js: Js, cli: Cli, windowed: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    prompts = ["The king", "a", "Ångström", "The king", "b" * 12, "The king of a land went away"]
    file.write_text("\n".join(prompts) + "\n", encoding="utf-8")
    words = ("generate", windowed, "--max-tokens", 9, "--seed", 5, "--bias", "\\n=3")
    results = js(*words, "--file", file)
    for i, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
        alone = js("generate", windowed, prompt, "--max-tokens", 9, "--seed", 5 + i, "--bias", "\\n=3")
        assert {**alone, "nats": pytest.approx(alone["nats"], rel=1e-4)} == result
    assert results[0]["text"] != results[3]["text"]  # one prompt, two seeds
    assert any("\n" in result["text"] for result in results)
    lines = cli(*words, "--file", file).stdout.removesuffix("\n").split("\n")
    assert [line.replace("\\n", "\n") for line in lines] == [r["prompt"] + r["text"] for r in results]


def test_generate_file_in_batches_gives_the_same_texts(
    js: Js, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("The king\n" * 7)
    words = ("generate", trained, "--file", file, "--max-tokens", 9, "--seed", 5)
    whole = [result["text"] for result in js(*words)]
    monkeypatch.setattr(sys.modules["nextword.cli.generate"], "BATCH_SIZE", 3)
    assert [result["text"] for result in js(*words)] == whole
    assert len(set(whole)) > 1


def test_prompt_longer_than_the_window_is_noted_or_fails(cli: Cli, js: Js, windowed: Path, tmp_path: Path) -> None:
    words = ("generate", windowed, "a" * 40, "--max-tokens", 3, "--temperature", 0)
    result = cli(*words)
    assert result.stdout.startswith("a" * 40)
    assert "window of 16 tokens" in result.stderr
    assert "first 31 tokens" in result.stderr
    assert cli(*words, "--overflow", "slide").stdout == result.stdout
    assert "--overflow" not in cli("generate", windowed, "a" * 15, "--max-tokens", 3).stderr
    refused = cli(*words, "--overflow", "error", fails=True).stderr
    assert "40 tokens" in refused
    assert "overflow" in refused
    file = tmp_path / "prompts.txt"
    file.write_text("short\n" + "b" * 40 + "\n")
    assert "b" * 10 in cli("generate", windowed, "--file", file, "--max-tokens", 3).stderr
    assert "40 tokens" in cli("generate", windowed, "--file", file, "--overflow", "error", fails=True).stderr


def test_recurrent_model_accepts_long_prompts(cli: Cli, trained: Path) -> None:
    result = cli("generate", trained, "a" * 2000, "--max-tokens", 3, "--overflow", "error")
    assert "window" not in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bias", "e"], "TOKEN=VALUE"),
        (["--bias", "e=much"], "TOKEN=VALUE"),
        (["--bias", "=3"], "TOKEN=VALUE"),
        (["--bias", "id:x=3"], "TOKEN=VALUE"),
        (["--bias", "the=3"], "3 tokens"),
        (["--bias", "id:900=3"], "900"),
        (["--bias", "e=inf"], "-inf"),
        (["--bias", "e=1", "--bias", "e=2"], "twice"),
        (["--bias", "e=1", "--bias", "id:101=2"], "101"),
        (["--typical-p", "0"], "typical"),
        (["--typical-p", "0.5", "--beam", "3"], "--typical-p"),
        (["--typical-p", "0.5", "--temperature", "0"], "--typical-p"),
        (["--contrastive", "1.5"], "alpha"),
        (["--contrastive", "0.5", "--beam", "3"], "--contrastive"),
        (["--min-tokens", "50", "--max-tokens", "20"], "min_tokens"),
        (["--min-tokens", "-1"], "min_tokens"),
        (["--overflow", "cut"], "slide"),
    ],
)
def test_generate_with_a_wrong_option_names_it(cli: Cli, trained: Path, words: list[str], message: str) -> None:
    assert message in cli("generate", trained, "The", *words, fails=True).stderr


def test_generate_contrastive_needs_hidden_states(cli: Cli, text: Path, tmp_path: Path) -> None:
    cli("train", "ngram/tiny", "--data", text, "--out", tmp_path / "n")
    assert "Contrastive" in cli("generate", tmp_path / "n", "the", "--contrastive", "0.5", fails=True).stderr
    for more in (("--typical-p", "0.9"), ("--min-tokens", "5"), ("--file", text)):
        assert cli(
            "generate", tmp_path / "n", *(["the"] if "--file" not in more else []), *more, "--max-tokens", 6
        ).stdout


def test_stream_writes_complete_characters(js: Js, trained: Path) -> None:
    """With bytes as tokens and a real pipe, every write is valid UTF-8 by itself."""
    words = (
        "generate",
        trained,
        "ångström",
        "--max-tokens",
        "80",
        "--seed",
        "2",
        "--bias",
        "id:195=6",
        "--bias",
        "id:165=6",
    )
    text = js(*words)["text"]
    assert "å" in text  # bytes 195 and 165, which are two tokens
    shown = start(*words)
    assert shown.stdout is not None
    parts = []
    while part := os.read(shown.stdout.fileno(), 1 << 16):
        parts.append(part.decode("utf-8"))  # strictly
    assert shown.wait() == 0
    assert "".join(parts) == "ångström" + text + "\n"
