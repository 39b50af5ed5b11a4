"""BERT, RoBERTa and ALBERT in transformers: their names for our settings and tensors.

transformers has three matrices for queries, keys and values where we have one. All three architectures tie the output
matrix to the embedding. What else differs:

    BERT     folders of BertForMaskedLM lack the pooler and the next-sentence head, those of BertModel the masked-LM
             head; a missing head is initialized anew, with a note
    RoBERTa  positions start at pad_token_id + 1, so the rows before are unused. RobertaModel's pooler is dropped
    ALBERT   layers are in groups: one group for all layers, or one per layer. A network of ours that shares only half
             of a layer is written with one group per layer, with the shared half repeated
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nextword.conversion.name_map import SPLIT_QKV, HFConfig, NameMap, Settings, with_leading_rows, with_trailing_rows
from nextword.core.errors import DataError
from nextword.core.types import Vocabulary
from nextword.models.base import MAX_SIZE
from nextword.tokenizers.hf_export import Frame
from nextword.tokenizers.special_tokens import Marks

# ------------------------------------------------------------------------------------------------ settings


def _read_bert(settings: dict[str, Any], config: HFConfig, where: str) -> list[str]:
    if settings["ffn_width"] == 4 * settings["width"]:
        settings["ffn_width"] = 0  # the same, as recipes write it
    return []


def _read_roberta(settings: dict[str, Any], config: HFConfig, where: str) -> list[str]:
    settings["window"] -= _unused_positions(config, where)
    if settings["window"] < 1:
        raise DataError(
            f"{where}: max_position_embeddings = {config['max_position_embeddings']} leaves no position after "
            f"pad_token_id = {config['pad_token_id']}, where RoBERTa starts.",
            path=where,
        )
    num_segments, notes = config["type_vocab_size"], _read_bert(settings, config, where)
    if type(num_segments) is not int or not 1 <= num_segments <= MAX_SIZE:
        raise DataError(f"{where}: type_vocab_size = {num_segments!r}; expected a whole number from 1.", path=where)
    if num_segments > 1:
        notes.append(f"type_vocab_size is {num_segments}: the run keeps only the first, as RoBERTa uses no segments.")
    return notes


def _unused_positions(config: HFConfig, where: str = "config.json") -> int:
    """Position embeddings that no token uses."""
    pad = config.get("pad_token_id")
    if type(pad) is not int or pad < 0:
        raise DataError(f"{where}: pad_token_id = {pad!r}; RoBERTa needs its id to count positions.", path=where)
    return pad + 1


def _read_albert(settings: dict[str, Any], config: HFConfig, where: str) -> list[str]:
    settings["sharing"] = "all" if settings["sharing"] == 1 else "none"
    settings["exact_gelu"] = config["hidden_act"] == "gelu"
    return _read_bert(settings, config, where)


def _write_bert(config: dict[str, Any], settings: Settings, vocabulary: Vocabulary) -> None:
    config["intermediate_size"] = settings["ffn_width"] or 4 * settings["width"]
    config["pad_token_id"] = Marks.of(vocabulary).pad


def _write_roberta(config: dict[str, Any], settings: Settings, vocabulary: Vocabulary) -> None:
    _write_bert(config, settings, vocabulary)
    config["max_position_embeddings"] = settings["window"] + _unused_positions(config)
    config["type_vocab_size"] = 1


def _write_albert(config: dict[str, Any], settings: Settings, vocabulary: Vocabulary) -> None:
    _write_bert(config, settings, vocabulary)
    config["num_hidden_groups"] = 1 if settings["sharing"] == "all" else settings["layers"]
    config["hidden_act"] = "gelu" if settings["exact_gelu"] else "gelu_new"


def _masked_phase(batches: str) -> Callable[[Settings], Mapping[str, Any]]:
    """The training phase in the run's recipe: how it would be trained here."""
    return lambda settings: {
        "objective": {"kind": "masked"},
        "batches": {"kind": batches, "rows": 1, "length": settings["window"]},
    }


# ------------------------------------------------------------------------------------------------ the tables


def _tied_to(decoder: str) -> dict[str, str]:
    return {f"{decoder}.weight": "embedding.weight", f"{decoder}.bias": "readout.bias"}


BERT = NameMap(
    slugs=("bert",),
    model_type="bert",
    architecture="BertForPreTraining",
    settings={
        "width": ("hidden_size", 768),
        "layers": ("num_hidden_layers", 12),
        "heads": ("num_attention_heads", 12),
        "ffn_width": ("intermediate_size", 3072),
        "window": ("max_position_embeddings", 512),
        "dropout": (("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1),
        "epsilon": ("layer_norm_eps", 1e-12),
        "segments": ("type_vocab_size", 2),
    },
    allowed_values=lambda settings: {
        "hidden_act": ("gelu",),
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    },
    adjust_settings=_read_bert,
    adjust_config=_write_bert,
    names={
        "embedding": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "segments": "embeddings.token_type_embeddings",
        "norm": "embeddings.LayerNorm",
        "attending.{}.attention.join": SPLIT_QKV(
            *(f"encoder.layer.{{}}.attention.self.{part}" for part in ("query", "key", "value"))
        ),
        "attending.{}.attention.out": "encoder.layer.{}.attention.output.dense",
        "attending.{}.norm": "encoder.layer.{}.attention.output.LayerNorm",
        "feeding.{}.wide": "encoder.layer.{}.intermediate.dense",
        "feeding.{}.narrow": "encoder.layer.{}.output.dense",
        "feeding.{}.norm": "encoder.layer.{}.output.LayerNorm",
        "pooler": "pooler.dense",
        "readout.dense": "cls.predictions.transform.dense",
        "readout.norm": "cls.predictions.transform.LayerNorm",
        "readout.bias": "cls.predictions.bias",
        "next_sentence": "cls.seq_relationship",
    },
    prefix="bert.",
    unprefixed=("cls.",),
    legacy_suffixes={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},  # from TensorFlow
    tied_weights=_tied_to("cls.predictions.decoder"),
    ignored=(r"embeddings\.(position_ids|token_type_ids)",),
    optional_heads={"readout": "masked-LM head", "pooler": "pooler", "next_sentence": "next-sentence head"},
    phase=_masked_phase("pairs"),
    frame=Frame("cls A sep", "cls A sep B:1 sep:1"),
    example_command="nextword embed {} lines.txt --out vectors.npy",
    pipeline="fill-mask",
)
ROBERTA = replace(
    BERT,
    slugs=("roberta",),
    model_type="roberta",
    architecture="RobertaForMaskedLM",
    settings={name: setting for name, setting in BERT.settings.items() if name != "segments"},
    other_defaults={"pad_token_id": 1, "type_vocab_size": 2},
    adjust_settings=_read_roberta,
    adjust_config=_write_roberta,
    names={
        **BERT.names,
        "positions": with_leading_rows(_unused_positions)("embeddings.position_embeddings"),
        "segments": with_trailing_rows(lambda config: int(config["type_vocab_size"]))(
            "embeddings.token_type_embeddings"
        ),
        "readout.dense": "lm_head.dense",
        "readout.norm": "lm_head.layer_norm",
        "readout.bias": "lm_head.bias",
    },
    prefix="roberta.",
    unprefixed=("lm_head.",),
    tied_weights=_tied_to("lm_head.decoder"),
    dropped={r"pooler\.dense\.(weight|bias)": "a pooler"},
    optional_heads={"readout": "masked-LM head"},
    phase=_masked_phase("sentences"),
    frame=Frame("cls A sep", "cls A sep sep B sep", segments=False),
)
ALBERT_LAYER = "encoder.albert_layer_groups.{}.albert_layers.0."
ALBERT = replace(
    BERT,
    slugs=("albert",),
    model_type="albert",
    architecture="AlbertForPreTraining",
    settings={
        **BERT.settings,
        "width": ("hidden_size", 4096),
        "heads": ("num_attention_heads", 64),
        "ffn_width": ("intermediate_size", 16384),
        "dropout": (("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
        "embedding": ("embedding_size", 128),
        "sharing": ("num_hidden_groups", 1),
    },
    other_defaults={"hidden_act": "gelu_new"},
    allowed_values=lambda settings: {
        "hidden_act": ("gelu_new", "gelu_pytorch_tanh", "gelu"),
        "position_embedding_type": ("absolute",),
        "inner_group_num": (1,),
        "num_hidden_groups": (1, settings["layers"]),
    },
    expressible={"exact_gelu": lambda config: True},  # expressed by hidden_act
    adjust_settings=_read_albert,
    adjust_config=_write_albert,
    names={
        **BERT.names,
        "lift": "encoder.embedding_hidden_mapping_in",
        "attending.{}.attention.join": SPLIT_QKV(
            *(f"{ALBERT_LAYER}attention.{part}" for part in ("query", "key", "value"))
        ),
        "attending.{}.attention.out": f"{ALBERT_LAYER}attention.dense",
        "attending.{}.norm": f"{ALBERT_LAYER}attention.LayerNorm",
        "feeding.{}.wide": f"{ALBERT_LAYER}ffn",
        "feeding.{}.narrow": f"{ALBERT_LAYER}ffn_output",
        "feeding.{}.norm": f"{ALBERT_LAYER}full_layer_layer_norm",
        "pooler": "pooler",
        "readout.dense": "predictions.dense",
        "readout.norm": "predictions.LayerNorm",
        "readout.bias": "predictions.bias",
        "next_sentence": "sop_classifier.classifier",
    },
    prefix="albert.",
    unprefixed=("predictions.", "sop_classifier."),
    tied_weights=_tied_to("predictions.decoder"),
    optional_heads={**BERT.optional_heads, "next_sentence": "sentence-order head"},
    shares_layers=True,
)
NAME_MAPS = (BERT, ROBERTA, ALBERT)
