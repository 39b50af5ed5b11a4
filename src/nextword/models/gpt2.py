"""GPT-2: a pre-norm decoder-only Transformer.

Radford, Wu, Child, Luan, Amodei & Sutskever, "Language Models are Unsupervised Multitask Learners" (2019).

    x = E[token] + P[position]
    x = x + attention(norm₁(x))         each token attends to itself and all tokens before it
    x = x + W₂ gelu(W₁ norm₂(x))        repeat both lines for each layer
    p = softmax(E · norm(x))            the output matrix is the embedding's

Differences from GPT (gpt1.py):
- the norm comes before each part, outside the residual sum, so the residual stream is never normalized on its way;
- one more norm before the output;
- weights that write into the residual sum start smaller by 1/√(their number);
- byte-level BPE; twice the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.types import Vocabulary
from nextword.layers.attention import CausalAttention, KeyValues
from nextword.layers.kv_cache import CacheUpdate
from nextword.layers.output.softmax import TiedSoftmax
from nextword.models.decoder import DecoderConfig, DecoderLM, init_gpt_weights


@dataclass(frozen=True)
class GPT2Config(DecoderConfig):
    window: int = 1024
    bias: bool = True  # of linear layers and norms


class Block(nn.Module):
    def __init__(self, config: GPT2Config, band: int = 0) -> None:
        super().__init__()
        width, self.dropout = config.width, config.dropout
        self.norm1 = nn.LayerNorm(width, config.epsilon, bias=config.bias)
        self.attention = CausalAttention(width, config.heads, config.dropout, band, config.bias)
        self.norm2 = nn.LayerNorm(width, config.epsilon, bias=config.bias)
        self.wide = nn.Linear(width, 4 * width, bias=config.bias)  # W₁
        self.narrow = nn.Linear(4 * width, width, bias=config.bias)  # W₂

    def forward(
        self, x: Tensor, update: CacheUpdate | None, cache: KeyValues | None
    ) -> tuple[Tensor, KeyValues | None]:
        y, cache = self.attention(self.norm1(x), update, cache)  # (B, T, D)
        x = x + F.dropout(y, self.dropout, self.training)
        y = self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))  # (B, T, 4D) → (B, T, D)
        return x + F.dropout(y, self.dropout, self.training), cache


class GPT2(DecoderLM):
    Config = GPT2Config

    def __init__(self, config: GPT2Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)  # embedding E, positions P
        self.blocks = nn.ModuleList(Block(config, band) for band in self.bands())
        self.norm = nn.LayerNorm(config.width, config.epsilon, bias=config.bias)
        self.readout = TiedSoftmax(self.embedding, bias=False)
        init_gpt_weights(self)
        for name, weight in self.named_parameters():
            if name.endswith(("attention.out.weight", "narrow.weight")):  # these write into the residual sum
                nn.init.normal_(weight, std=0.02 / (2 * config.layers) ** 0.5)
        if config.bits:
            self.quantize()

    def bands(self) -> list[int]:
        """How many tokens each block attends to, its own included; 0: all of them."""
        return [0] * self.config.layers

    def final_norm(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def layer_norms(self) -> list[nn.LayerNorm | None]:
        blocks: Any = self.blocks
        return [*(norm for block in blocks for norm in (block.norm1, block.norm2)), self.norm]
