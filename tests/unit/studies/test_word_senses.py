"""The study of meanings: made words, what is asked of a vector, and verdicts that can come out either way."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.csv_tables import read_tables

from nextword.core.errors import NextwordError
from nextword.lm.loading import of_network
from nextword.models.word2vec import Word2Vec, Word2VecConfig
from nextword.studies import _experiment as pool
from nextword.studies import _small_models as small_elmo
from nextword.studies import find_study, word_senses
from nextword.studies import word_senses as word_senses_real
from nextword.studies._small_models import (
    CHINESE,
    ENGLISH,
    STATIC,
    Place,
    Size,
    certain,
    in_context,
    language,
    nearby,
    read_words,
)
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, run, verdict, write
from nextword.studies.word_senses import (
    COMMON,
    Places,
    examples,
    judge,
    merged,
    neighbours,
    pairs_of,
    places,
    repeated,
    told,
)
from nextword.tokenizers import vocabulary
from nextword.tokenizers.ptb_words import Lexicon

# ------------------------------------------------------------------------------------------------ text and made words


def test_text_is_cut_into_words_and_chinese_into_characters() -> None:
    assert read_words(["He didn't go. 他画画。Then 2 more!"]) == [
        ["he", "didn't", "go", "."],
        ["他", "画", "画", "。"],
        ["then", "2", "more", "!"],
    ]
    assert language({"the": 9, "bread": 91}) == ENGLISH
    assert language({"画": 9, "他": 9, "the": 2}) == CHINESE
    assert language({"der": 50, "brot": 50}) == ""


def test_two_words_become_one() -> None:
    assert merged([["bread", "sword", "x"], ["cup"]], [("bread", "sword"), ("lamp", "cup")]) == [
        ["bread", "bread", "x"],
        ["lamp"],
    ]


def test_made_words_are_of_like_frequency_and_none_of_the_commonest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_senses, "COMMONEST", 1)
    monkeypatch.setattr(word_senses, "PAIRS", 2)
    counts = {"the": 99, "of": 80, ",": 70, "king": 9, "sword": 8, "bread": 7, "cup": 6, "lamp": 5}
    assert pairs_of(counts) == [("king", "sword"), ("bread", "cup")]


def test_a_place_is_read_as_the_made_word_and_knows_what_stood_there() -> None:
    found = places([["his", "sword", "and", "bread"]] * 5, [("bread", "sword")], most=3)
    assert len(found.where) == 6
    assert all(place.words == ["his", "bread", "and", "bread"] for place in found.where)
    assert {(place.at, int(meant)) for place, meant in zip(found.where, found.meant, strict=True)} == {(1, 1), (3, 0)}


def test_what_is_read_around_a_place_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_elmo, "REACH", 2)
    assert nearby(Place(list("abcdefg"), 3)) == Place(list("bcdef"), 2)
    assert nearby(Place(list("abcdefg"), 0)) == Place(list("abc"), 0)
    assert nearby(Place(list("abcdefg"), 6)) == Place(list("efg"), 2)


# ------------------------------------------------------------------------------------------------ what vectors say


def some_places(n: int, seed: int) -> Places:
    draw = np.random.default_rng(seed)
    return Places([Place(["x"], 0)] * n, draw.integers(0, 2, n), (draw.random(n) < 0.7).astype(np.int64))


def test_one_vector_says_the_commoner_meaning_and_two_say_which() -> None:
    known, asked = some_places(400, 0), some_places(300, 1)
    one = np.full((1, 6), 0.3, np.float32)
    right, nearer = told(one.repeat(400, 0), one.repeat(300, 0), known, asked)
    assert (nearer == 0).all()
    share = [100 * asked.meant[asked.pair == pair].mean() for pair in (0, 1)]
    np.testing.assert_allclose(right, share)
    directions = np.random.default_rng(2).normal(size=(2, 2, 6))
    two = [
        (directions[p.pair, p.meant] + 0.1 * np.random.default_rng(3).normal(size=(len(p.pair), 6)))
        for p in (known, asked)
    ]
    right, nearer = told(*two, known, asked)
    assert (right > 99).all()
    assert (nearer > 0.3).all()


def test_neighbours_vote_and_those_that_are_equally_near_all_vote() -> None:
    draw = np.random.default_rng(0)
    senses = (draw.random(200) < 0.3).astype(np.int64)
    centres = draw.normal(size=(2, 8))
    known = centres[senses] + 0.3 * draw.normal(size=(200, 8))
    assert (neighbours(known, senses, centres) == [0, 1]).all()
    table = np.array([[1.0, 2.0], [2.0, 1.0]], np.float32)
    form = np.arange(200) % 2  # two forms with a vector each, one of which means 1 more often
    meant = np.where(form == 1, draw.random(200) < 0.8, draw.random(200) < 0.1).astype(np.int64)
    assert neighbours(table[form], meant, table).tolist() == [0, 1]
    same = np.ones((200, 3), np.float32)
    assert (neighbours(same, senses, same) == 0).all()  # nothing to tell them by: the commonest


def test_a_word_that_comes_again_in_its_sentence() -> None:
    found = repeated([["the", "sea", "the", "sea"], ["a", "b"], ["!", "!"]], {"the"})
    assert [(a.words[a.at], a.at, b.at) for a, b in found] == [("sea", 1, 3)]


@pytest.mark.parametrize("spoken", [ENGLISH, CHINESE])
def test_examples_are_of_one_word(spoken: str) -> None:
    for here, there in examples(spoken):
        assert here.words[here.at] == there.words[there.at] in ("bank", "play", "画")
        assert (here.words, here.at) != (there.words, there.at)
    assert examples("") == []


def test_a_network_that_was_given_has_an_interval_over_the_text_alone() -> None:
    values = [list(range(100))]
    assert certain(values)[1] == -math.inf
    middle, low, high = certain(values, alone=True)
    assert middle == 49.5
    assert 40 < low < 49 < 50 < high < 59


# ------------------------------------------------------------------------------------------------ verdicts

LAST = "ELMo, layer 2"


def tables(static: Any, gain: Any, senses: Any = None, twice: Any = None) -> dict[str, Table]:
    columns = ("vector", "right, %", "nearer")
    rows = ((STATIC, [51.0, 50.0, 52.0], static), ("ELMo, input", [51.0, 50.0, 52.0], [0.0] * 3),
            (LAST, [51 + gain[0]] * 3, [0.2, 0.1, 0.3]))  # fmt: skip
    more = (("ELMo, input", [0.0, 0.0, 0.0], [0.0] * 3), (LAST, gain, [0.2, 0.1, 0.3]))
    found = {"vectors": Table("", columns, rows), "differences": Table("", columns, more)}
    if senses:
        levels = tuple((name, [60.0, 59.0, 61.0]) for name in (STATIC, "ELMo, input", LAST, COMMON))
        found["senses"] = Table("", ("vector", "right, %"), levels)
        found["sense differences"] = Table("", ("vector", STATIC, COMMON), ((LAST, senses, senses),))
    if twice:
        found["twice"] = Table("", ("vector", "cosine"), ((STATIC, [1.0, 1.0, 1.0]), (LAST, twice)))
    return found


@pytest.mark.parametrize(
    ("static", "gain", "senses", "expected"),
    [
        ([0.0, 0.0, 0.0], [30.0, 25.0, 35.0], None, HOLDS),
        ([0.1, 0.05, 0.2], [30.0, 25.0, 35.0], None, FAILS),
        ([0.0, 0.0, 0.0], [-8.0, -9.0, -7.0], None, FAILS),
        ([0.0, 0.0, 0.0], [3.0, -2.0, 8.0], None, UNDECIDED),
        ([0.0, 0.0, 0.0], [30.0, None, None], None, UNDECIDED),
        ([0.0, 0.0, 0.0], [30.0, 25.0, 35.0], [5.0, 2.0, 8.0], HOLDS),
        ([0.0, 0.0, 0.0], [30.0, 25.0, 35.0], [5.0, -2.0, 12.0], UNDECIDED),
        ([0.0, 0.0, 0.0], [30.0, 25.0, 35.0], [-5.0, -8.0, -2.0], FAILS),
    ],
)
def test_the_numbers_decide(static: Any, gain: Any, senses: Any, expected: str) -> None:
    parts = judge(tables(static, gain, senses))
    assert verdict(parts) == expected
    assert all(part.found.endswith(".") for part in parts)


@pytest.mark.parametrize(
    ("cosine", "expected"), [([0.9, 0.8, 0.95], HOLDS), ([0.97, 0.9, 1.04], UNDECIDED), ([0.97, None, None], UNDECIDED)]
)
def test_a_word_twice_is_told_beside_the_claim(cosine: Any, expected: str) -> None:
    (part,) = (p for p in judge(tables([0.0] * 3, [30.0, 25.0, 35.0], None, cosine)) if p.says.startswith("Twice"))
    assert (part.verdict, part.decides) == (expected, False)


# ------------------------------------------------------------------------------------------------ the whole study

TINY = Size(width=8, layers=2, rows=4, length=8, steps=3, rate=5e-3)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEXTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path / "none"))
    monkeypatch.setattr(pool, "cores", lambda: 1)
    for name, value in {"QUICK": TINY, "PIECES": 300, "KNOWN": 6, "ASKED": 4, "LEAST": 10}.items():
        monkeypatch.setattr(word_senses, name, value)
    monkeypatch.setattr(word_senses_real, "TWICE", 5)
    monkeypatch.setattr(small_elmo, "PASSES", 1)


@pytest.mark.usefixtures("small")
def test_a_small_run_has_all_it_should_and_its_verdict_follows(tmp_path: Path) -> None:
    finding = run("word-senses", find_study("word-senses"), Settings(quick=True, seeds=(0, 1), data="python"))
    names = [STATIC, "ELMo, input", "ELMo, layer 1", "ELMo, layer 2"]
    assert finding.tables["vectors"].column("vector") == names
    assert finding.tables["vectors"].cell("nearer", vector=STATIC) == [0.0, 0.0, 0.0]
    assert finding.tables["twice"].cell("cosine", vector=STATIC)[0] == pytest.approx(1)
    assert finding.tables["twice"].cell("cosine", vector=LAST)[0] < 1
    assert finding.tables["examples"].column("word") == ["bank", "bank", "play", "play"]
    assert "senseval.zip" in finding.conditions["no senses"]
    files = write(finding, find_study("word-senses"), tmp_path / "looks")
    assert all(file.stat().st_size for file in files)
    read = read_tables(tmp_path / "looks")
    assert tuple(judge(read)) == finding.parts


@pytest.mark.usefixtures("small")
def test_a_run_is_asked_in_place_of_the_small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Lexicon(["the", "statement"], whole=True)
    network = small_elmo.ELMo(
        small_elmo.ELMoConfig(width=8, cells=8, characters=small_elmo.LETTERS), vocabulary(tokenizer, spellings=True)
    ).eval()
    model = of_network(network, tokenizer)
    monkeypatch.setattr(small_elmo, "load", lambda run: model)
    tables, conditions = word_senses.measure(
        Settings(quick=True, data="python", run="runs/mine"), lambda done, total: None
    )
    assert tables["vectors"].column("vector") == [STATIC, "mine, input", "mine, layer 1", "mine, layer 2"]
    assert all(math.isfinite(low) for _, low, _ in tables["differences"].column("right, %"))  # over the text
    assert "the run mine" in conditions["networks"]


def test_vectors_at_places_are_those_of_embed_words() -> None:
    tokenizer = Lexicon(["he", "paints"], whole=True)
    torch.manual_seed(0)
    network = small_elmo.ELMo(
        small_elmo.ELMoConfig(width=8, cells=8, characters=small_elmo.LETTERS), vocabulary(tokenizer, spellings=True)
    ).eval()
    model: Any = of_network(network, tokenizer)
    found = in_context(model, [Place(["他", "画", "画"], 1), Place(["他", "画", "画"], 2), Place(["he", "paints"], 0)])
    (expected,) = model.embed_words([["他", "画", "画"]], "all")
    for layer, whole in zip(found, expected.vectors.numpy(), strict=True):
        np.testing.assert_allclose(layer[:2], whole[1:], atol=1e-6)
    assert np.allclose(found[0][0], found[0][1])  # by its letters 画 is 画
    assert not np.allclose(found[2][0], found[2][1])  # read in its place it is not


def test_a_table_of_vectors_is_refused_as_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Lexicon(["a", "b"])
    model = of_network(Word2Vec(Word2VecConfig(width=4), vocabulary(tokenizer)), tokenizer)
    monkeypatch.setattr(small_elmo, "load", lambda run: model)
    with pytest.raises(NextwordError, match="no layer that reads the context"):
        small_elmo.opened("runs/vectors")


def test_it_is_in_the_table_of_studies() -> None:
    assert find_study("word-senses").CLAIM.sentence
