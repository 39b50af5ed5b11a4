"""BERT: the encoder of the Transformer, trained to fill in hidden tokens and to tell whether two texts belong together.

Devlin, Chang, Lee & Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding"
(2019). Against `gpt1`: every token sees the whole text and not what lies before it alone, so that no next token can be
predicted and some are hidden instead; two texts are read at once, each with a segment vector added to its tokens; a
norm at the entrance; one more layer before the tied output; the gelu is exact.

    [CLS] my dog is [MASK] [SEP] he likes play ##ing [SEP]        hairy?   and: does the second follow the first?
      0    0  0   0    0     0   1    1     1    1     1   segments
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nextword.core.types import Vocabulary
from nextword.models.base import check_sizes
from nextword.models.decoder import check_heads, draw
from nextword.models.encoder import Bidirectional, check_norms


@dataclass(frozen=True)
class BERTConfig:
    width: int = 768
    layers: int = 12
    heads: int = 12
    window: int = 512
    segments: int = 2
    inner: int = 0  # between the two products of a block; 0: four times the width
    dropout: float = 0.1  # of embeddings, attention and what is added to the sum
    epsilon: float = 1e-12  # of the norms
    norms: str = "after"  # each half of a block, or "before" it: so the network learns at once, and at a higher rate

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self)
        check_norms(self)


class BERT(Bidirectional):
    Config = BERTConfig

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        layers = config.layers
        super().__init__(config, vocabulary, config.width, config.segments, layers, layers, pairs=True)
        draw(self)
