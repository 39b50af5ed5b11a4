"""Treebank, capitalization and Senseval-2."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from nextword.core.errors import DataError
from nextword.studies import _labeled_words as words
from nextword.studies._labeled_words import TAGS, Context, Question

CONLLU = (
    "# text\n1-2\tdon't\t_\t_\n1\tDo\tdo\tAUX\tx\n2\tn't\tnot\tPART\tx\n3\tgo\tgo\tVERB\tx\n\n1\tStop\tstop\tVERB\n"
)
LINE = b"""<corpus lang="en">

<lexelt item="line-n">

<instance id="line-n.w7_1:">
<answer instance="line-n.w7_1:" senseid="cord"/>
<context>
<s snum="29"/> <wf pos="``">``</wf> <wf pos="DT">the</wf> <compound> <wf pos="JJ">to-reach</wf> </compound>
 <wf pos="NN">at&amp;t</wf> in New York <wf pos="JJ">3-1</wf> FRASL <wf pos="CD">2</wf>
 <head> <wf pos="NNS">lines</wf></head> <wf pos='"'>"</wf> <wf pos="NN">line</wf>
</context>
</instance>

<instance id="line-n.w7_2:">
<answer instance="line-n.w7_2:" senseid="phone"/>
<context> <head> <wf pos="NN">line</wf></head> </context>
</instance>

</lexelt>

</corpus>
"""


def test_conllu_is_parsed_word_by_word() -> None:
    sentences = list(words.parse_conllu(CONLLU.splitlines(keepends=True)))
    assert sentences == [(["Do", "n't", "go"], ["AUX", "PART", "VERB"]), (["Stop"], ["VERB"])]


def test_capitalization_ignores_what_has_no_letter() -> None:
    assert [words.is_capitalized(w) for w in ("God", "“Go", "went,", "3", "(a")] == [True, True, False, None, False]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "nltk" / "senseval.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("senseval/README", "words")
        file.writestr("senseval/line.pos", LINE)
        file.writestr("senseval/hard.pos", LINE.replace(b"lines", b"harder"))
    return path


def test_senseval_is_read_from_zip_or_folder(archive: Path) -> None:
    contexts = words.read_senseval(archive)
    assert list(contexts) == ["hard", "line"]
    first, second = contexts["line"]
    assert first.words == ["``", "the", "to-reach", "at&t", "in", "New", "York", "3-1", "/", "2", "lines", '"', "line"]
    assert (first.words[first.position], first.position, first.sense) == ("lines", 10, "cord")
    assert second == Context(["line"], 0, "phone")
    with zipfile.ZipFile(archive) as file:
        file.extractall(archive.parent)
    assert words.read_senseval(archive.parent / "senseval") == contexts


def test_senseval_is_found_in_data_folders(archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEXTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    assert words.find_senseval() == archive
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path / "none"))
    assert words.find_senseval() is None


@pytest.mark.parametrize(
    ("old", "new", "detail"),
    [
        (b' senseid="phone"', b"", "line-n.w7_2"),
        (b'<head> <wf pos="NN">line</wf></head> ', b'<wf pos="NN">line</wf>', "1 and 0"),
        (b'<head> <wf pos="NN">line</wf>', b'<head> <wf pos="NN">on</wf> line', "1 and 2"),
        (b"</lexelt>", b"", "line.pos"),
    ],
)
def test_damaged_senseval_file_is_rejected(tmp_path: Path, old: bytes, new: bytes, detail: str) -> None:
    (tmp_path / "line.pos").write_bytes(LINE.replace(old, new))
    with pytest.raises(DataError, match=detail) as caught:
        words.read_senseval(tmp_path)
    assert caught.value.path == str(tmp_path / "line.pos")


def test_empty_folder_and_damaged_zip_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "senseval.zip").write_bytes(b"PK")
    for path in (tmp_path, tmp_path / "senseval.zip"):
        with pytest.raises(DataError) as caught:
            words.read_senseval(path)
        assert caught.value.path == str(path)


def test_contexts_are_split_by_their_text() -> None:
    contexts = [Context([str(i), "line"], 1, "cord") for i in range(2000)]
    parts = words.split_contexts(contexts)
    assert [len(part) / 2000 for part in parts] == pytest.approx([0.6, 0.2, 0.2], abs=0.04)
    again = words.split_contexts([c._replace(sense="phone") for c in contexts[::-1]])
    assert [{c.words[0] for c in part} for part in again] == [{c.words[0] for c in part} for part in parts]


def test_guesses_use_the_most_frequent_label_of_all_and_of_the_form() -> None:
    train = [(["a", "A", "b", "b"], ["x", "x", "y", None])]
    test = [(["a", "B", "c"], ["x", "y", "y"])]
    guesses = words.guess_without_network(Question(TAGS, "", train, train, test))
    assert guesses["all"].tolist() == [True, False, False]
    assert guesses["form"].tolist() == [True, True, False]
