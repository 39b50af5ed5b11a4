"""Importing and exporting T5 folders of transformers, in both variants, keeps outputs and generated text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nextword
from nextword.conversion import convert
from nextword.core.errors import DataError, Unsupported
from nextword.core.types import Greedy, Inputs, Stop
from nextword.tokenizers.training import train_tokenizer

transformers = pytest.importorskip("transformers")

TEXT = "the king went up to the house of the lord and the people saw the great light in the house of the king . " * 20
FORMS = ("1.0", "1.1")


def theirs(form: str, size: int, **more: Any) -> Any:
    torch.manual_seed(0)
    given = {
        "vocab_size": size, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 3, "dropout_rate": 0.0,
        "feed_forward_proj": "gated-gelu" if form == "1.1" else "relu", "tie_word_embeddings": form == "1.0",
        "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1, **more,
    }  # fmt: skip
    network = transformers.T5ForConditionalGeneration(transformers.T5Config(**given))
    if form == "1.1":
        network.lm_head.weight = nn.Parameter(torch.empty(size, 24))
    for name, p in network.named_parameters():
        nn.init.normal_(p, std=0.3)
        if "norm" in name:
            p.data.add_(1.0)
    return network.eval()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer({"kind": "unigram", "size": 70, "sentinels": 5}, [TEXT]).save(path)
    return path


def folder_of(form: str, place: Path, tokenizer: Path, **more: Any) -> Any:
    size = len(nextword.tokenizers.loading.load_tokenizer(tokenizer))
    peer = theirs(form, size, **more)
    peer.save_pretrained(place)
    said = json.loads((place / "config.json").read_text())
    said["tie_word_embeddings"] = form == "1.0"  # as the released folders say
    (place / "config.json").write_text(json.dumps(said))
    return peer


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_round_trip_keeps_every_bit(form: str, tokenizer: Path, tmp_path: Path) -> None:
    peer = folder_of(form, tmp_path / "theirs", tokenizer)
    convert(tmp_path / "theirs", tmp_path / "run", [f"tokenizer.load={tokenizer}"])
    lm: Any = nextword.load(tmp_path / "run", device="cpu")
    assert (lm.network.config.gated, lm.network.config.tied) == (form == "1.1", form == "1.0")
    source, target = torch.randint(2, 60, (3, 9)), torch.randint(2, 60, (3, 5))
    want = peer(source, decoder_input_ids=target).logits
    h = lm.network.hidden(Inputs(target, source=Inputs(source)), None)[0][-1]
    torch.testing.assert_close(lm.network.readout.logits(h), want, rtol=1e-3, atol=1e-3)

    convert(tmp_path / "run", tmp_path / "again", to="huggingface")
    again = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "again").eval()
    torch.testing.assert_close(again(source, decoder_input_ids=target).logits, want, rtol=1e-4, atol=1e-4)
    said = json.loads((tmp_path / "again" / "config.json").read_text())
    assert said["tie_word_embeddings"] == (form == "1.0")
    opened = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    text = "the king saw the light"
    ids = opened(text, return_tensors="pt").input_ids
    assert ids[0].tolist() == [*lm.tokenizer.encode(text).ids.tolist(), lm.end]
    assert said["decoder_start_token_id"] == lm.tokenizer.begin == 0  # which is that for padding, as in every T5
    never = sorted({*lm.tokenizer.special.values()} - {lm.end})  # ours writes none of the sentinels
    written = peer.generate(ids, max_new_tokens=8, do_sample=False, num_beams=1, suppress_tokens=never)[0, 1:].tolist()
    mine = [id for piece in lm.generate(text, Greedy(), Stop(8)) for id in piece.ids]
    assert mine == written[: len(mine)]

    convert(tmp_path / "again", tmp_path / "third")
    third: Any = nextword.load(tmp_path / "third", device="cpu")
    assert third.tokenizer.begin == 0
    for a, b in zip(lm.network.state_dict().values(), third.network.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_convert_with_different_decoder_depth(tokenizer: Path, tmp_path: Path) -> None:
    folder_of("1.0", tmp_path / "theirs", tokenizer, num_decoder_layers=3)
    convert(tmp_path / "theirs", tmp_path / "run", [f"tokenizer.load={tokenizer}"])
    lm: Any = nextword.load(tmp_path / "run", device="cpu")
    assert (lm.network.config.layers, lm.network.config.decoder_layers) == (2, 3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"feed_forward_proj": "gated-silu"}, "feed_forward_proj = 'gated-silu'"),
        ({"feed_forward_proj": "gelu"}, "feed_forward_proj = 'gelu'"),
        ({"num_heads": "three"}, "num_heads = 'three'"),
        ({"d_ff": 41}, "41"),
        ({"num_layers": 3}, r"block\.2"),
        ({"decoder_start_token_id": 999}, "decoder_start_token_id = 999"),
    ],
)
def test_convert_with_a_wrong_config_names_the_value(
    change: dict[str, Any], said: str, tokenizer: Path, tmp_path: Path
) -> None:
    folder_of("1.0", tmp_path / "theirs", tokenizer)
    file = tmp_path / "theirs" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises((DataError, Unsupported), match=said):
        convert(tmp_path / "theirs", tmp_path / "run", [f"tokenizer.load={tokenizer}"])
    assert not (tmp_path / "run").exists()
