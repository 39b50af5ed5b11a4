"""Self-attention from left to right: every token asks all before it, softmax(Q Kᵀ / √d) V, in several heads.

The products are torch's scaled_dot_product_attention, which picks a fused kernel and never writes a (T, T) matrix
out where it can help it. A `band` b lets a token see itself and the b − 1 tokens before it alone (the locally banded
layers of GPT-3, after Child et al. 2019). Trained on, the band is cut into blocks, and each asks its own and the one
before:

    keys     [ block 0 | block 1 | block 2 | block 3 ]          T · 2b products instead of T · T
    queries              [ block 2 ] sees ↑ 1 and 2
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.layers.past import Reading
from nextword.layers.products import Product

Layer = tuple[Tensor, Tensor]  # keys, values: each (B, H, C, D)


class SelfAttention(nn.Module):
    """(B, T, width) → (B, T, width). `join` makes queries, keys and values at once; `out` brings the heads together."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, band: int = 0, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.dropout, self.band = heads, dropout, band
        self.join = Product(width, 3 * width, bias=bias)
        self.out = Product(width, width, bias=bias)

    def forward(self, x: Tensor, reading: Reading | None, before: Layer | None) -> tuple[Tensor, Layer | None]:
        """`reading` is None where nothing is to be kept; `before` are this layer's keys and values."""
        q, k, v = self.join(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        drop = self.dropout if self.training else 0.0
        if reading is None or not reading.most:
            y = self._whole(q, k, v, drop)
            now = None if reading is None else (k, v)
        else:
            old_k, old_v = before if before is not None else (None, None)
            now = (reading.extended(old_k, k), reading.extended(old_v, v))
            y = self._after(q, now, reading, drop)
        return self.out(y.transpose(1, 2).reshape(x.shape)), now

    def _whole(self, q: Tensor, k: Tensor, v: Tensor, drop: float) -> Tensor:
        if self.band and q.shape[2] > self.band:
            return banded(q, k, v, self.band, drop)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=True)

    def _after(self, q: Tensor, kept: Layer, reading: Reading, drop: float) -> Tensor:
        k, v = (t[:, :, : reading.most + reading.steps] for t in kept)
        mask = reading.visible(self.band)
        if self.band and reading.even:  # what lies before the band of the first new token is not even looked at
            first = max(0, reading.most + 1 - self.band)
            k, v = k[:, :, first:], v[:, :, first:]
            mask = None if mask is None or reading.steps == 1 else mask[:, first:]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)


def banded(q: Tensor, k: Tensor, v: Tensor, band: int, drop: float = 0.0) -> Tensor:
    """Attention at the last `band` tokens, over (B, H, T, D), in blocks."""
    batch, heads, steps, width = q.shape
    blocks = -(-steps // band)
    q, k, v = (F.pad(t, (0, 0, 0, blocks * band - steps)).view(batch, heads, blocks, band, width) for t in (q, k, v))
    # the block before, then its own
    k, v = (torch.cat([F.pad(t, (0, 0, 0, 0, 1, 0))[:, :, :-1], t], 3) for t in (k, v))
    here = torch.arange(band, device=q.device).unsqueeze(1)
    there = torch.arange(2 * band, device=q.device) - band
    seen = (there <= here) & (there > here - band)
    first = seen & (there >= 0)  # before the first block there is nothing
    mask = torch.cat([first.unsqueeze(0), seen.expand(blocks - 1, -1, -1)])
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)
    return y.reshape(batch, heads, blocks * band, width)[:, :, :steps]
