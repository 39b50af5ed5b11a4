"""SGD whose weights are averaged from some point on: plain ASGD, and NT-ASGD, which finds that point itself.

    θ ← θ − η (g + λθ)                     every step
    θ̄ ← θ̄ + (θ − θ̄) (p + 1) / (n + p)       after the start, n = 1, 2, …

With p = 0 this is the mean of all weights since the start (Polyak & Juditsky 1992). A higher power p makes the n-th
count about n^p (Shamir & Zhang 2013), so that what was learnt long ago is forgotten: then the average is never far
behind, needs no second stage that begins it anew, and may start at once. NT-ASGD (Merity, Keskar & Socher 2018) starts
when the held-out loss has stopped falling: when it is above the least of those more than `patience` validations ago.
Evaluation and saving use θ̄; training goes on at θ. Before the start θ̄ is θ itself. Rate and share are tensors, so that
a step can be captured and replayed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nextword.contract_errors import NextwordError
from nextword.layers import kernels


class AveragedSGD(torch.optim.Optimizer):
    """`start`: the step from which on weights are averaged. 0: found by the trigger, with `patience` validations.

    `power`: how much more the later weights count; 0: all the same.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float = 0.0,
        start: int = 0,
        patience: int = 5,
        power: float = 0.0,
    ) -> None:
        if start < 0 or patience < 1 or power < 0:
            raise NextwordError(
                f"NT-ASGD: start = {start} and power = {power} must not be negative, and patience = {patience} at "
                "least 1."
            )
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.start, self.patience, self.power = start, patience, power
        group = self.param_groups[0]
        group |= {"steps": 0, "averaged": 0, "triggered": False}
        first = group["params"][0]
        kind = torch.promote_types(first.dtype, torch.float32)
        self.rate = torch.tensor(lr, device=first.device, dtype=kind)
        self.share = torch.ones((), device=first.device, dtype=kind)
        for p in group["params"]:
            self.state[p]["mean"] = p.detach().clone()

    @property
    def averaging(self) -> bool:
        return bool(self.param_groups[0]["triggered"])

    def prepare(self) -> None:
        """Before a step: write the numbers that it reads into their tensors."""
        group = self.param_groups[0]
        if self.start and group["steps"] >= self.start:
            group["triggered"] = True
        group["steps"] += 1
        if group["triggered"]:
            group["averaged"] += 1
        self.rate.fill_(group["lr"])
        self.share.fill_((self.power + 1) / (max(group["averaged"], 1) + self.power))

    @torch.no_grad()
    def apply(self, scale: Tensor | None = None) -> None:
        """The step itself, of gradients times `scale`; nothing in it depends on a number outside the device."""
        group = self.param_groups[0]
        params = [p for p in group["params"] if p.grad is not None]
        grads: Any = [p.grad for p in params]
        means = [self.state[p]["mean"] for p in params]
        if self.rate.is_cuda and kernels.available():
            whole = torch.ones_like(self.rate) if scale is None else scale
            kernels.averaged_step(params, grads, means, self.rate, self.share, whole, group["weight_decay"])
            return
        if not self.rate.is_cuda:  # its numbers are at hand, and in pieces that stay in the cache memory is read once
            rate, share, decay = float(self.rate), float(self.share), group["weight_decay"]
            for each in zip(params, grads, means, strict=True):
                pieces = max(1, each[0].numel() >> 17)
                for p, g, mean in zip(*(torch.atleast_1d(t).chunk(pieces) for t in each), strict=True):
                    p.sub_(torch.add(g if scale is None else g * scale, p, alpha=decay).mul_(rate))
                    mean.lerp_(p, share)
            return
        if scale is not None:
            grads = torch._foreach_mul(grads, scale)
        if group["weight_decay"]:
            grads = torch._foreach_add(grads, params, alpha=group["weight_decay"])
        torch._foreach_sub_(params, torch._foreach_mul(grads, self.rate))
        change = torch._foreach_sub(params, means)
        torch._foreach_mul_(change, self.share)
        torch._foreach_add_(means, change)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.prepare()
        self.apply()

    def validated(self, history: Sequence[float]) -> bool:
        """Hear the held-out losses so far, oldest first; says whether averaging begins now."""
        group = self.param_groups[0]
        *before, now = history
        if self.start or group["triggered"] or len(before) <= self.patience:
            return False
        group["triggered"] = now > min(before[: -self.patience])
        return bool(group["triggered"])

    @contextlib.contextmanager
    def averages(self) -> Iterator[None]:
        """The network has its averaged weights while this is open."""
        group = self.param_groups[0]
        if not group["triggered"]:
            yield
            return
        with instead(group["params"], [self.state[p]["mean"] for p in group["params"]]):
            yield


@contextlib.contextmanager
def instead(weights: list[Any], others: list[Tensor]) -> Iterator[None]:
    """While this is open, weights have other values."""
    kept = [p.detach().clone() for p in weights]
    _copy(weights, others)
    try:
        yield
    finally:
        _copy(weights, kept)


@torch.no_grad()
def _copy(to: list[Any], values: list[Tensor]) -> None:
    torch._foreach_copy_(to, values)


def averages(optimizer: torch.optim.Optimizer) -> contextlib.AbstractContextManager[None]:
    """The averaged weights of an optimizer that has some, while this is open; for any other, nothing."""
    return optimizer.averages() if hasattr(optimizer, "averages") else contextlib.nullcontext()


def hear(optimizer: torch.optim.Optimizer, history: Sequence[float]) -> bool:
    """Tell an optimizer that listens how held-out text fares; says whether it begins to average now."""
    return isinstance(optimizer, AveragedSGD) and optimizer.validated(history)
