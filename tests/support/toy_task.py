"""A new task in one file: the parity of the number of words in a text, from a csv file with a column `text`.

The data have no labels: they are computed. One linear layer over the mean of a text's vectors predicts "even" or "odd".
Everything else is inherited: reading, encoding, training, files, predictions, metrics, error analysis and the report.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from nextword.batching.examples import Examples
from nextword.core.types import Batch
from nextword.data.tables import Columns, Rows
from nextword.models.base import Network
from nextword.tasks.classification import Classifier, TextHeadConfig, TextTask
from nextword.tasks.heads import ModelWithHead, mean_pool
from nextword.tasks.text_data import TextDataset


@dataclass(frozen=True)
class ParityConfig(TextHeadConfig):
    scale: float = 1.0  # of the logits

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("scale", self.scale > 0, "a number above 0")


class ParityHead(ModelWithHead):
    def __init__(self, network: Network, scale: float) -> None:
        super().__init__(network)
        self.scale = scale
        self.out = nn.Linear(network.widths[self.layer_index], 2)

    def score_layer(self, h: Tensor, batch: Batch) -> Tensor:
        """(n, 2) logits."""
        return self.scale * self.out(mean_pool(h, batch.inputs))


class Parity(TextTask[TextDataset, Examples, Classifier]):
    """Whether a text has an even or an odd number of words."""

    Config = ParityConfig
    data_kind = "plain texts"

    def read(self, source: str, columns: Columns = Columns(), kind: str = "") -> TextDataset:
        with Path(source).open(encoding="utf-8") as file:
            texts = [row["text"] for row in csv.DictReader(file)]
        labels = [("even", "odd")[len(text.split()) % 2] for text in texts]
        rows, dev = Rows(texts, None, labels), len(texts) // 5
        splits = {"train": rows.take(range(dev, len(texts))), "dev": rows.take(range(dev))}
        return TextDataset(source, "parity", "classify", ("even", "odd"), ("accuracy",), splits, Columns("text"))

    def head(self, network: Network) -> ModelWithHead:
        return ParityHead(network, self.config.scale)
