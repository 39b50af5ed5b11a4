"""The n best continuations of prompts: what they say, what they are worth, and that each prompt is searched alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.core.types import Beam, Greedy, Stop, Vocabulary
from nextword.lm.causal import CausalLM
from nextword.lm.loading import wrap_network
from nextword.models.gpt2 import GPT2, GPT2Config
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.tokenizers.characters import Bytes

TOKENIZER = Bytes()
VOCABULARY = Vocabulary(len(TOKENIZER), TOKENIZER.begin, end=TOKENIZER.end)
PROMPTS = ["the king", "", "a", "the king of the land went", "Ångström", "a"]


def network(slug: str) -> Any:
    torch.manual_seed(3)
    if slug == "lstm":
        made: Any = LSTM(RecurrentConfig(width=24), VOCABULARY)
    else:
        made = GPT2(GPT2Config(width=24, layers=2, heads=2, window=32, dropout=0.0), VOCABULARY)
    for weight in made.parameters():
        weight.data.mul_(6.0)  # away from saying the same of everything
    return made.eval()


@pytest.fixture(params=["lstm", "gpt2"])
def lm(request: pytest.FixtureRequest) -> CausalLM:
    found = wrap_network(network(request.param), TOKENIZER)
    assert isinstance(found, CausalLM)
    return found


@pytest.mark.parametrize("how", [Beam(5, 0.6), Beam(4, 1.0, normalization="gnmt"), Beam(6, groups=3, diversity=1.0)])
def test_n_best_scores_equal_the_models(lm: CausalLM, how: Beam) -> None:
    stop = Stop(9)
    for prompt, found in zip(PROMPTS, lm.n_best_many(PROMPTS, how, stop), strict=True):
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert len({one.ids for one in found}) == len(found)
        for one in found:
            before = TOKENIZER.encode(prompt).ids
            (nats,) = lm.token_nats([torch.tensor([*before, *one.ids]).numpy()])
            assert one.log_prob == pytest.approx(-float(nats[len(before) :].sum()), rel=1e-4, abs=1e-4)
            divisor = (5 + one.tokens) / 6 if how.normalization == "gnmt" else one.tokens
            assert one.score == pytest.approx(one.log_prob / divisor**how.length_penalty, abs=1e-6)
            assert one.complete == (one.ids[-1] == TOKENIZER.end)
            assert one.complete or one.tokens == 9


def test_n_best_of_many_prompts_equals_each_alone(lm: CausalLM) -> None:
    """Rows that outgrow the window of 32 included."""
    how, stop = Beam(4, 0.6), Stop(12, min_tokens=2)
    for prompt, found in zip(PROMPTS, lm.n_best_many(PROMPTS, how, stop, 3), strict=True):
        alone = lm.n_best(prompt, how, stop, 3)
        assert [one.ids for one in found] == [one.ids for one in alone]
        assert [one.score for one in found] == pytest.approx([one.score for one in alone], abs=1e-4)
        written = list(lm.generate(prompt, how, stop))
        assert "".join(piece.text for piece in written) == alone[0].text
        assert tuple(id for piece in written for id in piece.ids) == alone[0].ids
        assert alone[:1] == lm.n_best(prompt, how, stop, 1)


def test_beam_of_one_is_greedy(lm: CausalLM) -> None:
    stop = Stop(10)
    for prompt in PROMPTS:
        (only,) = lm.n_best(prompt, Beam(1), stop)
        assert only.ids == tuple(id for piece in lm.generate(prompt, Greedy(), stop) for id in piece.ids)


def test_stop_string_ends_a_candidate(lm: CausalLM) -> None:
    whole = lm.n_best("the king", Beam(3), Stop(8))[0]
    character = whole.text[2]
    found = lm.n_best("the king", Beam(3), Stop(8, strings=(character,)))
    cut = next(one for one in found if one.score == whole.score)
    assert cut.text == whole.text[: whole.text.index(character)]
    assert cut.complete
    assert cut.ids == whole.ids[: cut.tokens]
    assert cut.log_prob > whole.log_prob


def test_n_best_rejects_invalid_settings(lm: CausalLM) -> None:
    for n in (0, -1, 5):
        with pytest.raises(InvalidSetting) as invalid:
            lm.n_best("a", Beam(4), Stop(3), n)
        assert (invalid.value.key, invalid.value.value) == ("n", n)
    with pytest.raises(InvalidSetting):
        lm.n_best("a", Greedy())  # type: ignore[arg-type]
    with pytest.raises(NextwordError, match="min_tokens"):
        lm.n_best("a", Beam(4), Stop(3, min_tokens=4))
    with pytest.raises(Unsupported, match="coverage"):
        lm.n_best("a", Beam(4, coverage=0.2))
    with pytest.raises(Unsupported, match="coverage"):
        lm.generate("a", Beam(4, coverage=0.2))  # at once, and not when the first piece is asked for
    assert [one.text for one in lm.n_best("a", Beam(4), Stop(0))] == [""]
    assert lm.n_best_many([], Beam(4)) == []
