"""`nextword transfer t5/finetune` on numbers end to end: a csv, STS-B with its submission, and the GLUE suite."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nextword
from nextword.metrics.classification import METRICS
from tests.cli.conftest import Cli, sets
from tests.cli.test_glue_suite import FIVE, TESTS
from tests.support.glue_samples import SAMPLES
from tests.support.tiny_transfer import draw_color_counts, make_run, write_table

Js = Callable[..., Any]
QUICK = sets("phase.0.optimizer.rate=3e-3", "model.dropout=0.0", "phase.0.epochs=10")
DIGITS = [f"{i / 10:.1f} not_equivalent equivalent un acceptable negative positive entailment" for i in range(51)] * 3


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    make_run(folder / "t5", "t5", more=DIGITS)
    write_table(folder / "count.csv", ["text", "label"], draw_color_counts(300))
    write_table(folder / "new.csv", ["text", "label"], draw_color_counts(30, 9))
    write_table(folder / "stars.csv", ["text", "second", "stars"], [(f"a {i}", "red", i % 5 + 1) for i in range(60)])
    for task in FIVE:
        (folder / "data/glue" / task).mkdir(parents=True)
        for name, text in {**SAMPLES[task], "test.tsv": TESTS[task]}.items():
            (folder / "data/glue" / task / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def output(cli: Cli, place: Path) -> str:
    asked = ("transfer", "t5/finetune", "--from", place / "t5", "--data", place / "count.csv", "--out", place / "out")
    return " ".join(cli(*asked, *QUICK).stdout.split())


def test_number_text_transfer_learns_and_predicts_a_file(cli: Cli, js: Js, output: str, place: Path) -> None:
    assert "dev (30 examples): spearman" in output
    errors = json.loads((place / "out/errors.json").read_text())
    numbers = errors["numbers"]
    assert numbers == [f"{i / 5:.1f}" for i in range(21)]
    assert (errors["kind"], errors["layout"]) == ("label_text", "numbers")
    assert all(f"{number:.1f}" in numbers for _, number in errors["pairs"])
    assert errors["mistakes"][0]["weights"]
    dev = json.loads((place / "out/manifest.json").read_text())["result"]["dev"]
    gold, given = np.array(errors["pairs"]).T  # all 30, with labels as they stand
    assert (gold != gold.round(1)).any()
    assert dev == pytest.approx({name: METRICS[name](gold, given) for name in ("spearman", "pearson")}, abs=1e-6)
    report = (place / "out/report.html").read_text()
    assert "nats per example" in report
    assert "squared error" not in report
    message = cli("predict", place / "out", place / "new.csv")
    rows = list(csv.DictReader(io.StringIO(message.stdout)))
    assert list(rows[0]) == ["text", "label", "predicted"]
    assert all(f"{float(row['predicted']):.1f}" in numbers for row in rows)
    right = sum(abs(float(row["predicted"]) - float(row["label"])) < 0.5 for row in rows)
    assert right >= 20
    result = js("predict", place / "out", place / "new.csv")
    assert result["scores"]["spearman"] > 0.8
    assert [f"{item['predicted']:g}" for item in result["predictions"]] == [row["predicted"] for row in rows]


def test_number_text_error_analysis_names_the_word(output: str, place: Path) -> None:
    model: Any = nextword.load(place / "out", device="cpu")
    result = model.explain(["the old red king went red"])[0]
    weights = result.weights[0]
    assert {i for i in range(6) if weights[i] > 0.3} == {2, 5}
    assert sum(weights) == pytest.approx(result.score - result.baseline + result.gap, abs=1e-5)
    assert abs(result.score - 2) < 0.6  # in the labels' own units


def test_number_text_transfer_of_pairs_integers_and_seeds(js: Js, place: Path, tmp_path: Path) -> None:
    base = ("transfer", "t5/finetune", "--from", place / "t5", "--data", place / "stars.csv", "--kind", "regression")
    result = js(*base, "--num-seeds", "2", "--out", tmp_path / "k", *sets("phase.0.steps=3"))
    assert result["metric"] == "spearman"
    assert len(result["values"]) == 2
    assert any("1, 2 … 5" in note for note in result["results"][0]["notes"])
    again = js(*base, "--num-seeds", "2", "--out", tmp_path / "k", "--resume", *sets("phase.0.steps=3"))
    assert again["values"] == result["values"]
    model: Any = nextword.load(tmp_path / "k/seed-0", device="cpu")
    item = model.predict([("a 3", "red")])[0]
    assert item.value in (1, 2, 3, 4, 5)
    assert item.probabilities == {}
    js(*base, "--out", tmp_path / "wide", *sets("phase.0.steps=1", "task.number_step=2"))
    assert nextword.load(tmp_path / "wide", device="cpu").task.config.numbers == [
        "0",
        "2",
        "4",
    ]  # 5 lies between 4 and 6


def test_number_text_transfer_runs_glue_with_sts_b(cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(place / "data"))
    command = ("transfer", "t5/finetune", "--from", place / "t5", "--data", "glue", "--out", place / "glue")
    cli(*command, *sets("phase.0.steps=1"))
    results = json.loads((place / "glue/results.json").read_text())
    assert tuple(task["name"] for task in results["tasks"]) == FIVE
    config = nextword.load(place / "glue/STS-B", device="cpu").task.config
    assert config.prompt == "stsb sentence1: {text} sentence2: {second}"
    labels = [float(item) for item in config.numbers]
    assert [round(b - a, 6) for a, b in pairwise(labels)] == [0.2] * (len(labels) - 1)
    cli("predict", place / "glue", "--submission", place / "submission")
    lines = (place / "submission/STS-B.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    index, message = lines[1].split("\t")
    assert index == "0"
    assert float(message) in labels


@pytest.mark.parametrize(
    ("change", "values"),  # that the error names
    [
        ("task.number_step=-1", ("number_step", "-1")),
        ("task.number_step=50", ("task.number_step", "50", "count.csv")),
        ("task.number_step=0.001", ("task.number_step", "0.001", "4,200", "count.csv")),
        ("task.class_weights=balanced", ("class_weights", "count.csv")),
    ],
)
def test_transfer_with_invalid_setting_names_it_and_writes_nothing(
    change: str, values: tuple[str, ...], cli: Cli, place: Path, tmp_path: Path
) -> None:
    words = ("transfer", "t5/finetune", "--from", place / "t5", "--data", place / "count.csv", "--out", tmp_path / "x")
    error = " ".join(cli(*words, *sets(change), fails=True).stderr.split())
    assert [value for value in values if value not in error] == []
    assert not (tmp_path / "x").exists()


def test_transfer_with_number_step_and_a_head_fails(cli: Cli, place: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "bert")
    asked = ("transfer", "bert/finetune", "--from", tmp_path / "bert", "--data", place / "count.csv")
    error = cli(*asked, "--out", tmp_path / "x", *sets("task.number_step=0.2"), fails=True).stderr
    assert "'number_step'" in error
    assert not (tmp_path / "x").exists()
