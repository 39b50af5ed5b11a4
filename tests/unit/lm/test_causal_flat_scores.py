"""Texts read in one flat array score as they do in rows: for networks that can `read` a stream that forgets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nextword.lm.causal import FORGET, CausalLM
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from tests.support.toy_bigram import Bigram, Config

LEARNT = "the cat sat on the mat\nthe dog sat\n\na naïve cat\n"
TEXTS = ["the cat sat\n", "", "\n", " \t", "a dog, naïve\u00a0cat", "the the unseen the\r\n\n", ""]


class Reading(Bigram):
    """A bigram that reads streams. What it says of the first id after FORGET is nobody's cost, and absurd."""

    def read(self, ids: np.ndarray) -> np.ndarray:
        assert ids.dtype == np.uint32
        out = np.full(len(ids), -1000.0, np.float32)
        for i in range(len(ids)):
            if ids[i] == FORGET:
                out[i] = 0.0
            elif i and ids[i - 1] != FORGET:
                out[i] = self.step(torch.tensor([int(ids[i - 1])]), None)[0][0, int(ids[i])]
        return out


def pair(kind: str, **options: bool) -> tuple[CausalLM, CausalLM]:
    tokenizer = train_tokenizer({"kind": kind, **options}, [LEARNT])
    models = []
    for network in (Reading(Config(), vocabulary(tokenizer)), Bigram(Config(), vocabulary(tokenizer))):
        network.counts += torch.arange(network.counts.numel()).reshape(network.counts.shape) % 7
        models.append(CausalLM(network, tokenizer))
    return models[0], models[1]


@pytest.mark.parametrize(
    ("kind", "options"), [("words", {}), ("words", {"lines": False, "lower": True}), ("characters", {})]
)
def test_flat_scores_equal_scores_by_rows(kind: str, options: dict[str, bool]) -> None:
    flat, rows = pair(kind, **options)
    for got, expected in zip(flat.score_many(TEXTS), rows.score_many(TEXTS), strict=True):
        assert got.nats == pytest.approx(expected.nats, rel=1e-6)
        assert (got.tokens, got.words, got.bytes) == (expected.tokens, expected.words, expected.bytes)
        assert (got.kind, got.lossless) == (expected.kind, expected.lossless)
        assert (got.context, got.stride) == (expected.context, expected.stride)
        assert [type(value) for value in vars(got).values()] == [type(value) for value in vars(expected).values()]
    ids = [encoding.ids for encoding in flat.tokenizer.encode_batch(TEXTS)]
    for ours, theirs in zip(flat.token_nats(ids), rows.token_nats(ids), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_score_of_a_given_text_is_excluded() -> None:
    flat, rows = pair("words")
    got = flat.score_many(["cat sat", "the dog"], ["the ", ""])
    assert [score.nats for score in got] == pytest.approx(
        [score.nats for score in rows.score_many(["cat sat", "the dog"], ["the ", ""])]
    )
    assert got[0].nats != pytest.approx(flat.score("cat sat").nats)


def test_score_of_an_empty_text_is_zero() -> None:
    flat, _ = pair("words")
    assert str(flat.score("").nats) == "0.0"  # and not −0
    assert flat.score_many([]) == []
    assert flat.token_nats([]) == []
    with pytest.raises(ValueError, match="argument 2"):
        flat.score_many(["one", "two"], [""])
