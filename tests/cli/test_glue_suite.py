"""The GLUE suite with a baseline from scratch, and the submission files for its server."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nextword.core.types import Prediction
from nextword.data.tables import Rows
from nextword.metrics.intervals import confidence_interval
from tests.cli.conftest import Cli
from tests.support.glue_samples import SAMPLES
from tests.support.tiny_transfer import draw_color_texts, make_run, write_table

Js = Callable[..., Any]
FIVE = ("CoLA", "MRPC", "RTE", "SST-2", "STS-B")
TESTS = {  # official test files, whose labels are kept back
    "CoLA": "index\tsentence\n0\tBill.\n1\tShe hoarse.\n",
    "MRPC": "\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tA.\tB.\n",
    "RTE": "index\tsentence1\tsentence2\n0\tA.\tB.\n1\tC.\tD.\n2\tE.\tF.\n",
    "SST-2": "index\tsentence\n0\tuneasy .\n",
    "STS-B": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\n"
    "0\tmain\tx\t2012\t1\tnone\tnone\tA plane.\tA man.\n",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    make_run(folder / "bert")
    for task in FIVE:
        (folder / "data/glue" / task).mkdir(parents=True)
        for name, text in {**SAMPLES[task], "test.tsv": TESTS[task]}.items():
            (folder / "data/glue" / task / name).write_text(text, encoding="utf-8")
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(40))
    return folder


@pytest.fixture(autouse=True)
def data(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(place / "data"))


@pytest.fixture(scope="module")
def command(place: Path) -> list[Any]:
    words = [
        "transfer",
        "bert/finetune",
        "--from",
        place / "bert",
        "--data",
        "glue",
        "--num-seeds",
        "2",
        "--compare-scratch",
    ]
    return [*words, "--set", "phase.0.steps=1", "--out", place / "glue"]


@pytest.fixture
def answer(cli: Cli, place: Path, command: list[Any]) -> tuple[str, dict[str, Any]]:
    """The output of the command when it finds all runs finished, and its results."""
    message = cli(*command, "--resume").stdout
    return message, json.loads((place / "glue/results.json").read_text())


def test_suite_compares_pretrained_and_scratch(answer: tuple[str, dict[str, Any]], place: Path) -> None:
    message, results = answer
    words = " ".join(message.split())
    assert "pretrained, 2 seeds" in words
    assert "from scratch" in words
    assert [task["name"] for task in results["tasks"]] == [task["name"] for task in results["twin"]["tasks"]]
    assert tuple(task["name"] for task in results["tasks"]) == FIVE
    every = []
    for task, twin, difference in zip(
        *(results[key]["tasks"] if key else results["tasks"] for key in ("", "twin", "difference")), strict=True
    ):
        assert all(not item["scratch"] for item in task["results"])
        assert all(item["scratch"] for item in twin["results"])
        assert [item["seed"] for item in task["results"]] == [item["seed"] for item in twin["results"]] == [0, 1]
        by_hand = [a - b for a, b in zip(task["values"], twin["values"], strict=True)]
        assert difference["values"] == by_hand
        assert (difference["mean"], difference["interval"]) == pytest.approx(confidence_interval(by_hand))
        every.append(by_hand)
    mean, half = confidence_interval([sum(values) / 5 for values in zip(*every, strict=True)])
    assert results["difference"]["mean"] == pytest.approx(mean)
    assert results["difference"]["interval"] == pytest.approx(half)
    assert results["mean"] - results["twin"]["mean"] == pytest.approx(results["difference"]["mean"])
    assert (place / "glue-scratch/STS-B/seed-1/manifest.json").is_file()


def test_results_table_is_written_as_markdown(answer: tuple[str, dict[str, Any]], place: Path) -> None:
    lines = (place / "glue/results.md").read_text().splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert table[0] == ["task", "metric", "pretrained, 2 seeds", "from scratch", "difference", "examples"]
    assert [row[0] for row in table[2:]] == [*FIVE, "mean"]
    assert {len(row) for row in table} == {6}
    mean = answer[1]["difference"]
    assert table[-1][4] == f"{100 * mean['mean']:.1f} ± {100 * mean['interval']:.1f}"


def test_single_task_compares_with_scratch(js: Js, cli: Cli, place: Path, tmp_path: Path) -> None:
    words = ["transfer", "bert/finetune", "--from", place / "bert", "--data", place / "color.csv", "--compare-scratch"]
    words += ["--set", "phase.0.steps=1", "--out", tmp_path / "one"]
    result = js(*words)
    assert result["difference"]["interval"] is None  # of one seed
    assert result["difference"]["mean"] == result["mean"] - result["twin"]["mean"]
    assert "--compare-scratch" in cli(*words, "--scratch", fails=True).stderr


def test_submission_has_one_file_per_task(answer: tuple[str, dict[str, Any]], cli: Cli, js: Js, place: Path) -> None:
    message = cli("predict", place / "glue", "--submission", place / "submission").stdout
    assert "3 predictions" in message
    assert "QQP.tsv, MNLI-m.tsv, MNLI-mm.tsv, AX.tsv, QNLI.tsv, WNLI.tsv" in " ".join(message.split())
    files = {path.name: path.read_text() for path in (place / "submission").iterdir()}
    assert set(files) == {f"{task}.tsv" for task in FIVE}
    allowed = {"CoLA": {"0", "1"}, "MRPC": {"0", "1"}, "SST-2": {"0", "1"}, "RTE": {"entailment", "not_entailment"}}
    for task in FIVE:
        lines = [line.split("\t") for line in files[f"{task}.tsv"].splitlines()]
        assert lines[0] == ["index", "prediction"]
        assert [line[0] for line in lines[1:]] == [str(i) for i in range(TESTS[task].count("\n") - 1)]
        if task == "STS-B":
            assert all(0 <= float(line[1]) <= 5 for line in lines[1:])
        else:
            assert {line[1] for line in lines[1:]} <= allowed[task]
    output = js("predict", place / "glue", "--submission", place / "all.zip")
    assert output["files"]["RTE.tsv"] == 3
    with zipfile.ZipFile(place / "all.zip") as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == files


def test_best_seed_predicts_the_submission(answer: tuple[str, dict[str, Any]], place: Path) -> None:
    import nextword
    from nextword.tasks.submission import best_runs, predict_test_sets

    task = next(item for item in answer[1]["tasks"] if item["name"] == "STS-B")
    best = max(range(2), key=lambda i: task["values"][i])
    assert best_runs(place / "glue/STS-B") == [place / f"glue/STS-B/seed-{best}"]
    assert len(best_runs(place / "glue")) == 5
    model = nextword.load(place / f"glue/STS-B/seed-{best}", device="cpu")
    value = model.predict([("A plane.", "A man.")])[0].value
    (line,) = predict_test_sets(place / "glue/STS-B", "cpu")["STS-B.tsv"].splitlines()[1:]
    assert line == f"0\t{min(max(value, 0), 5):.3f}"


def test_submitted_numbers_are_clipped_to_the_scale() -> None:
    from nextword.tasks.datasets.catalog import BENCHMARKS
    from nextword.tasks.submission import format_predictions

    predictions = [Prediction("", {}, value) for value in (5.7, -0.2, 3.14159)]
    rows = Rows(["a"] * 3, ["b"] * 3, ids=["7", "8", "9"])
    wanted = "index\tprediction\n7\t5.000\n8\t0.000\n9\t3.142\n"
    assert format_predictions(BENCHMARKS["STS-B"], rows, predictions) == wanted


def test_submission_without_a_benchmark_run_fails(
    answer: tuple[str, dict[str, Any]], cli: Cli, place: Path, tmp_path: Path
) -> None:
    message = cli("predict", place / "bert", "--submission", tmp_path / "x", fails=True).stderr
    assert str(place / "bert") in "".join(message.split())
    message = cli("predict", tmp_path, "--submission", tmp_path / "x", fails=True).stderr
    assert str(tmp_path) in "".join(message.split())
    message = cli("predict", place / "glue", "a.csv", "--submission", tmp_path / "x", fails=True).stderr
    assert "FILE" in message
    (place / "data/glue/RTE/test.tsv").rename(tmp_path / "test.tsv")
    try:
        message = cli("predict", place / "glue/RTE", "--submission", tmp_path / "x", fails=True).stderr
    finally:
        (tmp_path / "test.tsv").rename(place / "data/glue/RTE/test.tsv")
    assert "test file of RTE" in " ".join(message.split())
    assert not (tmp_path / "x").exists()


def test_missing_benchmark_fails_before_training(cli: Cli, place: Path, tmp_path: Path) -> None:
    (place / "data/glue/STS-B/train.tsv").rename(tmp_path / "train.tsv")
    words = ["transfer", "bert/finetune", "--from", place / "bert", "--data", "glue", "--out", tmp_path / "out"]
    try:
        message = cli(*words, fails=True).stderr
    finally:
        (tmp_path / "train.tsv").rename(place / "data/glue/STS-B/train.tsv")
    assert "STS-B" in message
    assert not (tmp_path / "out").exists()


def test_unlearnable_benchmark_fails_before_training(cli: Cli, place: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "t5", "t5")
    words = ["transfer", "t5/finetune", "--from", tmp_path / "t5", "--data", "glue", "--out", tmp_path / "out"]
    assert "tokenizer" in cli(*words, fails=True).stderr
    assert not (tmp_path / "out").exists()


def test_submission_never_overwrites_files(
    answer: tuple[str, dict[str, Any]], cli: Cli, place: Path, tmp_path: Path
) -> None:
    (tmp_path / "all.zip").write_text("mine")
    (tmp_path / "files").mkdir()
    (tmp_path / "files/RTE.tsv").write_text("mine")
    for target, name in (("all.zip", "all.zip"), ("files", "files/RTE.tsv")):
        message = " ".join(cli("predict", place / "glue", "--submission", tmp_path / target, fails=True).stderr.split())
        assert "already exists" in message
        assert (tmp_path / name).read_text() == "mine"
    assert len(list((tmp_path / "files").iterdir())) == 1
    cli("predict", place / "glue/STS-B", "--submission", tmp_path / "files")  # adds another file
    assert (tmp_path / "files/RTE.tsv").read_text() == "mine"
