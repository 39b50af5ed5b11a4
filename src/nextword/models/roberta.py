"""RoBERTa: BERT, trained longer, on more text, and without the next-sentence task.

Liu, Ott, Goyal, Du, Joshi, Chen, Levy, Lewis, Zettlemoyer & Stoyanov, "RoBERTa: A Robustly Optimized BERT Pretraining
Approach" (2019).

Differences from BERT (bert.py):
- one segment embedding, the same for all tokens; no pooler and no next-sentence head;
- two texts are separated by </s> </s>;
- in the recipe: masks drawn anew for each epoch, full blocks of sentences, larger batches, byte-level BPE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from nextword.core.types import Encoding, FramedText, Vocabulary
from nextword.models.base import check_sizes
from nextword.models.decoder import check_heads, init_gpt_weights
from nextword.models.encoder import BidirectionalEncoder, check_norms
from nextword.tokenizers.special_tokens import Marks


@dataclass(frozen=True)
class RoBERTaConfig:
    width: int = 768
    layers: int = 12
    heads: int = 12
    window: int = 512
    inner: int = 0  # width of the feed-forward part; 0: 4 · width
    dropout: float = 0.1  # of embeddings, attention weights and what is added to the residual sum
    epsilon: float = 1e-5  # of the norms
    norms: str = "after"  # "after" each half of a block, or "before" it, which needs no warmup and takes a higher rate

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self)
        check_norms(self)


class RoBERTa(BidirectionalEncoder):
    Config = RoBERTaConfig

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__(
            config,
            vocabulary,
            entry=config.width,
            segments=1,
            attending=config.layers,
            feeding=config.layers,
            pairs=False,
        )
        init_gpt_weights(self)

    def embed(self, ids: Tensor, segments: Tensor | None, positions: Tensor | None) -> Tensor:
        return super().embed(ids, None, positions)

    def separator(self, marks: Marks) -> Sequence[int]:
        return [marks.sep, marks.sep]  # <s> a </s> </s> b </s>, as fairseq joins two texts

    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText:
        return replace(super().frame(a, b), segments=None)
