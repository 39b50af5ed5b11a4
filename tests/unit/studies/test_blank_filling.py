"""The study of blanks: its parts checked by hand, verdicts that follow the numbers, and the whole run very small."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.small_pairs import write_pairs
from tests.support.csv_tables import read_tables

from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.core.types import IGNORE, Inputs
from nextword.data.builtin import default_name
from nextword.data.opening import open_corpus
from nextword.generation.infilling import Pieces
from nextword.studies import _experiment as pool
from nextword.studies import blank_filling as blanks
from nextword.studies import blank_filling as blanks_asked
from nextword.studies import blank_filling as blanks_filling
from nextword.studies import blank_filling as blanks_networks
from nextword.studies import find_study
from nextword.studies._small_models import Size, Text, short_sentences, text_of
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, run, verdict, write
from nextword.studies.blank_filling import (
    AT_ONCE,
    BERT_NAME,
    GLM_NAME,
    GPT,
    LIKED,
    NATS,
    PSEUDO,
    RESCORED,
    RIGHT,
    SEVERAL,
    TOLD_BERT,
    TOLD_GPT,
    WAYS,
    Asked,
    Blank,
    Found,
    Rules,
    judge,
)
from nextword.tokenizers.base import PieceMarks

TINY = Size(width=16, layers=1, heads=2, rows=8, length=24, steps=4)
ASKED = Asked(words=(1, 2), each=6, most=4, width=3)


@pytest.fixture(scope="module")
def both() -> tuple[Text, Tokenizer]:
    return text_of(open_corpus("python"), 400)


@pytest.fixture(scope="module")
def asked(both: tuple[Text, Tokenizer]) -> tuple[list[Blank], Rules]:
    return blanks_asked.asked_of(*both, TINY, ASKED)


# ------------------------------------------------------------------------------------------------ what is read


def test_pieces_go_and_come_back_word_for_word() -> None:
    """Row by row: what is left with the pieces in place of their masks is the text again; marks stay."""
    marks = PieceMarks(begin=2, end=3, masks=(100, 101, 102))
    draw = np.random.default_rng(0)
    ids = draw.integers(5, 90, (40, 20))
    sizes = draw.integers(8, 21, 40)
    ids[np.arange(40), sizes - 1] = 3
    ids[:, 4] = 3  # one in the middle
    batch = blanks_networks.pieces_out(ids, sizes, [2, 3], marks, np.random.default_rng(1))
    assert batch.inputs.positions is not None
    total = 0
    for row, size, read, at, target in zip(
        ids, sizes, batch.inputs.ids, batch.inputs.positions, batch.targets, strict=True
    ):
        said: dict[int, list[int]] = {}
        for place, inside, id in zip(*at.T.tolist(), target.tolist(), strict=True):
            if id != IGNORE:
                assert inside == len(said.setdefault(place, [])) + 1
                said[place].append(id)
        assert said
        assert all(own[-1] == 3 and 3 not in own[:-1] for own in said.values())
        left = [int(id) for id, (_, inside) in zip(read, at.tolist(), strict=True) if inside == 0]
        text = [i for place, id in enumerate(left) for i in (said[place][:-1] if id == 100 else [id])]
        assert text == [2, *row[:size].tolist()]
        gone = sum(len(own) - 1 for own in said.values())
        assert gone <= 0.15 * size + 10
        total += 1 + size + 2 * len(said)
    assert blanks_networks.tokens_read(batch) == total


def test_all_three_read_as_many_tokens_of_the_same_rows(both: tuple[Text, Tokenizer]) -> None:
    size = replace(TINY, steps=60)
    text = both[0]
    found = [learn(0, size, text)[1] for learn, _ in blanks.LEARN.values()]
    (fewer, tokens, pieces), (steps, same, hidden), (_, again, every) = found
    assert fewer == blanks_networks.equal_steps(size, text) < steps == 60
    assert tokens == pytest.approx(same, rel=0.03)
    assert again == same
    assert every == same - 60 * size.rows  # all but what rows begin with
    assert 0.1 * same < hidden < 0.2 * same
    assert 0.1 * same < pieces < 0.3 * same  # the ends of pieces among them


# ------------------------------------------------------------------------------------------------ what is asked


def test_words_end_where_they_do() -> None:
    begins = np.array([0, 1, 0, 1, 0, 0, 1, 1, 0], bool)  # [CLS] un ##do the . ##x a man [SEP]
    inner = np.array([0, 0, 1, 0, 0, 1, 0, 0, 0], bool)
    ends = blanks_asked.word_ends(begins, inner)
    assert ends == {1: 3, 3: 4, 6: 7, 7: 8}
    assert [blanks_asked._after(i, 2, ends) for i in ends] == [4, -1, 8, -1]  # punctuation ends a run of words


def test_blanks_are_whole_words_with_room_around(both: tuple[Text, Tokenizer]) -> None:
    (text, tokenizer), parts = both, Pieces(both[1])
    rows = short_sentences(TINY, text.vocabulary)
    found = list(blanks_asked.blanks_in(rows.held_out(text.test), (1, 2, 3), tokenizer, 5, 18))
    assert {blank.words for blank in found} == {1, 2, 3}
    special = set(tokenizer.special.values())
    for blank in found:
        assert sum(bool(parts.begins[id]) for id in blank.piece) == blank.words
        assert parts.begins[blank.piece[0]]
        assert not parts.inner[blank.right[0]]
        assert not special & set(blank.piece)
        assert blank.left[0] == tokenizer.begin
        assert blank.right[-1] == tokenizer.end
        assert len(blank.piece) <= 5
        assert len(blank.left) + len(blank.right) <= 18
    assert found == list(blanks_asked.blanks_in(rows.held_out(text.test), (1, 2, 3), tokenizer, 5, 18))


def test_lengths_are_those_of_the_text_learnt_from(asked: tuple[list[Blank], Rules]) -> None:
    found, rules = asked
    assert [blank.words for blank in found] == [1] * 6 + [2] * 6
    assert sum(rules.shares) == pytest.approx(1)
    shares = blanks_asked.shares_of([Blank((), (1,) * n, (), 1) for n in (1, 1, 1, 2)], 3)
    assert shares == pytest.approx((4 / 7, 2 / 7, 1 / 7))


# ------------------------------------------------------------------------------------------------ what is filled


class Written:
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
def little(both: tuple[Text, Tokenizer]) -> tuple[Any, Blank, Rules, tuple[int, int, int]]:
    """left _ right: of one piece b; of two, a then b (0.6 · 0.5) or b then c (0.4 · 0.9), which is likelier."""
    tokenizer = both[1]
    a, b, c, left, right = np.flatnonzero(Pieces(tokenizer).begins.numpy())[:5].tolist()
    network = Written(
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


def test_bert_told_the_length_finds_the_likeliest_of_that_length(
    little: tuple[Any, Blank, Rules, tuple[int, int, int]],
) -> None:
    network, blank, rules, (a, b, c) = little
    (found,) = list(blanks_filling.grown([blank], blanks_filling._hidden(network, 2), 2, rules))[-1]
    assert found[0] == (pytest.approx((b, c)), pytest.approx(math.log(0.36)))
    greedy = list(blanks_filling.grown([blank], blanks_filling._hidden(network, 2), 2, replace(rules, width=1)))[-1]
    assert greedy[0][0].ids == (a, b)
    answers = blanks_filling.bert_fills(network, [blank], rules)
    assert answers[TOLD_BERT].written == [(b, c)]  # as many as are missing
    assert answers[AT_ONCE].written == [(a, c)]  # each the likeliest by itself
    assert answers[BERT_NAME].written == [(b, c)]  # 0.5 · 0.36 is more than 0.5 · 0.3
    one = blanks_filling.bert_fills(network, [blank], replace(rules, shares=(0.6, 0.4)))
    assert one[BERT_NAME].written == [(b,)]
    assert one[TOLD_BERT].written == [(b, c)]
    costs = {way: answer.nats for way, answer in answers.items() if answer.nats is not None}
    expected = {TOLD_BERT: 0.36, BERT_NAME: 0.18, AT_ONCE: 0.4 * 0.8}
    for way, p in expected.items():
        assert costs[way] == pytest.approx([-math.log(p)])
    # Hidden one by one: b before c after `left`, one mask; c after b
    assert costs[PSEUDO] == pytest.approx([-math.log(0.3 * 0.9)])


def test_a_network_told_the_length_says_so_many_pieces(
    both: tuple[Text, Tokenizer], asked: tuple[list[Blank], Rules]
) -> None:
    (text, tokenizer), (found, rules) = both, asked
    answers: blanks_filling.Answers = {}
    for learn, fills in blanks.LEARN.values():
        answers |= fills(learn(0, TINY, text)[0], found, rules)
    assert set(answers) == {*WAYS, PSEUDO}
    sizes = [len(blank.piece) for blank in found]
    for way in (TOLD_BERT, AT_ONCE, TOLD_GPT):
        assert [len(ids) for ids in answers[way].written or ()] == sizes
    special, inner = set(tokenizer.special.values()), Pieces(tokenizer).inner
    for way in (GLM_NAME, BERT_NAME, LIKED, GPT, RESCORED, TOLD_BERT, TOLD_GPT):
        for ids in answers[way].written or ():
            assert 1 <= len(ids) <= rules.most + 1
            assert not special & set(ids)
            assert not inner[ids[0]]
    shares = blanks_filling.log_shares(found, rules)
    for told, alone in ((TOLD_BERT, BERT_NAME), (TOLD_GPT, GPT)):
        mine, its = answers[alone].nats, answers[told].nats
        assert mine is not None
        assert its is not None
        assert mine + shares == pytest.approx(its, abs=1e-4)


def test_what_follows_is_what_is_said_token_by_token(
    both: tuple[Text, Tokenizer], asked: tuple[list[Blank], Rules]
) -> None:
    network, _ = blanks_networks.from_the_left(0, TINY, both[0])
    rows = [blank.with_in(blank.piece) for blank in asked[0]]
    first = [len(blank.left) for blank in asked[0]]
    whole = blanks_filling.followed(network, rows, first)
    for row, at, total in zip(rows, first, whole, strict=True):
        each = [float(blanks_filling.said(network, [row[:i]], [i - 1])[0, row[i]]) for i in range(at, len(row))]
        assert total == pytest.approx(sum(each), abs=1e-4)


def test_those_found_share_by_what_follows_and_keep_their_sum() -> None:
    every = [Found((1,), math.log(0.3)), Found((2,), math.log(0.2)), Found((3, 4), math.log(0.1))]
    follows = np.log([0.1, 0.1, 0.9])
    weights = {(1,): 0.03, (2,): 0.02, (3, 4): 0.09}
    total = 0.0
    for one in every:
        best, nats = blanks_filling.shared(every, follows, Blank((), one.ids, (), 1), -9.0)
        assert best == (3, 4)
        assert math.exp(-nats) == pytest.approx(0.6 * weights[one.ids] / 0.14)
        total += math.exp(-nats)
    assert total == pytest.approx(0.6)
    assert blanks_filling.shared(every, follows, Blank((), (9,), (), 1), -9.0)[1] == 9.0  # not found: its own


def test_costs_are_of_distributions(both: tuple[Text, Tokenizer]) -> None:
    """Over all fillings of one piece BERT's and GPT-2's add up to one where they are told the length; GLM's to less,
    which has longer ones to think of."""
    text, tokenizer = both
    rows = short_sentences(TINY, text.vocabulary)
    (one,) = islice(blanks_asked.blanks_in(rows.held_out(text.test), (1,), tokenizer, 4, 18), 1)
    every = [one._replace(piece=(id,)) for id in range(len(tokenizer))]
    bert, gpt = (learn(0, TINY, text)[0] for learn in (blanks_networks.both_sides, blanks_networks.from_the_left))
    nats = blanks_filling.truth(bert, every, together=False).nats
    assert nats is not None
    assert np.exp(-nats).sum() == pytest.approx(1, abs=1e-4)
    log_p = blanks_filling.followed(gpt, [[*b.left, *b.piece] for b in every], [len(one.left)] * len(every))
    assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-4)
    network = blanks_networks.filler(0, TINY, text)[0]
    glm = blanks_filling.glm_fills(network, every, Rules(tokenizer, (0.7, 0.3), 1))[GLM_NAME].nats
    assert glm is not None
    assert 0 < np.exp(-glm).sum() < 1


# ------------------------------------------------------------------------------------------------ verdicts

MORE, LESS, UNSURE, ONE_SEED = [1.0, 0.5, 1.5], [-1.0, -1.5, -0.5], [0.1, -1.0, 1.2], [1.0, None, None]


def numbers(liked: float = 1.0, **cells: Any) -> dict[str, Table]:
    """GLM is better at all; `GPT_nats=LESS` and so on say otherwise, of several words."""
    names = {"BERT": BERT_NAME, "LIKED": LIKED, "GPT": GPT, "TOLD": TOLD_BERT, "RESCORED": RESCORED}
    changed = {(names[k.split("_")[0]], {"right": RIGHT, "nats": NATS}[k.split("_")[1]]): v for k, v in cells.items()}
    groups = ("1", "2", SEVERAL)
    rows = []
    for way, than in (*((GLM_NAME, other) for other in WAYS if other != GLM_NAME), (TOLD_BERT, AT_ONCE)):
        for words in groups:
            own = [changed.get((than, kind), MORE) if words == SEVERAL else MORE for kind in (RIGHT, NATS)]
            rows.append((way, than, words, *own))
    levels = {LIKED: liked}
    return {
        kind: Table("", ("network", *groups), tuple((way, *[[levels.get(way, 2.0)] * 3] * 3) for way in WAYS))
        for kind in (RIGHT, NATS)
    } | {"differences": Table("", ("network", "than", "words", RIGHT, NATS), tuple(rows))}


@pytest.mark.parametrize(
    ("cell", "expected"), [(MORE, HOLDS), (LESS, FAILS), (UNSURE, UNDECIDED), (ONE_SEED, UNDECIDED)]
)
@pytest.mark.parametrize(("name", "at"), [("BERT_right", 0), ("GPT_right", 1), ("BERT_nats", 2), ("GPT_nats", 3)])
def test_each_part_that_decides_can_turn_the_verdict(name: str, at: int, cell: Any, expected: str) -> None:
    assert verdict(judge(numbers())) == HOLDS
    parts = judge(numbers(**{name: cell}))
    assert [part.verdict for part in parts[:4]] == [expected if i == at else HOLDS for i in range(4)]
    assert verdict(parts) == expected
    assert ("worse" in parts[at].found) == (cell is LESS)


def test_what_is_beside_the_claim_decides_nothing() -> None:
    parts = judge(numbers(TOLD_right=LESS, TOLD_nats=LESS, RESCORED_right=LESS, RESCORED_nats=UNSURE))
    assert verdict(parts) == HOLDS
    assert {part.verdict for part in parts if not part.decides} == {HOLDS, FAILS, UNDECIDED}


def test_bert_not_told_is_judged_by_the_better_of_its_two_ways() -> None:
    tables = {"LIKED_right": LESS}
    assert verdict(judge(numbers(liked=1.0, **tables))) == HOLDS
    assert verdict(judge(numbers(liked=3.0, **tables))) == FAILS


# ------------------------------------------------------------------------------------------------ the whole


def test_a_small_run_has_all_it_should_and_its_verdict_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "cores", lambda: 1)
    for name, value in {"QUICK": TINY, "QUICK_ASKED": ASKED, "PIECES": 400, "LEAST": 5}.items():
        monkeypatch.setattr(blanks, name, value)
    study = find_study("blanks")
    finding = run("blanks", study, Settings(quick=True, seeds=(0, 1), data="python"))
    assert {"data", "networks", "training", "filling", "intervals", "seeds", "command"} <= set(finding.conditions)
    assert all(part.says and part.found and part.uncertainty for part in finding.parts)
    assert finding.tables[RIGHT].column("network") == list(WAYS)
    assert finding.tables[NATS].column("network") == [*(way for way in WAYS if way != LIKED), PSEUDO]
    for table in finding.tables.values():
        assert all(len(row) == len(table.columns) for row in table.rows)
    for way, words in product(WAYS, ("1", "2", SEVERAL)):
        assert 0 <= finding.tables[RIGHT].cell(words, network=way)[0] <= 100
    read = finding.tables["learning"].column("tokens read")
    assert read[0][0] == pytest.approx(read[1][0], rel=0.15)  # four steps are few to be equal in
    assert all(file.stat().st_size for file in write(finding, study, tmp_path))
    tables = read_tables(tmp_path)
    assert tuple(judge(tables)) == finding.parts


def test_the_captions_are_read_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = write_pairs(tmp_path)
    monkeypatch.setattr(blanks, "CAPTIONS", pairs)
    assert blanks.text_for("").name.endswith(":xx-yy")
    assert blanks.text_for(pairs).splits == ("train", "valid", "test")
    monkeypatch.setattr(blanks, "CAPTIONS", str(tmp_path / "nowhere:xx-yy"))
    assert blanks.text_for("").name == open_corpus(default_name()).name
    with pytest.raises(NextwordError):
        blanks.text_for(str(tmp_path / "nowhere:xx-yy"))


def test_too_short_a_text_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blanks, "LEAST", 10**6)
    with pytest.raises(NextwordError, match=r"held-out blanks.*--data"):
        blanks.measure(Settings(data="python", quick=True), lambda done, total: None)
