"""Learning-rate schedules: pure functions of the progress so far, so that a resumed run needs no state of theirs.

A recipe names one: `schedule = { kind = "cosine", warmup = 0.01 }`. Each takes the base learning rate, a `Progress` and
its own options, and returns the learning rate of the next step.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nextword.batching.settings import require_number
from nextword.core.errors import InvalidSetting, unknown


@dataclass(frozen=True)
class Progress:
    step: int  # steps done
    epoch: int  # whole epochs done
    fraction: float  # of the budget, 0 to 1
    validations: Sequence[float]  # validation losses, oldest first
    total: int = 0  # steps of the budget


def constant(rate: float, at: Progress) -> float:
    return rate


def halve(rate: float, at: Progress, every: int = 1, after: int = 0, factor: float = 0.5) -> float:
    """Full rate for `after` epochs, then times `factor` every `every` epochs (Zaremba: 0.5 each epoch after 4)."""
    late = at.epoch - after + every if after else at.epoch
    return rate * factor ** (max(late, 0) // every)


def plateau(rate: float, at: Progress, factor: float = 0.5, patience: int = 0) -> float:
    """Times `factor` whenever more than `patience` validations in a row were no better than the best before them."""
    best, waited = math.inf, 0
    for loss in at.validations:
        if loss < best:
            best, waited = loss, 0
        else:
            waited += 1
            if waited > patience:
                rate, waited = rate * factor, 0
    return rate


def slowing(rate: float, at: Progress, ratio: float = 1.003, factor: float = 0.5) -> float:
    """Full rate until a validation loss is not `ratio` times lower than the one before; from then on times `factor` at
    every validation (Mikolov's rnnlm)."""
    for i in range(1, len(at.validations)):
        if at.validations[i] * ratio > at.validations[i - 1]:
            return rate * factor ** (len(at.validations) - i)
    return rate


def cosine(rate: float, at: Progress, warmup: float = 0.0, floor: float = 0.0) -> float:
    """Linear warmup over the fraction `warmup` of the budget, then half a cosine down to `floor` times the rate."""
    if at.fraction < warmup:
        return rate * min(max(at.fraction, 1e-3) / warmup, 1.0)
    x = (at.fraction - warmup) / max(1 - warmup, 1e-9)
    return rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(x, 1.0))))


def linear(rate: float, at: Progress, warmup: float = 0.0, floor: float = 0.0) -> float:
    """Linear warmup over the fraction `warmup` of the budget, then linear decay to `floor` times the rate."""
    if at.fraction < warmup:
        return rate * min(max(at.fraction, 1e-3) / warmup, 1.0)
    x = (at.fraction - warmup) / max(1 - warmup, 1e-9)
    return rate * (floor + (1 - floor) * (1 - min(x, 1.0)))


def root(rate: float, at: Progress, warmup: float = 5000, slope: float = 0.005) -> float:
    """rate · min(1, step / warmup) / (1 + slope · √step) (Clark et al. 2018).

    A `warmup` below 1 is a fraction of the budget, for runs much shorter than theirs.
    """
    warmed = at.step / warmup if warmup >= 1 else at.fraction / warmup if warmup else 1.0
    return rate * min(1.0, warmed) / (1 + slope * math.sqrt(at.step))


def slanted(rate: float, at: Progress, cut: float = 0.1, ratio: float = 32.0) -> float:
    """Slanted triangle: a short linear increase, a long linear decay (Howard & Ruder 2018, eq. 3). Over T steps:

        peak = ⌊T · cut⌋                                            at least 1
        p    = t / peak   before it,   1 − (t − peak) / (T − peak)   after it
        rate · (1 + p · (ratio − 1)) / ratio

    The paper's denominator, peak · (1 / cut − 1), equals T − peak if T · cut is an integer; otherwise the rate would
    end below zero.
    """
    require_number("schedule.cut", cut, 0, 1, exclude_low=True, exclude_high=True)
    require_number("schedule.ratio", ratio, 1)
    peak = max(1, math.floor(at.total * cut + 1e-9))
    p = at.step / peak if at.step < peak else 1 - (at.step - peak) / max(at.total - peak, 1)
    return rate * (1 + max(p, 0.0) * (ratio - 1)) / ratio


SCHEDULES: dict[str, Callable[..., float]] = {
    "constant": constant,
    "halve": halve,
    "plateau": plateau,
    "slowing": slowing,
    "cosine": cosine,
    "linear": linear,
    "root": root,
    "slanted": slanted,
}


class Schedule:
    """The schedule of a recipe's `schedule` table, bound to a base learning rate."""

    def __init__(self, rate: float, options: Mapping[str, Any]) -> None:
        options = dict(options)
        kind = options.pop("kind", "constant")
        if kind not in SCHEDULES:
            raise unknown("schedule", kind, SCHEDULES)
        self.rate, self.function, self.options = rate, SCHEDULES[kind], options
        known = list(inspect.signature(self.function).parameters)[2:]
        for key in options:
            if key not in known:
                raise unknown("key", key, known, where=f"schedule '{kind}'")
        try:
            self(Progress(0, 0, 0.0, ()))
        except TypeError as problem:
            raise InvalidSetting(f"Schedule '{kind}': {problem}.", key="schedule", value=options) from None

    def __call__(self, at: Progress) -> float:
        return self.function(self.rate, at, **self.options)
