"""Attention weights of the lens equal those of transformers (eager attention, `output_attentions`)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nextword
from nextword import lens
from nextword.conversion import convert
from nextword.core.errors import InvalidSetting, Unsupported
from nextword.layers.attention import AttentionRecorder, attention_weights
from tests.parity.test_huggingface_gpt import saved_by_transformers, theirs
from tests.parity.test_huggingface_t5 import FORMS, folder_of
from tests.parity.test_huggingface_t5 import tokenizer as t5_tokenizer  # noqa: F401 (a fixture)
from tests.support.hf_folders import make_transformers_model, save_transformers_tokenizer
from tests.support.untrained_models import make_model

NAMES = {
    "bert": "BertForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "albert": "AlbertForMaskedLM",
    "xlnet": "XLNetLMHeadModel",
}
TEXT = "the king went to see"
BANDED = "the dog lay by the mat and slept"
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def weights_of(attentions: Any) -> np.ndarray:
    """Their tuple of (1, H, T, S) by layer → (layers, H, T, S)."""
    stacked: np.ndarray = torch.stack([a[0] for a in attentions]).detach().numpy()
    return stacked


def read_ids(each: lens.AttentionMap) -> torch.Tensor:
    return torch.tensor([[token.id for token in each.columns]])


@pytest.mark.parametrize("slug", ["gpt1", "gpt2"])
@torch.no_grad()
def test_decoder_attention_equals_transformers(slug: str, tmp_path: Path) -> None:
    size = saved_by_transformers(slug, tmp_path / "theirs")
    peer = theirs(slug, size)
    peer.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    (mine,) = lens.read_attention(nextword.load(tmp_path / "run", device="cpu"), "the king went").maps
    peer.set_attn_implementation("eager")
    want = weights_of(peer(read_ids(mine), output_attentions=True).attentions)
    assert mine.kind == "self"
    assert mine.weights.shape == want.shape
    assert want.shape[-1] > 3
    np.testing.assert_allclose(mine.weights, want, **TOLERANCE)


@pytest.mark.parametrize("slug", ["bert", "roberta", "albert", "xlnet"])
@torch.no_grad()
def test_encoder_attention_equals_transformers(slug: str, tmp_path: Path) -> None:
    size = save_transformers_tokenizer(slug, tmp_path / "theirs")
    peer = make_transformers_model(NAMES[slug], size)
    peer.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    lm = nextword.load(tmp_path / "run", device="cpu")
    mine = lens.read_attention(lm, TEXT).map("self")
    peer.set_attn_implementation("eager")
    frame = lm.network.frame(lm.tokenizer.encode(TEXT))
    given = {"input_ids": read_ids(mine)}
    assert given["input_ids"].tolist()[0] == frame.ids.tolist()
    if slug == "xlnet":
        given["token_type_ids"] = torch.from_numpy(frame.segments)[None]
    want = weights_of(peer(**given, output_attentions=True).attentions)
    assert mine.weights.shape == want.shape
    np.testing.assert_allclose(mine.weights, want, **TOLERANCE)


@torch.no_grad()
def test_query_stream_of_xlnet_equals_transformers(tmp_path: Path) -> None:
    """Ours queries the position after each token. Theirs: an order from left to right, and one more position."""
    size = save_transformers_tokenizer("xlnet", tmp_path / "theirs")
    peer = make_transformers_model("XLNetLMHeadModel", size)
    peer.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    mine = lens.read_attention(nextword.load(tmp_path / "run", device="cpu"), "the king").map("query")
    peer.set_attn_implementation("eager")
    ids = read_ids(mine)
    ids = torch.cat([ids, ids[:, :1]], 1)  # a place for the last prediction
    steps = ids.shape[1]
    assert steps - 1 <= 7  # no layer's memory ends before the text does
    order = torch.ones(steps, steps).triu()[None]  # 1: i does not see j
    whole = torch.eye(steps)[None]
    out = peer(ids, perm_mask=order, target_mapping=whole, output_attentions=True, use_mems=False)
    want = torch.stack([query[0] for _, query in out.attentions])[:, :, 1:, :-1].numpy()
    assert mine.weights.shape == want.shape
    np.testing.assert_allclose(mine.weights, want, **TOLERANCE)


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_t5_attention_equals_transformers(form: str, t5_tokenizer: Path, tmp_path: Path) -> None:  # noqa: F811
    peer = folder_of(form, tmp_path / "theirs", t5_tokenizer)
    convert(tmp_path / "theirs", tmp_path / "run", [f"tokenizer.load={t5_tokenizer}"])
    lm = nextword.load(tmp_path / "run", device="cpu")
    mine = lens.read_attention(lm, "the great light", source="the king saw the light")
    peer.set_attn_implementation("eager")
    source, written = read_ids(mine.map("source")), read_ids(mine.map("self"))
    out = peer(source, decoder_input_ids=written, output_attentions=True)
    pairs = {"source": out.encoder_attentions, "self": out.decoder_attentions, "cross": out.cross_attentions}
    for kind, attentions in pairs.items():
        want = weights_of(attentions)
        assert mine.map(kind).weights.shape == want.shape
        np.testing.assert_allclose(mine.map(kind).weights, want, **TOLERANCE)
    assert len(mine.map("cross").rows) == len(mine.map("self").rows)
    assert mine.map("cross").rows[-1].start == mine.map("cross").rows[-1].end  # the end


@pytest.mark.parametrize("attention", ["bahdanau", "luong"])
@torch.no_grad()
def test_attention_of_seq2seq_equals_its_forward(attention: str) -> None:
    lm: Any = make_model("seq2seq", attention=attention)
    mine = lens.read_attention(lm, "a king sat", source="the cat sat").map("cross")
    alignment = lm.alignment("a king sat", "the cat sat")
    np.testing.assert_allclose(mine.weights[0, 0], alignment.weights, **TOLERANCE)
    np.testing.assert_allclose(mine.weights.sum(-1), 1.0, rtol=1e-5)
    assert tuple(token.text for token in mine.columns)[:-1] == alignment.source[:-1]


def test_seq2seq_without_attention_raises() -> None:
    with pytest.raises(Unsupported) as caught:
        lens.read_attention(make_model("seq2seq", attention="none"), "a king", source="the cat")
    assert caught.value.ability == "attention"


# ------------------------------------------------------------------------------------------------ our own forms


@torch.no_grad()
def test_weights_times_values_equal_the_kernel() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    masks: list[dict[str, Any]] = [
        {},
        {"is_causal": True},
        {"attn_mask": torch.rand(5, 5) > 0.3},
        {"attn_mask": torch.randn(2, 1, 5, 5)},
        {"scale": 1.0},
    ]
    for options in masks:
        if "attn_mask" in options and options["attn_mask"].dtype == torch.bool:
            options["attn_mask"].fill_diagonal_(True)
        with AttentionRecorder() as recorder:
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
        (weights,) = recorder.weights
        torch.testing.assert_close(weights @ v, y)
    torch.testing.assert_close(attention_weights(q, k).sum(-1), torch.ones(2, 3, 5))


@torch.no_grad()
def test_banded_attention_equals_a_mask_over_all() -> None:
    """GPT-3's banded layers are computed in blocks; their weights are those of one matrix, zero outside of the band."""
    lm = make_model("gpt3", local_window=5)
    mine = lens.read_attention(lm, BANDED).maps[0].weights
    steps = mine.shape[-1]
    assert steps > 10
    assert steps % 5
    distance = np.arange(steps)[:, None] - np.arange(steps)
    outside = (distance < 0) | (distance >= 5)
    assert (mine[1][:, outside] == 0).all()
    assert (mine[0][:, distance >= 5] > 0).any()
    np.testing.assert_allclose(mine.sum(-1), 1.0, rtol=1e-5)
    full = make_model("gpt3", local_window=64)
    same: Any = lens.read_attention(full, BANDED).maps[0].weights
    np.testing.assert_allclose(mine[0], same[0], **TOLERANCE)


@pytest.mark.parametrize("slug", ["gpt2", "bert", "xlnet", "t5", "glm"])
def test_layers_and_heads_can_be_chosen(slug: str) -> None:
    lm = make_model(slug)
    source = "the cat" if lm.is_seq2seq else None
    everything = lens.read_attention(lm, "the dog lay", source)
    some = lens.read_attention(lm, "the dog lay", source, layers=[-1], heads=[2, 1])
    for all_of_it, chosen in zip(everything.maps, some.maps, strict=True):
        np.testing.assert_array_equal(chosen.weights, all_of_it.weights[-1:, [1, 0]])
        assert chosen.layers == all_of_it.layers[-1:]
        assert chosen.heads == (2, 1)
        np.testing.assert_allclose(all_of_it.weights.sum(-1), 1.0, rtol=1e-5)
        assert all_of_it.weights.shape[2:] == (len(all_of_it.rows), len(all_of_it.columns))
    with pytest.raises(InvalidSetting):
        lens.read_attention(lm, "the dog lay", source, layers=[99])


def test_text_beyond_the_window_raises() -> None:
    for slug in ("gpt2", "bert"):
        with pytest.raises(InvalidSetting) as caught:
            lens.read_attention(make_model(slug), "the dog lay by the mat " * 400)
        assert caught.value.key == "text"


def test_source_of_a_model_without_one_raises() -> None:
    with pytest.raises(InvalidSetting) as caught:
        lens.read_attention(make_model("gpt2"), "the dog", source="the cat")
    assert caught.value.key == "source"


def test_only_this_thread_is_recorded() -> None:
    lm = make_model("gpt2")
    with AttentionRecorder() as recorder:
        other = threading.Thread(target=lambda: lm.score("the dog"))
        other.start()
        other.join()
    assert recorder.weights == []
