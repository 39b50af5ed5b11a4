"""Transfer prints a confusion matrix and the most confident mistakes, and reports data problems."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, sets
from tests.support.tiny_transfer import draw_color_counts, draw_color_texts, make_run, write_table

Js = Callable[..., Any]
QUICK = sets("phase.0.optimizer.rate=3e-3", "phase.0.batches.rows=16", "model.dropout=0.0", "phase.0.epochs=2")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    make_run(folder / "bert")
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(200))
    write_table(folder / "count.csv", ["text", "score"], draw_color_counts(60))
    return folder


@pytest.fixture(scope="module")
def output(cli: Cli, place: Path) -> Any:
    words = ("transfer", "bert/finetune", "--from", place / "bert", "--data", place / "color.csv")
    return cli(*words, "--out", place / "out", *QUICK, "--set", "task.class_weights=balanced")


def test_transfer_prints_the_confusion_matrix_and_mistakes(output: Any, place: Path, js: Js) -> None:
    lines = [line.split() for line in output.stdout.splitlines()]
    assert ["gold", "↓", "predicted", "→", "blue", "red", "precision", "recall", "f1"] in lines
    result = js("transfer", "--resume", "--out", place / "out")["errors"]
    for i, (label, row) in enumerate(zip(result["labels"], result["confusion"], strict=True)):
        (line,) = [line for line in lines if line[:1] == [label]]
        assert line[1:3] == [str(n) if n or i == j else "·" for j, n in enumerate(row)]
    assert "calibration error" in output.stdout
    assert f"Report:  {place / 'out'}/report.html" in output.stdout
    if result["mistakes"]:
        assert "most confident mistakes" in output.stdout
        assert f"predicted {result['mistakes'][0]['predicted']}" in output.stdout
    assert "blue" in output.stderr


def test_many_classes_and_regression_have_their_own_tables(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    rows = [(f"{text} {i % 15}", f"class{i % 15}") for i, (text, _) in enumerate(draw_color_texts(300))]
    data = write_table(tmp_path / "many.csv", ["text", "label"], rows)
    words = ("transfer", "bert/finetune", "--from", place / "bert", "--set", "phase.0.steps=2")
    message = cli(*words, "--data", data, "--out", tmp_path / "many").stdout
    assert "the 8 of 15 classes with the lowest F1" in message
    assert "most frequent confusions" in message
    message = cli(*words, "--data", place / "count.csv", "--out", tmp_path / "count").stdout
    assert "largest errors" in message
    assert "mean absolute error" in message


def test_json_of_several_seeds_includes_their_errors(js: Js, place: Path, tmp_path: Path) -> None:
    words = ("transfer", "bert/finetune", "--from", place / "bert", "--data", place / "color.csv", "--num-seeds", "2")
    result = js(*words, "--out", tmp_path / "k", "--set", "phase.0.steps=1")
    assert [item["examples"] for item in result["errors"]] == [20, 20]
    assert any("20 of 200" in note for note in result["results"][0]["notes"])
    assert (tmp_path / "k/seed-1/report.html").is_file()


def test_failed_transfer_creates_no_folder(cli: Cli, place: Path, tmp_path: Path) -> None:
    words = ["transfer", "gpt1/finetune", "--from", place / "bert", "--data", place / "color.csv", "--out"]
    message = " ".join(cli(*words, tmp_path / "x", *QUICK, fails=True).stderr.split())
    assert "--set 'phase.*.objective.lm_weight=0'" in message
    assert not (tmp_path / "x").exists()
    cli(*words, tmp_path / "x", *QUICK, "--set", "phase.*.objective.lm_weight=0")


def test_early_stopping_is_reported(cli: Cli, place: Path, tmp_path: Path) -> None:
    words = ["transfer", "bert/finetune", "--from", place / "bert", "--data", place / "color.csv", *QUICK]
    for change in ("phase.0.epochs=30", "phase.0.patience=1", "phase.0.keep=best"):
        words += ["--set", change]
    message = cli(*words, "--out", tmp_path / "early").stderr
    assert "stopped early" in message
    note = "--set phase.0.keep=best"
    assert note not in message
    last = [*words, "--set", "phase.0.keep=last", "--set", "phase.0.epochs=1"]
    assert note in cli(*last, "--out", tmp_path / "last").stderr


def test_unknown_labels_and_empty_texts_are_reported_and_kept(
    cli: Cli, js: Js, output: Any, place: Path, tmp_path: Path
) -> None:
    rows = [("a red house", "red"), ("the blue king", "green"), ("", "blue"), ("old red", ""), ("x", "green")]
    data = write_table(tmp_path / "new.csv", ["text", "label"], rows)
    message = cli("predict", place / "out", data)
    assert len(list(csv.DictReader(io.StringIO(message.stdout)))) == 5  # nothing is dropped
    stderr = " ".join(message.stderr.split())
    assert "1 of 5 texts are empty" in stderr
    assert "2 of 5 labels of the column 'label' are not seen in training" in stderr
    assert "(green)" in stderr
    assert "1 of 5 rows have no label" in stderr
    result = js("predict", place / "out", data)
    assert len([note for note in result["notes"] if "of 5" in note]) == 3
    right = sum(item["predicted"] == row[1] for item, row in zip(result["predictions"], rows, strict=True))
    assert result["scores"]["accuracy"] == right / 2  # of the two with a known label
    only = write_table(tmp_path / "only.csv", ["text", "label"], [("x", "green")])
    assert js("predict", place / "out", only)["scores"] == {}


def test_long_texts_are_truncated_and_reported(cli: Cli, output: Any, place: Path, tmp_path: Path) -> None:
    cut = "32 tokens"
    data = write_table(
        tmp_path / "long.csv", ["text", "label"], [*draw_color_texts(40), ("red house " * 500_000, "red")]
    )
    words = ("transfer", "bert/finetune", "--from", place / "bert", "--data", data, "--set", "phase.0.steps=1")
    assert cut in " ".join(cli(*words, "--out", tmp_path / "long").stderr.split())
    assert (tmp_path / "long/report.html").stat().st_size < 1_000_000
    message = cli("predict", place / "out", stdin="a red house\n" + "red house " * 50_000 + "\n")
    assert "1 of 2 examples" in " ".join(message.stderr.split())
    assert len(list(csv.DictReader(io.StringIO(message.stdout)))) == 2


def test_missing_columns_fail_with_the_known_ones(cli: Cli, output: Any, place: Path) -> None:
    words = ("transfer", "bert/finetune", "--from", place / "bert", "--data", place / "color.csv")
    assert "text, label" in cli(*words, "--text", "body", fails=True).stderr
    message = cli("predict", place / "out", place / "count.csv", "--text", "body", fails=True).stderr
    assert "text, score" in message
