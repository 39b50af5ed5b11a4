"""RoBERTa: BERT trained longer, on more text, and without pairs.

Liu, Ott, Goyal, Du, Joshi, Chen, Levy, Lewis, Zettlemoyer & Stoyanov, "RoBERTa: A Robustly Optimized BERT Pretraining
Approach" (2019). The network is that of `bert` without a use of segments (one vector, the same for all tokens, is left
of them) and without the two heads for pairs. What the paper changes is the training: masks drawn anew each time, full
blocks of sentences, larger batches, bytes under the BPE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from nextword.core.types import Encoding, Framed, Vocabulary
from nextword.models.base import check_sizes
from nextword.models.decoder import check_heads, draw
from nextword.models.encoder import Bidirectional, check_norms
from nextword.tokenizers.base import Marks


@dataclass(frozen=True)
class RoBERTaConfig:
    width: int = 768
    layers: int = 12
    heads: int = 12
    window: int = 512
    inner: int = 0  # between the two products of a block; 0: four times the width
    dropout: float = 0.1  # of embeddings, attention and what is added to the sum
    epsilon: float = 1e-5  # of the norms
    norms: str = "after"  # each half of a block, or "before" it: so the network learns at once, and at a higher rate

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self)
        check_norms(self)


class RoBERTa(Bidirectional):
    Config = RoBERTaConfig

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary, config.width, 1, config.layers, config.layers, pairs=False)
        draw(self)

    def enter(self, ids: Tensor, segments: Tensor | None, positions: Tensor | None) -> Tensor:
        return super().enter(ids, None, positions)

    def between(self, marks: Marks) -> Sequence[int]:
        """<s> a </s> </s> b </s>: as fairseq joins them, for no segments tell them apart."""
        return [marks.sep, marks.sep]

    def frame(self, a: Encoding, b: Encoding | None = None) -> Framed:
        return replace(super().frame(a, b), segments=None)
