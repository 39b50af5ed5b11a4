"""A head over a network: one vector for an example, and from it a class or a number. One head for every encoder.

    frames ──network.encode──▶ h (B, T, D) ──speaker, or mean──▶ (n, D) ──[dense, tanh]── linear──▶ (n, outputs)

What is read follows the papers, and is seen from what a network can do, not from its name:

    a pooler that was trained on pairs      tanh(W h₁), as BERT and ALBERT have it; it is kept and trained on
    sees both sides, has no pooler          the same with new weights: RoBERTa at <s>, XLNet at its last token
    reads from left to right                the last token's vector as it is: GPT, recurrent networks

New weights are drawn from N(0, 0.02²). With `reads = "mean"` it is the mean of all vectors of a frame, and no tanh; so
are "last", "max" and "concat", which is all three (pooling.py). With `classifier = "blocks"` there are two linear
layers or more, with batch norm (blocks.py).

    frames ──a layer of network.encode──▶ (B, T, D) ──biattentive.py──▶ (n, outputs)

With `classifier = "biattentive"` a network of its own reads all vectors, and none has to speak for the others. `frozen`
leaves the network under the head as it came: what it gives are features. `chunk` and `kept` are for texts of any length
over a network that carries its state from left to right (pieces.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.contract import Batch, Inputs, State
from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Infilling
from nextword.heads.biattentive import Biattentive
from nextword.heads.blocks import Blocks
from nextword.heads.over import FILE as FILE
from nextword.heads.over import Over
from nextword.heads.pieces import in_pieces
from nextword.heads.pooling import TIMES, pooled, rows
from nextword.models.frames import SPREAD, combine

READS = ("speaker", *TIMES)
CLASSIFIERS = ("linear", "blocks", "biattentive")


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
    inner: Sequence[int] = (50,)  # of blocks: widths between the linear layers
    drops: Sequence[float] = ()  # of blocks: what is dropped before each linear layer; empty: `dropout`
    chunk: int = 0  # tokens read at once, the state carried over; 0: all
    kept: int = 0  # tokens at the end of a text that the head reads and the gradient reaches; 0: all
    weights: tuple[float, ...] = ()  # of the classes in the loss; none: all alike

    def __post_init__(self) -> None:
        for name, known in (("reads", READS), ("classifier", CLASSIFIERS)):
            if getattr(self, name) not in known:
                raise NextwordError(f"[task] {name} = {getattr(self, name)!r}; expected {' or '.join(known)}.")
        for name in ("width", "reduction"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise NextwordError(f"[task] {name} = {value!r} must be a whole number of at least 1.")
        for name in ("chunk", "kept"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise NextwordError(f"[task] {name} = {value!r} must be a whole number of tokens, or 0 for all.")
        if self.kept and not self.kept >= self.chunk > 0:
            raise NextwordError(
                f"[task] kept = {self.kept} with chunk = {self.chunk}: what is kept are whole pieces of a text, so it "
                "has to be as long as one at least, as in chunk = 70, kept = 1400."
            )
        self._check_blocks()
        if not isinstance(self.frozen, bool):
            raise NextwordError(f"[task] frozen = {self.frozen!r} must be true or false.")
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, (int, float)) or not 0 <= self.dropout < 1:
            raise NextwordError(f"[task] dropout = {self.dropout!r} is the share dropped before the head, below 1.")

    def _check_blocks(self) -> None:
        whole = all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in self.inner)
        if not whole:
            raise NextwordError(f"[task] inner = {list(self.inner)} are widths between linear layers, as [50].")
        shares = all(isinstance(p, (int, float)) and not isinstance(p, bool) and 0 <= p < 1 for p in self.drops)
        if not shares or len(self.drops) not in (0, len(self.inner) + 1):
            raise NextwordError(
                f"[task] drops = {list(self.drops)}: give the share dropped before each of the {len(self.inner) + 1} "
                "linear layers, below 1, as [0.4, 0.1]; or none, for dropout before each."
            )


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
        speaker, inputs = config.reads == "speaker", TIMES.get(config.reads, 1) * width
        self.pools = speaker and self.at == -1 and getattr(network, "pooler", None) is not None
        if config.classifier == "blocks":
            drops = tuple(config.drops) or (config.dropout,) * (len(config.inner) + 1)
            self.out = Blocks(inputs, config.inner, config.outputs, drops)
            return
        dense = speaker and not self.pools and isinstance(network, Infilling)
        self.dense = nn.Linear(width, width) if dense else None
        self.out = nn.Linear(inputs, config.outputs)
        for layer in (self.dense, self.out):
            if layer is not None:
                nn.init.normal_(layer.weight, std=SPREAD)
                nn.init.zeros_(layer.bias)

    @property
    def recordable(self) -> bool:
        """Whether forward and backward ask nothing of a GPU on the way."""
        plain = type(self) is Headed and self.config.classifier == "linear" and self.config.reads in ("speaker", "mean")
        return plain and not self.carries and bool(getattr(self.under, "recordable", False))

    # -------------------------------------------------------------------------------------------- what it computes

    def forward(self, batch: Batch) -> Tensor:
        """(n, outputs) in 32 bits: logits of the classes, or one number."""
        if self.carries:
            return self.judge(*self.read_on(batch))
        return self.judge(self.read_layer(batch.inputs), batch)

    @property
    def carries(self) -> bool:
        """Are texts read piece by piece?"""
        return bool(self.config.chunk) and getattr(self.under, "carries", False)

    def read_on(self, batch: Batch) -> tuple[Tensor, Batch]:
        """What the head reads of texts of any length, and the batch as it lies then."""
        frames = len(batch.inputs.ids) if batch.inputs.starts is None else len(batch.inputs.starts) - 1

        def read(inputs: Inputs, state: State) -> tuple[Tensor, State]:
            layers, state = self.under.encode(inputs, state)
            return layers[self.at], state

        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.frozen):
            initial = self.under.start(frames)[1]
            drawn = self.under.training and self.under.locks
            return in_pieces(read, initial, batch, self.config.chunk, self.config.kept, drawn)

    def judge(self, h: Tensor, batch: Batch) -> Tensor:
        """The same of the layer that is read (B, T, D), for whoever needs that layer besides."""
        h = h[..., : self.under.widths[self.at]]
        frames = None if batch.at is None else len(batch.at)  # a text that only fills up a row is none of them
        if self.config.classifier == "biattentive":
            x, there = (t[:frames] for t in rows(h, batch.inputs))
            with torch.autocast(x.device.type, enabled=False):
                return self.out(x.to(self.out.out.weight.dtype), there, len(x) // len(batch.targets))
        if self.config.reads != "speaker":
            x = pooled(self.config.reads, h, batch.inputs)[:frames]
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
        if self.config.classifier == "linear":
            x = F.dropout(x, self.config.dropout, self.training)
        with torch.autocast(x.device.type, enabled=False):
            return self.out(x.to(next(self.out.parameters()).dtype))
