from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from nextword import lens
from nextword.core.errors import InvalidSetting, Unsupported
from tests.support.untrained_models import SCORING, make_model

TEXT = "the dog lay by the"
CAUSAL = [
    slug
    for slug in SCORING
    if "saliency" in lens.list_views(make_model(slug)) and make_model(slug).kind == "exact" and slug != "elmo"
]


@pytest.mark.parametrize("slug", CAUSAL)
def test_integrated_gradients_are_complete(slug: str) -> None:
    """They add up to what the text contributes, within 1 %. (ELMo with random weights is clipped all over.)"""
    model = make_model(slug)
    result = lens.attribute_word(model, TEXT, source="the cat sat" if model.is_seq2seq else None)
    assert result.baseline is not None
    values = np.array([token.value for token in result.tokens])
    assert values.sum() == pytest.approx(result.score - result.baseline, abs=0.01 * np.abs(values).sum())
    assert np.abs(values).sum() > 0


def test_integrated_gradients_of_elmo_are_complete() -> None:
    model: Any = make_model("elmo", cell_clip=0.0, projection_clip=0.0)
    with torch.no_grad():
        for weight in model.network.layers.parameters():
            weight.mul_(1 / 3)
    result = lens.attribute_word(model, TEXT)
    assert result.gap is not None
    assert abs(result.gap) <= 0.01 * sum(abs(token.value) for token in result.tokens)


@pytest.mark.parametrize("slug", CAUSAL)
def test_score_of_given_target_equals_score_of_model(slug: str) -> None:
    """Several tokens count together. A target sequence has no end here."""
    model = make_model(slug)
    if model.is_seq2seq:
        source = "the cat sat"
        result = lens.attribute_word(model, "the dog", " lay", source)
        own = lens.explain_text(model, "the dog lay", source).tokens
        start = len(b"the dog")
        expected = -sum(token.nats for token in own[:-1] if token.token.end > start)
    else:
        result = lens.attribute_word(model, TEXT, " mat and")
        expected = -model.score(" mat and", given=TEXT).nats
    assert result.score == pytest.approx(expected, rel=1e-5)
    assert result.target in (" mat and", " lay")


@pytest.mark.parametrize("slug", ["lstm", "gpt2", "glm"])
def test_linear_share_of_a_single_token_is_all_of_it(slug: str) -> None:
    """With one token of text, all of the difference is its own."""
    model = make_model(slug)
    token = model.tokenizer.piece(int(model.tokenizer.encode("the dog").ids[0])).decode()
    result = lens.attribute_word(model, token, " dog")
    assert len(result.tokens) == 1
    assert result.baseline is not None
    assert result.tokens[0].value == pytest.approx(result.score - result.baseline, abs=1e-3)


def test_source_and_text_are_attributed_separately() -> None:
    for slug in ("t5", "seq2seq"):
        result = lens.attribute_word(make_model(slug), "a dog", source="the cat")
        for part, text in (("source", "the cat"), ("text", "a dog")):
            own = [each for each in result.tokens if each.part == part]
            assert "".join(text[each.token.start : each.token.end] for each in own).replace(" ", "") == text.replace(
                " ", ""
            )
    result = lens.attribute_word(make_model("gpt2"), " lay by", source="the dog")
    assert {each.part for each in result.tokens} == {"source", "text"}
    assert "".join("the dog"[t.token.start : t.token.end] for t in result.tokens if t.part == "source") == "the dog"
    assert "".join(" lay by"[t.token.start : t.token.end] for t in result.tokens if t.part == "text") == " lay by"


def test_counting_and_quantized_models_have_no_gradients() -> None:
    with pytest.raises(Unsupported) as caught:
        lens.attribute_word(make_model("ngram"), TEXT)
    assert caught.value.ability == "saliency"
    model: Any = make_model("gpt2", bits=8)
    with pytest.raises(Unsupported):
        lens.attribute_word(model, TEXT)
    assert "saliency" not in lens.list_views(model)


@pytest.mark.parametrize(
    ("slug", "text", "options", "key"),
    [
        ("lstm", TEXT, {"method": "magic"}, "method"),
        ("lstm", TEXT, {"steps": 0}, "steps"),
        ("lstm", TEXT, {"steps": 10_000}, "steps"),
        ("lstm", TEXT, {"target": ""}, "target"),
        ("bert", TEXT, {}, "text"),
        ("bert", "the ___ and the ___", {}, "text"),
        ("bert", "the ___ sat", {"target": "cat dog"}, "target"),
        ("t5", TEXT, {}, "source"),
        ("gpt2", TEXT * 400, {}, "text"),
    ],
)
def test_impossible_request_names_the_setting(slug: str, text: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        lens.attribute_word(make_model(slug), text, **options)
    assert caught.value.key == key


def test_gradients_leave_no_trace_in_the_network() -> None:
    model: Any = make_model("gpt2")
    before = model.score(TEXT).nats
    lens.attribute_word(model, TEXT)
    lens.trace_gradient(make_model("lstm"), TEXT)
    assert all(p.grad is None for p in model.network.parameters())
    assert all(p.grad is None for p in make_model("lstm").network.parameters())
    assert model.score(TEXT).nats == before
