"""Phases of kind `count`: the model reads the text once and counts, and reports how far it is."""

from __future__ import annotations

import time
from collections.abc import Iterator

from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Counting
from nextword.training.events import BEGIN, END, STEP, Event, Job


def count(job: Job) -> Iterator[Event]:
    """Counting begins anew when it is resumed: it is one pass, and the same pass gives the same model."""
    network, phase = job.network, job.phase
    if not isinstance(network, Counting):
        raise NextwordError(
            f"Phase '{phase.name}' is of kind 'count', but {type(network).__name__} learns by gradient."
        )
    began = time.perf_counter()
    tokens = len(job.train.ids)
    yield Event(BEGIN, phase.name, 0, 0.0, 0.0, {"tokens": tokens})
    steps = 0
    for steps, values in enumerate(network.count(job.train, job.valid, phase.estimator), 1):
        yield Event(STEP, phase.name, steps, values.get("fraction", 0.0), time.perf_counter() - began, values)
        if job.stop():
            yield Event(END, phase.name, steps, 0.0, time.perf_counter() - began, {"reason": "interrupted"})
            return
    job.run.save_model(network.save)
    yield Event(END, phase.name, steps, 1.0, time.perf_counter() - began, {"reason": "counted", "tokens": tokens})
