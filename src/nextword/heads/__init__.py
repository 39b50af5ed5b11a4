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
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nextword.contract import Batch, Infilling, Inputs, NextwordError, Vocabulary
from nextword.heads.biattentive import Biattentive
from nextword.models.frames import SPREAD, combine

FILE = "head.safetensors"
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


class Headed(nn.Module):
    """A network and the head over it, trained, saved and loaded as one. The network's own files stay as they are, so
    that a run of it can be read without its head."""

    def __init__(self, config: HeadConfig, network: Any) -> None:
        super().__init__()
        self.config, self.under = config, network
        self.at = layer_of(network, config.features)
        width = network.widths[self.at]
        self.out: Any
        self.dense: nn.Linear | None = None
        self.pools = False
        if config.frozen:
            network.requires_grad_(False)
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

    def train(self, mode: bool = True) -> Headed:
        """What is frozen does not drop anything either."""
        super().train(mode)
        if self.config.frozen:
            self.under.eval()
        return self

    # -------------------------------------------------------------------------------------------- what it computes

    def forward(self, batch: Batch) -> Tensor:
        """(n, outputs) in 32 bits: logits of the classes, or one number."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.frozen):
            h = self._read(batch.inputs)
        return self.judge(h, batch)

    def _read(self, inputs: Inputs) -> Tensor:
        if hasattr(self.under, "layer_at"):
            return self.under.layer_at(inputs, self.at)
        return self.under.encode(inputs)[0][self.at]

    def judge(self, h: Tensor, batch: Batch) -> Tensor:
        """The same of the layer that is read (B, T, D), for whoever needs that layer besides."""
        h = h[..., : self.under.widths[self.at]]
        if self.config.classifier == "biattentive":
            x, there = rows(h, batch.inputs)
            with torch.autocast(x.device.type, enabled=False):
                return self.out(x.to(self.out.out.weight.dtype), there, len(x) // len(batch.targets))
        if self.config.reads == "mean":
            x = mean(h, batch.inputs)
        else:
            assert batch.at is not None
            x = h.reshape(-1, h.shape[-1]).index_select(0, batch.at)  # (frames, D)
        if self.pools:
            x = self.under.pooled(x)
        elif self.dense is not None:
            x = torch.tanh(self.dense(F.dropout(x, self.config.dropout, self.training)))
        x = combine(self.config.frame, x.view(len(batch.targets), -1, x.shape[-1]))
        x = F.dropout(x, self.config.dropout, self.training)
        with torch.autocast(x.device.type, enabled=False):
            return self.out(x.to(self.out.weight.dtype))

    # -------------------------------------------------------------------------------------------- as the loop sees it

    @property
    def vocabulary(self) -> Vocabulary:
        return self.under.vocabulary

    readout: Any = None  # not the network's: nothing of it is to be made ready for the words of a task

    @property
    def device(self) -> torch.device:
        return next(self.out.parameters()).device

    @property
    def checkpointing(self) -> bool:
        return self.under.checkpointing

    @checkpointing.setter
    def checkpointing(self, value: bool) -> None:
        self.under.checkpointing = value

    @property
    def compile_training(self) -> Any:
        return self.under.compile_training

    # -------------------------------------------------------------------------------------------- files

    def save(self, folder: Path) -> list[str]:
        save_file({name: t.contiguous() for name, t in self._own().items()}, str(folder / FILE))
        return [*self.under.save(folder), FILE]

    @classmethod
    def load(cls, folder: Path, config: HeadConfig, vocabulary: Vocabulary) -> Headed:
        headed = cls(config, config.model.load(folder, config.settings, vocabulary))
        found, wanted = load_file(str(folder / FILE)), headed._own()
        if {n: t.shape for n, t in found.items()} != {n: t.shape for n, t in wanted.items()}:
            raise NextwordError(
                f"{folder / FILE} does not fit its recipe's [task]: one of them was changed after training. Restore "
                "either from where it came."
            )
        headed.load_state_dict(found, strict=False)
        return headed.eval()

    def _own(self) -> dict[str, Tensor]:
        """The head's tensors, without the network's."""
        return {name: t for name, t in self.state_dict().items() if not name.startswith("under.")}


def layer_of(network: Any, name: str) -> int:
    """Which layer of `encode` a name or a number means."""
    names = getattr(network, "layers_of", {})
    if not name:
        return -1
    if name in names:
        return names[name]
    depth = len(network.widths)
    if not name.lstrip("-").isdigit() or not -depth <= int(name) < depth:
        known = ", ".join([*names, f"a layer from 0 (words) to {depth - 1}, or −1 for the last"])
        raise NextwordError(f"[task] features = {name!r}; {type(network).__name__} has {known}.")
    return -1 if int(name) == depth - 1 else int(name)  # the last has one name: what is kept for it is kept either way


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
