"""word2vec: word vectors that tell the words around a position from random words.

Mikolov, Sutskever, Chen, Corrado & Dean, "Distributed Representations of Words and Phrases and their Compositionality"
(2013), section 2.2; the two networks are those of Mikolov, Chen, Corrado & Dean, "Efficient Estimation of Word
Representations in Vector Space" (2013).

    log σ(u_w · v_x) + Σ_k log σ(−u_{n_k} · v_x)        eq. (4): x occurs near w; the noise n_k ~ count^¾ need not

    skip-gram     for every word x around w, one by one
    cbow          once, v_x being the mean of the words around w

Differences from NPLM (nplm.py): no hidden layer, no word order, no softmax over all words. Only the vectors v are
wanted, so it is no language model. As in the authors' program, the surrounding words have v and the center word has u;
the words of a window share their noise (Ji et al., "Parallelizing Word2Vec in Shared and Distributed Memory", 2016).
The gradient of the mean is divided among its words, which the program forgets (İrsoy et al. 2021).

`scores` is the readable reference; `learn` takes one SGD step per window, compiled (kernels/word2vec.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.types import Batch, Inputs, Loss, Vocabulary
from nextword.kernels.dispatch import train_windows
from nextword.models.base import WordVectorNetwork, check_sizes


@dataclass(frozen=True)
class Word2VecConfig:
    width: int = 100
    cbow: bool = False

    def __post_init__(self) -> None:
        check_sizes(self)


class Word2Vec(WordVectorNetwork):
    Config = Word2VecConfig
    learns_with = "sgd"

    def __init__(self, config: Word2VecConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        shape, reach = (vocabulary.size, config.width), 0.5 / config.width
        self.words = nn.Parameter(torch.empty(shape).uniform_(-reach, reach))  # v
        self.contexts = nn.Parameter(torch.zeros(shape))  # u

    @property
    def table(self) -> Tensor:
        return self.words

    @classmethod
    def from_vectors(cls, config: Word2VecConfig, vocabulary: Vocabulary, vectors: Tensor) -> Word2Vec:
        network = cls(config, vocabulary)
        network.words.data.copy_(vectors)
        return network

    def scores(self, inputs: Inputs, targets: Tensor) -> Tensor:
        """u · v of the words around each position, or of their mean, with its targets: (N, C or 1, 1 + K)."""
        assert inputs.token_mask is not None
        there = inputs.token_mask.unsqueeze(-1)
        x = F.embedding(inputs.ids.clamp(min=0), self.words) * there  # (N, C, D)
        if self.config.cbow:
            x = x.sum(1, keepdim=True) / there.sum(1, keepdim=True)
        return x @ F.embedding(targets.clamp(min=0), self.contexts).transpose(1, 2)

    def learn(self, batch: Batch, optimizer: Any) -> Loss:
        """One SGD step per window. The loss is estimated from every 16th window."""
        rate, cost = np.float32(optimizer.param_groups[0]["lr"]), np.zeros(3)
        words, contexts = self.words.data.numpy(), self.contexts.data.numpy()
        around, targets = batch.inputs.ids.numpy(), batch.targets.numpy()
        train_windows(words, contexts, around, targets, rate, self.config.cbow, cost)
        nats = torch.tensor(cost[0] / max(cost[1], 1) * cost[2], dtype=torch.float64)
        return Loss(nats, nats, int(cost[2]))
