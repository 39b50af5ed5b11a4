"""Rules on distributions small enough to check by hand."""

import math

import pytest
import torch

from nextword.contract import Beam, Greedy, NextwordError, Sample
from nextword.generation.rules import Rules, forbid, normalise, penalise, temperature, top_k, top_p, validate

P = torch.tensor([[0.5, 0.25, 0.15, 0.1]])


def close(log_probs, expected):
    torch.testing.assert_close(log_probs.exp(), torch.tensor(expected))


def test_temperature_is_a_power_and_zero_is_its_limit():
    close(temperature(P.log(), 1.0), [[0.5, 0.25, 0.15, 0.1]])
    squares = torch.tensor([[0.25, 0.0625, 0.0225, 0.01]])
    close(temperature(P.log(), 0.5), (squares / squares.sum()).tolist())
    close(temperature(P.log(), 0.0), [[1.0, 0.0, 0.0, 0.0]])
    close(temperature(P.log(), 1e-300), [[1.0, 0.0, 0.0, 0.0]])
    close(temperature(P.log(), 1e9), [[0.25, 0.25, 0.25, 0.25]])


def test_top_k_keeps_k_and_shares_out_the_rest():
    close(top_k(P.log(), 2), [[2 / 3, 1 / 3, 0.0, 0.0]])
    close(top_k(P.log(), 0), P.tolist())
    close(top_k(P.log(), 99), P.tolist())


@pytest.mark.parametrize(
    ("p", "kept"), [(0.3, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.8, 3), (0.95, 4), (1.0, 4), (1e-9, 1)]
)
def test_top_p_keeps_the_fewest_that_reach_p(p, kept):
    shuffled = P[:, [2, 0, 3, 1]]
    result = top_p(shuffled.log(), p).exp()
    assert int((result > 0).sum()) == kept
    assert float(result.sum()) == pytest.approx(1.0)
    assert result.argmax() == 1


def test_top_p_has_a_nucleus_for_each_row():
    both = torch.cat([P, torch.tensor([[0.05, 0.05, 0.05, 0.85]])])
    assert (top_p(both.log(), 0.8).exp() > 0).sum(1).tolist() == [3, 1]


def test_penalty_divides_the_logit_measured_from_chance():
    scores = penalise(P.log(), torch.tensor([[True, False, False, True]]), 2.0)
    # log(.5 · 4) = log 2, halved: sqrt 2 / 4. log(.1 · 4) = log .4, doubled: .16 / 4.
    close(scores, [[math.sqrt(2) / 4, 0.25, 0.15, 0.04]])


def test_an_empty_row_stays_empty_and_is_never_nan():
    nothing = forbid(P.log(), torch.ones(4, dtype=torch.bool))
    for result in (normalise(nothing), temperature(nothing, 0.7), temperature(nothing, 0), top_k(nothing, 2)):
        assert result.tolist() == [[-math.inf] * 4]
    assert top_p(nothing, 0.5).tolist() == [[-math.inf] * 4]


def allowed(rules: Rules, rows: int, size: int = 5) -> list[list[int]]:
    """The ids that each row may write next, under a uniform model."""
    scores = rules.scores(torch.full((rows, size), -math.log(size)))
    return [[id for id in range(size) if row[id] > -math.inf] for row in scores.tolist()]


def test_no_repeat_forbids_what_would_complete_an_ngram_again():
    rules = Rules(Greedy(no_repeat=3), [[0, 1, 2, 0, 1], [0, 1]])
    assert allowed(rules, 2) == [[0, 1, 3, 4], [0, 1, 2, 3, 4]]
    rules.wrote(torch.tensor([3, 4]))
    assert allowed(rules, 2) == [[0, 1, 2, 3, 4]] * 2
    for id in (0, 1):
        rules.wrote(torch.tensor([id, id]))
    assert allowed(rules, 2) == [[0, 1, 4], [0, 1, 2, 3]]


def test_no_repeat_of_one_writes_each_id_once():
    rules = Rules(Greedy(no_repeat=1), [[3]])
    assert allowed(rules, 1) == [[0, 1, 2, 4]]
    rules.wrote(torch.tensor([0]))
    assert allowed(rules, 1) == [[1, 2, 4]]


def test_banned_and_allowed_ids():
    assert allowed(Rules(Greedy(), [()], banned=[1, 4]), 1) == [[0, 2, 3]]
    assert allowed(Rules(Greedy(), [()], banned=[1], allowed=[0, 1]), 1) == [[0]]
    assert allowed(Rules(Greedy(), [()], allowed=[]), 1) == [[]]


@pytest.mark.parametrize("how", [Greedy(no_repeat=2), Greedy(no_repeat=1), Greedy(repetition=1.5, no_repeat=2)])
def test_rows_taken_twice_remember_apart(how):
    rules = Rules(how, [[0, 1], [2]])
    rules.scores(torch.zeros(2, 5))
    rules.take(torch.tensor([0, 0, 1]))
    rules.wrote(torch.tensor([0, 3, 4]))
    rules.wrote(torch.tensor([1, 1, 1]))  # what followed 1 before is another thing in each row
    alone = [Rules(how, [ids]) for ids in ([0, 1, 0, 1], [0, 1, 3, 1], [2, 4, 1])]
    uniform = torch.full((1, 5), -math.log(5))
    expected = torch.cat([rules.scores(uniform) for rules in alone])
    torch.testing.assert_close(rules.scores(uniform.expand(3, 5)), expected)


def test_without_rules_nothing_is_touched_or_remembered():
    rules = Rules(Sample(), [[0, 1]])
    log_probs = P.log()
    assert rules.scores(log_probs) is log_probs
    rules.wrote(torch.tensor([0]))
    assert rules.seen is None
    assert rules.grams == []


@pytest.mark.parametrize(
    ("how", "word"),
    [
        (Sample(temperature=-0.1), "temperature"),
        (Sample(temperature=math.nan), "temperature"),
        (Sample(temperature=math.inf), "temperature"),
        (Sample(top_k=-1), "top_k"),
        (Sample(top_p=0.0), "top_p"),
        (Sample(top_p=1.1), "top_p"),
        (Sample(top_p=math.nan), "top_p"),
        (Sample(seed=-1), "seed"),
        (Beam(width=0), "width"),
        (Beam(length_penalty=math.nan), "length_penalty"),
        (Greedy(repetition=0.0), "repetition"),
        (Beam(no_repeat=-2), "no_repeat"),
    ],
)
def test_choices_without_meaning_are_refused_by_name(how, word):
    with pytest.raises(NextwordError, match=word):
        validate(how)


def test_meaningful_choices_pass():
    for how in (Greedy(), Sample(), Sample(temperature=0, top_p=0.1, top_k=1, seed=0), Beam(), Beam(width=1)):
        validate(how)
