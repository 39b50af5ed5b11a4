"""Regression: a number for a text or for a pair of texts, as STS-B's similarity from 0 to 5.

    J = 1/n Σ (f(example) − (label − mean) / std)²

Labels are standardized by the mean and the standard deviation of the training labels, and predictions scaled back.
"Nats" in the log are these squared errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nextword.batching.examples import Examples
from nextword.data.tables import Columns
from nextword.models.base import Network
from nextword.run_folder import RunFolder
from nextword.tasks.base import Dataset, Wording, from_data
from nextword.tasks.classification import Classifier, TextHeadConfig, TextTask
from nextword.tasks.heads import ModelWithHead, TextHead
from nextword.tasks.text_data import TextDataset, read_one


@dataclass(frozen=True)
class RegressionConfig(TextHeadConfig):
    mean: float = from_data(0.0)  # of the training labels
    std: float = from_data(1.0)


class Regression(TextTask[TextDataset, Examples, Classifier]):
    Config = RegressionConfig
    config: RegressionConfig

    @property
    def is_numeric(self) -> bool:
        return True

    @property
    def outputs(self) -> int:
        return 1

    def read(self, source: str, columns: Columns = Columns(), kind: str = "") -> Dataset:
        return read_one(source, columns, kind or self.config.kind)

    def settings_from(self, data: TextDataset, run: RunFolder | None) -> dict[str, Any]:
        mean, std = data.scale
        return super().settings_from(data, run) | {"mean": mean, "std": std}

    def encode_labels(self, labels: Sequence[str]) -> np.ndarray:
        return ((np.array(labels, np.float64) - self.config.mean) / self.config.std).astype(np.float32)

    def decode(self, outputs: np.ndarray) -> np.ndarray:
        return outputs * self.config.std + self.config.mean

    def head(self, network: Network) -> ModelWithHead:
        return TextHead(network, self.config, outputs=1)

    def wording(self) -> Wording:
        return replace(super().wording(), loss_unit="squared error")
