from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.errors import Unsupported
from nextword.lm.loading import wrap_network
from nextword.models.elmo import ELMo, ELMoConfig
from nextword.models.word2vec import Word2Vec, Word2VecConfig
from nextword.studies import _experiment, _word_vectors
from nextword.studies import word_senses as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, overall_verdict
from nextword.studies._transformers import Size
from nextword.studies._word_vectors import CHINESE, ENGLISH, STATIC, Place
from nextword.studies.word_senses import ACCURACY, CLOSER, COMMON, PseudowordPlaces
from nextword.tokenizers import vocabulary
from nextword.tokenizers.ptb_words import Lexicon

# ------------------------------------------------------------------------------------------------ text and pseudowords


def test_text_is_split_into_words_and_chinese_into_characters() -> None:
    assert _word_vectors.split_sentences(["He didn't go. 他画画。Then 2 more!"]) == [
        ["he", "didn't", "go", "."],
        ["他", "画", "画", "。"],
        ["then", "2", "more", "!"],
    ]
    assert _word_vectors.detect_language({"the": 9, "bread": 91}) == ENGLISH
    assert _word_vectors.detect_language({"画": 9, "他": 9, "the": 2}) == CHINESE
    assert _word_vectors.detect_language({"der": 50, "brot": 50}) == ""


def test_merging_replaces_the_second_word() -> None:
    assert study.merge_words([["bread", "sword", "x"], ["cup"]], [("bread", "sword"), ("lamp", "cup")]) == [
        ["bread", "bread", "x"],
        ["lamp"],
    ]


def test_pairs_have_similar_frequency_and_no_stop_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "STOP_WORDS", 1)
    monkeypatch.setattr(study, "PAIRS", 2)
    counts = {"the": 99, "of": 80, ",": 70, "king": 9, "sword": 8, "bread": 7, "cup": 6, "lamp": 5}
    assert study.choose_pairs(counts) == [("king", "sword"), ("bread", "cup")]


def test_places_hold_the_pseudoword_and_its_meaning() -> None:
    result = study.find_places([["his", "sword", "and", "bread"]] * 5, [("bread", "sword")], limit=3)
    assert len(result.where) == 6
    assert all(place.words == ["his", "bread", "and", "bread"] for place in result.where)
    assert {(place.position, int(meant)) for place, meant in zip(result.where, result.meaning, strict=True)} == {
        (1, 1),
        (3, 0),
    }


def test_context_of_a_place_is_cropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_word_vectors, "REACH", 2)
    assert _word_vectors.crop(Place(list("abcdefg"), 3)) == Place(list("bcdef"), 2)
    assert _word_vectors.crop(Place(list("abcdefg"), 0)) == Place(list("abc"), 0)
    assert _word_vectors.crop(Place(list("abcdefg"), 6)) == Place(list("efg"), 2)


# ------------------------------------------------------------------------------------------------ what vectors say


def random_places(n: int, seed: int) -> PseudowordPlaces:
    draw = np.random.default_rng(seed)
    return PseudowordPlaces([Place(["x"], 0)] * n, draw.integers(0, 2, n), (draw.random(n) < 0.7).astype(np.int64))


def test_one_vector_gives_the_frequent_meaning_and_two_tell_them_apart() -> None:
    known, queries = random_places(400, 0), random_places(300, 1)
    single = np.full((1, 6), 0.3, np.float32)
    right, nearer = study.tell_meanings(single.repeat(400, 0), single.repeat(300, 0), known, queries)
    assert (nearer == 0).all()
    share = [100 * queries.meaning[queries.pair == pair].mean() for pair in (0, 1)]
    np.testing.assert_allclose(right, share)
    directions = np.random.default_rng(2).normal(size=(2, 2, 6))
    two = [
        (directions[p.pair, p.meaning] + 0.1 * np.random.default_rng(3).normal(size=(len(p.pair), 6)))
        for p in (known, queries)
    ]
    right, nearer = study.tell_meanings(*two, known, queries)
    assert (right > 99).all()
    assert (nearer > 0.3).all()


def test_neighbors_vote_and_ties_vote_together() -> None:
    draw = np.random.default_rng(0)
    senses = (draw.random(200) < 0.3).astype(np.int64)
    centres = draw.normal(size=(2, 8))
    known = centres[senses] + 0.3 * draw.normal(size=(200, 8))
    assert (study.vote_of_neighbors(known, senses, centres) == [0, 1]).all()
    table = np.array([[1.0, 2.0], [2.0, 1.0]], np.float32)
    form = np.arange(200) % 2  # two forms with a vector each, one of which means 1 more often
    meant = np.where(form == 1, draw.random(200) < 0.8, draw.random(200) < 0.1).astype(np.int64)
    assert study.vote_of_neighbors(table[form], meant, table).tolist() == [0, 1]
    same = np.ones((200, 3), np.float32)
    assert (study.vote_of_neighbors(same, senses, same) == 0).all()  # nothing to tell them by: the commonest


def test_repeated_words_are_found() -> None:
    results = study.find_repeated([["the", "sea", "the", "sea"], ["a", "b"], ["!", "!"]], {"the"})
    assert [(a.words[a.position], a.position, b.position) for a, b in results] == [("sea", 1, 3)]


@pytest.mark.parametrize("spoken", [ENGLISH, CHINESE])
def test_examples_compare_one_word(spoken: str) -> None:
    for here, there in study.make_examples(spoken):
        assert here.words[here.position] == there.words[there.position] in ("bank", "play", "画")
        assert (here.words, here.position) != (there.words, there.position)
    assert study.make_examples("") == []


# ------------------------------------------------------------------------------------------------ verdicts

LAST = "ELMo, layer 2"


def make_tables(static: Any, gain: Any, senses: Any = None, repeated: Any = None) -> dict[str, Table]:
    columns = ("vector", ACCURACY, CLOSER)
    levels = (
        (STATIC, [51.0, 50.0, 52.0], static),
        ("ELMo, input", [51.0, 50.0, 52.0], [0.0] * 3),
        (LAST, [51 + gain[0]] * 3, [0.2, 0.1, 0.3]),
    )
    gains = (("ELMo, input", [0.0, 0.0, 0.0], [0.0] * 3), (LAST, gain, [0.2, 0.1, 0.3]))
    tables = {"vectors": Table("", columns, levels), "differences": Table("", columns, gains)}
    if senses:
        rows = tuple((name, [60.0, 59.0, 61.0]) for name in (STATIC, "ELMo, input", LAST, COMMON))
        tables["senses"] = Table("", ("vector", ACCURACY), rows)
        tables["sense differences"] = Table("", ("vector", STATIC, COMMON), ((LAST, senses, senses),))
    if repeated:
        tables["repeated"] = Table("", ("vector", "cosine"), ((STATIC, [1.0, 1.0, 1.0]), (LAST, repeated)))
    return tables


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
def test_verdict_follows_the_numbers(static: Any, gain: Any, senses: Any, expected: str) -> None:
    parts = study.judge(make_tables(static, gain, senses))
    assert overall_verdict(parts) == expected
    assert all(part.evidence.endswith(".") for part in parts)


@pytest.mark.parametrize(
    ("cosine", "expected"), [([0.9, 0.8, 0.95], HOLDS), ([0.97, 0.9, 1.04], UNDECIDED), ([0.97, None, None], UNDECIDED)]
)
def test_repeated_word_is_a_side_result(cosine: Any, expected: str) -> None:
    (part,) = (
        p
        for p in study.judge(make_tables([0.0] * 3, [30.0, 25.0, 35.0], None, cosine))
        if p.statement.startswith("Twice")
    )
    assert (part.verdict, part.decides) == (expected, False)


# ------------------------------------------------------------------------------------------------ the whole study

TINY = Size(width=8, layers=2, rows=4, length=8, steps=3, rate=5e-3)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEXTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NEXTWORD_DATA", str(tmp_path / "none"))
    monkeypatch.setattr(_experiment, "num_cores", lambda: 1)
    for name, value in {
        "QUICK": TINY,
        "VOCABULARY": 300,
        "TRAIN_PLACES": 6,
        "TEST_PLACES": 4,
        "MIN_PLACES": 10,
    }.items():
        monkeypatch.setattr(study, name, value)
    monkeypatch.setattr(study, "REPEATED", 5)
    monkeypatch.setattr(_word_vectors, "PASSES", 1)


@pytest.mark.usefixtures("small")
def test_run_replaces_the_small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Lexicon(["the", "statement"], whole=True)
    network = ELMo(
        ELMoConfig(width=8, cell_size=8, characters=_word_vectors.LETTERS), vocabulary(tokenizer, spellings=True)
    ).eval()
    model = wrap_network(network, tokenizer)
    monkeypatch.setattr(_word_vectors, "load", lambda run: model)
    tables, conditions = study.measure(Settings(quick=True, data="python", run="runs/mine"), lambda done, total: None)
    assert tables["vectors"].column("vector") == [STATIC, "mine, input", "mine, layer 1", "mine, layer 2"]
    assert all(math.isfinite(low) for _, low, _ in tables["differences"].column(ACCURACY))  # over the text
    assert "the run mine" in conditions["networks"]


def test_contextual_vectors_equal_embed_words() -> None:
    tokenizer = Lexicon(["he", "paints"], whole=True)
    torch.manual_seed(0)
    network = ELMo(
        ELMoConfig(width=8, cell_size=8, characters=_word_vectors.LETTERS), vocabulary(tokenizer, spellings=True)
    ).eval()
    model: Any = wrap_network(network, tokenizer)
    result = _word_vectors.contextual_vectors(
        model, [Place(["他", "画", "画"], 1), Place(["他", "画", "画"], 2), Place(["he", "paints"], 0)]
    )
    (expected,) = model.embed_words([["他", "画", "画"]], "all")
    for layer, full in zip(result, expected.vectors.numpy(), strict=True):
        np.testing.assert_allclose(layer[:2], full[1:], atol=1e-6)
    assert np.allclose(result[0][0], result[0][1])  # by its letters 画 is 画
    assert not np.allclose(result[2][0], result[2][1])  # read in its place it is not


def test_static_run_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Lexicon(["a", "b"])
    model = wrap_network(Word2Vec(Word2VecConfig(width=4), vocabulary(tokenizer)), tokenizer)
    monkeypatch.setattr(_word_vectors, "load", lambda run: model)
    with pytest.raises(Unsupported) as caught:
        _word_vectors.load_layered_run("runs/vectors")
    assert caught.value.ability == "embed"
