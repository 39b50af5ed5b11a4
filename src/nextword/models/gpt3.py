"""GPT-3: GPT-2, larger, with twice the window, in which every other layer looks back over a band alone.

Brown et al., "Language Models are Few-Shot Learners" (2020), section 2.1: "alternating dense and locally banded sparse
attention patterns in the layers of the transformer, similar to the Sparse Transformer". How wide the band is, and which
of the two comes first, the paper does not say: here layers 0, 2, … are dense and the others see `band` tokens, which
the recipes set to 256.
"""

from __future__ import annotations

from dataclasses import dataclass

from nextword.models.gpt2 import GPT2, GPT2Config


@dataclass(frozen=True)
class GPT3Config(GPT2Config):
    window: int = 2048
    dropout: float = 0.0  # the paper names none
    band: int = 0  # tokens that every other layer sees, its own included; 0: all layers see all


class GPT3(GPT2):
    Config = GPT3Config

    def bands(self) -> list[int]:
        return [self.config.band if i % 2 else 0 for i in range(self.config.layers)]
