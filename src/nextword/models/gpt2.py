"""GPT-2: a stack of blocks that each look back over all tokens before, normalised before each part.

Radford, Wu, Child, Luan, Amodei & Sutskever, "Language Models are Unsupervised Multitask Learners" (2019). Against
`gpt1`: the norm comes first and stands outside the sum, so that the sum runs from the embedding to the end untouched;
one more norm before the output; the weights that write into the sum begin smaller by 1/√(their number); bytes
instead of letters under the BPE; twice the window.

    x = E[token] + P[position]      then in each block    x += attention(norm(x))    x += W₂ gelu(W₁ norm(x))
    p = softmax(E · norm(x))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.types import Vocabulary
from nextword.kernels.cpu_matmul import Product
from nextword.kernels.cublaslt import fed
from nextword.layers.attention import Layer, SelfAttention
from nextword.layers.kv_cache import Reading
from nextword.layers.output.softmax import Tied
from nextword.models.base import check_bits, check_sizes
from nextword.models.decoder import DecoderLM, check_heads, draw


@dataclass(frozen=True)
class GPT2Config:
    width: int = 768
    layers: int = 12
    heads: int = 12
    window: int = 1024
    dropout: float = 0.1  # of embeddings, attention and what is added to the sum
    bias: bool = True
    epsilon: float = 1e-5  # of the norms
    bits: int = 0  # 8: weights in eight bits, to be read with and not trained; 0: in 32

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self)
        check_bits(self)


class Block(nn.Module):
    def __init__(self, config: Any, band: int = 0) -> None:
        super().__init__()
        width, self.dropout = config.width, config.dropout
        self.norm1 = nn.LayerNorm(width, config.epsilon, bias=config.bias)
        self.attention = SelfAttention(width, config.heads, config.dropout, band, config.bias)
        self.norm2 = nn.LayerNorm(width, config.epsilon, bias=config.bias)
        self.wide = Product(width, 4 * width, bias=config.bias)
        self.narrow = Product(4 * width, width, bias=config.bias)

    def forward(self, x: Tensor, reading: Reading | None, before: Layer | None) -> tuple[Tensor, Layer | None]:
        y, now = self.attention(self.norm1(x), reading, before)
        x = x + F.dropout(y, self.dropout, self.training)
        y = fed(self.norm2(x), self.wide, self.narrow)
        return x + F.dropout(y, self.dropout, self.training), now


class GPT2(DecoderLM):
    Config = GPT2Config

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.blocks = nn.ModuleList(Block(config, band) for band in self.bands())
        self.norm = nn.LayerNorm(config.width, config.epsilon, bias=config.bias)
        self.readout: Any = Tied(self.embedding, bias=False)
        draw(self)
        for name, weight in self.named_parameters():
            if name.endswith(("attention.out.weight", "narrow.weight")):
                nn.init.normal_(weight, std=0.02 / (2 * config.layers) ** 0.5)
        if config.bits:
            self.narrowed()

    def bands(self) -> list[int]:
        """How far back each block looks; 0: as far as there is text."""
        return [0] * self.config.layers

    def norms(self) -> list[nn.LayerNorm | None]:
        blocks: Any = self.blocks
        return [*(norm for block in blocks for norm in (block.norm1, block.norm2)), self.norm]

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)
