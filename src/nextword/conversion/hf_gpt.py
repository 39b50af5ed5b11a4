"""OpenAI GPT and GPT-2 in transformers: their names for our settings and tensors.

Both store linear layers as (inputs, outputs) (Conv1D) where torch has (outputs, inputs), so all weights but the
embeddings are transposed. Both tie `lm_head` to the embedding. "gelu" means two things in transformers: in OpenAI GPT
the tanh approximation, which is what the papers and our networks compute; in GPT-2 that is "gelu_new", and "gelu" is
the exact function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nextword.conversion.name_map import TRANSPOSED, NameMap, Settings

SETTINGS = {
    "width": ("n_embd",),
    "layers": ("n_layer",),
    "heads": ("n_head",),
    "window": ("n_positions", "n_ctx"),  # transformers uses the first
    "dropout": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    "epsilon": ("layer_norm_epsilon",),
}
KEY_ALIASES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
}
DEFAULTS = {"n_embd": 768, "n_layer": 12, "n_head": 12, "resid_pdrop": 0.1, "layer_norm_epsilon": 1e-5}
BLOCK_NAMES = {
    "blocks.{}.norm1": "h.{}.ln_1",
    "blocks.{}.attention.join": "h.{}.attn.c_attn",
    "blocks.{}.attention.out": "h.{}.attn.c_proj",
    "blocks.{}.norm2": "h.{}.ln_2",
    "blocks.{}.wide": "h.{}.mlp.c_fc",
    "blocks.{}.narrow": "h.{}.mlp.c_proj",
}
FORMS = dict.fromkeys(
    ("blocks.{}.attention.join", "blocks.{}.attention.out", "blocks.{}.wide", "blocks.{}.narrow"), TRANSPOSED
)
MASKS = (r"h\.\d+\.attn\.(bias|masked_bias)", "position_ids")


def _gpt1_values(settings: Settings) -> dict[str, Sequence[Any]]:
    return {"afn": ("gelu",)}


def _gpt2_values(settings: Settings) -> dict[str, Sequence[Any]]:
    return {
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "n_inner": (None, 4 * settings["width"]),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    }


def _is_dense(config: Any) -> bool:
    """Whether every layer of a GPT-3 sees the whole window, so that it computes what GPT-2 does."""
    return config.layers == 1 or config.band >= config.window


GPT1 = NameMap(
    slugs=("gpt1",),
    model_type="openai-gpt",
    architecture="OpenAIGPTLMHeadModel",
    settings=SETTINGS,
    defaults={**DEFAULTS, "n_positions": 512},
    allowed_values=_gpt1_values,
    names={"embedding": "tokens_embed", "positions": "positions_embed", **BLOCK_NAMES},
    forms=FORMS,
    prefix="transformer.",
    tied_weights={"lm_head.weight": "embedding.weight"},
    ignored=MASKS,
    key_aliases=KEY_ALIASES,
)
GPT2 = NameMap(
    slugs=("gpt2", "gpt3"),
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    settings=SETTINGS,
    defaults={**DEFAULTS, "n_positions": 1024},
    allowed_values=_gpt2_values,
    names={"embedding": "wte", "positions": "wpe", **BLOCK_NAMES, "norm": "ln_f"},
    forms=FORMS,
    prefix="transformer.",
    tied_weights={"lm_head.weight": "embedding.weight"},
    ignored=MASKS,
    key_aliases=KEY_ALIASES,
    expressible={"bias": lambda config: True, "band": _is_dense},
)
NAME_MAPS = (GPT1, GPT2)
