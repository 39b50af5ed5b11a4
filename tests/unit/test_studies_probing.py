"""The study of layers: Senseval's format, words in pieces, probes that find what is planted, verdicts both ways."""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nextword.contract import Inputs, NextwordError, Vocabulary
from nextword.corpora import open_corpus
from nextword.studies import STUDIES, find_study, probing, probing_numbers, probing_words, senses
from nextword.studies import apart as pool
from nextword.studies.probes import CASE, TAGS, fitted
from nextword.studies.probing_numbers import COMMON, EMBEDDING, LAST, OTHER, drawn, summed, told
from nextword.studies.probing_words import SENSES, Answers, Asked, Pieces, Question, answers, cut, goes, guesses
from nextword.studies.small_transformers import Size, text_of
from nextword.studies.study import FAILS, HOLDS, UNDECIDED, Settings, Table, command, run, verdict
from nextword.studies.writing import write

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
    (found,) = probing_words.vectors(network, given, [1], rows.append)
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


# ------------------------------------------------------------------------------------------------ numbers


def test_intervals_are_of_whole_sentences_and_in_pairs() -> None:
    draw = np.random.default_rng(0)
    easy = draw.random(400) < 0.8  # all words of a sentence are right, or none
    units = np.repeat(np.arange(400), 5)
    hits = np.repeat(easy, 5)
    sums = summed([np.stack([hits, hits, np.ones(2000, bool)])], units)
    assert sums.accuracy()[0].tolist() == pytest.approx([100 * easy.mean()] * 2 + [100])
    found = drawn([sums], 0)
    assert (found[:, 0] == found[:, 1]).all()  # the same draw for all layers
    assert (found[:, 2] == 100).all()
    assert found[:, 0].std() == pytest.approx(100 * easy.std() / 20, rel=0.1)  # and not / sqrt(2000)


def test_senses_are_averaged_over_words_not_over_contexts() -> None:
    large, small = summed([np.ones((1, 90), bool)], np.arange(90)), summed([np.zeros((1, 10), bool)], np.arange(10))
    assert drawn([large, small], 0).mean() == pytest.approx(50)


def test_told_is_the_wider_of_text_and_seeds() -> None:
    draws = np.linspace(-1, 1, 1001)
    assert told(0.0, np.array([0.0]), draws, alone=True) == pytest.approx([0, -0.95, 0.95])
    assert told(0.0, np.array([0.0]), draws, alone=False) == [0.0, -math.inf, math.inf]
    assert told(0.0, np.array([0.0, 0.0]), draws, alone=False) == pytest.approx([0, -0.95, 0.95])
    assert told(0.0, np.array([-3.0, 3.0]), draws, alone=False)[2] == pytest.approx(12.71 * 3, rel=1e-6)


def planted(tags: list[float], meanings: list[float], seeds: int = 1) -> dict[str, Table]:
    """Answers that are right so often in each layer, by chance, of 600 sentences of four words and 2 × 600 contexts."""
    draw = np.random.default_rng(0)

    def pieces(n: int, each: int) -> Pieces:
        return Pieces([], [], np.zeros(n * each, np.int64), np.repeat(np.arange(n), each))

    def said(right: list[float], n: int) -> Answers:
        return Answers(*(draw.random((len(right), n)) < np.array(right)[:, None] for _ in range(2)))

    part, context = pieces(600, 4), pieces(600, 1)
    questions = [Asked(TAGS, "", 2, part, part, part)]
    questions += [Asked(SENSES, word, 2, context, context, context) for word in ("hard", "line")]
    asks = [Question(q.task, q.word, *[[(["a"], ["x"])]] * 3) for q in questions]
    found = [[said(tags, 2400), said(meanings, 600), said(meanings, 600)] for _ in range(seeds)]
    return probing_numbers.tables_of({"net": found}, questions, asks, alone=seeds == 1)


RISES, FALLS, LEVEL = [0.5, 0.6, 0.7, 0.8, 0.9], [0.5, 0.9, 0.8, 0.7, 0.6], [0.5, 0.7, 0.7, 0.7, 0.7]


@pytest.mark.parametrize(
    ("tags", "meanings", "expected", "parts"),
    [
        (FALLS, RISES, HOLDS, [HOLDS, HOLDS, HOLDS, HOLDS, HOLDS]),
        (RISES, FALLS, FAILS, [FAILS, HOLDS, HOLDS, FAILS, FAILS]),
        (RISES, RISES, FAILS, [FAILS, UNDECIDED, UNDECIDED, FAILS, HOLDS]),
        (LEVEL, LEVEL, UNDECIDED, [UNDECIDED, UNDECIDED, UNDECIDED, UNDECIDED, UNDECIDED]),
    ],
)
@pytest.mark.parametrize("seeds", [1, 3])
def test_the_verdict_follows_the_layers(
    tags: list[float], meanings: list[float], expected: str, parts: list[str], seeds: int
) -> None:
    tables = planted(tags, meanings, seeds)
    found = probing.judge(tables)
    assert [part.verdict for part in found[:5]] == parts
    assert [part.decides for part in found] == [True] * 3 + [False] * 5
    assert verdict(found) == expected
    assert tables["layers"].cell(TAGS, network="net", layer=2)[0] == pytest.approx(100 * tags[2], abs=3)
    assert tables["words"].cell("line", network="net", layer=4) == pytest.approx(100 * meanings[4], abs=6)


def test_differences_are_on_test_text_and_best_layers_on_validation() -> None:
    tables = planted(FALLS, RISES)
    best, apart = tables["best"].rows[0], tables["differences"]
    assert [cell[0] for cell in best[1:]] == [1, 4, 3]
    assert apart.cell(TAGS, above=OTHER)[0] == pytest.approx(30, abs=3)
    assert apart.cell(SENSES, above=OTHER)[0] == pytest.approx(30, abs=5)
    assert apart.cell(SENSES, above=EMBEDDING)[0] == pytest.approx(40, abs=5)
    assert apart.cell(SENSES, above=LAST) == [0, 0, 0]
    assert apart.cell(TAGS, above=COMMON)[0] == pytest.approx(-10, abs=3)  # the commonest is always right there
    middle, low, high = tables["halves"].cell(TAGS)
    assert low < 20 < high
    assert middle == pytest.approx(20, abs=3)


def test_the_best_layer_is_one_that_there_is() -> None:
    for tables in (planted(LEVEL, LEVEL, 3), planted(LEVEL, LEVEL)):
        *tasks, apart = tables["best"].rows[0][1:]
        assert all(0 <= low <= middle <= high <= 4 for middle, low, high in tasks)
        assert -4 <= apart[1] <= apart[2] <= 4


def test_what_is_missing_is_said_and_leaves_the_claim_undecided() -> None:
    tables = planted(FALLS, RISES)

    def only(column: str, named: str) -> dict[str, Table]:
        out = {}
        for name, table in tables.items():
            kept = [i for i, c in enumerate(table.columns) if c not in (TAGS, SENSES) or c == column]
            rows = tuple(tuple(row[i] for i in kept) for row in table.rows if row[1] != OTHER)
            out[name] = Table("", tuple(named if table.columns[i] == column else table.columns[i] for i in kept), rows)
        return out

    parts = probing.judge(only(TAGS, TAGS))
    assert (parts[0].verdict, verdict(parts)) == (UNDECIDED, UNDECIDED)
    assert "senseval.zip" in parts[0].found
    parts = probing.judge(only(TAGS, CASE))
    assert ["ud-english-ewt" in parts[0].found, "senseval.zip" in parts[1].found] == [True, True]
    assert [part.decides for part in parts] == [True, True, False]


# ------------------------------------------------------------------------------------------------ the whole study

TINY = Size(width=16, layers=2, heads=2, rows=4, length=16, steps=4)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Made-up data: thirty sentences of a treebank in three parts, and two words with two senses each."""
    tree, nltk = tmp_path / "ud-english-ewt", tmp_path / "nltk"
    tree.mkdir()
    nltk.mkdir()
    for part in ("train", "dev", "test"):
        lines = [
            "".join(f"{n}\t{w}\t_\t{t}\n" for n, w, t in ((1, "The", "DET"), (2, f"list{i}", "NOUN")))
            for i in range(30)
        ]
        (tree / f"en_ewt-ud-{part}.conllu").write_text("\n".join(lines))
    with zipfile.ZipFile(nltk / "senseval.zip", "w") as archive:
        for word in ("hard", "line"):
            found = "".join(
                f'<instance id="{i}"><answer senseid="{i % 2}"/><context><wf>a{i}</wf> <head><wf>{word}</wf></head> '
                "</context></instance>"
                for i in range(60)
            )
            archive.writestr(f"senseval/{word}.pos", f"<corpus>{found}</corpus>")
    monkeypatch.setenv("NEXTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path))
    monkeypatch.setattr(pool, "cores", lambda: 1)
    monkeypatch.setattr(probing, "QUICK", TINY)
    monkeypatch.setattr(probing, "PIECES", 300)
    monkeypatch.setattr(probing_numbers, "DRAWS", 50)


def looked(settings: Settings) -> Any:
    torch.manual_seed(7)
    found = run("probing", find_study("probing"), settings)
    assert torch.equal(torch.rand(3), torch.manual_seed(7) and torch.rand(3))  # the caller's own are left alone
    return found


@pytest.mark.usefixtures("small")
def test_a_small_run_has_all_it_should_and_its_verdict_follows(tmp_path: Path) -> None:
    finding = looked(Settings(quick=True, seeds=(0, 1), data="python"))
    assert {"data", "networks", "training", "words", "probes", "intervals", "command"} <= set(finding.conditions)
    assert finding.tables["layers"].columns == ("network", "layer", TAGS, SENSES)
    assert finding.tables["layers"].column("layer") == [0, 1, 2] * 2
    assert finding.tables["words"].columns[2:] == ("hard", "line")
    assert len(finding.parts) == 16
    assert all(part.says and part.found and part.uncertainty for part in finding.parts)
    for table in finding.tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows)
    files = write(finding, find_study("probing"), tmp_path / "looks")
    assert all(file.stat().st_size for file in files)
    content = json.loads((tmp_path / "looks" / "numbers.json").read_text())["tables"]
    tables = {n: Table(t["title"], tuple(t["columns"]), tuple(map(tuple, t["rows"]))) for n, t in content.items()}
    assert tuple(probing.judge(tables)) == finding.parts


@pytest.mark.usefixtures("small")
def test_without_data_the_study_does_what_it_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path / "none"))
    monkeypatch.setattr(probing, "COUNTS", {"quick": ((40, 20, 20), (9, 9, 9))})
    monkeypatch.setattr(probing, "LEAST", 10)
    finding = looked(Settings(quick=True, seeds=(0,), data="python"))
    assert finding.tables["layers"].columns == ("network", "layer", CASE)
    assert finding.verdict == UNDECIDED
    assert {"no treebank", "no senses"} <= set(finding.conditions)
    write(finding, find_study("probing"), tmp_path / "looks")


@pytest.mark.usefixtures("small")
def test_a_run_is_probed_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nextword.language_model import of_network

    text, tokenizer = text_of(open_corpus("python"), 300)
    for name, make in (("both", probing.both_sides), ("left", probing.left_to_right)):
        with pool.apart():
            network = make(0, TINY, text)
        model = of_network(network, tokenizer)
        monkeypatch.setattr(probing, "load", lambda run, model=model: model)
        done: list[float] = []
        settings = Settings(quick=True, data="python", run=f"runs/{name}")
        tables, conditions = probing.measure(settings, lambda a, b, done=done: done.append(a / b))
        assert tables["layers"].column("network") == [name] * 3
        assert all(math.isfinite(low) for _, low, _ in tables["layers"].column(SENSES))  # of text alone
        assert done == sorted(done)
        assert done[-1] == 1
        assert f"the run {name}" in conditions["data"]


def test_a_run_is_given_only_to_studies_that_take_one() -> None:
    settings = Settings(run="runs/a b")
    assert settings.seeds == (0,)
    assert command("probing", settings) == "nextword look probing --seeds 1 --seed 0 --run 'runs/a b'"
    for name in STUDIES:
        if name != "probing":
            with pytest.raises(NextwordError, match="trains its own"):
                run(name, find_study(name), settings)


@pytest.mark.usefixtures("small")
def test_a_model_without_vectors_cannot_be_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts:
        can = frozenset({"score"})

    monkeypatch.setattr(probing, "load", lambda run: Counts())
    with pytest.raises(NextwordError, match="nothing to probe"):
        probing.measure(replace(Settings(data="python", quick=True), run="runs/counts"), lambda done, total: None)
