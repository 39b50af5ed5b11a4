"""Readers return the exact documents of every format."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import DataError, MissingDependency, MissingFile, UnknownName
from nextword.core.types import Document
from nextword.data.opening import describe_reading
from nextword.data.readers import list_files, read
from tests.support.errors import raises


def texts(path: Path | str, **options: Any) -> list[str]:
    return [document.text for document in read(path, **options)]


def test_read_plain_text_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ein Text.\nZwei Zeilen.\n")
    assert list(read(tmp_path / "a.txt")) == [Document("Ein Text.\nZwei Zeilen.\n", "a.txt")]


def test_read_long_text_comes_in_passages_that_join_up(tmp_path: Path) -> None:
    text = "".join(f"Zeile {i} mit ein paar Wörtern.\n" + "\n" * (i % 7 == 0) for i in range(60_000))
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    documents = list(read(tmp_path / "a.txt"))
    assert "".join(d.text for d in documents) == text
    assert [d.continues for d in documents] == [False] + [True] * (len(documents) - 1)
    assert max(len(d.text) for d in documents) < 64 << 10
    assert all(d.text.endswith("\n") for d in documents)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)])
def test_read_compressed_file(tmp_path: Path, suffix: str, pack) -> None:
    (tmp_path / f"a.txt{suffix}").write_bytes(pack("né\n".encode()))
    assert texts(tmp_path / f"a.txt{suffix}") == ["né\n"]


def test_read_zstd_with_and_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(b'{"text": "one"}\n'))
    assert texts(tmp_path / "a.jsonl.zst") == ["one"]
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with raises(MissingDependency, package="zstandard"):
        texts(tmp_path / "a.jsonl.zst")


def test_read_removes_byte_order_mark_and_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\r\n")
    assert texts(tmp_path / "a.txt") == ["one\ntwo\rthree\n"]


def test_read_carriage_return_at_block_boundary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextword.data.files.BLOCK", 4)
    (tmp_path / "a.txt").write_bytes(b"abc\r\ndef\rg\xc3\xa9\xc3\xa9\r")
    assert texts(tmp_path / "a.txt") == ["abc\ndef\rgéé\r"]


def test_read_json_lines(tmp_path: Path) -> None:
    rows = [{"text": "one", "id": 7, "title": "T"}, {"text": "  "}, {"text": "two\r\n"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert list(read(tmp_path / "a.jsonl")) == [Document("one", "7", "T"), Document("two\n", "a.jsonl:3")]
    (tmp_path / "b.jsonl").write_text('{"body": "x"}\n')
    assert texts(tmp_path / "b.jsonl", text_column="body") == ["x"]


def test_read_table_takes_requested_or_longest_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,review,text\n1,"much longer than the other",short\n')
    assert texts(tmp_path / "a.csv") == ["short"]
    assert texts(tmp_path / "a.csv", text_column="review") == ["much longer than the other"]
    (tmp_path / "b.tsv").write_text('label\tsentence\n1\the said "yes\n0\tno\n')
    assert texts(tmp_path / "b.tsv") == ['he said "yes', "no"]
    (tmp_path / "c.csv").write_text('a,b\n"two\nlines, one cell",2\n')
    assert texts(tmp_path / "c.csv") == ["two\nlines, one cell"]


def test_read_folder_is_sorted_and_skips_hidden_files(tmp_path: Path) -> None:
    for name, text in {"b.txt": "b", "a/z.md": "z", ".git/x.txt": "no", "a/.x.txt": "no", "c.png": "no"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert texts(tmp_path) == ["z", "b"]


def test_read_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe\n")))
    assert texts("-") == ["from a pipe\n"]


def test_read_1b_word_shard_has_one_document_per_line(tmp_path: Path) -> None:
    (tmp_path / "news.en-00001-of-00100").write_text("One sentence .\nTwo .\n")
    assert texts(tmp_path) == ["One sentence .\n", "Two .\n"]


def test_read_wiki_extractor_in_both_formats(tmp_path: Path) -> None:
    (tmp_path / "AA").mkdir()
    (tmp_path / "AA" / "wiki_00").write_text(
        '<doc id="12" url="https://x?curid=12" title="Anarchism">\nAnarchism\n\nIs a thing.\n\n</doc>\n'
        '<doc id="13" url="u" title="A "quoted" one">\nText\n</doc>\n'
    )
    (tmp_path / "AA" / "wiki_01").write_text('{"id": "14", "url": "u", "title": "B", "text": "Body"}\n')
    assert list(read(tmp_path)) == [
        Document("Anarchism\n\nIs a thing.\n", "12", "Anarchism"),
        Document("Text\n", "13", 'A "quoted" one'),
        Document("Body", "14", "B"),
    ]


def test_read_wikitext_is_cut_at_top_headings_only(tmp_path: Path) -> None:
    first = " \n = Du Fu = \n \n Poet . \n \n = = Life = = \n \n x = y = z \n"
    second = " \n = Kiss You ( song ) = \n \n A song . \n"
    (tmp_path / "wiki.test.tokens").write_text(first + second)
    documents = list(read(tmp_path / "wiki.test.tokens"))
    assert [d.text for d in documents] == [first, second]
    assert [d.title for d in documents] == ["Du Fu", "Kiss You ( song )"]


def test_read_wikitext_2_has_the_published_number_of_articles(shared: Path) -> None:
    for split, articles in (("train", 600), ("valid", 60), ("test", 60)):
        documents = list(read(shared / "wikitext-2" / f"{split}.txt"))
        assert len(documents) == articles
        assert "".join(d.text for d in documents) == (shared / "wikitext-2" / f"{split}.txt").read_text()


def test_read_endoftext_separates_documents(tmp_path: Path) -> None:
    (tmp_path / "stories.txt").write_text("Once.\n<|endoftext|>\nTwice.\n<|endoftext|>\n")
    assert texts(tmp_path / "stories.txt") == ["Once.", "Twice."]


def test_read_tagged_text_keeps_the_words(tmp_path: Path) -> None:
    (tmp_path / "ca01").write_text("\n\n\tThe/at 1/2/cd cup/nn ././.\n\n")
    assert texts(tmp_path / "ca01", reader="tagged") == ["The 1/2 cup ./.\n"]


def check_error(path: Path, line: int | None = None, *words: str, **options: str) -> None:
    """Check that reading raises a DataError with this line and these words in its message."""
    with raises(DataError, path=path, line=line) as error:
        list(read(path, **options))
    for word in words:
        assert word in str(error.value)


def test_read_missing_empty_or_binary_file_raises(tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("x")
    with raises(MissingFile, match=r"novel\.txt", path=tmp_path / "novle.txt"):
        list(read(tmp_path / "novle.txt"))
    (tmp_path / "empty.txt").touch()
    check_error(tmp_path / "empty.txt")
    (tmp_path / "b.txt").write_bytes(b"ab\ncd\0ef")
    check_error(tmp_path / "b.txt", 2, "offset 5")
    (tmp_path / "u.txt").write_bytes("häh".encode("utf-16"))
    assert texts(tmp_path / "u.txt") == ["häh"]
    (tmp_path / "u.txt").write_bytes("ein\nhäh".encode("utf-16")[:-1])
    check_error(tmp_path / "u.txt", 2, "utf-16", "truncated")


def test_read_invalid_utf8_gives_offset_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextword.data.files.BLOCK", 16)
    (tmp_path / "latin.txt").write_bytes("gute Zeile é\n".encode() * 9 + b"caf\xe9 au lait\n")
    check_error(tmp_path / "latin.txt", 10, "0xe9 at offset 129", "iconv -f windows-1252 -t utf-8")
    (tmp_path / "cut.txt").write_bytes("né".encode()[:-1])
    check_error(tmp_path / "cut.txt", 1, "0xc3 at offset 1")


def test_read_truncated_archive_raises(tmp_path: Path) -> None:
    for name, data in (("a.txt.gz", gzip.compress(b"x" * 9999)), ("a.txt.xz", lzma.compress(b"x" * 9999))):
        (tmp_path / name).write_bytes(data[:-9])
        check_error(tmp_path / name)


def test_list_files_of_folder_without_readable_files_raises(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    with raises(MissingFile, path=tmp_path):
        list_files(tmp_path)


def test_read_bad_row_gives_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "ok"}\n{"text": oops}\n')
    check_error(tmp_path / "a.jsonl", 2)
    (tmp_path / "b.jsonl").write_text('{"article": "x", "n": 1}\n')
    check_error(tmp_path / "b.jsonl", 1, '"text"', "article", text_column="text")
    (tmp_path / "b.jsonl").write_text('{"article": "x", "n": 1}\n\n{"title": "y"}\n')
    check_error(tmp_path / "b.jsonl", 3, '"article"', "title", "b.jsonl:KEY")
    (tmp_path / "n.jsonl").write_text('{"n": 1}\n')
    check_error(tmp_path / "n.jsonl", 1, '"text"', "none")
    (tmp_path / "s.jsonl").write_text('{"text": "\\ud800"}\n')
    check_error(tmp_path / "s.jsonl", 1, "surrogate")
    (tmp_path / "c.csv").write_text("label,review\n1,fine\n2\n")
    check_error(tmp_path / "c.csv", 3)
    with raises(UnknownName, match="'review'", name="reviews"):
        list(read(tmp_path / "c.csv", text_column="reviews"))
    (tmp_path / "d.json").write_text('[{"text": "x"}]')
    check_error(tmp_path / "d.json", None, "jq -c")
    (tmp_path / "wiki_00").write_text('<doc id="1" url="u" title="T">\nx\n')
    check_error(tmp_path / "wiki_00", None, "</doc>")


def test_read_row_with_unquoted_comma_raises(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,label\n"two\nlines",1\n\nthe film was fine, wonderful even,1\n')
    check_error(tmp_path / "a.csv", 5, "3 columns", "Quote")
    (tmp_path / "b.tsv").write_text("text\tlabel\nfine\twonderful\t1\n")
    check_error(tmp_path / "b.tsv", 2, "3 columns")


@pytest.mark.parametrize("at", [3, 150, 1000])
def test_read_bad_row_line_is_exact_despite_read_ahead(tmp_path: Path, at: int) -> None:
    rows = [f'"film {i},\nsecond line",1\n' for i in range(1200)]
    rows[at] = "fine\n"
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(rows))
    check_error(tmp_path / "a.csv", 2 + 2 * at, "1 column")
    rows[at] = '"never closed,1\n'
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(rows[: at + 1]))
    check_error(tmp_path / "a.csv", 2 + 2 * at, "quotation mark")


def test_describe_reading_counts_empty_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,one\n2,\n3,"  "\n\n4,two\n')
    assert texts(tmp_path / "a.csv") == ["one", "two"]
    column, empty = describe_reading(f"{tmp_path}/a.csv")
    assert "'text'" in column
    assert "id" in column
    assert "3 of the 5 rows" in empty
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n{"text": ""}\n')
    assert "1 of the 2 rows" in describe_reading(f"{tmp_path}/b.jsonl")[1]
    (tmp_path / "c.txt").write_text("one\n\ntwo\n")
    assert describe_reading(f"{tmp_path}/c.txt") == []
    assert len(describe_reading(str(tmp_path))) == 4  # two for each table of the folder
    monkeypatch.setattr("nextword.data.opening.MAX_COUNTED", 2)
    assert "1 of the first 2 rows" in describe_reading(f"{tmp_path}/a.csv")[1]
    assert len(describe_reading(str(tmp_path))) == 3  # the rows of b.jsonl are beyond the limit


def test_read_table_with_empty_text_column_raises(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text,body\n1,,one\n2, ,two\n")
    check_error(tmp_path / "a.csv", None, "'text'", "id, body")
    assert texts(tmp_path / "a.csv", text_column="body") == ["one", "two"]
    (tmp_path / "b.csv").write_text("text,text\none,two\n")
    check_error(tmp_path / "b.csv", None, "2 columns 'text'")


@pytest.mark.parametrize(
    ("name", "text", "first"),
    [
        ("a.csv", "Kommentar;Urteil\nSehr gut, wirklich;1\nNaja;0\n", "Sehr gut, wirklich"),
        ("a.csv", '"Kommentar";"Urteil"\n"Sehr gut; wirklich";"1"\n', "Sehr gut; wirklich"),
        ("a.csv", "Kommentar\tUrteil\nSehr gut\t1\n", "Sehr gut"),
        ("a.csv", 'Kommentar\tUrteil\n"Sehr ""gut"""\t1\n"Na\nja"\t0\n', 'Sehr "gut"'),
        ("a.csv", 'Kommentar\tUrteil\n"Sehr\nsehr\ngut"\t1\n', "Sehr\nsehr\ngut"),
        ("a.tsv", "Kommentar,Urteil\nSehr gut,1\n", "Sehr gut"),
        ("a.csv", "Kommentar|Urteil\nSehr gut|1\n", "Sehr gut"),
    ],
)
def test_read_table_with_other_delimiter(tmp_path: Path, name: str, text: str, first: str) -> None:
    (tmp_path / name).write_text(text)
    assert texts(tmp_path / name)[0] == first
    assert re.search("'Kommentar'.*Urteil", describe_reading(str(tmp_path / name))[0])
    assert texts(tmp_path / name, text_column="Urteil")[0] == "1"


def test_read_delimiter_inside_a_column_name_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('what; and why\nfine\n"good, really"\n')
    assert texts(tmp_path / "a.csv", header=True) == ["fine", "good, really"]
    assert texts(tmp_path / "a.csv") == ["what; and why", "fine", "good, really"]  # in doubt, the first row is a text
    (tmp_path / "b.csv").write_text("a;b\n1;2\n")
    assert texts(tmp_path / "b.csv", text_column="a;b") == ["1;2"]
    (tmp_path / "c.csv").write_text('\ntext,label\n"a;b",1\n')
    assert texts(tmp_path / "c.csv") == ["a;b"]


def test_read_json_lines_guesses_the_longest_key(tmp_path: Path) -> None:
    rows = [{"id": i, "url": "x/y", "body": f"a text, number {i}"} for i in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert texts(tmp_path / "a.jsonl") == [row["body"] for row in rows]
    (note,) = describe_reading(f"{tmp_path}/a.jsonl")
    assert re.search("'body'.*url", note)
    assert texts(tmp_path / "a.jsonl", text_column="url") == ["x/y"] * 3
