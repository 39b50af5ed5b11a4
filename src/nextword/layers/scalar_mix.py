"""A learned mix of a network's layers (Peters et al. 2018, eq. 1).

    mix = γ Σ_j s_j LN?(h_j)        s = softmax(w), w starts at 0 and γ at 1: at first the mean of the layers

The optional norm is the original's: each layer minus one mean, divided by one standard deviation, over all numbers of
the layer that belong to tokens, without parameters. `penalty` is λ‖w‖²: with a large λ the mix stays the mean, with a
small one a task chooses its layers. A task may use several mixes, such as one for its input and one for its output:

    layers, _ = network.encode(inputs)                                  # frozen: under torch.no_grad()
    mixes = ScalarMixes(len(layers), 2, dropout=0.5)
    first, second = mixes(layers, inputs.token_mask)
    loss = loss + mixes.penalty()
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import DataError, InvalidSetting

TINY = 1e-12  # added to a variance


class ScalarMix(nn.Module):
    def __init__(self, layers: int, norm: bool = False, weight: float = 0.0, dropout: float = 0.0) -> None:
        """`weight` is λ."""
        super().__init__()
        if layers < 1 or weight < 0 or not 0 <= dropout < 1:
            raise InvalidSetting(
                f"A mix of {layers} layers with penalty {weight} and dropout {dropout}: expected at least one layer, a "
                "penalty of at least 0, and a dropout below 1.",
                key="scalar_mix",
                value=(layers, weight, dropout),
            )
        self.norm, self.weight, self.dropout = norm, weight, dropout
        self.w = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def shares(self) -> Tensor:
        """s: the weights of the layers, which sum to 1."""
        return torch.softmax(self.w, 0)

    def forward(self, layers: Sequence[Tensor] | Tensor, token_mask: Tensor | None = None) -> Tensor:
        """Layers of (B, T, D) each → (B, T, D); `token_mask` (B, T) as in `Inputs`."""
        if len(layers) != len(self.w):
            raise DataError(f"This mix has weights for {len(self.w)} layers, but got {len(layers)}.")
        if self.norm:
            layers = [normalize_layer(layer, token_mask) for layer in layers]
        stack = layers if isinstance(layers, Tensor) else torch.stack(list(layers))
        mixed = self.gamma * torch.einsum("j,j...->...", self.shares.to(stack.dtype), stack)
        return F.dropout(mixed, self.dropout, self.training)

    def penalty(self) -> Tensor:
        return self.weight * self.w.pow(2).sum()


class ScalarMixes(nn.Module):
    """Several mixes of the same layers, each with its own weights."""

    def __init__(self, layers: int, number: int, norm: bool = False, weight: float = 0.0, dropout: float = 0.0) -> None:
        super().__init__()
        self.mixes = nn.ModuleList(ScalarMix(layers, norm, weight, dropout) for _ in range(number))

    def forward(self, layers: Sequence[Tensor], token_mask: Tensor | None = None) -> list[Tensor]:
        return [mix(layers, token_mask) for mix in self.mixes]

    def penalty(self) -> Tensor:
        return torch.stack([mix.penalty() for mix in self.mixes]).sum()  # type: ignore[operator]


def normalize_layer(layer: Tensor, token_mask: Tensor | None = None) -> Tensor:
    """Mean 0 and variance 1 over all numbers of all tokens."""
    if token_mask is None:
        mean, variance = layer.mean(), layer.var(correction=0)
    else:
        inside = token_mask.unsqueeze(-1).to(layer.dtype)
        count = inside.sum() * layer.shape[-1]
        mean = (layer * inside).sum() / count
        variance = (((layer - mean) * inside) ** 2).sum() / count
    return (layer - mean) / torch.sqrt(variance + TINY)
