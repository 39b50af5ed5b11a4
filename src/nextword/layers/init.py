"""Initializations that recipes name. Each fills a network in place; torch draws the numbers, seeded by the trainer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def small_normal(network: nn.Module, scale: float) -> None:
    """Matrices from N(0, scale²), vectors zero."""
    for parameter in network.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=scale)
        else:
            nn.init.zeros_(parameter)


def uniform(network: nn.Module, scale: float) -> None:
    """All parameters, biases too, from U(−scale, scale), as in Zaremba et al. 2014."""
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -scale, scale)


def xavier(network: nn.Module, scale: float) -> None:
    """Glorot & Bengio 2010: Var(W) = 2 / (n_in + n_out), which keeps the variance of signals; vectors zero.

    An embedding is a lookup without a fan-in; `scale` is its standard deviation.
    """
    embeddings = {id(m.weight) for m in network.modules() if isinstance(m, nn.Embedding)}
    for parameter in network.parameters():
        if id(parameter) in embeddings:
            nn.init.normal_(parameter, std=scale)
        elif parameter.dim() > 1:
            nn.init.xavier_normal_(parameter)
        else:
            nn.init.zeros_(parameter)


def orthogonal(network: nn.Module, scale: float) -> None:
    """Recurrent matrices orthogonal, gate by gate; the rest as Xavier."""
    xavier(network, scale)
    for name, parameter in network.named_parameters():
        if "weight_hh" in name:
            width = parameter.shape[1]
            for gate in parameter.data.split(width):
                nn.init.orthogonal_(gate)


def zeros(network: nn.Module, scale: float) -> None:
    """All zero, so that units stay equal forever; for `nextword look initialization`."""
    for parameter in network.parameters():
        nn.init.zeros_(parameter)


INITIALIZATIONS = {
    "normal": small_normal,
    "uniform": uniform,
    "xavier": xavier,
    "orthogonal": orthogonal,
    "zeros": zeros,
}


def unigram_bias(bias: Tensor, counts: Sequence[int] | Tensor) -> None:
    """Output bias = log of the unigram probabilities (add-one), so that training starts from the unigram model."""
    smoothed = torch.as_tensor(counts, dtype=torch.float64) + 1
    with torch.no_grad():
        bias.copy_((smoothed / smoothed.sum()).log().to(bias.dtype))
