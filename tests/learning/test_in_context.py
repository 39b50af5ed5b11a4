"""Brown et al. 2020: a language model learns a task from the examples in its prompt.

Four tables map each key to a letter, each table with its own letters. A text follows one of them, but four pairs in
ten come from another table, so that one example is a weak hint and sixteen are nearly certain:

    dK aA hJ bM lI kL …        mostly the third table: J, I and L are its letters; A and M are noise

The query is a key that is not among the examples, with the four letters that it may have. Nothing can be copied: the
examples show the table, and its letter for the key is known from training.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.evaluation.few_shot import evaluate_task
from nextword.evaluation.prompt_tasks import PromptTask
from nextword.lm import loading
from nextword.recipe import parse_recipe
from nextword.training.train import train_events
from nextword.training.trainer import run_gradient_phase
from tests.support.small_job import BYTES, make_small_job

SHOWN, ASKED = "ghijkl", "abcdef"
LETTERS = ("ABCD", "EFGH", "IJKL", "MNOP")
PAIRS, SLIPS = 17, 0.4
ROWS, STEPS = 32, 300
SHOTS = (0, 1, 4, 16)

Tables = list[dict[str, str]]


def tables(seed: int) -> Tables:
    draw = random.Random(f"tables {seed}")
    return [{key: draw.choice(letters) for key in SHOWN + ASKED} for letters in LETTERS]


def pair(draw: random.Random, own: int, keys: str) -> tuple[str, int]:
    """A key, and the table that it follows here."""
    slips = draw.random() < SLIPS
    return draw.choice(keys), draw.choice([t for t in range(4) if t != own]) if slips else own


def texts(count: int, seed: int) -> list[str]:
    draw, given = random.Random(seed), tables(seed)
    made = []
    for _ in range(count):
        own = draw.randrange(4)
        pairs = [pair(draw, own, SHOWN + ASKED) for _ in range(PAIRS)]
        made.append(" ".join(key + given[table][key] for key, table in pairs))
    return made


def network(folder: Path, seed: int) -> Any:
    """A GPT-2 of two blocks; each text is one block, so that each begins as a prompt does."""
    ids = [id for text in texts(ROWS * STEPS + 1, seed) for id in (BYTES.begin, *text.encode())]
    model = {"width": 32, "layers": 2, "heads": 2, "window": 64, "dropout": 0.0}
    job = make_small_job(
        folder, "gpt2", model, len(BYTES), np.array(ids, np.uint16),
        batches={"kind": "blocks", "rows": ROWS, "length": 3 * PAIRS, "order": "sequential"},
        optimizer={"kind": "adamw", "rate": 0.005, "weight_decay": 0.0, "betas": [0.9, 0.98]},
        schedule={"kind": "cosine", "warmup": 0.05}, clip=1.0, steps=STEPS, seed=seed, log_every=100, save_every=1e9,
    )  # fmt: skip
    with torch.no_grad():
        for weight in job.network.parameters():
            if weight.dim() == 2:
                weight.mul_(3)  # so narrow a net would begin too near to zero
    list(run_gradient_phase(job))
    return loading.wrap_network(job.network.eval(), BYTES)


def trigram(folder: Path, seed: int) -> Any:
    folder.mkdir()
    for split, first in (("train", 0), ("valid", 1), ("test", 2)):
        (folder / f"{split}.txt").write_text("\n".join(texts(ROWS * STEPS, seed)[first::3]) + "\n")
    phase = {"kind": "count", "data": str(folder)}
    recipe = {"paper": {"slug": "ngram"}, "tokenizer": {"kind": "bytes"}, "model": {"order": 3}, "phase": [phase]}
    list(train_events(parse_recipe(recipe, "trigram"), folder / "run"))
    return loading.load(folder / "run", "cpu")


def example(given: Tables, key: str, table: int) -> dict[str, str]:
    return {"key": key, "table": str(table)} | {f"letter{t}": given[t][key] for t in range(4)}


def curve(lm: Any, seed: int) -> dict[int, float]:
    """Accuracy by the number of shots, over the four tables; chance is 0.25."""
    given = tables(seed)
    choices = tuple(f"{{letter{t}}}" for t in range(4))
    labels = {str(t): t for t in range(4)}
    task = PromptTask(
        "tables", "which letter?", "", "{key}", "test", choices=choices, gold="table", labels=labels, separator=" "
    )
    found = dict.fromkeys(SHOTS, 0.0)
    for own in range(4):
        draw = random.Random(f"shots {seed} {own}")
        pool = [example(given, *pair(draw, own, SHOWN)) for _ in range(200)]
        asked = [example(given, key, own) for key in ASKED * 15]
        for shots in SHOTS:
            found[shots] += evaluate_task(lm, task, shots, seed=seed, given=(pool, asked)).value / 4
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_gpt_learns_in_context_and_ngram_does_not(tmp_path: Path, seed: int) -> None:
    gpt = curve(network(tmp_path / "gpt2", seed), seed)
    assert gpt[0] == pytest.approx(0.25)  # without shots every table gives the same answer
    assert 0.4 < gpt[1] < 0.75, gpt  # one shot is right six times in ten
    assert gpt[1] + 0.03 < gpt[4] < gpt[16] - 0.03, gpt
    assert gpt[16] > 0.85, gpt
    counted = curve(trigram(tmp_path / "ngram", seed), seed)
    assert max(counted.values()) < 0.35, counted
