"""Readers of tagged sentences: CoNLL columns, CoNLL-U, files of a user, and errors."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from nextword.core.errors import DataError, MissingFile, UnknownName
from nextword.data.builtin import python_names
from nextword.data.conll import detect_scheme, is_tagged, open_tagged, read_tagged
from tests.support.errors import raises

COLUMNS = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

-DOCSTART- -X- O O

Peter NNP I-NP I-PER
"""
UNIVERSAL = """# sent_id = 1
# text = Don't go
1-2	Don't	_	_	_	_	_	_	_	_
1	Do	do	AUX	VB	_	3	aux	_	_
2	n't	not	PART	RB	_	3	advmod	_	_
2.1	you	you	PRON	PRP	_	_	_	_	_
3	go	go	VERB	VB	_	0	root	_	_

# sent_id = 2
1	#	#	SYM	NN	_	0	root	_	_
"""


def file(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def test_read_columns_skips_docstart(tmp_path: Path) -> None:
    text = read_tagged(file(tmp_path, "a.conll", COLUMNS))
    assert [sentence.words for sentence in text.sentences] == [("EU", "rejects"), ("Peter",)]
    assert [sentence.tags for sentence in text.sentences] == [("I-ORG", "O"), ("I-PER",)]
    assert [sentence.lines for sentence in text.sentences] == [(3, 4), (8,)]
    assert text.words == 3
    assert read_tagged(tmp_path / "a.conll", "1").sentences[0].tags == ("NNP", "VBZ")
    assert read_tagged(tmp_path / "a.conll", "-2").sentences[0].tags == ("I-NP", "I-VP")


def test_read_tabs_allow_spaces_inside_words(tmp_path: Path) -> None:
    text = read_tagged(file(tmp_path, "a.tsv", "New York\tB-LOC\n#\tO\r\n\n\n\nis\tO"))
    assert [sentence.words for sentence in text.sentences] == [("New York", "#"), ("is",)]


def test_read_hash_line_outside_conllu_raises_with_a_hint(tmp_path: Path) -> None:
    with raises(DataError, match="#.*comments", line=2):
        read_tagged(file(tmp_path, "a.conll", "# id 7\nEU B-ORG\n"))
    with raises(DataError, line=2) as error:
        read_tagged(file(tmp_path, "a.conll", "EU B-ORG\n#\n"))
    assert "comments" not in str(error.value)


def test_read_conllu_skips_multiword_tokens_and_empty_nodes(tmp_path: Path) -> None:
    path = file(tmp_path, "a.conllu", UNIVERSAL)
    text = read_tagged(path)
    assert [sentence.words for sentence in text.sentences] == [("Do", "n't", "go"), ("#",)]
    assert text.sentences[0].tags == ("AUX", "PART", "VERB")
    assert read_tagged(path, "xpos").sentences[0].tags == ("VB", "RB", "VB")
    assert read_tagged(path, "deprel").sentences[0].tags == ("aux", "advmod", "root")
    with raises(DataError, match="'go'", line=1):
        read_tagged(file(tmp_path, "b.conllu", "go\tVB\n"))


def test_open_folder_takes_splits_from_file_names(tmp_path: Path) -> None:
    file(tmp_path, "eng.train", "a O\n")
    file(tmp_path, "eng.testa", "b O\n")
    with gzip.open(tmp_path / "eng.testb.gz", "wt") as packed:
        packed.write("c O\n")
    file(tmp_path, "README", "nothing")
    splits = open_tagged(tmp_path)
    assert {split: text.sentences[0].words for split, text in splits.items()} == {
        "train": ("a",),
        "dev": ("b",),
        "test": ("c",),
    }
    file(tmp_path, "train.more", "d O\n")
    with raises(DataError, match=r"eng\.train.*train\.more", path=tmp_path):
        open_tagged(tmp_path)


def test_open_name_of_the_catalog_in_a_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nltk").mkdir()
    with zipfile.ZipFile(tmp_path / "nltk" / "conll2000.zip", "w") as archive:
        archive.writestr("conll2000/train.txt", "He PRP B-NP\n")
        archive.writestr("conll2000/test.txt", "She PRP B-NP\n")
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    splits = open_tagged("conll2000")
    assert {split: text.sentences[0].words for split, text in splits.items()} == {"train": ("He",), "test": ("She",)}
    assert open_tagged("conll2000", "pos")["train"].sentences[0].tags == ("PRP",)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a B-X\nb\n", 2),
        ("a B-X\n\nb B-X O\n", 3),
        ("a\nb\n", 1),
        ("a\tO\nb\t\n", 2),
        ("a\tO\n\tO\n", 2),
        ("\n\n", None),
    ],
)
def test_read_bad_file_gives_its_line(tmp_path: Path, content: str, line: int | None) -> None:
    path = file(tmp_path, "a.txt", content)
    with raises(DataError, path=path, line=line):
        read_tagged(path)


@pytest.mark.parametrize("column", ["ner", "0", "3"])
def test_read_with_unknown_column_raises(tmp_path: Path, column: str) -> None:
    with raises(UnknownName, name=column):
        read_tagged(file(tmp_path, "a.txt", "a NN O\n"), column)


def test_open_unknown_name_not_installed_or_without_train_raises(tmp_path: Path) -> None:
    with raises(UnknownName, match="conll2003", name="nowhere"):
        open_tagged("nowhere")
    with raises(UnknownName, match="reuters", name="reuters"):
        open_tagged("reuters")  # a data set of another kind
    with raises(MissingFile, match="nextword data conll2003 --install", path="conll2003"):
        open_tagged("conll2003")
    with raises(MissingFile, path=tmp_path):
        open_tagged(tmp_path)


def test_is_tagged_distinguishes_columns_from_plain_text() -> None:
    assert is_tagged("a.conll", ["one\n"])
    assert is_tagged("a.txt", ["EU O\n", "go O\n", "\n", "we O\n"])
    assert not is_tagged("a.txt", ["EU rejects German call\n", "Peter Blackburn\n"])
    assert is_tagged("a.txt", ["EU B-ORG\n", "rejects O\n", "calls O\n", "\n"])  # one sentence
    assert not is_tagged("a.txt", ["Peter Blackburn\n", "Ann Mary\n", "John Smith\n"])


def test_open_python_names_is_built_in() -> None:
    splits = open_tagged("python-names")
    assert detect_scheme(splits) == "IOB2"
    assert min(len(text) for text in splits.values()) > 500
    lines = {
        " ".join(sentence.words): " ".join(sentence.tags) for text in splits.values() for sentence in text.sentences
    }
    assert lines["except KeyError :"] == "O B-CAUGHT O"
    assert lines["def __repr__ ( self ) :"] == "O B-FUNCTION O O O O"
    assert python_names() is python_names()


# ------------------------------------------------------------------------------------------------ published data sets

KNOWN = {
    ("conll2003", ""): ("IOB1", 8, {"train": (14041, 203621), "dev": (3250, 51362), "test": (3453, 46435)}),
    ("conll2003", "pos"): ("", 45, {"train": (14041, 203621), "dev": (3250, 51362), "test": (3453, 46435)}),
    ("conll2000", ""): ("IOB2", 23, {"train": (8936, 211727), "test": (2012, 47377)}),
    ("conll2002-es", ""): ("IOB2", 9, {"train": (8323, 264715), "dev": (1915, 52923), "test": (1517, 51533)}),
    ("conll2002-nl", ""): ("IOB2", 9, {"train": (15806, 202644), "dev": (2895, 37687), "test": (5195, 68875)}),
    ("treebank", ""): ("", 45, {"train": (3396, 81793), "dev": (273, 6327), "test": (245, 5964)}),
    ("ud-english-ewt", ""): ("", 17, {"train": (12544, 204577), "dev": (2001, 25147), "test": (2077, 25094)}),
}


@pytest.mark.parametrize(("name", "column"), KNOWN)
def test_open_published_sets_have_known_counts(
    name: str, column: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    splits = open_tagged(name, column)
    scheme, tags, counts = KNOWN[name, column]
    assert {split: (len(text), text.words) for split, text in splits.items()} == counts
    assert detect_scheme(splits) == scheme
    assert len({tag for text in splits.values() for sentence in text.sentences for tag in sentence.tags}) == tags
