"""Attention by distance, in two streams: the scores of Transformer-XL under the orders of XLNet.

Dai et al., "Transformer-XL" (2019), section 3.3; Yang et al., "XLNet" (2019), sections 2.3 to 2.5. A row i that
asks scores what is known at j by what is there, by how far away it is, and by whether both lie in the same segment:

    ( (q_i + u)·k_j  +  (q_i + w)·W r_{i−j}  +  (q_i + s)·e_{same or other} ) / √K        softmax over the j that i sees

Rows that ask are of two kinds. Both go through the same weights, and both look at the content of tokens alone:

    content   begins as the token itself, sees itself and what comes before it in the order
    query     begins as one learnt vector, knows its place but not its token, and sees what comes before it in the order

                known   [ memory | content of the segment ]                           S = M + T
    rows that ask                [ content, T rows ][ queries, P rows ]               Q = T + P

Whatever is a function of rows alone (products, norms) treats the two as one batch of T + P rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.layers.products import Product

NEVER = -1e9  # a score that no softmax gives any weight beside another; finite, so that a row without sight is no NaN


def visible(ranks: Tensor) -> Tensor:
    """(B, T) → (B, T, T), True where the token at i is to be predicted, or read, from the one at j.

    A rank is when a token's turn comes. What has a negative one is given: seen by all, and seeing no more than that.

    order 2 0 3 1, so ranks 1 3 0 2        j  0 1 2 3        rank 2 is given: −1     j  0 1 2 3
                                      i = 0   . . # .        and ranks 0 2 −1 1  0   . . # .
                                          1   # . # #                            1   # . # #
                                          2   . . . .                            2   . . # .
                                          3   # . # .                            3   # . # .
    """
    i, j = ranks.unsqueeze(-1), ranks.unsqueeze(-2)
    return (j < i) | (j < 0)


def encodings(distances: Tensor, width: int) -> Tensor:
    """(R,) → (R, width): sines, then cosines, of each distance at wavelengths from 2π to 10000 · 2π."""
    turns = 10000.0 ** (-torch.arange(0, width, 2, device=distances.device, dtype=torch.float32) / width)
    angles = distances.float().unsqueeze(1) * turns
    return torch.cat([angles.sin(), angles.cos()], 1)


@dataclass(frozen=True)
class RelativeLook:
    """How the rows that ask see what is known. Made once; all layers look in the same way."""

    seen: Tensor  # (B or 1, Q, S) True where a row may look
    near: Tensor  # (B or 1, Q, S) for each pair the row of `table` that its distance has
    table: Tensor  # (R, D) encodings of distances
    apart: Tensor | None = None  # (B, Q, S) True where the two lie in different segments; None: there are none

    def last(self, rows: int) -> RelativeLook:
        """The same for the last so many rows that ask alone."""
        apart = None if self.apart is None else self.apart[:, -rows:]
        return RelativeLook(self.seen[:, -rows:], self.near[:, -rows:], self.table, apart)


class RelativeAttention(nn.Module):
    """(B, Q, width), (B, S, width) → (B, Q, width). A row that sees nothing gets nothing: a vector of zeros."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = Product(width, width, bias=False)
        self.key = Product(width, width, bias=False)
        self.value = Product(width, width, bias=False)
        self.distance = Product(width, width, bias=False)
        self.out = Product(width, width, bias=False)
        each = width // heads
        self.content_bias = nn.Parameter(torch.zeros(heads, 1, each))  # u
        self.distance_bias = nn.Parameter(torch.zeros(heads, 1, each))  # w
        self.segment_bias = nn.Parameter(torch.zeros(heads, 1, each))  # s
        self.segments = nn.Parameter(torch.zeros(heads, 2, each))  # e: of the same segment, of another

    def forward(self, x: Tensor, known: Tensor, look: RelativeLook) -> Tensor:
        q, k, v = self._heads(self.query(x)), self._heads(self.key(known)), self._heads(self.value(known))
        r = self.distance(look.table).view(len(look.table), self.heads, -1).transpose(0, 1)  # (H, R, K)
        scale = q.shape[-1] ** -0.5
        by_distance = (q + self.distance_bias) @ r.transpose(1, 2)  # (B, H, Q, R): of every distance there is
        near = look.near.unsqueeze(1).expand(*q.shape[:3], -1)
        scores = by_distance.gather(3, near)  # (B, H, Q, S): of the one that each pair has
        if look.apart is not None:
            same, other = ((q + self.segment_bias) @ self.segments.transpose(1, 2)).split(1, -1)
            scores = scores + torch.where(look.apart.unsqueeze(1), other, same)
        scores = (scores * scale).masked_fill(~look.seen.unsqueeze(1), NEVER)
        drop = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q + self.content_bias, k, v, attn_mask=scores, dropout_p=drop)
        y = y.masked_fill(~look.seen.any(-1)[:, None, :, None], 0.0)
        return self.out(y.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)
