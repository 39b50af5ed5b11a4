"""Products that are made step by step with one and the same operand, whose gradient is made once, at the end.

A decoder that looks at its source between two steps multiplies by the same matrices at each. Left to itself, autograd
computes a gradient of each matrix at each step and adds it to the others: T small products and T walks over the matrix.
Here each step only notes what went in and what came back, and when all steps are through, one product does it:

    y_t = W x_t            dW = Σ_t dy_t x_tᵀ = [dy_1 … dy_T] [x_1 … x_T]ᵀ

Deferred     x → x Wᵀ + b, the weights being those of a layer
Mixture      weights (B, T, S) → Σ_s weights_s · memory_s, the memory (B, S, M) being that of a source
Energies     queries (B, T, D) → vᵀ tanh(query + key_s) (B, T, S), the keys (B, S, D) being those of a source
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Noted = list[tuple[Tensor, Tensor]]  # what went in at a step, and the gradient of what came out


class Deferred:
    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        self.noted: Noted | None = None
        if torch.is_grad_enabled() and (weight.requires_grad or (bias is not None and bias.requires_grad)):
            self.noted = []
            self.weight, self.bias = _Weights.apply(weight, bias, self.noted)

    def __call__(self, x: Tensor) -> Tensor:
        """(…, K) → (…, N)."""
        if self.noted is None:
            return F.linear(x, self.weight, self.bias)
        return _Multiplied.apply(x, self.weight, self.bias, self.noted)


class Mixture:
    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self.noted: Noted | None = None
        if torch.is_grad_enabled() and memory.requires_grad:
            self.noted = []
            self.memory = _Memory.apply(memory, self.noted)

    def __call__(self, weights: Tensor) -> Tensor:
        if self.noted is None:
            return weights @ self.memory
        return _Mixed.apply(weights, self.memory, self.noted)


class Energies:
    """Sums take the place of notes here: what would be noted is S times as large as what is asked."""

    def __init__(self, keys: Tensor, score: Tensor) -> None:
        self.keys, self.score = keys, score
        self.sums: list[Tensor] | None = None
        if torch.is_grad_enabled() and (keys.requires_grad or score.requires_grad):
            self.sums = []
            self.keys, self.score = _Keys.apply(keys, score, self.sums)

    def __call__(self, query: Tensor) -> Tensor:
        if self.sums is None:
            return torch.tanh(query.unsqueeze(2) + self.keys.unsqueeze(1)) @ self.score
        return _Energy.apply(query, self.keys, self.score, self.sums)


class _Keys(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor, score: Tensor, sums: list[Tensor]) -> Any:
        ctx.sums, ctx.kinds = sums, (keys.dtype, score.dtype)
        ctx.set_materialize_grads(False)
        return keys.view_as(keys), score.view_as(score)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *none: Any) -> Any:
        keys, score = (part.to(kind) for part, kind in zip(ctx.sums, ctx.kinds, strict=True))
        ctx.sums.clear()
        return keys, score, None


class _Energy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, score: Tensor, sums: list[Tensor]) -> Tensor:
        bent = torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1))  # (B, T, S, D)
        ctx.save_for_backward(bent, score)
        ctx.sums, ctx.kind = sums, query.dtype
        return bent @ score

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, de: Tensor) -> Any:
        bent, score = ctx.saved_tensors
        of_score = de.reshape(-1) @ bent.to(de.dtype).flatten(0, 2)
        d = torch.ops.aten.tanh_backward(de.unsqueeze(-1) * score.to(de.dtype), bent.to(de.dtype))
        of_keys = d.squeeze(1) if d.shape[1] == 1 else d.sum(1)
        if ctx.sums:
            ctx.sums[0] += of_keys
            ctx.sums[1] += of_score
        else:
            ctx.sums[:] = of_keys, of_score
        return d.sum(2).to(ctx.kind), None, None, None


class _Weights(torch.autograd.Function):
    """Runs backward after all steps did, for each has it among its operands."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, noted: Noted) -> Any:
        ctx.noted = noted
        ctx.kinds = weight.dtype, None if bias is None else bias.dtype
        ctx.set_materialize_grads(False)  # the steps hand over none
        return weight.view_as(weight), None if bias is None else bias.view_as(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *none: Any) -> Any:
        x, dy = _together(ctx.noted, 0)
        wanted, kinds = ctx.needs_input_grad, ctx.kinds
        weight = (dy.t() @ x).to(kinds[0]) if wanted[0] else None
        return weight, dy.sum(0).to(kinds[1]) if wanted[1] else None, None


class _Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, noted: Noted) -> Tensor:
        y = F.linear(x, weight, bias)
        ctx.save_for_backward(x, weight)
        ctx.noted = noted
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        ctx.noted.append((x.to(dy.dtype).reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])))
        return (dy @ weight.to(dy.dtype)).to(x.dtype) if ctx.needs_input_grad[0] else None, None, None, None


class _Memory(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, memory: Tensor, noted: Noted) -> Tensor:
        ctx.noted, ctx.kind = noted, memory.dtype
        ctx.set_materialize_grads(False)
        return memory.view_as(memory)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, none: Any) -> Any:
        weights, dy = _together(ctx.noted, 1)
        return (weights.transpose(1, 2) @ dy).to(ctx.kind), None


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, memory: Tensor, noted: Noted) -> Tensor:
        ctx.save_for_backward(weights, memory)
        ctx.noted = noted
        return weights @ memory

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        weights, memory = ctx.saved_tensors
        ctx.noted.append((weights.to(dy.dtype), dy))
        return (dy @ memory.to(dy.dtype).transpose(1, 2)).to(weights.dtype), None, None


def _together(noted: Noted, axis: int) -> list[Tensor]:
    """What all steps have noted, and then forget."""
    found = [torch.cat(parts, axis) for parts in zip(*noted, strict=True)]
    noted.clear()
    return found
