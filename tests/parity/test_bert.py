"""BERT, RoBERTa and ALBERT compared with transformers with copied weights: values and gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.core.types import Inputs
from tests.support.small_encoders import (
    LAYERS,
    PAD,
    PRENORM,
    ROBERTAS,
    SIZE,
    SLUGS,
    WINDOW,
    assert_close,
    draw_ids,
    make_encoder,
    make_inputs,
    randomize,
)

transformers = pytest.importorskip("transformers")

THEIRS: dict[str, Any] = {
    "vocab_size": SIZE,
    "hidden_size": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": WINDOW,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "pad_token_id": PAD,
}


def foreign(slug: str) -> Any:
    if slug == "bert":
        network = transformers.BertForPreTraining(transformers.BertConfig(**THEIRS))
    elif slug in ROBERTAS:
        kwargs = {**THEIRS, "max_position_embeddings": WINDOW + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
        name = "Roberta" if slug == "roberta" else "RobertaPreLayerNorm"
        config = getattr(transformers, f"{name}Config")(**kwargs)
        network = getattr(transformers, f"{name}ForMaskedLM")(config)
    else:
        network = transformers.AlbertForPreTraining(transformers.AlbertConfig(**THEIRS, embedding_size=10))
    randomize(network)
    return network.eval().double()


def carried(slug: str, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors, weights or gradients, under our names."""
    base = f"{slug}.embeddings."
    names = {
        "embedding.weight": base + "word_embeddings.weight",
        "segments.weight": base + "token_type_embeddings.weight",
    }
    pairs = {"norm": base + "LayerNorm"}
    block = f"{slug}.encoder.layer."
    if slug == "albert":
        block = "albert.encoder.albert_layer_groups.0.albert_layers."
        halves = {"attention.out": "attention.dense", "norm": "attention.LayerNorm"}
        feeding = {"wide": "ffn", "narrow": "ffn_output", "norm": "full_layer_layer_norm"}
        queries, layers = "attention.{}", 1
        pairs |= {"lift": "albert.encoder.embedding_hidden_mapping_in", "pooler": "albert.pooler"}
        pairs |= {"next_sentence": "sop_classifier.classifier", "readout.dense": "predictions.dense"}
        pairs |= {"readout.norm": "predictions.LayerNorm"}
        names["readout.bias"] = "predictions.bias"
    else:
        halves = {"attention.out": "attention.output.dense", "norm": "attention.output.LayerNorm"}
        feeding = {"wide": "intermediate.dense", "narrow": "output.dense", "norm": "output.LayerNorm"}
        queries, layers = "attention.self.{}", LAYERS
    if slug == PRENORM:
        halves["norm"], feeding["norm"] = "attention.LayerNorm", "intermediate.LayerNorm"
        pairs["last"] = f"{slug}.LayerNorm"
    if slug == "bert":
        pairs |= {"pooler": "bert.pooler.dense", "next_sentence": "cls.seq_relationship"}
        pairs |= {"readout.dense": "cls.predictions.transform.dense"}
        pairs |= {"readout.norm": "cls.predictions.transform.LayerNorm"}
        names["readout.bias"] = "cls.predictions.bias"
    if slug in ROBERTAS:
        pairs |= {"readout.dense": "lm_head.dense", "readout.norm": "lm_head.layer_norm"}
        names["readout.bias"] = "lm_head.bias"
    positions = given[base + "position_embeddings.weight"]
    found = {"positions.weight": positions[2:] if slug in ROBERTAS else positions}
    for i in range(layers):
        pairs |= {f"attending.{i}.{a}": f"{block}{i}.{b}" for a, b in halves.items()}
        pairs |= {f"feeding.{i}.{a}": f"{block}{i}.{b}" for a, b in feeding.items()}
    for end in ("weight", "bias"):
        names |= {f"{a}.{end}": f"{b}.{end}" for a, b in pairs.items()}
        for i in range(layers):
            three = [given[f"{block}{i}.{queries.format(n)}.{end}"] for n in ("query", "key", "value")]
            found[f"attending.{i}.attention.join.{end}"] = torch.cat(three)
    return found | {ours: given[theirs] for ours, theirs in names.items()}


def pair(slug: str) -> tuple[Any, Any]:
    """A network of ours and one of theirs, the one's weights copied from the other's."""
    ours, theirs = make_encoder(slug), foreign(slug)
    ours.load_state_dict(carried(slug, theirs.state_dict()))
    return ours, theirs


def answered(slug: str, theirs: Any, inputs: Inputs) -> tuple[Any, Tensor, Any, Any]:
    """Their layers, logits, pooled vector and two logits of pairs."""
    kwargs: dict[str, Any] = {"attention_mask": None if inputs.token_mask is None else inputs.token_mask.long()}
    if slug not in ROBERTAS:
        kwargs["token_type_ids"] = inputs.segments
    body = getattr(theirs, slug)
    out = body(inputs.ids, output_hidden_states=True, **kwargs)
    whole = theirs(inputs.ids, **kwargs)
    if slug in ROBERTAS:
        return out.hidden_states, whole.logits, None, None
    two = whole.seq_relationship_logits if slug == "bert" else whole.sop_logits
    return out.hidden_states, whole.prediction_logits, out.pooler_output, two


KINDS = ["one", "odd", "window", "padded", "segments"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slug", SLUGS)
@torch.no_grad()
def test_forward_equals_transformers(slug: str, kind: str) -> None:
    ours, theirs = pair(slug)
    inputs = make_inputs(slug, kind)
    layers, logits, pooled, two = answered(slug, theirs, inputs)
    there = inputs.token_mask if inputs.token_mask is not None else torch.ones_like(inputs.ids, dtype=torch.bool)
    got, state = ours.hidden(inputs, None)
    assert state is None
    assert len(got) == len(ours.widths) == LAYERS + 1
    for a, b in zip(got[-len(layers) :], layers, strict=True):
        assert_close(a[there], b[there])
    assert_close(ours.readout.logits(got[-1])[there], logits[there])
    at = there.flatten().nonzero().squeeze(1)[::2]
    assert_close(ours.fill(inputs, at), F.log_softmax(logits, -1).flatten(0, 1)[at])
    if pooled is not None:
        vector = ours.pooled(got[-1][:, 0])
        assert_close(vector, pooled)
        assert_close(ours.next_sentence(vector), two)


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("slug", SLUGS)
def test_gradients_equal_transformers(slug: str, kind: str) -> None:
    """Of the loss of both heads, for every parameter that there is."""
    ours, theirs = pair(slug)
    inputs = make_inputs(slug, kind)
    targets = draw_ids(*inputs.ids.shape).roll(1, 0)
    if inputs.token_mask is not None:
        targets = targets.masked_fill(~inputs.token_mask, -100)
    follows = torch.arange(len(targets)) % 2
    _, logits, _, two = answered(slug, theirs, inputs)
    want = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    h = ours.hidden(inputs, None)[0][-1]
    got = ours.readout.total(h.flatten(0, 1), targets.flatten())
    if two is not None:
        want = want + F.cross_entropy(two, follows)
        got = got + F.cross_entropy(ours.next_sentence(ours.pooled(h[:, 0])), follows)
    assert_close(got, want)
    want.backward()
    got.backward()
    grads = carried(slug, {name: p.grad for name, p in theirs.named_parameters()})
    mine = dict(ours.named_parameters())
    assert set(grads) == set(mine)
    for name, p in mine.items():
        assert_close(p.grad, grads[name])


def test_forward_in_float32_equals_transformers() -> None:
    ours, theirs = pair("bert")
    ours, theirs = ours.float(), theirs.float()
    inputs = make_inputs("bert", "padded")
    layers, _, _, _ = answered("bert", theirs, inputs)
    torch.testing.assert_close(
        ours.hidden(inputs, None)[0][-1][inputs.token_mask], layers[-1][inputs.token_mask], rtol=1e-4, atol=1e-4
    )
