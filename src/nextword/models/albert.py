"""ALBERT: a BERT whose layers are all the same one, and whose tokens have short vectors.

Lan, Chen, Goodman, Gimpel, Sharma & Soricut, "ALBERT: A Lite BERT for Self-supervised Learning of Language
Representations" (2020). Against `bert`: the embedding is factorised, V × E and E × D with a small E; layers share
their weights, all of them or those of one half of the block (`share`, section 4.5 of the paper); of two texts it is
asked whether they were swapped, not whether one is of another document; the gelu is approximated by tanh, or `exact`.

    tokens ─ E = 128 ─▶ D ─▶ [block] ─▶ [the same block] ─▶ … ─▶ D ─▶ E ─ tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nextword.core.errors import NextwordError
from nextword.core.types import Vocabulary
from nextword.kernels.cpu_matmul import Product
from nextword.models.base import check_sizes
from nextword.models.decoder import check_heads, draw
from nextword.models.encoder import Bidirectional, check_norms

SHARE = ("none", "attention", "feed-forward", "all")


@dataclass(frozen=True)
class ALBERTConfig:
    width: int = 768
    layers: int = 12
    heads: int = 12
    window: int = 512
    segments: int = 2
    embedding: int = 128  # width of token, position and segment vectors
    share: str = "all"  # which half of a block all layers have in common: "none", "attention", "feed-forward" or "all"
    inner: int = 0  # between the two products of a block; 0: four times the width
    dropout: float = 0.1  # of embeddings, attention and what is added to the sum
    epsilon: float = 1e-12  # of the norms
    exact: bool = False  # the gelu by its definition, as in the first release; else its approximation by tanh
    norms: str = "after"  # each half of a block, or "before" it: so the network learns at once, and at a higher rate

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self)
        check_norms(self)
        if self.share not in SHARE:
            raise NextwordError(f"[model] share = '{self.share}': layers share {', '.join(SHARE[:-1])} or {SHARE[-1]}.")


class ALBERT(Bidirectional):
    Config = ALBERTConfig

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        attending = 1 if config.share in ("attention", "all") else config.layers
        feeding = 1 if config.share in ("feed-forward", "all") else config.layers
        gelu, entry = "none" if config.exact else "tanh", config.embedding
        super().__init__(config, vocabulary, entry, config.segments, attending, feeding, pairs=True, gelu=gelu)
        self.lift = Product(config.embedding, config.width)
        draw(self)

    def enter(self, ids: Tensor, segments: Tensor | None, positions: Tensor | None) -> Tensor:
        return self.lift(super().enter(ids, segments, positions))
