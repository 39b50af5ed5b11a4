"""T5 as transformers has it, in both its forms: names of settings and tensors, theirs beside ours.

    1.0   relu, the output matrix is the embedding's, and what it reads is scaled by 1 / √width
    1.1   a gated gelu, an output matrix of its own, no scaling (also what Flan-T5 is)

Theirs tells the forms apart by feed_forward_proj and tie_word_embeddings. The numbers for distances, which all layers
of a stack share, lie in its first layer there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextword.convert.name_map import Family, Said
from nextword.core.types import Vocabulary
from nextword.tokenizers.base import MARKS
from nextword.tokenizers.hf_export import Frame

SETTINGS = {
    "width": ("d_model",),
    "layers": ("num_layers",),
    "decoder_layers": ("num_decoder_layers",),
    "heads": ("num_heads",),
    "head": ("d_kv",),
    "inner": ("d_ff",),
    "buckets": ("relative_attention_num_buckets",),
    "distance": ("relative_attention_max_distance",),
    "dropout": ("dropout_rate",),
    "epsilon": ("layer_norm_epsilon",),
}
DEFAULTS = {
    "d_model": 512,
    "num_layers": 6,
    "num_heads": 8,
    "d_kv": 64,
    "d_ff": 2048,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.1,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu",
}


def _attention(ours: str, theirs: str) -> dict[str, str]:
    return {f"{ours}.{a}": f"{theirs}.{b}" for a, b in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o"))}


def _names(wide: Mapping[str, str]) -> dict[str, str | tuple[str, ...]]:
    found: dict[str, str | tuple[str, ...]] = {"embedding": "shared"}
    for side, last in (("encoder", 1), ("decoder", 2)):
        here, there = f"{side}.blocks.{{}}.", f"{side}.block.{{}}.layer."
        found[f"{side}.norm"] = f"{side}.final_layer_norm"
        found[f"{side}.distances"] = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        found[f"{here}norm1"] = f"{there}0.layer_norm"
        found |= _attention(f"{here}attend", f"{there}0.SelfAttention")
        if side == "decoder":
            found[f"{here}norm2"] = f"{there}1.layer_norm"
            found |= _attention(f"{here}look", f"{there}1.EncDecAttention")
        found[f"{here}norm3"] = f"{there}{last}.layer_norm"
        for ours, theirs in {**wide, "narrow": "wo"}.items():
            found[f"{here}feed.{ours}"] = f"{there}{last}.DenseReluDense.{theirs}"
    return found


def _gated(said: Said) -> bool:
    return str(said.get("feed_forward_proj", "relu")).startswith("gated")


def _first(settings: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    return {"feed_forward_proj": ("relu",), "is_encoder_decoder": (True,), "is_decoder": (False,)}


def _second(settings: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    return {"feed_forward_proj": ("gated-gelu",), "is_encoder_decoder": (True,), "is_decoder": (False,)}


def _understood(settings: dict[str, Any], said: Said, where: str) -> list[str]:
    settings["gated"] = _gated(said)
    settings["tied"] = said.get("tie_word_embeddings") is not False
    if settings["decoder_layers"] == settings["layers"]:
        settings["decoder_layers"] = 0  # which says the same, and is what recipes say
    return []


def _spoken(said: dict[str, Any], settings: Mapping[str, Any], vocabulary: Vocabulary) -> None:
    said["num_decoder_layers"] = settings["decoder_layers"] or settings["layers"]
    said["tie_word_embeddings"] = settings["tied"]
    said["decoder_start_token_id"] = vocabulary.begin
    said["pad_token_id"] = next((vocabulary.special[n] for n in MARKS["pad"] if n in vocabulary.special), None)


REST: dict[str, Any] = {
    "slugs": ("t5",),
    "model_type": "t5",
    "architecture": "T5ForConditionalGeneration",
    "settings": SETTINGS,
    "defaults": DEFAULTS,
    "unsaid": {"decoder_layers": 0},
    "free": {"gated": lambda config: True, "tied": lambda config: True},
    "understood": _understood,
    "spoken": _spoken,
    "phase": lambda settings: {"objective": {"kind": "sequence"}, "batches": {"kind": "sequences", "rows": 1}},
    "frame": Frame("A sep", "A sep B sep", segments=False),
    "use": 'nextword generate {} "Thank you ___ me to your party ___ week."',  # what every T5 has learnt first
    "pipeline": "",
}
EMBEDDED = {f"{side}.embed_tokens.weight": "embedding.weight" for side in ("encoder", "decoder")}
FAMILIES = (
    Family(
        **REST,
        reads=lambda said: not _gated(said),
        writes=lambda config: not config.gated and config.tied,
        fixed=_first,
        names=_names({"wide": "wi"}),
        tied={"lm_head.weight": "embedding.weight", **EMBEDDED},
    ),
    Family(
        **REST,
        reads=_gated,
        writes=lambda config: config.gated and not config.tied,
        fixed=_second,
        names={**_names({"wide": "wi_0", "gate": "wi_1"}), "readout": "lm_head"},
        ignored=tuple(name.replace(".", r"\.") for name in EMBEDDED),
    ),
)
