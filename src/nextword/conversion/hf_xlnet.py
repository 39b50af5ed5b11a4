"""XLNet in transformers: their names for our settings and tensors.

transformers keeps the heads of a projection apart, (width, heads, head size), where we have a matrix (outputs, inputs).
The output matrix is the embedding. Memory is an option of use, not a weight: a folder without memory (mem_len null) is
read with our default and gives the same numbers for a text without a past.
"""

from __future__ import annotations

from typing import Any

from nextword.conversion.name_map import HFConfig, NameMap, Settings, one_to_one
from nextword.core.types import Vocabulary
from nextword.tokenizers.hf_export import Frame
from nextword.tokenizers.special_tokens import MARKS

ATTENTION = "blocks.{}.attention."
HF_ATTENTION = "layer.{}.rel_attn."
# (heads · size, width) ↔ (width, heads, size)
HEADS_LAST_TRANSPOSED = one_to_one(
    lambda ours, config: ours.t().unflatten(1, (config["n_head"], -1)),
    lambda theirs, config: theirs.flatten(1).t(),
)
# (width, heads · size) ↔ (width, heads, size)
HEADS_LAST = one_to_one(
    lambda ours, config: ours.unflatten(1, (config["n_head"], -1)), lambda theirs, config: theirs.flatten(1)
)
# (heads, 1, size) ↔ (heads, size)
WITHOUT_MIDDLE_AXIS = one_to_one(lambda ours, config: ours.squeeze(1), lambda theirs, config: theirs.unsqueeze(1))
# (heads, 2, size) ↔ (2, heads, size)
AXES_SWAPPED = one_to_one(lambda ours, config: ours.transpose(0, 1), lambda theirs, config: theirs.transpose(0, 1))
# (width,) ↔ (1, 1, width)
WITH_TWO_AXES = one_to_one(lambda ours, config: ours[None, None], lambda theirs, config: theirs[0, 0])


def _read_settings(settings: dict[str, Any], config: HFConfig, where: str) -> list[str]:
    settings["max_distance"] = max(settings["max_distance"], 0)  # transformers writes −1 for none
    return []


def _write_config(config: dict[str, Any], settings: Settings, vocabulary: Vocabulary) -> None:
    config["clamp_len"] = settings["max_distance"] or -1
    config["pad_token_id"] = next((vocabulary.special[n] for n in MARKS["pad"] if n in vocabulary.special), None)


XLNET = NameMap(
    slugs=("xlnet",),
    model_type="xlnet",
    architecture="XLNetLMHeadModel",
    settings={
        "width": ("d_model", 1024),
        "layers": ("n_layer", 24),
        "heads": ("n_head", 16),
        "ffn_width": ("d_inner", 4096),
        "memory": ("mem_len", 512),
        "dropout": ("dropout", 0.1),
        "max_distance": ("clamp_len", -1),
        "epsilon": ("layer_norm_eps", 1e-12),
        "init_std": ("initializer_range", 0.02),
    },
    allowed_values=lambda settings: {
        "ff_activation": ("gelu",),
        "attn_type": ("bi",),
        "untie_r": (True,),
        "bi_data": (False,),
        "d_head": (settings["width"] // max(settings["heads"], 1), None),
    },
    key_aliases={"hidden_size": "d_model", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
    null_defaults={"memory": 384},
    adjust_settings=_read_settings,
    adjust_config=_write_config,
    names={
        "embedding": "word_embedding",
        "blank": WITH_TWO_AXES("mask_emb"),
        ATTENTION + "query.weight": HEADS_LAST_TRANSPOSED(HF_ATTENTION + "q"),
        ATTENTION + "key.weight": HEADS_LAST_TRANSPOSED(HF_ATTENTION + "k"),
        ATTENTION + "value.weight": HEADS_LAST_TRANSPOSED(HF_ATTENTION + "v"),
        ATTENTION + "distance.weight": HEADS_LAST_TRANSPOSED(HF_ATTENTION + "r"),
        ATTENTION + "out.weight": HEADS_LAST(HF_ATTENTION + "o"),
        ATTENTION + "content_bias": WITHOUT_MIDDLE_AXIS(HF_ATTENTION + "r_w_bias"),
        ATTENTION + "distance_bias": WITHOUT_MIDDLE_AXIS(HF_ATTENTION + "r_r_bias"),
        ATTENTION + "segment_bias": WITHOUT_MIDDLE_AXIS(HF_ATTENTION + "r_s_bias"),
        ATTENTION + "segments": AXES_SWAPPED(HF_ATTENTION + "seg_embed"),
        "blocks.{}.norm1": HF_ATTENTION + "layer_norm",
        "blocks.{}.wide": "layer.{}.ff.layer_1",
        "blocks.{}.narrow": "layer.{}.ff.layer_2",
        "blocks.{}.norm2": "layer.{}.ff.layer_norm",
        "readout.bias": "lm_loss.bias",
    },
    prefix="transformer.",
    unprefixed=("lm_loss.",),
    tied_weights={"lm_loss.weight": "embedding.weight"},
    optional_heads={"readout": "output bias (lm_loss)"},
    phase=lambda settings: {
        "objective": {"kind": "permutation"},
        "batches": {"kind": "rows", "rows": 1, "length": settings["memory"]},
    },
    frame=Frame("A sep cls:2", "A sep B:1 sep:1 cls:2"),
)
NAME_MAPS = (XLNET,)
