"""A language model trained on texts that name their topics classifies new texts without a head."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import numpy as np
import pytest

import nextword
from nextword.cli import app
from nextword.recipe import load_recipe
from nextword.tasks.in_context import ZeroShotClassifier
from nextword.training.train import train_events
from tests.support.tiny_transfer import COLORS, draw_color_texts, write_table

TEMPLATE = "so it is {label} ."
CHANGES = [
    'tokenizer={kind="words"}', "model.width=48", "phase.0.batches.length=20", "phase.0.steps=400",
    "phase.0.optimizer.rate=0.005",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zero")
    lines = [f"{text} {TEMPLATE.format(label=color)}" for text, color in draw_color_texts(3000)]
    for split, some in (("train", lines[:2700]), ("valid", lines[2700:2850]), ("test", lines[2850:])):
        (folder / f"{split}.txt").write_text("\n".join(some) + "\n")
    recipe = load_recipe("lstm/tiny", CHANGES).with_data([str(folder)])
    list(train_events(recipe, folder / "run"))
    return folder / "run"


@pytest.mark.parametrize("calibrate", [False, True])
def test_zero_shot_classifier_names_the_color(run: Path, calibrate: bool) -> None:
    lm = ZeroShotClassifier(nextword.load(run, device="cpu"), COLORS, TEMPLATE, calibrate)
    asked = draw_color_texts(60, seed=11)
    found = lm.predict([text for text, _ in asked])
    right = float(np.mean([one.label == color for one, (_, color) in zip(found, asked, strict=True)]))
    assert right >= 0.85  # by chance a half


def test_predict_command_with_labels_classifies_zero_shot(run: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    rows = draw_color_texts(20, seed=12)
    random.Random(0).shuffle(rows)
    with (tmp_path / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    words = ["predict", str(run), str(tmp_path / "new.csv"), "--labels", "red, blue", "--template", TEMPLATE]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    found = list(csv.DictReader(io.StringIO(said.stdout)))
    assert list(found[0]) == ["text", "label", "predicted", "p(red)", "p(blue)"]
    right = sum(one["predicted"] == one["label"] for one in found)
    assert right >= 17
    assert f"against the column 'label': accuracy {100 * right / 20:.1f}" in said.stderr
    for more, why in (([], "--labels"), (["--calibrate"], "--labels")):
        bad = CliRunner().invoke(app, ["predict", str(run), str(tmp_path / "new.csv"), *more])
        assert bad.exit_code == 1
        assert why in " ".join(bad.stderr.split())


def test_predict_command_with_examples_classifies_few_shot(run: Path, tmp_path: Path) -> None:
    """The labels are those of the examples; rows that are asked about are never shown."""
    from typer.testing import CliRunner

    rows = draw_color_texts(24, seed=12)
    for name, some in (("new.csv", rows[:20]), ("shown.csv", [*rows[16:], ("", "red"), *draw_color_texts(30, seed=2)])):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *some])
    words = ["predict", str(run), str(tmp_path / "new.csv"), "--template", TEMPLATE]
    shown = ["--examples", str(tmp_path / "shown.csv"), "--shots", "4"]
    said = CliRunner().invoke(app, [*words, *shown])
    assert said.exit_code == 0, said.output
    found = list(csv.DictReader(io.StringIO(said.stdout)))
    assert list(found[0]) == ["text", "label", "predicted", "p(blue)", "p(red)"]
    assert sum(one["predicted"] == one["label"] for one in found) >= 16
    told = " ".join(said.stderr.split())
    assert "(2 of 'blue', 2 of 'red')" in told
    assert f"4 of 39 rows of {tmp_path / 'shown.csv'}" in told
    assert "1 of 39 rows" in told
    bad = CliRunner().invoke(app, [*words, *shown, "--labels", "green,grey"])
    assert bad.exit_code == 1
    assert str(tmp_path / "shown.csv") in "".join(bad.stderr.split())


@pytest.mark.parametrize("seed", [0, 1])
def test_in_context_transfer_run_classifies(run: Path, seed: int, tmp_path: Path) -> None:
    from nextword.tasks.finetune import run as transferred

    write_table(tmp_path / "color.csv", ["text", "label"], draw_color_texts(200, seed=13))
    changes = [f"task.template='{TEMPLATE}'", "task.shots=4"]
    options = {"seed": seed, "changes": changes, "device": "cpu"}
    found = transferred("gpt3/in-context", run, str(tmp_path / "color.csv"), tmp_path / "out", **options)
    assert found.mean >= 0.85  # by chance a half
