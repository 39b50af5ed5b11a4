"""Runs read in 16 bits: nearly the same numbers, and clear words where there is nothing to round."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

import nextword
from nextword.contract import NextwordError, Stop
from nextword.recipe import load_recipe

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "dog", "run", "by", "two", "old", "trees"]
TEXTS = ["the cat sat", "on the mat ."]
SMALL = ["phase.0.steps=20", "phase.0.validate=20"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("precision")
    draw = random.Random(0)
    lines = (" ".join(draw.choices(WORDS, k=8)) + " ." for _ in range(1500))
    (folder / "cats.txt").write_text("\n".join(lines))
    made = {}
    for slug in ("gpt2", "lstm", "awd-lstm", "bert", "nplm"):
        changes = [f"phase.0.data={folder / 'cats.txt'}", *SMALL]
        recipe = load_recipe(f"{slug}/tiny", changes)
        for _ in nextword.train(recipe, folder / slug, device="cpu"):
            pass
        made[slug] = folder / slug
    return made


@pytest.mark.parametrize("slug", ["gpt2", "lstm", "awd-lstm", "nplm"])
def test_scores_and_texts_in_16_bits(slug: str, runs: dict[str, Path]) -> None:
    exact, rounded = (nextword.load(runs[slug], "cpu", precision) for precision in ("fp32", "bf16"))
    assert {p.dtype for p in rounded.network.parameters()} == {torch.bfloat16}
    for text in TEXTS:
        assert rounded.score(text).nats == pytest.approx(exact.score(text).nats, rel=0.03)
    assert len(list(rounded.generate("the", stop=Stop(length=5)))) == 5
    assert rounded.embed(TEXTS).shape == exact.embed(TEXTS).shape


def test_vectors_in_16_bits(runs: dict[str, Path]) -> None:
    exact, rounded = (
        nextword.load(runs["bert"], "cpu", precision).embed(TEXTS).float() for precision in ("fp32", "bf16")
    )
    assert torch.nn.functional.cosine_similarity(exact, rounded).min() > 0.99


def test_what_has_no_weights_is_not_rounded(tmp_path: Path, runs: dict[str, Path]) -> None:
    with pytest.raises(NextwordError, match="expected fp32 or bf16"):
        nextword.load(runs["gpt2"], "cpu", "fp8")
