"""Submission files of Story Cloze and SWAG, whose test labels are secret."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nextword
from nextword.tasks.text_data import read_one
from tests.cli.conftest import Cli, sets
from tests.support.tiny_questions import STORY_HEADER, SWAG_HEADER, draw_endings
from tests.support.tiny_transfer import make_run, write_table

Js = Callable[..., Any]
VALID = "cloze_test_val__winter2018-cloze_test_ALL_val - 1 - 1.csv"
BLIND = "cloze_test_test__winter2018-cloze_test_ALL_test - 1.csv"
IDS = [f"{i:02x}8d5bfb-05cc-41e3-bf2c-fa85ebad14e2" for i in (9, 3, 7, 1, 5, 2, 8)]  # in no order


def story(id: str, row: dict[str, Any]) -> list[str]:
    return [id, row["context"], "She ate.", "She ran.", "It rained.", *row["choices"], str(row["label"] + 1)]


def scene(i: int, row: dict[str, Any]) -> list[Any]:
    return [i, f"v{i}", 1, f"{row['context']} He", row["context"], "He", "gold", *row["choices"], row["label"]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("choices")
    make_run(folder / "bert")
    stories, swag = folder / "data/story-cloze", folder / "data/swag"
    stories.mkdir(parents=True)
    swag.mkdir()
    write_table(stories / VALID, STORY_HEADER, [story(f"v{i}", row) for i, row in enumerate(draw_endings(60, 2))])
    unlabeled = [story(*pair)[:-1] for pair in zip(IDS, draw_endings(7, 2, seed=1), strict=True)]
    write_table(stories / BLIND, STORY_HEADER[:-1], unlabeled)
    for name, n, seed in (("train", 40, 0), ("val", 10, 1), ("test", 9, 2)):
        rows = [scene(i, row) for i, row in enumerate(draw_endings(n, 4, seed))]
        width = len(SWAG_HEADER) - (name == "test")  # without labels
        write_table(swag / f"{name}.csv", SWAG_HEADER[:width], [row[:width] for row in rows])
    return folder


@pytest.fixture(autouse=True)
def data(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(place / "data"))


def fine_tune(cli: Cli, place: Path, name: str) -> Path:
    """Fine-tune once, and return the run folder."""
    out = place / f"out-{name}"
    if not out.exists():
        cli("transfer", "bert/choice", "--from", place / "bert", "--data", name, "--out", out, *sets("phase.0.steps=2"))
    return out


def predict_one_by_one(run: Path, name: str) -> list[str]:
    """The predictions for the test rows."""
    rows = read_one(name).splits["test"]
    model: Any = nextword.load(run, device="cpu")
    assert rows.labels is None
    assert rows.choices is not None
    each = zip(rows.texts, rows.choices, strict=True)
    return [model.predict([(text, choices)])[0].label for text, choices in each]


def test_story_cloze_submission_has_ids_and_endings(cli: Cli, place: Path) -> None:
    run = fine_tune(cli, place, "Story-Cloze")
    output = cli("predict", run, "--submission", place / "stories.zip").stdout
    assert "7 predictions" in output
    assert "GLUE" not in output
    with zipfile.ZipFile(place / "stories.zip") as archive:
        assert archive.namelist() == ["answer.txt"]
        lines = archive.read("answer.txt").decode().splitlines()
    assert lines[0] == "InputStoryid,AnswerRightEnding"
    wanted = [str(int(item) + 1) for item in predict_one_by_one(run, "Story-Cloze")]
    assert set(wanted) <= {"1", "2"}
    assert lines[1:] == [f"{id},{item}" for id, item in zip(IDS, wanted, strict=True)]  # in the order of the file


def test_swag_submission_has_one_index_per_line(cli: Cli, js: Js, place: Path) -> None:
    run = fine_tune(cli, place, "SWAG")
    result = js("predict", run, "--submission", place / "swag")
    assert result["files"] == {"SWAG.csv": 9}
    assert result["missing"] == []
    lines = (place / "swag/SWAG.csv").read_text().splitlines()
    assert lines == predict_one_by_one(run, "SWAG")
    assert set(lines) <= {"0", "1", "2", "3"}


def test_missing_id_column_or_test_file_fails(cli: Cli, place: Path, tmp_path: Path) -> None:
    run = fine_tune(cli, place, "Story-Cloze")
    blind = place / "data/story-cloze" / BLIND
    text = blind.read_text()
    try:
        blind.write_text(text.replace("InputStoryid", "number"))
        message = cli("predict", run, "--submission", tmp_path / "x", fails=True).stderr
        assert "'InputStoryid'" in message
        blind.unlink()
        message = cli("predict", run, "--submission", tmp_path / "x", fails=True).stderr
        assert "Story-Cloze" in message
    finally:
        blind.write_text(text)
    assert not (tmp_path / "x").exists()
