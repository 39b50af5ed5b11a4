from __future__ import annotations

from typing import Any

import pytest
import torch

from nextword import lens
from nextword.core.errors import Unsupported
from tests.support.untrained_models import SCORING, make_model

TEXT = "the dog lay by the mat"
TRANSFORMERS = [slug for slug in SCORING if make_model(slug).network.is_transformer]


def source_of(model: Any) -> str | None:
    return "the cat" if model.is_seq2seq else None


@pytest.mark.parametrize("slug", TRANSFORMERS)
def test_last_layer_is_the_prediction_of_the_model(slug: str) -> None:
    model = make_model(slug)
    result = lens.predict_by_layer(model, TEXT, source_of(model))
    explained = lens.explain_text(model, TEXT, source_of(model)).tokens
    scored = [position for position in result.positions if position.token is not None]
    assert [position.token for position in scored] == [token.token for token in explained]
    for position, token in zip(scored, explained, strict=True):
        last = position.layers[-1]
        assert last.nats == pytest.approx(token.nats, abs=1e-4)
        assert last.rank == token.rank
        assert last.entropy == pytest.approx(token.entropy, abs=1e-4)
        assert [a.id for a in last.top] == [a.id for a in token.top]
        assert [layer.layer for layer in position.layers] == list(range(len(model.network.widths)))


@pytest.mark.parametrize("slug", ["gpt1", "gpt2", "gpt3", "xlnet", "glm"])
def test_last_position_predicts_the_next_token(slug: str) -> None:
    model: Any = make_model(slug)
    position = lens.predict_by_layer(model, TEXT, k=3).positions[-1]
    assert position.token is None
    guesses = model.next(TEXT, k=3, tokens=True)
    assert [a.text for a in position.layers[-1].top] == [guess.text for guess in guesses]
    assert position.layers[-1].top[0].probability == pytest.approx(guesses[0].probability, rel=1e-4)
    assert position.layers[-1].nats is None


@pytest.mark.parametrize("slug", ["bert", "roberta", "albert"])
def test_blank_of_masked_model_is_predicted(slug: str) -> None:
    model: Any = make_model(slug)
    (position,) = lens.predict_by_layer(model, "the ___ lay by the mat", k=3).positions
    guesses = model.fill("the ___ lay by the mat", k=3, tokens=True)[0]
    assert [a.text for a in position.layers[-1].top] == [guess.text for guess in guesses]
    assert position.layers[-1].top[0].probability == pytest.approx(guesses[0].probability, rel=1e-4)


@pytest.mark.parametrize("slug", ["gpt2", "gpt3", "t5", "glm"])  # the others' blocks end with a norm
def test_inner_layer_goes_through_norm_and_readout(slug: str) -> None:
    """A network whose last block adds nothing predicts the same after the block before it."""
    model: Any = make_model.__wrapped__(slug)
    network = model.network
    last = network.decoder.blocks[-1] if slug == "t5" else network.stacks()[0][-1]
    with torch.no_grad():
        for name, weight in last.named_parameters():
            if name.split(".")[-2] in ("out", "narrow"):
                weight.zero_()
    for position in lens.predict_by_layer(model, TEXT, source_of(model)).positions:
        before, after = position.layers[-2:]
        assert [a.id for a in before.top] == [a.id for a in after.top]
        assert before.entropy == pytest.approx(after.entropy, abs=1e-5)


def test_recurrent_network_names_its_gates_instead() -> None:
    with pytest.raises(Unsupported) as caught:
        lens.predict_by_layer(make_model("lstm"), TEXT)
    assert caught.value.ability == "layers"
