"""Blanks of any length at the level of texts: exact, whichever way they are computed, and with advice."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.core.types import EXACT, Beam, Contrastive, Greedy, Sample, Stop
from nextword.generation.infilling import (
    BlankDecoder,
    TextWithBlanks,
    encode_part,
    fill_blanks,
    filling_nats,
    likeliest_fillings,
    split_pieces,
)
from nextword.lm.causal import CausalLM
from nextword.lm.completion import score_completions
from nextword.lm.loading import wrap_network
from nextword.models.bert import BERT
from nextword.models.glm import GLM, GLMConfig
from nextword.tokenizers.training import train_tokenizer
from tests.support.masked_models import TOKENIZERS, make_network

TEXT = "the ___ sat on the ___ ."
TOKENIZERS = {**TOKENIZERS, "plain": train_tokenizer({"kind": "bytes"}, ())}
NOTHING = torch.zeros(6, dtype=torch.bool)


def model(kind: str, window: int = 40) -> CausalLM:
    lm = wrap_network(make_network(GLM, TOKENIZERS[kind], window=window), TOKENIZERS[kind])
    assert isinstance(lm, CausalLM)
    return lm


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram", "plain"])
def lm(request: pytest.FixtureRequest) -> CausalLM:
    return model(request.param)


def by_steps(network: Any, text: TextWithBlanks, pieces: list[list[int]]) -> float:
    """−log p, token by token, each piece until its end."""
    marks, nats = network.pieces, 0.0
    state = network.begin_blanks(torch.tensor([text.ids]), torch.tensor([len(text.ids)]))
    for place, piece in zip(text.places, pieces, strict=True):
        state = network.begin_span(state, torch.ones(1).bool(), torch.tensor([place]))
        for fed, wanted in itertools.pairwise([marks.begin, *piece, marks.end]):
            log_p, state = network.step(torch.tensor([fed]), state)
            nats -= float(log_p[0, wanted])
    return nats


# ------------------------------------------------------------------------------------------------ exact


@torch.no_grad()
def test_filling_nats_equal_the_sum_of_steps(lm: CausalLM) -> None:
    fillings = [("cat", "mat"), ("dog", "door"), ("old king", "house by the door")]
    scores = lm.score_blanks(TEXT, fillings)
    text = lm._encode_blanks(*lm._split_at_blanks(TEXT))
    for (first, second), score in zip(fillings, scores, strict=True):
        pieces = [encode_part(lm.tokenizer, first), encode_part(lm.tokenizer, second)]
        assert score.nats == pytest.approx(by_steps(lm.network, text, pieces), rel=1e-4)
        assert score.nats == pytest.approx(lm.score_blanks(TEXT, [(first, second)])[0].nats, rel=1e-5)  # alone
        assert score.tokens == sum(map(len, pieces)) + 2
        assert (score.kind, score.words) == (EXACT, len(first.split()) + len(second.split()))


@pytest.mark.parametrize("how", [Greedy(), Sample(seed=3), Sample(0.7, top_k=4, seed=1), Beam(3)])
def test_infill_log_probs_equal_score_blanks(lm: CausalLM, how: Any) -> None:
    texts = [TEXT, "a ___", "___ went to see [sMASK] the ___ house"]
    cut = [lm._encode_blanks(*lm._split_at_blanks(text)) for text in texts]
    found = fill_blanks(lm.network, cut, lm._word_pieces.inner, how, 30, 1)
    again = [fill_blanks(lm.network, [one], lm._word_pieces.inner, how, 30, 1)[0] for one in cut]
    for i, (text, (best,)) in enumerate(zip(cut, found, strict=True)):
        if not isinstance(how, Sample) or not i:  # the others are drawn with another seed
            assert again[i][0].ids == best.ids
        if best.complete:
            pieces = split_pieces(lm.network, best.ids)
            assert len(pieces) == len(text.places)
            assert all(pieces)
            assert -best.log_prob == pytest.approx(filling_nats(lm.network, [text], [pieces])[0], rel=1e-4)


def small(window: int = 8) -> Any:
    """Six tokens, of which 0 begins and 1 ends; lively."""
    from nextword.core.types import Vocabulary

    torch.manual_seed(1)
    network = GLM(GLMConfig(8, 1, 2, window, 0.0), Vocabulary(6, 0, {"<s>": 0, "</s>": 1}, 1)).eval()
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() == 2:
                weight.mul_(8)
    return network


@torch.no_grad()
def test_infill_with_a_wide_beam_finds_the_best_of_both_blanks() -> None:
    """Every pair of pieces of up to two tokens, scored one by one."""
    network = small()
    text = TextWithBlanks((0, 2, 6, 3, 6, 4), (2, 4), (False, False))
    all_pieces = [p for n in (1, 2) for p in itertools.product((2, 3, 4, 5), repeat=n)]
    pairs = list(itertools.product(all_pieces, repeat=2))
    nats = filling_nats(network, [text] * len(pairs), pairs)
    best = np.argsort(nats)
    (found,) = fill_blanks(network, [text], NOTHING, Beam(900), 6, 900, forbidden=[0])
    short = [one for one in found if one.complete and max(map(len, split_pieces(network, one.ids))) < 3]
    for place, one in zip(best[:20], short, strict=False):
        assert [tuple(piece) for piece in split_pieces(network, one.ids)] == list(pairs[place])
        assert -one.log_prob == pytest.approx(nats[place], rel=1e-4)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert sum(math.exp(-cost) for cost in nats) < 1


@torch.no_grad()
def test_infill_with_a_beam_of_one_is_greedy() -> None:
    network = small()
    texts = [TextWithBlanks((0, 2, 6, 3, 6, 4), (2, 4), (False, False)), TextWithBlanks((0, 8), (1,), (False,))]
    greedy = fill_blanks(network, texts, NOTHING, Greedy(), 8)
    assert [one.ids for (one,) in fill_blanks(network, texts, NOTHING, Beam(1), 8)] == [one.ids for (one,) in greedy]


@torch.no_grad()
def test_blank_decoder_step_sums_to_one_without_forbidden_ids() -> None:
    network = small()
    inner = torch.tensor([0, 0, 0, 1, 0, 0]).bool()
    filler = BlankDecoder(network, inner)
    last, state = filler.begin([TextWithBlanks((0, 2, 6, 3, 6, 4), (2, 4), (True, False))])
    log_p, state = filler.step(last, state)
    assert log_p.shape == (1, 7)
    assert (log_p[0] == -math.inf).tolist() == [False, True, False, True, False, False, True]  # 3 goes on with a word
    log_p, state = filler.step(torch.tensor([2]), state)
    assert (log_p[0] == -math.inf).tolist() == [False] * 6 + [True]
    assert float(log_p.exp().sum()) == pytest.approx(1, abs=1e-5)
    log_p, state = filler.step(torch.tensor([1]), state)  # the first piece is over, and the second may begin with 3
    assert (log_p[0] == -math.inf).tolist() == [False, True, False, False, False, False, True]
    log_p, state = filler.step(torch.tensor([4]), state)
    assert (log_p[0] == -math.inf).tolist() == [False, True, False, False, False, False, False]
    assert float(log_p.exp().sum()) == pytest.approx(1, abs=1e-5)


# ------------------------------------------------------------------------------------------------ texts


def test_infill_of_many_texts_equals_each_alone(lm: CausalLM) -> None:
    texts = [TEXT, "a ___", "___ went to see ___ house", "the king ___"]
    together = lm.infill_many(texts, Beam(3), Stop(20), n=2)
    for text, found in zip(texts, together, strict=True):
        assert [one.text for one in lm.infill(text, Beam(3), Stop(20), n=2)] == [one.text for one in found]
        for one in found:
            parts = text.split("___")
            assert one.text.startswith(parts[0])
            if one.complete:
                assert len(one.blanks) == len(parts) - 1
                assert one.text == parts[0] + "".join(b + part for b, part in zip(one.blanks, parts[1:], strict=True))


def test_infill_keeps_blanks_beyond_the_length(lm: CausalLM) -> None:
    (one,) = lm.infill("the ___ and ___ or ___", Greedy(), Stop(1))
    assert not one.complete
    assert one.tokens == 1
    assert len(one.blanks) == 1
    assert one.text.endswith(" and ___ or ___")


def test_fill_guesses_have_exact_probabilities(lm: CausalLM) -> None:
    first, second = lm.fill("the ___ sat on the ___ .", k=4)
    for guesses in (first, second):
        values = [g.probability for g in guesses]
        assert values == sorted(values, reverse=True)
        assert 0 < sum(values) <= 1
    assert lm.next("the", "sat on the", k=3) == lm.fill("the ___ sat on the", k=3)[0]


@torch.no_grad()
def test_likeliest_fillings_equal_exhaustive_search() -> None:
    """Every piece of up to three tokens, scored one by one."""
    network = small()
    text = TextWithBlanks((0, 2, 6, 3), (2,), (False,))
    pieces = [p for n in (1, 2, 3) for p in itertools.product((2, 3, 4, 5), repeat=n)]
    nats = filling_nats(network, [text] * len(pieces), [[p] for p in pieces])
    found = likeliest_fillings(network, text, NOTHING, 10, forbidden=[0], width=64, length=3)
    assert [one.ids[:-1] for one in found] == [pieces[i] for i in np.argsort(nats)[:10]]
    np.testing.assert_allclose([-one.log_prob for one in found], np.sort(nats)[:10], rtol=1e-4)


def test_infill_does_not_continue_the_word_before_the_blank(lm: CausalLM) -> None:
    """No piece begins with the rest of a word: what follows a letter is a space, or a mark."""
    inner = lm._word_pieces.inner
    for seed in range(8):
        text = lm._encode_blanks(*lm._split_at_blanks("the cat ___"))
        ((one,),) = fill_blanks(lm.network, [text], inner, Sample(seed=seed), 4)
        assert not inner[one.ids[0]]


def test_each_mask_has_its_own_token(lm: CausalLM) -> None:
    cut = lm._encode_blanks(*lm._split_at_blanks("the ___ a [sMASK] b [gMASK]"))
    assert [cut.ids[place] for place in cut.places] == [len(lm.tokenizer) + i for i in range(3)]
    costs = {mask: lm.score_blanks(f"the {mask}", ["cat"])[0].nats for mask in ("___", "[sMASK]", "[gMASK]")}
    assert len(set(costs.values())) == 3


def test_evaluate_task_works_with_glm(lm: CausalLM) -> None:
    completions, given = [" cat", " old king", " mat ."], ["the", "the", "the cat sat on the"]
    found = score_completions(lm, completions, given, greedy=True)
    for one, text, before in zip(found, completions, given, strict=True):
        assert one.nats == pytest.approx(lm.score(text, before).nats, rel=1e-4)


def test_cloze_chooses_by_exact_likelihood(lm: CausalLM) -> None:
    text, answers = "the cat sat on the mat . it was ___ .", {"yes": "old", "no": "the king"}
    found = lm.cloze(text, answers)
    costs = [score.nats for score in lm.score_blanks(text, list(answers.values()))]
    assert found.probabilities["yes"] == pytest.approx(1 / (1 + math.exp(costs[0] - costs[1])), rel=1e-6)
    assert sum(found.probabilities.values()) == pytest.approx(1)
    assert found.label == ("yes" if costs[0] < costs[1] else "no")
    assert lm.cloze(text, ["old", "the king"]).label == answers[found.label]
    with pytest.raises(InvalidSetting):
        lm.cloze(text, [])


def test_infill_applies_bias(lm: CausalLM) -> None:
    text = lm._encode_blanks(*lm._split_at_blanks("the ___ sat"))
    ((plain,),) = fill_blanks(lm.network, [text], lm._word_pieces.inner, Greedy(), 4)
    bias = {plain.ids[0]: -math.inf}
    ((other,),) = fill_blanks(lm.network, [text], lm._word_pieces.inner, Greedy(bias=bias), 4)
    assert plain.ids[0] not in other.ids
    with pytest.raises(InvalidSetting):
        lm.infill("the ___ sat", Greedy(bias={10**6: 1.0}))


# ------------------------------------------------------------------------------------------------ bad input


def test_invalid_requests_are_rejected(lm: CausalLM) -> None:
    for call in (
        lambda: lm.infill("no blank here"),
        lambda: lm.infill("the ___ " * 60),
        lambda: lm.infill("the ___", Greedy(), n=2),
        lambda: lm.infill("the ___", Beam(2), n=3),
        lambda: lm.infill("the ___", stop=Stop(5, ("x",))),
        lambda: lm.score_blanks("the ___ and ___", ["one"]),
    ):
        with pytest.raises(NextwordError):
            call()
    with pytest.raises(Unsupported):
        lm.infill("the ___", Contrastive())


def test_infill_of_other_models_is_unsupported() -> None:
    other = wrap_network(make_network(BERT, TOKENIZERS["wordpiece"], window=24), TOKENIZERS["wordpiece"])
    assert not other.can_infill
    with pytest.raises(Unsupported) as unsupported:
        other.infill("the ___")
    assert unsupported.value.ability == "infill"


def test_infill_crops_a_long_text_around_one_blank() -> None:
    lm = model("wordpiece", window=16)
    assert lm.next("the cat sat " * 20, "on the mat " * 20, k=2)
    assert lm.fill("the cat sat " * 20 + "___", k=2, tokens=True)
