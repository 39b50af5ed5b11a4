"""Self-attention under any mask, whose keys and values may be kept: a prefix read at once, then tokens one by one.

    prefix   a a a          every token of it sees all of it
    after        b b b      each sees the prefix, and what came before it

Who sees whom is the network's to say. What is kept lies in the slots of layers/past.py, the prefix first.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from nextword.layers.past import Reading
from nextword.layers.products import Product

Layer = tuple[Tensor, Tensor]  # keys, values: each (B, H, C, K)


class PrefixAttention(nn.Module):
    """(B, T, width) → (B, T, width). `join` makes queries, keys and values at once; `out` brings the heads together."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.join = Product(width, 3 * width)
        self.out = Product(width, width)

    def forward(
        self, x: Tensor, seen: Tensor | None, reading: Reading | None, before: Layer | None
    ) -> tuple[Tensor, Layer | None]:
        """`seen` (…, T, S) is True where a token may look, over all S that are there; None: everywhere.

        `reading` is None where nothing is to be kept; `before` are this layer's keys and values.
        """
        q, k, v = self.join(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        now = None
        if reading is not None:
            old_k, old_v = before if before is not None else (None, None)
            now = (reading.extended(old_k, k), reading.extended(old_v, v))
            k, v = (t[:, :, : reading.most + reading.steps] for t in now)
        drop = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=drop)
        return self.out(y.transpose(1, 2).reshape(x.shape)), now
