"""Attention of a decoder over a source that has been read: which of its tokens matter for the next word.

    weights_j = softmax_j(e(query, memory_j))        context = Σ_j weights_j · memory_j

    Additive         e = vᵀ tanh(W q + U m_j)        Bahdanau, Cho & Bengio 2015; Luong's "concat"
    Multiplicative   e = qᵀ W m_j, or qᵀ m_j         Luong, Pham & Manning 2015: "general" and "dot"

What depends on the memory alone, `keys`, is computed once a source; for a look at every step `looking` gives a function
of the query that leaves gradients of weights and memory for the end (deferred.py). Shapes: query (B, T, D), memory (B,
S, M), there (B, S) True where there is a source token; the answer is context (B, T, M) and weights (B, T, S).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nextword.contract_errors import NextwordError
from nextword.layers.deferred import Deferred, Energies, Mixture

SCORES = ("general", "dot", "concat")
Look = Callable[[Tensor], tuple[Tensor, Tensor]]


class Looking(nn.Module):
    def keys(self, memory: Tensor) -> Tensor:
        raise NotImplementedError  # each of the two below

    def looking(self, keys: Tensor, memory: Tensor, there: Tensor) -> Look:
        raise NotImplementedError  # each of the two below

    def forward(self, query: Tensor, keys: Tensor, memory: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        return self.looking(keys, memory, there)(query)


class Additive(Looking):
    def __init__(self, query: int, memory: int, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(query, width)
        self.key = nn.Linear(memory, width, bias=False)
        self.score = nn.Parameter(torch.empty(width))
        nn.init.uniform_(self.score, -(width**-0.5), width**-0.5)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)

    def looking(self, keys: Tensor, memory: Tensor, there: Tensor) -> Look:
        asked, energies = Deferred(self.query.weight, self.query.bias), Energies(keys, self.score)
        mixture = Mixture(memory)

        def look(query: Tensor) -> tuple[Tensor, Tensor]:
            return weighted(energies(asked(query)), mixture, there)

        return look


class Multiplicative(Looking):
    """With `scaled`, scores are multiplied by one learnt number, which lets the softmax be as sharp as it pays."""

    def __init__(self, query: int, memory: int, score: str = "general", scaled: bool = False) -> None:
        super().__init__()
        if score not in SCORES:
            raise NextwordError(f"[model] score = {score!r}; expected {', '.join(SCORES[:-1])} or {SCORES[-1]}.")
        if score == "dot" and query != memory:
            raise NextwordError(
                f'[model] score = "dot" needs vectors of one width, but the decoder\'s have {query} numbers and the '
                f'encoder\'s {memory}. Use "general", or make them alike.'
            )
        self.key = nn.Linear(memory, query, bias=False) if score == "general" else None
        self.scale = nn.Parameter(torch.ones(())) if scaled else None

    def keys(self, memory: Tensor) -> Tensor:
        return memory if self.key is None else self.key(memory)

    def looking(self, keys: Tensor, memory: Tensor, there: Tensor) -> Look:
        mixture, keys = Mixture(memory), keys.transpose(1, 2)

        def look(query: Tensor) -> tuple[Tensor, Tensor]:
            e = query @ keys  # (B, T, S)
            return weighted(e if self.scale is None else e * self.scale, mixture, there)

        return look


def luongs(query: int, memory: int, score: str, scaled: bool) -> Looking:
    """One of his three: two of them multiply, the third adds."""
    if score != "concat":
        return Multiplicative(query, memory, score, scaled)
    if scaled:
        raise NextwordError('[model] scaled = true is for score = "general" and "dot"; "concat" learns its own scale.')
    return Additive(query, memory, query)


def weighted(e: Tensor, mixture: Mixture, there: Tensor) -> tuple[Tensor, Tensor]:
    weights = e.masked_fill(~there.unsqueeze(1), float("-inf")).softmax(-1)
    return mixture(weights.to(mixture.memory.dtype)), weights
