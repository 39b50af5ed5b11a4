"""OpenAI GPT and GPT-2 in transformers: their names for our settings and tensors.

Both store linear layers as (inputs, outputs) (Conv1D) where torch has (outputs, inputs), so all weights but the
embeddings are transposed. Both tie `lm_head` to the embedding. "gelu" means two things in transformers: in OpenAI GPT
the tanh approximation, which is what the papers and our networks compute; in GPT-2 that is "gelu_new", and "gelu" is
the exact function.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nextword.conversion.name_map import TRANSPOSED, NameMap


def _is_dense(config: Any) -> bool:
    """Whether every layer of a GPT-3 sees the whole window, so that it computes what GPT-2 does."""
    return config.layers == 1 or config.local_window >= config.window


GPT2 = NameMap(
    slugs=("gpt2", "gpt3"),
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    settings={
        "width": ("n_embd", 768),
        "layers": ("n_layer", 12),
        "heads": ("n_head", 12),
        "window": (("n_positions", "n_ctx"), 1024),  # transformers uses the first
        "dropout": (("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.1),
        "epsilon": ("layer_norm_epsilon", 1e-5),
    },
    allowed_values=lambda settings: {
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "n_inner": (None, 4 * settings["width"]),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    key_aliases={
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    },
    expressible={"bias": lambda config: True, "local_window": _is_dense},
    names={
        "embedding": "wte",
        "positions": "wpe",
        "blocks.{}.norm1": "h.{}.ln_1",
        "blocks.{}.attention.join": TRANSPOSED("h.{}.attn.c_attn"),
        "blocks.{}.attention.out": TRANSPOSED("h.{}.attn.c_proj"),
        "blocks.{}.norm2": "h.{}.ln_2",
        "blocks.{}.wide": TRANSPOSED("h.{}.mlp.c_fc"),
        "blocks.{}.narrow": TRANSPOSED("h.{}.mlp.c_proj"),
        "norm": "ln_f",
    },
    prefix="transformer.",
    tied_weights={"lm_head.weight": "embedding.weight"},
    ignored=(r"h\.\d+\.attn\.(bias|masked_bias)", "position_ids"),
)
GPT1 = replace(
    GPT2,
    slugs=("gpt1",),
    model_type="openai-gpt",
    architecture="OpenAIGPTLMHeadModel",
    settings={**GPT2.settings, "window": (("n_positions", "n_ctx"), 512)},
    allowed_values=lambda settings: {"afn": ("gelu",)},
    expressible={},
    names={**GPT2.names, "embedding": "tokens_embed", "positions": "positions_embed"},
)
NAME_MAPS = (GPT1, GPT2)
