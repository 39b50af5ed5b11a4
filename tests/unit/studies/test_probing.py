"""The study of layers: numbers and their intervals, verdicts both ways, and the whole study, very small."""

from __future__ import annotations

import math
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.csv_tables import read_tables

from nextword.batching.examples import Unseen
from nextword.core.errors import NextwordError
from nextword.data.opening import open_corpus
from nextword.studies import STUDIES, find_study, probing
from nextword.studies import _experiment as pool
from nextword.studies import _probes as probing_numbers
from nextword.studies._probes import (
    CASE,
    COMMON,
    EMBEDDING,
    LAST,
    OTHER,
    SENSES,
    TAGS,
    Answers,
    Asked,
    Pieces,
    Question,
    drawn,
    pieces,
    summed,
    told,
    word_vectors,
)
from nextword.studies._small_models import Size, text_of
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, command, run, verdict, write

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
    tables = read_tables(tmp_path / "looks")
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
    from nextword.lm.loading import of_network

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


@pytest.mark.usefixtures("small")
def test_a_run_that_reads_letters_is_probed_word_by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that it has no id for differ by their letters: "list1" and "list2" are not one unknown word."""
    from nextword.lm.loading import of_network
    from nextword.models.elmo import ELMo, ELMoConfig
    from nextword.tokenizers import vocabulary
    from nextword.tokenizers.ptb_words import Lexicon

    torch.manual_seed(0)
    tokenizer = Lexicon(["the", "hard"], lower=False)
    letters = {"filters": [[1, 8], [2, 8]], "characters": 4, "highway": 1, "longest": 12}
    network = ELMo(ELMoConfig(width=8, cells=8, characters=letters), vocabulary(tokenizer, spellings=True)).eval()
    model: Any = of_network(network, tokenizer)
    monkeypatch.setattr(probing, "load", lambda run: model)
    tables, conditions = probing.measure(Settings(quick=True, data="python", run="runs/elmo"), lambda a, b: None)
    assert tables["layers"].column("layer") == [0, 1, 2]
    assert tables["halves"].column("network") == ["elmo"]  # layer 1 against layer 2
    assert "words, each by its letters" in conditions["data"]
    words = [["The", "list1", "list2"], ["The", "list3", "The"]]
    unseen = Unseen(network, tokenizer)
    given = pieces([(w, ["a"] * 3) for w in words], {"a": 0}, tokenizer, 64, unseen)
    assert [len(window) for window in given.windows] == [3, 3]
    found = word_vectors(network, given, [0, 2], unseen=unseen)
    for i, layer in enumerate((0, 2)):
        expected = torch.cat([one.vectors for one in model.embed_words(words, layer)])
        torch.testing.assert_close(found[i], expected)


def test_a_run_is_given_only_to_studies_that_take_one() -> None:
    settings = Settings(run="runs/a b")
    assert settings.seeds == (0,)
    assert command("probing", settings) == "nextword look probing --seeds 1 --seed 0 --run 'runs/a b'"
    for name in STUDIES:
        if name not in ("probing", "beam-size", "word-senses", "elmo-mix"):
            with pytest.raises(NextwordError, match="trains its own"):
                run(name, find_study(name), settings)


@pytest.mark.usefixtures("small")
def test_a_model_without_vectors_cannot_be_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts:
        can = frozenset({"score"})

    monkeypatch.setattr(probing, "load", lambda run: Counts())
    with pytest.raises(NextwordError, match="nothing to probe"):
        probing.measure(replace(Settings(data="python", quick=True), run="runs/counts"), lambda done, total: None)
