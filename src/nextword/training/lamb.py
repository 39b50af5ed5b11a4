"""LAMB: Adam's direction, with a length of its own for each tensor of weights.

You, Li, Reddi et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes" (2020), algorithm 2.

    m ← β₁ m + (1 − β₁) g           m̂ = m / (1 − β₁ᵗ)
    v ← β₂ v + (1 − β₂) g²          v̂ = v / (1 − β₂ᵗ)
    u = m̂ / (√v̂ + ε) + λ x          Adam's direction with decoupled decay
    x ← x − η · ‖x‖ / ‖u‖ · u       the ratio is 1 where either norm is 0; φ of the paper is the identity

So a step changes every tensor by the share η of its own length, however large its gradients: rates can be high, and
batches with them. What the paper calls a layer is one tensor here; queries, keys and values that are one matrix have
one ratio. Weights that are left out of the decay are not scaled either (ratio 1), as in ALBERT's own optimizer: biases
and norms begin at 0 or 1, and their length says nothing of how far they should move. Bias correction is the paper's;
ALBERT's optimizer left it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class LAMB(torch.optim.Optimizer):
    """A group with `scaled` false takes Adam's steps as they are. Without decay a scaled group is still scaled."""

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float,
        weight_decay: float = 0.0,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-6,
        scaled: bool = True,
    ) -> None:
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas = {list(betas)} must be two numbers from 0 up to below 1")
        if eps < 0 or weight_decay < 0:
            raise ValueError(f"eps = {eps} and decay = {weight_decay} must not be negative")
        known = {"lr": lr, "weight_decay": weight_decay, "betas": tuple(betas), "eps": eps, "scaled": scaled}
        super().__init__(params, known)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._move(params, group)

    def _move(self, params: list[Any], group: dict[str, Any]) -> None:
        u = self._directions(params, group)
        if group["weight_decay"]:
            torch._foreach_add_(u, params, alpha=group["weight_decay"])
        if group["scaled"]:
            torch._foreach_mul_(u, list(ratios(params, u).unbind()))
        torch._foreach_add_(params, u, alpha=-group["lr"])

    def _directions(self, params: list[Any], group: dict[str, Any]) -> list[Tensor]:
        """m̂ / (√v̂ + ε) of each; one that had no gradient for a while counts the steps that it took itself."""
        grads: Any = [p.grad for p in params]
        states = [self._state(p) for p in params]
        for state in states:
            state["step"] += 1
        m, v = [state["mean"] for state in states], [state["square"] for state in states]
        first, second = group["betas"]
        torch._foreach_lerp_(m, grads, 1 - first)
        torch._foreach_mul_(v, second)
        torch._foreach_addcmul_(v, grads, grads, 1 - second)
        below = torch._foreach_sqrt(v)
        torch._foreach_div_(below, [(1 - second ** state["step"]) ** 0.5 for state in states])
        torch._foreach_add_(below, group["eps"])
        torch._foreach_mul_(below, [1 - first ** state["step"] for state in states])
        return list(torch._foreach_div(m, below))

    def _state(self, p: nn.Parameter) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        if not state:
            state |= {"step": 0, "mean": torch.zeros_like(p), "square": torch.zeros_like(p)}
        return state


def ratios(params: Sequence[Tensor], directions: Sequence[Tensor]) -> Tensor:
    """‖x‖ / ‖u‖ of each pair (n,), and 1 where either is zero; no number leaves the device."""
    x = torch.stack(torch._foreach_norm(list(params)))
    u = torch.stack(torch._foreach_norm(list(directions)))
    return torch.where((x > 0) & (u > 0), x / u, 1.0)
