"""Cross-view training of a translator: sources that nobody has translated teach it besides.

Clark, Luong, Manning & Le, "Semi-Supervised Sequence Modeling with Cross-View Training" (2018), section 3.4. The
translator is Luong's (seq2seq.py), without feeding. Beside its decoder, the primary one, stand two that share its words
and its LSTM, and have attention, output and softmax of their own:

                            ┌─ look ─ out ─ softmax        the primary: y_t; it is used, and learns from pairs
    E y_{t−1} ─ LSTM ─ s_t ─┼─ look ─ out ─ softmax        dropped: y_t, with a part of its attention taken away
                            └─ look ─ out ─ softmax        future: y_{t+1}, of which it has not seen the word before

What the primary writes of a source they learn to say (objectives/cross_view_sequence.py). They are not used otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.contract import Inputs, Vocabulary
from nextword.contract_errors import NextwordError
from nextword.layers.softmax import Full
from nextword.layers.source_attention import luongs
from nextword.models.seq2seq import Seq2Seq, Seq2SeqConfig

AHEAD = {"dropped": 0, "future": 1}  # view → how many words beyond the next one it says


@dataclass(frozen=True)
class CVTSeq2SeqConfig(Seq2SeqConfig):
    attention: str = "luong"
    feeding: bool = False  # a step that were told what was seen would be another for each decoder
    zeroed: float = 0.5  # of the attention of the decoder that loses some

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention != "luong" or self.feeding:
            raise NextwordError(
                "[model] decoders that share their LSTM need attention = 'luong' and feeding = false; given were "
                f"'{self.attention}' and {str(self.feeding).lower()}."
            )
        if not 0 <= self.zeroed < 1:
            raise NextwordError(f"[model] zeroed = {self.zeroed} is a share of the attention, from 0 up to below 1.")


class View(nn.Module):
    """What a decoder has of its own."""

    def __init__(self, config: CVTSeq2SeqConfig, memory: int, size: int, zeroed: float = 0.0) -> None:
        super().__init__()
        self.zeroed = zeroed
        self.look = luongs(config.width, memory, config.score, config.scaled)
        self.out = nn.Linear(memory + config.width, config.width, bias=False)
        self.readout = Full(config.width, size)

    def forward(self, s: Tensor, memory: Tensor, there: Tensor) -> Tensor:
        """(B, T, D), (B, S, M), (B, S) → (B, T, D)."""
        context, weights = self.look(s, self.look.keys(memory), memory, there)
        if self.zeroed and self.training:
            context = F.dropout(weights, self.zeroed).to(memory.dtype) @ memory
        return torch.tanh(self.out(torch.cat([context, s], -1)))


class CVTSeq2Seq(Seq2Seq):
    Config = CVTSeq2SeqConfig

    def __init__(self, config: CVTSeq2SeqConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        memory, size = self.encoder.width, vocabulary.size
        self.views = nn.ModuleDict(
            {"dropped": View(config, memory, size, config.zeroed), "future": View(config, memory, size)}
        )

    def auxiliary(self, inputs: Inputs) -> dict[str, tuple[Tensor, int]]:
        """View → what it says after each token that was read, as log p (B, T, V), and of which word: so many beyond the
        next."""
        state: Any = self.begin(inputs.source)
        s, _ = self._onward(self._dropped(self.embedding(inputs.ids)), state["cells"])
        found = {}
        for name, view in self.views.items():
            h = self._dropped(view(s, state["memory"], state["there"]))
            log_p = view.readout.log_probs(h.flatten(0, 1))  # type: ignore[operator, union-attr]
            found[name] = log_p.view(*h.shape[:2], -1), AHEAD[name]
        return found
