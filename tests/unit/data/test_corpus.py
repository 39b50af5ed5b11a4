"""Splits: honest, stable, never empty; and the ways of naming a corpus."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from nextword.core.errors import NextwordError
from nextword.core.types import Document
from nextword.data.corpus import Corpus, given, side
from nextword.data.filters.decontaminate import leakage
from nextword.data.opening import open_corpus, open_whole


def sentence(i: int) -> str:
    return f"Document {i} says something about the number {i * i}."


def jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def held(corpus: Corpus, split: str) -> list[str]:
    return [document.text for document in corpus.documents(split)]


def test_made_split_is_a_partition_of_about_90_5_5(tmp_path: Path) -> None:
    texts = [sentence(i) for i in range(2000)]
    corpus = open_corpus(jsonl(tmp_path / "a.jsonl", texts))
    parts = {split: held(corpus, split) for split in corpus.splits}
    assert corpus.splits == ("train", "valid", "test")
    assert sorted(text for part in parts.values() for text in part) == sorted(texts)
    assert 1740 < len(parts["train"]) < 1860
    assert 60 < len(parts["valid"]) < 140
    assert 60 < len(parts["test"]) < 140
    assert held(corpus, "valid") == parts["valid"]  # read again


def test_duplicates_fall_on_one_side_however_spaced(tmp_path: Path) -> None:
    texts = [sentence(i) for i in range(500)]
    again = [text.replace(" ", "\n  ").upper() for text in texts]
    corpus = open_corpus(jsonl(tmp_path / "a.jsonl", texts + again))
    for split in corpus.splits:
        folded = [" ".join(text.lower().split()) for text in held(corpus, split)]
        assert all(folded.count(text) == 2 for text in folded)
    assert leakage(corpus) == {"valid": 0, "test": 0}


def test_adding_documents_moves_none(tmp_path: Path) -> None:
    texts = [sentence(i) for i in range(1000)]
    before = set(held(open_corpus(jsonl(tmp_path / "a.jsonl", texts)), "test"))
    after = set(held(open_corpus(jsonl(tmp_path / "a.jsonl", [*texts, *map(sentence, range(5000, 5500))])), "test"))
    assert before <= after


def test_a_single_novel_is_split_by_passage_in_order_and_exactly(tmp_path: Path) -> None:
    novel = "".join(f"Chapter {i}. {sentence(i)} {sentence(i + 1)}\n\n" for i in range(20_000))
    (tmp_path / "novel.txt").write_text(novel)
    corpus = open_corpus(tmp_path / "novel.txt")
    assert corpus.unit == 3000
    found = {split: list(corpus.documents(split)) for split in corpus.splits}
    assert sum(len(d.text) for part in found.values() for d in part) == len(novel)
    for part in found.values():
        places = [novel.index(d.text) for d in part]
        assert places == sorted(places)
        for last, place, document in zip(part, places[1:], part[1:], strict=False):
            # Continues exactly where the one before stopped, or else there is a gap between them.
            assert document.continues == (novel.index(last.text) + len(last.text) == place)
    assert 0.02 < sum(len(d.text) for d in found["test"]) / len(novel) < 0.09


def test_small_texts_get_small_passages_and_every_split_gets_some(tmp_path: Path) -> None:
    for lines in (120, 300, 1000):
        path = tmp_path / f"{lines}.txt"
        path.write_text("".join(f"{sentence(i)}\n" for i in range(lines)))
        corpus = open_corpus(path)
        assert all(held(corpus, split) for split in corpus.splits)
        assert sum(len(t) for s in corpus.splits for t in held(corpus, s)) == path.stat().st_size


def test_a_text_too_short_to_split_says_how_much_is_needed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Too short.\n")
    with pytest.raises(NextwordError, match="too short to split: 11 characters, and about 9,000 are needed"):
        open_corpus(tmp_path / "a.txt")


def test_repeated_lines_cannot_be_split_without_leaking(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("All work and no play makes Jack a dull boy of course, says he.\n" * 600)
    with pytest.raises(NextwordError, match="too few passages that differ"):
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
def test_given_splits_are_told_by_name(tmp_path: Path, names: list[str], splits: set[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert set(given(tmp_path)) == splits


def test_a_missing_split_comes_out_of_train(tmp_path: Path) -> None:
    jsonl(tmp_path / "train.jsonl", [sentence(i) for i in range(1000)])
    jsonl(tmp_path / "test.jsonl", [sentence(i) for i in range(990, 1010)])
    corpus = open_corpus(tmp_path)
    assert corpus.splits == ("train", "valid", "test")
    assert "valid taken out of train by hash" in corpus.source
    assert len(held(corpus, "train")) + len(held(corpus, "valid")) == 1000
    assert held(corpus, "test") == [sentence(i) for i in range(990, 1010)]
    seen = sum(side(sentence(i), {"valid": 0.05}) == "train" for i in range(990, 1000))
    assert leakage(corpus) == {"valid": 0, "test": seen}


def test_folders_named_as_splits(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.txt").write_text(split)
    assert {s: held(open_corpus(tmp_path), s) for s in ("train", "valid", "test")} == {
        "train": ["train"],
        "valid": ["valid"],
        "test": ["test"],
    }


def test_1b_word_tests_on_the_first_held_out_shard(tmp_path: Path) -> None:
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


def test_fingerprint_knows_content_and_options_but_not_the_place(tmp_path: Path) -> None:
    texts = [sentence(i) for i in range(500)]
    (tmp_path / "x").mkdir()
    a, b = jsonl(tmp_path / "a.jsonl", texts), jsonl(tmp_path / "x" / "b.jsonl", texts)
    assert open_corpus(a).fingerprint == open_corpus(b).fingerprint
    assert open_corpus(a).fingerprint != open_corpus(jsonl(b, [*texts, "more"])).fingerprint


def test_standard_input_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"{sentence(i)}\n" for i in range(1000))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    corpus = open_corpus("-")
    assert held(corpus, "test") == held(corpus, "test") != []


def test_unknown_split_and_unknown_name(tmp_path: Path) -> None:
    jsonl(tmp_path / "test.jsonl", ["x"])
    corpus = open_corpus(tmp_path)
    with pytest.raises(NextwordError, match="has no split 'train'; it has test"):
        corpus.documents("train")
    with pytest.raises(NextwordError, match="Did you mean wikitext-2"):
        open_corpus("wikitext2b")
    with pytest.raises(NextwordError, match="There is no file or folder"):
        open_corpus(str(tmp_path / "absent.txt"))


def test_documents_are_values() -> None:
    assert Document("a") == Document("a", continues=False)


def test_a_column_is_named_after_a_colon(tmp_path: Path) -> None:
    rows = "".join(f"{i},a longer text that nobody asked for {i},{sentence(i)}\n" for i in range(300))
    (tmp_path / "a.csv").write_text("id,other,review\n" + rows)
    (tmp_path / "a.jsonl").write_text("".join(f'{{"review": "{sentence(i)}"}}\n' for i in range(300)))
    for name in ("a.csv", "a.jsonl"):
        whole = open_whole(f"{tmp_path / name}:review")
        assert {one.text for one in whole.documents("test")} == {sentence(i) for i in range(300)}
        split = open_corpus(f"{tmp_path / name}:review")
        assert sum(len(held(split, one)) for one in split.splits) == 300
    with pytest.raises(NextwordError, match=r"no column 'reviews'.*Did you mean 'review'"):
        list(open_whole(f"{tmp_path / 'a.csv'}:reviews").documents("test"))
    with pytest.raises(NextwordError, match=r'no text under "text"; keys with a text: review\. .*: a\.jsonl:KEY'):
        list(open_whole(f"{tmp_path / 'a.jsonl'}:text").documents("test"))
    (tmp_path / "a:b.txt").write_text("a colon in a name")
    assert [one.text for one in open_whole(str(tmp_path / "a:b.txt")).documents("test")] == ["a colon in a name"]
