"""GPT: the decoder of the Transformer as a language model, to be fine-tuned.

Radford, Narasimhan, Salimans & Sutskever, "Improving Language Understanding by Generative Pre-Training" (2018). As in
Vaswani et al. (2017) the norm comes after each sum; positions are learnt; the output matrix is the embedding's.

    x = E[token] + P[position]      then in each block    x = norm(x + attention(x))    x = norm(x + W₂ gelu(W₁ x))
    p = softmax(E · x)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nextword.contract import Vocabulary
from nextword.layers.attention import Layer, SelfAttention
from nextword.layers.past import Reading
from nextword.layers.products import Product
from nextword.layers.softmax import Tied
from nextword.models.causal import check_sizes
from nextword.models.windowed import Windowed, check_bits, check_heads, draw


@dataclass(frozen=True)
class GPT1Config:
    width: int = 768
    layers: int = 12
    heads: int = 12
    window: int = 512
    dropout: float = 0.1  # of embeddings, attention and what is added to the sum
    epsilon: float = 1e-5  # of the norms
    bits: int = 0  # 8: weights in eight bits, to be read with and not trained; 0: in 32

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self)
        check_bits(self)


class Block(nn.Module):
    def __init__(self, config: GPT1Config) -> None:
        super().__init__()
        width, self.dropout = config.width, config.dropout
        self.attention = SelfAttention(width, config.heads, config.dropout)
        self.norm1 = nn.LayerNorm(width, config.epsilon)
        self.wide = Product(width, 4 * width)
        self.narrow = Product(4 * width, width)
        self.norm2 = nn.LayerNorm(width, config.epsilon)

    def forward(self, x: Tensor, reading: Reading | None, before: Layer | None) -> tuple[Tensor, Layer | None]:
        y, now = self.attention(x, reading, before)
        x = self.norm1(x + F.dropout(y, self.dropout, self.training))
        y = self.narrow(F.gelu(self.wide(x), approximate="tanh"))
        return self.norm2(x + F.dropout(y, self.dropout, self.training)), now


class GPT1(Windowed):
    Config = GPT1Config
    norms_after = True

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.readout: Any = Tied(self.embedding, bias=False)
        draw(self)
        if config.bits:
            self.narrowed()

    def norms(self) -> list[nn.LayerNorm | None]:
        blocks: Any = self.blocks
        return [None, *(norm for block in blocks for norm in (block.norm1, block.norm2))]
