"""Vectors of texts: pooled, of one layer or several, the same alone and packed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Inputs
from nextword.lm.causal import CausalLM
from nextword.lm.embedding import parse_layers
from nextword.lm.masked import MaskedLM
from nextword.models.rnn import GRU
from nextword.tokenizers import vocabulary
from tests.support.masked_models import PAIRS, TEXTS, TOKENIZERS, make_model


@pytest.fixture(params=PAIRS, ids=lambda pair: pair[0].__name__)
def lm(request: pytest.FixtureRequest) -> MaskedLM:
    return make_model(*request.param)


def test_embed_of_packed_texts_equals_embed_of_each_alone(lm: MaskedLM) -> None:
    for pooling in ("mean", "text", "first", "last", "max"):
        together = lm.embed(TEXTS, "mean", pooling)
        assert torch.isfinite(together).all()
        torch.testing.assert_close(together, torch.cat([lm.embed([text], "mean", pooling) for text in TEXTS]))


def test_embed_pooling_equals_hand_computation(lm: MaskedLM) -> None:
    ids = lm.tokenizer.encode(TEXTS[0])
    frame = lm.network.frame(ids)
    segments = None if frame.segments is None else torch.from_numpy(frame.segments).unsqueeze(0)
    with torch.no_grad():
        layers = [
            h[0] for h in lm.network.encode(Inputs(torch.from_numpy(frame.ids).unsqueeze(0), segments=segments))[0]
        ]
    h = layers[-1]
    wanted = {"mean": h.mean(0), "text": h[1:-1].mean(0), "first": h[0], "last": h[-1], "max": h.max(0).values}
    for pooling, vector in wanted.items():
        torch.testing.assert_close(lm.embed(TEXTS[:1], pooling=pooling)[0], vector)
    torch.testing.assert_close(lm.embed(TEXTS[:1], {1: 0.3, -1: 0.7}, "first")[0], 0.3 * layers[1][0] + 0.7 * h[0])
    torch.testing.assert_close(lm.embed(TEXTS[:1], "mean", "first")[0], torch.stack(layers).mean(0)[0])


def test_embed_of_a_long_text_reads_equal_parts() -> None:
    lm = make_model()
    ids = lm.tokenizer.encode("the cat sat on the mat . " * 6).ids
    assert 22 < len(ids) <= 44
    parts = [lm.tokenizer.decode(part) for part in np.array_split(ids, 2)]
    vectors = lm.embed(["the cat sat on the mat . " * 6, *parts], pooling="first")
    torch.testing.assert_close(vectors[0], vectors[1:].mean(0))
    last = lm.embed(["the cat sat on the mat . " * 6, parts[1]], pooling="last")
    torch.testing.assert_close(last[0], last[1])


def test_embed_of_a_causal_model_does_not_depend_on_the_batch() -> None:
    tokenizer = TOKENIZERS["bpe"]
    network = GRU(GRU.Config(width=8), vocabulary(tokenizer)).eval()
    lm = CausalLM(network, tokenizer)
    texts = [*TEXTS, "the cat sat on the mat and " * 90]  # longer than a chunk
    for pooling in ("mean", "last", "max"):
        torch.testing.assert_close(
            lm.embed(texts, pooling=pooling), torch.cat([lm.embed([text], pooling=pooling) for text in texts])
        )
    torch.testing.assert_close(lm.embed(texts), lm.embed(texts, pooling="text"))
    with pytest.raises(Unsupported):
        lm.embed(texts, pooling="first")
    with pytest.raises(InvalidSetting, match="mean, text, first"):
        lm.embed(texts, pooling="middle")
    assert lm.embed([]).shape == (0, 8)


def test_parse_layers_accepts_every_form_and_rejects_others() -> None:
    widths = [4, 4, 4, 4]
    assert parse_layers(-1, widths) == {3: 1.0}
    assert parse_layers("2", widths) == {2: 1.0}
    assert parse_layers("mean", widths) == dict.fromkeys(range(4), 0.25)
    assert parse_layers("-2:", widths) == {2: 0.5, 3: 0.5}
    assert parse_layers("1:3", widths) == {1: 0.5, 2: 0.5}
    assert parse_layers("1,-1", widths) == {1: 0.5, 3: 0.5}
    assert parse_layers("1=0.25, 3=.75", widths) == {1: 0.25, 3: 0.75}
    assert parse_layers({0: 2, -4: 1}, widths) == {0: 3.0}
    for layer, value in ((4, 4), ("-5", "-5"), ("last", "last"), ("3:1", "3:1")):
        with pytest.raises(InvalidSetting) as invalid:
            parse_layers(layer, widths)
        assert (invalid.value.key, invalid.value.value) == ("layer", value)
    with pytest.raises(InvalidSetting, match="4, 8"):
        parse_layers("mean", [4, 8])
