"""What the study of layers asks and how: Senseval's format, words in pieces, probes that find what is planted."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from nextword.core.errors import NextwordError
from nextword.core.types import Inputs, Vocabulary
from nextword.data.opening import open_corpus
from nextword.studies import _probes as probing_words
from nextword.studies import _probes as senses
from nextword.studies._probes import TAGS, Asked, Pieces, Question, answers, cut, fitted, goes, guesses
from nextword.studies._small_models import text_of

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


# ------------------------------------------------------------------------------------------------ Senseval


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "nltk" / "senseval.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("senseval/README", "words")
        archive.writestr("senseval/line.pos", LINE)
        archive.writestr("senseval/hard.pos", LINE.replace(b"lines", b"harder"))
    return path


def test_senses_are_read_inside_the_zip(packed: Path) -> None:
    found = senses.senses(packed)
    assert list(found) == ["hard", "line"]
    first, second = found["line"]
    assert first.words == ["``", "the", "to-reach", "at&t", "in", "New", "York", "3-1", "/", "2", "lines", '"', "line"]
    assert (first.words[first.at], first.at, first.sense) == ("lines", 10, "cord")
    assert second == senses.Context(["line"], 0, "phone")
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(packed.parent)
    assert senses.senses(packed.parent / "senseval") == found


def test_where_senses_are_looked_for(packed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEXTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    assert senses.place() == packed
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path / "none"))
    assert senses.place() is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b' senseid="phone"', b"", "line-n.w7_2"),
        (b'<head> <wf pos="NN">line</wf></head> ', b'<wf pos="NN">line</wf>', "0 such words"),
        (b'<head> <wf pos="NN">line</wf>', b'<head> <wf pos="NN">on</wf> line', "2 such words"),
        (b"</lexelt>", b"", "well-formed"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, old: bytes, new: bytes, said: str) -> None:
    (tmp_path / "line.pos").write_bytes(LINE.replace(old, new))
    with pytest.raises(NextwordError, match=said):
        senses.senses(tmp_path)


def test_no_contexts_and_no_zip_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NextwordError, match=r"hard\.pos"):
        senses.senses(tmp_path)
    (tmp_path / "senseval.zip").write_bytes(b"PK")
    with pytest.raises(NextwordError, match="no whole zip"):
        senses.senses(tmp_path / "senseval.zip")


def test_contexts_are_shared_out_by_their_text() -> None:
    many = [senses.Context([str(i), "line"], 1, "cord") for i in range(2000)]
    parts = senses.shared_out(many)
    assert [len(part) / 2000 for part in parts] == pytest.approx([0.6, 0.2, 0.2], abs=0.04)
    twice = senses.shared_out([c._replace(sense="phone") for c in many[::-1]])  # neither order nor label matters
    assert [{c.words[0] for c in part} for part in twice] == [{c.words[0] for c in part} for part in parts]


# ------------------------------------------------------------------------------------------------ words and pieces


def test_windows_are_whole_words_or_have_the_asked_one_in_the_middle() -> None:
    words = np.array([0, 0, 1, 2, 2, 2, 3, 4, 4, 5])
    assert cut(words, range(6), 10) == [slice(0, 10)]
    assert cut(words, range(6), 4) == [slice(0, 3), slice(3, 7), slice(7, 10)]
    assert cut(words, range(6), 2) == [slice(0, 2), slice(2, 3), slice(3, 5), slice(6, 7), slice(7, 9), slice(9, 10)]
    assert cut(words, [3], 4) == [slice(4, 8)]
    assert (cut(words, [0], 4), cut(words, [5], 4)) == ([slice(0, 4)], [slice(6, 10)])
    assert cut(words, [9], 4) == [slice(0, 4)]  # of a word that has no pieces


def test_words_become_pieces_with_their_labels() -> None:
    tokenizer = text_of(open_corpus("python"), 400)[1]
    found = [(["The", "statement", "Zzyzx"], ["a", None, "b"]), (["statement"], ["c"])]
    got = probing_words.pieces(found, {"a": 0, "b": 1}, tokenizer, 64)
    encoding = tokenizer.encode("The statement Zzyzx")
    assert got.labels.tolist() == [0, 1, -1]  # "c" was not learnt: asked, and missed
    assert got.units.tolist() == [0, 0, 1]
    assert got.windows[0].tolist() == encoding.ids.tolist()
    expected = [{0: 0, 1: -1, 2: 1}[int(word)] for word in encoding.words]
    assert got.words[0].tolist() == expected
    assert expected.count(1) > 1  # several pieces
    cut_up = probing_words.pieces([(["statement"] * 30, ["a"] * 30)], {"a": 0}, tokenizer, 16)
    assert len(cut_up.windows) > 1
    assert cut_up.labels.tolist() == [0] * 30
    assert sorted({int(w) for of in cut_up.words for w in of}) == list(range(30))


def test_guesses_without_a_network() -> None:
    train = [(["a", "A", "b", "b"], ["x", "x", "y", None])]
    test = [(["a", "B", "c"], ["x", "y", "y"])]
    found = guesses(Question(TAGS, "", train, train, test))
    assert found["all"].tolist() == [True, False, False]
    assert found["form"].tolist() == [True, True, False]


# ------------------------------------------------------------------------------------------------ probes


class Layers:
    """Layer 0 is noise of the token, layer 1 its one-hot vector, layer 2 that of the token before it."""

    widths = (8, 8, 8)
    vocabulary = Vocabulary(8, 0)
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.noise = torch.Generator().manual_seed(0)

    def encode(self, inputs: Inputs) -> tuple[list[Tensor], None]:
        assert inputs.padding is not None
        h = torch.nn.functional.one_hot(inputs.ids, 8).float()
        return [torch.randn(h.shape, generator=self.noise), h, torch.roll(h, 1, 1)], None


def made(n: int, seed: int, before: bool = False) -> Pieces:
    """Rows of 3 to 7 tokens that begin anywhere in 1 … 7; the label of each but the first is the token or the last."""
    draw = np.random.default_rng(seed)
    windows = [draw.integers(1, 8, draw.integers(3, 8)) for _ in range(n)]
    labels = np.concatenate([w[:-1] if before else w[1:] for w in windows])
    ends = np.cumsum([len(w) - 1 for w in windows])
    words = [np.concatenate([[-1], np.arange(e - len(w) + 1, e)]) for w, e in zip(windows, ends, strict=True)]
    return Pieces(windows, words, labels, np.repeat(np.arange(n), [len(w) - 1 for w in windows]))


@pytest.mark.parametrize("before", [False, True])
def test_a_probe_finds_the_layer_where_a_label_is_planted(before: bool) -> None:
    parts = [made(n, seed, before) for seed, n in enumerate((150, 40, 40))]
    found = answers(Layers(), Asked("task", "", 8, *parts))
    right = found.test.mean(1)
    here, elsewhere = (2, 1) if before else (1, 2)
    assert right[here] == 1
    for chance in (right[0], right[elsewhere]):
        assert chance == pytest.approx(1 / 7, abs=0.1)
    assert found.valid.shape == (3, len(parts[1]))


def test_a_words_vector_is_the_mean_of_its_pieces() -> None:
    given = Pieces([np.array([3, 4, 5]), np.array([6])], [np.array([0, 1, 1]), np.array([2])], np.zeros(3), np.zeros(3))
    network, rows = Layers(), []
    (found,) = probing_words.word_vectors(network, given, [1], rows.append)
    expected = torch.nn.functional.one_hot(torch.tensor([3, 4, 6]), 8).float()
    expected[1, 4] = expected[1, 5] = 0.5
    assert torch.equal(found, expected)
    assert rows == [2]


def test_layers_that_do_not_fit_together_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Asked("task", "", 8, *(made(30, seed) for seed in range(3)))
    words = len(question.train) + len(question.valid) + len(question.test)
    assert goes(Layers(), question) == [[0, 1, 2]]
    whole = answers(Layers(), question)
    monkeypatch.setattr(probing_words, "ROOM", 2 * 8 * 4 * words)
    assert goes(Layers(), question) == [[0, 1], [2]]
    monkeypatch.setattr(probing_words, "ROOM", 1)
    assert goes(Layers(), question) == [[0], [1], [2]]
    parts = answers(Layers(), question)
    assert (parts.test[1:] == whole.test[1:]).all()  # layer 0 is other noise each time


def test_a_ridge_holds_a_probe_back() -> None:
    torch.manual_seed(0)
    x = torch.randn(60, 40)
    y = (torch.arange(60) % 3 == 0).long()
    assert torch.equal(fitted(x, y, 2, 1e-5)(x), y)  # any labels, with so many directions
    assert not fitted(x, y, 2, 1e4)(x).any()  # nothing but how common they are
