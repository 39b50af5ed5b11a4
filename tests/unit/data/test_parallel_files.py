"""All formats of parallel files, and errors of files that do not match."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import tarfile
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nextword.core.errors import DataError, InvalidSetting, UnknownName
from nextword.data.corpus import split_of_name
from nextword.data.parallel import open_parallel
from nextword.data.parallel_files import tatoeba_columns
from tests.support.errors import raises

PAIRS = [("Go.", "Geh."), ("“Hi”, she said", "„Hallo“, sagte sie"), ("a\tb", "c  d "), (" 1 < 2 & 3", "x\u2028y")]
PLAIN = [("Go.", "Geh."), ('"Hi", she\u00a0said', "'Hallo'"), ("1 < 2 & 3", "so – so")]


def read(spec: object) -> list[tuple[str | None, str]]:
    return [(d.source, d.text) for d in open_parallel(str(spec), unsplit=True).documents("test")]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def two_files(folder: Path, pairs: list[tuple[str, str]]) -> None:
    for i, language in enumerate(("en", "de")):
        write(folder / f"c.{language}", "".join(f"{pair[i]}\n" for pair in pairs))


# ------------------------------------------------------------------------------------------------ two files

line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0\ufeff")).filter(str.strip)


@given(st.lists(st.tuples(line, line), min_size=1))
def test_read_aligned_files_round_trips(pairs: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        two_files(Path(folder), pairs)
        assert read(f"{folder}/c:en-de") == pairs
        assert read(f"{folder}/c:de-en") == [(target, source) for source, target in pairs]


field = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0\ufeff")).filter(str.strip)


@given(st.lists(st.tuples(field, field), min_size=1))
def test_read_table_round_trips(pairs: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/p.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("id", "en", "de"), *((i, *pair) for i, pair in enumerate(pairs))])
        with open(f"{folder}/p.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"en": a, "de": b}) + "\n" for a, b in pairs)
        assert read(f"{folder}/p.csv:en-de") == pairs
        assert read(f"{folder}/p.jsonl:en-de") == pairs


def test_read_aligned_files_strips_only_line_ends(tmp_path: Path) -> None:
    two_files(tmp_path, PAIRS)
    assert read(f"{tmp_path}/c:en-de") == PAIRS
    write(tmp_path / "w.en", "\ufeffa \r\n b")  # byte order mark and Windows line ends; no final line end
    write(tmp_path / "w.de", "c\nd\n")
    assert read(f"{tmp_path}/w:en-de") == [("a ", "c"), (" b", "d")]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_read_compressed_files(suffix: str, tmp_path: Path) -> None:
    packed = {
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".bz2": bz2.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }
    for i, language in enumerate(("en", "de")):
        text = "".join(f"{pair[i]}\n" for pair in PAIRS)
        (tmp_path / f"c.{language}{suffix}").write_bytes(packed[suffix](text.encode()))
    assert read(f"{tmp_path}/c:en-de") == PAIRS
    assert open_parallel(f"{tmp_path}/c:en-de", unsplit=True).bytes("test") is None


def pack(archive: Path, texts: dict[str, bytes]) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in texts.items():
            item = tarfile.TarInfo(f"en-de/{name}")
            item.size = len(text)
            tar.addfile(item, io.BytesIO(text))
    return archive


def test_read_archive(tmp_path: Path) -> None:
    texts = {
        "README.txt": b"about",
        "train.tags.en-de.en": "<url>x</url>\n a \r\nä\n".encode(),
        "train.tags.en-de.de": b"<url>x</url>\nb\nc\n",
        **{
            f"{split}.{language}": f"{split} {language}".encode()
            for split in ("dev", "test")
            for language in ("en", "de")
        },
    }
    archive = pack(tmp_path / "en-de.tgz", texts)
    corpus = open_parallel(f"{archive}:en-de")
    actual = {split: [(d.source, d.text) for d in corpus.documents(split)] for split in corpus.splits}
    assert actual["train"] == [("a", "b"), ("ä", "c")]
    assert actual["valid"] == [("dev en", "dev de")]
    assert actual["test"] == [("test en", "test de")]
    assert [(d.source, d.text) for d in open_parallel(f"{tmp_path}:de-en").documents("train")] == [
        ("b", "a"),
        ("c", "ä"),
    ]
    assert corpus.fingerprint != open_parallel(f"{archive}:de-en").fingerprint


def test_read_bad_archive_raises(tmp_path: Path) -> None:
    for bad in (b"\xe4", b"a\0b"):
        archive = pack(tmp_path / "a.tgz", {"test.en": b"a\n", "test.de": bad})
        with raises(DataError, match=r"en-de/test\.de", path=archive):
            read(f"{archive}:en-de")
    archive.write_bytes(archive.read_bytes()[:60])
    with raises(DataError, path=archive):
        read(f"{archive}:en-de")


def test_read_iwslt_skips_lines_of_tags(tmp_path: Path) -> None:
    head = '<doc docid="1" genre="lectures">\n<url>http://x</url>\n<keywords>k</keywords>\n<speaker>s</speaker>\n'
    head += "<talkid>7</talkid>\n<title>T</title>\n<description>D</description>\n<reviewer></reviewer>\n"
    write(tmp_path / "train.tags.en-de.en", f"{head} Hello < you. \nA <i>b</i>\n</doc>\n")
    write(tmp_path / "train.tags.en-de.de", f"{head}Hallo du.\n<b>A</b> b\n</doc>\n")
    assert read(f"{tmp_path}/train.tags.en-de:en-de") == [("Hello < you.", "Hallo du."), ("A <i>b</i>", "<b>A</b> b")]


@pytest.mark.parametrize(
    ("source", "target", "stem"),
    [
        ("newstest2014-deen-src.en.sgm", "newstest2014-deen-ref.de.sgm", "newstest2014-deen"),
        ("IWSLT15.TED.tst2013.en-de.en.xml", "IWSLT15.TED.tst2013.en-de.de.xml", "IWSLT15.TED.tst2013.en-de"),
    ],
)
def test_read_segments(source: str, target: str, stem: str, tmp_path: Path) -> None:
    form = '<srcset setid="x">\n<doc sysid="ref" docid="d">\n<title>no</title>\n<p>\n{}\n</p>\n</doc>\n</srcset>\n'
    write(
        tmp_path / source,
        form.format('<seg id="1"> Tom &amp; Jerry &lt;3 </seg>\n<SEG id="2">one\n line</SEG><seg id="3">x</seg>'),
    )
    write(
        tmp_path / target,
        form.format('<seg id="1">Tom und &quot;J&quot;</seg> <seg id="2">&#228;</seg>\n<seg id="3">y</seg>'),
    )
    expected = [("Tom & Jerry <3", 'Tom und "J"'), ("one line", "ä"), ("x", "y")]
    assert read(f"{tmp_path}/{stem}:en-de") == expected
    assert read(f"{tmp_path}/{stem}:de-en") == [(b, a) for a, b in expected]
    text = (tmp_path / target).read_text()
    write(tmp_path / target, text.replace('<seg id="3">y</seg>', ""))
    with raises(DataError, match=r"3.*2.*'x'", path=tmp_path / source, line=7):
        read(f"{tmp_path}/{stem}:en-de")
    write(tmp_path / target, text.replace("y</seg>", "y"))
    with raises(DataError, path=tmp_path / target, line=6):
        read(f"{tmp_path}/{stem}:en-de")


def test_read_prefers_src_for_source_and_ref_for_target(tmp_path: Path) -> None:
    for role in ("src", "ref"):
        for language in ("en", "de"):
            write(tmp_path / f"t-{role}.{language}.sgm", f"<seg>{language} {role}</seg>")
    assert read(f"{tmp_path}/t:en-de") == [("en src", "de ref")]
    assert read(f"{tmp_path}/t:de-en") == [("de src", "en ref")]


def test_read_unequal_numbers_of_lines_raises(tmp_path: Path) -> None:
    write(tmp_path / "c.en", "a\nb\nc\nthe fourth\ne\n")
    write(tmp_path / "c.de", "a\nb\nc\n")
    with raises(DataError, match=r"5.*3.*'the fourth'", path=tmp_path / "c.en", line=4):
        read(f"{tmp_path}/c:en-de")
    with raises(DataError, match=r"3.*5.*'the fourth'", path=tmp_path / "c.en", line=4):
        read(f"{tmp_path}/c:de-en")
    write(tmp_path / "c.de", "")
    with raises(DataError, path=tmp_path / "c.en", line=1):
        read(f"{tmp_path}/c:en-de")


def test_read_empty_side_raises(tmp_path: Path) -> None:
    write(tmp_path / "c.en", "a\n\nc\n")
    write(tmp_path / "c.de", "a\n \nc\n")
    assert read(f"{tmp_path}/c:en-de") == [("a", "a"), ("c", "c")]  # empty on both sides
    write(tmp_path / "c.de", "a\nb\nc\n")
    with raises(DataError, path=tmp_path / "c.en", line=2):
        read(f"{tmp_path}/c:en-de")
    with raises(DataError, path=tmp_path / "c.en", line=2):
        read(f"{tmp_path}/c:de-en")
    two_files(tmp_path, [("", "")])
    with raises(DataError, path=tmp_path / "c.en", line=None):
        read(f"{tmp_path}/c:en-de")


def test_read_invalid_utf8_gives_line(tmp_path: Path) -> None:
    two_files(tmp_path, PLAIN)
    (tmp_path / "c.de").write_bytes(b"a\n\xe4\n")
    with raises(DataError, match="0xe4", path=tmp_path / "c.de", line=2):
        read(f"{tmp_path}/c:en-de")


@pytest.mark.parametrize(
    ("stem", "split"),
    [
        ("train", "train"),
        ("train.tags.en-de", "train"),
        ("val", "valid"),
        ("IWSLT15.TED.dev2010.en-vi", "valid"),
        ("newsdev2016-enro", "valid"),
        ("test_2016_flickr", "test"),
        ("IWSLT15.TED.tst2013.en-vi", "test"),
        ("newstest2014-deen", "test"),
        ("europarl-v7.de-en", None),
        ("contest", None),
        ("train-dev", None),
    ],
)
def test_split_of_name(stem: str, split: str | None) -> None:
    assert split_of_name(stem) == split


# ------------------------------------------------------------------------------------------------ one file


@pytest.mark.parametrize("name", ["pairs.tsv", "deu.txt"])
@pytest.mark.parametrize("form", ["{0}\t{1}", "{0}\t{1}\tCC-BY 2.0 (France) #{0}", "7\t{0}\t9\t{1}"])
def test_read_tatoeba_without_header(form: str, name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, "".join(form.format(*pair) + "\n" for pair in PLAIN))
    assert read(path) == PLAIN
    back = "4-2" if form.startswith("7") else "2-1"
    assert read(f"{path}:{back}") == [(target, source) for source, target in PLAIN]
    assert open_parallel(path, unsplit=True).fingerprint != open_parallel(f"{path}:{back}", unsplit=True).fingerprint


def test_tatoeba_columns_of_each_format() -> None:
    assert tatoeba_columns(["Go.", "Geh."]) == tatoeba_columns(["Go.", "Geh.", "by"]) == ("1", "2")
    assert tatoeba_columns(["1", "Go.", "2", "Geh."]) == ("2", "4")
    assert tatoeba_columns(["en", "de", "Go.", "Geh."]) is None


@pytest.mark.parametrize("names", [("source", "target"), ("src", "tgt"), ("en", "de"), ("the-text", "the-sum")])
@pytest.mark.parametrize("form", ["tsv", "csv", "jsonl", "nested.jsonl"])
def test_read_named_columns(names: tuple[str, str], form: str, tmp_path: Path) -> None:
    path = tmp_path / f"p.{form}"
    rows = [{"id": str(i), names[1]: target, names[0]: source} for i, (source, target) in enumerate(PLAIN)]
    if form == "csv":
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif form == "tsv":
        write(path, "".join("\t".join(row) + "\n" for row in [rows[0].keys(), *(row.values() for row in rows)]))
    else:
        nested = form.startswith("nested")
        write(
            path, "".join(json.dumps({"id": row["id"], "translation": row} if nested else row) + "\n\n" for row in rows)
        )
    assert read(f"{path}:{'-'.join(names)}") == PLAIN
    if names in (("source", "target"), ("src", "tgt")):
        assert read(path) == PLAIN
    ids = [d.id for d in open_parallel(f"{path}:{'-'.join(names)}", unsplit=True).documents("test")]
    assert ids == (["0", "1", "2"] if "json" in form else [f"p.{form}:{i}" for i in (2, 3, 4)])


def test_open_folder_of_tables(tmp_path: Path) -> None:
    for i, split in enumerate(("train", "validation", "test")):
        write(tmp_path / f"{split}.jsonl", json.dumps({"article": f"long {i}", "summary": f"short {i}"}) + "\n")
    corpus = open_parallel(f"{tmp_path}:article-summary")
    actual = {split: [(d.source, d.text) for d in corpus.documents(split)] for split in corpus.splits}
    assert actual == {s: [(f"long {i}", f"short {i}")] for i, s in enumerate(("train", "valid", "test"))}


@pytest.mark.parametrize(
    ("name", "text", "pair", "line"),
    [
        ("a.tsv", "a\tb\nc\n", "", 2),
        ("a.tsv", "a\tb\n\n \tc\n", "", 3),
        ("a.csv", 'en,de\n"x,y\n', ":en-de", 2),
        ("a.csv", "en,de\n", ":en-de", None),
        ("a.jsonl", '{"en": "a", "de": "b"}\n{"en": "a", "de": 1}\n', ":en-de", 2),
        ("a.jsonl", '{"en": "a", "de": "b"}\n{"en": "", "de": "c"}\n', ":en-de", 2),
        ("a.jsonl", '{"en": "a", "de": "b"}\nno\n', ":en-de", 2),
        ("a.jsonl", '{"en": "a", "de": "b"}\n[1]\n', ":en-de", 2),
        ("a.jsonl", '{"en": "a", "de": "\\ud800"}\n', ":en-de", 1),
        ("a.jsonl", "", ":en-de", None),
        ("a.txt", "just text\n", "", None),
    ],
)
def test_read_bad_table_gives_its_line(name: str, text: str, pair: str, line: int | None, tmp_path: Path) -> None:
    path = write(tmp_path / name, text)
    with raises(DataError, path=str(path), line=line):
        read(f"{path}{pair}")


@pytest.mark.parametrize(
    ("name", "text", "pair", "unknown", "known"),
    [
        ("a.tsv", "a\tb\tc\td\n", "", "", ("1", "2", "3", "4")),
        ("a.tsv", "a\tb\n", ":en-de", "en", ("a", "b")),
        ("a.tsv", "en\tde\nx\ty\n", ":en-fr", "fr", ("en", "de")),
        ("a.tsv", "a\tb\n", ":1-3", "3", ("1", "2")),
        ("a.jsonl", '{"en": "a", "de": "b"}\n', ":en-fr", "fr", ("en", "de")),
    ],
)
def test_read_table_with_unknown_column_raises(
    name: str, text: str, pair: str, unknown: str, known: tuple[str, ...], tmp_path: Path
) -> None:
    with raises(UnknownName, name=unknown, known=known):
        read(f"{write(tmp_path / name, text)}{pair}")


def test_read_table_of_two_columns_has_the_source_first(tmp_path: Path) -> None:
    for text in ("en,de\nx,y\n", "id,en,de\n1,x,y\n", "x,y\n"):
        assert read(write(tmp_path / "a.csv", text)) == [("x", "y")]
    with raises(InvalidSetting, key="pair", value=["en", "de"]):  # the keys of an object have no order
        read(write(tmp_path / "a.jsonl", '{"translation": {"en": "a", "de": "b"}}\n'))


def test_read_table_with_one_column_is_not_parallel(tmp_path: Path) -> None:
    with raises(DataError, match=r"a\.jsonl.*docs/parallel\.md"):
        read(write(tmp_path / "a.jsonl", '{"text": "a"}\n'))


def test_fingerprint_depends_on_order_of_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"en": "a", "de": "b"}\n')
    assert (
        open_parallel(f"{path}:en-de", unsplit=True).fingerprint
        != open_parallel(f"{path}:de-en", unsplit=True).fingerprint
    )
