"""Readers of tagged sentences: CoNLL's columns, CoNLL-U, a user's own files, and what is wrong with them."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from nextword.core.errors import NextwordError
from nextword.data.conll import is_columns, open_tagged, python_names, read_tagged, scheme_of

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


def test_columns_are_read_and_documents_are_no_sentences(tmp_path: Path) -> None:
    text = read_tagged(file(tmp_path, "a.conll", COLUMNS))
    assert [one.words for one in text.sentences] == [("EU", "rejects"), ("Peter",)]
    assert [one.tags for one in text.sentences] == [("I-ORG", "O"), ("I-PER",)]
    assert [one.lines for one in text.sentences] == [(3, 4), (8,)]
    assert text.words == 3
    assert read_tagged(tmp_path / "a.conll", "1").sentences[0].tags == ("NNP", "VBZ")
    assert read_tagged(tmp_path / "a.conll", "-2").sentences[0].tags == ("I-NP", "I-VP")


def test_tabs_divide_where_there_are_some_and_a_word_may_have_spaces(tmp_path: Path) -> None:
    text = read_tagged(file(tmp_path, "a.tsv", "New York\tB-LOC\n#\tO\r\n\n\n\nis\tO"))
    assert [one.words for one in text.sentences] == [("New York", "#"), ("is",)]


def test_comments_are_known_in_universal_dependencies_alone_and_elsewhere_suspected(tmp_path: Path) -> None:
    with pytest.raises(NextwordError, match=r"line 2 has 2 columns.* If lines with # are comments, remove them"):
        read_tagged(file(tmp_path, "a.conll", "# id 7\nEU B-ORG\n"))
    with pytest.raises(NextwordError, match=r"line 2 has 1 columns.*Mend that line\.$"):
        read_tagged(file(tmp_path, "a.conll", "EU B-ORG\n#\n"))


def test_universal_dependencies_without_what_is_no_word(tmp_path: Path) -> None:
    path = file(tmp_path, "a.conllu", UNIVERSAL)
    text = read_tagged(path)
    assert [one.words for one in text.sentences] == [("Do", "n't", "go"), ("#",)]
    assert text.sentences[0].tags == ("AUX", "PART", "VERB")
    assert read_tagged(path, "xpos").sentences[0].tags == ("VB", "RB", "VB")
    assert read_tagged(path, "deprel").sentences[0].tags == ("aux", "advmod", "root")
    with pytest.raises(NextwordError, match=r"line 1 begins with 'go'.*number of the word"):
        read_tagged(file(tmp_path, "b.conllu", "go\tVB\n"))


def test_a_folder_has_its_splits_by_name(tmp_path: Path) -> None:
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
    with pytest.raises(NextwordError, match=r"two files for train, eng\.train and train\.more"):
        open_tagged(tmp_path)


def test_a_set_of_the_catalog_may_lie_in_a_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nltk").mkdir()
    with zipfile.ZipFile(tmp_path / "nltk" / "conll2000.zip", "w") as archive:
        archive.writestr("conll2000/train.txt", "He PRP B-NP\n")
        archive.writestr("conll2000/test.txt", "She PRP B-NP\n")
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    splits = open_tagged("conll2000")
    assert {split: text.sentences[0].words for split, text in splits.items()} == {"train": ("He",), "test": ("She",)}
    assert open_tagged("conll2000", "pos")["train"].sentences[0].tags == ("PRP",)


@pytest.mark.parametrize(
    ("content", "column", "said"),
    [
        ("a B-X\nb\n", "", r"line 2 has 1 columns, and the lines before it have 2: 'b'"),
        ("a B-X\n\nb B-X O\n", "", r"line 3 has 3 columns"),
        ("a\nb\n", "", r"line 1 has one column, 'a'"),
        ("a\tO\nb\t\n", "", r"line 2 has an empty tag"),
        ("a\tO\n\tO\n", "", r"line 2 has an empty word"),
        ("\n\n", "", r"has no sentence in it"),
        ("a NN O\n", "ner", r"has 3 columns; the tags cannot be in 'ner'"),
        ("a NN O\n", "0", r"the tags cannot be in '0'"),
        ("a NN O\n", "3", r"the tags cannot be in '3'"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(tmp_path: Path, content: str, column: str, said: str) -> None:
    with pytest.raises(NextwordError, match=said):
        read_tagged(file(tmp_path, "a.txt", content), column)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(NextwordError, match=r"no tagged sentences at nowhere.*conll2003"):
        open_tagged("nowhere")
    with pytest.raises(NextwordError, match=r"conll2003 .*is not on this machine.*nextword data conll2003 --from"):
        open_tagged("conll2003")
    with pytest.raises(NextwordError, match="no file with train in its name"):
        open_tagged(tmp_path)


def test_plain_text_is_told_from_columns() -> None:
    assert is_columns("a.conll", ["one\n"])
    assert is_columns("a.txt", ["EU O\n", "go O\n", "\n", "we O\n"])
    assert not is_columns("a.txt", ["EU rejects German call\n", "Peter Blackburn\n"])
    assert is_columns("a.txt", ["EU B-ORG\n", "rejects O\n", "calls O\n", "\n"])  # one sentence
    assert not is_columns("a.txt", ["Peter Blackburn\n", "Ann Mary\n", "John Smith\n"])


def test_lines_of_python_are_on_every_machine() -> None:
    splits = open_tagged("python-names")
    assert scheme_of(splits) == "IOB2"
    assert min(len(text) for text in splits.values()) > 500
    lines = {" ".join(one.words): " ".join(one.tags) for text in splits.values() for one in text.sentences}
    assert lines["except KeyError :"] == "O B-CAUGHT O"
    assert lines["def __repr__ ( self ) :"] == "O B-FUNCTION O O O O"
    assert python_names() is python_names()


# ------------------------------------------------------------------------------------------------ the real ones

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
def test_the_real_files_have_the_counts_that_are_known(
    name: str, column: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(shared))
    splits = open_tagged(name, column)
    scheme, tags, counts = KNOWN[name, column]
    assert {split: (len(text), text.words) for split, text in splits.items()} == counts
    assert scheme_of(splits) == scheme
    assert len({tag for text in splits.values() for one in text.sentences for tag in one.tags}) == tags


def test_a_set_of_another_kind_is_told_from_one_that_is_not_known() -> None:
    with pytest.raises(
        NextwordError, match=r"reuters is another kind of set: .*that CoNLL-2003 annotates\..*conll2003"
    ):
        open_tagged("reuters")
    with pytest.raises(NextwordError, match=r"at nowhere\. Expected a file"):
        open_tagged("nowhere")
