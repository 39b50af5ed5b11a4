"""Labeled sentences: the Stanford Sentiment Treebank and TREC questions."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextword.core.errors import DataError, NextwordError
from nextword.tasks.datasets.text_classification import coarse_label, read_labeled_lines
from nextword.tasks.text_data import read_one

QUESTIONS = ["DESC:manner How ?", "NUM:date When was it ?", "NUM:count How many ?", "DESC:def What is it ?"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "data" / "sent-conv"
    place.mkdir(parents=True)
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path / "data"))
    for split in ("train", "dev", "test"):
        lines = [f"{i % 2} a {split} film , number {i}" for i in range(8)]
        (place / f"stsa.binary.{split}").write_text("\n".join(lines) + "\n")
    many = [f"{line[:-1]}{i} ?" for i in range(12) for line in QUESTIONS]
    (place / "TREC.train").write_bytes("\n".join([*many, "DESC:def What is a café ?"]).encode("latin-1"))
    (place / "TREC.test").write_text("\n".join(QUESTIONS))
    return place


def test_sst_binary_reads_labeled_lines(folder: Path) -> None:
    data = read_one("SST-binary")
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 8, "dev": 8, "test": 8}
    assert data.labels == ("0", "1")
    assert (data.kind, data.frame) == ("classification", "classify")
    assert data.splits["dev"].texts[3] == "a dev film , number 3"
    assert read_one("stsa.binary").fingerprint == data.fingerprint


def test_trec_has_coarse_and_fine_labels_and_a_held_out_dev(folder: Path) -> None:
    data = read_one("TREC-6")
    assert data.labels == ("DESC", "NUM")
    assert len(data.splits["train"]) + len(data.splits["dev"]) == 49
    assert len(data.splits["dev"]) == 4
    assert data.splits["test"].texts == ["How ?", "When was it ?", "How many ?", "What is it ?"]
    assert any("held out" in note for note in data.notes)
    assert "What is a café ?" in data.splits["train"].texts + data.splits["dev"].texts
    assert read_one("trec").fingerprint == data.fingerprint
    assert read_one("TREC-50").labels == ("DESC:def", "DESC:manner", "NUM:count", "NUM:date")


TREES = {
    "train": [
        "(3 (2 It) (4 (2 's) (4 great)))",
        "(1 (2 -LRB-) (1 (1 dull) (2 -RRB-)))",
        "(2 Hmmm)",
        "(4 1\\/2)",
        "(0 No)",
    ],
    "dev": ["(0 (0 Bad) (2 .))", "(2 (2 A) (2 film))"],
    "test": ["(4 Good)", "(0 (2 Not) (3 good))"],
}


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    for name in ("sst-2", "sst-5"):
        (tmp_path / name / "trees").mkdir(parents=True)
        for split, some in TREES.items():
            (tmp_path / name / "trees" / f"{split}.txt").write_text("\n".join(some) + "\n")
    return tmp_path / "sst-5" / "trees"


def test_sst_reads_treebank_trees(trees: Path) -> None:
    five = read_one("SST-fine").splits
    assert five["train"].texts == ["It 's great", "( dull )", "Hmmm", "1/2", "No"]
    assert five["train"].labels == ["3", "1", "2", "4", "0"]
    assert five["dev"].labels == ["0", "2"]
    data = read_one("SST-binary")
    assert {split: rows.labels for split, rows in data.splits.items()} == {
        "train": ["1", "0", "1", "0"],
        "dev": ["0"],
        "test": ["1", "0"],
    }
    assert data.splits["train"].texts == ["It 's great", "( dull )", "1/2", "No"]
    assert any("1 neutral sentences of train" in note for note in data.notes)


@pytest.mark.parametrize("line", ["3 a film", "(3 (2 a) (2 film)", "(5 film)", "(2 a) (2 film)", "(3 a film)", "(2)"])
def test_malformed_tree_raises_with_its_line(trees: Path, line: str) -> None:
    (trees / "dev.txt").write_text(f"(2 Fine)\n\n{line}\n")
    with pytest.raises(DataError) as error:
        read_one("SST-fine")
    assert (error.value.path, error.value.line) == (str(trees / "dev.txt"), 3)
    (trees / "dev.txt").unlink()
    with pytest.raises(DataError, match=r"stsa.fine.dev or trees/dev.txt"):
        read_one("SST-fine")


def test_line_without_text_and_absent_files_raise(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "TREC.test").write_text("DESC:def What ?\nNUM:date\n")
    with pytest.raises(DataError, match="'NUM:date'") as error:
        read_labeled_lines(folder / "TREC.test", coarse_label)
    assert error.value.line == 2
    monkeypatch.setenv("NEXTWORD_DATA", "")
    with pytest.raises(NextwordError, match="trec"):
        read_one("TREC-6")


def test_real_sst_and_trec_have_the_published_sizes(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    sizes = {name: {s: len(rows) for s, rows in read_one(name).splits.items()} for name in ("SST-binary", "TREC-6")}
    assert sizes["SST-binary"] == {"train": 6920, "dev": 872, "test": 1821}
    assert sizes["TREC-6"]["train"] + sizes["TREC-6"]["dev"] == 5452
    assert sizes["TREC-6"]["test"] == 500
    assert len(read_one("TREC-6").labels) == 6
