"""Many small softmaxes at once: each row of h is read by one group of words, whose vectors lie side by side.

    rows sorted by group      h₀ h₀ h₀ │ h₂ │ h₃ h₃
    blocks of the matrix      W₀       │ W₁ │ W₂ │ W₃ …        logits of a row: those of its own block alone

`each` lets any gradient flow back. `total` computes the gradient along with the sum, block by block, into one matrix: a
third less time where there are many words, and no graph of hundreds of nodes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def each(h: Tensor, weight: Tensor, bias: Tensor, sizes: list[int], groups: Tensor, within: Tensor) -> Tensor:
    """−log softmax of row n's target `within` its group, of `sizes` words: (N, D), (V, D), (V,), …, (N,) → (N,)."""
    order = groups.argsort()
    counts = torch.bincount(groups, minlength=len(sizes)).tolist()
    parts = zip(
        h[order].split(counts), weight.split(sizes), bias.split(sizes), within[order].split(counts), strict=True
    )
    found = [F.cross_entropy(F.linear(x, w, b), t, reduction="none") for x, w, b, t in parts if len(x)]
    return torch.cat(found)[order.argsort()]


def total(h: Tensor, weight: Tensor, bias: Tensor, sizes: list[int], groups: Tensor, within: Tensor) -> Tensor:
    """The sum of `each`."""
    return _Total.apply(h, weight, bias, sizes, groups, within)


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, sizes: list[int], groups: Tensor, within: Tensor
    ) -> Tensor:
        with torch.autocast(h.device.type, enabled=False):
            order = groups.argsort()
            counts = torch.bincount(groups, minlength=len(sizes)).tolist()
            x, target = h[order].to(weight.dtype), within[order].unsqueeze(1)
            grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(bias)
            nats, row, word, minus = x.new_zeros(()), 0, 0, x.new_full((1, 1), -1.0)
            for count, size in zip(counts, sizes, strict=True):
                if count:
                    rows, words = slice(row, row + count), slice(word, word + size)
                    z = torch.addmm(bias[words], x[rows], weight[words].t())
                    log_p = torch.log_softmax(z, 1)
                    nats -= log_p.gather(1, target[rows]).sum()
                    p = log_p.exp_().scatter_add_(1, target[rows], minus.expand(count, 1))
                    torch.mm(p, weight[words], out=grad_x[rows])
                    torch.mm(p.t(), x[rows], out=grad_weight[words])
                    torch.sum(p, 0, out=grad_bias[words])
                row, word = row + count, word + size
            grad_h = torch.empty_like(grad_x)
            grad_h[order] = grad_x
        ctx.grads = [grad_h.to(h.dtype), grad_weight, grad_bias]
        return nats

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        grads, ctx.grads = ctx.grads, None
        if grads is None:
            raise RuntimeError(
                "The total was differentiated a second time, but its gradient is used up the first. Use nll(…).sum()."
            )
        return *(g.mul_(grad) for g in grads), None, None, None
