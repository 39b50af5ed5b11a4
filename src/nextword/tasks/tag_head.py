"""A tag for every word, over any network: a linear layer on each word's vector, and a softmax or a CRF over that.

    frames ──network.encode──▶ h (B, T, D) ──the word's token──▶ (B, W, D) ──linear──▶ emissions (B, W, K)

    linear     log p(tags) = Σ_w log softmax(emissions_w)[tag_w]          each word by itself
    crf        layers/crf.py: transitions between tags besides

A word of several tokens is known by its first, or where the network reads from left to right by its last, which has
read all of it. In either form the best sequence of tags is looked for among those that the scheme allows (Viterbi);
`strict` has the CRF learn under the same constraints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import IGNORE, Batch
from nextword.data.tag_schemes import PLAIN, allowed
from nextword.layers.crf import CRF, Steps, penalties, plus, viterbi
from nextword.tasks.base import ModelWithHead

CLASSIFIERS = ("linear", "crf")


@dataclass(frozen=True)
class TagConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    tags: tuple[str, ...]
    scheme: str = PLAIN  # of the tags
    classifier: str = "crf"
    strict: bool = False
    dropout: float = 0.1
    features: str = ""  # the layer that is read; "": the last
    frozen: bool = False

    def __post_init__(self) -> None:
        if self.classifier not in CLASSIFIERS:
            raise NextwordError(
                f"[task] classifier = {self.classifier!r}; for tags there are {' and '.join(CLASSIFIERS)}."
            )
        if not 0 <= self.dropout < 1:
            raise NextwordError(f"[task] dropout = {self.dropout!r} is the share dropped before the head, below 1.")


class Tagging(ModelWithHead):
    forbidden: Tensor

    def __init__(self, config: TagConfig, network: Any) -> None:
        super().__init__(config, network)
        tags = len(config.tags)
        steps = None
        if config.scheme != PLAIN:
            steps = [torch.from_numpy(part) for part in allowed(config.tags, config.scheme)]
        self.out = nn.Linear(network.widths[self.at], tags)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.crf = CRF(tags, steps, config.strict) if config.classifier == "crf" else None
        self.register_buffer("forbidden", penalties(tags, steps), persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        """(B, W, K) in 32 bits."""
        h = self.read_layer(batch.inputs)[..., : self.encoder.widths[self.at]]
        if batch.at is not None:
            flat = h.reshape(-1, h.shape[-1])
            h = F.embedding(batch.at.clamp(min=0), flat) * (batch.at >= 0).unsqueeze(-1)  # (B, W, D)
        h = F.dropout(h, self.config.dropout, self.training)
        with torch.autocast(h.device.type, enabled=False):
            return self.out(h.to(self.out.weight.dtype))

    def nats(self, emissions: Tensor, targets: Tensor) -> Tensor:
        """(B,): −log p of the tags of each row; 0 for a row that has a tag no training sentence had.

        `targets` (B, W) are IGNORE where there is no word, and K or more where the tag is such a one.
        """
        if self.crf is None:
            return softmax_nats(emissions, targets)
        there, known, tags = _learnable(emissions, targets)
        return torch.where(known, -self.crf.log_likelihood(emissions, tags, there), 0.0)

    def best(self, emissions: Tensor, there: Tensor) -> Tensor:
        """(B, W): the best tags that the scheme allows; 0 where there is no word."""
        if self.crf is not None:
            return self.crf.viterbi(emissions, there)
        return best_of_softmax(emissions, there, self.forbidden if self.config.scheme != PLAIN else None)


# ------------------------------------------------------------------------------------------------ each word by itself


def softmax_nats(emissions: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """(B, W, K), (B, W) → (B,), as `Tagging.nats`. With smoothing, that share of a target is spread over all tags."""
    there, known, tags = _learnable(emissions, targets)
    each = F.cross_entropy(emissions.transpose(1, 2), tags, reduction="none", label_smoothing=smoothing)  # (B, W)
    return torch.where(known, (each * there).sum(1), 0.0)


def best_of_softmax(emissions: Tensor, there: Tensor, forbidden: Tensor | None) -> Tensor:
    """(B, W): the tags that are best together and that the scheme allows; None: all are allowed."""
    if forbidden is None:
        return emissions.argmax(-1).masked_fill(~there, 0)
    zeros = torch.zeros_like(forbidden)
    free = Steps(zeros[:-2], zeros[-2], zeros[-1])
    return viterbi(emissions.float().log_softmax(-1), there, plus(free, forbidden))


def _learnable(emissions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where there is a word (B, W), which rows have tags that are known alone (B,), and those tags, else 0 (B, W)."""
    there = targets != IGNORE
    known = ((targets < emissions.shape[-1]) | ~there).all(1)
    return there, known, targets.masked_fill(~there | ~known.unsqueeze(1), 0)
