"""Matrix products for a few rows at a time, as when text is written token by token.

One row against a matrix is bound by reading the matrix; a library's general product, made for many rows, reads it at
less than half the speed that memory gives. On a CPU, outside training:

    one row       W x, a product with a vector
    SOME rows     (W Xᵀ)ᵀ, the long side first, if the matrix is large
    MORE rows     the same, if the matrix is narrow: X Wᵀ then leaves all threads but one idle
    any others    X Wᵀ, as always

Either is up to twice as fast where it is chosen, and slower elsewhere (measured with MKL 2024, 1 and 2 threads).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.layers import lt

SOME, LARGE = range(8, 16), 1 << 20  # rows; numbers
MORE, NARROW = range(16, 49), 768  # rows; the shorter side is below that


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(…, D), (N, D) → (…, N): x Wᵀ + b."""
    rows = x.numel() // max(x.shape[-1], 1)
    if x.is_cuda or not 0 < rows < MORE.stop or torch.is_grad_enabled() or x.dtype != weight.dtype:
        return F.linear(x, weight, bias)
    if rows == 1:
        one = x.reshape(-1)
        y = torch.mv(weight, one) if bias is None else torch.addmv(bias, weight, one)
        return y.view(*x.shape[:-1], -1)
    some = rows in SOME and weight.numel() >= LARGE
    if not some and not (rows in MORE and min(weight.shape) < NARROW and torch.get_num_threads() > 1):
        return F.linear(x, weight, bias)
    many = x.reshape(rows, -1).t()
    y = torch.mm(weight, many) if bias is None else torch.addmm(bias.unsqueeze(1), weight, many)
    return y.t().contiguous().view(*x.shape[:-1], -1)  # in order, as attention wants its operands


class Product(nn.Linear):
    """nn.Linear that is quick with a few rows, too, and on a GPU in training."""

    def forward(self, x: Tensor) -> Tensor:
        if lt.learns(x, self):
            return lt.linear(x, self.weight, self.bias)
        return product(x, self.weight, self.bias)
