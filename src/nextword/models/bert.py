"""BERT: a bidirectional Transformer encoder, trained to predict masked tokens and whether two texts belong together.

Devlin, Chang, Lee & Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding"
(2019).

    [CLS] my dog is [MASK] [SEP] he likes play ##ing [SEP]        hairy?   and: does the second text follow the first?
      0    0  0   0    0     0   1    1     1    1     1   segments

    x = norm(E[token] + P[position] + S[segment])
    x = norm(x + attention(x))           every token attends to the whole text
    x = norm(x + W₂ gelu(W₁ x))          repeat both lines for each layer (encoder.py)
    p = softmax(E · norm(gelu(W x)) + b)           of a masked token
    q = softmax(U tanh(W' x₀))                     of the next-sentence task, from the vector of [CLS]

Differences from GPT (gpt1.py):
- every token sees the whole text, so tokens are masked instead of predicting the next one;
- two texts are read at once, each with a segment embedding;
- a norm after the embeddings; one more layer before the tied output; the gelu is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from nextword.core.types import Vocabulary
from nextword.models.decoder import init_gpt_weights
from nextword.models.encoder import BidirectionalEncoder, EncoderConfig


@dataclass(frozen=True)
class BERTConfig(EncoderConfig):
    segments: int = 2
    pairs: bool = True  # a pooler and a head for pairs of texts; false: a text is the mean of its tokens


class BERT(BidirectionalEncoder):
    Config = BERTConfig

    def __init__(self, config: BERTConfig, vocabulary: Vocabulary) -> None:
        super().__init__(
            config,
            vocabulary,
            entry=config.width,
            segments=config.segments,
            attending=config.layers,
            feeding=config.layers,
            pairs=config.pairs,
        )
        self.pools_mean = not config.pairs
        init_gpt_weights(self)
