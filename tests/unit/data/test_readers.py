"""Every format gives the documents that are in it, and gives them back exactly."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sys
from pathlib import Path

import pytest

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data.opening import how_read
from nextword.data.readers import files, read


def texts(path: Path | str, **options: str) -> list[str]:
    return [document.text for document in read(path, **options)]


def test_plain_text_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ein Text.\nZwei Zeilen.\n")
    assert list(read(tmp_path / "a.txt")) == [Document("Ein Text.\nZwei Zeilen.\n", "a.txt")]


def test_long_plain_text_comes_in_passages_that_join_up(tmp_path: Path) -> None:
    text = "".join(f"Zeile {i} mit ein paar Wörtern.\n" + "\n" * (i % 7 == 0) for i in range(60_000))
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    documents = list(read(tmp_path / "a.txt"))
    assert "".join(d.text for d in documents) == text
    assert [d.continues for d in documents] == [False] + [True] * (len(documents) - 1)
    assert max(len(d.text) for d in documents) < 64 << 10
    assert all(d.text.endswith("\n") for d in documents)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)])
def test_compressed(tmp_path: Path, suffix: str, pack) -> None:
    (tmp_path / f"a.txt{suffix}").write_bytes(pack("né\n".encode()))
    assert texts(tmp_path / f"a.txt{suffix}") == ["né\n"]


def test_zstd_and_what_to_do_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(b'{"text": "one"}\n'))
    assert texts(tmp_path / "a.jsonl.zst") == ["one"]
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(NextwordError, match=r"nextword\[corpora\]"):
        texts(tmp_path / "a.jsonl.zst")


def test_byte_order_mark_and_carriage_returns_go(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\r\n")
    assert texts(tmp_path / "a.txt") == ["one\ntwo\rthree\n"]


def test_carriage_return_at_the_edge_of_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextword.data.files.BLOCK", 4)
    (tmp_path / "a.txt").write_bytes(b"abc\r\ndef\rg\xc3\xa9\xc3\xa9\r")
    assert texts(tmp_path / "a.txt") == ["abc\ndef\rgéé\r"]


def test_json_lines(tmp_path: Path) -> None:
    rows = [{"text": "one", "id": 7, "title": "T"}, {"text": "  "}, {"text": "two\r\n"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert list(read(tmp_path / "a.jsonl")) == [Document("one", "7", "T"), Document("two\n", "a.jsonl:3")]
    (tmp_path / "b.jsonl").write_text('{"body": "x"}\n')
    assert texts(tmp_path / "b.jsonl", text_column="body") == ["x"]


def test_tables_take_the_named_or_the_longest_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,review,text\n1,"much longer than the other",short\n')
    assert texts(tmp_path / "a.csv") == ["short"]
    assert texts(tmp_path / "a.csv", text_column="review") == ["much longer than the other"]
    (tmp_path / "b.tsv").write_text('label\tsentence\n1\the said "yes\n0\tno\n')
    assert texts(tmp_path / "b.tsv") == ['he said "yes', "no"]
    (tmp_path / "c.csv").write_text('a,b\n"two\nlines, one cell",2\n')
    assert texts(tmp_path / "c.csv") == ["two\nlines, one cell"]


def test_folder_is_sorted_and_skips_hidden_and_unreadable_files(tmp_path: Path) -> None:
    for name, text in {"b.txt": "b", "a/z.md": "z", ".git/x.txt": "no", "a/.x.txt": "no", "c.png": "no"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert texts(tmp_path) == ["z", "b"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe\n")))
    assert texts("-") == ["from a pipe\n"]


def test_shards_of_1b_word_have_a_document_a_line(tmp_path: Path) -> None:
    (tmp_path / "news.en-00001-of-00100").write_text("One sentence .\nTwo .\n")
    assert texts(tmp_path) == ["One sentence .\n", "Two .\n"]


def test_wiki_extractor_in_both_its_forms(tmp_path: Path) -> None:
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


def test_wikitext_is_cut_at_top_headings_only(tmp_path: Path) -> None:
    first = " \n = Du Fu = \n \n Poet . \n \n = = Life = = \n \n x = y = z \n"
    second = " \n = Kiss You ( song ) = \n \n A song . \n"
    (tmp_path / "wiki.test.tokens").write_text(first + second)
    documents = list(read(tmp_path / "wiki.test.tokens"))
    assert [d.text for d in documents] == [first, second]
    assert [d.title for d in documents] == ["Du Fu", "Kiss You ( song )"]


def test_wikitext_2_has_its_published_number_of_articles(shared: Path) -> None:
    for split, articles in (("train", 600), ("valid", 60), ("test", 60)):
        documents = list(read(shared / "wikitext-2" / f"{split}.txt"))
        assert len(documents) == articles
        assert "".join(d.text for d in documents) == (shared / "wikitext-2" / f"{split}.txt").read_text()


def test_endoftext_separates_documents(tmp_path: Path) -> None:
    (tmp_path / "stories.txt").write_text("Once.\n<|endoftext|>\nTwice.\n<|endoftext|>\n")
    assert texts(tmp_path / "stories.txt") == ["Once.", "Twice."]


def test_tagged_keeps_the_words(tmp_path: Path) -> None:
    (tmp_path / "ca01").write_text("\n\n\tThe/at 1/2/cd cup/nn ././.\n\n")
    assert texts(tmp_path / "ca01", reader="tagged") == ["The 1/2 cup ./.\n"]


def refused(path: Path | str, *words: str, **options: str) -> str:
    with pytest.raises(NextwordError) as problem:
        list(read(path, **options))
    for word in words:
        assert word in str(problem.value), str(problem.value)
    return str(problem.value)


def test_missing_empty_and_binary(tmp_path: Path) -> None:
    (tmp_path / "novel.txt").write_text("x")
    refused(tmp_path / "novle.txt", "There is no file", "novel.txt?")
    (tmp_path / "empty.txt").touch()
    refused(tmp_path / "empty.txt", "empty.txt is empty")
    (tmp_path / "b.txt").write_bytes(b"ab\ncd\0ef")
    refused(tmp_path / "b.txt", "zero byte at offset 5", "line 2")
    (tmp_path / "u.txt").write_bytes("häh".encode("utf-16"))
    refused(tmp_path / "u.txt", "UTF-16", "iconv -f utf-16")


def test_bad_byte_is_named_with_offset_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextword.data.files.BLOCK", 16)
    (tmp_path / "latin.txt").write_bytes("gute Zeile é\n".encode() * 9 + b"caf\xe9 au lait\n")
    refused(tmp_path / "latin.txt", "0xe9 at offset 129", "line 10", "iconv -f windows-1252 -t utf-8")
    (tmp_path / "cut.txt").write_bytes("né".encode()[:-1])
    refused(tmp_path / "cut.txt", "0xc3 at offset 1")


def test_damaged_archives(tmp_path: Path) -> None:
    for name, data in (("a.txt.gz", gzip.compress(b"x" * 9999)), ("a.txt.xz", lzma.compress(b"x" * 9999))):
        (tmp_path / name).write_bytes(data[:-9])
        refused(tmp_path / name, "damaged or cut short")


def test_folder_with_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    with pytest.raises(NextwordError, match="no readable file"):
        files(tmp_path)


def test_bad_rows_are_named_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "ok"}\n{"text": oops}\n')
    refused(tmp_path / "a.jsonl", "a.jsonl, line 2 is not JSON")
    (tmp_path / "b.jsonl").write_text('{"article": "x", "n": 1}\n')
    refused(tmp_path / "b.jsonl", 'line 1 has no text under "text"', "article", text_column="text")
    (tmp_path / "b.jsonl").write_text('{"article": "x", "n": 1}\n\n{"title": "y"}\n')
    refused(tmp_path / "b.jsonl", 'line 3 has no text under "article"', "title", "b.jsonl:KEY")
    (tmp_path / "n.jsonl").write_text('{"n": 1}\n')
    refused(tmp_path / "n.jsonl", 'line 1 has no text under "text"', "keys with a text: none")
    (tmp_path / "s.jsonl").write_text('{"text": "\\ud800"}\n')
    refused(tmp_path / "s.jsonl", "line 1", "surrogate")
    (tmp_path / "c.csv").write_text("label,review\n1,fine\n2\n")
    refused(tmp_path / "c.csv", "line 3: 1 column, and the header has 2")
    refused(tmp_path / "c.csv", "no column 'reviews'", "Did you mean 'review'", text_column="reviews")
    (tmp_path / "d.json").write_text('[{"text": "x"}]')
    refused(tmp_path / "d.json", "jq -c")
    (tmp_path / "wiki_00").write_text('<doc id="1" url="u" title="T">\nx\n')
    refused(tmp_path / "wiki_00", "ends inside an article")


def test_a_row_with_an_unquoted_comma_is_refused_and_not_cut(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,label\n"two\nlines",1\n\nthe film was fine, wonderful even,1\n')
    refused(tmp_path / "a.csv", "a.csv, line 5: 3 columns, and the header has 2", "between quotation marks")
    (tmp_path / "b.tsv").write_text("text\tlabel\nfine\twonderful\t1\n")
    said = refused(tmp_path / "b.tsv", "b.tsv, line 2: 3 columns, and the header has 2")
    assert "quotation marks" not in said  # which are text there


@pytest.mark.parametrize("at", [3, 150, 1000])
def test_the_line_of_a_bad_row_is_its_own_however_far_was_read_ahead(tmp_path: Path, at: int) -> None:
    rows = [f'"film {i},\nsecond line",1\n' for i in range(1200)]
    rows[at] = "fine\n"
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(rows))
    refused(tmp_path / "a.csv", f"line {2 + 2 * at}: 1 column,")
    rows[at] = '"never closed,1\n'
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(rows[: at + 1]))
    refused(tmp_path / "a.csv", f"line {2 + 2 * at} is not a valid row: a quotation mark is opened there")


def test_empty_texts_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,one\n2,\n3,"  "\n\n4,two\n')
    assert texts(tmp_path / "a.csv") == ["one", "two"]
    column = f"{tmp_path}/a.csv: the text is the column 'text' (others: id; {tmp_path}/a.csv:COLUMN names one)"
    assert how_read(f"{tmp_path}/a.csv") == [
        column,
        f"{tmp_path}/a.csv: 3 of the 5 rows have no text and are left out",
    ]
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n{"text": ""}\n')
    assert how_read(f"{tmp_path}/b.jsonl")[1] == f"{tmp_path}/b.jsonl: 1 of the 2 rows has no text and is left out"
    (tmp_path / "c.txt").write_text("one\n\ntwo\n")
    assert how_read(f"{tmp_path}/c.txt") == []
    assert len(how_read(str(tmp_path))) == 4  # of a folder, file by file
    monkeypatch.setattr("nextword.data.tables.COUNTED", 2)
    assert "1 of the first 2 rows" in how_read(f"{tmp_path}/a.csv")[1]
    assert len(how_read(str(tmp_path))) == 3  # of a folder no more either: rows of b.jsonl are not counted


def test_a_table_without_any_text_says_where_it_looked(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text,body\n1,,one\n2, ,two\n")
    refused(tmp_path / "a.csv", "no text in 'text', in none of its 2 rows", "a.csv:COLUMN, of id, body")
    assert texts(tmp_path / "a.csv", text_column="body") == ["one", "two"]
    (tmp_path / "b.csv").write_text("text,text\none,two\n")
    refused(tmp_path / "b.csv", "2 columns 'text'. Rename all but one")


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
def test_a_table_that_another_mark_divides_is_read_by_that(tmp_path: Path, name: str, text: str, first: str) -> None:
    (tmp_path / name).write_text(text)
    assert texts(tmp_path / name)[0] == first
    assert how_read(str(tmp_path / name))[0].endswith(
        f"'Kommentar' (others: Urteil; {tmp_path / name}:COLUMN names one)"
    )
    assert texts(tmp_path / name, text_column="Urteil")[0] == "1"


def test_a_mark_in_the_name_of_one_column_divides_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('what; and why\nfine\n"good, really"\n')
    assert texts(tmp_path / "a.csv") == ["fine", "good, really"]
    (tmp_path / "b.csv").write_text("a;b\n1;2\n")
    assert texts(tmp_path / "b.csv", text_column="a;b") == ["1;2"]
    (tmp_path / "c.csv").write_text('\ntext,label\n"a;b",1\n')
    assert texts(tmp_path / "c.csv") == ["a;b"]


def test_the_key_of_a_text_is_guessed_as_the_column_of_a_table(tmp_path: Path) -> None:
    rows = [{"id": i, "url": "x/y", "body": f"a text, number {i}"} for i in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert texts(tmp_path / "a.jsonl") == [row["body"] for row in rows]
    assert how_read(f"{tmp_path}/a.jsonl") == [
        f"{tmp_path}/a.jsonl: the text is the key 'body' (others: url; {tmp_path}/a.jsonl:KEY names one)"
    ]
    assert texts(tmp_path / "a.jsonl", text_column="url") == ["x/y"] * 3
