"""Invariants of decoding rules, beam search and stopping for every distribution, model and text."""

import math
from itertools import islice, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nextword.core.types import Beam, Greedy, Sample, Stop
from nextword.generation.beam_search import beam_search
from nextword.generation.logits_processors import (
    apply_temperature,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    keep_typical,
    normalize,
)
from nextword.generation.sampling import generate_tokens
from nextword.generation.stopping import Stopper
from tests.support.toy_models import ToyModel

seeds = st.integers(0, 10_000)
END = 0


class Trigram(ToyModel):
    """log p(next | the one before last, last); the state is the id before last, so that rows must be taken rightly."""

    window = 2

    def __init__(self, size, seed, ties=False):
        logits = torch.randn(size, size, size, generator=torch.Generator().manual_seed(seed)).mul(2)
        self.table = (logits.round() if ties else logits).log_softmax(-1)

    def start(self, batch, source=None):
        return torch.ones(batch, dtype=torch.long), {"before": torch.zeros(batch, dtype=torch.long)}

    def step(self, last, state):
        return self.table[state["before"], last], {"before": last}

    def score(self, ids, lengths, state):
        before = torch.cat([state["before"][:, None], ids[:, :-2]], 1)
        return self.table[before, ids[:, :-1], ids[:, 1:]], {"before": ids[:, -2]}


def log_prob(model, ids):
    """The model's own score of a continuation."""
    last, state = model.start(1)
    whole = torch.cat([last, torch.tensor(ids, dtype=torch.long)])[None]
    return float(model.score(whole, torch.tensor([whole.shape[1]]), state)[0].double().sum())


def continuations(size, length):
    """All that can be written: up to the first end, or to the length."""
    for ids in product(range(size), repeat=length):
        yield ids[: ids.index(END) + 1] if END in ids else ids


@given(seeds, st.floats(0, 10), st.integers(0, 12), st.floats(0.001, 1))
@settings(max_examples=80, deadline=None)
def test_logits_processors_return_distributions_with_same_argmax(seed, warmth, k, p):
    scores = torch.randn(3, 9, generator=torch.Generator().manual_seed(seed)).mul(5)
    rules = (
        normalize(scores),
        apply_temperature(scores, warmth),
        keep_top_k(scores, k),
        keep_top_p(scores, p),
        keep_min_p(scores, p),
    )
    torch.testing.assert_close(keep_typical(scores, p).exp().sum(1), torch.ones(3))
    for result in rules:
        torch.testing.assert_close(result.exp().sum(1), torch.ones(3))
        assert result.argmax(1).tolist() == scores.argmax(1).tolist()


@given(seeds, st.floats(0.001, 0.999))
@settings(max_examples=80, deadline=None)
def test_top_p_keeps_smallest_set_that_reaches_p(seed, p):
    probs = torch.randn(1, 12, generator=torch.Generator().manual_seed(seed)).mul(2).softmax(1).double()
    kept = probs[keep_top_p(probs.log(), p) > -math.inf]
    assert float(kept.sum()) >= p - 1e-6
    assert float(kept.sum() - kept.min()) < p + 1e-9
    assert float(kept.min()) >= float(probs[keep_top_p(probs.log(), p) == -math.inf].max()) if len(kept) < 12 else True


@given(seeds, st.floats(0.001, 0.999), st.floats(0.3, 4))
@settings(max_examples=80, deadline=None)
def test_typical_sampling_equals_plain_python(seed, mass, spread):
    """Meister et al. in plain Python: sort by |surprise − entropy|, take until the mass is reached."""
    probs = torch.randn(12, generator=torch.Generator().manual_seed(seed)).mul(spread).softmax(0).double()
    p = probs.tolist()
    entropy = -sum(q * math.log(q) for q in p)
    kept, total = [], 0.0
    for id in sorted(range(12), key=lambda id: abs(-math.log(p[id]) - entropy)):
        if total >= mass * (1 - 1e-6):
            break
        kept.append(id)
        total += p[id]
    result = keep_typical(probs.log()[None], mass)[0].exp()
    assert result.nonzero().squeeze(1).tolist() == sorted(kept)
    assert result[kept].tolist() == pytest.approx([p[id] / total for id in kept])


@given(seeds, st.floats(0.001, 1))
@settings(max_examples=60, deadline=None)
def test_min_p_keeps_tokens_above_fraction_of_best(seed, share):
    probs = torch.randn(1, 12, generator=torch.Generator().manual_seed(seed)).mul(2).softmax(1).double()
    kept = keep_min_p(probs.log(), share) > -math.inf
    assert bool((probs[kept] >= share * probs.max() * (1 - 1e-9)).all())
    assert bool((probs[~kept] < share * probs.max() * (1 + 1e-9)).all())


@given(seeds, st.integers(0, 6), st.dictionaries(st.integers(0, 4), st.floats(-5, 5), max_size=3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_greedy_with_bias_and_min_tokens_equals_hand_computation(seed, least, bias, ties):
    """Greedy, against adding to the table's log p and crossing the end out."""
    model = Trigram(5, seed, ties)
    expected, before, last = [], 0, 1
    for place in range(8):
        row = [float(p + torch.tensor(bias.get(id, 0.0))) for id, p in enumerate(model.table[before, last])]
        if place < least:
            row[END] = -math.inf
        before, last = last, row.index(max(row))
        expected.append(last)
    stream = generate_tokens(model, *model.start(1), Greedy(bias=bias), end=END, min_tokens=least)
    assert [id for id, _ in islice(stream, 8)] == expected


@given(seeds, st.integers(1, 5), st.integers(0, 4), st.dictionaries(st.integers(0, 4), st.floats(-3, 3), max_size=2))
@settings(max_examples=40, deadline=None)
def test_wide_beam_with_bias_and_min_tokens_finds_the_best(seed, n, least, bias):
    model, length = Trigram(4, seed), 4
    bias = {id: value for id, value in bias.items() if id < 4}
    scores = {
        ids: log_prob(model, ids) + sum(bias.get(id, 0.0) for id in ids)
        for ids in continuations(4, length)
        if END not in ids[:least]
    }
    ranked = sorted(scores.values(), reverse=True)
    found = beam_search(model, *model.start(1), Beam(4**length, bias=bias), length, END, n=n, min_tokens=least)[0]
    assert [one.score for one in found] == pytest.approx(ranked[: len(found)], abs=1e-4)
    assert all(END not in one.ids[:least] for one in found)


@given(seeds, st.booleans(), st.floats(-1, 2), st.sampled_from([1.0, 1.5]), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_beam_of_width_one_equals_greedy(seed, ties, penalty, repetition, no_repeat):
    model = Trigram(5, seed, ties)
    greedy = []
    for id, _ in islice(generate_tokens(model, *model.start(1), Greedy(repetition, no_repeat)), 8):
        greedy.append(id)
        if id == END:
            break
    (only,) = beam_search(model, *model.start(1), Beam(1, penalty, repetition, no_repeat), 8, END)[0]
    assert list(only.ids) == greedy


@given(seeds, st.sampled_from([-0.5, 0.0, 0.6, 1.0, 2.0]))
@settings(max_examples=30, deadline=None)
def test_wide_beam_finds_the_global_best(seed, penalty):
    model, length = Trigram(4, seed), 4
    scores = {ids: log_prob(model, ids) / len(ids) ** penalty for ids in continuations(4, length)}
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    found = beam_search(model, *model.start(1), Beam(4**length, penalty), length, END, n=5)[0]
    assert [one.score for one in found] == pytest.approx([scores[ids] for ids in ranked[:5]], abs=1e-5)
    assert scores[found[0].ids] == pytest.approx(scores[ranked[0]], abs=1e-5)


@given(seeds, st.integers(1, 6), st.floats(-1, 2))
@settings(max_examples=60, deadline=None)
def test_beam_scores_equal_model_scores(seed, width, penalty):
    model = Trigram(5, seed)
    found = beam_search(model, *model.start(1), Beam(width, penalty), 6, END)[0]
    assert len(found) == len({one.ids for one in found}) == width
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    for one in found:
        assert one.log_prob == pytest.approx(log_prob(model, one.ids), abs=1e-5)
        assert one.score == pytest.approx(one.log_prob / len(one.ids) ** penalty, abs=1e-5)
        assert one.complete == (one.ids[-1] == END)
        assert one.complete or len(one.ids) == 6


@given(
    seeds,
    st.integers(2, 6),
    st.floats(-1, 2),
    st.integers(1, 3),
    st.sampled_from([0.5, 1.0, 1.5]),
    st.sampled_from([-1.0, 0.0, 2.0]),
)
@settings(max_examples=60, deadline=None)
def test_early_stopping_of_beam_keeps_results(seed, width, penalty, n, repetition, value):
    model, n = Trigram(5, seed), min(n, width)
    how = Beam(width, penalty, repetition, bias={2: value})
    early = beam_search(model, *model.start(1), how, 8, END, n=n)[0]
    late = beam_search(model, *model.start(1), how, 8, END)[0]
    assert [one.score for one in early] == pytest.approx([one.score for one in late[:n]])


@given(seeds, st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_no_ngram_is_ever_written_twice(seed, n):
    model = Trigram(4, seed)
    ids = [
        1,
        *(
            id
            for id, _ in islice(
                generate_tokens(model, *model.start(1), Sample(seed=seed, no_repeat=n), preceding=[1]), 40
            )
        ),
    ]
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    assert len(grams) == len(set(grams))


@given(st.text("ab\n", max_size=12), st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3), st.data())
@settings(max_examples=300, deadline=None)
def test_what_comes_out_does_not_depend_on_the_pieces(text, strings, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    stopper, out = Stopper(Stop(strings=tuple(strings))), ""
    for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True):
        out += stopper.feed(text[start:stop])
        assert text.startswith(out)
    ends = [(text.find(s) + len(s), text.find(s)) for s in strings if s in text]
    assert stopper.reason == ("stop" if ends else None)
    assert out + stopper.close() == (text[: min(ends)[1]] if ends else text)
    assert not any(s in out for s in strings)
