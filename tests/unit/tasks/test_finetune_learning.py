"""Every encoder with a head learns a simple artificial task far above chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nextword import tasks as transfer
from nextword.lm.loading import load
from tests.support.tiny_transfer import (
    SPECS,
    draw_color_counts,
    draw_color_pairs,
    draw_color_texts,
    make_run,
    write_table,
)

CHANGES = ("phase.0.optimizer.rate=3e-3", "phase.0.batches.rows=16", "model.dropout=0.0", "task.dropout=0.0")


@pytest.mark.parametrize("slug", list(SPECS))
def test_classification_run_learns_single_text_task(slug: str, tmp_path: Path) -> None:
    data = write_table(tmp_path / "color.csv", ["text", "label"], draw_color_texts(300))
    make_run(tmp_path / "run", slug)
    changes = [*CHANGES, "phase.0.epochs=8"]
    outcome = transfer.run(
        "bert/finetune", tmp_path / "run", str(data), tmp_path / "out", changes=changes, device="cpu"
    )
    assert outcome.mean > 0.9
    fresh = draw_color_texts(100, seed=9)
    predictions = load(tmp_path / "out", device="cpu").predict([text for text, _ in fresh])
    assert np.mean([prediction.label == gold for prediction, (_, gold) in zip(predictions, fresh, strict=True)]) > 0.9


@pytest.mark.parametrize(
    ("slug", "recipe"), [("bert", "bert/finetune"), ("gpt1", "bert/finetune"), ("lstm", "gpt1/finetune")]
)
def test_classification_run_learns_pair_task(slug: str, recipe: str, tmp_path: Path) -> None:
    """Both texts name a color; the label is the color of the second text."""
    data = write_table(tmp_path / "pair.csv", ["text", "second", "label"], draw_color_pairs(500))
    make_run(tmp_path / "run", slug)
    changes = [*CHANGES, "phase.0.epochs=12", *(["phase.0.optimizer.rate=1e-2"] if slug == "lstm" else [])]
    outcome = transfer.run(recipe, tmp_path / "run", str(data), tmp_path / "out", changes=changes, device="cpu")
    assert outcome.mean > 0.85
    assert outcome.results[0]["kind"] == "pair_classification"


def test_regression_run_learns_to_count(tmp_path: Path) -> None:
    data = write_table(tmp_path / "count.csv", ["text", "label"], draw_color_counts(300))
    make_run(tmp_path / "run")
    changes = [*CHANGES, "phase.0.epochs=8"]
    outcome = transfer.run(
        "bert/finetune", tmp_path / "run", str(data), tmp_path / "out", changes=changes, device="cpu"
    )
    assert outcome.metric == "spearman"
    assert outcome.mean > 0.8
    many, none = load(tmp_path / "out", device="cpu").predict(["red red the red red king", "the old king went"])
    assert many.value is not None
    assert none.value is not None
    assert many.value > 2.5 > 1.5 > none.value  # in the units of the labels


@pytest.mark.parametrize("slug", ["bert", "gpt1", "lstm", "elmo"])
def test_ulmfit_recipe_trains_other_networks(slug: str, tmp_path: Path) -> None:
    """Some of its five phases have more groups than the network; tasks are single texts, pairs and regression."""
    make_run(tmp_path / "run", slug)
    files = {
        "color": write_table(tmp_path / "color.csv", ["text", "label"], draw_color_texts(300)),
        "pair": write_table(tmp_path / "pair.csv", ["text", "second", "label"], draw_color_pairs(60)),
        "count": write_table(tmp_path / "count.csv", ["text", "label"], draw_color_counts(60)),
    }
    for name, data in files.items():
        length = ["phase.all.epochs=6"] if name == "color" else ["phase.*.steps=1"]
        changes = ["phase.*.batches.rows=16", *length]
        out = tmp_path / name
        outcome = transfer.run("ulmfit/classify", tmp_path / "run", str(data), out, changes=changes, device="cpu")
        assert name != "color" or outcome.mean > 0.9
        (first,) = load(out, device="cpu").predict([("a red king", "a blue one")] if name == "pair" else ["a red king"])
        assert first.label if name != "count" else first.value is not None
