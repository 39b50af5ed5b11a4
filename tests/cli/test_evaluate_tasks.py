"""`nextword evaluate --task`: results, separate log entries, settings, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Cli

Js = Callable[..., Any]


@pytest.fixture
def rte(tmp_path: Path) -> Path:
    """A folder in the layout of GLUE, with made-up sentences."""
    folder = tmp_path / "RTE"
    folder.mkdir()
    for split, count in (("train", 6), ("dev", 10)):
        rows = [f"{i}\tThe {split} king {i} slept.\tHe slept.\t{'not_' * (i % 2)}entailment" for i in range(count)]
        (folder / f"{split}.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + "\n".join(rows) + "\n")
    return folder


def test_evaluate_lists_tasks_without_a_run(js: Js, cli: Cli) -> None:
    rows = {row["name"]: row for row in js("evaluate", "--list-tasks")}
    assert rows["lambada"]["rule"] == "word"
    assert (rows["arithmetic"]["installed"], rows["rte"]["installed"]) == (True, False)
    assert rows["cola"]["metric"] == "mcc"
    message = cli("evaluate", "--list-tasks").stdout
    assert all(name in message for name in rows)


def test_evaluate_task_prints_and_logs_the_result(js: Js, cli: Cli, run: Path, rte: Path) -> None:
    before = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    result = js("evaluate", run, "--task", "rte", "--data", rte, "--shots", "2", "--seed", "3")
    assert (result["task"], result["split"], result["count"], result["shots"], result["seed"]) == (
        "rte",
        "valid",
        10,
        2,
        3,
    )
    assert result["baselines"] == {"majority": 0.5, "chance": 0.5}
    assert result["low"] <= result["value"] <= result["high"]
    assert result["first"]["prompt"].count("question:") == 3
    assert "dev king" not in result["first"]["prompt"].rpartition("\n\n")[0]  # shots come from the training split
    after = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert after[:-1] == before
    kept = json.loads(after[-1])
    assert (kept["event"], kept["task"], kept["value"]) == ("task", "rte", result["value"])
    assert js("runs", run)  # which knows evaluations by another name
    message = cli("evaluate", run, "--task", "rte", "--data", rte, "--limit", "4").stdout
    assert "majority" in message
    assert "valid: 4 of 10" in message
    assert "GPT-3 175B, 32 shots: 69.0" in message


def test_evaluate_task_repeats_exactly(js: Js, run: Path, rte: Path) -> None:
    words = ("evaluate", run, "--task", "rte", "--data", rte, "--shots", "3", "--limit", "5")
    first, again = js(*words), js(*words)
    assert {k: v for k, v in first.items() if k != "seconds"} == {k: v for k, v in again.items() if k != "seconds"}


def test_evaluate_task_with_settings_records_them(js: Js, run: Path, rte: Path) -> None:
    words = ("evaluate", run, "--task", "rte", "--data", rte, "--shots", "1")
    result = js(*words, "--set", "task.rule=unconditional", "--set", "task.drawn=once")
    assert (result["rule"], result["drawn"]) == ("unconditional", "once")


def test_evaluate_task_with_generated_answers(js: Js, run: Path) -> None:
    result = js("evaluate", run, "--task", "arithmetic-1d-composite", "--limit", "3", "--shots", "1")
    assert (result["rule"], result["count"], result["of"]) == ("generate", 3, 2000)
    assert result["value"] == 0.0


def test_evaluate_task_from_a_toml_file(js: Js, run: Path, tmp_path: Path) -> None:
    (tmp_path / "ends.toml").write_text(
        'title = "t"\ndata = "ends.txt"\nreader = "lines"\nfields = { text = "text" }\nlast = "text"\nsplit = "test"\n'
        'context = "{before}"\nanswer = " {last}"\nrule = "word"\n'
    )
    (tmp_path / "ends.txt").write_text("the king went away\nno bread and water\n")
    result = js("evaluate", run, "--task", tmp_path / "ends.toml")
    assert result["count"] == 2
    assert result["perplexity"] > 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--task", "lamdaba"), "lambada"),
        (("--task", "story-cloze"), "nextword data story-cloze --install PATH"),
        (("--task", "rte", "--data", "RTE", "--shots", "7"), "shots = 7"),
        (("--task", "rte", "--data", "RTE", "--shots", "-1"), "--shots"),
        (("--task", "rte", "--data", "RTE", "--split", "test"), "test.tsv"),
        (("--task", "rte", "--data", "RTE", "--split", "train"), "train"),
        (("--task", "rte", "--data", "nowhere"), "nowhere"),
        (("--task", "rte", "--set", "cache.theta=1"), "task.rule, task.drawn"),
        (("--task", "rte", "--set", "task.rule=sun"), "sum"),
        (("--task", "rte", "--cache"), "--cache"),
        (("--shots", "2"), "--task"),
    ],
)
def test_evaluate_task_with_a_mistake_names_it(
    cli: Cli, run: Path, rte: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(rte.parent)
    before = (run / "log.jsonl").read_text(encoding="utf-8")
    assert message in cli("evaluate", run, *words, fails=True).stderr.replace("\n", " ")
    assert (run / "log.jsonl").read_text(encoding="utf-8") == before


def test_evaluate_needs_a_run(cli: Cli) -> None:
    assert "nextword evaluate RUN" in cli("evaluate", fails=True).stderr
