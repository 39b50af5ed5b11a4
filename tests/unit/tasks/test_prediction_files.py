"""Tables with predictions: columns are added, earlier predictions replaced, and values keep their types."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from nextword.core.errors import DataError
from nextword.data.tables import Table, read_table
from nextword.tasks.prediction_files import add_columns, require_unique_columns

CELLS = [{"predicted": "a", "p(a)": "0.9"}]


def test_predictions_are_added_to_the_table(tmp_path: Path) -> None:
    text = 'say "hi"\tand\ngo'
    table = Table("t", ["text", "predicted"], [[text, "old"]])
    content, notes = add_columns(table, CELLS, ".csv")
    assert list(csv.reader(io.StringIO(content))) == [["text", "predicted", "p(a)"], [text, "a", "0.9"]]
    assert notes == ["replaced the columns 'predicted'"]
    content, notes = add_columns(table, CELLS, ".tsv")
    (tmp_path / "t.tsv").write_text(content)
    assert read_table(tmp_path / "t.tsv").rows == [['say "hi" and go', "a", "0.9"]]  # as the reader parses .tsv files
    assert "1 rows" in notes[1]


def test_earlier_predictions_are_replaced_across_formats(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "x", "predicted": "b", "probabilities": {"a": 0.1, "b": 0.9}}\n')
    content, notes = add_columns(read_table(tmp_path / "t.jsonl"), CELLS, ".csv")
    assert list(csv.reader(io.StringIO(content))) == [["text", "predicted", "p(a)"], ["x", "a", "0.9"]]
    assert notes == ["replaced the columns 'predicted', 'probabilities'"]
    earlier = Table("t", ["text", "p(b)", "predicted", "price(b)"], [["x", "0.9", "b", "7"]])  # including other labels
    objects = [{"predicted": "a", "probabilities": {"a": 1.0}}]
    content, notes = add_columns(earlier, objects, ".jsonl")
    assert json.loads(content) == {"text": "x", "price(b)": "7", **objects[0]}
    assert notes == ["replaced the columns 'p(b)', 'predicted'"]
    own = Table("t", ["text", "p(b)", "probabilities"], [["x", "0.9", "1"]])  # no prediction for this row
    content, notes = add_columns(own, CELLS, ".csv")
    assert content.splitlines()[0] == "text,p(b),probabilities,predicted,p(a)"
    assert notes == []


def test_predictions_added_to_json_lines_keep_value_types(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"text": "x", "n": 3, "k": {"a": [1, null]}}\n{"text": "y"}\n')
    content, notes = add_columns(read_table(tmp_path / "t.jsonl"), CELLS * 2, ".jsonl")
    first, second = map(json.loads, content.splitlines())
    assert first == {"text": "x", "n": 3, "k": {"a": [1, None]}, **CELLS[0]}
    assert second == {"text": "y", **CELLS[0]}
    assert notes == []
    twice = Table("t", ["text", "n", "n"], [["x", "1", "2"]])
    with pytest.raises(DataError, match=r"'n'.* o\.csv"):
        require_unique_columns(twice, Path("o.jsonl"))
    require_unique_columns(twice, Path("o.csv"))
