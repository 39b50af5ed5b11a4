"""A user's files that are not what they should be: said with the line, and nothing lost on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextword import tasks as transfer
from nextword.core.errors import NextwordError
from nextword.data.files import read_lines
from nextword.data.tables import Columns, Table, guess, holding, how_found, read_table
from nextword.tasks.question_answering import open_questions
from nextword.tasks.text_data import open_data
from tests.support.tiny_transfer import coloured, run_of, written

ROWS = [(f"review {i} is {'good' if i % 2 else 'bad'}", "up" if i % 2 else "down") for i in range(40)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", 'text,label\nx,1\n"two\nlines",2\n"open,1\ny,2\n', "line 5 is not a valid row: a quotation mark"),
        ("a.csv", 'text,label\n"two\nlines",1\nx,1,2\n', "line 4: 3 columns, and the header has 2"),
        ("a.csv", 'text\tlabel\n"So" good\t1\n', "line 2 is not a valid row: a cell goes on after the quotation mark"),
        ("a.csv", "text,label\rx,1\r", "line 1 is not a valid row: there is a carriage return"),
        ("a.csv", "wer, wann;was\nA, B;1\nC;0\n", "may be divided by semicolons or by commas"),
        (
            "a.csv",
            'Kommentar;Urteil\n"Gut; ja";1\nNein; nie;0\n',
            "line 3: 3 columns, .*a semicolon in it between quot",
        ),
        (
            "a.json",
            '[{"text": "x"}]',
            r"is one JSON list. Expected one object a line: jq -c '.\[\]' .*a.json > a.jsonl",
        ),
    ],
)
def test_what_is_wrong_is_said_where_it_begins(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_bytes(content.encode())
    with pytest.raises(NextwordError, match=said):
        read_table(tmp_path / name)


def test_a_semicolon_in_the_name_of_a_column_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("what;ever\nx\n")
    assert read_table(tmp_path / "a.csv").header == ["what;ever"]


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
def test_another_mark_than_the_ending_says(tmp_path: Path, name: str, content: str, marks: str) -> None:
    (tmp_path / name).write_text(content)
    table = read_table(tmp_path / name)
    assert len(table.header) == 2
    assert sorted(table.rows[0]) == ["1", "x"]
    assert table.notes == (f"{marks} divide the columns",)


def test_quoted_cells_between_semicolons(tmp_path: Path) -> None:
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
def test_without_an_ending_the_first_line_says_what_a_table_is(
    tmp_path: Path, content: str, kind: str, header: list[str]
) -> None:
    (tmp_path / "a").write_text(content)
    table = read_table(tmp_path / "a", holding("review"))
    assert (table.kind, table.header) == (kind, header)
    said = [note for note in table.notes if f"is read as the header of a {kind}" in note]
    assert len(said) == (kind in ("csv", "tsv"))
    assert read_table(tmp_path / "a").kind == ("jsonl" if kind == "jsonl" else "lines")  # where nothing is looked for


def test_a_labelled_table_without_an_ending_can_be_learnt_from(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", ["text", "label"], ROWS)
    wanted = open_data(str(path))
    (tmp_path / "rows").write_bytes(path.read_bytes())
    found = open_data(str(tmp_path / "rows"))
    assert (found.fingerprint, found.columns) == (wanted.fingerprint, wanted.columns)
    assert "the first line, 'text,label', is read as the header of a csv" in found.notes
    (tmp_path / "rows").write_bytes(path.read_bytes().replace(b"text,label", b"words,mood"))
    assert open_data(str(tmp_path / "rows"), Columns("words", "", "mood")).fingerprint == wanted.fingerprint


def test_what_was_not_read_is_told_of_candidates_and_questions_too(tmp_path: Path) -> None:
    offered = [f"the king {i};he went;he saw;{i % 2}" for i in range(40)]
    asked = [f"who is {i} ?;the king {i} is far;king {i}" for i in range(40)]
    for name, header, rows in (
        ("ends.csv", "context;ending0;ending1;label", offered),
        ("asked.csv", "question;context;answer", asked),
    ):
        (tmp_path / name).write_text("\n".join([header, *rows[:9], "", *rows[9:]]) + "\n")
    for data in (open_data(str(tmp_path / "ends.csv")), open_questions(str(tmp_path / "asked.csv"))):
        assert {"semicolons divide the columns", "1 empty line is left out"} <= {*data.notes}


def test_marks_ends_and_quoted_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbftext,label\r\n"one\r\ntwo",a\r\n\r\n\r\nthree,b\r\n')
    table = read_table(tmp_path / "a.csv")
    assert table.header == ["text", "label"]
    assert table.rows == [["one\ntwo", "a"], ["three", "b"]]
    assert table.notes == ("2 empty lines are left out",)
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert read_table(tmp_path / "a.txt").notes == ("1 empty line is left out",)


def test_bytes_of_another_encoding_keep_the_ending_of_the_file(tmp_path: Path) -> None:
    """Readers go by it: a csv that is converted into x.csv.utf8 would be read as plain lines."""
    (tmp_path / "a.csv").write_bytes("text,label\ncafé,1\n".encode("latin-1"))
    with pytest.raises(NextwordError, match=r"line 2\) is bad.* iconv -f windows-1252 -t utf-8 .*a.csv > utf8-a.csv$"):
        list(read_lines(tmp_path / "a.csv"))


def test_what_a_spreadsheet_writes_is_converted_as_such_and_the_spreadsheet_itself_is_called_one(
    tmp_path: Path,
) -> None:
    """Curly quotation marks of Windows are control characters in Latin-1."""
    (tmp_path / "a.csv").write_bytes("text,label\n“fine”,1\n".encode("windows-1252"))
    with pytest.raises(NextwordError, match=r"0x93 .* of Windows or is Latin-1, convert it: iconv -f windows-1252 "):
        read_table(tmp_path / "a.csv")
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04\x14\x00\x06\x00")
    with pytest.raises(NextwordError, match="It is a spreadsheet: save it as csv, with the encoding UTF-8"):
        read_table(tmp_path / "a.xlsx")


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;\r"])
def test_a_first_line_that_names_the_mark_is_no_header(tmp_path: Path, first: str) -> None:
    (tmp_path / "a.csv").write_text(f"{first}\ntext;label\na, b;1\nc;2\n", newline="")
    table = read_table(tmp_path / "a.csv")
    assert (table.header, table.rows) == (["text", "label"], [["a, b", "1"], ["c", "2"]])
    assert table.notes == ("semicolons divide the columns",)
    (tmp_path / "b.csv").write_text(f"{first}\ntext;label\na;1\nb;2;3\n", newline="")
    with pytest.raises(NextwordError, match="line 4: 3 columns"):  # the line that it is in the file
        read_table(tmp_path / "b.csv")
    (tmp_path / "c.csv").write_text("sep=,\ntext,label\na;b,1\n")
    assert read_table(tmp_path / "c.csv").rows == [["a;b", "1"]]
    (tmp_path / "d.csv").write_text("sep=\t\ntext\tlabel\na,b\t1\n")
    assert read_table(tmp_path / "d.csv").rows == [["a,b", "1"]]


def test_a_file_without_a_header_is_refused(tmp_path: Path) -> None:
    """Its first row would be lost."""
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{text},{label}\n" for text, label in ROWS))
    with pytest.raises(NextwordError, match="first line is read as a header, and looks like a row: 'down' is a label"):
        open_data(str(path))
    path.write_text("".join(f"{text},{i / 4}\n" for i, (text, _) in enumerate(ROWS)))
    with pytest.raises(NextwordError, match=r"looks like a row: '0\.0' is a label"):
        open_data(str(path))
    named = open_data(str(written(path, ["words", "mood"], ROWS)))  # names that nobody knows are names all the same
    assert "columns by what is in them: text 'words', label 'mood'" in named.notes
    assert sum(map(len, named.splits.values())) == 40


def test_columns_that_could_be_meant_too() -> None:
    table = Table("t", ["", "text", "review", "label", "stars"], [["0", "a", "b", "c", "1"]])
    found = guess(table, Columns())
    assert how_found(table, Columns(), found) == [
        "columns by their names: text 'text', label 'label'",
        "the text could also be 'review': --text says which",
        "the label could also be 'stars': --label says which",
    ]
    assert how_found(table, Columns("review", "", "stars"), Columns("review", "", "stars")) == []
    pandas = Table("t", ["", "words", "mood"], [["0", "a long text", "c"]])  # the number of the row is no label
    assert guess(pandas, Columns()) == Columns("words", "", "mood")


def test_one_column_is_one_thing() -> None:
    table = Table("t", ["text", "text", "label"], [["a", "b", "c"]])
    with pytest.raises(NextwordError, match=r"t has 2 columns 'text'. Rename all but one"):
        table.rows_of(guess(table, Columns()))
    with pytest.raises(NextwordError, match="cannot be two things: --text label, --label label"):
        guess(table, Columns("label", "", "label"))


def test_a_share_of_one_class_is_refused(tmp_path: Path) -> None:
    run_of(tmp_path / "bert")
    data = str(written(tmp_path / "c.csv", ["text", "label"], coloured(40)))
    with pytest.raises(NextwordError, match=r"--labels 0.01 draws 1 of 36 examples, and every one is '(red|blue)'"):
        transfer.run("bert/finetune", tmp_path / "bert", data, tmp_path / "out", changes=["task.share=0.01"])
