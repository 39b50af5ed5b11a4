"""Data in memory becomes JSON lines that every reader takes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nextword.core.errors import DataError, InvalidSetting
from nextword.data.catalog import install_home
from nextword.data.frames import as_source
from nextword.tasks.text_data import read_one
from tests.support.errors import raises

TEXTS = [("fine", "good"), ("dull", "bad")]
OBJECTS = [{"text": text, "label": label} for text, label in TEXTS]


class PolarsLike:
    """The one method of a polars frame that is used; polars is not installed here."""

    def iter_rows(self, *, named: bool = False) -> Iterable[Any]:
        return iter(OBJECTS if named else TEXTS)


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (["one", "two"], [{"text": "one"}, {"text": "two"}]),
        (np.array(["one", "two"]), [{"text": "one"}, {"text": "two"}]),
        (TEXTS, OBJECTS),
        ([list(row) for row in TEXTS], OBJECTS),
        (OBJECTS, OBJECTS),
        ((row for row in TEXTS), OBJECTS),
        ({"text": ["fine", "dull"], "label": ["good", "bad"]}, OBJECTS),
        ({"text": ["a"], "stars": np.array([4])}, [{"text": "a", "stars": 4}]),
        ([("a", "b", 1)], [{"text": "a", "second": "b", "label": 1}]),
        ([{"choices": ("x", "y"), "n": np.float32(0.5)}], [{"choices": ["x", "y"], "n": 0.5}]),
        ([{"text": "é\n", "n": float("nan")}], [{"text": "é\n", "n": None}]),
        (PolarsLike(), OBJECTS),
    ],
)
def test_as_source_writes_rows(tmp_path: Path, data: object, expected: list[dict[str, Any]]) -> None:
    assert lines(as_source(data, tmp_path)) == expected


def test_as_source_of_a_pandas_frame(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["fine", None], 7: [1, 2], "when": pandas.to_datetime(["2026-01-02"] * 2)})
    first, second = lines(as_source(frame, tmp_path))
    assert first == {"text": "fine", "7": 1, "when": "2026-01-02 00:00:00"}
    assert second["text"] is None
    assert lines(as_source(frame["text"].dropna(), tmp_path)) == [{"text": "fine"}]
    with raises(DataError):
        as_source(pandas.DataFrame([[1, 2]], columns=["text", "text"]), tmp_path)


def test_as_source_of_an_arrow_table(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    assert lines(as_source(pyarrow.Table.from_pylist(OBJECTS), tmp_path)) == OBJECTS


def test_as_source_names_unnamed_columns(tmp_path: Path) -> None:
    assert lines(as_source([("a", "b")], tmp_path, ("source", "target"))) == [{"source": "a", "target": "b"}]


def test_as_source_returns_paths_unchanged() -> None:
    assert as_source("a.csv:text") == "a.csv:text"
    assert as_source(Path("a.csv")) == "a.csv"


def test_as_source_names_files_by_their_content(tmp_path: Path) -> None:
    path = as_source(TEXTS, tmp_path)
    assert as_source(OBJECTS, tmp_path) == path
    assert as_source(TEXTS[:1], tmp_path) != path
    assert Path(as_source(TEXTS)).is_relative_to(install_home())
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_as_source_of_splits_is_a_folder(tmp_path: Path) -> None:
    rows = [(f"the {color} house {i}", color) for i in range(20) for color in ("red", "blue")]
    folder = as_source({"train": rows, "validation": rows[:4]}, tmp_path)
    data = read_one(folder)
    assert {split: len(part) for split, part in data.splits.items()} == {"train": 40, "dev": 4}
    assert as_source({"train": rows, "dev": rows[:4]}, tmp_path) == folder
    with raises(DataError):
        as_source({"train": rows, "dev": rows, "valid": rows}, tmp_path)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ([], None),
        ({"text": ["a"], "label": []}, None),
        ({"text": "abc"}, None),
        ([("a", "b"), ("a",)], 2),
        ([("a", "b"), "a"], 2),
        ([{"text": "a"}, "a"], 2),
        ([("a", "b", "c", "d")], 1),
        ([3], 1),
        (["\ud800"], 1),
        ([{"text": b"x"}], 1),
    ],
)
def test_as_source_names_the_bad_row(tmp_path: Path, data: object, line: int | None) -> None:
    with raises(DataError, line=line):
        as_source(data, tmp_path)


@pytest.mark.parametrize("data", [3, None, b"abc"])
def test_as_source_of_something_else_raises(data: object) -> None:
    with raises(InvalidSetting, key="data"):
        as_source(data)
