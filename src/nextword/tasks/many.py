"""Heads of several tasks over one network: a class of one text, a class of two, a number. A batch is of one task.

    texts ──network.encode──▶ h ─┬─ head of task 0 ──▶ (n, outputs₀)
                                 └─ head of task 1 ──▶ (n, outputs₁)          `batch.part` says which

Each head is as heads/__init__.py has it. All that the network has of its own, its pooler too, is shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.types import Batch
from nextword.tasks.base import ModelWithHead
from nextword.tasks.heads import HeadConfig, Headed


@dataclass(frozen=True)
class ManyConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    heads: tuple[HeadConfig, ...]  # one for each task
    features: str = ""
    frozen: bool = False


class ManyHeaded(ModelWithHead):
    def __init__(self, config: ManyConfig, network: Any) -> None:
        super().__init__(config, network)
        # A list that torch does not look into: what is a head's alone is registered below, the network once
        self.heads = [Headed(one, network) for one in config.heads]
        self.out = nn.ModuleList(head.out for head in self.heads)
        self.dense = nn.ModuleList(head.dense for head in self.heads if head.dense is not None)
        self.widest = max(one.outputs for one in config.heads)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for head in self.heads:
            head.train(mode)
        return self

    def forward(self, batch: Batch) -> Tensor:
        return self.heads[batch.part](batch)

    def judge(self, h: Tensor, batch: Batch) -> Tensor:
        return self.heads[batch.part].judge(h, batch)

    def evened(self, said: Tensor) -> Tensor:
        """As many columns for every task, so that they lie in one table: those that it has not are never chosen."""
        return F.pad(said, (0, self.widest - said.shape[1]), value=-float("inf"))
