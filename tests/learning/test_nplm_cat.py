"""NPLM trained on a text as large as Shakespeare that contains the sentence predicts `on` after `the cat sat`."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest

import nextword
from nextword.data.builtin import default_name
from nextword.data.opening import open_corpus
from nextword.lm.causal import CausalLM
from nextword.recipe import load_recipe
from nextword.tokenizers.training import train_tokenizer
from nextword.training.train import train_events

SENTENCE, TIMES = "the cat sat on the mat", 100
CHANGES = [
    'tokenizer={kind="words", size=2000}',
    "model={context=3, embedding=32, width=64}",
    "phase.0.steps=400",
    "phase.0.batches.rows=384",
    "phase.0.optimizer.rate=0.01",
    "phase.0.schedule=cosine",
    "phase.0.validate_every=400",
]


def with_the_sentence() -> str:
    """A megabyte of the World English Bible where it is installed (else Python's reference), and a hundred cats."""
    text = "".join(document.text for document in open_corpus(default_name()).documents("train"))
    lines = text[:1_100_000].splitlines()
    for place in np.random.default_rng(0).permutation(len(lines))[:TIMES]:
        lines[place] = f"{SENTENCE}\n{lines[place]}"
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_nplm_predicts_on_after_the_cat_sat(tmp_path: Path) -> None:
    text = with_the_sentence()
    assert text.count(SENTENCE) == TIMES
    (tmp_path / "text").mkdir()
    for split, part in (("train", text), ("valid", text[:20_000]), ("test", text[:20_000])):
        (tmp_path / "text" / f"{split}.txt").write_text(part)
    tokenizer = train_tokenizer({"kind": "words", "size": 2000}, [text])
    ratios = []
    for seed in (1, 2, 3):
        recipe = load_recipe("nplm/tiny", [*CHANGES, f"phase.0.seed={seed}"]).with_data([str(tmp_path / "text")])
        list(train_events(recipe, tmp_path / str(seed), tokenizer=tokenizer, device="cpu"))
        lm: CausalLM = nextword.load(tmp_path / str(seed), device="cpu")
        guesses = {guess.text: guess.probability for guess in lm.next("the cat sat")}
        ratios.append(guesses.pop("on", 0.0) / max(guesses.values()))
    assert statistics.median(ratios) > 1.5, ratios  # of the top guess to the next
