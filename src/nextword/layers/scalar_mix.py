"""One vector out of a network's layers, in shares that a task learns (Peters et al. 2018, eq. 1).

    mix = γ Σ_j s_j LN?(h_j)        s = softmax(w), w begins at 0 and γ at 1: at first the mean of the layers

The norm, where it is wanted, is the original's: each layer less one mean and over one deviation, those of all numbers
of the layer that belong to tokens, with nothing learnt. `penalty` is λ‖w‖², which holds the shares together: with a
large λ the mix stays the mean, with a small one a task chooses its layers. A task may want several mixes: one for its
input, another for its output.

    layers, _ = network.encode(inputs)                                  # frozen: under torch.no_grad()
    mixes = Mixes(len(layers), 2, dropout=0.5)
    first, second = mixes(layers, inputs.padding)
    loss = loss + mixes.penalty()
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError

TINY = 1e-12  # added to a variance


class ScalarMix(nn.Module):
    def __init__(self, layers: int, norm: bool = False, weight: float = 0.0, dropout: float = 0.0) -> None:
        """`weight` is λ."""
        super().__init__()
        if layers < 1 or weight < 0 or not 0 <= dropout < 1:
            raise NextwordError(
                f"A mix of {layers} layers with a penalty of {weight} and dropout {dropout}: expected a layer or more, "
                "a penalty that is not negative, and a share from 0 up to below 1."
            )
        self.norm, self.weight, self.dropout = norm, weight, dropout
        self.w = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def shares(self) -> Tensor:
        """s, which add up to one."""
        return torch.softmax(self.w, 0)

    def forward(self, layers: Sequence[Tensor] | Tensor, padding: Tensor | None = None) -> Tensor:
        """Each (B, T, D) → (B, T, D); `padding` (B, T) is true where there is a token, as in `Inputs`."""
        if len(layers) != len(self.w):
            raise NextwordError(f"A mix of {len(self.w)} layers was given {len(layers)}.")
        if self.norm:
            layers = [normed(layer, padding) for layer in layers]
        stack = layers if isinstance(layers, Tensor) else torch.stack(list(layers))
        mixed = self.gamma * torch.einsum("j,j...->...", self.shares.to(stack.dtype), stack)
        return F.dropout(mixed, self.dropout, self.training)

    def penalty(self) -> Tensor:
        return self.weight * self.w.pow(2).sum()


class Mixes(nn.Module):
    """Several mixes of the same layers, each with its own shares."""

    def __init__(self, layers: int, number: int, norm: bool = False, weight: float = 0.0, dropout: float = 0.0) -> None:
        super().__init__()
        self.mixes = nn.ModuleList(ScalarMix(layers, norm, weight, dropout) for _ in range(number))

    def forward(self, layers: Sequence[Tensor], padding: Tensor | None = None) -> list[Tensor]:
        return [mix(layers, padding) for mix in self.mixes]

    def penalty(self) -> Tensor:
        return torch.stack([mix.penalty() for mix in self.mixes]).sum()  # type: ignore[operator]


def normed(layer: Tensor, padding: Tensor | None = None) -> Tensor:
    """Mean 0 and variance 1 over all numbers of its tokens together."""
    if padding is None:
        mean, variance = layer.mean(), layer.var(correction=0)
    else:
        inside = padding.unsqueeze(-1).to(layer.dtype)
        count = inside.sum() * layer.shape[-1]
        mean = (layer * inside).sum() / count
        variance = (((layer - mean) * inside) ** 2).sum() / count
    return (layer - mean) / torch.sqrt(variance + TINY)
