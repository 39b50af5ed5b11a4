"""XLNet as transformers has it: names of settings and tensors, theirs beside ours.

Theirs keeps the heads of a projection apart, (width, heads, each), where ours has a matrix of (outputs, inputs), and
no bias has an axis for the places it is added to. The output matrix is the embedding's. Memory is a matter of use:
a folder that says none (mem_len null) is read with ours, and gives the same numbers for a text without anything before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextword.convert.name_map import Family, Said, one
from nextword.core.types import Vocabulary
from nextword.tokenizers.base import MARKS
from nextword.tokenizers.hf_export import Frame

ATTENTION = "blocks.{}.attention."
THEIRS = "layer.{}.rel_attn."
# (heads · each, width) ↔ (width, heads, each)
APART = one(
    lambda ours, said: ours.t().unflatten(1, (said["n_head"], -1)),
    lambda theirs, said: theirs.flatten(1).t(),
)
# (width, heads · each) ↔ (width, heads, each)
TOGETHER = one(lambda ours, said: ours.unflatten(1, (said["n_head"], -1)), lambda theirs, said: theirs.flatten(1))
# (heads, 1, each) ↔ (heads, each)
FLAT = one(lambda ours, said: ours.squeeze(1), lambda theirs, said: theirs.unsqueeze(1))
# (heads, 2, each) ↔ (2, heads, each)
SWAPPED = one(lambda ours, said: ours.transpose(0, 1), lambda theirs, said: theirs.transpose(0, 1))
# (width,) ↔ (1, 1, width)
DEEP = one(lambda ours, said: ours[None, None], lambda theirs, said: theirs[0, 0])


def _fixed(settings: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    return {
        "ff_activation": ("gelu",),
        "attn_type": ("bi",),
        "untie_r": (True,),
        "bi_data": (False,),
        "d_head": (settings["width"] // max(settings["heads"], 1), None),
    }


def _understood(settings: dict[str, Any], said: Said, where: str) -> list[str]:
    settings["clamp"] = max(settings["clamp"], 0)  # theirs says −1 for none
    return []


def _spoken(said: dict[str, Any], settings: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    said["clamp_len"] = settings["clamp"] or -1
    said["pad_token_id"] = next((vocabulary.special[n] for n in MARKS["pad"] if n in vocabulary.special), None)


XLNET = Family(
    slugs=("xlnet",),
    model_type="xlnet",
    architecture="XLNetLMHeadModel",
    settings={
        "width": ("d_model",),
        "layers": ("n_layer",),
        "heads": ("n_head",),
        "inner": ("d_inner",),
        "memory": ("mem_len",),
        "dropout": ("dropout",),
        "clamp": ("clamp_len",),
        "epsilon": ("layer_norm_eps",),
        "spread": ("initializer_range",),
    },
    defaults={
        "d_model": 1024,
        "n_layer": 24,
        "n_head": 16,
        "d_inner": 4096,
        "mem_len": 512,
        "dropout": 0.1,
        "clamp_len": -1,
        "layer_norm_eps": 1e-12,
        "initializer_range": 0.02,
    },
    fixed=_fixed,
    synonyms={"hidden_size": "d_model", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
    unsaid={"memory": 384},
    understood=_understood,
    spoken=_spoken,
    names={
        "embedding": "word_embedding",
        "blank": "mask_emb",
        ATTENTION + "query.weight": THEIRS + "q",
        ATTENTION + "key.weight": THEIRS + "k",
        ATTENTION + "value.weight": THEIRS + "v",
        ATTENTION + "distance.weight": THEIRS + "r",
        ATTENTION + "out.weight": THEIRS + "o",
        ATTENTION + "content_bias": THEIRS + "r_w_bias",
        ATTENTION + "distance_bias": THEIRS + "r_r_bias",
        ATTENTION + "segment_bias": THEIRS + "r_s_bias",
        ATTENTION + "segments": THEIRS + "seg_embed",
        "blocks.{}.norm1": THEIRS + "layer_norm",
        "blocks.{}.wide": "layer.{}.ff.layer_1",
        "blocks.{}.narrow": "layer.{}.ff.layer_2",
        "blocks.{}.norm2": "layer.{}.ff.layer_norm",
        "readout.bias": "lm_loss.bias",
    },
    forms={
        **dict.fromkeys((ATTENTION + part for part in ("query", "key", "value", "distance")), APART),
        ATTENTION + "out": TOGETHER,
        **dict.fromkeys((ATTENTION + part + "_bias" for part in ("content", "distance", "segment")), FLAT),
        ATTENTION + "segments": SWAPPED,
        "blank": DEEP,
    },
    prefix="transformer.",
    outside=("lm_loss.",),
    tied={"lm_loss.weight": "embedding.weight"},
    heads={"readout": "bias of the output (lm_loss)"},
    phase=lambda settings: {
        "objective": {"kind": "permuted"},
        "batches": {"kind": "rows", "rows": 1, "length": settings["memory"]},
    },
    frame=Frame("A sep cls:2", "A sep B:1 sep:1 cls:2"),
)
FAMILIES = (XLNET,)
