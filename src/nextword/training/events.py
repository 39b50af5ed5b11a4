"""Training events: what a phase of training is given (Job) and what it yields (Event).

Terminal, log, tests, comparison and report all consume the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from nextword.recipe import Phase
from nextword.run_folder import RunFolder

BEGIN, STEP, VALID, END = "begin", "step", "valid", "end"
EVALUATE = "evaluate"  # the last event of `nextword.train(events=True)`, with the evaluation of the finished run


def never_stop() -> bool:
    """The default of `Job.stop`."""
    return False


@dataclass(frozen=True)
class Job:
    """One phase of one run."""

    network: Any  # a models.base.Network, or a model that counts or labels
    phase: Phase
    index: int  # of the phase in the recipe
    train: Any  # prepared text: batching.token_stream.Stream, pairs, or the examples of a task
    valid: Any  # held-out text of the same kind, or None
    lossless: bool  # the tokenizer is lossless, so bits per byte can be reported
    run: RunFolder | None  # None before it is created, and in benchmarks, which save nothing
    device: torch.device
    stop: Callable[[], bool] = never_stop  # asked between steps; True ends training with its state saved
    final: bool = False  # nothing follows this phase, so its last state need not be saved


@dataclass(frozen=True)
class Event:
    kind: str  # BEGIN, STEP, VALID, END or EVALUATE
    phase: str
    step: int
    epoch: float
    seconds: float  # spent in this phase, including the time before it was resumed
    values: Mapping[str, Any] = field(default_factory=dict)
    # Of VALID events: the network with its weights of this moment, for observers that copy it. It must not be changed.
    network: Any = field(default=None, compare=False, repr=False)

    @property
    def is_interrupted(self) -> bool:
        """Whether training stopped here because it was asked to."""
        return self.values.get("reason") == "interrupted"

    def as_line(self) -> dict[str, Any]:
        """A line of log.jsonl."""
        return {
            "event": self.kind,
            "phase": self.phase,
            "step": self.step,
            "epoch": round(self.epoch, 4),
            "seconds": round(self.seconds, 3),
            **self.values,
        }
