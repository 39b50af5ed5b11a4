"""The ladder: every model has a recipe of a few minutes on two CPU cores, which fits together."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from nextword.models import MODELS
from nextword.objectives import trains_on_pairs
from nextword.recipe import Recipe, load_recipe, network_config
from nextword.tasks import parse_task
from nextword.training.train import train_events

MAX_MINUTES = 10
WORDS = [a + b for a in ("ba", "ko", "mi", "tu", "re") for b in ("n", "lo", "ri", "sa", "da", "ke")]


def small(slug: str, *changes: str) -> Recipe:
    return load_recipe(f"{slug}/small", changes)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Sentences as a text, and as pairs of equal sides."""
    folder, draw = tmp_path_factory.mktemp("texts"), random.Random(0)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(4, 9))).capitalize() + "." for _ in range(1500)]
    (folder / "text.txt").write_text("\n\n".join(" ".join(lines[i : i + 6]) for i in range(0, len(lines), 6)))
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines[:300]))
    return {"text": folder / "text.txt", "pairs": folder / "pairs.tsv"}


@pytest.mark.parametrize("slug", MODELS)
def test_small_recipe_has_a_budget_of_minutes(slug: str) -> None:
    for phase in small(slug).phases:
        assert phase.minutes <= MAX_MINUTES
        assert phase.precision == "fp32"
        assert (phase.compile, phase.cuda_graphs) == (False, False)


@pytest.mark.parametrize("slug", [slug for slug in MODELS if small(slug).task])
def test_small_recipe_of_a_tagger_fits_together(slug: str) -> None:
    recipe = small(slug)
    assert recipe.task is not None
    parse_task(recipe.task, recipe.name)
    network_config(recipe)


@pytest.mark.parametrize("slug", [slug for slug in MODELS if not small(slug).task])
def test_small_recipe_trains(slug: str, texts: dict[str, Path], tmp_path: Path) -> None:
    """One step of the network at its full size, with few words and short batches, since only the sizes matter."""
    first = small(slug).phases[0]
    changes = ["tokenizer.size=400"] if first.kind != "count" else ["model.order=3", "tokenizer.size=400"]
    if first.kind == "gradient" and not first.online:
        rows = "tokens=300" if "tokens" in first.batches else "rows=2"
        changes += ["phase.0.steps=1", "phase.0.log_every=1", f"phase.0.batches.{rows}"]
    if "output_words" in small(slug).model:
        changes.append("model.output_words=30")
    if "cutoffs" in small(slug).model.get("readout", {}):
        changes.append("model.readout.cutoffs=[8, 16]")
    if first.objective.get("unlabeled"):
        changes.append(f"phase.0.objective.unlabeled={texts['text']}")
    recipe = small(slug, *changes).with_data([str(texts["pairs" if trains_on_pairs(first.objective) else "text"])])
    events = list(train_events(recipe, tmp_path / "run", device="cpu"))
    assert events[-1].kind == "end"
    losses = [event.values["loss"] for event in events if "loss" in event.values]
    assert losses or first.kind == "count" or first.online
    assert all(map(math.isfinite, losses))
