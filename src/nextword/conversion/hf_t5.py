"""T5 in transformers, both versions: their names for our settings and tensors.

    1.0   relu; the output matrix is the embedding, and its input is scaled by 1 / √width
    1.1   gated gelu, an output matrix of its own, no scaling (also Flan-T5)

transformers tells them apart by feed_forward_proj and tie_word_embeddings. The relative position biases, which all
layers of a stack share, are stored in its first layer there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nextword.conversion.name_map import HFConfig, NameMap, Settings
from nextword.core.types import Vocabulary
from nextword.tokenizers.hf_export import Frame
from nextword.tokenizers.special_tokens import MARKS


def _attention_names(ours: str, theirs: str) -> dict[str, str]:
    return {f"{ours}.{a}": f"{theirs}.{b}" for a, b in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o"))}


def _tensor_names(wide: Mapping[str, str]) -> dict[str, str]:
    names: dict[str, str] = {"embedding": "shared"}
    for side, last in (("encoder", 1), ("decoder", 2)):
        here, there = f"{side}.blocks.{{}}.", f"{side}.block.{{}}.layer."
        names[f"{side}.norm"] = f"{side}.final_layer_norm"
        names[f"{side}.distances"] = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        names[f"{here}norm1"] = f"{there}0.layer_norm"
        names |= _attention_names(f"{here}attend", f"{there}0.SelfAttention")
        if side == "decoder":
            names[f"{here}norm2"] = f"{there}1.layer_norm"
            names |= _attention_names(f"{here}look", f"{there}1.EncDecAttention")
        names[f"{here}norm3"] = f"{there}{last}.layer_norm"
        for ours, theirs in {**wide, "narrow": "wo"}.items():
            names[f"{here}feed.{ours}"] = f"{there}{last}.DenseReluDense.{theirs}"
    return names


def _is_gated(config: HFConfig) -> bool:
    return str(config.get("feed_forward_proj", "relu")).startswith("gated")


def _read_settings(settings: dict[str, Any], config: HFConfig, where: str) -> list[str]:
    settings["gated"] = _is_gated(config)
    settings["tied"] = config.get("tie_word_embeddings") is not False
    if settings["decoder_layers"] == settings["layers"]:
        settings["decoder_layers"] = 0  # the same, as recipes write it
    return []


def _write_config(config: dict[str, Any], settings: Settings, vocabulary: Vocabulary) -> None:
    config["num_decoder_layers"] = settings["decoder_layers"] or settings["layers"]
    config["tie_word_embeddings"] = settings["tied"]
    config["decoder_start_token_id"] = vocabulary.begin
    config["pad_token_id"] = next((vocabulary.special[n] for n in MARKS["pad"] if n in vocabulary.special), None)


EMBEDDING_COPIES = {f"{side}.embed_tokens.weight": "embedding.weight" for side in ("encoder", "decoder")}
T5_1_0 = NameMap(
    slugs=("t5",),
    model_type="t5",
    architecture="T5ForConditionalGeneration",
    settings={
        "width": ("d_model", 512),
        "layers": ("num_layers", 6),
        "decoder_layers": ("num_decoder_layers", None),
        "heads": ("num_heads", 8),
        "head_width": ("d_kv", 64),
        "ffn_width": ("d_ff", 2048),
        "distance_buckets": ("relative_attention_num_buckets", 32),
        "max_distance": ("relative_attention_max_distance", 128),
        "dropout": ("dropout_rate", 0.1),
        "epsilon": ("layer_norm_epsilon", 1e-6),
    },
    other_defaults={"feed_forward_proj": "relu"},
    null_defaults={"decoder_layers": 0},
    allowed_values=lambda settings: {
        "feed_forward_proj": ("relu",),
        "is_encoder_decoder": (True,),
        "is_decoder": (False,),
    },
    matches_config=lambda config: not _is_gated(config),
    matches_model=lambda config: not config.gated and config.tied,
    expressible={"gated": lambda config: True, "tied": lambda config: True},
    adjust_settings=_read_settings,
    adjust_config=_write_config,
    names=_tensor_names({"wide": "wi"}),
    tied_weights={"lm_head.weight": "embedding.weight", **EMBEDDING_COPIES},
    phase=lambda settings: {"objective": {"kind": "seq2seq"}, "batches": {"kind": "sequences", "rows": 1}},
    frame=Frame("A sep", "A sep B sep", segments=False),
    example_command='nextword generate {} "Thank you ___ me to your party ___ week."',
    pipeline="",
)
T5_1_1 = replace(
    T5_1_0,
    allowed_values=lambda settings: {
        "feed_forward_proj": ("gated-gelu",),
        "is_encoder_decoder": (True,),
        "is_decoder": (False,),
    },
    matches_config=_is_gated,
    matches_model=lambda config: config.gated and not config.tied,
    names={**_tensor_names({"wide": "wi_0", "gate": "wi_1"}), "readout": "lm_head"},
    tied_weights={},
    ignored=tuple(name.replace(".", r"\.") for name in EMBEDDING_COPIES),
)
NAME_MAPS = (T5_1_0, T5_1_1)
