"""Tagged data sets in special formats: Penn Treebank trees, CoNLL-2002, fine-grained entities."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from nextword.core.errors import DataError, UnknownName
from nextword.data.conll import detect_scheme, open_tagged, read_trees
from nextword.tasks.datasets.tagged import read_tags
from tests.support.errors import raises

TREE = """
( (S
    (NP-SBJ-1 (NNP Mr.) (NNP Vinken) )
    (VP (VBZ is)
      (NP-PRD (NN chairman) (-NONE- *T*-1) ))
    (. .) ))
( (FRAG (-LRB- -LRB-) (NN 1\\/2) ) )
"""


def tagged_words(text: str) -> list[list[tuple[str, str]]]:
    sentences = read_trees("a.mrg", text.splitlines(keepends=True))
    return [list(zip(sentence.words, sentence.tags, strict=True)) for sentence in sentences]


def test_read_trees_gives_words_tags_and_lines() -> None:
    first = [("Mr.", "NNP"), ("Vinken", "NNP"), ("is", "VBZ"), ("chairman", "NN"), (".", ".")]
    assert tagged_words(TREE) == [first, [("-LRB-", "-LRB-"), ("1\\/2", "NN")]]
    assert next(read_trees("a", TREE.splitlines())).lines == (3, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("( (NN a) )\n( (S (NN b)\n", 2),
        ("( (NN a) )\nword\n", 2),
        ("( (NN a) ))\n", 1),
        ("( (NN two words) )\n", 1),
    ],
)
def test_read_broken_tree_gives_its_line(text: str, line: int) -> None:
    with raises(DataError, path="a.mrg", line=line):
        tagged_words(text)


def test_open_treebank_splits_articles_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    (tmp_path / "nltk").mkdir()
    articles = {number: f"( (NN a{number}) )\n" for number in (1, 99, 159, 160, 179, 180, 199)}
    with zipfile.ZipFile(tmp_path / "nltk/treebank.zip", "w") as archive:
        for number, text in articles.items():
            archive.writestr(f"treebank/combined/wsj_{number:04}.mrg", text)
    wanted = {"train": ["a1", "a99", "a159"], "dev": ["a160", "a179"], "test": ["a180", "a199"]}
    first_words = {
        split: [sentence.words[0] for sentence in text.sentences] for split, text in open_tagged("treebank").items()
    }
    assert first_words == wanted
    with raises(UnknownName, name="ner", known=("pos",)):
        open_tagged("treebank", "ner")
    for section in range(25):  # the complete treebank, by sections
        folder = tmp_path / f"wsj-pos/parsed/mrg/wsj/{section:02}"
        folder.mkdir(parents=True)
        (folder / f"wsj_{section:02}01.mrg").write_text(f"( (NN s{section}) )\n")
    actual = {
        split: [sentence.words[0] for sentence in text.sentences] for split, text in open_tagged("wsj-pos").items()
    }
    numbers = {"train": range(19), "dev": range(19, 22), "test": range(22, 25)}
    assert actual == {split: [f"s{i}" for i in some] for split, some in numbers.items()}


def test_open_conll2002_with_two_or_three_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    folder = tmp_path / "conll2002"
    folder.mkdir()
    for part in ("train", "testa", "testb"):
        (folder / f"esp.{part}").write_text("Melbourne B-LOC\n( O\n. B-LOC\n\nSan I-LOC\nSebastián I-LOC\n")
        (folder / f"ned.{part}").write_text("-DOCSTART- -DOCSTART- O\nJan N B-PER\nloopt V O\n")
    spanish = read_tags("conll2002-es", scheme="IOB2")
    assert spanish.splits["test"].sentences[1].tags == ("B-LOC", "I-LOC")  # as in the CoNLL script
    assert len(spanish.notes) >= 3
    assert "1 sentences" in spanish.notes[0]
    assert "line 5" in spanish.notes[0]
    assert open_tagged("conll2002-nl", "pos")["dev"].sentences[0].tags == ("N", "V")
    (folder / "ned.testb").write_text("Jan N I-PER\n")
    with raises(DataError, match="'I-PER'.*IOB2", path=folder / "ned.testb", line=1):
        detect_scheme(open_tagged("conll2002-nl"))


def test_open_fine_grained_entities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    folder = tmp_path / "fgn"
    folder.mkdir()
    for name in ("train.txt", "dev.txt", "test.txt"):
        (folder / name).write_text("Ann\tB-/person/actor\nMary\tI-/person/actor\nspoke\tO\n\nRome\tB-/location/city\n")
    data = read_tags("fgn", scheme="IOB2")
    assert data.labels == ("O", "B-/location/city", "B-/person/actor", "I-/person/actor")
    assert data.metrics[0] == "span_f1"


def test_read_trees_equals_nltk(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Tree = pytest.importorskip("nltk", reason="NLTK ABSENT: its reader is not compared with").Tree
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    theirs = []
    with zipfile.ZipFile(shared / "nltk/treebank.zip") as archive:
        for name in sorted(member for member in archive.namelist() if member.endswith(".mrg")):
            for tree in Tree.fromstring(f"(ALL {archive.read(name).decode()})"):
                theirs.append([(word, tag) for word, tag in tree.pos() if tag != "-NONE-"])
    ours = [sentence for text in open_tagged("treebank").values() for sentence in text.sentences]
    assert len(theirs) == 3914
    assert [list(zip(sentence.words, sentence.tags, strict=True)) for sentence in ours] == theirs
