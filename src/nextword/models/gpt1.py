"""GPT: the decoder of the Transformer as a language model, pretrained and then fine-tuned.

Radford, Narasimhan, Salimans & Sutskever, "Improving Language Understanding by Generative Pre-Training" (2018).

    x = E[token] + P[position]
    x = norm₁(x + attention(x))         each token attends to itself and all tokens before it
    x = norm₂(x + W₂ gelu(W₁ x))        repeat both lines for each layer
    p = softmax(E · x)                  the output matrix is the embedding's

Differences from the decoder of Vaswani et al. (2017): no encoder and no attention to one; positions are learned; gelu.

Fine-tuning (section 3.3) puts a task's texts between three special tokens that pretraining never saw. Their vectors are
`extra_tokens` embeddings, which are read but never predicted. The last token's vector represents the text:

    start a extract        start a delimiter b extract        for "similar", also start b delimiter a extract
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting
from nextword.core.types import Encoding, FramedText, Vocabulary
from nextword.layers.attention import CausalAttention, KeyValues
from nextword.layers.kv_cache import CacheUpdate
from nextword.layers.output.softmax import TiedSoftmax
from nextword.models.base import FrameMarks
from nextword.models.decoder import DecoderConfig, DecoderLM, init_gpt_weights


@dataclass(frozen=True)
class GPT1Config(DecoderConfig):
    window: int = 512
    extra_tokens: int = (
        0  # special tokens beyond the vocabulary, read and never predicted: see framing.resize_embeddings
    )


class Block(nn.Module):
    def __init__(self, config: GPT1Config) -> None:
        super().__init__()
        width, self.dropout = config.width, config.dropout
        self.attention = CausalAttention(width, config.heads, config.dropout)
        self.norm1 = nn.LayerNorm(width, config.epsilon)
        self.wide = nn.Linear(width, 4 * width)  # W₁
        self.narrow = nn.Linear(4 * width, width)  # W₂
        self.norm2 = nn.LayerNorm(width, config.epsilon)

    def forward(
        self, x: Tensor, update: CacheUpdate | None, cache: KeyValues | None
    ) -> tuple[Tensor, KeyValues | None]:
        y, cache = self.attention(x, update, cache)  # (B, T, D)
        x = self.norm1(x + F.dropout(y, self.dropout, self.training))
        y = self.narrow(F.gelu(self.wide(x), approximate="tanh"))  # (B, T, 4D) → (B, T, D)
        return self.norm2(x + F.dropout(y, self.dropout, self.training)), cache


class GPT1(DecoderLM):
    Config = GPT1Config
    config: GPT1Config
    is_post_norm = True
    num_extra_tokens = 3  # start, delimiter, extract

    def __init__(self, config: GPT1Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)  # embedding E, positions P
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.readout = TiedSoftmax(self.embedding, bias=False)
        self.extra = nn.Embedding(config.extra_tokens, config.width) if config.extra_tokens else None
        init_gpt_weights(self)
        if config.bits:
            self.quantize()

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        if self.extra is None:
            return super().embed(ids, positions)
        beyond = ids - self.vocabulary.size  # at least 0 for extra tokens
        known = self.embedding(ids.clamp(max=self.vocabulary.size - 1))
        x = torch.where(beyond.unsqueeze(-1) < 0, known, self.extra(beyond.clamp(min=0)))
        return self._enter(x + self.positions(positions))

    def layer_norms(self) -> list[nn.LayerNorm | None]:
        blocks: Any = self.blocks
        return [None, *(norm for block in blocks for norm in (block.norm1, block.norm2))]

    def frame_marks(self) -> FrameMarks:
        if self.config.extra_tokens < self.num_extra_tokens:
            raise InvalidSetting(
                f"[model] extra_tokens = {self.config.extra_tokens}, but frames need {self.num_extra_tokens} (start, "
                "delimiter, extract). Call models.framing.add_missing_tokens(network) first.",
                key="model.extra_tokens",
                value=self.config.extra_tokens,
            )
        first = self.vocabulary.size
        return (first,), (first + 1,), (first + 2,)

    def frames(self, task: str, texts: Sequence[Encoding]) -> list[FramedText]:
        """As usual, but "similar" in both orders, because neither text comes first."""
        frames = super().frames(task, texts)
        return [*frames, self.frame(texts[1], texts[0])] if task == "similar" else frames
