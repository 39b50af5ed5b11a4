"""NoisyTune: noise on pretrained weights, once, before they are fine-tuned (Wu, Wu, Qi, Huang & Xie, ACL 2022).

    W̃ = W + U(−λ/2, λ/2) · std(W)        for every parameter matrix, vector and number W

A pretrained network fits its own objective closely. A little noise, in proportion to how much each matrix varies, lets
fine-tuning leave that fit. A recipe asks for it where a phase begins with the weights of a run:

    [[phase]]
    init_from = "runs/bert"
    noise = { kind = "uniform", strength = 0.15 }

The paper has λ = 0.15 for GLUE and 0.1 for XTREME, and compares four kinds: a standard deviation for each matrix
("uniform", "gaussian"), or one for all weights together ("global-uniform", "global-gaussian"). A gaussian has the
variance of the uniform noise, λ²/12. With `embeddings = false` the word embeddings stay as they are, as in the paper's
multilingual experiments.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nextword.batching.settings import require_bool, require_choice, require_number
from nextword.core.errors import invalid, unknown

KINDS = ("uniform", "gaussian", "global-uniform", "global-gaussian")
SETTINGS = ("kind", "strength", "embeddings")
STRENGTH = 0.15  # λ of the paper for GLUE


def check_noise(options: Mapping[str, Any], has_weights: bool) -> None:
    """Validate a phase's `noise = { kind, strength, embeddings }`."""
    if not options:
        return
    for key in options:
        if key not in SETTINGS:
            raise unknown("key", key, SETTINGS, where="noise")
    require_choice("noise.kind", options.get("kind", "uniform"), KINDS)
    require_number("noise.strength", options.get("strength", STRENGTH), 0)
    require_bool("noise.embeddings", options.get("embeddings", True))
    if not has_weights:
        raise invalid("noise", dict(options), "needs pretrained weights. Set init_from, or leave noise out.")


@torch.no_grad()
def add_noise(
    network: nn.Module,
    generator: torch.Generator,
    kind: str = "uniform",
    strength: float = STRENGTH,
    skipped: Collection[str] = (),
) -> None:
    """Add noise to all parameters but the `skipped` ones, in the order of their names. Tied weights get it once."""
    parameters = {name: p for name, p in network.named_parameters() if name not in skipped}
    overall = torch.cat([p.flatten() for p in parameters.values()]).std() if kind.startswith("global-") else None
    for parameter in parameters.values():
        spread = overall if overall is not None else standard_deviation(parameter)
        parameter.add_(draw(parameter, kind, generator) * strength * spread)


def draw(like: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """Noise of variance 1/12: uniform between −½ and ½, or gaussian."""
    if kind.endswith("uniform"):
        noise = torch.rand(like.shape, generator=generator) - 0.5
    else:
        noise = torch.randn(like.shape, generator=generator) / math.sqrt(12)
    return noise.to(like)


def standard_deviation(parameter: Tensor) -> Tensor:
    """That of the numbers in a parameter. One number has none; torch.std would give NaN, and destroy it."""
    return parameter.std() if parameter.numel() > 1 else torch.zeros_like(parameter).sum()
