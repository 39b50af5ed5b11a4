"""A complete model that trains by counting and saves its own file format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nextword.core.types import Vocabulary
from nextword.models.base import Network


@dataclass(frozen=True)
class Config:
    add: float = 0.5


class Bigram(Network):
    Config = Config
    window = 1

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.counts = torch.zeros(vocabulary.size, vocabulary.size)

    def check(self, train: Any, options: Any) -> None:
        """Accept any training text and options."""

    def count(self, train: Any, valid: Any, options: Any) -> Iterator[dict[str, float]]:
        ids = torch.from_numpy(np.concatenate([[self.vocabulary.begin], train.ids.astype(np.int64)]))
        for i, part in enumerate(torch.arange(len(ids) - 1).chunk(4), 1):
            self.counts.index_put_((ids[part], ids[part + 1]), torch.ones(len(part)), accumulate=True)
            yield {"fraction": i / 4}

    def start(self, batch: int, source: Any = None) -> tuple[Tensor, None]:
        return torch.full((batch,), self.vocabulary.begin), None

    def step(self, last: Tensor, state: None) -> tuple[Tensor, None]:
        row = self.counts[last] + self.config.add
        return (row / row.sum(-1, keepdim=True)).log(), None

    def score(self, ids: Tensor, lengths: Tensor, state: None) -> tuple[Tensor, None]:
        log_p = self.step(ids[:, :-1], None)[0].gather(-1, ids[:, 1:, None])[..., 0]
        inside = torch.arange(ids.shape[1] - 1) < (lengths - 1)[:, None]
        return log_p.masked_fill(~inside, 0.0), None

    def save(self, folder: Path) -> list[str]:
        (folder / "model.counts.json").write_text(json.dumps(self.counts.tolist()))
        return ["model.counts.json"]

    @classmethod
    def load(cls, folder: Path, config: Config, vocabulary: Vocabulary) -> Bigram:
        model = cls(config, vocabulary)
        model.counts = torch.tensor(json.loads((folder / "model.counts.json").read_text()))
        return model
