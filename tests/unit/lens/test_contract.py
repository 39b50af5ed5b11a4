"""Every view of the lens over a small random model of every slug: it works, or says why not."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nextword import lens
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Beam, Sample, Stop
from nextword.lens.views import VIEWS
from nextword.lm.base import TextModel
from nextword.models import MODELS
from tests.support.model_kinds import list_word_vector_slugs
from tests.support.untrained_models import SCORING, make_model

TEXTS = ["the dog lay by the mat, naïve 東京", "a", "", "the cat\nsat on  the mat"]
SOURCE = "the cat sat"


def source_of(model: TextModel) -> str | None:
    return SOURCE if model.is_seq2seq else None


def show(model: TextModel, view: str) -> lens.LensResult:
    """A view of a short text."""
    text, source = "the dog lay by the mat", source_of(model)
    blank = "the ___ lay by the mat" if model.is_bidirectional and "generate" not in model.can else text
    calls: dict[str, Callable[[], lens.LensResult]] = {
        "surprisal": lambda: lens.explain_text(model, text, source),
        "attention": lambda: lens.read_attention(model, text, source),
        "layers": lambda: lens.predict_by_layer(model, text, source),
        "gates": lambda: lens.trace_gates(model, text),
        "gradient": lambda: lens.trace_gradient(model, text),
        "saliency": lambda: lens.attribute_word(model, blank, source=source),
        "neighbors": lambda: lens.find_neighbors(model, "the cat", ["a dog", "the mat"]),
        "projection": lambda: lens.project_vectors(model, ["a dog", "the mat", "the door"]),
        "beam": lambda: lens.trace_beam(model, SOURCE, Beam(3), Stop(max_tokens=4)),
        "decoding": lambda: lens.show_decoding(model, SOURCE, Sample(0.8, top_k=5), chosen=2),
    }
    return calls[view]()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("slug", [*SCORING, *list_word_vector_slugs()])
def test_view_works_or_raises_unsupported(slug: str, view: str) -> None:
    model = make_model(slug)
    if view not in lens.list_views(model):
        with pytest.raises(Unsupported) as caught:
            show(model, view)
        assert caught.value.ability
        return
    result = show(model, view)
    assert dataclasses.is_dataclass(result)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.model = ""  # type: ignore[misc]
    assert repr(result).startswith(type(result).__name__)
    assert "\n" not in repr(result)
    assert len(repr(result)) < 400
    values = json.loads(result.to_json())
    assert list(values) == [field.name for field in dataclasses.fields(result)]
    assert json.loads(json.dumps(result.as_dict())) == result.as_dict()  # plain values: lists and dictionaries
    page = result.page()
    assert page.startswith("<!doctype html>")
    assert "http" not in page.replace("http-equiv", "")  # it loads nothing
    assert 'class="nextword"' in result._repr_html_()


def test_every_view_is_a_public_function() -> None:
    assert set(VIEWS.values()) <= set(lens.__all__)
    assert set(MODELS) >= set(SCORING)


# ------------------------------------------------------------------------------------------------ surprisal


@pytest.mark.parametrize("slug", SCORING)
def test_surprisal_sums_to_the_score(slug: str) -> None:
    model = make_model(slug)
    for text in TEXTS:
        source = source_of(model)
        explained = lens.explain_text(model, text, source)
        score = model.score(text, given=source or "")
        assert explained.nats == pytest.approx(score.nats, rel=1e-5, abs=1e-5)
        assert len(explained.tokens) == score.tokens
        assert explained.kind == score.kind
        bits_per_byte = score.bits_per_byte()
        assert explained.bits_per_byte == (bits_per_byte and pytest.approx(bits_per_byte, rel=1e-5))


@pytest.mark.parametrize("slug", [slug for slug in SCORING if not make_model(slug).is_seq2seq])
def test_surprisal_after_another_text_sums_to_the_score(slug: str) -> None:
    model = make_model(slug)
    for text in TEXTS:
        explained = lens.explain_text(model, text, "the king went ")
        assert explained.nats == pytest.approx(model.score(text, given="the king went ").nats, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("slug", SCORING)
def test_surprisal_of_each_token_is_consistent(slug: str) -> None:
    model, text = make_model(slug), TEXTS[0]
    source = source_of(model)
    vocabulary_size = len(model.tokenizer)
    distributions = [row for block in model.token_log_probs(text, source or "") for row in block]
    explained = lens.explain_text(model, text, source, k=vocabulary_size)
    raw = text.encode()
    for token, log_p in zip(explained.tokens, distributions, strict=True):
        assert log_p.exp().sum() == pytest.approx(1, abs=1e-4)
        assert token.bits == pytest.approx(token.nats / math.log(2))
        assert 0 <= token.entropy <= math.log(vocabulary_size) + 1e-4
        nats = [alternative.nats for alternative in token.top]
        assert nats == sorted(nats)
        assert token.rank == 1 + sum(other < token.nats for other in nats)
        assert token.top[0].probability == pytest.approx(math.exp(-nats[0]))
        if token.token.start < token.token.end:
            assert token.token.text == raw[token.token.start : token.token.end].decode("utf-8", "replace")
    spans = [(t.token.start, t.token.end) for t in explained.tokens]
    assert spans == sorted(spans)
    if model.tokenizer.lossless:
        assert b"".join(raw[start:end] for start, end in spans) == raw


def test_surprisal_of_long_text_is_read_in_chunks() -> None:
    for slug in ("lstm", "gpt2", "glm"):
        model = make_model(slug)
        text = "the dog lay by the mat and the cat sat " * 40
        score = model.score(text)
        assert score.tokens > model.network.chunk or score.tokens > (model.context or 0)
        assert lens.explain_text(model, text, k=0).nats == pytest.approx(score.nats, rel=1e-5)


def test_surprisal_of_backward_model_is_in_the_order_of_the_text() -> None:
    model = make_model("lstm", backward=True)
    text = "the dog lay by the mat"
    nats = [token.nats for token in lens.explain_text(model, text).tokens]
    np.testing.assert_allclose(nats, model.token_nats([model.tokenizer.encode(text).ids])[0], rtol=1e-5)
    with pytest.raises(Unsupported):
        lens.explain_text(model, text, "before")


@pytest.mark.parametrize("slug", ["glm", "t5"])
@pytest.mark.parametrize("filling", ["sat by", " lay", "a", "naïve 東京 "])
def test_surprisal_of_a_filling_sums_to_its_score(slug: str, filling: str) -> None:
    """A model that fills blanks of any length is given the text around the blank."""
    model: Any = make_model(slug)
    source = "the cat ___ the door"
    explained = lens.explain_text(model, filling, source)
    if slug == "glm":
        (score,) = model.score_blanks(source, [filling])
    else:
        (score,) = model.score_fillings([("the cat ", " the door")], [filling.strip(" ")])
    assert explained.nats == pytest.approx(score.nats, rel=1e-5)
    assert len(explained.tokens) == score.tokens
    raw = filling.encode()
    spelled = b"".join(raw[t.token.start : t.token.end] for t in explained.tokens)
    assert spelled.replace(b" ", b"") == raw.replace(b" ", b"")  # spans of a lossy tokenizer leave spaces out
    layers = lens.predict_by_layer(model, filling, source)
    last = [position.layers[-1].nats for position in layers.positions]
    assert last == pytest.approx([token.nats for token in explained.tokens], rel=1e-4, abs=1e-4)


def test_source_is_required_by_conditional_models_only() -> None:
    with pytest.raises(InvalidSetting) as caught:
        lens.explain_text(make_model("t5"), "the cat")
    assert caught.value.key == "source"


def test_impossible_token_has_infinite_surprisal_and_is_null_in_json() -> None:
    model: Any = make_model("ngram")

    def forbid(text: str, given: str = "") -> Any:
        for log_p in type(model).token_log_probs(model, text, given):
            log_p[:, model.tokenizer.encode("t").ids[0]] = -math.inf
            yield log_p

    model = copy.copy(model)
    model.token_log_probs = forbid
    explained = lens.explain_text(model, "the t")
    assert explained.nats == math.inf
    assert json.loads(explained.to_json())["nats"] is None
    assert "impossible" in explained._repr_html_()
