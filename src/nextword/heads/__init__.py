"""A head over a network: one vector for an example, and from it a class or a number. One head for every encoder.

    frames ──network.encode──▶ h (B, T, D) ──speaker, or mean──▶ (n, D) ──[dense, tanh]── linear──▶ (n, outputs)

What is read follows the papers, and is seen from what a network can do, not from its name:

    a pooler that was trained on pairs      tanh(W h₁), as BERT and ALBERT have it; it is kept and trained on
    sees both sides, has no pooler          the same with new weights: RoBERTa at <s>, XLNet at its last token
    reads from left to right                the last token's vector as it is: GPT, recurrent networks

New weights are drawn from N(0, 0.02²). With `reads = "mean"` it is the mean of all vectors of a frame, and no tanh.

    frames ──a layer of network.encode──▶ (B, T, D) ──biattentive.py──▶ (n, outputs)

With `classifier = "biattentive"` a network of its own reads all vectors, and none has to speak for the others. `frozen`
leaves the network under the head as it came: what it gives are features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nextword.contract import Batch, Infilling, Inputs, NextwordError
from nextword.heads.biattentive import Biattentive
from nextword.heads.over import FILE as FILE
from nextword.heads.over import Over
from nextword.models.frames import SPREAD, combine

READS = ("speaker", "mean")
CLASSIFIERS = ("linear", "biattentive")


@dataclass(frozen=True)
class HeadConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    outputs: int  # classes, or 1 for a number
    frame: str = "classify"  # how examples are framed: models/frames.py
    reads: str = "speaker"
    dropout: float = 0.1
    classifier: str = "linear"
    features: str = ""  # the layer that is read: a name that the network has for it, or a number; "": the last
    frozen: bool = False  # nothing of the network is trained
    width: int = 300  # of a biattentive classifier, in each direction
    reduction: int = 4  # of its first maxout layer
    weights: tuple[float, ...] = ()  # of the classes in the loss; none: all alike

    def __post_init__(self) -> None:
        for name, known in (("reads", READS), ("classifier", CLASSIFIERS)):
            if getattr(self, name) not in known:
                raise NextwordError(f"[task] {name} = {getattr(self, name)!r}; expected {' or '.join(known)}.")
        for name in ("width", "reduction"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise NextwordError(f"[task] {name} = {value!r} must be a whole number of at least 1.")
        if not isinstance(self.frozen, bool):
            raise NextwordError(f"[task] frozen = {self.frozen!r} must be true or false.")
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, (int, float)) or not 0 <= self.dropout < 1:
            raise NextwordError(f"[task] dropout = {self.dropout!r} is the share dropped before the head, below 1.")


class Headed(Over):
    """What it says is one vector an example."""

    def __init__(self, config: HeadConfig, network: Any) -> None:
        super().__init__(config, network)
        self.weights: Tensor | None
        self.register_buffer("weights", torch.tensor(config.weights) if config.weights else None, persistent=False)
        width = network.widths[self.at]
        self.out: Any
        self.dense: nn.Linear | None = None
        self.pools = False
        if config.classifier == "biattentive":
            self.out = Biattentive(width, config.outputs, config.width, config.reduction, config.dropout)
            return
        speaker = config.reads == "speaker"
        self.pools = speaker and self.at == -1 and getattr(network, "pooler", None) is not None
        dense = speaker and not self.pools and isinstance(network, Infilling)
        self.dense = nn.Linear(width, width) if dense else None
        self.out = nn.Linear(width, config.outputs)
        for layer in (self.dense, self.out):
            if layer is not None:
                nn.init.normal_(layer.weight, std=SPREAD)
                nn.init.zeros_(layer.bias)

    @property
    def recordable(self) -> bool:
        """Whether forward and backward ask nothing of a GPU on the way."""
        plain = type(self) is Headed and self.config.classifier == "linear"
        return plain and bool(getattr(self.under, "recordable", False))

    # -------------------------------------------------------------------------------------------- what it computes

    def forward(self, batch: Batch) -> Tensor:
        """(n, outputs) in 32 bits: logits of the classes, or one number."""
        return self.judge(self.read_layer(batch.inputs), batch)

    def judge(self, h: Tensor, batch: Batch) -> Tensor:
        """The same of the layer that is read (B, T, D), for whoever needs that layer besides."""
        h = h[..., : self.under.widths[self.at]]
        frames = None if batch.at is None else len(batch.at)  # a text that only fills up a row is none of them
        if self.config.classifier == "biattentive":
            x, there = (t[:frames] for t in rows(h, batch.inputs))
            with torch.autocast(x.device.type, enabled=False):
                return self.out(x.to(self.out.out.weight.dtype), there, len(x) // len(batch.targets))
        if self.config.reads == "mean":
            x = mean(h, batch.inputs)[:frames]
        else:
            assert batch.at is not None
            x = h.reshape(-1, h.shape[-1]).index_select(0, batch.at)  # (frames, D)
        return self.score(x, len(batch.targets))

    def score(self, x: Tensor, examples: int | None = None) -> Tensor:
        """(n, outputs) of the vectors (frames, D) that stand for frames; `examples`: how many those belong to, if not
        each to its own."""
        if self.pools:
            x = self.under.pooled(x)
        elif self.dense is not None:
            x = torch.tanh(self.dense(F.dropout(x, self.config.dropout, self.training)))
        if examples is not None:
            x = combine(self.config.frame, x.view(examples, -1, x.shape[-1]))
        x = F.dropout(x, self.config.dropout, self.training)
        with torch.autocast(x.device.type, enabled=False):
            return self.out(x.to(self.out.weight.dtype))


def rows(h: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """(frames, T, D), and where there is something, whichever way the frames lie."""
    if inputs.starts is not None:
        sizes = inputs.starts.long().diff()
        parts = h[0].split(sizes.tolist())
        padded = pad_sequence(list(parts), batch_first=True)
        return padded, torch.arange(padded.shape[1], device=h.device) < sizes.unsqueeze(1)
    there = torch.ones(h.shape[:2], dtype=torch.bool, device=h.device) if inputs.padding is None else inputs.padding
    return h, there


def mean(h: Tensor, inputs: Inputs) -> Tensor:
    """(frames, D): the mean of the vectors of each frame, whichever way they lie."""
    wide = h.to(torch.promote_types(h.dtype, torch.float32))
    if inputs.starts is not None:
        starts = inputs.starts.long()
        sizes = starts.diff()
        slots = torch.arange(wide.shape[1], device=h.device)
        whose = torch.searchsorted(starts, slots, right=True) - 1
        sums = wide.new_zeros(len(sizes), wide.shape[-1]).index_add(0, whose, wide[0])
        return sums / sizes.clamp(min=1).unsqueeze(1)
    if inputs.padding is None:
        return wide.mean(1)
    there = inputs.padding.unsqueeze(-1).to(wide.dtype)
    return (wide * there).sum(1) / there.sum(1).clamp(min=1)
