"""Saliency of the lens equals captum's, on the same embeddings with the same baseline and the same quadrature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nextword import lens
from nextword.core.types import Inputs
from nextword.models.decoder import DecoderLM
from tests.support.untrained_models import make_model

captum = pytest.importorskip("captum.attr")
TEXT = "the dog lay by the"
CAUSAL = ["nplm", "rnn", "gru", "lstm", "awd-lstm", "gpt1", "gpt2", "gpt3", "xlnet", "glm"]


def mean_embedding(lm: Any) -> Tensor:
    """The baseline of a model without a padding token."""
    table = lm.network.embedding.weight
    names = lm.tokenizer.special
    pad = next((names[name] for name in ("[PAD]", "<pad>") if name in names), None)
    return (table.mean(0) if pad is None else table[pad]).detach()


def forward_from_embeddings(lm: Any, ids: Tensor, target: int) -> Any:
    """log p of the target after ids, as a function of the embeddings of all tokens but the first."""

    def forward(embeddings: Tensor) -> Tensor:
        rows = ids.expand(len(embeddings), -1)

        def replace(_: Any, args: Any, out: Tensor) -> Tensor:
            if out.shape[:2] == rows.shape:
                return torch.cat([out[:, :1], embeddings], 1)
            if out.shape[:2] == rows.t().shape:
                return torch.cat([out[:1], embeddings.transpose(0, 1)], 0)
            if out.shape[1] > rows.shape[1]:  # a window of words before the first
                return torch.cat([out[:, : -embeddings.shape[1]], embeddings], 1)
            return out  # of other tokens, such as GLM's part A

        hook = lm.network.embedding.register_forward_hook(replace)
        try:
            layers, _ = lm.network.hidden(Inputs(rows), None)
        finally:
            hook.remove()
        log_p: Tensor = lm.network.readout.log_probs(layers[-1][:, -1]).double()
        return log_p[:, target]

    return forward


def inputs_of(lm: Any) -> tuple[Tensor, Tensor]:
    first, _ = lm.network.start(1)
    ids = torch.cat([first, torch.from_numpy(lm.tokenizer.encode(TEXT).ids).long()])
    return ids, lm.network.embedding(ids[1:]).detach().unsqueeze(0)


@pytest.mark.parametrize("slug", CAUSAL)
def test_gradient_times_input_equals_captum(slug: str) -> None:
    lm: Any = make_model(slug)
    mine = lens.attribute_word(lm, TEXT, method="gradient_x_input")
    ids, embeddings = inputs_of(lm)
    target = lens_top(lm)[0]
    assert mine.target == target.text
    assert mine.score == pytest.approx(-target.nats, rel=1e-5)
    peer = captum.InputXGradient(forward_from_embeddings(lm, ids, target.id))
    want = peer.attribute(embeddings.requires_grad_()).sum(-1)[0].detach().numpy()
    np.testing.assert_allclose([token.value for token in mine.tokens], want, rtol=1e-4, atol=1e-5)


def lens_top(lm: Any) -> Any:
    """The likeliest next tokens, by a route of its own."""
    last, state = lm._read_prompts([lm.tokenizer.encode(TEXT).ids.tolist()])
    with torch.no_grad():
        log_p, _ = lm.network.step(last, state)
    return lens.surprisal.top_tokens(lens.result.TokenNames(lm), log_p, 1)[0]


@pytest.mark.parametrize("slug", CAUSAL)
def test_integrated_gradients_equal_captum(slug: str) -> None:
    lm: Any = make_model(slug)
    mine = lens.attribute_word(lm, TEXT, steps=16)
    ids, embeddings = inputs_of(lm)
    target = lens_top(lm)[0].id
    peer = captum.IntegratedGradients(forward_from_embeddings(lm, ids, target))
    baseline = mean_embedding(lm).expand_as(embeddings)
    attributed, delta = peer.attribute(
        embeddings, baseline, n_steps=16, method="gausslegendre", return_convergence_delta=True
    )
    want = attributed.sum(-1)[0].detach().numpy()
    np.testing.assert_allclose([token.value for token in mine.tokens], want, rtol=1e-3, atol=1e-4)
    assert mine.gap == pytest.approx(float(delta), abs=1e-3)
    assert isinstance(lm.network, DecoderLM) == (slug in ("gpt1", "gpt2", "gpt3"))


@pytest.mark.parametrize("slug", ["bert", "roberta", "albert"])
def test_blank_of_masked_model_equals_captum(slug: str) -> None:
    lm: Any = make_model(slug)
    text = "the ___ lay by the"
    mine = lens.attribute_word(lm, text, steps=16)
    frame, at, _ = lm.frame_blank("the ", " lay by the")
    ids = torch.from_numpy(frame.ids)[None]
    segments = None if frame.segments is None else torch.from_numpy(frame.segments)[None]
    start, end = frame.text_spans[0]
    own = [i for i in range(start, end) if i != at]
    embeddings = lm.network.embedding(ids).detach()
    log_p = lm.network.fill(Inputs(ids, segments=segments), torch.tensor([at]))
    target = int(log_p.argmax())

    def forward(given: Tensor) -> Tensor:
        hook = lm.network.embedding.register_forward_hook(lambda *_: given)
        try:
            rows, places = ids.expand(len(given), -1), torch.arange(len(given)) * ids.shape[1] + at
            wide = None if segments is None else segments.expand_as(rows)
            out: Tensor = lm.network.fill(Inputs(rows, segments=wide), places).double()
        finally:
            hook.remove()
        return out[:, target]

    baseline = embeddings.clone()
    baseline[0, own] = mean_embedding(lm)
    peer = captum.IntegratedGradients(forward)
    want = peer.attribute(embeddings, baseline, n_steps=16, method="gausslegendre").sum(-1)[0]
    np.testing.assert_allclose([token.value for token in mine.tokens], want[own].detach().numpy(), rtol=1e-3, atol=1e-4)
    assert mine.score == pytest.approx(float(log_p.detach().max()), rel=1e-5)
    spelled = "".join(text[each.token.start : each.token.end] for each in mine.tokens)  # all of it is ASCII
    assert spelled.replace(" ", "") == "thelaybythe"
