"""Tagging commands: transfer on columns, on a fraction of the labels, with features; then predict."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nextword.run_folder import RunFolder
from tests.cli.conftest import Cli, sets
from tests.support.tiny_tagged import quick_changes, write_tagged_data
from tests.support.tiny_transfer import make_run

Js = Callable[..., Any]


@pytest.fixture(scope="module")
def place(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagging")
    write_tagged_data(folder / "names", 200, 40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEXTWORD_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        cli("transfer", "tagger/tiny", "--data", folder / "names", "--out", folder / "run", *quick())
    return folder


def quick(*changes: str) -> list[str]:
    return sets(*quick_changes(), *changes)


def test_unfinished_run_is_noted(js: Js, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "run", tmp_path / "cut")
    RunFolder.open(tmp_path / "cut").seal(finished=False)
    (tmp_path / "new.txt").write_text("Anna went home .\n")
    for run, message in ((place / "run", False), (tmp_path / "cut", True)):
        notes = js("predict", run, tmp_path / "new.txt")["notes"]
        assert any(f"{run} is not finished" in note for note in notes) is message


def test_several_tasks_have_one_column_each(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "names", tmp_path / "more")
    run, data = tmp_path / "run", f"{place / 'names'} + {tmp_path / 'more'}"
    cli("transfer", "cvt/tiny", "--data", data, "--out", run, *sets("phase.0.steps=3"))
    (tmp_path / "new.txt").write_text("Anna went home .\n")
    message = cli("predict", run, tmp_path / "new.txt")
    assert [line.split("\t")[0] for line in message.stdout.split("\n") if line] == ["Anna", "went", "home", "."]
    assert all(len(line.split("\t")) == 3 for line in message.stdout.split("\n") if line)
    assert "columns: word, " in message.stderr
    RunFolder.open(run).seal(finished=False)
    answer = js("predict", run, tmp_path / "new.txt")
    assert answer["sentences"][0]["words"] == ["Anna", "went", "home", "."]
    assert len(answer["labels"]) == 2
    assert any(f"{run} is not finished" in note for note in answer["notes"])


def test_seeds_with_a_training_fraction_and_features(js: Js, place: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "bert", "bert")
    answer = js(
        *("transfer", "tagger/tiny", "--data", place / "names", "--out", tmp_path / "out", "--num-seeds", "2"),
        *("--train-fraction", "0.25", "--features", tmp_path / "bert", *quick("phase.0.epochs=1")),
    )
    assert answer["metric"] == "span_f1"
    assert [item["examples"]["train"] for item in answer["results"]] == [50, 50]
    assert all("test" in item for item in answer["results"])
    assert "train_fraction = 0.25" in (tmp_path / "out/seed-0/recipe.toml").read_text()


def test_training_fraction_is_reported(cli: Cli, place: Path, tmp_path: Path) -> None:
    words = (
        "transfer",
        "tagger/tiny",
        "--data",
        place / "names",
        "--train-fraction",
        "0.1",
        *quick("phase.0.epochs=1"),
    )
    assert "20 of 200 train" in " ".join(cli(*words, "--out", tmp_path / "few").stderr.split())


def test_plain_text_is_tokenized_and_written_as_columns(cli: Cli, place: Path, tmp_path: Path) -> None:
    lines = tmp_path / "in.txt"
    lines.write_text("mister Karo went to Velopolis.\n\nthe king met a house\n")
    message = cli("predict", place / "run", lines).stdout
    assert [line.split("\t")[0] for line in message.splitlines()[:6]] == [
        *("mister", "Karo", "went", "to", "Velopolis", ".")
    ]
    cli("predict", place / "run", lines, "--out", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [len(row["words"]) for row in rows] == [6, 0, 5]
    assert all(len(row["words"]) == len(row["tags"]) for row in rows)
    assert all(span["text"] for row in rows for span in row["spans"])


def test_columns_have_gold_and_predicted_tags(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    file = place / "names/test.conll"
    answer = cli("predict", place / "run", file, "--out", tmp_path / "out.conll")
    assert "span_f1" in answer.stderr
    rows = (tmp_path / "out.conll").read_text().splitlines()
    gold = [line for line in file.read_text().splitlines() if line]
    assert ["\t".join(row.split("\t")[:2]).replace("\t", " ") for row in rows if row] == gold
    scores = js("predict", place / "run", file)["scores"]
    result = json.loads((place / "run/manifest.json").read_text())["result"]
    assert scores["span_f1"] == pytest.approx(result["test"]["span_f1"])


def test_json_and_output_agree(js: Js, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.conll"
    answer = js("predict", place / "run", place / "names/test.conll", "--out", out)
    message = [line.split("\t")[-1] for line in out.read_text().splitlines() if line]
    assert message == [tag for item in answer["sentences"] for tag in item["tags"]]
    assert answer["file"] == str(out)


def test_unseen_span_types_are_noted(cli: Cli, js: Js, place: Path, tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("mister O\nKaro B-SHIP\nwent O\n\nVelopolis B-YEAR\n")
    assert "SHIP, YEAR" in cli("predict", place / "run", tmp_path / "a.conll").stderr
    (note,) = js("predict", place / "run", tmp_path / "a.conll")["notes"]
    assert "SHIP, YEAR" in note
    assert js("predict", place / "run", place / "names/test.conll")["notes"] == []


def test_tagger_rejects_tables(cli: Cli, place: Path, tmp_path: Path) -> None:
    run = place / "run"
    for given in ("id,text\n1,a king\n", '{"text": "a king"}\n', "id;text\n1;a king\n"):
        message = " ".join(cli("predict", run, fails=True, stdin=given).stderr.split())
        assert "standard input is a table" in message
    for given in ("body, soul and text\n", "a king\n", "{ a king }\n"):  # sentences
        assert cli("predict", run, stdin=given).stdout.count("\t") >= 2
    (tmp_path / "in.txt").write_text("a king\n")
    for option in ("--text", "--text-pair"):
        message = " ".join(cli("predict", run, tmp_path / "in.txt", option, "body", fails=True).stderr.split())
        assert f"{option} = 'body'" in message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.conll", "a O\nb\n", "line 2"),
        ("a.txt", "\n\n", "a.txt"),
        ("out.csv", "", ".conll"),
    ],
)
def test_malformed_input_fails(cli: Cli, place: Path, tmp_path: Path, name: str, content: str, message: str) -> None:
    if content:
        (tmp_path / name).write_text(content)
        words = ("predict", place / "run", tmp_path / name)
    else:
        words = ("predict", place / "run", place / "names/test.conll", "--out", tmp_path / name)
    assert message in " ".join(cli(*words, fails=True).stderr.split())


def test_tagger_only_predicts(cli: Cli, js: Js, place: Path) -> None:
    assert js("papers", "tagger")["can"] == ["predict"]
    assert "each word" in (place / "run/card.md").read_text()
    message = " ".join(cli("train", "tagger/tiny", "--out", place / "x", fails=True).stderr.split())
    assert "nextword transfer tagger/tiny --data X" in message
    lines = place / "lines.txt"
    lines.write_text("a king\n")
    for words in (("generate", "a"), ("next", "a"), ("evaluate",), ("embed", lines), ("embed", lines, "--words")):
        assert "a task head" in " ".join(cli(words[0], place / "run", *words[1:], fails=True).stderr.split())
