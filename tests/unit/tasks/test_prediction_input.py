"""The divergence check counts the tokens of one prediction."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextword import tasks as transfer
from nextword.core.errors import TrainingDiverged
from tests.support.tiny_transfer import draw_color_counts, draw_color_texts, make_run, write_table


def test_divergence_check_counts_all_tokens_of_a_label(tmp_path: Path) -> None:
    """An untrained network costs log V per token; a run from scratch starts as such a network."""
    run, data = (
        make_run(tmp_path / "t5", "t5"),
        write_table(tmp_path / "a.csv", ["text", "label"], draw_color_texts(40)),
    )
    long = "the old king went far to the new house and the queen saw a river in the"
    words = f"task.label_words={{ red = '{long} red', blue = '{long} blue' }}"
    outcome = transfer.run("t5/finetune", run, data, tmp_path / "out", changes=[words, "phase.0.epochs=1"])
    assert outcome.metric == "accuracy"


def test_divergence_check_ignores_an_outlier_number(tmp_path: Path) -> None:
    rows = [*draw_color_counts(299), ("the far red river", 1e6)]
    run, data = make_run(tmp_path / "bert"), write_table(tmp_path / "a.csv", ["text", "label"], rows)
    changes = ["phase.0.epochs=1", "phase.0.batches.rows=4", "phase.0.log_every=1"]
    assert transfer.run("bert/finetune", run, data, tmp_path / "out", changes=changes).metric == "spearman"


def test_diverging_classification_raises(tmp_path: Path) -> None:
    run, data = make_run(tmp_path / "bert"), write_table(tmp_path / "a.csv", ["text", "label"], draw_color_texts(60))
    changes = ["phase.0.optimizer={kind='sgd',rate=1e4}", "phase.0.clip=1e9", "phase.0.log_every=1", "phase.0.epochs=9"]
    with pytest.raises(TrainingDiverged):
        transfer.run("bert/finetune", run, data, tmp_path / "out", changes=changes)
