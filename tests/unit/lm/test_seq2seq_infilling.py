"""Blanks filled behind sentinels: in their order, with the network's own probabilities, and back into the text."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from nextword.core.errors import InvalidSetting, NextwordError, Unsupported
from nextword.core.types import Beam, Contrastive, Greedy, Sample, Stop
from nextword.generation.infilling import SentinelDecoder, generate_fillings, split_spans
from nextword.lm.seq2seq import Seq2SeqLM
from nextword.models.t5 import T5, T5Config
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer

TEXTS = ["the king went up to the house of the lord, and the people saw the great light in the house."] * 20


class Fixed:
    """Says the same whatever it is fed.   0 begin   1 end   2 "a"   3 "b"   4 " "   7, 6, 5 sentinels in their order"""

    device = torch.device("cpu")

    def __init__(self, *shares: float) -> None:
        self.log_p = torch.tensor([math.log(share) if share else -math.inf for share in shares])

    def step(self, last: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.log_p.expand(len(last), -1).clone(), state


class Letters:
    bytes = (b"", b"", b"a", b"b", b" ", b"", b"", b"")
    inner = torch.tensor([id == 3 for id in range(8)])


def fill(network: Fixed, blanks: list[bool], how: Any = Greedy(), length: int = 12, sentinels: Any = (7, 6, 5)) -> Any:
    model = SentinelDecoder(network, sentinels, 1, Letters())  # type: ignore[arg-type]
    last, state = model.begin(torch.zeros(1, dtype=torch.long), {}, [blanks])
    (found,) = generate_fillings(model, last, state, how, length, 1, [0])
    return found[0]


def test_infill_generates_sentinels_in_order() -> None:
    """It likes the end best, then the third sentinel, and the first least."""
    found = fill(Fixed(0.0, 0.4, 0.1, 0.05, 0.05, 0.2, 0.15, 0.05), [False, False])
    assert found.ids == (7, 2, 6, 2, 1)  # <x> a <y> a end
    assert found.complete
    over = 0.4 + 0.2  # the end, or one sentinel more
    assert found.log_prob == pytest.approx(math.log(0.05 * 0.1 * 0.15 * 0.1 * over))


def test_infill_ends_after_the_last_span() -> None:
    found = fill(Fixed(0.0, 0.4, 0.1, 0.08, 0.07, 0.0, 0.3, 0.05), [False, False], sentinels=(7, 6))
    assert found.ids == (7, 2, 6, 2, 1)
    assert found.log_prob == pytest.approx(math.log(0.05 * 0.1 * 0.3 * 0.1 * 0.4))


def test_infill_spans_are_visible_and_do_not_continue_a_word() -> None:
    """A space alone is no span; "b" goes on with a word, and stands in no blank that is behind a letter."""
    shares = (0.0, 0.4, 0.05, 0.1, 0.2, 0.1, 0.1, 0.05)
    assert fill(Fixed(*shares), [False]).ids == (7, 4, 3, 1)
    assert fill(Fixed(*shares), [True]).ids == (7, 4, 3, 1)  # behind a space it goes on with nothing
    no_space = (0.0, 0.4, 0.05, 0.1, 0.0, 0.1, 0.1, 0.05)
    assert fill(Fixed(*no_space), [False]).ids == (7, 3, 1)
    assert fill(Fixed(*no_space), [True]).ids == (7, 2, 1)


def test_continuation_cut_at_the_length_is_not_complete() -> None:
    found = fill(Fixed(0.0, 0.1, 0.5, 0.1, 0.1, 0.05, 0.05, 0.1), [False, False], length=4)
    assert (found.ids, found.complete) == ((7, 2, 2, 2), False)
    assert split_spans(found.ids, (7, 6, 5), 1) == [[2, 2, 2]]
    assert split_spans((7, 2, 6, 3, 3, 1), (7, 6, 5), 1) == [[2], [3, 3]]


# ------------------------------------------------------------------------------------------------ texts


@pytest.fixture(scope="module", params=[2, 6])
def lm(request: pytest.FixtureRequest) -> Seq2SeqLM:
    """A network of random weights that say something."""
    tokenizer = train_tokenizer({"kind": "unigram", "size": 60, "sentinels": request.param}, TEXTS)
    torch.manual_seed(0)
    network = T5(
        T5Config(width=16, layers=1, heads=2, head_width=8, ffn_width=24, dropout=0.0), vocabulary(tokenizer)
    ).eval()
    return Seq2SeqLM(network, tokenizer)


@pytest.mark.parametrize("how", [Greedy, Beam, Sample])
def test_infill_log_probs_equal_the_networks(lm: Seq2SeqLM, how: Any) -> None:
    """The sum over the target, as it is scored at once; the end of the last span counts with one sentinel more."""
    over = how(bias={"</s>": 9.0, "<extra_id_1>": 9.0}, **({"seed": 3} if how is Sample else {}))
    source, marks = lm._encode_with_sentinels(["the king ", " to the ", "."]), lm.sentinels
    assert [id for id in source if id in marks] == marks[:2]
    assert lm.tokenizer.decode([id for id in source if id not in marks][:-1]) == "the king to the."
    (best,) = lm.infill("the king ___ to the ___.", over, Stop(40))
    model = SentinelDecoder(lm.network, marks, lm.end, lm._word_pieces)
    begun = model.begin(*lm._read_prompts([source]), [[True, True]])
    ((again, *_),) = generate_fillings(
        model, *begun, lm._check_decoding(over), 40, lm.end, [0], forbidden=[lm.tokenizer.special["<unk>"]]
    )
    assert again.complete
    assert again.ids[-1] == lm.end
    assert (best.log_prob, best.tokens) == (again.log_prob, len(again.ids))
    assert list(best.blanks) == [lm.tokenizer.decode(ids).strip() for ids in split_spans(again.ids, marks, lm.end)]
    nats = lm._target_nats([source], [list(again.ids)])[0]
    if len(marks) == 2:
        assert again.log_prob == pytest.approx(-nats, abs=1e-4)
    else:
        assert again.log_prob > -nats


def test_infill_inserts_the_spans_into_the_text(lm: Seq2SeqLM) -> None:
    texts = ["___ went up", "the ___ of the _____, and", "the light ___"]
    for text, (best,) in zip(texts, lm.infill_many(texts, Beam(2), Stop(30)), strict=True):
        parts = text.replace("_____", "___").split("___")
        shown = [*best.blanks, *["___"] * (len(parts) - 1 - len(best.blanks))]
        assert best.text == "".join(a + b for a, b in zip(parts, [*shown, ""], strict=True))
        assert all(best.blanks)
        alone = lm.infill(text, Beam(2), Stop(30))[0]
        assert (best.text, best.log_prob) == (alone.text, pytest.approx(alone.log_prob, abs=1e-4))
    best = lm.infill("the ___ of the ___", Beam(4), Stop(20), n=3)
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)


def test_invalid_requests_are_rejected(lm: Seq2SeqLM) -> None:
    for text in ("no blank here", "a ___ " * 7, "the <extra_id_0> and ___"):
        with pytest.raises(InvalidSetting) as invalid:
            lm.infill(text)
        assert (invalid.value.key, invalid.value.value) == ("text", text[:40])
    with pytest.raises(NextwordError):
        lm.infill("the ___", stop=Stop(9, ("x",)))
    with pytest.raises(NextwordError):
        lm.infill("the ___", Beam(2), n=3)
    with pytest.raises(Unsupported):
        lm.infill("the ___", Contrastive())
    with pytest.raises(Unsupported) as unsupported:
        lm.next("the")
    assert unsupported.value.ability == "next"


def test_infill_after_training_on_pairs_is_unsupported(lm: Seq2SeqLM) -> None:
    other = Seq2SeqLM(lm.network, lm.tokenizer)
    other.fills_spans = False
    assert not other.can_infill
    with pytest.raises(Unsupported):
        other.infill("the ___")
