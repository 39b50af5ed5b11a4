"""Phases of kind `show`: nothing is learnt. A language model is shown solved examples (prompting.py), and labels what
is held out."""

from __future__ import annotations

import time
from collections.abc import Iterator

from nextword.contract_errors import NextwordError
from nextword.training.events import BEGIN, END, STEP, VALID, Event, Job


def show(job: Job) -> Iterator[Event]:
    """Labelling begins anew when it is resumed: the same examples are shown, and the same is said."""
    model, phase = job.network, job.phase
    if not hasattr(model, "labelled"):
        raise NextwordError(
            f"Phase '{phase.name}' is of kind 'show', in which nothing is learnt: it is for `nextword transfer "
            "gpt3/in-context`."
        )
    began = time.perf_counter()
    shown = {"shots": sum(model.solved.values()), "parameters": model.stored, "seed": phase.seed}
    yield Event(BEGIN, phase.name, 0, 0.0, 0.0, {**shown, "device": str(job.device), "notes": model.notes})
    job.run.save_model(model.save)
    done = 0
    for done, total in model.labelled(job.valid):
        yield Event(STEP, phase.name, done, done / total, time.perf_counter() - began, {"of": total})
        if job.stop() and done < total:
            yield Event(END, phase.name, done, 0.0, time.perf_counter() - began, {"reason": "interrupted"})
            return
    values = {**model.measured(job.valid["dev"]), "best": True}
    yield Event(VALID, phase.name, done, 1.0, time.perf_counter() - began, values)
    yield Event(END, phase.name, done, 1.0, time.perf_counter() - began, {"reason": "shown"})
