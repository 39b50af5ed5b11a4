"""NPLM: the neural probabilistic language model, a fixed window of words, one shared embedding, one tanh layer.

Bengio, Ducharme, Vincent & Jauvin, "A Neural Probabilistic Language Model", JMLR 3 (2003), section 2:

    x = (C(w_{t-1}), …, C(w_{t-n+1}))                      the context's embeddings, concatenated
    y = b + W x + U tanh(d + H x)                          eq. (1); W is optional (`direct`)
    P(w_t | w_{t-1}, …, w_{t-n+1}) = softmax(y)

Differences from the n-gram (ngram.py): words that behave alike get similar embeddings, so an unseen context is near a
seen one; the model grows with |V|·m, not with |V|ⁿ. Here U and W are one matrix over [tanh(d + H x); x], which is the
same sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers.output.softmax import FullSoftmax
from nextword.models.base import CausalNetwork, check_sizes


@dataclass(frozen=True)
class NPLMConfig:
    context: int = 4  # n − 1
    embedding: int = 64  # m
    width: int = 128  # h
    direct: bool = False  # connect x to the output: W
    dropout: float = 0.0  # not in the paper, which used early stopping and weight decay

    def __post_init__(self) -> None:
        check_sizes(self)


class NPLM(CausalNetwork):
    Config = NPLMConfig

    def __init__(self, config: NPLMConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.window = config.context
        width = config.context * config.embedding
        features = config.width + (width if config.direct else 0)
        self.embedding = nn.Embedding(vocabulary.size, config.embedding)  # C
        self.inner = nn.Linear(width, config.width)  # H and d
        self.readout = FullSoftmax(features, vocabulary.size)  # U, W and b
        self.widths = [width, features]

    def initial(self, batch: int) -> State:
        """The context before the first token: all begin tokens. (`step` brings the last one itself.)"""
        shape = batch, self.config.context - 1
        return torch.full(shape, self.vocabulary.begin, dtype=torch.long, device=self.device)

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """x (B, T, context·m), and what the readout reads: [tanh(d + H x); x]."""
        before = self.initial(len(inputs.ids)) if state is None else state
        ids = torch.cat([before, inputs.ids], 1)  # (B, context − 1 + T)
        c = self.embedding(ids).unfold(1, self.config.context, 1)  # (B, T, m, context)
        x = c.transpose(2, 3).flatten(2)  # (B, T, context·m)
        h = torch.tanh(self.inner(x))  # (B, T, h)
        features = torch.cat([h, x], -1) if self.config.direct else h
        features = F.dropout(features, self.config.dropout, self.training)
        return [x, features], ids[:, ids.shape[1] - before.shape[1] :]
