"""Rules on distributions small enough to check by hand."""

import math

import pytest
import torch

from nextword.core.errors import InvalidSetting
from nextword.core.types import Beam, Contrastive, Greedy, Sample
from nextword.generation.logits_processors import (
    LogitsProcessor,
    apply_temperature,
    check_decoding,
    forbid,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    keep_typical,
    normalize,
    penalize_repetition,
)

P = torch.tensor([[0.5, 0.25, 0.15, 0.1]])


def close(log_probs, expected):
    torch.testing.assert_close(log_probs.exp(), torch.tensor(expected))


def test_temperature_is_a_power():
    close(apply_temperature(P.log(), 1.0), [[0.5, 0.25, 0.15, 0.1]])
    squares = torch.tensor([[0.25, 0.0625, 0.0225, 0.01]])
    close(apply_temperature(P.log(), 0.5), (squares / squares.sum()).tolist())
    close(apply_temperature(P.log(), 0.0), [[1.0, 0.0, 0.0, 0.0]])
    close(apply_temperature(P.log(), 1e-300), [[1.0, 0.0, 0.0, 0.0]])
    close(apply_temperature(P.log(), 1e9), [[0.25, 0.25, 0.25, 0.25]])


def test_top_k_keeps_k_and_renormalizes():
    close(keep_top_k(P.log(), 2), [[2 / 3, 1 / 3, 0.0, 0.0]])
    close(keep_top_k(P.log(), 0), P.tolist())
    close(keep_top_k(P.log(), 99), P.tolist())


@pytest.mark.parametrize(
    ("p", "kept"), [(0.3, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.8, 3), (0.95, 4), (1.0, 4), (1e-9, 1)]
)
def test_top_p_keeps_the_fewest_that_reach_p(p, kept):
    shuffled = P[:, [2, 0, 3, 1]]
    result = keep_top_p(shuffled.log(), p).exp()
    assert int((result > 0).sum()) == kept
    assert float(result.sum()) == pytest.approx(1.0)
    assert result.argmax() == 1


def test_top_p_has_a_nucleus_per_row():
    both = torch.cat([P, torch.tensor([[0.05, 0.05, 0.05, 0.85]])])
    assert (keep_top_p(both.log(), 0.8).exp() > 0).sum(1).tolist() == [3, 1]


@pytest.mark.parametrize(("share", "kept"), [(0.0, 4), (0.2, 4), (0.21, 3), (0.31, 2), (0.5, 2), (0.51, 1), (1.0, 1)])
def test_min_p_keeps_a_fraction_of_the_likeliest(share, kept):
    result = keep_min_p(P.log()[:, [2, 0, 3, 1]], share).exp()
    assert int((result > 0).sum()) == kept
    assert float(result.sum()) == pytest.approx(1.0)


def test_typical_keeps_surprisal_near_the_entropy():
    # surprises in bits 1, 2, 2.74, 3.32; expected 1.74: distances .74, .26, .99, 1.58
    close(keep_typical(P.log(), 0.2), [[0.0, 1.0, 0.0, 0.0]])
    close(keep_typical(P.log(), 0.3), [[2 / 3, 1 / 3, 0.0, 0.0]])
    close(keep_typical(P.log(), 0.75), [[2 / 3, 1 / 3, 0.0, 0.0]])
    close(keep_typical(P.log(), 0.76), [[0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0.0]])
    close(keep_typical(P.log(), 1.0), P.tolist())
    # The likeliest is not typical where much is said by the many: p .3 and seventy times .01
    flat = torch.cat([torch.tensor([[0.3]]), torch.full((1, 70), 0.01)], 1)
    assert keep_typical(flat.log(), 0.5)[0, 0] == -math.inf
    assert int((keep_typical(flat.log(), 0.5) > -math.inf).sum()) == 50


def test_filters_keep_the_first_of_ties():
    equal = torch.full((1, 10), 0.1).log()
    for rule in (keep_top_p, keep_typical):
        assert (rule(equal, 0.35) > -math.inf).tolist() == [[True] * 4 + [False] * 6]


def test_repetition_penalty_divides_the_logit_relative_to_chance():
    scores = penalize_repetition(P.log(), torch.tensor([[True, False, False, True]]), 2.0)
    # log(.5 · 4) = log 2, halved: sqrt 2 / 4. log(.1 · 4) = log .4, doubled: .16 / 4.
    close(scores, [[math.sqrt(2) / 4, 0.25, 0.15, 0.04]])
    lifted = penalize_repetition(P.log(), torch.tensor([[True, False, False, True]]), 0.5)
    close(lifted, [[1.0, 0.25, 0.15, math.sqrt(0.4) / 4]])


def test_row_without_allowed_ids_stays_minus_infinity():
    nothing = forbid(P.log(), torch.ones(4, dtype=torch.bool))
    for result in (
        normalize(nothing),
        apply_temperature(nothing, 0.7),
        apply_temperature(nothing, 0),
        keep_top_k(nothing, 2),
    ):
        assert result.tolist() == [[-math.inf] * 4]
    for rule in (keep_top_p, keep_min_p, keep_typical):
        assert rule(nothing, 0.5).tolist() == [[-math.inf] * 4]


def allowed(rules: LogitsProcessor, rows: int, size: int = 5) -> list[list[int]]:
    """The ids that each row may write next, under a uniform model."""
    scores = rules.scores(torch.full((rows, size), -math.log(size)))
    return [[id for id in range(size) if row[id] > -math.inf] for row in scores.tolist()]


def test_no_repeat_forbids_what_would_complete_an_ngram_again():
    rules = LogitsProcessor(Greedy(no_repeat=3), [[0, 1, 2, 0, 1], [0, 1]])
    assert allowed(rules, 2) == [[0, 1, 3, 4], [0, 1, 2, 3, 4]]
    rules.update(torch.tensor([3, 4]))
    assert allowed(rules, 2) == [[0, 1, 2, 3, 4]] * 2
    for id in (0, 1):
        rules.update(torch.tensor([id, id]))
    assert allowed(rules, 2) == [[0, 1, 4], [0, 1, 2, 3]]


def test_no_repeat_of_one_generates_each_id_once():
    rules = LogitsProcessor(Greedy(no_repeat=1), [[3]])
    assert allowed(rules, 1) == [[0, 1, 2, 4]]
    rules.update(torch.tensor([0]))
    assert allowed(rules, 1) == [[1, 2, 4]]


def test_forbidden_ids_get_no_probability():
    assert allowed(LogitsProcessor(Greedy(), [()], forbidden=[1, 4]), 1) == [[0, 2, 3]]


def test_bias_is_added_and_forbids():
    rules = LogitsProcessor(Greedy(bias={0: 1.5, 2: -math.inf}), [()], forbidden=[3])
    torch.testing.assert_close(rules.scores(P.log()), P.log() + torch.tensor([[1.5, 0.0, -math.inf, -math.inf]]))
    for wrong in ("the", -1, 4):
        with pytest.raises(InvalidSetting, match="bias"):
            LogitsProcessor(Greedy(bias={wrong: 1.0}), [()]).scores(P.log())


def test_end_is_forbidden_before_min_tokens():
    rules = LogitsProcessor(Greedy(), [(), ()], end=4, min_tokens=2)
    for _ in range(2):
        assert allowed(rules, 2) == [[0, 1, 2, 3]] * 2
        rules.update(torch.tensor([0, 1]))
    assert allowed(rules, 2) == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize("how", [Greedy(no_repeat=2), Greedy(no_repeat=1), Greedy(repetition=1.5, no_repeat=2)])
def test_take_of_a_row_twice_copies_its_memory(how):
    rules = LogitsProcessor(how, [[0, 1], [2]])
    rules.scores(torch.zeros(2, 5))
    rules.take(torch.tensor([0, 0, 1]))
    rules.update(torch.tensor([0, 3, 4]))
    rules.update(torch.tensor([1, 1, 1]))  # what followed 1 before is another thing in each row
    alone = [LogitsProcessor(how, [ids]) for ids in ([0, 1, 0, 1], [0, 1, 3, 1], [2, 4, 1])]
    uniform = torch.full((1, 5), -math.log(5))
    expected = torch.cat([rules.scores(uniform) for rules in alone])
    torch.testing.assert_close(rules.scores(uniform.expand(3, 5)), expected)


@pytest.mark.parametrize(
    "how",
    [
        Greedy(),
        Greedy(no_repeat=1),
        Greedy(no_repeat=3),
        Greedy(repetition=1.5),
        Greedy(frequency=0.3, presence=0.2),
        Greedy(repetition=1.5, no_repeat=2, presence=-0.2, bias={3: 1.0}),
    ],
)
@pytest.mark.parametrize(("steps", "others_steps"), [(0, 0), (3, 0), (0, 2), (3, 2)])
def test_joined_rows_equal_rows_alone(how, steps, others_steps):
    def make(ids, least):
        return LogitsProcessor(how, [ids], end=4, min_tokens=least)

    def advance(rules, count):
        for i in range(count):
            rules.scores(torch.zeros(rules.num_rows, 5))
            rules.update(torch.tensor([(i + row) % 4 for row in range(rules.num_rows)]))

    texts = [([0, 1, 2, 0, 1], 4), ([2], 0), ([3, 0, 3], 7)]
    alone = [make(*text) for text in texts]
    for rules, count in zip(alone, (steps, steps, others_steps), strict=True):
        advance(rules, count)
    together, other = make(*texts[0]), make(*texts[2])
    advance(together, steps)
    second = make(*texts[1])
    advance(second, steps)
    together.join(second)
    advance(other, others_steps)
    together.join(other)
    together.take(torch.tensor([2, 0, 1]))
    alone = [alone[2], alone[0], alone[1]]
    for chosen in ([1, 2, 3], [0, 0, 2], [1, 1, 1]):
        log_probs = torch.tensor([[0.3, 0.1, 0.2, 0.25, 0.15]]).log()
        expected = torch.cat([rules.scores(log_probs) for rules in alone])
        torch.testing.assert_close(together.scores(log_probs.expand(3, 5)), expected)
        together.update(torch.tensor(chosen))
        for rules, id in zip(alone, chosen, strict=True):
            rules.update(torch.tensor([id]))


def test_prompts_of_rows_that_come_and_go_are_not_kept():
    for how in (Greedy(), Greedy(repetition=1.2)):
        rules = LogitsProcessor(how, [[0, 1]])
        for _ in range(5):
            rules.join(LogitsProcessor(how, [[2, 3]]))
            rules.scores(torch.zeros(2, 5))
            rules.take(torch.tensor([1]))
        assert rules.preceding == []
        assert rules.num_rows == 1


def test_default_settings_store_nothing():
    rules = LogitsProcessor(Sample(), [[0, 1]])
    log_probs = P.log()
    assert rules.scores(log_probs) is log_probs
    rules.update(torch.tensor([0]))
    assert rules.seen is None
    assert rules.history is None


@pytest.mark.parametrize(
    ("how", "key"),
    [
        (Sample(temperature=-0.1), "temperature"),
        (Sample(temperature=math.nan), "temperature"),
        (Sample(temperature=math.inf), "temperature"),
        (Sample(top_k=-1), "top_k"),
        (Sample(top_p=0.0), "top_p"),
        (Sample(top_p=1.1), "top_p"),
        (Sample(top_p=math.nan), "top_p"),
        (Sample(seed=-1), "seed"),
        (Sample(typical=0.0), "typical"),
        (Sample(typical=1.5), "typical"),
        (Sample(min_p=-0.1), "min_p"),
        (Sample(min_p=math.nan), "min_p"),
        (Contrastive(k=0), "k"),
        (Contrastive(alpha=-0.1), "alpha"),
        (Contrastive(alpha=math.nan), "alpha"),
        (Contrastive(repetition=0.0), "repetition"),
        (Greedy(bias={3: math.inf}), "bias"),
        (Beam(bias={"the": math.nan}), "bias"),
        (Beam(width=0), "width"),
        (Beam(length_penalty=math.nan), "length_penalty"),
        (Greedy(repetition=0.0), "repetition"),
        (Beam(no_repeat=-2), "no_repeat"),
    ],
)
def test_invalid_settings_are_rejected(how, key):
    with pytest.raises(InvalidSetting) as error:
        check_decoding(how)
    assert error.value.key == key


def test_valid_settings_pass():
    for how in (
        Greedy(),
        Sample(),
        Sample(temperature=0, top_p=0.1, top_k=1, seed=0),
        Beam(),
        Beam(width=1),
        Contrastive(),
    ):
        check_decoding(how)


# ------------------------------------------------------------------------------------------------ beside transformers


def scores(seed=0, rows=4, size=300):
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)).mul(2)


@pytest.mark.parametrize("mass", [0.05, 0.3, 0.7, 0.95])
def test_typical_and_top_p_equal_transformers(mass):
    warp = pytest.importorskip("transformers.generation.logits_process")
    given = scores()
    for ours, theirs in (
        (keep_typical, warp.TypicalLogitsWarper(mass)),
        (keep_top_p, warp.TopPLogitsWarper(mass)),
        (keep_min_p, warp.MinPLogitsWarper(mass)),
    ):
        torch.testing.assert_close(ours(given, mass), theirs(None, given).log_softmax(-1))


def test_min_tokens_and_bias_equal_transformers():
    warp = pytest.importorskip("transformers.generation.logits_process")
    given = scores()
    rules = LogitsProcessor(Greedy(bias={7: 2.5, 9: -4.0}), [()] * 4, end=3, min_tokens=2)
    bias = warp.SequenceBiasLogitsProcessor({(7,): 2.5, (9,): -4.0})
    for written in range(4):
        ids = torch.ones(4, 5 + written, dtype=torch.long)
        least = warp.MinNewTokensLengthLogitsProcessor(5, 2, 3)
        torch.testing.assert_close(rules.scores(given), least(ids, bias(ids, given)))
        rules.update(torch.ones(4, dtype=torch.long))


def test_frequency_and_presence_penalties_count_generated_tokens_only():
    rules = LogitsProcessor(Sample(frequency=0.5, presence=2.0), [[0, 0, 3]])
    assert torch.equal(rules.scores(P.log()), P.log())
    for id in (1, 1, 2):
        rules.update(torch.tensor([id]))
    expected = P.log() - torch.tensor([[0.0, 2 * 0.5 + 2.0, 0.5 + 2.0, 0.0]])
    torch.testing.assert_close(rules.scores(P.log()), expected)
    rules.take(torch.tensor([0, 0]))
    torch.testing.assert_close(rules.scores(P.log().expand(2, -1)), expected.expand(2, -1))
    with pytest.raises(InvalidSetting):
        check_decoding(Greedy(presence=math.inf))
