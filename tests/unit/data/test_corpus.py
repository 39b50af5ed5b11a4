"""Splits: disjoint, stable, never empty; and specs of a corpus."""

from __future__ import annotations

import errno
import io
import json
import sys
import tempfile
from pathlib import Path

import pytest

from nextword.core.errors import CannotWrite, DataError, MissingFile, UnknownName
from nextword.data.corpus import Corpus, assign_split, find_splits
from nextword.data.filters.decontaminate import count_leaks
from nextword.data.opening import open_corpus, open_unsplit
from tests.support.errors import raises


def sentence(i: int) -> str:
    return f"Document {i} says something about the number {i * i}."


def jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def held(corpus: Corpus, split: str) -> list[str]:
    return [document.text for document in corpus.documents(split)]


def test_split_by_hash_is_a_partition_of_about_90_5_5(tmp_path: Path) -> None:
    texts = [sentence(i) for i in range(2000)]
    corpus = open_corpus(jsonl(tmp_path / "a.jsonl", texts))
    parts = {split: held(corpus, split) for split in corpus.splits}
    assert corpus.splits == ("train", "valid", "test")
    assert sorted(text for part in parts.values() for text in part) == sorted(texts)
    assert 1740 < len(parts["train"]) < 1860
    assert 60 < len(parts["valid"]) < 140
    assert 60 < len(parts["test"]) < 140
    assert held(corpus, "valid") == parts["valid"]  # read again


def test_split_by_hash_keeps_duplicates_together_whatever_the_spacing(tmp_path: Path) -> None:
    texts = [sentence(i) for i in range(500)]
    again = [text.replace(" ", "\n  ").upper() for text in texts]
    corpus = open_corpus(jsonl(tmp_path / "a.jsonl", texts + again))
    for split in corpus.splits:
        folded = [" ".join(text.lower().split()) for text in held(corpus, split)]
        assert all(folded.count(text) == 2 for text in folded)
    assert count_leaks(corpus) == {"valid": 0, "test": 0}


def test_split_by_hash_is_stable_when_documents_are_added(tmp_path: Path) -> None:
    texts = [sentence(i) for i in range(1000)]
    before = set(held(open_corpus(jsonl(tmp_path / "a.jsonl", texts)), "test"))
    after = set(held(open_corpus(jsonl(tmp_path / "a.jsonl", [*texts, *map(sentence, range(5000, 5500))])), "test"))
    assert before <= after


def test_single_document_is_split_by_passages_in_order(tmp_path: Path) -> None:
    novel = "".join(f"Chapter {i}. {sentence(i)} {sentence(i + 1)}\n\n" for i in range(20_000))
    (tmp_path / "novel.txt").write_text(novel)
    corpus = open_corpus(tmp_path / "novel.txt")
    assert corpus.passage_size == 3000
    documents = {split: list(corpus.documents(split)) for split in corpus.splits}
    assert sum(len(d.text) for part in documents.values() for d in part) == len(novel)
    for part in documents.values():
        places = [novel.index(d.text) for d in part]
        assert places == sorted(places)
        for last, place, document in zip(part, places[1:], part[1:], strict=False):
            # A passage continues exactly where the previous one stopped, unless there is a gap.
            assert document.continues == (novel.index(last.text) + len(last.text) == place)
    assert 0.02 < sum(len(d.text) for d in documents["test"]) / len(novel) < 0.09


def test_short_text_gets_small_passages_in_every_split(tmp_path: Path) -> None:
    for lines in (120, 300, 1000):
        path = tmp_path / f"{lines}.txt"
        path.write_text("".join(f"{sentence(i)}\n" for i in range(lines)))
        corpus = open_corpus(path)
        assert all(held(corpus, split) for split in corpus.splits)
        assert sum(len(t) for s in corpus.splits for t in held(corpus, s)) == path.stat().st_size


def test_text_too_short_to_split_raises(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Too short.\n")
    with raises(DataError, match="11 characters.*9,000"):
        open_corpus(tmp_path / "a.txt")


def test_repetitive_text_cannot_be_split(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("All work and no play makes Jack a dull boy of course, says he.\n" * 600)
    with raises(DataError, path="a.txt"):
        open_corpus(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"], {"train", "valid", "test"}),
        (["wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens", "README.md"], {"train", "valid", "test"}),
        (["train.jsonl.xz", "dev.jsonl.xz"], {"train", "valid"}),
        (["train.txt", "validation.txt"], {"train", "valid"}),
        (["train.txt", "val.txt", "test.txt"], {"train", "valid", "test"}),
        (["wiki.valid.raw", "wiki.test.raw"], {"valid", "test"}),
        (["one.md", "test.md"], set()),
        (["one.md", "train-song.md"], set()),
        (["a.txt", "b.txt"], set()),
    ],
)
def test_splits_come_from_file_names(tmp_path: Path, names: list[str], splits: set[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert set(find_splits(tmp_path)) == splits


def test_missing_split_is_taken_out_of_train(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", [sentence(i) for i in range(1000)])
    jsonl(tmp_path / "test.jsonl", [sentence(i) for i in range(990, 1010)])
    corpus = open_corpus(tmp_path)
    assert corpus.splits == ("train", "valid", "test")
    assert "valid taken out of train by hash" in corpus.source
    assert len(held(corpus, "train")) + len(held(corpus, "valid")) == 1000
    assert held(corpus, "test") == [sentence(i) for i in range(990, 1010)]
    seen = sum(assign_split(sentence(i), {"valid": 0.05}) == "train" for i in range(990, 1000))
    assert count_leaks(corpus) == {"valid": 0, "test": seen}


def test_splits_come_from_folder_names(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.txt").write_text(split)
    assert {s: held(open_corpus(tmp_path), s) for s in ("train", "valid", "test")} == {
        "train": ["train"],
        "valid": ["valid"],
        "test": ["test"],
    }


def test_1b_word_test_split_is_the_first_held_out_shard(tmp_path: Path) -> None:
    for folder, names in {
        "training-monolingual": ["news.en-00001-of-00100", "news.en-00002-of-00100"],
        "heldout-monolingual": [f"news.en.heldout-0000{i}-of-00050" for i in range(3)],
    }.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text(f"from {name}\n")
    corpus = open_corpus(tmp_path)
    assert held(corpus, "test") == ["from news.en.heldout-00000-of-00050\n"]
    assert held(corpus, "valid") == ["from news.en.heldout-00001-of-00050\n"]
    assert len(held(corpus, "train")) == 2


def test_fingerprint_depends_on_content_and_options_not_on_the_path(tmp_path: Path) -> None:
    texts = [sentence(i) for i in range(500)]
    (tmp_path / "x").mkdir()
    a, b = jsonl(tmp_path / "a.jsonl", texts), jsonl(tmp_path / "x" / "b.jsonl", texts)
    assert open_corpus(a).fingerprint == open_corpus(b).fingerprint
    assert open_corpus(a).fingerprint != open_corpus(jsonl(b, [*texts, "more"])).fingerprint


def test_standard_input_can_be_read_repeatedly(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"{sentence(i)}\n" for i in range(1000))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    corpus = open_corpus("-")
    assert held(corpus, "test") == held(corpus, "test") != []


def test_full_disk_for_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class FullFile(io.BytesIO):
        def write(self, data: object, /) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", lambda **_: FullFile())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"text\n" * 1000)))
    with pytest.raises(CannotWrite, match="TMPDIR"):
        open_corpus("-")


def test_unknown_split_name_or_file_raises(tmp_path: Path) -> None:
    jsonl(tmp_path / "test.jsonl", ["x"])
    corpus = open_corpus(tmp_path)
    with raises(UnknownName, name="train", known=("test",)):
        corpus.documents("train")
    with raises(UnknownName, match="'wikitext-2'", name="wikitext2b"):
        open_corpus("wikitext2b")
    with raises(MissingFile, path=tmp_path / "absent.txt"):
        open_corpus(str(tmp_path / "absent.txt"))


def test_open_column_after_a_colon(tmp_path: Path) -> None:
    rows = "".join(f"{i},a longer text in another column {i},{sentence(i)}\n" for i in range(300))
    (tmp_path / "a.csv").write_text("id,other,review\n" + rows)
    (tmp_path / "a.jsonl").write_text("".join(f'{{"review": "{sentence(i)}"}}\n' for i in range(300)))
    for name in ("a.csv", "a.jsonl"):
        corpus = open_unsplit(f"{tmp_path / name}:review")
        assert {document.text for document in corpus.documents("test")} == {sentence(i) for i in range(300)}
        split = open_corpus(f"{tmp_path / name}:review")
        assert sum(len(held(split, name)) for name in split.splits) == 300
    with raises(UnknownName, match="'review'", name="reviews"):
        list(open_unsplit(f"{tmp_path / 'a.csv'}:reviews").documents("test"))
    with raises(DataError, match="review", path=tmp_path / "a.jsonl", line=1):
        list(open_unsplit(f"{tmp_path / 'a.jsonl'}:text").documents("test"))
    (tmp_path / "a:b.txt").write_text("a colon in a name")
    assert [document.text for document in open_unsplit(str(tmp_path / "a:b.txt")).documents("test")] == [
        "a colon in a name"
    ]
