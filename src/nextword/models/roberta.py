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

from torch import Tensor

from nextword.core.types import Encoding, FramedText, Vocabulary
from nextword.models.decoder import init_gpt_weights
from nextword.models.encoder import BidirectionalEncoder, EncoderConfig
from nextword.tokenizers.special_tokens import Marks


@dataclass(frozen=True)
class RoBERTaConfig(EncoderConfig):
    epsilon: float = 1e-5  # of the norms


class RoBERTa(BidirectionalEncoder):
    Config = RoBERTaConfig

    def __init__(self, config: RoBERTaConfig, vocabulary: Vocabulary) -> None:
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
