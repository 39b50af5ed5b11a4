"""A moving average that follows the weights of any optimizer, and is used in their place where nothing is learnt.

    θ̄ ← θ̄ + (θ − θ̄) · max(1 − d, 9 / (10 + n))        after step n = 1, 2, …; after step 0, θ̄ is θ

With d = 0.998 about the last five hundred steps count. At the beginning fewer do, for there the weights are still far
from where they will be: as TensorFlow's average does it that is told the number of updates. The average of a weight is
in the optimizer's state, beside what else is kept of it, and so in what a run saves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import Optimizer

from nextword.contract_errors import NextwordError
from nextword.training.averaging import instead

NAME, COUNT = "moving", "followed"  # in the state of a weight; in the group, how many steps there have been


def share_of(decay: float, step: int) -> float:
    """How far the average goes towards the weights after this step, counted from 0."""
    return max(1 - decay, 9 / (10 + step))


def follow(optimizer: Optimizer, decay: float) -> Any:
    """The optimizer, with an average after each of its steps."""
    if isinstance(decay, bool) or not isinstance(decay, (int, float)) or not 0 < decay < 1:
        raise NextwordError(f"Optimizer: average = {decay!r} is what is kept at each step, as 0.998: between 0 and 1.")
    optimizer.param_groups[0][COUNT] = 0

    @torch.no_grad()
    def after(stepped: Optimizer, args: Any, kwargs: Any) -> None:
        first = stepped.param_groups[0]
        share = share_of(decay, first[COUNT])
        first[COUNT] += 1
        weights: list[Any] = []
        for p in (p for group in stepped.param_groups for p in group["params"]):
            if NAME in stepped.state.get(p, ()):
                weights.append(p)
            elif p.grad is not None:  # its first step: until then it was its own average
                stepped.state[p][NAME] = p.detach().clone()
        if weights:
            torch._foreach_lerp_([stepped.state[p][NAME] for p in weights], weights, share)

    @contextlib.contextmanager
    def averages() -> Iterator[None]:
        weights = [p for group in optimizer.param_groups for p in group["params"] if NAME in optimizer.state.get(p, ())]
        if not weights:
            yield
            return
        with instead(weights, [optimizer.state[p][NAME] for p in weights]):
            yield

    optimizer.register_step_post_hook(after)
    optimizer.averages = averages  # type: ignore[attr-defined]
    return optimizer
