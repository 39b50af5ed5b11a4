"""GPT-3: a larger GPT-2 in which every other layer attends to a band of recent tokens only.

Brown et al., "Language Models are Few-Shot Learners" (2020), section 2.1: "alternating dense and locally banded sparse
attention patterns in the layers of the transformer, similar to the Sparse Transformer".

Differences from GPT-2 (gpt2.py):
- layers 1, 3, 5, … see the last `band` tokens only. The paper names neither the width of the band nor which layers are
  dense; here layers 0, 2, 4, … are dense, and the recipes set band = 256;
- twice the window; no dropout.
"""

from __future__ import annotations

from dataclasses import dataclass

from nextword.models.gpt2 import GPT2, GPT2Config


@dataclass(frozen=True)
class GPT3Config(GPT2Config):
    window: int = 2048
    dropout: float = 0.0  # the paper mentions none
    local_window: int = 0  # tokens that every other layer attends to, its own included; 0: all layers are dense


class GPT3(GPT2):
    Config = GPT3Config
    config: GPT3Config

    def bands(self) -> list[int]:
        return [self.config.local_window if i % 2 else 0 for i in range(self.config.layers)]
