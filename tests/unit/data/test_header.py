"""Is the first row of a table its header? Files as people have them: no row is lost, and no name becomes a class."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextword.core.errors import InvalidSetting
from nextword.data.header import detect_header
from nextword.data.opening import open_unsplit
from nextword.data.parallel import open_parallel
from nextword.data.tables import Columns, guess_columns, open_table, read_table
from nextword.tasks.text_data import read_one
from tests.support.errors import raises

Rows = list[list[str]]
WORDS = ["the", "a", "king", "queen", "house", "river", "went", "saw", "old", "new", "and", "of", "to", "in", "far"]


def sentences(n: int, length: int = 8, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=length)) for _ in range(n)]


def labeled(labels: Sequence[str], n: int = 40, length: int = 8) -> Rows:
    """Rows of a text and a label, the labels in turn."""
    return [[text, labels[i % len(labels)]] for i, text in enumerate(sentences(n, length))]


CHINESE = [[f"这部电影真的很好看，我非常喜欢{i}", ["好", "坏"][i % 2]] for i in range(12)]
PAIRS = [list(pair) for pair in zip(sentences(12), sentences(12, seed=1), strict=True)]
GO = [["Go.", "Geh."], ["Hi.", "Hallo!"], ["Run!", "Lauf!"], ["Who?", "Wer?"]]
NUMBERED = [[str(i), text, label] for i, (text, label) in enumerate(labeled(["a", "b"]))]
FORM = [[f"2024/01/0{i} 10:00:00", str(20 + i), text] for i, text in enumerate(sentences(6), 1)]

HEADERS: list[tuple[list[str], Rows]] = [
    (["text", "label"], labeled(["a", "b"])),
    (["Text", "Label"], labeled(["label", "spam"])),  # a class with the name of the column
    (["label", "text"], [[b, a] for a, b in labeled(["1", "0"])]),
    (["words", "mood"], labeled(["up", "down"])),
    (["words", "mood"], labeled(["up", "down"], n=6)),
    (["Satz", "Klasse"], labeled(["0", "1"], n=3)),
    (["Bewertung", "Sterne"], [[text, f"{i / 7:.2f}"] for i, text in enumerate(sentences(30))]),
    (["0", "1"], labeled(["a", "b"])),  # pandas, of a table that had no header
    (["0", "1"], labeled(["0", "1"])),
    (["", "0", "1"], NUMBERED),
    (["", "words", "mood"], NUMBERED),
    (["文本", "标签"], CHINESE),
    (["影评", "情绪"], CHINESE),
    (["English", "German"], PAIRS),
    (["en", "de"], GO),
    (["source", "target"], GO),
    (["Timestamp", "How old are you?", "What did you like about the course?"], FORM),
    (["id", "sentence", "split", "class"], [[*row, "dev"] for row in NUMBERED]),
    (["Kommentar"], [[text] for text in sentences(20)]),
    (["text", "label"], []),  # nothing below
    (["choice0", "choice1"], labeled(["a", "b"], n=1)),
]
NO_HEADERS: list[Rows] = [
    labeled(["good", "bad"]),
    labeled(["0", "1"]),
    labeled(["5"], n=3),
    [[text, f"{i / 7:.2f}"] for i, text in enumerate(sentences(30))],
    [["old king", "rare"], *labeled(["a", "b", "c"], length=2)],  # the only row of its class
    [["the old king went far from the house", "rare"], *labeled(["a", "b", "c"])],
    [[row[0], "neg"] for row in labeled(["neg"])],  # sorted by class
    [[b, a] for a, b in labeled(["good", "bad"])],
    CHINESE,
    PAIRS,
    GO,
    [["dog", "Hund"], ["cat", "Katze"], ["mouse", "Maus"], ["house", "Haus"]],
    NUMBERED,
    [["3", "Wall St. Bears Claw Back Into the Black", "Short-sellers are seeing green again."]] * 5,  # AG News
    [["gj04", "1", "", "Our friends won't buy this."], ["gj04", "0", "*", "One more generalization."]],  # CoLA
    [["A fine film.", "good"]],
    [["fine film", "good"]],
    [["good"]],
    [[text] for text in sentences(8)],
    [["7", "x y"], ["8", "y z"]],
    [["text", "image"], ["a cat", "text"], ["a dog", "image"], ["a fish", "text"], ["a bird", "image"]],
]


@pytest.mark.parametrize(("header", "rows"), HEADERS)
def test_detect_header(header: list[str], rows: Rows) -> None:
    assert detect_header([header, *rows]).has_header


@pytest.mark.parametrize("rows", NO_HEADERS)
def test_detect_no_header(rows: Rows) -> None:
    assert not detect_header(rows).has_header


def test_detect_is_unsure_where_nothing_tells() -> None:
    assert not detect_header([["fine film", "good"]]).is_sure
    assert not detect_header(NO_HEADERS[11]).is_sure
    assert detect_header(labeled(["good", "bad"])).is_sure
    assert detect_header([["text", "label"], *GO]).is_sure


def test_expected_names_are_a_header() -> None:
    rows = [["x y", "fine film"], ["old house", "far river"]]
    assert not detect_header(rows).has_header
    assert detect_header(rows, ["Fine Film"]).has_header
    assert detect_header(rows, ["other"]).has_header  # the error about it names the columns
    assert not detect_header(labeled(["good", "bad"]), ["other"]).has_header
    assert not detect_header(rows, ["1"]).has_header  # a number tells nothing


# ------------------------------------------------------------------------------------------------ files


def quoted(mark: str) -> Callable[[Path, Rows], None]:
    def write(path: Path, rows: Rows) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=mark, lineterminator="\n").writerows(rows)

    return write


def plain(mark: str, encoding: str = "utf-8") -> Callable[[Path, Rows], None]:
    return lambda path, rows: path.write_bytes("".join(mark.join(row) + "\n" for row in rows).encode(encoding)) and None


FORMS: dict[str, Callable[[Path, Rows], None]] = {
    "commas.csv": quoted(","),
    "semicolons.csv": quoted(";"),
    "bars.csv": quoted("|"),
    "tabs.csv": quoted("\t"),
    "tabs.tsv": plain("\t"),
    "tabs.txt": plain("\t"),
    "semicolons.txt": quoted(";"),
    "utf16.tsv": plain("\t", "utf-16"),
    "mark.csv": plain(",", "utf-8-sig"),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("header", [(), ("text", "label"), ("Satz", "Klasse"), ("影评", "情绪")])
def test_every_labeled_row_is_read_and_no_name_is_a_class(tmp_path: Path, name: str, header: tuple[str, ...]) -> None:
    rows = labeled(["good", "bad"])
    FORMS[name](tmp_path / name, [[*header], *rows] if header else rows)
    data = read_one(str(tmp_path / name))
    read = [row for split in data.splits.values() for row in zip(split.texts, split.labels or (), strict=True)]
    assert sorted(read) == sorted((text, label) for text, label in rows)
    assert data.labels == ("bad", "good")
    assert data.columns.header == ("yes" if header else "no")
    again = read_one(str(tmp_path / name), data.columns)  # as a run is resumed
    assert again.fingerprint == data.fingerprint


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("header", [(), ("source", "target"), ("en", "de"), ("Frage", "Antwort")])
def test_every_pair_is_read(tmp_path: Path, name: str, header: tuple[str, ...]) -> None:
    FORMS[name](tmp_path / name, [[*header], *PAIRS] if header else PAIRS)
    for spec in ("", ":1-2", *([f":{header[0]}-{header[1]}"] if header else ())):
        pairs = open_parallel(f"{tmp_path / name}{spec}", unsplit=True).documents("test")
        assert [[pair.source, pair.text] for pair in pairs] == PAIRS
    back = open_parallel(f"{tmp_path / name}:2-1", unsplit=True).documents("test")
    assert [[pair.text, pair.source] for pair in back] == PAIRS


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("header", [(), ("class", "review")])
def test_every_text_is_read(tmp_path: Path, name: str, header: tuple[str, ...]) -> None:
    rows = [[label, text] for text, label in labeled(["a", "b"])]
    FORMS[name](tmp_path / name, [[*header], *rows] if header else rows)
    documents = open_unsplit(f"{tmp_path / name}:2").documents("test")
    assert [document.text for document in documents] == [text for _, text in rows]


def test_windows_encoding(tmp_path: Path) -> None:
    rows = [[f"schöner Film {i}", ["süß", "öde"][i % 2]] for i in range(20)]
    plain(";", "windows-1252")(tmp_path / "a.csv", rows)
    table = read_table(tmp_path / "a.csv")
    assert (table.rows, table.encoding, table.delimiter, table.has_header) == (rows, "windows-1252", ";", False)


def test_number_of_a_column_and_a_column_called_by_a_number(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    quoted(",")(path, [["3", "text", "mood"], *[["x", text, label] for text, label in labeled(["up", "down"])]])
    table = read_table(path, header=True)
    assert table.column("3")[:2] == ["x", "x"]  # a name wins
    assert set(table.column("2")) == set(sentences(40))
    assert guess_columns(table, Columns("2", "", "3")) == Columns("text", "", "3")
    texts = open_unsplit(f"{path}:2:header").documents("test")
    assert [document.text for document in texts] == sentences(40)


def test_first_row_that_may_be_a_header_is_asked_about(tmp_path: Path) -> None:
    rows = [["agreed well", "unclear"], *labeled(["up", "down"], n=20, length=2)]
    quoted(",")(tmp_path / "a.csv", rows)
    with raises(InvalidSetting, key="header", value="agreed well | unclear"):
        read_one(str(tmp_path / "a.csv"))
    assert read_one(str(tmp_path / "a.csv"), Columns(header="yes")).labels == ("down", "up")
    assert read_one(str(tmp_path / "a.csv"), Columns(header="no")).labels == ("down", "unclear", "up")


def test_quoted_cells_between_tabs(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f'"he said ""{i}"" there"\t{i % 2}\n' for i in range(6)))
    assert read_table(tmp_path / "a.tsv").rows[1] == ['he said "1" there', "1"]
    (tmp_path / "b.tsv").write_text('"so" he said\t1\n"no\t0\n"yes"\t1\n"no"\t0\n')  # as in GLUE
    assert [row[0] for row in read_table(tmp_path / "b.tsv").rows] == ['"so" he said', '"no', '"yes"', '"no"']


characters = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufeff")
cells = st.text(characters, max_size=12)


@given(
    st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1)),
    st.booleans(),
)
def test_rows_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, rows: Rows, header: bool) -> None:
    """Whatever the cells are, telling how the file was written gives back its rows."""
    path = tmp_path_factory.mktemp("rows") / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write("sep=,\n")
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    table = open_table(path, header=header)
    read = [row for _, row in table.rows]
    assert read == (rows[1:] if header else rows)
    assert table.columns == (
        [cell.strip() for cell in rows[0]] if header else [str(i + 1) for i in range(len(rows[0]))]
    )


@given(st.lists(st.tuples(st.text(characters).map("a{}".format), st.text(characters)), min_size=1), st.booleans())
def test_rows_between_tabs_come_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], header: bool
) -> None:
    """Quotation marks between tabs are text, unless they enclose every cell of a column."""
    path = tmp_path_factory.mktemp("rows") / "a.tsv"
    path.write_text("".join(f"{a}\t{b}b\n" for a, b in rows), encoding="utf-8")
    read = [(a, b.removesuffix("b")) for _, (a, b) in open_table(path, header=header).rows]
    assert read == (rows[1:] if header else rows)
