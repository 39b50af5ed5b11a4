"""Folders of BERT, RoBERTa, ALBERT and XLNet saved by transformers, and assertions that both sides agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nextword.conversion import convert
from nextword.conversion.base import Conversion, OpenedRun, open_run
from nextword.core.types import Inputs
from nextword.tokenizers.training import train_tokenizer
from tests.support.small_encoders import randomize

transformers = pytest.importorskip("transformers")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

SLUGS = ["bert", "roberta", "albert", "xlnet"]
TALE = "the king of a land went to see his house. It's 1812, naïve Ångström; 東京 👩‍👩‍👧 and all\n\n  said: don't go!\t"
TRICKY = [
    "",
    " ",
    "   \n\n \t x",
    "The king went  to see\nhis house.\r\n",
    "don't we'll 'tis 1812 x1y",
    "naïve café e\u0301 İ ß ﬁ ½ Ångström",
    "日本語 東京 は ``so'' he said",
    "👩‍👩‍👧‍👦 🇩🇪 \ufffd \ud7ff",
    "tabs\tand\u00a0no-break\u3000wide\u200bzero \x00\x7f",
    "MiXeD CASE ##s ▁the Ġthe",
]
STILL = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 19,
    "layer_norm_eps": 1e-3,
    **STILL,
}
MEASURES: dict[str, dict[str, Any]] = {
    "bert": {**SIZES, "type_vocab_size": 3},
    "roberta": {**SIZES, "max_position_embeddings": 21, "type_vocab_size": 1},
    "albert": {**SIZES, "embedding_size": 10},
    "xlnet": {"d_model": 24, "n_layer": 3, "n_head": 4, "d_inner": 40, "mem_len": 7, "clamp_len": 5, "dropout": 0.0},
}


def make_transformers_model(name: str, size: int, **more: Any) -> Any:
    cls = getattr(transformers, name)
    network = cls(cls.config_class(**{**MEASURES[cls.config_class.model_type], "vocab_size": size, **more}))
    randomize(network)
    return network.eval()


def save_transformers_tokenizer(slug: str, folder: Path) -> int:
    """Save a tokenizer of transformers with a vocabulary trained by nextword; return its number of tokens."""
    kind = {"bert": "wordpiece", "roberta": "bpe"}.get(slug, "unigram")
    marks = {"marks": True} if slug in ("roberta", "albert") else {}
    model = train_tokenizer({"kind": kind, "size": 301 if kind == "bpe" else 97, **marks}, [TALE * 3]).library["model"]
    if slug == "bert":
        saved = transformers.BertTokenizer(vocab=model["vocab"])
    elif slug == "roberta":
        vocab = {**model["vocab"], "<unk>": len(model["vocab"])}
        saved = transformers.RobertaTokenizer(vocab=vocab, merges=[tuple(pair) for pair in model["merges"]])
    elif slug == "albert":
        saved = transformers.AlbertTokenizer(vocab=[tuple(entry) for entry in model["vocab"]])
    else:
        names = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
        pieces = [(name, score) for name, score in model["vocab"] if name not in names]
        saved = transformers.XLNetTokenizer(vocab=[*((name, 0.0) for name in names), *pieces], unk_id=0)
    saved.save_pretrained(folder)
    return len(saved)


def reopen_run(folder: Path) -> OpenedRun:
    return open_run(folder, lambda run, cls: None)


def assert_round_trip(before: Any, there: Path) -> None:
    """Assert that importing the folder exported from `before` restores it bit for bit, and exports the same folder."""
    convert(there, there.with_name("back"))
    after = reopen_run(there.with_name("back"))
    assert after.network.config == before.network.config
    state = after.network.state_dict()
    assert state.keys() == before.network.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in before.network.state_dict().items())
    assert after.tokenizer.content() == before.tokenizer.content()
    convert(there.with_name("back"), there.with_name("again"), to="huggingface")
    for file in there.iterdir():
        assert (there.with_name("again") / file.name).read_bytes() == file.read_bytes(), file.name


def make_inputs(slug: str, size: int, pad: int = 0) -> Inputs:
    """Make three rows of ids that are not special; two of them are padded."""
    torch.manual_seed(5)
    padding = torch.arange(11) < torch.tensor([11, 4, 8]).unsqueeze(1)
    ids = torch.randint(9, size - 1, (3, 11)).masked_fill(~padding, pad)
    segments = (torch.arange(11) >= torch.tensor([3, 2, 6]).unsqueeze(1)).long()
    return Inputs(ids, padding, None if slug == "roberta" else segments)


def to_transformers_inputs(inputs: Inputs) -> dict[str, Any]:
    there = {"input_ids": inputs.ids, "attention_mask": inputs.token_mask.long(), "token_type_ids": inputs.segments}
    return {name: value for name, value in there.items() if value is not None}


@torch.no_grad()
def assert_same_outputs(slug: str, network: Any, peer: Any, size: int) -> None:
    """Compare every layer, and every head that the model of transformers has."""
    inputs = make_inputs(slug, size, peer.config.pad_token_id or 0)
    padding = inputs.token_mask
    assert padding is not None
    layers, _ = network.encode(inputs)
    out = peer(**to_transformers_inputs(inputs), output_hidden_states=True)
    assert len(out.hidden_states) == len(layers)
    for i, (mine, other) in enumerate(zip(layers, out.hidden_states, strict=True)):
        torch.testing.assert_close(mine[padding], other[padding], rtol=1e-5, atol=1e-5, msg=f"layer {i}")
    at = torch.tensor([0, 2, 12, 25])
    if slug == "xlnet":
        if hasattr(peer, "lm_loss"):
            assert_same_queries(network, peer, inputs, at)
        return
    logits = next((out[key] for key in ("prediction_logits", "logits") if key in out), None)
    if logits is not None:
        want = logits.flatten(0, 1)[at].log_softmax(-1)
        torch.testing.assert_close(network.fill(inputs, at), want, rtol=1e-5, atol=1e-5)
    for key in ("seq_relationship_logits", "sop_logits"):
        if key in out:
            mine = network.next_sentence(network.pooled(layers[-1][:, 0]))
            torch.testing.assert_close(mine, out[key], rtol=1e-5, atol=1e-5)
    if "pooler_output" in out and network.pooler is not None:
        torch.testing.assert_close(network.pooled(layers[-1][:, 0]), out.pooler_output, rtol=1e-5, atol=1e-5)


def assert_same_queries(network: Any, peer: Any, inputs: Inputs, at: Tensor) -> None:
    """Compare predictions at the positions `at`, which see all other positions."""
    batch, steps = inputs.ids.shape
    hidden = torch.zeros(batch * steps).index_fill(0, at, 1.0).view(batch, 1, steps).expand(-1, steps, -1)
    whole = torch.eye(steps).expand(batch, -1, -1)
    logits = peer(**to_transformers_inputs(inputs), perm_mask=hidden, target_mapping=whole).logits
    want = logits.flatten(0, 1)[at].log_softmax(-1)
    torch.testing.assert_close(network.fill(inputs, at), want, rtol=1e-5, atol=1e-5)


def read_initialized(made: Conversion) -> list[str]:
    return json.loads((made.target / "manifest.json").read_text())["converted"].get("initialized", [])  # type: ignore[no-any-return]


def assert_same_ids(run: OpenedRun, peer: Any, framed: bool = True) -> None:
    assert len(peer) == len(run.tokenizer)
    for text in TRICKY:
        ids = run.tokenizer.encode(text).ids.tolist()
        assert peer(text, add_special_tokens=False)["input_ids"] == ids, text
    if not framed:
        return
    for texts in (["the king"], ["the king", "went to see"]):
        frame = run.network.frame(*map(run.tokenizer.encode, texts))
        output = peer(*texts)
        assert output["input_ids"] == frame.ids.tolist()
        if frame.segments is not None and "token_type_ids" in output:
            assert output["token_type_ids"] == frame.segments.tolist()
        assert "token_type_ids" not in output or frame.segments is not None
