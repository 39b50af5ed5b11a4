"""The classifier of Howard & Ruder (2018, section 3.3): blocks of batch norm, dropout and a linear layer.

x ─ norm ─ dropout 0.4 ─ linear to 50 ─ relu ─ norm ─ dropout 0.1 ─ linear to the classes
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Blocks(nn.Module):
    """`inner`: the widths between the linear layers; `drops`: the share that is dropped before each of them."""

    def __init__(self, inputs: int, inner: Sequence[int], outputs: int, drops: Sequence[float]) -> None:
        super().__init__()
        sizes = [inputs, *inner, outputs]
        self.drops = tuple(drops)
        self.norms = nn.ModuleList(Norm(size) for size in sizes[:-1])
        self.linear = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        shape = x.shape[:-1]
        x = x.flatten(0, -2)
        for i, (norm, linear, drop) in enumerate(zip(self.norms, self.linear, self.drops, strict=True)):
            x = torch.relu(x) if i else x
            x = linear(F.dropout(norm(x), drop, self.training))
        return x.unflatten(0, shape)


class Norm(nn.BatchNorm1d):
    """Batch norm that can be used after a few steps: what is kept of all batches is their mean at first.

    Torch begins with a variance of 1 and goes a tenth towards that of each batch. The vectors of a text may differ from
    another's by hundredths, so that after fifty steps, all that a hundred labels give, 1 still outweighs what was seen.
    Here the n-th batch counts 1/n, and a tenth from the tenth on.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or len(x) == 1:
            return in_use(self, x)
        seen: Any = self.num_batches_tracked
        with torch.no_grad():
            share = (1 / seen.add_(1).to(x.dtype)).clamp(min=self.momentum)
            for kept, now in ((self.running_mean, x.mean(0)), (self.running_var, x.var(0))):
                kept.lerp_(now, share)  # type: ignore[union-attr]
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)


def normed(norm: Any, x: Tensor) -> Tensor:
    """Batch norm. A batch of one has no spread to be divided by: it is normed with what was seen before, as in use."""
    return in_use(norm, x) if norm.training and len(x) == 1 else norm(x)


def in_use(norm: Any, x: Tensor) -> Tensor:
    return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, False, 0.0, norm.eps)
