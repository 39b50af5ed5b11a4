"""Tables of labeled texts of a user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import DataError, MissingFile, NextwordError
from nextword.data.tables import Columns, Rows, choose_held_out, guess_columns, read_table
from nextword.tasks.text_data import read_one
from tests.support.tiny_transfer import write_table

REVIEWS = [(f"review {i} is {'good' if i % 3 else 'bad'}", "up" if i % 3 else "down", i) for i in range(60)]


def test_read_csv_without_dev_holds_out_rows(tmp_path: Path) -> None:
    data = read_one(str(write_table(tmp_path / "r.csv", ["Review", "Sentiment", "id"], REVIEWS)))
    assert data.columns == Columns("Review", "", "Sentiment", "yes")
    assert data.labels == ("down", "up")
    assert (len(data.splits["train"]), len(data.splits["dev"])) == (54, 6)
    assert data.splits["dev"].labels is not None
    assert data.splits["dev"].labels.count("down") == 2  # a tenth of each class
    assert data.balance == {"down": 18 / 54, "up": 36 / 54}
    assert any("'Review'" in note and "'Sentiment'" in note for note in data.notes)
    assert any("6 of 60" in note for note in data.notes)


def test_choose_held_out_depends_only_on_each_text() -> None:
    texts = [f"text {i}" for i in range(200)]
    rows = Rows(texts, None, ["a"] * 200)
    chosen = {texts[i] for i in choose_held_out(rows)}
    again = Rows(texts[::-1], None, ["a"] * 200)
    assert {again.texts[i] for i in choose_held_out(again)} == chosen
    assert len(chosen) == 20
    double = Rows([*texts, *texts], None, ["a"] * 400)
    both = choose_held_out(double)
    assert all((i + 200) % 400 in both for i in both)  # a row and its copy stay together


def test_read_json_lines_tsv_and_folder_gives_equal_data(tmp_path: Path) -> None:
    lines = [json.dumps({"body": text, "stars": i % 3, "note": None}) for text, _, i in REVIEWS]
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    data = read_one(str(tmp_path / "r.jsonl"), Columns(label="stars"))
    assert data.columns == Columns("body", "", "stars")
    assert data.labels == ("0", "1", "2")
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, some in (("train", REVIEWS[:30]), ("valid", REVIEWS[30:50]), ("test", REVIEWS[50:])):
        rows = "".join(f'{label}\tI said "{text}\n' for text, label, _ in some)
        (folder / f"{name}.tsv").write_text("label\ttext\n" + rows)
    data = read_one(str(folder))
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 30, "dev": 20, "test": 10}
    assert data.splits["train"].texts[0] == 'I said "review 0 is bad'
    (folder / "test.tsv").write_text("text\nhello\n")
    assert read_one(str(folder)).splits["test"].labels is None


def test_read_recognizes_pairs_and_split_column(tmp_path: Path) -> None:
    rows = [(f"a {i}", f"b {i}", i % 2, ("train", "validation", "test")[i % 3]) for i in range(30)]
    path = str(write_table(tmp_path / "p.csv", ["premise", "hypothesis", "label", "split"], rows))
    data = read_one(path)
    assert data.columns == Columns("premise", "hypothesis", "label", "yes")
    assert (data.kind, data.frame) == ("pair_classification", "entail")
    assert {split: len(some) for split, some in data.splits.items()} == {"train": 10, "dev": 10, "test": 10}
    assert "splits by the column 'split'" in data.notes
    alone = read_one(path, Columns("premise"))  # a named text column takes precedence
    assert (alone.kind, alone.columns.second) == ("classification", "")
    assert read_one(path, kind="classification").columns.second == ""
    path = str(write_table(tmp_path / "q.csv", ["text", "label", "split"], [("a", "b", "maybe")]))
    with pytest.raises(DataError, match="maybe") as error:
        read_one(path)
    assert error.value.line == 1


def test_read_with_many_distinct_numbers_is_regression(tmp_path: Path) -> None:
    rows = [(f"text {i}", i / 10) for i in range(50)]
    path = str(write_table(tmp_path / "n.csv", ["text", "score"], rows))
    data = read_one(path)
    assert data.kind == "regression"
    assert data.metrics == ("spearman", "pearson")
    assert any("50 different numbers" in note for note in data.notes)
    few = read_one(
        str(write_table(tmp_path / "f.csv", ["text", "score"], [(t, i % 5) for i, (t, _) in enumerate(rows)]))
    )
    assert (few.kind, few.labels) == ("classification", ("0", "1", "2", "3", "4"))
    regression = read_one(str(tmp_path / "f.csv"), kind="regression")
    assert regression.kind == "regression"
    with pytest.raises(DataError) as error:
        read_one(path, kind="pair_classification")
    assert error.value.path == path


def test_read_with_empty_and_repeated_texts_adds_notes(tmp_path: Path) -> None:
    rows = [("", "a", "train"), ("x", "b", "train"), ("x", "b", "dev"), ("y", "a", "dev")]
    data = read_one(str(write_table(tmp_path / "e.csv", ["text", "label", "split"], rows)))
    assert any("1 of 2 texts" in note and "train" in note for note in data.notes)
    assert any("1 of 2 rows of dev" in note for note in data.notes)


@pytest.mark.parametrize(
    ("header", "rows", "columns", "named"),
    [
        (["text", "label"], [("a", "x")] * 30, Columns(), "'x'"),
        (["text", "label"], [("a", "x"), ("b", "y")], Columns(), "2 for training, 0 for dev"),
        (["text", "label"], [("a", "x"), ("b", "")] * 9, Columns(), "row 2.*9 of 18"),
        (["text", "label"], [("a", "x")], Columns("review"), "'review'.*text, label"),
        (["text", "label"], [("a", "x")], Columns(label="stars"), "'stars'.*text, label"),
        (["text", "foo", "bar"], [("a", "x", "y")], Columns(), "foo, bar"),
        (["label"], [("a",)], Columns(), "label"),
        (["text", "label"], [], Columns(), "t.csv"),
        (["text", "label"], [("a", "b", "c")], Columns(), "3.*2"),
        (
            ["text", "label", "split"],
            [("a", "x", "train"), ("b", "y", "train"), ("c", "z", "dev")],
            Columns(),
            "dev.*'z'",
        ),
        (["text", "label", "split"], [("a", "x", "dev")], Columns(), "train.*dev"),
    ],
)
def test_read_of_invalid_table_raises(tmp_path: Path, header: Any, rows: Any, columns: Columns, named: str) -> None:
    path = write_table(tmp_path / "t.csv", header, rows)
    with pytest.raises(NextwordError, match=named):
        read_one(str(path), columns)


def test_read_of_invalid_file_raises(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n{"text": \n')
    with pytest.raises(NextwordError, match="line 2"):
        read_table(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text("[1]\n")
    with pytest.raises(NextwordError, match="line 1"):
        read_table(tmp_path / "x.jsonl")
    (tmp_path / "x.csv").write_text('a,b\n"open,1\n')
    with pytest.raises(NextwordError, match=r"x.csv"):
        read_table(tmp_path / "x.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingFile) as error:
        read_one(str(tmp_path / "empty"))
    assert error.value.path == str(tmp_path / "empty")
    rows = [(f"t {i}", "high" if i == 3 else i) for i in range(40)]
    with pytest.raises(NextwordError, match=r"row 4.*'high'"):
        read_one(str(write_table(tmp_path / "n.csv", ["text", "label"], rows)), kind="regression")


def test_regression_labels_with_decimal_commas_raise(tmp_path: Path) -> None:
    """Spreadsheets that separate by semicolons write decimal commas."""
    path = tmp_path / "n.csv"
    path.write_text("text;price\n" + "".join(f"t {i};{i % 30},50\n" for i in range(300)))
    for kind in ("", "regression"):
        with pytest.raises(DataError, match=r"row 1.*'0,50'"):
            read_one(str(path), kind=kind)
    assert len(read_one(str(path), kind="classification").labels) == 30


@pytest.mark.parametrize("odd", ["nan", "NaN", "-inf", "N/A"])
def test_regression_with_missing_number_raises_with_its_row(tmp_path: Path, odd: str) -> None:
    rows = [(f"t {i}", odd if i in (6, 9) else i / 4) for i in range(40)]
    path = str(write_table(tmp_path / "n.csv", ["text", "score"], rows))
    for kind in ("", "regression"):
        with pytest.raises(DataError, match=f"'{odd}'") as error:
            read_one(path, kind=kind)
        assert error.value.line == 7
    few = [(f"t {i}", odd if i % 3 == 0 else i % 3) for i in range(60)]  # few distinct numbers are class names
    assert odd in read_one(str(write_table(tmp_path / "c.csv", ["text", "label"], few))).labels
    (tmp_path / "two").mkdir()
    write_table(tmp_path / "two/train.csv", ["text", "score"], [(f"t {i}", i / 4) for i in range(40)])
    write_table(tmp_path / "two/dev.csv", ["text", "score"], [("a", 3), ("b", odd)])
    with pytest.raises(DataError, match=f"'{odd}'.*dev") as error:
        read_one(str(tmp_path / "two"))
    assert error.value.line == 2


def test_read_table_of_plain_lines_has_one_column(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one\n\ntwo\n")
    assert read_table(tmp_path / "lines.txt").rows == [["one"], ["two"]]
    (tmp_path / "pairs.txt").write_text("one\ta\ntwo\n")
    assert read_table(tmp_path / "pairs.txt").rows == [["one", "a"], ["two", ""]]
    path = write_table(tmp_path / "t.csv", ["short", "long"], [("x", "a long one"), ("y", "another")])
    table = read_table(path, header=True)
    assert guess_columns(table, Columns()) == Columns("long", "", "short")
