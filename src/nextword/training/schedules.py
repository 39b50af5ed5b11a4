"""Rates over time: pure functions of what has happened so far, so that a resumed run needs no state of theirs.

Each takes the base rate, a `Progress` and its own options, and returns the rate for the coming step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nextword.core.errors import NextwordError, did_you_mean


@dataclass(frozen=True)
class Progress:
    step: int
    epoch: int  # whole epochs done
    fraction: float  # of the whole budget, 0 to 1
    validations: Sequence[float]  # nats per token, oldest first
    total: int = 0  # steps of the whole budget


def constant(rate: float, at: Progress) -> float:
    return rate


def halve(rate: float, at: Progress, every: int = 1, after: int = 0, factor: float = 0.5) -> float:
    """Full rate for `after` epochs, then times `factor` every `every` epochs (Zaremba: 0.5 each epoch after 4)."""
    late = at.epoch - after + every if after else at.epoch
    return rate * factor ** (max(late, 0) // every)


def plateau(rate: float, at: Progress, factor: float = 0.5, patience: int = 0) -> float:
    """Times `factor` whenever more than `patience` validations in a row were no better than the best before them."""
    best, waited = math.inf, 0
    for value in at.validations:
        if value < best:
            best, waited = value, 0
        else:
            waited += 1
            if waited > patience:
                rate, waited = rate * factor, 0
    return rate


def slowing(rate: float, at: Progress, ratio: float = 1.003, factor: float = 0.5) -> float:
    """Full rate until a validation's nats are not `ratio` times below the last; then times `factor`, then and at every
    one after (Mikolov's rnnlm)."""
    for i in range(1, len(at.validations)):
        if at.validations[i] * ratio > at.validations[i - 1]:
            return rate * factor ** (len(at.validations) - i)
    return rate


def cosine(rate: float, at: Progress, warmup: float = 0.0, floor: float = 0.0) -> float:
    """Up in a line over the share `warmup` of the budget, then down half a cosine to `floor` times the rate."""
    if at.fraction < warmup:
        return rate * min(max(at.fraction, 1e-3) / warmup, 1.0)
    x = (at.fraction - warmup) / max(1 - warmup, 1e-9)
    return rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(x, 1.0))))


def linear(rate: float, at: Progress, warmup: float = 0.0, floor: float = 0.0) -> float:
    if at.fraction < warmup:
        return rate * min(max(at.fraction, 1e-3) / warmup, 1.0)
    x = (at.fraction - warmup) / max(1 - warmup, 1e-9)
    return rate * (floor + (1 - floor) * (1 - min(x, 1.0)))


def root(rate: float, at: Progress, warmup: float = 5000, slope: float = 0.005) -> float:
    """rate · min(1, step / warmup) / (1 + slope · √step) (Clark et al. 2018).

    Runs far shorter than theirs say `warmup` as a share of the budget, a number below 1.
    """
    done = at.step / warmup if warmup >= 1 else at.fraction / warmup if warmup else 1.0
    return rate * min(1.0, done) / (1 + slope * math.sqrt(at.step))


def slanted(rate: float, at: Progress, cut: float = 0.1, ratio: float = 32.0) -> float:
    """Up in a short line, down in a long one (Howard & Ruder 2018, eq. 3), of T steps:

        up   = ⌊T · cut⌋                                            the step with the full rate, at least the first
        p    = t / up   before it,   1 − (t − up) / (T − up)   from it on
        rate · (1 + p · (ratio − 1)) / ratio

    The paper's denominator, up · (1 / cut − 1), is T − up wherever T · cut is whole; elsewhere it would end below zero.
    """
    if not 0 < cut < 1 or ratio < 1:
        raise NextwordError(f"Schedule 'slanted': cut = {cut} is a share of the steps, and ratio = {ratio} 1 or more.")
    up = max(1, math.floor(at.total * cut + 1e-9))
    p = at.step / up if at.step < up else 1 - (at.step - up) / max(at.total - up, 1)
    return rate * (1 + max(p, 0.0) * (ratio - 1)) / ratio


SCHEDULES = {
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
    def __init__(self, rate: float, options: Mapping[str, Any]) -> None:
        options = dict(options)
        kind = options.pop("kind", "constant")
        if kind not in SCHEDULES:
            known = ", ".join(SCHEDULES)
            raise NextwordError(f"No schedule is called '{kind}'.{did_you_mean(kind, SCHEDULES)} There are {known}.")
        self.rate, self.function, self.options = rate, SCHEDULES[kind], options
        try:
            self(Progress(0, 0, 0.0, ()))
        except TypeError:
            given = ", ".join(options)
            raise NextwordError(f"Schedule '{kind}' was given {given}; some of these it does not know.") from None

    def __call__(self, at: Progress) -> float:
        return self.function(self.rate, at, **self.options)
