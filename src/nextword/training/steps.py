"""A step of training as a recorded graph: the GPU runs it without waiting for Python to launch its hundreds of kernels.

A graph has fixed shapes, so there is one for each shape of batch; they share their memory, for only one runs at a time.
A shape is trained on as usual when it comes first, which also makes every library ready, and recorded when it comes
again. What changes from step to step lives in tensors that stay where they are: the batch, the carried state, the rate.

`Graphs` record whole steps, whose optimizer can be recorded too. `Passes` record forward and backward alone, of batches
without a state: gradients stay where they are, and any optimizer reads them there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nextword.core import pytree as nest
from nextword.core.errors import NextwordError
from nextword.core.types import Batch, Inputs, State
from nextword.kernels.graph_capture import recorded
from nextword.training.device import arithmetic, placed

MOST = 160  # graphs; shapes beyond are trained on as usual

Work = Callable[[Batch, State], State]


class Graphs:
    """`work(batch, state) → state` is the whole step; `initial(rows)` is the state that a fresh batch begins with."""

    def __init__(self, device: torch.device, work: Work, initial: Callable[[int], State]) -> None:
        self.work, self.initial = work, initial
        self.stream = torch.cuda.Stream(device)
        self.device = device
        self.state: State = None  # stays in place from the first step on
        self.seen: set[tuple[int, ...]] = set()
        self.recorded: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Batch]] = {}
        self.pool: Any = None

    def carry(self, state: State) -> None:
        """Go on from a state that was saved."""
        self.state = nest.clone(state)

    def __call__(self, batch: Batch) -> None:
        now = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(now)
        with torch.cuda.stream(self.stream):
            if self.state is None:
                self.state = nest.clone(self.initial(len(batch.targets)))
            elif batch.fresh:
                nest.copy(self.state, self.initial(len(batch.targets)))
            self._run(batch)
        now.wait_stream(self.stream)

    def _run(self, batch: Batch) -> None:
        shape = tuple(batch.inputs.ids.shape)
        if shape not in self.recorded:
            if shape not in self.seen or len(self.recorded) >= MOST:
                self.seen.add(shape)
                nest.copy(self.state, nest.detach(self.work(_moved(batch, self.device), self.state)))
                return
            self._record(shape, batch)
        graph, place = self.recorded[shape]
        place.inputs.ids.copy_(batch.inputs.ids, non_blocking=True)
        place.targets.copy_(batch.targets, non_blocking=True)
        graph.replay()

    def _record(self, shape: tuple[int, ...], batch: Batch) -> None:
        place = _moved(batch, self.device)
        with recorded(pool=self.pool, stream=self.stream) as graph:
            nest.copy(self.state, nest.detach(self.work(place, self.state)))
        self.pool = self.pool or graph.pool()
        self.recorded[shape] = (graph, place)


def _moved(batch: Batch, device: torch.device) -> Batch:
    return Batch(Inputs(batch.inputs.ids.to(device)), batch.targets.to(device), scale=batch.scale)


class Passes:
    """`work(batch)` is forward and backward; what it gives is a nest of tensors, which a replay writes anew."""

    def __init__(self, device: torch.device, work: Callable[[Batch], Any]) -> None:
        self.work, self.device = work, device
        self.stream = torch.cuda.Stream(device)
        self.seen: set[Hashable] = set()
        self.recorded: dict[Hashable, tuple[torch.cuda.CUDAGraph, Batch, Any]] = {}
        self.pool: Any = None

    def __call__(self, batch: Batch) -> Any:
        now = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(now)
        with torch.cuda.stream(self.stream):
            found = self._run(batch)
        now.wait_stream(self.stream)
        return found

    def _run(self, batch: Batch) -> Any:
        shape = shape_of(batch)
        if shape not in self.recorded:
            if shape not in self.seen or len(self.recorded) >= MOST:
                self.seen.add(shape)
                return self.work(placed(batch, self.device))
            place = placed(batch, self.device)
            with recorded(pool=self.pool, stream=self.stream) as graph:  # nothing is computed meanwhile
                given = self.work(place)
            self.pool = self.pool or graph.pool()
            self.recorded[shape] = graph, place, given
        graph, place, given = self.recorded[shape]
        for to, value in zip(tensors_of(place).values(), tensors_of(placed(batch, self.device)).values(), strict=True):
            to.copy_(value)
        graph.replay()
        return given


def tensors_of(batch: Batch) -> Mapping[str, Tensor]:
    """All that a batch is made of, by name."""
    both = {f"inputs.{name}": value for name, value in vars(batch.inputs).items()} | vars(batch)
    return {name: value for name, value in both.items() if isinstance(value, Tensor)}


def shape_of(batch: Batch) -> Hashable:
    """Batches that have the same are alike but for the values in their tensors."""
    sizes = batch.inputs.sizes if batch.inputs.starts is None else None  # of texts end to end `starts` says them
    rest = (batch.inputs.longest, sizes, batch.scale, batch.part, batch.predicted)
    return rest, tuple((name, t.shape, t.dtype) for name, t in tensors_of(batch).items())


# ------------------------------------------------------------------------------------------------ of a descent


def graphs_of(descent: Any) -> Graphs | None:
    """Of a phase that asks for them, on a GPU. Its steps have to be of one batch each."""
    phase = descent.phase
    if not phase.graphs or getattr(descent.objective, "recordable", False):
        return None
    if phase.accumulate > 1:
        raise NextwordError(
            f"Phase '{phase.name}': graphs = true goes with accumulate = 1. Leave it out, or change that."
        )
    if descent.device.type != "cuda":
        return None
    return Graphs(descent.device, lambda batch, state: recorded_step(descent, batch, state), descent.network.initial)


def passes_of(descent: Any) -> Passes | None:
    """Forward and backward, of objectives and networks that ask nothing of a GPU on the way."""
    phase = descent.phase
    able = all(getattr(part, "recordable", False) for part in (descent.objective, descent.network))
    if not phase.graphs or not able or descent.device.type != "cuda" or phase.precision != "bf16":
        return None
    descent.objective.even_out()
    return Passes(descent.device, lambda batch: _both_ways(descent, batch))


def recorded_step(descent: Any, batch: Batch, state: State) -> State:
    """Forward and backward; where it can be recorded, clipping and the optimizer's step."""
    with arithmetic(descent.phase.precision, descent.device):
        loss = descent.objective.loss(descent.network, batch, state)
    descent.backward(loss.value)
    descent.nats.add_(loss.nats)
    if not descent.records_steps:
        return loss.state
    norm = nn.utils.get_total_norm([p.grad for p in descent.network.parameters() if p.grad is not None])
    most = descent.phase.clip
    scale = (most / (norm + 1e-6)).clamp(max=1.0) if most else None  # as clip_grad_norm_
    descent.optimizer.apply(scale)
    descent.optimizer.zero_grad()
    descent.norm.copy_(norm)
    return loss.state


def _both_ways(descent: Any, batch: Batch) -> Mapping[str, Tensor]:
    """Forward and backward. Gradients are added to what is there, zeros."""
    with arithmetic(descent.phase.precision, descent.device):
        loss = descent.objective.loss(descent.network, batch, None)
    descent.backward(loss.value / descent.phase.accumulate)
    descent.nats.add_(loss.nats)
    return loss.parts
