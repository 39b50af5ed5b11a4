"""The acceptance test of the design: a new task is one file and one line in TASKS."""

from __future__ import annotations

import ast
import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import nextword
from nextword import tasks
from nextword.cli import app
from nextword.core.errors import InvalidSetting, UnknownName
from nextword.run_folder import RunFolder
from tests.support.tiny_transfer import draw_color_texts, make_run

RECIPE = """
[paper]
slug = "bert"

[task]
kind = "parity"
scale = 2.0

[[phase]]
name = "parity"
objective = { kind = "parity" }
batches = { kind = "examples", rows = 8, length = 32 }
optimizer = { kind = "adamw", rate = 1e-3 }
steps = 12
validate_every = 6
keep = "best"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(tasks.TASKS, "parity", "tests.support.toy_task:Parity")  # the one line
    make_run(tmp_path / "bert")
    with (tmp_path / "texts.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *([text] for text, _ in draw_color_texts(100))])
    (tmp_path / "parity.toml").write_text(RECIPE)
    return tmp_path


def invoke(*words: object) -> str:
    result = CliRunner().invoke(app, [*map(str, words), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    return result.stdout


def transfer(place: Path, *options: object) -> dict:
    base = ("transfer", place / "parity.toml", "--from", place / "bert", "--data", place / "texts.csv")
    return json.loads(invoke(*base, "--out", place / "run", "--json", *options))


def test_toy_task_trains_reports_predicts_and_reloads(place: Path) -> None:
    result = transfer(place)
    assert (result["kind"], result["metric"]) == ("parity", "accuracy")
    assert result["examples"] == {"train": 80, "dev": 20}
    assert result["errors"]["layout"] == "classes"
    assert "even" in (place / "run/report.html").read_text()
    assert "even, odd" in (place / "run/card.md").read_text()
    task = RunFolder.open(place / "run").recipe.task
    assert task is not None
    assert (task["kind"], task["scale"], task["labels"]) == ("parity", 2.0, ["even", "odd"])

    predictions = json.loads(invoke("predict", place / "run", place / "texts.csv", "--json"))["predictions"]
    model = nextword.load(place / "run", device="cpu")
    texts = [text for text, _ in draw_color_texts(100)]
    labels = [prediction.label for prediction in model.predict(texts)]
    assert [prediction["predicted"] for prediction in predictions] == labels
    right = [label == ("even", "odd")[len(text.split()) % 2] for label, text in zip(labels, texts, strict=True)]
    assert sum(right[:20]) / 20 == result["dev"]["accuracy"]


def test_interrupted_toy_task_resumes_bit_identically(place: Path) -> None:
    options = dict(device="cpu")
    recipe, source, data = str(place / "parity.toml"), place / "bert", str(place / "texts.csv")
    full = tasks.run(recipe, source, data, place / "whole", **options)
    stop = iter([False] * 5 + [True])
    assert tasks.run(recipe, source, data, place / "cut", stop=lambda: next(stop), **options).interrupted
    list(tasks.resume(place / "cut", "cpu")[1])
    assert tasks.read_result(place / "cut")["dev"] == full.results[0]["dev"]
    for name in ("model.safetensors", "head.safetensors"):
        assert (place / "whole" / name).read_bytes() == (place / "cut" / name).read_bytes()


def test_toy_task_settings_are_validated_by_its_config(place: Path) -> None:
    recipe = (str(place / "parity.toml"), place / "bert", str(place / "texts.csv"), place / "no")
    with pytest.raises(InvalidSetting) as invalid:
        tasks.run(*recipe, changes=["task.scale=-1.0"])
    assert invalid.value.key == "task.scale"
    with pytest.raises(UnknownName, match="'scale'") as unknown:
        tasks.run(*recipe, changes=["task.scael=2.0"])
    assert unknown.value.name == "scael"


def test_unregistered_task_kind_raises(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(tasks.TASKS, "parity")
    with pytest.raises(UnknownName) as error:
        tasks.run(str(place / "parity.toml"), place / "bert", str(place / "texts.csv"), place / "no")
    assert error.value.name == "parity"


def test_no_other_package_names_a_task() -> None:
    """Loading, training, objectives, conversion, the model card and the commands look tasks up in TASKS."""
    source = Path(nextword.__file__).parent
    listings = {source / "evaluation/task_list.py", source / "data/conll.py", source / "data/catalog.py"}
    for path in source.rglob("*.py"):
        if not path.is_relative_to(source / "tasks") and path not in listings:  # listings name tasks of data sets
            strings = {n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)}
            assert not strings & set(tasks.TASKS), path
