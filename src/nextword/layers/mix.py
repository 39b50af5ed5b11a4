"""The task's mix of a network's layers: γ · Σ_j softmax(s)_j · h_j (Peters et al. 2018, eq. 1).

Weights begin equal and γ at 1. With `norm`, each layer is brought to mean 0 and spread 1 first, over all its elements
that are there, as the original does it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

EPSILON = 1e-12  # within the root of the spread


class ScalarMix(nn.Module):
    def __init__(self, layers: int, norm: bool = False) -> None:
        super().__init__()
        self.norm = norm
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, stack: Tensor, mask: Tensor | None = None) -> Tensor:
        """(L, …, D), (…) True where there is a word → (…, D)."""
        if self.norm:
            stack = torch.stack([_normal(layer, mask) for layer in stack])
        return self.gamma * torch.einsum("l,l...->...", self.weights(), stack)

    def weights(self) -> Tensor:
        return self.scores.softmax(0)


def _normal(layer: Tensor, mask: Tensor | None) -> Tensor:
    there = layer[mask] if mask is not None else layer
    mean = there.mean()
    return (layer - mean) / ((there - mean).square().mean() + EPSILON).sqrt()
