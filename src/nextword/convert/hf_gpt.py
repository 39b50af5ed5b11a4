"""OpenAI GPT and GPT-2 as transformers has them: names of settings and tensors, theirs beside ours.

Both keep the weights of a layer as (inputs, outputs), where torch has (outputs, inputs): all but the embeddings are
turned. Both have a matrix `lm_head` that is the embedding's. What transformers calls gelu is two things: in OpenAI GPT
the approximation by tanh, which is what the papers and the networks here compute; in GPT-2 that is called gelu_new, and
gelu is another function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextword.convert.name_map import TURNED, Family

SETTINGS = {
    "width": ("n_embd",),
    "layers": ("n_layer",),
    "heads": ("n_head",),
    "window": ("n_positions", "n_ctx"),  # transformers goes by the first
    "dropout": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    "epsilon": ("layer_norm_epsilon",),
}
SYNONYMS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
}
DEFAULTS = {"n_embd": 768, "n_layer": 12, "n_head": 12, "resid_pdrop": 0.1, "layer_norm_epsilon": 1e-5}
BLOCK = {
    "blocks.{}.norm1": "h.{}.ln_1",
    "blocks.{}.attention.join": "h.{}.attn.c_attn",
    "blocks.{}.attention.out": "h.{}.attn.c_proj",
    "blocks.{}.norm2": "h.{}.ln_2",
    "blocks.{}.wide": "h.{}.mlp.c_fc",
    "blocks.{}.narrow": "h.{}.mlp.c_proj",
}
FORMS = dict.fromkeys(
    ("blocks.{}.attention.join", "blocks.{}.attention.out", "blocks.{}.wide", "blocks.{}.narrow"), TURNED
)
MASKS = (r"h\.\d+\.attn\.(bias|masked_bias)", "position_ids")


def _gpt1(settings: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    return {"afn": ("gelu",)}


def _gpt2(settings: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    return {
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "n_inner": (None, 4 * settings["width"]),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    }


def _dense(config: Any) -> bool:
    """Whether every layer sees all of the window, however its band is set."""
    return config.layers == 1 or config.band >= config.window


GPT1 = Family(
    slugs=("gpt1",),
    model_type="openai-gpt",
    architecture="OpenAIGPTLMHeadModel",
    settings=SETTINGS,
    defaults={**DEFAULTS, "n_positions": 512},
    fixed=_gpt1,
    names={"embedding": "tokens_embed", "positions": "positions_embed", **BLOCK},
    forms=FORMS,
    prefix="transformer.",
    tied={"lm_head.weight": "embedding.weight"},
    ignored=MASKS,
    synonyms=SYNONYMS,
)
GPT2 = Family(
    slugs=("gpt2", "gpt3"),
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    settings=SETTINGS,
    defaults={**DEFAULTS, "n_positions": 1024},
    fixed=_gpt2,
    names={"embedding": "wte", "positions": "wpe", **BLOCK, "norm": "ln_f"},
    forms=FORMS,
    prefix="transformer.",
    tied={"lm_head.weight": "embedding.weight"},
    ignored=MASKS,
    synonyms=SYNONYMS,
    free={"bias": lambda config: True, "band": _dense},
)
FAMILIES = (GPT1, GPT2)
