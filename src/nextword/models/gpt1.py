"""GPT: the decoder of the Transformer as a language model, to be fine-tuned.

Radford, Narasimhan, Salimans & Sutskever, "Improving Language Understanding by Generative Pre-Training" (2018). As in
Vaswani et al. (2017) the norm comes after each sum; positions are learnt; the output matrix is the embedding's.

    x = E[token] + P[position]      then in each block    x = norm(x + attention(x))    x = norm(x + W₂ gelu(W₁ x))
    p = softmax(E · x)

Fine-tuned, it reads a task's texts between three tokens that pretraining never saw (section 3.3); the last one speaks:

    start a extract        start a delimiter b extract        for "similar", start b delimiter a extract as well
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Encoding, Framed, Vocabulary
from nextword.kernels.cpu_matmul import Product
from nextword.kernels.cublaslt import fed
from nextword.layers.attention import Layer, SelfAttention
from nextword.layers.kv_cache import Reading
from nextword.layers.output.softmax import Tied
from nextword.models.base import check_bits, check_sizes
from nextword.models.decoder import DecoderLM, check_heads, draw


@dataclass(frozen=True)
class GPT1Config:
    width: int = 768
    layers: int = 12
    heads: int = 12
    window: int = 512
    dropout: float = 0.1  # of embeddings, attention and what is added to the sum
    epsilon: float = 1e-5  # of the norms
    bits: int = 0  # 8: weights in eight bits, to be read with and not trained; 0: in 32
    extra: int = 0  # tokens beyond the vocabulary's, read and never predicted: see `grow` in models/frames.py

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
        y = fed(x, self.wide, self.narrow)
        return self.norm2(x + F.dropout(y, self.dropout, self.training)), now


class GPT1(DecoderLM):
    Config = GPT1Config
    norms_after = True
    num_extra_tokens = 3  # start, delimiter, extract

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.readout: Any = Tied(self.embedding, bias=False)
        self.extra = nn.Embedding(config.extra, config.width) if config.extra else None
        draw(self)
        if config.bits:
            self.narrowed()

    def norms(self) -> list[nn.LayerNorm | None]:
        blocks: Any = self.blocks
        return [None, *(norm for block in blocks for norm in (block.norm1, block.norm2))]

    def entered(self, ids: Tensor, positions: Tensor) -> Tensor:
        if self.extra is None:
            return super().entered(ids, positions)
        beyond = ids - self.vocabulary.size  # at least 0 for tokens of its own
        known = self.embedding(ids.clamp(max=self.vocabulary.size - 1))
        x = torch.where(beyond.unsqueeze(-1) < 0, known, self.extra(beyond.clamp(min=0)))
        return self.begun(x + self.positions(positions))

    def marks(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        if self.config.extra < self.num_extra_tokens:
            raise NextwordError(
                f"The network has [model] extra = {self.config.extra}, and its frames need {self.num_extra_tokens} tokens "
                "beyond the vocabulary: start, delimiter and extract. Make room with ready(network) of models/frames."
            )
        first = self.vocabulary.size
        return (first,), (first + 1,), (first + 2,)

    def frames(self, task: str, texts: Sequence[Encoding]) -> list[Framed]:
        """As ever, but "similar" in both orders, for neither text comes first."""
        found = super().frames(task, texts)
        return [*found, self.frame(texts[1], texts[0])] if task == "similar" else found
