"""Several text tasks in one run: transfer, `predict --task`, submissions, and the list of all tasks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.cli.test_glue_suite import TESTS
from tests.support.glue_samples import SAMPLES
from tests.support.tiny_transfer import draw_color_pairs, draw_color_texts, make_run, write_table

Js = Callable[..., Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    make_run(folder / "bert")
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(60))
    write_table(folder / "pair.csv", ["premise", "hypothesis", "label"], draw_color_pairs(60))
    for task in ("CoLA", "RTE", "STS-B"):
        (folder / "data/glue" / task).mkdir(parents=True)
        for name, text in {**SAMPLES[task], "test.tsv": TESTS[task]}.items():
            (folder / "data/glue" / task / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def data(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(place / "data"))


def test_transfer_on_two_files_predicts_labels_of_each(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    both = f"{place / 'color.csv'} + {place / 'pair.csv'}"
    words = ["transfer", "bert/finetune", "--from", place / "bert", "--data", both, "--set", "phase.0.steps=3"]
    done = cli(*words, "--set", "phase.0.objective.mixing_power=0.5", "--out", tmp_path / "run")
    assert "labels of 2 tasks for texts · 108 train · 12 dev" in " ".join(done.stderr.split())
    assert "dev (12 examples): mean" in done.stdout
    assert "pair.csv, dev: accuracy" in done.stdout.replace("\n", "")
    message = cli("predict", tmp_path / "run", place / "pair.csv", "--task", "pair")
    rows = list(csv.DictReader(io.StringIO(message.stdout)))
    assert list(rows[0]) == ["premise", "hypothesis", "label", "predicted", "p(blue)", "p(red)"]
    assert "against the column 'label': accuracy" in message.stderr
    assert "--task" in cli("predict", tmp_path / "run", place / "pair.csv", fails=True).stderr
    wrong = cli("predict", tmp_path / "run", place / "pair.csv", "--task", "taste", fails=True).stderr
    assert "'taste'" in wrong
    item = ["transfer", "bert/finetune", "--from", place / "bert", "--data", place / "color.csv"]
    js(*item, "--set", "phase.0.steps=1", "--out", tmp_path / "one")
    assert "--task" in cli("predict", tmp_path / "one", "-", "--task", "x", stdin="a\n", fails=True).stderr


def test_transfer_on_catalog_tasks_writes_one_submission(js: Js, place: Path, tmp_path: Path) -> None:
    words = ["transfer", "bert/finetune", "--from", place / "bert", "--data", "CoLA + RTE + STS-B"]
    result = js(*words, "--set", "phase.0.steps=2", "--out", tmp_path / "run")
    assert list(result["dev"]) == ["mean", "CoLA", "RTE", "STS-B"]
    assert result["tasks"]["STS-B"]["dev"].keys() == {"spearman", "pearson"}
    output = js("predict", tmp_path / "run", "--submission", tmp_path / "files")
    assert output["files"] == {"CoLA.tsv": 2, "RTE.tsv": 3, "STS-B.tsv": 1}
    again = js("transfer", "--resume", "--out", tmp_path / "run")
    assert again["dev"] == result["dev"]


def test_examples_also_in_train_are_scored_separately(js: Js, place: Path, tmp_path: Path) -> None:
    rows = [(text, label, "train") for text, label in draw_color_texts(40)]
    rows += [(text, label, "dev") for text, label in draw_color_texts(10, 1)]
    rows += [(text, label, "test") for text, label in [*draw_color_texts(20, 2), *draw_color_texts(40)[:3]]]
    file = write_table(tmp_path / "twice.csv", ["text", "label", "split"], rows)
    words = ["transfer", "bert/finetune", "--from", place / "bert", "--data", file, "--set", "phase.0.steps=2"]
    result = js(*words, "--out", tmp_path / "run")
    assert result["examples"] == {"train": 40, "dev": 10, "test": 23, "test_unseen": 20}
    guesses = js("predict", tmp_path / "run", file)["predictions"][50:]
    right = [item["predicted"] == row[1] for item, row in zip(guesses, rows[50:], strict=True)]
    assert result["test"]["accuracy"] == sum(right) / 23
    assert result["test_unseen"]["accuracy"] == sum(right[:20]) / 20


def test_data_tasks_lists_every_task_with_its_recipes(cli: Cli, js: Js) -> None:
    listed = {row["name"]: row for row in js("data", "tasks")}
    assert listed["RTE"]["installed"]
    assert listed["RTE"]["submission"] == {"test": "RTE.tsv"}
    assert not listed["SNLI"]["installed"]
    assert (listed["SNLI"]["command"], listed["lambada"]["command"]) == ("transfer", "evaluate")
    assert listed["IMDb"]["dev"] == "a tenth of train"
    assert {"conll2003", "conll2002-es", "treebank", "ud-english-ewt"} <= {
        n for n, r in listed.items() if r["kind"] == "tagging"
    }
    assert "conll2005-srl" not in listed
    assert {"squad", "squad-2"} <= {
        n for n, r in listed.items() if (r["kind"], r["command"]) == ("question_answering", "transfer")
    }
    assert listed["tasks:summarize"] | {"installed": True} == {
        "name": "tasks:summarize", "title": "a summary of an article", "kind": "text", "metric": "rouge1", "dev": "",
        "command": "train", "installed": True, "submission": {},
    }  # fmt: skip
    message = cli("data", "tasks").stdout
    assert "nextword evaluate RUN --task" in " ".join(message.split())
    assert "nextword data tasks" in cli("data").stdout
    assert json.loads(cli("data", "snli", "--json").stdout)["layout"]["train"][1] == "snli_1.0_train.txt"
