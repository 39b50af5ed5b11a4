"""ALBERT: a BERT whose layers share their weights and whose token embeddings are narrow.

Lan, Chen, Goodman, Gimpel, Sharma & Soricut, "ALBERT: A Lite BERT for Self-supervised Learning of Language
Representations" (2020).

    tokens ─ V × E, E = 128 ─▶ E × D ─▶ [block] ─▶ [the same block] ─▶ … ─▶ D × E ─ E × V ─ tokens

Differences from BERT (bert.py):
- the embedding is factorized: V × E and E × D, with a small E;
- layers share all weights, or those of one half of the block (`share`, section 4.5 of the paper);
- sentence order prediction: were the two texts swapped? (not: is one from another document?);
- the gelu is approximated by tanh, unless `exact`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from nextword.core.types import Vocabulary
from nextword.models.base import check_choice
from nextword.models.decoder import init_gpt_weights
from nextword.models.encoder import BidirectionalEncoder, EncoderConfig

SHARE = ("none", "attention", "feed-forward", "all")


@dataclass(frozen=True)
class ALBERTConfig(EncoderConfig):
    segments: int = 2
    embedding: int = 128  # E: width of token, position and segment embeddings
    sharing: str = "all"  # which half of a block all layers share: "none", "attention", "feed-forward" or "all"
    exact_gelu: bool = False  # exact gelu, as in the first release; otherwise approximated by tanh

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "sharing", SHARE)


class ALBERT(BidirectionalEncoder):
    Config = ALBERTConfig

    def __init__(self, config: ALBERTConfig, vocabulary: Vocabulary) -> None:
        super().__init__(
            config,
            vocabulary,
            entry=config.embedding,
            segments=config.segments,
            attending=1 if config.sharing in ("attention", "all") else config.layers,
            feeding=1 if config.sharing in ("feed-forward", "all") else config.layers,
            pairs=True,
            gelu="none" if config.exact_gelu else "tanh",
        )
        self.lift = nn.Linear(config.embedding, config.width)  # E × D
        init_gpt_weights(self)

    def embed(self, ids: Tensor, segments: Tensor | None, positions: Tensor | None) -> Tensor:
        return self.lift(super().embed(ids, segments, positions))
