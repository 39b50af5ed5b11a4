"""Tables: delimiters, quoting, headers, columns, and errors with their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextword import tasks as transfer
from nextword.core.errors import DataError, InvalidSetting, NextwordError
from nextword.data.files import read_lines
from nextword.data.tables import Columns, Table, explain_columns, guess_columns, has_columns, read_table
from nextword.tasks.datasets.questions import read_questions
from nextword.tasks.text_data import read_one
from tests.support.errors import raises
from tests.support.tiny_transfer import draw_color_texts, make_run, write_table

ROWS = [(f"review {i} is {'good' if i % 2 else 'bad'}", "up" if i % 2 else "down") for i in range(40)]


@pytest.mark.parametrize(
    ("name", "content", "line", "words"),
    [
        ("a.csv", 'text,label\nx,1\n"two\nlines",2\n"open,1\ny,2\n', 5, "quotation mark"),
        ("a.csv", 'text,label\n"two\nlines",1\nx,1,2\n', 4, "3 columns"),
        ("a.csv", 'text\tlabel\n"So" good\t1\n', 2, "quotation mark"),
        ("a.csv", "text,label\rx,1\r", 1, "carriage return"),
        ("a.csv", "wer, wann;was\nA, B;1\nC;0;1\n", 3, "commas"),
        ("a.csv", 'Kommentar;Urteil\n"Gut; ja";1\nNein; nie;0\n', 3, "semicolon"),
        ("a.json", '[{"text": "x"}]', None, r"jq -c '.\[\]' .*a\.json > a\.jsonl"),
    ],
)
def test_read_bad_table_gives_its_line(tmp_path: Path, name: str, content: str, line: int | None, words: str) -> None:
    (tmp_path / name).write_bytes(content.encode())
    with raises(DataError, match=words, path=tmp_path / name, line=line):
        read_table(tmp_path / name)


def test_read_semicolon_in_a_column_name_is_valid(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("what;ever\nx\n")
    assert read_table(tmp_path / "a.csv", header=True).header == ["what;ever"]


@pytest.mark.parametrize(
    ("name", "content", "marks"),
    [
        ("a.csv", "text;label\nx;1\n", "semicolons"),
        ("a.csv", "text\tlabel\nx\t1\n", "tabs"),
        ("a.tsv", "text,label\nx,1\n", "commas"),
        ("a.csv", "\nText;Urteil\nx;1\n", "semicolons"),
        ("a.csv", "Urteil|wer\n1|x\n", "bars"),
        ("a.csv", 'Kommentar;Urteil\n"x";1\n', "semicolons"),
    ],
)
def test_read_detects_other_delimiter(tmp_path: Path, name: str, content: str, marks: str) -> None:
    (tmp_path / name).write_text(content)
    table = read_table(tmp_path / name)
    assert len(table.header) == 2
    assert sorted(table.rows[0]) == ["1", "x"]
    assert len(table.notes) == 1
    assert marks in table.notes[0]


def test_read_quoted_cells_between_semicolons(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('Kommentar;Urteil\n"Gut; ja, ""gut""";1\n"Zwei\nZeilen";0\nGut, ja;1\n')
    rows = [['Gut; ja, "gut"', "1"], ["Zwei\nZeilen", "0"], ["Gut, ja", "1"]]
    assert read_table(tmp_path / "a.csv").rows == rows


@pytest.mark.parametrize(
    ("content", "kind", "header"),
    [
        ("id,review\n1,x\n", "csv", ["id", "review"]),
        ("\n\nid,Review\n1,x\n", "csv", ["id", "Review"]),
        ('"id","review"\n1,x\n', "csv", ["id", "review"]),
        ("\treview\n1\tx\n", "tsv", ["", "review"]),
        ("review\nx\n", "csv", ["review"]),
        ('\n{"review": "x"}\n', "jsonl", ["review"]),
        ("Review\nx\n", "lines", ["text"]),  # one word alone may be a text
        ("a review\nx\n", "lines", ["text"]),
        ("id,text\n1,x\n", "lines", ["text"]),
        ("[laughs], review\n[claps], x\n", "csv", ["[laughs]", "review"]),
    ],
)
def test_read_without_suffix_goes_by_the_first_line(tmp_path: Path, content: str, kind: str, header: list[str]) -> None:
    (tmp_path / "a").write_text(content)
    table = read_table(tmp_path / "a", has_columns("review"))
    assert (table.kind, table.header) == (kind, header)
    assert any(f"header of a {kind}" in note for note in table.notes) == (kind in ("csv", "tsv"))
    assert read_table(tmp_path / "a").kind == ("jsonl" if kind == "jsonl" else "lines")  # without columns to look for


def test_read_labeled_table_without_suffix(tmp_path: Path) -> None:
    path = write_table(tmp_path / "rows.csv", ["text", "label"], ROWS)
    wanted = read_one(str(path))
    (tmp_path / "rows").write_bytes(path.read_bytes())
    actual = read_one(str(tmp_path / "rows"))
    assert (actual.fingerprint, actual.columns) == (wanted.fingerprint, wanted.columns)
    assert any("'text,label'" in note for note in actual.notes)
    (tmp_path / "rows").write_bytes(path.read_bytes().replace(b"text,label", b"words,mood"))
    assert read_one(str(tmp_path / "rows"), Columns("words", "", "mood")).fingerprint == wanted.fingerprint


def test_notes_of_tables_reach_choices_and_questions(tmp_path: Path) -> None:
    offered = [f"the king {i};he went;he saw;{i % 2}" for i in range(40)]
    asked = [f"who is {i} ?;the king {i} is far;king {i}" for i in range(40)]
    for name, header, rows in (
        ("ends.csv", "context;ending0;ending1;label", offered),
        ("asked.csv", "question;context;answer", asked),
    ):
        (tmp_path / name).write_text("\n".join([header, *rows[:9], "", *rows[9:]]) + "\n")
    for data in (read_one(str(tmp_path / "ends.csv")), read_questions(str(tmp_path / "asked.csv"))):
        assert any("semicolons" in note for note in data.notes)
        assert any("1 empty line" in note for note in data.notes)


def test_read_byte_order_mark_line_ends_and_quoted_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbftext,label\r\n"one\r\ntwo",a\r\n\r\n\r\nthree,b\r\n')
    table = read_table(tmp_path / "a.csv")
    assert table.header == ["text", "label"]
    assert table.rows == [["one\ntwo", "a"], ["three", "b"]]
    assert "2 empty lines" in table.notes[0]
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert "1 empty line" in read_table(tmp_path / "a.txt").notes[0]


def test_read_latin1_suggests_a_file_with_the_same_suffix(tmp_path: Path) -> None:
    """Readers go by the suffix: a csv converted into x.csv.utf8 would be read as plain lines."""
    (tmp_path / "a.csv").write_bytes("text,label\ncafé,1\n".encode("latin-1"))
    with raises(DataError, match=r"iconv -f windows-1252 -t utf-8 .*a\.csv > utf8-a\.csv$", line=2):
        list(read_lines(tmp_path / "a.csv"))


def test_read_windows_encoding_is_noted_and_a_spreadsheet_says_what_to_do(tmp_path: Path) -> None:
    """The curly quotes of Windows are control characters in Latin-1."""
    (tmp_path / "a.csv").write_bytes("text,label\n“fine”,1\n".encode("windows-1252"))
    table = read_table(tmp_path / "a.csv")
    assert (table.rows, table.encoding) == ([["“fine”", "1"]], "windows-1252")
    assert any("windows-1252" in note for note in table.notes)
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04\x14\x00\x06\x00")
    with raises(DataError, match="spreadsheet.*CSV", path=tmp_path / "a.xlsx"):
        read_table(tmp_path / "a.xlsx")


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;\r"])
def test_read_sep_line_declares_the_delimiter(tmp_path: Path, first: str) -> None:
    (tmp_path / "a.csv").write_text(f"{first}\ntext;label\na, b;1\nc;2\n", newline="")
    table = read_table(tmp_path / "a.csv")
    assert (table.header, table.rows) == (["text", "label"], [["a, b", "1"], ["c", "2"]])
    assert "semicolons" in table.notes[0]
    (tmp_path / "b.csv").write_text(f"{first}\ntext;label\na;1\nb;2;3\n", newline="")
    with raises(DataError, match="3 columns", line=4):  # sep=; counts as a line
        read_table(tmp_path / "b.csv")
    (tmp_path / "c.csv").write_text("sep=,\ntext,label\na;b,1\n")
    assert read_table(tmp_path / "c.csv").rows == [["a;b", "1"]]
    (tmp_path / "d.csv").write_text("sep=\t\ntext\tlabel\na,b\t1\n")
    assert read_table(tmp_path / "d.csv").rows == [["a,b", "1"]]


def test_read_file_without_header_keeps_its_first_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{text},{label}\n" for text, label in ROWS))
    data = read_one(str(path))
    assert data.columns == Columns("1", "", "2", "no")
    assert data.labels == ("down", "up")
    assert any("--header" in note for note in data.notes)
    assert sorted(text for rows in data.splits.values() for text in rows.texts) == sorted(text for text, _ in ROWS)
    path.write_text("".join(f"{text},{i / 4}\n" for i, (text, _) in enumerate(ROWS)))
    numbers = read_one(str(path))
    assert sorted(float(n) for rows in numbers.splits.values() for n in rows.labels or ()) == [i / 4 for i in range(40)]
    named = read_one(str(write_table(path, ["words", "mood"], ROWS)))  # unusual names are still names
    assert any("text 'words', label 'mood'" in note for note in named.notes)
    assert sum(map(len, named.splits.values())) == 40


def test_explain_columns_names_alternatives() -> None:
    table = Table("t", ["", "text", "review", "label", "stars"], [["0", "a", "b", "c", "1"]])
    columns = guess_columns(table, Columns())
    chosen, text, label = explain_columns(table, Columns(), columns)
    assert "text 'text', label 'label'" in chosen
    assert "'review'" in text
    assert "'stars'" in label
    assert explain_columns(table, Columns("review", "", "stars"), Columns("review", "", "stars")) == []
    pandas = Table("t", ["", "words", "mood"], [["0", "a long text", "c"]])  # the index of pandas is not a label
    assert guess_columns(pandas, Columns()) == Columns("words", "", "mood")


def test_guess_columns_with_repeated_column_raises() -> None:
    table = Table("t", ["text", "text", "label"], [["a", "b", "c"]])
    with raises(DataError, match="2 columns 'text'", path="t"):
        table.rows_of(guess_columns(table, Columns()))
    with raises(InvalidSetting, value=["label", "label"]):
        guess_columns(table, Columns("label", "", "label"))


def test_transfer_on_a_fraction_with_one_class_raises(tmp_path: Path) -> None:
    make_run(tmp_path / "bert")
    data = str(write_table(tmp_path / "c.csv", ["text", "label"], draw_color_texts(40)))
    with pytest.raises(NextwordError, match=r"1 of 36.*'(red|blue)'"):
        transfer.run("bert/finetune", tmp_path / "bert", data, tmp_path / "out", changes=["task.train_fraction=0.01"])
