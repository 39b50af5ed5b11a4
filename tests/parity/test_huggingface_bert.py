"""Importing BERT, RoBERTa, ALBERT and XLNet folders of transformers gives equal outputs or raises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from nextword.conversion import convert
from nextword.core.errors import DataError, NextwordError, Unsupported
from nextword.core.types import Inputs
from tests.support.hf_folders import (
    SLUGS,
    assert_same_ids,
    assert_same_outputs,
    make_transformers_model,
    read_initialized,
    reopen_run,
    save_transformers_tokenizer,
)

transformers = pytest.importorskip("transformers")


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


@pytest.mark.parametrize("name", HEADS)
def test_converted_folder_equals_transformers(name: str, tmp_path: Path) -> None:
    peer_class = getattr(transformers, name)
    slug = peer_class.config_class.model_type
    size = save_transformers_tokenizer(slug, tmp_path / "theirs")
    peer = make_transformers_model(name, size)
    peer.save_pretrained(tmp_path / "theirs")
    made = convert(tmp_path / "theirs", tmp_path / "run")
    run = reopen_run(tmp_path / "run")
    assert_same_outputs(slug, run.network, peer, size)
    assert read_initialized(made) == HEADS[name]
    assert sum("initialized randomly" in note for note in made.notes) == len(HEADS[name])
    assert sum("left out" in note for note in made.notes) == (name == "RobertaModel")
    assert ("generate" in made.use) == (slug == "xlnet")


@pytest.mark.parametrize("slug", SLUGS)
def test_converted_tokenizer_gives_same_ids(slug: str, tmp_path: Path) -> None:
    """And what stands around texts is what the network's own frame has."""
    size = save_transformers_tokenizer(slug, tmp_path / "theirs")
    name = {"bert": "BertModel", "roberta": "RobertaModel", "albert": "AlbertModel", "xlnet": "XLNetModel"}[slug]
    make_transformers_model(name, size).save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    run = reopen_run(tmp_path / "run")
    assert_same_ids(run, transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs", local_files_only=True))
    convert(tmp_path / "run", tmp_path / "again", to="huggingface")
    assert_same_ids(run, transformers.AutoTokenizer.from_pretrained(tmp_path / "again", local_files_only=True))


def test_convert_without_head_draws_reproducible_weights(tmp_path: Path) -> None:
    size = save_transformers_tokenizer("bert", tmp_path / "theirs")
    make_transformers_model("BertModel", size).save_pretrained(tmp_path / "theirs")
    a, b = (convert(tmp_path / "theirs", tmp_path / name).target for name in ("a", "b"))
    state = load_file(a / "model.safetensors")
    assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
    assert 0.01 < state["readout.dense.weight"].std() < 0.03
    assert state["readout.norm.weight"].eq(1).all()
    assert not state["readout.bias"].any()
    again = convert(a, tmp_path / "again", to="huggingface")
    assert any("masked-LM head" in note for note in again.notes)


def rewrite(folder: Path, changed: Any) -> None:
    path = folder / "model.safetensors"
    save_file({name: t.contiguous() for name, t in changed(load_file(path)).items()}, path, {"format": "pt"})


def test_convert_with_incomplete_head_raises(tmp_path: Path) -> None:
    size = save_transformers_tokenizer("bert", tmp_path / "theirs")
    make_transformers_model("BertForMaskedLM", size).save_pretrained(tmp_path / "theirs")
    rewrite(tmp_path / "theirs", lambda found: {n: t for n, t in found.items() if "transform.dense" not in n})
    with pytest.raises(DataError, match=r"cls\.predictions\.transform\.dense\.weight"):
        convert(tmp_path / "theirs", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_convert_reads_tensor_names_from_before_2020(tmp_path: Path) -> None:
    """As in folders that were made of TensorFlow's, with the tied matrix and the numbers of positions in the file."""
    size = save_transformers_tokenizer("bert", tmp_path / "theirs")
    peer = make_transformers_model("BertForPreTraining", size)
    peer.save_pretrained(tmp_path / "theirs")

    def old(found: dict[str, Tensor]) -> dict[str, Tensor]:
        found = {n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): t for n, t in found.items()}
        found["cls.predictions.decoder.weight"] = found["bert.embeddings.word_embeddings.weight"].clone()
        return found | {"bert.embeddings.position_ids": torch.arange(19)[None]}

    rewrite(tmp_path / "theirs", old)
    assert not read_initialized(convert(tmp_path / "theirs", tmp_path / "run"))
    assert_same_outputs("bert", reopen_run(tmp_path / "run").network, peer, size)
    rewrite(tmp_path / "theirs", lambda t: t | {"cls.predictions.decoder.weight": torch.zeros(size, 24)})
    with pytest.raises(Unsupported, match=r"cls\.predictions\.decoder\.weight"):
        convert(tmp_path / "theirs", tmp_path / "other")


def test_convert_keeps_embedding_rows_beyond_vocabulary(tmp_path: Path) -> None:
    """As where a table was padded to a round number: the softmax runs over them, so they count."""
    size = save_transformers_tokenizer("bert", tmp_path / "theirs")
    peer = make_transformers_model("BertForPreTraining", size + 7)
    peer.save_pretrained(tmp_path / "theirs")
    made = convert(tmp_path / "theirs", tmp_path / "run")
    assert f"7 of {size + 7} embedding rows belong to no token" in made.notes[0]
    run = reopen_run(tmp_path / "run")
    assert_same_outputs("bert", run.network, peer, size + 7)
    convert(tmp_path / "run", tmp_path / "again", to="huggingface")
    assert_same_ids(run, transformers.AutoTokenizer.from_pretrained(tmp_path / "again", local_files_only=True))


def test_roberta_positions_start_after_padding_id(tmp_path: Path) -> None:
    """Whatever its id; and segments that no tokenizer of RoBERTa's names are left away."""
    size = save_transformers_tokenizer("roberta", tmp_path / "theirs")
    peer = make_transformers_model(
        "RobertaForMaskedLM", size, pad_token_id=5, max_position_embeddings=25, type_vocab_size=2
    )
    peer.save_pretrained(tmp_path / "theirs")
    made = convert(tmp_path / "theirs", tmp_path / "run")
    assert any("type_vocab_size is 2" in note for note in made.notes)
    network = reopen_run(tmp_path / "run").network
    assert network.window == 19
    ids = torch.randint(9, size, (2, 19))
    with torch.no_grad():
        mine, other = network.encode(Inputs(ids))[0][-1], peer.roberta(ids).last_hidden_state
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 3])
def test_albert_layer_groups_map_to_sharing(groups: int, tmp_path: Path) -> None:
    size = save_transformers_tokenizer("albert", tmp_path / "theirs")
    peer = make_transformers_model("AlbertForPreTraining", size, num_hidden_groups=groups)
    peer.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    network = reopen_run(tmp_path / "run").network
    assert network.config.sharing == {1: "all", 3: "none"}[groups]
    assert_same_outputs("albert", network, peer, size)


@pytest.mark.parametrize("gelu", ["gelu", "gelu_new"])
def test_albert_gelu_variant_round_trips(gelu: str, tmp_path: Path) -> None:
    """The first release has the exact one; it comes back as it was."""
    size = save_transformers_tokenizer("albert", tmp_path / "theirs")
    peer = make_transformers_model("AlbertForPreTraining", size, hidden_act=gelu)
    peer.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "run")
    network = reopen_run(tmp_path / "run").network
    assert network.config.exact_gelu == (gelu == "gelu")
    assert_same_outputs("albert", network, peer, size)
    convert(tmp_path / "run", tmp_path / "again", to="huggingface")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["hidden_act"] == gelu


def test_xlnet_without_mem_len_gets_default_memory(tmp_path: Path) -> None:
    size = save_transformers_tokenizer("xlnet", tmp_path / "theirs")
    peer = make_transformers_model("XLNetLMHeadModel", size, mem_len=None, clamp_len=-1)
    peer.save_pretrained(tmp_path / "theirs")
    said = tmp_path / "theirs" / "config.json"
    said.write_text(json.dumps({**json.loads(said.read_text()), "mem_len": None}))
    made = convert(tmp_path / "theirs", tmp_path / "run")
    assert "mem_len is None; the run has memory = 384." in made.notes
    network = reopen_run(tmp_path / "run").network
    assert (network.config.memory, network.config.max_distance) == (384, 0)
    assert_same_outputs("xlnet", network, peer, size)


# ---------------------------------------------------------------------------------------------- what is refused

REFUSED = [
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
    ("bert", {"hidden_act": "relu"}, "hidden_act = 'relu'"),
    ("bert", {"hidden_act": "gelu_new"}, "hidden_act = 'gelu_new'"),
    ("bert", {"is_decoder": True}, "is_decoder = True"),
    ("bert", {"add_cross_attention": True}, "add_cross_attention = True"),
    ("bert", {"num_attention_heads": 5}, "heads = 5"),
    ("bert", {"type_vocab_size": 2}, "token_type_embeddings.weight is 3 × 24, not 2 × 24"),
    ("roberta", {"position_embedding_type": "relative_key_query"}, "position_embedding_type = 'relative_key_query'"),
    ("roberta", {"hidden_act": "silu"}, "hidden_act = 'silu'"),
    ("roberta", {"pad_token_id": None}, "pad_token_id = None"),
    ("roberta", {"pad_token_id": 20}, "pad_token_id = 20"),
    ("roberta", {"type_vocab_size": 0}, "type_vocab_size = 0"),
    ("albert", {"hidden_act": "relu"}, "hidden_act = 'relu'"),
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
        make_transformers_model(WHOLE[slug], save_transformers_tokenizer(slug, folder)).save_pretrained(folder)
    return made


@pytest.mark.parametrize(("slug", "settings", "said"), REFUSED)
def test_convert_with_unsupported_setting_raises(
    slug: str, settings: dict[str, Any], said: str, folders: dict[str, Path], tmp_path: Path
) -> None:
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


def test_convert_with_task_head_names_its_tensors(tmp_path: Path) -> None:
    size = save_transformers_tokenizer("bert", tmp_path / "theirs")
    make_transformers_model("BertForSequenceClassification", size).save_pretrained(tmp_path / "theirs")
    with pytest.raises(DataError, match=r"classifier\."):
        convert(tmp_path / "theirs", tmp_path / "run")


def test_convert_with_sentencepiece_model_alone_raises(folders: dict[str, Path], tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folders["albert"] / name).read_bytes())
    (tmp_path / "spiece.model").write_bytes(b"")
    with pytest.raises(Unsupported, match=r"spiece\.model"):
        convert(tmp_path, tmp_path / "run")
