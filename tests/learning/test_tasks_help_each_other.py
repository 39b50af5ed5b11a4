"""Multitask training: a task with few labels is learned together with a related task."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from nextword import tasks as transfer
from tests.support.tiny_transfer import draw_color_texts, make_run, write_table

CHANGES = (
    *("phase.0.optimizer.rate=3e-3", "phase.0.batches.rows=8", "model.dropout=0.0", "task.dropout=0.0"),
    *("phase.0.steps=150", "phase.0.objective.mixing_power=0"),
)


def test_multitask_training_helps_a_task_with_few_labels(tmp_path: Path) -> None:
    """Which color is named: ten examples alone teach little; beside 400 that call the colors otherwise, all."""
    run = make_run(tmp_path / "bert")
    names = {"red": "warm", "blue": "cold"}
    few = [(*row, "train") for row in draw_color_texts(10, 1)] + [(*row, "dev") for row in draw_color_texts(200, 2)]
    many = [(text, names[color]) for text, color in draw_color_texts(400, 3)]
    small = str(write_table(tmp_path / "few.csv", ["text", "label", "split"], few))
    large = str(write_table(tmp_path / "many.csv", ["text", "label"], many))
    alone, beside = [], []
    for seed in range(3):
        options = {"seed": seed, "changes": CHANGES, "device": "cpu"}
        found = transfer.run("bert/finetune", run, small, tmp_path / f"alone-{seed}", **options)
        alone.append(found.results[0]["dev"]["accuracy"])
        found = transfer.run("bert/finetune", run, f"{small} + {large}", tmp_path / f"beside-{seed}", **options)
        beside.append(found.results[0]["dev"][small])
    assert median(beside) > 0.9
    assert median(beside) - median(alone) > 0.1
