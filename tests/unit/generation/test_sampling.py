"""Sampling from a table: what a model says of two tokens back decides the next."""

import math
from itertools import islice, pairwise

import pytest
import torch

from nextword.core.errors import InvalidSetting, RunError
from nextword.core.types import Greedy, Sample
from nextword.generation.logits_processors import apply_temperature, keep_min_p, keep_top_k, keep_top_p, keep_typical
from nextword.generation.sampling import (
    NO_TOKEN,
    choose_tokens,
    generate_batch,
    generate_tokens,
    largest_ids,
    make_generator,
    narrow_candidates,
    sample_ids,
)
from tests.support.toy_models import ToyModel


class Trigram(ToyModel):
    """log p(next | the one before last, last); the state is the id before last, so rows that are mixed up show."""

    window = 2

    def __init__(self, size=6, seed=0):
        random = torch.Generator().manual_seed(seed)
        self.table = torch.randn(size, size, size, generator=random).mul(2).log_softmax(-1)
        self.steps = 0

    def start(self, batch, source=None):
        return torch.zeros(batch, dtype=torch.long), (torch.zeros(batch, dtype=torch.long), {"rank 0": torch.tensor(1)})

    def step(self, last, state):
        self.steps += 1
        return self.table[state[0], last], (last, state[1])

    def score(self, ids, lengths, state):
        before = torch.cat([state[0][:, None], ids[:, :-2]], 1)
        return self.table[before, ids[:, :-1], ids[:, 1:]], (ids[:, -2], state[1])


def write(model, how, count=30, **options):
    return list(islice(generate_tokens(model, *model.start(1), how, **options), count))


def test_greedy_takes_the_likeliest_token():
    model = Trigram()
    before = last = 0
    for id, log_prob in write(model, Greedy()):
        assert id == int(model.table[before, last].argmax())
        assert log_prob == pytest.approx(float(model.table[before, last, id]))
        before, last = last, id


def test_log_probs_sum_to_the_models_score():
    model = Trigram()
    how = Sample(temperature=2.0, top_k=4, top_p=0.9, repetition=1.3, no_repeat=4, seed=3)
    written = write(model, how)
    last, state = model.start(1)
    ids = torch.cat([last, torch.tensor([id for id, _ in written])])[None]
    scored, _ = model.score(ids, torch.tensor([ids.shape[1]]), state)
    torch.testing.assert_close(torch.tensor([p for _, p in written]), scored[0])


def test_temperature_zero_and_top_k_one_are_greedy():
    greedy = write(Trigram(), Greedy())
    assert write(Trigram(), Sample(temperature=0.0)) == greedy
    assert write(Trigram(), Sample(top_k=1)) == greedy
    assert write(Trigram(), Sample(top_p=1e-6)) == greedy
    assert write(Trigram(), Sample(temperature=1e-4)) == greedy


def test_seed_reproduces_the_text():
    assert write(Trigram(), Sample(seed=5)) == write(Trigram(), Sample(seed=5))
    assert write(Trigram(), Sample(seed=5)) != write(Trigram(), Sample(seed=6))
    assert write(Trigram(), Sample()) != write(Trigram(), Sample())
    own = write(Trigram(), Sample(seed=6), generator=torch.Generator().manual_seed(5))
    assert own == write(Trigram(), Sample(seed=5))


def test_generate_tokens_steps_on_demand():
    model = Trigram()
    stream = generate_tokens(model, *model.start(1), Sample(seed=0))
    assert model.steps == 0
    for count in range(1, 5):
        next(stream)
        assert model.steps == count


def test_sampled_frequencies_match_the_model():
    p = torch.tensor([0.5, 0.0, 0.3, 0.2, 0.0])
    drawn = sample_ids(p.log().expand(20_000, 5), torch.Generator().manual_seed(0))
    share = torch.bincount(drawn, minlength=5) / 20_000
    assert share[1] == share[4] == 0  # also the last id, where a sloppy cumulative sum would end up
    torch.testing.assert_close(share, p, atol=0.015, rtol=0)


def test_extreme_uniform_numbers_draw_possible_ids(monkeypatch):
    log_probs = torch.tensor([[0.0, 0.5, 0.5, 0.0]]).log()
    for number, id in ((0.0, 1), (1 - 2**-53, 2)):
        monkeypatch.setattr(torch, "rand", lambda *shape, n=number, **_: torch.full(shape, n, dtype=torch.float64))
        assert sample_ids(log_probs, torch.Generator()).tolist() == [id]


def test_no_repeat_holds_and_counts_the_prompt():
    ids = [2, 3, *(id for id, _ in write(Trigram(), Greedy(no_repeat=2), 20, preceding=[2, 3]))]
    pairs = list(pairwise(ids))
    assert len(pairs) == len(set(pairs))


def test_repetition_penalty_breaks_a_loop():
    model = Trigram()
    stay, go = torch.eye(6), torch.eye(6).roll(1, 1)
    model.table = (0.6 * stay + 0.3 * go + 0.1 / 6).log().expand(6, 6, 6)
    assert [id for id, _ in write(model, Greedy(), 6)] == [0, 0, 0, 0, 0, 0]
    assert [id for id, _ in write(model, Greedy(repetition=5.0), 6)] == [0, 1, 2, 3, 4, 5]


def test_forbidden_ids_are_never_generated():
    ids = {id for id, _ in write(Trigram(), Sample(seed=0), 100, forbidden=[1, 2])}
    assert ids == {0, 3, 4, 5}


def test_generate_tokens_ends_when_nothing_is_allowed():
    assert sorted(id for id, _ in write(Trigram(), Greedy(no_repeat=1), 99)) == [0, 1, 2, 3, 4, 5]


def test_invalid_setting_is_rejected_before_the_first_token():
    with pytest.raises(InvalidSetting):
        generate_tokens(Trigram(), *Trigram().start(1), Sample(temperature=-1.0))


def test_nan_probabilities_are_an_error():
    for how in (Greedy(), Sample(seed=0)):
        with pytest.raises(RunError):
            choose_tokens(torch.tensor([[0.0, math.nan]]), how, make_generator(how))


def test_generate_batch_greedy_equals_single_rows():
    model = Trigram()
    last, (_, other) = model.start(3)
    state = (torch.tensor([1, 2, 3]), other)
    how = Greedy(repetition=1.4, no_repeat=3)
    batch = generate_batch(model, last, state, how, 12)
    assert batch.ids.shape == batch.log_probs.shape == (3, 12)
    assert batch.lengths.tolist() == [12, 12, 12]
    for row, before in enumerate([1, 2, 3]):
        alone = list(islice(generate_tokens(model, last[:1], (torch.tensor([before]), other), how), 12))
        assert batch.ids[row].tolist() == [id for id, _ in alone]
        assert batch.log_probs[row].tolist() == pytest.approx([p for _, p in alone])


def test_generate_batch_ends_rows_separately():
    model = Trigram()
    batch = generate_batch(model, *model.start(16), Sample(seed=1), 50, end=2)
    assert batch.ids.shape[1] == int(batch.lengths.max()) == model.steps
    assert len(set(batch.lengths.tolist())) > 1
    for ids, log_probs, length in zip(
        batch.ids.tolist(), batch.log_probs.tolist(), batch.lengths.tolist(), strict=True
    ):
        assert ids.index(2) == length - 1
        assert set(ids[length:]) <= {2}
        assert all(p == 0 for p in log_probs[length:])
        assert all(p < 0 for p in log_probs[:length])


def test_generate_batch_stops_when_nothing_is_allowed():
    batch = generate_batch(Trigram(), *Trigram().start(2), Greedy(no_repeat=1), 50)
    assert batch.lengths.tolist() == [6, 6]
    assert batch.ids.shape == (2, 6)
    assert generate_batch(Trigram(), *Trigram().start(2), Greedy(), 0).ids.shape == (2, 0)


def test_half_precision_models_are_sampled_in_single():
    model = Trigram()
    model.table = model.table.bfloat16()
    assert all(math.isfinite(p) for _, p in write(model, Sample(seed=0, top_p=0.9)))


def test_generate_batch_has_a_seed_per_row():
    model = Trigram()
    batch = generate_batch(model, *model.start(5), Sample(seed=10), 20, end=2)
    for row, (ids, length) in enumerate(zip(batch.ids.tolist(), batch.lengths.tolist(), strict=True)):
        alone = [id for id, _ in write(model, Sample(seed=10 + row), 20)]
        assert ids[:length] == alone[:length]


def test_min_tokens_forbids_the_end():
    how = Sample(seed=0, bias={2: 50.0})
    batch = generate_batch(Trigram(), *Trigram().start(4), how, 9, end=2, min_tokens=3)
    assert batch.lengths.tolist() == [4] * 4
    ids = [id for id, _ in write(Trigram(), how, 6, end=2, min_tokens=3)]
    assert 2 not in ids[:3]
    assert ids[3:] == [2, 2, 2]


def test_bias_does_not_change_reported_log_probs():
    model = Trigram()
    before = last = 0
    for id, log_prob in write(model, Greedy(bias={4: 100.0}), 5):
        assert id == 4
        assert log_prob == pytest.approx(float(model.table[before, last, id]))
        before, last = last, id


# ------------------------------------------------------------------------------------------------ few of many

NARROWING = [
    Sample(),
    Sample(0.7),
    Sample(1.3, top_k=50),
    Sample(top_p=0.9),
    Sample(0.5, top_p=0.3),
    Sample(3.0, top_p=0.99),
    Sample(top_k=700, top_p=0.8),
    Sample(min_p=0.02),
    Sample(4.0, min_p=0.001),
    Sample(typical=0.9),
    Sample(2.0, typical=0.2),
    Sample(top_k=900, top_p=0.9, min_p=0.01, typical=0.8),
]


def definition(scores, how):
    """The rules over the whole vocabulary, one after the other."""
    scores = apply_temperature(scores, how.temperature)
    for rule, value in (
        (keep_top_k, how.top_k),
        (keep_top_p, how.top_p),
        (keep_min_p, how.min_p),
        (keep_typical, how.typical),
    ):
        scores = rule(scores, value)
    return scores


@pytest.mark.parametrize("how", NARROWING)
@pytest.mark.parametrize("spread", [0.3, 2.0, 5.0])  # nearly flat, so that few ids settle nothing, to peaked
def test_narrow_candidates_equals_filtering_all_ids(how, spread, monkeypatch):
    monkeypatch.setattr("nextword.generation.sampling.WIDTHS", (64, 512))
    random = torch.Generator().manual_seed(1)
    scores = torch.randn(3, 4000, generator=random).mul(spread).log_softmax(-1)
    scores[:, ::7] = -math.inf
    whole = definition(scores, how)
    few, ids = narrow_candidates(scores, how)
    dense = few if ids is None else torch.full_like(scores, -math.inf).scatter(1, ids, few)
    assert torch.equal(dense > -math.inf, whole > -math.inf)
    torch.testing.assert_close(dense.log_softmax(-1).nan_to_num(neginf=-99), whole.nan_to_num(neginf=-99))
    assert ids is None or bool((ids[:, 1:] > ids[:, :-1]).all())
    for seed in range(20):
        drawn = sample_ids(whole, torch.Generator().manual_seed(seed))
        assert choose_tokens(scores, how, torch.Generator().manual_seed(seed)).tolist() == drawn.tolist()


@pytest.mark.parametrize("how", [Sample(top_p=0.5), Sample(top_p=0.9), Sample(typical=0.4), Sample(min_p=0.3)])
def test_narrow_candidates_keeps_ties_in_order(how, monkeypatch):
    """Scores of half precision have many equals; which of them stay must not depend on how they were looked for."""
    monkeypatch.setattr("nextword.generation.sampling.WIDTHS", (16, 128))
    for seed in range(10):
        scores = (
            torch.randn(2, 600, generator=torch.Generator().manual_seed(seed)).mul(8).round().div(4).log_softmax(-1)
        )
        few, ids = narrow_candidates(scores, how)
        dense = few if ids is None else torch.full_like(scores, -math.inf).scatter(1, ids, few)
        assert torch.equal(dense > -math.inf, definition(scores, how) > -math.inf)


def test_narrow_candidates_finds_a_peak(monkeypatch):
    """That the short way is taken at all: then the width drawn from is the first of WIDTHS."""
    monkeypatch.setattr("nextword.generation.sampling.WIDTHS", (64, 512))
    scores = torch.randn(2, 4000, generator=torch.Generator().manual_seed(0)).mul(6).log_softmax(-1)
    for how in (Sample(top_p=0.9), Sample(typical=0.5), Sample(min_p=0.1)):
        assert narrow_candidates(scores, how)[0].shape == (2, 64)
    assert narrow_candidates(torch.zeros(2, 4000).log_softmax(-1), Sample(top_p=0.9))[1] is None


def test_largest_ids_are_the_largest():
    values = torch.randn(3, 200, generator=torch.Generator().manual_seed(0))
    assert largest_ids(values, 30).tolist() == values.topk(30).indices.sort().values.tolist()
    assert largest_ids(values, 200).tolist() == [list(range(200))] * 3


def test_rows_without_allowed_ids_do_not_affect_others():
    scores = torch.full((3, 3000), -math.inf)
    scores[1] = torch.randn(3000, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    for how in (Greedy(), *NARROWING):
        chosen = choose_tokens(scores, how, make_generator(how)).tolist()
        assert chosen[0] == chosen[2] == NO_TOKEN
        assert 0 <= chosen[1] < 3000
