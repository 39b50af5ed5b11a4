"""Keys and values of what a decoder has written, of all its layers in one tensor, with room to grow.

    kept    (R, L, 2, H, C, K)    R rows, L layers, keys and values, C places, of which the first `length` are in use

One tensor, so that beams that change places cost one copy and not one for each layer. Several rows may write from one
source: then what is known of the source is there once, and their queries ask it side by side (`shared`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Kept = tuple[Tensor, Tensor]  # keys and values, (B, H, S, K) each
LEAST = 64  # places to begin with


class Writing:
    """So many more tokens after what was written: each layer hands in its own, and gets all there are.

    Under gradients nothing is overwritten, and the tensor is made anew.
    """

    def __init__(self, kept: Tensor | None, length: int, steps: int, layers: int) -> None:
        self.kept, self.length, self.steps, self.layers = kept, length, steps, layers
        self.fresh: list[Kept] = []

    def __call__(self, layer: int, keys: Tensor, values: Tensor) -> Kept:
        if torch.is_grad_enabled():
            if self.kept is not None:
                old = self.kept[:, layer, :, :, : self.length]
                keys, values = torch.cat([old[:, 0], keys], 2), torch.cat([old[:, 1], values], 2)
            self.fresh.append((keys, values))
            return keys, values
        after = self.length + self.steps
        if self.kept is None or self.kept.shape[4] < after:
            self.kept = self._larger(keys, after)
        own = self.kept[:, layer]
        own[:, 0, :, self.length : after] = keys
        own[:, 1, :, self.length : after] = values
        return own[:, 0, :, :after], own[:, 1, :, :after]

    def _larger(self, like: Tensor, after: int) -> Tensor:
        rows, heads, _, each = like.shape
        larger = like.new_zeros(rows, self.layers, 2, heads, max(2 * after, LEAST), each)
        if self.kept is not None:
            larger[:, :, :, :, : self.length] = self.kept[:, :, :, :, : self.length]
        return larger

    def done(self) -> Tensor:
        if self.fresh:
            return torch.stack([torch.stack(pair, 1) for pair in self.fresh], 1)
        assert self.kept is not None
        return self.kept


def reordered_written(kept: Tensor, length: int, rows: Tensor) -> Tensor:
    """Each row goes on from what another (or itself) has written. In place, if rows stay as many; only what is in use
    is copied, and on a CPU only rows that change.
    """
    used = kept[:, :, :, :, :length]
    if len(rows) != len(kept):
        larger = kept.new_zeros(len(rows), *kept.shape[1:])
        larger[:, :, :, :, :length] = used.index_select(0, rows)
        return larger
    if rows.device.type == "cpu":
        changed = (rows != torch.arange(len(rows))).nonzero().squeeze(1)
        used[changed] = used[rows[changed]]
    else:
        used.copy_(used.index_select(0, rows))
    return kept


def shared(q: Tensor, kept: Kept, **how: Any) -> Tensor:
    """Attention of queries (R, H, T, K) at keys and values (B, H, S, K), each serving R / B rows side by side."""
    rows, heads, steps, each = q.shape
    sources = len(kept[0])
    if rows == sources:
        return F.scaled_dot_product_attention(q, *kept, **how)
    beside = q.view(sources, -1, heads, steps, each).transpose(1, 2).reshape(sources, heads, -1, each)
    y = F.scaled_dot_product_attention(beside, *kept, **how)
    return y.view(sources, heads, -1, steps, each).transpose(1, 2).reshape(q.shape)
