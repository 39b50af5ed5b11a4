"""Importing and exporting GPT folders of transformers keeps all outputs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import nextword
from nextword.conversion import convert
from nextword.conversion.base import create_run
from nextword.core.types import Greedy, Inputs, Stop
from nextword.models import model_class
from nextword.recipe import load_recipe
from nextword.tokenizers import vocabulary
from nextword.tokenizers.hf_export import export_tokenizer
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer
from tests.support.hf_folders import TALE, assert_round_trip, transformers

REAL = Path(os.environ.get("NEXTWORD_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "tokenizers"
TRICKY = [
    "",
    " ",
    "   \n\n \t x",
    "The king went  to see\nhis house.\r\n",
    "don't we'll 'tis 1812 x1y",
    "naïve café e\u0301 İ ß ﬁ ½ Ångström",
    "日本語 東京 は",
    "👩‍👩‍👧‍👦 🇩🇪 \ufffd \ud7ff",
    "tabs\tand\u00a0no-break\u3000wide\u200bzero \x00\x7f",
    " leading and trailing ",
    "#version: 0.2 </w> <0xC3> Ġthe",
    "MiXeD CASE",
]
INNER = {"norm1": "ln_1", "attention.join": "attn.c_attn", "attention.out": "attn.c_proj"}
INNER |= {"norm2": "ln_2", "wide": "mlp.c_fc", "narrow": "mlp.c_proj"}
OUTER = {
    "gpt1": {"embedding": "tokens_embed", "positions": "positions_embed"},
    "gpt2": {"embedding": "wte", "positions": "wpe", "norm": "ln_f"},
}


def lively(network: nn.Module) -> None:
    """Every parameter random and of some size, norms and biases too, so that none can hide."""
    torch.manual_seed(3)
    for p in network.parameters():
        nn.init.normal_(p, std=0.3)


def theirs(slug: str, size: int, **more: Any) -> Any:
    sizes = {"n_positions": 19, "n_embd": 30, "n_layer": 3, "n_head": 5, "layer_norm_epsilon": 1e-3}
    still = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    made = {**sizes, **still, "vocab_size": size, **more}
    if slug == "gpt1":
        network = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(**made))
    else:
        network = transformers.GPT2LMHeadModel(transformers.GPT2Config(**made))
    lively(network)
    return network.eval()


def tokenizer_of(slug: str) -> Any:
    kind = "classic-bpe" if slug == "gpt1" else "bpe"
    return train_tokenizer({"kind": kind, "size": 301 if kind == "bpe" else 97}, [TALE * 3])


def saved_by_transformers(slug: str, folder: Path) -> int:
    """A tokenizer that transformers made and saved, of a vocabulary that was learnt here."""
    model = tokenizer_of(slug).library["model"]
    made = transformers.OpenAIGPTTokenizer if slug == "gpt1" else transformers.GPT2Tokenizer
    ends = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"} if slug == "gpt1" else {}
    saved = made(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]], **ends)
    saved.save_pretrained(folder)
    return len(saved)


def save(network: Any, folder: Path, how: str) -> None:
    network.save_pretrained(folder, max_shard_size="20KB" if how == "sharded" else "5GB")
    if how == "sharded":
        assert len(list(folder.glob("model-*.safetensors"))) > 2
        return
    state = load_file(folder / "model.safetensors")
    if how.startswith("torch"):
        (folder / "model.safetensors").unlink()
    if how == "torch":  # with the matrix that is tied
        torch.save(network.state_dict(), folder / "pytorch_model.bin")
    elif how == "torch-2019":  # as the first folders: no prefix, masks among the weights, no archive
        old = {name.removeprefix("transformer."): t for name, t in state.items()}
        old |= {f"h.{i}.attn.bias": torch.ones(1, 1, 19, 19).tril() for i in range(3)}
        torch.save(old, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    elif how == "torch-sharded":
        names = sorted(state)
        half = {name: f"pytorch_model-{i * 2 // len(names) + 1}.bin" for i, name in enumerate(names)}
        for file in set(half.values()):
            torch.save({name: state[name] for name in names if half[name] == file}, folder / file)
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": half}))


def logits(network: Any, ids: Tensor) -> Tensor:
    layers, _ = network.hidden(Inputs(ids), None)
    out: Tensor = network.readout.logits(layers[-1])
    return out


@pytest.mark.parametrize("how", ["safetensors", "sharded", "torch", "torch-2019", "torch-sharded"])
@pytest.mark.parametrize("slug", ["gpt1", "gpt2"])
def test_converted_folder_equals_transformers_logits_and_gradients(slug: str, how: str, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    size = saved_by_transformers(slug, folder)
    peer = theirs(slug, size)
    save(peer, folder, how)
    made = convert(folder, tmp_path / "run")
    network = nextword.load(tmp_path / "run", "cpu").network
    assert made.facts["parameters"] == sum(p.numel() for p in peer.parameters())
    ids = torch.randint(0, size, (2, 19), generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(logits(network, ids), peer(ids).logits, rtol=1e-4, atol=1e-4)
    F.cross_entropy(peer(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    layers, _ = network.hidden(Inputs(ids[:, :-1]), None)
    (network.readout.total(layers[-1].flatten(0, 1), ids[:, 1:].flatten()) / ids[:, 1:].numel()).backward()
    names = OUTER[slug] | {f"blocks.{i}.{a}": f"h.{i}.{b}" for i in range(3) for a, b in INNER.items()}
    gradients = {name: p.grad for name, p in peer.transformer.named_parameters()}
    for name, p in network.named_parameters():
        module, _, end = name.rpartition(".")
        want = gradients.pop(f"{names[module]}.{end}")
        turned = ".c_" in names[module] and end == "weight"
        torch.testing.assert_close(p.grad, want.t() if turned else want, rtol=2e-3, atol=1e-5, msg=name)
    assert not gradients


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_convert_reads_half_precision_as_float32(kind: str, tmp_path: Path) -> None:
    size = saved_by_transformers("gpt2", tmp_path / "theirs")
    peer = theirs("gpt2", size).to(getattr(torch, kind))
    peer.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    network = nextword.load(tmp_path / "run", "cpu").network
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    assert torch.equal(network.embedding.weight, peer.transformer.wte.weight.float())
    assert torch.equal(network.blocks[1].wide.weight, peer.transformer.h[1].mlp.c_fc.weight.t().float())


def test_convert_keeps_embedding_rows_beyond_vocabulary(tmp_path: Path) -> None:
    """As where a table was padded to a round number: the softmax runs over them, so they count."""
    size = saved_by_transformers("gpt2", tmp_path / "theirs")
    peer = theirs("gpt2", size + 19)
    peer.save_pretrained(tmp_path / "theirs")
    made = convert(tmp_path / "theirs", tmp_path / "run")
    assert "19 of 320" in made.notes[0]
    lm = nextword.load(tmp_path / "run", "cpu")
    ids = torch.randint(0, size + 19, (1, 12))
    torch.testing.assert_close(logits(lm.network, ids), peer(ids).logits, rtol=1e-4, atol=1e-4)
    again = convert(tmp_path / "run", tmp_path / "again", to="huggingface")
    assert again.facts["vocabulary"] == 320
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "again", local_files_only=True)
    assert len(tokenizer) == 320
    for text in TRICKY:
        assert tokenizer(text)["input_ids"] == lm.tokenizer.encode(text).ids.tolist()
    assert all(id < size for piece in lm.generate("the", Greedy(), Stop(15)) for id in piece.ids)


# ---------------------------------------------------------------------------------------------- from here to there


def a_run(folder: Path, slug: str, tokenizer: Any, **sizes: Any) -> Any:
    """A run of random weights, large enough for texts that are not all alike."""
    recipe = load_recipe(f"{slug}/tiny", [f"model.{key}={str(value).lower()}" for key, value in sizes.items()])
    cls = model_class(slug)
    network = cls(cls.Config(**recipe.model), vocabulary(tokenizer))
    lively(network)
    nn.init.normal_(network.positions.weight, std=2.0)
    for module in network.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, 1.0, 0.3)
    create_run(folder, recipe, tokenizer, lambda place: network.eval())
    return nextword.load(folder, "cpu")


def opened(folder: Path) -> tuple[Any, Any]:
    auto, words = transformers.AutoModelForCausalLM, transformers.AutoTokenizer
    network, told = auto.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return network.eval(), words.from_pretrained(folder, local_files_only=True)


def test_trained_run_generates_same_text_in_transformers(tmp_path: Path) -> None:
    from nextword.training.train import train_events

    changes = ["phase.0.steps=40", "phase.0.optimizer.rate=0.01"]
    for slug in ("gpt1", "gpt2"):
        recipe = load_recipe(f"{slug}/tiny", changes)
        for _ in train_events(recipe, tmp_path / slug, device="cpu"):
            pass
        same_text(tmp_path / slug, tmp_path / f"{slug}-there")


@pytest.mark.parametrize("slug", ["gpt1", "gpt2", "gpt3"])
def test_random_run_generates_same_text_in_transformers(slug: str, tmp_path: Path) -> None:
    sizes = {"width": 30, "heads": 5, "layers": 3} | ({"local_window": 0} if slug == "gpt3" else {})
    a_run(tmp_path / "run", slug, tokenizer_of(slug), **sizes)
    texts = same_text(tmp_path / "run", tmp_path / "there")
    assert len(set(texts)) == len(texts)
    assert all(len(set(text)) > 5 for text in texts)


@torch.no_grad()
def same_text(run: Path, target: Path) -> list[str]:
    convert(run, target, to="huggingface")
    lm = nextword.load(run, "cpu")
    network, tokenizer = opened(target)
    texts = []
    for prompt in ("the king", "It's", "", "in 1812 ", "naïve 東"):
        asked = tokenizer(tokenizer.bos_token + prompt, return_tensors="pt")
        row = torch.tensor([[lm.tokenizer.begin, *lm.tokenizer.encode(prompt).ids.tolist()]])
        assert asked["input_ids"].tolist() == row.tolist()
        torch.testing.assert_close(logits(lm.network, row), network(row).logits, rtol=1e-4, atol=1e-4)
        pieces = list(lm.generate(prompt, Greedy(), Stop(30)))
        new = network.generate(**asked, max_new_tokens=30, do_sample=False)[0, row.shape[1] :]
        assert new.tolist() == [id for piece in pieces for id in piece.ids]
        text = tokenizer.decode(new, skip_special_tokens=True)
        # a character that is not finished waits here for its last bytes
        assert text.strip().rstrip("\ufffd") == "".join(piece.text for piece in pieces).strip().rstrip("\ufffd")
        texts.append(text)
    return texts


@pytest.mark.parametrize("slug", ["gpt1", "gpt2"])
def test_round_trip_keeps_every_bit(slug: str, tmp_path: Path) -> None:
    before = a_run(tmp_path / "run", slug, tokenizer_of(slug), dropout=0.25, epsilon=1e-4, window=48)
    convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    assert_round_trip(before, tmp_path / "there")


def test_folder_resaved_by_transformers_loads(tmp_path: Path) -> None:
    """Then nothing of ours is in the files any more."""
    for slug in ("gpt1", "gpt2"):
        before = a_run(tmp_path / slug, slug, tokenizer_of(slug))
        convert(tmp_path / slug, tmp_path / f"{slug}-there", to="huggingface")
        for part in opened(tmp_path / f"{slug}-there"):
            part.save_pretrained(tmp_path / f"{slug}-saved")
        convert(tmp_path / f"{slug}-saved", tmp_path / f"{slug}-back")
        after = nextword.load(tmp_path / f"{slug}-back", "cpu")
        assert (after.tokenizer.begin, after.tokenizer.end) == (before.tokenizer.begin, before.tokenizer.end)
        for text in TRICKY:
            assert after.tokenizer.encode(text).ids.tolist() == before.tokenizer.encode(text).ids.tolist()
        assert after.score(TALE).nats == pytest.approx(before.score(TALE).nats, rel=1e-6)


def test_export_without_biases_writes_zeros(tmp_path: Path) -> None:
    lm = a_run(tmp_path / "run", "gpt2", tokenizer_of("gpt2"), bias=False)
    made = convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    assert "13 biases of GPT2LMHeadModel" in made.notes[0]
    network, _ = opened(tmp_path / "there")
    ids = torch.randint(0, 301, (2, 30))
    torch.testing.assert_close(logits(lm.network, ids), network(ids).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_export_in_half_precision(kind: str, tmp_path: Path) -> None:
    lm = a_run(tmp_path / "run", "gpt2", tokenizer_of("gpt2"))
    convert(tmp_path / "run", tmp_path / "there", [f"huggingface.dtype={kind}"], to="huggingface")
    network, _ = opened(tmp_path / "there")
    assert network.dtype == getattr(torch, kind)
    assert torch.equal(network.transformer.wte.weight, lm.network.embedding.weight.to(network.dtype))


# ---------------------------------------------------------------------------------------------- tokenizers


KINDS = {
    "bpe": ({"kind": "bpe", "size": 301}, "GPT2Tokenizer"),
    "classic-bpe": ({"kind": "classic-bpe", "size": 97}, "OpenAIGPTTokenizer"),
    "cased": ({"kind": "classic-bpe", "size": 97, "lower": False}, "TokenizersBackend"),
    "wordpiece": ({"kind": "wordpiece", "size": 97}, "TokenizersBackend"),
    "unigram": ({"kind": "unigram", "size": 97}, "TokenizersBackend"),
    "bytes": ({"kind": "bytes"}, "GPT2Tokenizer"),
    "characters": ({"kind": "characters"}, "TokenizersBackend"),
}


@pytest.mark.parametrize("which", KINDS)
def test_exported_tokenizers_give_same_ids(which: str, tmp_path: Path) -> None:
    spec, named = KINDS[which]
    ours = train_tokenizer(spec, [TALE * 3])
    a_run(tmp_path / "run", "gpt2", ours)
    made = convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    assert not any("no tokenizer" in note for note in made.notes)
    peer = opened(tmp_path / "there")[1]
    assert type(peer).__name__ == named
    assert (len(peer), peer.bos_token_id, peer.eos_token_id) == (len(ours), ours.begin, ours.end)
    for text in TRICKY:
        ids = ours.encode(text).ids.tolist()
        assert peer(text, add_special_tokens=False)["input_ids"] == ids, text
        if ours.lossless:
            assert peer.decode(ids) == text
    back = convert(tmp_path / "there", tmp_path / "back").target / "tokenizer.json"
    assert back.read_bytes() == (tmp_path / "run" / "tokenizer.json").read_bytes()


def test_prefix_space_follows_tokenizer_config(tmp_path: Path) -> None:
    """Of two files that say it, transformers goes by the second."""
    size = saved_by_transformers("gpt2", tmp_path / "theirs")
    theirs("gpt2", size).save_pretrained(tmp_path / "theirs")
    told = tmp_path / "theirs" / "tokenizer_config.json"
    told.write_text(json.dumps({**json.loads(told.read_text()), "add_prefix_space": True}))
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs", local_files_only=True)
    convert(tmp_path / "theirs", tmp_path / "run")
    ours = nextword.load(tmp_path / "run", "cpu").tokenizer
    convert(tmp_path / "run", tmp_path / "again", to="huggingface")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again", local_files_only=True)
    assert ours.encode("the").ids.tolist() == ours.encode(" the").ids.tolist()
    for text in TRICKY:
        ids = ours.encode(text).ids.tolist()
        assert ids == peer(text)["input_ids"] == again(text)["input_ids"], text


@pytest.mark.parametrize("which", ["bpe", "bytes", "characters"])
def test_partial_characters_decode_alike(which: str, tmp_path: Path) -> None:
    ours = train_tokenizer(KINDS[which][0], ["plain text alone"])
    export_tokenizer(ours, tmp_path, 10)
    peer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    ids = ours.encode("a👩b é").ids.tolist()
    for cut in range(len(ids)):
        assert peer.decode(ids[:cut]).rstrip("\ufffd") == ours.decode(ids[:cut]).rstrip("\ufffd")


def test_export_with_word_tokenizer_writes_weights_alone(tmp_path: Path) -> None:
    """The weights are written all the same, and nextword reads the folder again."""
    ours = train_tokenizer({"kind": "words"}, [TALE])
    lm = a_run(tmp_path / "run", "gpt2", ours)
    made = convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    assert "words" in made.notes[-1]
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "there", local_files_only=True)
    ids = torch.randint(0, len(ours), (1, 9))
    torch.testing.assert_close(logits(lm.network, ids), network(ids).logits, rtol=1e-4, atol=1e-4)
    convert(tmp_path / "there", tmp_path / "back")
    assert nextword.load(tmp_path / "back", "cpu").score(TALE) == lm.score(TALE)


@pytest.mark.parametrize("slug", ["gpt1", "gpt2"])
def test_real_vocabularies_round_trip(slug: str, tmp_path: Path) -> None:
    if not REAL.is_dir():
        pytest.skip(f"REAL DATA ABSENT: {REAL} does not exist, so this test proves nothing here")
    ours = load_tokenizer(REAL / "gpt2" if slug == "gpt2" else REAL / "gpt1_encoder_bpe_40000.json")
    a_run(tmp_path / "run", slug, ours, width=6, heads=1, layers=1, window=20)
    convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    network, peer = opened(tmp_path / "there")
    assert type(peer).__name__ == ("GPT2Tokenizer" if slug == "gpt2" else "OpenAIGPTTokenizer")
    for text in TRICKY:
        assert peer(text)["input_ids"] == ours.encode(text).ids.tolist(), text
    assert network.config.bos_token_id == network.generation_config.eos_token_id == ours.end
    # as the released folders: the two lists of merges alone, and no word on what begins a text
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / "there" / name).unlink()
    convert(tmp_path / "there", tmp_path / "back")
    back = nextword.load(tmp_path / "back", "cpu").tokenizer
    assert (back.begin, back.end, len(back)) == (ours.begin, ours.end, len(ours))
    # and as transformers saves them today: tokenizer.json, and for GPT-1 no token that ends a text
    peer.save_pretrained(tmp_path / "saved")
    config = json.loads((tmp_path / "there" / "config.json").read_text())
    config = {key: value for key, value in config.items() if not key.endswith("_token_id")}
    (tmp_path / "saved" / "config.json").write_text(json.dumps(config))
    (tmp_path / "saved" / "model.safetensors").write_bytes((tmp_path / "there" / "model.safetensors").read_bytes())
    convert(tmp_path / "saved", tmp_path / "third")
    third = nextword.load(tmp_path / "third", "cpu").tokenizer
    assert (third.begin, third.end, len(third)) == (ours.begin, ours.end, len(ours))
    for text in TRICKY:
        assert third.encode(text).ids.tolist() == ours.encode(text).ids.tolist()
