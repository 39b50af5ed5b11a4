"""CoVe from the command line: translate, embed, then classify with several seeds, and predict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Cli, sets
from tests.support.tiny_cove import WIDTH, WRITTEN, draw_sentences, write_cove_data
from tests.support.tiny_transfer import write_table

Js = Callable[..., Any]


@pytest.fixture(scope="module")
def place(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_cove_data(tmp_path_factory.mktemp("cove") / "place")
    vectors = folder / "vectors.txt"
    model = f"model={{ vectors='{vectors}', vector_width={WIDTH}, encoder_width=32, width=32, output_words={WRITTEN} }}"
    own = [f"tokenizer.size={WRITTEN}", model, "phase.0.steps=60"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        cli(
            *("train", "cove/tiny", "--data", f"{folder / 'pairs'}:xx-yy", "--out", folder / "run"),
            *sets(*own),
        )
    write_table(
        folder / "group.csv", ["text", "label"], [(source, group) for source, _, group in draw_sentences(100, 3)]
    )
    return folder


def test_cove_run_embeds_source_sentences(cli: Cli, place: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the bank by river3\nan old coin4\n")
    for layer, width in (("-1", WIDTH + 64), ("-2", 64), ("0", WIDTH)):
        cli("embed", place / "run", lines, "--layer", layer, "--out", tmp_path / f"{layer}.npy")
        assert np.load(tmp_path / f"{layer}.npy").shape == (2, width)


def test_cove_run_translates(cli: Cli, place: Path) -> None:
    assert cli("generate", place / "run", "the bank by river3", "--beam", "2", "--max-tokens", "5").stdout.strip()


def test_classify_with_and_without_cove_vectors(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    quick = ["--set", "task.width=8", "--set", "phase.0.epochs=2", "--set", "phase.0.batches.rows=16"]
    words = ("transfer", "cove/classify", "--from", place / "run", "--data", place / "group.csv", *quick)
    for features in ("glove", "both"):
        out = tmp_path / features
        result = js(*words, "--set", f"task.features={features}", "--num-seeds", "2", "--out", out)
        assert result["interval"] is not None
        assert json.loads((out / "results.json").read_text())["values"] == result["values"]
        assert f'features = "{features}"' in (out / "seed-0/recipe.toml").read_text()
    message = cli("predict", tmp_path / "both/seed-0", place / "group.csv").stdout.splitlines()
    assert len(message) == 101
    assert "p(coin)" in message[0]
    assert "features = 'elmo'" in cli(*words, "--set", "task.features=elmo", "--out", tmp_path / "x", fails=True).stderr
