from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.errors import NextwordError
from nextword.core.types import IGNORE, Inputs
from nextword.data.builtin import default_name
from nextword.data.opening import open_corpus
from nextword.generation.infilling import WordPieces
from nextword.studies import blank_filling as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from nextword.studies._transformers import Size, Text, encode_corpus, masked_lm
from nextword.studies.blank_filling import (
    ACCURACY,
    AT_ONCE,
    BERT_GIVEN,
    BERT_NAME,
    BY_PSEUDO,
    GLM_NAME,
    GPT,
    GPT_GIVEN,
    METHODS,
    NATS,
    PSEUDO,
    RESCORED,
    SEVERAL,
    Answers,
    Blank,
    BlankSettings,
    Filling,
    Rules,
    judge,
)
from nextword.tokenizers.base import Tokenizer
from nextword.tokenizers.special_tokens import PieceMarks
from tests.support.small_pairs import write_pairs
from tests.support.study_tables import ABOVE, BELOW, ONE_SEED, UNSURE, verdicts

TINY = Size(width=16, layers=1, heads=2, rows=8, length=24, steps=4)
ASKED = BlankSettings(words=(1, 2), each=6, max_pieces=4, beam=3)


@pytest.fixture(scope="module")
def corpus() -> tuple[Text, Tokenizer]:
    return encode_corpus(open_corpus("python"), 400)


@pytest.fixture(scope="module")
def blanks_and_rules(corpus: tuple[Text, Tokenizer]) -> tuple[list[Blank], Rules]:
    return study.choose_blanks(*corpus, TINY, ASKED)


# ------------------------------------------------------------------------------------------------ what is read


def test_spans_and_context_restore_the_text() -> None:
    """Row by row: what is left with the pieces in place of their masks is the text again; marks stay."""
    marks = PieceMarks(begin=2, end=3, masks=(100, 101, 102))
    draw = np.random.default_rng(0)
    ids = draw.integers(5, 90, (40, 20))
    sizes = draw.integers(8, 21, 40)
    ids[np.arange(40), sizes - 1] = 3
    ids[:, 4] = 3  # one in the middle
    batch = study.span_batch(ids, sizes, [2, 3], marks, np.random.default_rng(1))
    assert batch.inputs.positions is not None
    total = 0
    for row, size, read, at, target in zip(
        ids, sizes, batch.inputs.ids, batch.inputs.positions, batch.targets, strict=True
    ):
        spans: dict[int, list[int]] = {}
        for place, inside, id in zip(*at.T.tolist(), target.tolist(), strict=True):
            if id != IGNORE:
                assert inside == len(spans.setdefault(place, [])) + 1
                spans[place].append(id)
        assert spans
        assert all(own[-1] == 3 and 3 not in own[:-1] for own in spans.values())
        left = [int(id) for id, (_, inside) in zip(read, at.tolist(), strict=True) if inside == 0]
        text = [i for place, id in enumerate(left) for i in (spans[place][:-1] if id == 100 else [id])]
        assert text == [2, *row[:size].tolist()]
        gone = sum(len(own) - 1 for own in spans.values())
        assert gone <= 0.15 * size + 10
        total += 1 + size + 2 * len(spans)
    assert study.count_tokens(batch) == total


def test_all_networks_read_equally_many_tokens(corpus: tuple[Text, Tokenizer]) -> None:
    size = replace(TINY, steps=60)
    text = corpus[0]
    readings = [learn(0, size, text)[1] for learn, _ in study.TRAINERS.values()]
    (fewer, tokens, pieces), (steps, same, hidden), (_, again, every) = readings
    assert fewer == study.equal_steps(size, text) < steps == 60
    assert tokens == pytest.approx(same, rel=0.03)
    assert again == same
    assert every == same - 60 * size.rows  # all but what rows begin with
    assert 0.1 * same < hidden < 0.2 * same
    assert 0.1 * same < pieces < 0.3 * same  # the ends of pieces among them


# ------------------------------------------------------------------------------------------------ what is asked


def test_word_ends_stop_at_punctuation() -> None:
    begins = np.array([0, 1, 0, 1, 0, 0, 1, 1, 0], bool)  # [CLS] un ##do the . ##x a man [SEP]
    inner = np.array([0, 0, 1, 0, 0, 1, 0, 0, 0], bool)
    ends = study.word_ends(begins, inner)
    assert ends == {1: 3, 3: 4, 6: 7, 7: 8}
    assert [study.end_of_run(i, 2, ends) for i in ends] == [4, -1, 8, -1]  # punctuation ends a run of words


def test_blanks_are_whole_words_that_fit(corpus: tuple[Text, Tokenizer]) -> None:
    (text, tokenizer), parts = corpus, WordPieces(corpus[1])
    rows = masked_lm(TINY, text.vocabulary)
    blanks = list(study.find_blanks(rows.validation_batches(text.test), (1, 2, 3), tokenizer, 5, 18))
    assert {blank.words for blank in blanks} == {1, 2, 3}
    special = set(tokenizer.special.values())
    for blank in blanks:
        assert sum(bool(parts.begins[id]) for id in blank.piece) == blank.words
        assert parts.begins[blank.piece[0]]
        assert not parts.inner[blank.right[0]]
        assert not special & set(blank.piece)
        assert blank.left[0] == tokenizer.begin
        assert blank.right[-1] == tokenizer.end
        assert len(blank.piece) <= 5
        assert len(blank.left) + len(blank.right) <= 18
    assert blanks == list(study.find_blanks(rows.validation_batches(text.test), (1, 2, 3), tokenizer, 5, 18))


def test_length_shares_come_from_training_blanks(blanks_and_rules: tuple[list[Blank], Rules]) -> None:
    blanks, rules = blanks_and_rules
    assert [blank.words for blank in blanks] == [1] * 6 + [2] * 6
    assert sum(rules.length_shares) == pytest.approx(1)
    shares = study.estimate_lengths([Blank((), (1,) * n, (), 1) for n in (1, 1, 1, 2)], 3)
    assert shares == pytest.approx((4 / 7, 2 / 7, 1 / 7))


# ------------------------------------------------------------------------------------------------ what is filled


class TableNetwork:
    """Fills or reads on from a table: p of a token depends on the one before it, and on how many masks there are."""

    def __init__(self, tokenizer: Tokenizer, chosen: dict[tuple[int, int], dict[int, float]]) -> None:
        self.tokenizer, self.chosen, self.device = tokenizer, chosen, torch.device("cpu")
        self.special, self.size = tokenizer.special, len(tokenizer)
        self.vocabulary = self
        self.mask = tokenizer.special["[MASK]"]

    def fill(self, inputs: Inputs, at: torch.Tensor) -> torch.Tensor:
        flat, steps = inputs.ids.flatten(), inputs.ids.shape[1]
        out = torch.full((len(at), self.size), -20.0)
        for i, place in enumerate(at.tolist()):
            masks = int((inputs.ids[place // steps] == self.mask).sum())
            for id, p in self.chosen.get((int(flat[place - 1]), masks), {}).items():
                out[i, id] = math.log(p)
        return out


@pytest.fixture(scope="module")
def tiny_model(corpus: tuple[Text, Tokenizer]) -> tuple[Any, Blank, Rules, tuple[int, int, int]]:
    """left _ right: of one piece b; of two, a then b (0.6 · 0.5) or b then c (0.4 · 0.9), which is likelier."""
    tokenizer = corpus[1]
    a, b, c, left, right = np.flatnonzero(WordPieces(tokenizer).begins.numpy())[:5].tolist()
    network = TableNetwork(
        tokenizer,
        {
            (left, 1): {b: 0.3, a: 0.2},
            (left, 2): {a: 0.6, b: 0.4},
            (tokenizer.special["[MASK]"], 2): {c: 0.8, b: 0.2},  # the second of two, the first unknown
            (a, 1): {b: 0.5, c: 0.3},
            (b, 1): {c: 0.9},
        },
    )
    blank = Blank((tokenizer.begin, left), (b, c), (right, int(tokenizer.end or 0)), 2)
    return network, blank, Rules(tokenizer, (0.5, 0.5), 2), (a, b, c)


def test_bert_with_given_length_finds_the_most_likely_filling(
    tiny_model: tuple[Any, Blank, Rules, tuple[int, int, int]],
) -> None:
    network, blank, rules, (a, b, c) = tiny_model
    (result,) = list(study.beam_search([blank], study.masked_scorer(network, 2), 2, rules))[-1]
    assert result[0] == (pytest.approx((b, c)), pytest.approx(math.log(0.36)))
    greedy = list(study.beam_search([blank], study.masked_scorer(network, 2), 2, replace(rules, beam=1)))[-1]
    assert greedy[0][0].ids == (a, b)
    answers = study.fill_with_bert(network, [blank], rules)
    assert answers[BERT_GIVEN].fillings == [(b, c)]  # as many as are missing
    assert answers[AT_ONCE].fillings == [(a, c)]  # each the likeliest by itself
    assert answers[BERT_NAME].fillings == [(b, c)]  # 0.5 · 0.36 is more than 0.5 · 0.3
    first = study.fill_with_bert(network, [blank], replace(rules, length_shares=(0.6, 0.4)))
    assert first[BERT_NAME].fillings == [(b,)]
    assert first[BERT_GIVEN].fillings == [(b, c)]
    costs = {way: answer.nats for way, answer in answers.items() if answer.nats is not None}
    expected = {BERT_GIVEN: 0.36, BERT_NAME: 0.18, AT_ONCE: 0.4 * 0.8}
    for way, p in expected.items():
        assert costs[way] == pytest.approx([-math.log(p)])
    # Hidden one by one: b before c after `left`, one mask; c after b
    assert costs[PSEUDO] == pytest.approx([-math.log(0.3 * 0.9)])


def test_given_length_is_respected(corpus: tuple[Text, Tokenizer], blanks_and_rules: tuple[list[Blank], Rules]) -> None:
    (text, tokenizer), (blanks, rules) = corpus, blanks_and_rules
    answers: Answers = {}
    for learn, fills in study.TRAINERS.values():
        answers |= fills(learn(0, TINY, text)[0], blanks, rules)
    assert set(answers) == {*METHODS, PSEUDO}
    sizes = [len(blank.piece) for blank in blanks]
    for way in (BERT_GIVEN, AT_ONCE, GPT_GIVEN):
        assert [len(ids) for ids in answers[way].fillings or ()] == sizes
    special, inner = set(tokenizer.special.values()), WordPieces(tokenizer).inner
    for way in (GLM_NAME, BERT_NAME, BY_PSEUDO, GPT, RESCORED, BERT_GIVEN, GPT_GIVEN):
        for ids in answers[way].fillings or ():
            assert 1 <= len(ids) <= rules.max_pieces + 1
            assert not special & set(ids)
            assert not inner[ids[0]]
    shares = study.log_shares(blanks, rules)
    for given, alone in ((BERT_GIVEN, BERT_NAME), (GPT_GIVEN, GPT)):
        mine, its = answers[alone].nats, answers[given].nats
        assert mine is not None
        assert its is not None
        assert mine + shares == pytest.approx(its, abs=1e-4)


def test_score_from_adds_up_token_by_token(
    corpus: tuple[Text, Tokenizer], blanks_and_rules: tuple[list[Blank], Rules]
) -> None:
    network, _ = study.train_gpt2(0, TINY, corpus[0])
    rows = [blank.fill(blank.piece) for blank in blanks_and_rules[0]]
    first = [len(blank.left) for blank in blanks_and_rules[0]]
    full = study.score_from(network, rows, first)
    for row, at, total in zip(rows, first, full, strict=True):
        each = [float(study.predict_at(network, [row[:i]], [i - 1])[0, row[i]]) for i in range(at, len(row))]
        assert total == pytest.approx(sum(each), abs=1e-4)


def test_rescoring_redistributes_the_joint_probability() -> None:
    every = [Filling((1,), math.log(0.3)), Filling((2,), math.log(0.2)), Filling((3, 4), math.log(0.1))]
    follows = np.log([0.1, 0.1, 0.9])
    weights = {(1,): 0.03, (2,): 0.02, (3, 4): 0.09}
    total = 0.0
    for item in every:
        best, nats = study.rescore(every, follows, Blank((), item.ids, (), 1), -9.0)
        assert best == (3, 4)
        assert math.exp(-nats) == pytest.approx(0.6 * weights[item.ids] / 0.14)
        total += math.exp(-nats)
    assert total == pytest.approx(0.6)
    assert study.rescore(every, follows, Blank((), (9,), (), 1), -9.0)[1] == 9.0  # not a candidate: its own


def test_nats_belong_to_distributions(corpus: tuple[Text, Tokenizer]) -> None:
    """Over all fillings of one piece BERT's and GPT-2's add up to one with a given length; GLM's to less,
    which has longer ones to think of."""
    text, tokenizer = corpus
    rows = masked_lm(TINY, text.vocabulary)
    (first,) = islice(study.find_blanks(rows.validation_batches(text.test), (1,), tokenizer, 4, 18), 1)
    every = [first._replace(piece=(id,)) for id in range(len(tokenizer))]
    bert, gpt = (learn(0, TINY, text)[0] for learn in (study.train_bert, study.train_gpt2))
    nats = study.score_truth(bert, every, together=False).nats
    assert nats is not None
    assert np.exp(-nats).sum() == pytest.approx(1, abs=1e-4)
    log_p = study.score_from(gpt, [[*b.left, *b.piece] for b in every], [len(first.left)] * len(every))
    assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-4)
    network = study.train_glm(0, TINY, text)[0]
    glm = study.fill_with_glm(network, every, Rules(tokenizer, (0.7, 0.3), 1))[GLM_NAME].nats
    assert glm is not None
    assert 0 < np.exp(-glm).sum() < 1


# ------------------------------------------------------------------------------------------------ verdicts


def make_tables(pseudo: float = 1.0, **cells: Any) -> dict[str, Table]:
    """GLM is better at everything, unless e.g. `GPT_nats` says otherwise for several words."""
    methods = {"BERT": BERT_NAME, "PSEUDO": BY_PSEUDO, "GPT": GPT, "GIVEN": BERT_GIVEN, "RESCORED": RESCORED}
    given = {}
    for key, cell in cells.items():
        method, kind = key.split("_")
        given[methods[method], {"accuracy": ACCURACY, "nats": NATS}[kind]] = cell
    groups = ("1", "2", SEVERAL)
    rows = []
    for method, other in (*((GLM_NAME, other) for other in METHODS if other != GLM_NAME), (BERT_GIVEN, AT_ONCE)):
        for words in groups:
            own = [given.get((other, kind), ABOVE) if words == SEVERAL else ABOVE for kind in (ACCURACY, NATS)]
            rows.append((method, other, words, *own))
    levels = tuple((method, *[[pseudo if method == BY_PSEUDO else 2.0] * 3] * 3) for method in METHODS)
    columns = ("method", "compared with", "words", ACCURACY, NATS)
    return {kind: Table("", ("method", *groups), levels) for kind in (ACCURACY, NATS)} | {
        "differences": Table("", columns, tuple(rows))
    }


@pytest.mark.parametrize(
    ("cell", "expected"), [(ABOVE, HOLDS), (BELOW, FAILS), (UNSURE, UNDECIDED), (ONE_SEED, UNDECIDED)]
)
@pytest.mark.parametrize(("name", "at"), [("BERT_accuracy", 0), ("GPT_accuracy", 1), ("BERT_nats", 2), ("GPT_nats", 3)])
def test_each_deciding_part_can_reverse_the_verdict(name: str, at: int, cell: Any, expected: str) -> None:
    assert overall_verdict(judge(make_tables())) == HOLDS
    parts = judge(make_tables(**{name: cell}))
    assert verdicts(parts[:4]) == [expected if i == at else HOLDS for i in range(4)]
    assert overall_verdict(parts) == expected
    assert ("worse" in parts[at].evidence) == (cell is BELOW)


def test_side_results_decide_nothing() -> None:
    cells = {"GIVEN_accuracy": BELOW, "GIVEN_nats": BELOW, "RESCORED_accuracy": BELOW, "RESCORED_nats": UNSURE}
    parts = judge(make_tables(**cells))
    assert overall_verdict(parts) == HOLDS
    assert {part.verdict for part in parts if not part.decides} == {HOLDS, FAILS, UNDECIDED}


def test_bert_is_judged_by_its_better_ranking() -> None:
    assert overall_verdict(judge(make_tables(pseudo=1.0, PSEUDO_accuracy=BELOW))) == HOLDS
    assert overall_verdict(judge(make_tables(pseudo=3.0, PSEUDO_accuracy=BELOW))) == FAILS


def test_captions_are_the_default_text_if_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = write_pairs(tmp_path)
    monkeypatch.setattr(study, "CAPTIONS", pairs)
    assert study.choose_text("").name.endswith(":xx-yy")
    assert study.choose_text(pairs).splits == ("train", "valid", "test")
    monkeypatch.setattr(study, "CAPTIONS", str(tmp_path / "nowhere:xx-yy"))
    assert study.choose_text("").name == open_corpus(default_name()).name
    with pytest.raises(NextwordError):
        study.choose_text(str(tmp_path / "nowhere:xx-yy"))
