"""What a phase is given and what it yields. Terminal, log, tests, compare and page consume the same events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nextword.recipe import Phase

BEGIN, STEP, VALID, END = "begin", "step", "valid", "end"


@dataclass(frozen=True)
class Job:
    """One phase of one run."""

    network: Any
    phase: Phase
    index: int
    train: Any  # batching.prepare.Stream
    valid: Any  # the same, or None
    lossless: bool  # may bits per byte be spoken of?
    run: Any  # checkpoint.RunFolder
    device: Any  # torch.device
    stop: Callable[[], bool] = lambda: False  # asked between steps
    final: bool = False  # nobody goes on from its end: no state is kept of that


@dataclass(frozen=True)
class Event:
    kind: str  # begin, step, valid, end
    phase: str
    step: int
    epoch: float
    seconds: float  # of this phase, resumed time included
    values: Mapping[str, Any] = field(default_factory=dict)

    def as_line(self) -> dict[str, Any]:
        return {
            "event": self.kind,
            "phase": self.phase,
            "step": self.step,
            "epoch": round(self.epoch, 4),
            "seconds": round(self.seconds, 3),
            **self.values,
        }
