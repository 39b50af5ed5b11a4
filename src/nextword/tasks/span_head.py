"""Where an answer begins and where it ends in a passage, over any network (Devlin et al. 2019, sections 4.2 and 4.3).

    frames ──network.encode──▶ h (B, T, D) ──linear──▶ (B, T, 2) ──places of the passage, and "none"──▶ (B, W, 2)

    P(begin = i) = softmax(S · h_i)_i        P(end = j) = softmax(E · h_j)_j        over the places of the window
    score of i … j = S · h_i + E · h_j       i ≤ j < i + longest                    score of none = S · h₀ + E · h₀

The places are the tokens of the passage and the one that stands for "no answer" (batching/questions.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Batch
from nextword.models.framing import SPREAD
from nextword.tasks.base import ModelWithHead

BEST = 20  # spans of a window that are looked at


@dataclass(frozen=True)
class SpanConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    longest: int = 30  # tokens of an answer
    dropout: float = 0.1
    features: str = ""  # the layer that is read; "": the last
    frozen: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.longest, bool) or not isinstance(self.longest, int) or self.longest < 1:
            raise NextwordError(f"[task] longest = {self.longest!r} is how many tokens an answer may have: at least 1.")
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, (int, float)) or not 0 <= self.dropout < 1:
            raise NextwordError(f"[task] dropout = {self.dropout!r} is the share dropped before the head, below 1.")


class Spanning(ModelWithHead):
    def __init__(self, config: SpanConfig, network: Any) -> None:
        super().__init__(config, network)
        self.out = nn.Linear(network.widths[self.at], 2)
        nn.init.normal_(self.out.weight, std=SPREAD)
        nn.init.zeros_(self.out.bias)

    def forward(self, batch: Batch) -> Tensor:
        """(B, W, 2) in 32 bits; −∞ beyond a window's last place."""
        h = self.read_layer(batch.inputs)[..., : self.encoder.widths[self.at]]
        assert batch.at is not None
        h = F.dropout(h, self.config.dropout, self.training)
        with torch.autocast(h.device.type, enabled=False):
            said = self.out(h.to(self.out.weight.dtype)).reshape(-1, 2)
        return F.embedding(batch.at.clamp(min=0), said).masked_fill((batch.at < 0).unsqueeze(-1), -torch.inf)

    def nats(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(B,): the mean of −log p of where the answer begins and of where it ends; targets (B, 2)."""
        return F.cross_entropy(logits, targets, reduction="none").mean(-1)

    def best(self, logits: Tensor) -> Tensor:
        return best_spans(logits, self.config.longest)


def best_spans(logits: Tensor, longest: int, n: int = BEST) -> Tensor:
    """(B, 1 + 3n): the score of "none", and n times begin, end and score of a span, the best first.

    All spans are looked at, not only those between a few good ends. Where there are fewer, scores are −∞.
    """
    begins, ends = logits[:, 1:, 0], logits[:, 1:, 1]  # (B, P)
    none = logits[:, 0].sum(-1, keepdim=True)
    places = begins.shape[1]
    if not places:
        nothing = torch.full((len(logits), 3 * n), -torch.inf, device=logits.device, dtype=logits.dtype)
        return torch.cat((none, nothing), 1)
    longest = min(longest, places)
    ahead = F.pad(ends, (0, longest - 1), value=-torch.inf).unfold(1, longest, 1)  # (B, P, longest)
    scores = (begins.unsqueeze(-1) + ahead).flatten(1)
    found, at = scores.topk(min(n, scores.shape[1]), 1)
    begin = at // longest + 1
    spans = torch.stack((begin.to(found.dtype), (begin + at % longest).to(found.dtype), found), -1).flatten(1)
    return torch.cat((none, F.pad(spans, (0, 3 * n - spans.shape[1]), value=-torch.inf)), 1)
