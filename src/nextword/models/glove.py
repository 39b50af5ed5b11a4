"""GloVe: word vectors whose products are the logarithms of co-occurrence counts.

Pennington, Socher & Manning, "GloVe: Global Vectors for Word Representation" (2014), section 3, eq. (8):

    J = ½ Σ_ij f(X_ij) (w_i · w̃_j + b_i + b̃_j − log X_ij)²          f(x) = min(1, (x / x_max)^¾)

X is counted once (batching/word_vectors.py); training factorizes its logarithm. A word's vector is w + w̃.

Differences from word2vec (word2vec.py): it reads counts, not text, so a pair that occurs a thousand times is one cell
and not a thousand windows; no noise is needed, because zero cells are left out (f(0) = 0). The ½, AdaGrad and one step
per cell are the authors' program's, whose learning rate (0.05) belongs to them.

`scores` is the readable reference; `learn` is compiled (kernels/word2vec.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.types import Batch, Inputs, Loss, Vocabulary
from nextword.kernels.dispatch import train_cells
from nextword.models.base import WordVectorNetwork, check_sizes


@dataclass(frozen=True)
class GloVeConfig:
    width: int = 100

    def __post_init__(self) -> None:
        check_sizes(self)


class GloVe(WordVectorNetwork):
    Config = GloVeConfig
    learns_with = "adagrad"

    def __init__(self, config: GloVeConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        reach = 0.5 / config.width

        def random(width: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(vocabulary.size, width).uniform_(-reach, reach))

        self.words, self.contexts = random(config.width), random(config.width)  # w, w̃
        self.biases, self.others = random(1), random(1)  # b, b̃

    @property
    def table(self) -> Tensor:
        return self.words + self.contexts

    @classmethod
    def from_vectors(cls, config: GloVeConfig, vocabulary: Vocabulary, vectors: Tensor) -> GloVe:
        network = cls(config, vocabulary)
        network.words.data.copy_(vectors)
        for rest in (network.contexts, network.biases, network.others):
            rest.data.zero_()
        return network

    def scores(self, inputs: Inputs) -> Tensor:
        """w_i · w̃_j + b_i + b̃_j of pairs (N, 2): (N,)."""
        i, j = inputs.ids.unbind(1)
        product = (F.embedding(i, self.words) * F.embedding(j, self.contexts)).sum(1)
        return product + F.embedding(i, self.biases)[:, 0] + F.embedding(j, self.others)[:, 0]

    def learn(self, batch: Batch, optimizer: Any) -> Loss:
        """One AdaGrad step per cell; the sums of squared gradients are the optimizer's."""
        group = optimizer.param_groups[0]
        tables = (self.words, self.contexts, self.biases, self.others)
        sums = tuple(optimizer.state[table]["sum"].numpy() for table in tables)
        rate, eps = np.float32(group["lr"]), np.float32(group["eps"])
        pairs, wanted = batch.inputs.ids.numpy(), batch.targets.numpy()
        cost = torch.tensor(train_cells(*(t.data.numpy() for t in tables), sums, pairs, wanted, rate, eps)).double()
        return Loss(cost, cost, len(pairs))
