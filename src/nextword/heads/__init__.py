"""A head over a network: one vector for an example, and from it a class or a number. One head for every encoder.

    frames ──network.encode──▶ h (B, T, D) ──speaker, or mean──▶ (n, D) ──[dense, tanh]── linear──▶ (n, outputs)

What is read follows the papers, and is seen from what a network can do, not from its name:

    a pooler that was trained on pairs      tanh(W h₁), as BERT and ALBERT have it; it is kept and trained on
    sees both sides, has no pooler          the same with new weights: RoBERTa at <s>, XLNet at its last token
    reads from left to right                the last token's vector as it is: GPT, recurrent networks

New weights are drawn from N(0, 0.02²). With `reads = "mean"` it is the mean of all vectors of a frame, and no tanh.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nextword.contract import Batch, Infilling, Inputs, NextwordError, Vocabulary
from nextword.models.frames import SPREAD, combine

FILE = "head.safetensors"
READS = ("speaker", "mean")


@dataclass(frozen=True)
class HeadConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    outputs: int  # classes, or 1 for a number
    frame: str = "classify"  # how examples are framed: models/frames.py
    reads: str = "speaker"
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.reads not in READS:
            raise NextwordError(f"[task] reads = {self.reads!r}; expected {' or '.join(READS)}.")
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, (int, float)) or not 0 <= self.dropout < 1:
            raise NextwordError(f"[task] dropout = {self.dropout!r} is the share dropped before the head, below 1.")


class Headed(nn.Module):
    """A network and the head over it, trained, saved and loaded as one. The network's own files stay as they are, so
    that a run of it can be read without its head."""

    def __init__(self, config: HeadConfig, network: Any) -> None:
        super().__init__()
        self.config, self.under = config, network
        width = network.widths[-1]
        speaker = config.reads == "speaker"
        self.pools = speaker and getattr(network, "pooler", None) is not None
        dense = speaker and not self.pools and isinstance(network, Infilling)
        self.dense = nn.Linear(width, width) if dense else None
        self.out = nn.Linear(width, config.outputs)
        for layer in (self.dense, self.out):
            if layer is not None:
                nn.init.normal_(layer.weight, std=SPREAD)
                nn.init.zeros_(layer.bias)

    # -------------------------------------------------------------------------------------------- what it computes

    def forward(self, batch: Batch) -> Tensor:
        """(n, outputs) in 32 bits: logits of the classes, or one number."""
        return self.judge(self.under.encode(batch.inputs)[0][-1], batch)

    def judge(self, h: Tensor, batch: Batch) -> Tensor:
        """The same of the last layer (B, T, D), for whoever needs that layer besides."""
        h = h[..., : self.under.widths[-1]]
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
        return self.out.weight.device

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
