"""Runs loaded in bf16 or int8: close scores, and errors where a precision is unsupported."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

import nextword
from nextword.conversion import convert
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Stop
from nextword.recipe import load_recipe
from nextword.training.train import train_events

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "dog", "run", "by", "two", "old", "trees"]
TEXTS = ["the cat sat", "on the mat ."]
SMALL = ["phase.0.steps=20", "phase.0.validate_every=20"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("precision")
    draw = random.Random(0)
    lines = (" ".join(draw.choices(WORDS, k=8)) + " ." for _ in range(1500))
    (folder / "cats.txt").write_text("\n".join(lines))
    runs = {}
    for slug in ("gpt2", "lstm", "awd-lstm", "bert", "nplm"):
        changes = [f"phase.0.data={folder / 'cats.txt'}", *SMALL]
        recipe = load_recipe(f"{slug}/tiny", changes)
        for _ in train_events(recipe, folder / slug, device="cpu"):
            pass
        runs[slug] = folder / slug
    return runs


@pytest.mark.parametrize("slug", ["gpt2", "lstm", "awd-lstm", "nplm"])
def test_scores_and_texts_in_bf16_are_close_to_fp32(slug: str, runs: dict[str, Path]) -> None:
    exact, rounded = (nextword.load(runs[slug], "cpu", precision) for precision in ("fp32", "bf16"))
    assert {p.dtype for p in rounded.network.parameters()} == {torch.bfloat16}
    for text in TEXTS:
        assert rounded.score(text).nats == pytest.approx(exact.score(text).nats, rel=0.03)
    assert len(list(rounded.generate("the", stop=Stop(max_tokens=5)))) == 5
    assert rounded.embed(TEXTS).shape == exact.embed(TEXTS).shape


def test_embeddings_in_bf16_are_close_to_fp32(runs: dict[str, Path]) -> None:
    exact, rounded = (
        nextword.load(runs["bert"], "cpu", precision).embed(TEXTS).float() for precision in ("fp32", "bf16")
    )
    assert torch.nn.functional.cosine_similarity(exact, rounded).min() > 0.99


@pytest.mark.parametrize("slug", ["gpt2", "awd-lstm"])
def test_load_in_int8_equals_converted_run(slug: str, runs: dict[str, Path], tmp_path: Path) -> None:
    convert(runs[slug], tmp_path / "small", ["model.bits=8"])
    exact, converted = (nextword.load(run, "cpu") for run in (runs[slug], tmp_path / "small"))
    rounded = nextword.load(runs[slug], "cpu", "int8")
    assert rounded.network.config.bits == 8
    assert rounded.parameters == exact.parameters
    for text in TEXTS:
        assert rounded.score(text).nats == converted.score(text).nats != exact.score(text).nats
    with pytest.raises(Unsupported):
        nextword.load(tmp_path / "small", "cpu", "int8")


def test_load_of_unsupported_network_in_int8_raises(runs: dict[str, Path]) -> None:
    for slug in ("lstm", "bert", "nplm"):
        with pytest.raises(Unsupported):
            nextword.load(runs[slug], "cpu", "int8")


def test_load_of_model_without_weights_in_low_precision_raises(tmp_path: Path, runs: dict[str, Path]) -> None:
    recipe = load_recipe("ngram/tiny", [f"phase.0.data={runs['gpt2'].parent / 'cats.txt'}"])
    for _ in train_events(recipe, tmp_path / "ngram", device="cpu"):
        pass
    for precision in ("bf16", "int8"):
        with pytest.raises(Unsupported, match=precision):
            nextword.load(tmp_path / "ngram", "cpu", precision)


def test_load_with_unknown_precision_raises(runs: dict[str, Path]) -> None:
    with pytest.raises(InvalidSetting, match="fp32, bf16, int8"):
        nextword.load(runs["gpt2"], "cpu", "fp8")
