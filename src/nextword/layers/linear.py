"""Linear layers and the feed-forward part of a Transformer block, with their fast paths.

The reference is plain torch, `F.linear(x, W, b)`. `Linear` and `feed_forward` choose between it and two kernels:

    training on a GPU in bf16        kernels/cublaslt.py     bias and gelu fused into the products, after `make_ready()`
    a few rows on a CPU, no grad     kernels/cpu_matmul.py   matrix-vector products, for generating token by token
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nextword.kernels import cublaslt
from nextword.kernels.cpu_matmul import few_rows_linear


class Linear(nn.Linear):
    """nn.Linear with the same weights and results, faster for a few rows on a CPU and in bf16 training on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        if cublaslt.applies_to(x, self):
            return cublaslt.linear(x, self.weight, self.bias)
        return few_rows_linear(x, self.weight, self.bias)


def feed_forward(x: Tensor, wide: Any, narrow: Any) -> Tensor:
    """W₂ gelu(W₁ x + b₁) + b₂, with the tanh approximation of gelu: (…, D) → (…, D)."""
    if cublaslt.applies_to(x, wide):
        return cublaslt.feed_forward(x, wide.weight, wide.bias, narrow.weight, narrow.bias)
    return narrow(F.gelu(wide(x), approximate="tanh"))
