"""Beam search on tables, with one example to follow by hand."""

import math

import pytest
import torch

from nextword.core.errors import InvalidSetting, RunError
from nextword.core.types import Beam
from nextword.generation.beam_search import beam_search, largest_sorted
from tests.support.toy_models import ToyModel

END, A, B, C, BEGIN = range(5)


class Bigram(ToyModel):
    """log p(next | last) from a table of probabilities; it needs no state at all."""

    window = 1

    def __init__(self, rows):
        self.table = torch.tensor(rows).log()
        self.steps = 0

    def start(self, batch, source=None):
        return torch.full((batch,), BEGIN), None

    def step(self, last, state):
        self.steps += 1
        return self.table[last], state


#        end    a     b     c    begin
BY_HAND = [
    [1.00, 0.00, 0.00, 0.00, 0.0],  # after end
    [0.20, 0.20, 0.35, 0.25, 0.0],  # after a
    [0.90, 0.05, 0.03, 0.02, 0.0],  # after b
    [0.40, 0.30, 0.20, 0.10, 0.0],  # after c
    [0.00, 0.50, 0.40, 0.10, 0.0],  # after begin
]


def find(how, length=5, **options):
    model = Bigram(BY_HAND)
    return beam_search(model, *model.start(1), how, length, END, **options)[0]


def test_beam_of_two_equals_hand_computation():
    # step 1: a .5, b .4                           (c .1 falls off)
    # step 2: b end .36, a b .175                  (a c .125, a a .1, a end .1, b a .02 fall off)
    # step 3: one place is left: a b end .1575     (a b a .00875 and the others fall off)
    best, second = find(Beam(width=2))
    assert (best.ids, second.ids) == ((B, END), (A, B, END))
    assert best.score == best.log_prob == pytest.approx(math.log(0.36))
    assert second.score == pytest.approx(math.log(0.1575))
    assert [math.exp(p) for p in second.log_probs] == pytest.approx([0.5, 0.35, 0.9])
    assert best.complete
    assert second.complete


def test_beam_of_one_is_greedy_and_misses_the_best():
    for penalty in (-1.0, 0.0, 1.0, 3.0):
        (only,) = find(Beam(width=1, length_penalty=penalty))
        assert only.ids == (A, B, END)


def test_length_penalty_divides_by_a_power_of_the_length():
    best, second = find(Beam(width=2, length_penalty=1.0))
    assert best.ids == (B, END)
    assert best.score == pytest.approx(math.log(0.36) / 2)  # -.511
    assert second.score == pytest.approx(math.log(0.1575) / 3)  # -.616
    best, second = find(Beam(width=2, length_penalty=2.0))
    assert best.ids == (A, B, END)  # -1.848 / 9 = -.205 against -1.022 / 4 = -.255
    assert best.score == pytest.approx(math.log(0.1575) / 9)


def test_hypothesis_cut_at_the_length_is_not_complete():
    best, second = find(Beam(width=2), length=1)
    assert (best.ids, second.ids) == ((A,), (B,))
    assert not best.complete
    assert find(Beam(width=2), length=0)[0].ids == ()


def test_beam_search_without_an_end_runs_to_the_length():
    model = Bigram(BY_HAND)
    found = beam_search(model, *model.start(1), Beam(width=3), 4)[0]
    assert [len(one.ids) for one in found] == [4, 4, 4]


def test_beam_search_for_one_stops_when_certain():
    eager, patient = Bigram(BY_HAND), Bigram(BY_HAND)
    (first,) = beam_search(eager, *eager.start(1), Beam(width=3), 50, END, n=1)[0]
    everything = beam_search(patient, *patient.start(1), Beam(width=3), 50, END)[0]
    assert first == everything[0]
    assert eager.steps == 2  # b end .36 is above anything that is open then
    assert eager.steps < patient.steps


def test_beam_search_of_many_rows_equals_each_alone():
    model = Bigram(BY_HAND)
    last = torch.tensor([BEGIN, C, A])
    together = beam_search(model, last, None, Beam(width=3), 4, END)
    alone = [beam_search(model, one[None], None, Beam(width=3), 4, END)[0] for one in last]
    assert together == alone


def test_rules_change_scores_and_not_log_probs():
    assert find(Beam(width=2), forbidden=[B])[0].ids == (A, END)
    for one in find(Beam(width=8, no_repeat=1), length=6):
        assert len(set(one.ids)) == len(one.ids)
    best = find(Beam(width=2, repetition=2.0), preceding=[[B]])[0]
    assert best.ids == (B, END)
    assert best.log_prob == pytest.approx(math.log(0.4 * 0.9))
    assert best.score == pytest.approx(math.log(math.sqrt(2) / 5 * 0.9))  # log(.4 · 5) = log 2, halved


def test_rules_without_allowed_ids_cut_a_hypothesis():
    model = Bigram(BY_HAND)
    found = beam_search(model, *model.start(1), Beam(width=2, no_repeat=1), 50, forbidden=[END])[0]
    assert all(len(one.ids) == 3 and not one.complete for one in found)


def test_largest_in_order_takes_the_first_of_ties():
    values = torch.tensor([1.0, 3.0, 2.0, 3.0, 2.0, 2.0])
    found, at = largest_sorted(values, 4)
    assert found.tolist() == [3, 3, 2, 2]
    assert at.tolist() == [1, 3, 2, 4]
    assert largest_sorted(values, 99)[1].tolist() == [1, 3, 2, 4, 5, 0]
    assert largest_sorted(torch.full((5000,), 0.5), 3)[1].tolist() == [0, 1, 2]


def test_invalid_settings_are_rejected():
    with pytest.raises(InvalidSetting, match="width"):
        find(Beam(width=0))
    broken = Bigram([[math.nan] * 5] * 5)
    with pytest.raises(RunError):
        beam_search(broken, *broken.start(1), Beam(), 3, END)
