"""How one optimizer step is taken: strategies that the trainer chooses between once, at the beginning.

    EagerStep             forward, backward, update, over `accumulate` batches; works everywhere
    CudaGraphStep         a whole step recorded as a CUDA graph, for networks with a recurrent state
    RecordedPassesStep    forward and backward recorded; the optimizer steps as usual (fine-tuning encoders in bf16)
    OnlineStep            the network updates itself, prediction by prediction, on the CPU (word2vec, GloVe)

A CUDA graph lets the GPU run a step without waiting for Python to launch its hundreds of kernels. It has fixed shapes,
so there is one graph per shape of batch; they share their memory, because only one runs at a time. A shape runs eagerly
the first time, which also warms up all libraries, and is recorded the second time. Whatever changes from step to step
lives in tensors that stay where they are: the batch, the recurrent state, the learning rate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nextword.core import pytree
from nextword.core.errors import invalid
from nextword.core.types import Batch, Inputs, State
from nextword.kernels.graph_capture import capture_graph
from nextword.objectives.base import Objective
from nextword.recipe import Phase
from nextword.training.device import autocast, to_device

if TYPE_CHECKING:
    from nextword.training.trainer import Trainer

MAX_GRAPHS = 160  # further shapes run eagerly


def check_step(phase: Phase, objective: Objective[Any]) -> None:
    """Raise an error if the phase's steps cannot be recorded as it asks."""
    if phase.cuda_graphs and not objective.recordable and phase.accumulate > 1:
        problem = "does not work with cuda_graphs = true, which records steps of one batch. Leave one of them out."
        raise invalid("accumulate", phase.accumulate, problem, f"phase '{phase.name}'")


def make_step(trainer: Trainer) -> Step:
    """Choose the strategy that the phase asks for and the device supports."""
    phase, on_gpu = trainer.phase, trainer.device.type == "cuda"
    if phase.online:
        return OnlineStep(trainer)
    if phase.cuda_graphs and on_gpu and not trainer.objective.recordable:
        return CudaGraphStep(trainer)
    if phase.cuda_graphs and on_gpu and trainer.network.recordable and phase.precision == "bf16":
        return RecordedPassesStep(trainer)
    return EagerStep(trainer)


class Step(ABC):
    """Takes one optimizer step: reads batches, updates the weights, and adds to the trainer's running loss."""

    keeps_gradients = False  # gradients stay in the same memory, because a recorded graph writes there

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    @abstractmethod
    def __call__(self, batches: Iterator[Batch]) -> None: ...

    def restore(self, state: State) -> None:  # noqa: B027
        """Continue from the recurrent state of a saved run."""

    def reset(self) -> None:  # noqa: B027
        """Forget everything that belongs to the current optimizer and state, because both are replaced."""


class OnlineStep(Step):
    """The network takes its own steps through a batch, with the optimizer's learning rate and memory."""

    def __call__(self, batches: Iterator[Batch]) -> None:
        trainer, batch = self.trainer, next(batches)
        trainer.set_rate(batch.scale)
        loss = trainer.network.learn(batch, trainer.optimizer)
        trainer.nats += loss.nats
        trainer.predictions += loss.count


class EagerStep(Step):
    """Forward and backward over `accumulate` batches, then the optimizer's step."""

    def __call__(self, batches: Iterator[Batch]) -> None:
        trainer = self.trainer
        share, scale = 1 / trainer.phase.accumulate, 0.0
        for _ in range(trainer.phase.accumulate):
            batch = next(batches)
            scale += batch.scale * share
            self.accumulate(batch, share)
        trainer.set_rate(scale)
        trainer.update_weights()

    def accumulate(self, batch: Batch, share: float) -> None:
        """Add this share of the batch's gradient."""
        trainer = self.trainer
        batch = to_device(batch, trainer.device)
        with autocast(trainer.phase.precision, trainer.device):
            loss = trainer.objective.loss(trainer.network, batch, None if batch.reset_state else trainer.state)
        trainer.backward(loss.value * share)
        trainer.state = pytree.detach(loss.state)
        trainer.nats += loss.nats
        trainer.predictions += loss.count
        trainer.loss_terms = loss.terms
        if batch.target_positions is None:
            trainer.tokens_per_prediction = trainer.objective.tokens_read_per_prediction
        else:
            trainer.tokens_per_prediction = batch.inputs.ids.numel() / max(loss.count, 1)


# ------------------------------------------------------------------------------------------------ CUDA graphs


class CudaGraphStep(Step):
    """Records forward and backward pass and, if the optimizer allows, clipping and its step."""

    keeps_gradients = True

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.reset()

    def reset(self) -> None:
        self.stream = torch.cuda.Stream(self.trainer.device)
        self.state: State = None  # stays in place from the first step on
        self.seen: set[tuple[int, ...]] = set()
        self.recorded: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Batch]] = {}
        self.pool: tuple[int, int] | None = None

    def restore(self, state: State) -> None:
        if state is not None:
            self.state = pytree.clone(state)

    def __call__(self, batches: Iterator[Batch]) -> None:
        trainer, batch = self.trainer, next(batches)
        trainer.set_rate(batch.scale)
        if trainer.optimizer.is_recordable:
            trainer.optimizer.prepare_step()
        self._run_on_stream(batch)
        if not trainer.optimizer.is_recordable:
            trainer.update_weights()
        trainer.state = self.state
        trainer.predictions += batch.targets.numel()

    def _run_on_stream(self, batch: Batch) -> None:
        current = torch.cuda.current_stream(self.trainer.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            if self.state is None:
                self.state = pytree.clone(self.trainer.network.initial(len(batch.targets)))
            elif batch.reset_state:
                pytree.copy_into(self.state, self.trainer.network.initial(len(batch.targets)))
            self._run(batch)
        current.wait_stream(self.stream)

    def _run(self, batch: Batch) -> None:
        shape = tuple(batch.inputs.ids.shape)
        if shape not in self.recorded:
            if shape not in self.seen or len(self.recorded) >= MAX_GRAPHS:
                self.seen.add(shape)
                self._compute(self._copy_batch(batch))
                return
            static_batch = self._copy_batch(batch)
            with capture_graph(pool=self.pool, stream=self.stream) as graph:
                self._compute(static_batch)
            self.pool = self.pool or graph.pool()
            self.recorded[shape] = (graph, static_batch)
        graph, static_batch = self.recorded[shape]
        static_batch.inputs.ids.copy_(batch.inputs.ids, non_blocking=True)
        static_batch.targets.copy_(batch.targets, non_blocking=True)
        graph.replay()

    def _compute(self, batch: Batch) -> None:
        pytree.copy_into(self.state, pytree.detach(compute_step(self.trainer, batch, self.state)))

    def _copy_batch(self, batch: Batch) -> Batch:
        device = self.trainer.device
        return Batch(Inputs(batch.inputs.ids.to(device)), batch.targets.to(device), scale=batch.scale)


def compute_step(trainer: Trainer, batch: Batch, state: State) -> State:
    """Forward and backward pass and, if the optimizer can be recorded, clipping and its step. Return the new state."""
    with autocast(trainer.phase.precision, trainer.device):
        loss = trainer.objective.loss(trainer.network, batch, state)
    trainer.backward(loss.value)
    trainer.nats.add_(loss.nats)
    if not trainer.optimizer.is_recordable:
        return loss.state
    norm = nn.utils.get_total_norm([p.grad for p in trainer.network.parameters() if p.grad is not None])
    max_norm = trainer.phase.clip
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0) if max_norm else None  # like clip_grad_norm_
    trainer.optimizer.apply_step(scale)
    trainer.optimizer.zero_grad()
    trainer.grad_norm.copy_(norm)
    return loss.state


class RecordedPassesStep(EagerStep):
    """Records forward and backward pass of batches without a state. Gradients are added to zeros that stay in place,
    where any optimizer reads them."""

    keeps_gradients = True

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        trainer.objective.limit_shapes()
        self.stream = torch.cuda.Stream(trainer.device)
        self.seen: set[Hashable] = set()
        self.recorded: dict[Hashable, tuple[torch.cuda.CUDAGraph, Batch, Mapping[str, Tensor]]] = {}
        self.pool: tuple[int, int] | None = None

    def accumulate(self, batch: Batch, share: float) -> None:
        trainer = self.trainer
        current = torch.cuda.current_stream(trainer.device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            trainer.loss_terms = self._run(batch)
        current.wait_stream(self.stream)
        trainer.predictions += batch.num_targets
        trainer.tokens_per_prediction = batch.inputs.ids.numel() / batch.num_targets

    def _run(self, batch: Batch) -> Mapping[str, Tensor]:
        device = self.trainer.device
        shape = batch_shape(batch)
        if shape not in self.recorded:
            if shape not in self.seen or len(self.recorded) >= MAX_GRAPHS:
                self.seen.add(shape)
                return self._compute(to_device(batch, device))
            static_batch = to_device(batch, device)
            with capture_graph(pool=self.pool, stream=self.stream) as graph:  # records, but computes nothing
                terms = self._compute(static_batch)
            self.pool = self.pool or graph.pool()
            self.recorded[shape] = graph, static_batch, terms
        graph, static_batch, terms = self.recorded[shape]
        new = batch_tensors(to_device(batch, device))
        for static, value in zip(batch_tensors(static_batch).values(), new.values(), strict=True):
            static.copy_(value)
        graph.replay()
        return terms

    def _compute(self, batch: Batch) -> Mapping[str, Tensor]:
        trainer = self.trainer
        with autocast(trainer.phase.precision, trainer.device):
            loss = trainer.objective.loss(trainer.network, batch, None)
        trainer.backward(loss.value / trainer.phase.accumulate)
        trainer.nats.add_(loss.nats)
        return loss.terms


def batch_tensors(batch: Batch) -> Mapping[str, Tensor]:
    """All tensors of a batch by name."""
    fields = {f"inputs.{name}": value for name, value in vars(batch.inputs).items()} | vars(batch)
    return {name: value for name, value in fields.items() if isinstance(value, Tensor)}


def batch_shape(batch: Batch) -> Hashable:
    """Two batches of equal shape differ only in the values of their tensors, so one graph serves both."""
    sizes = batch.inputs.sizes if batch.inputs.starts is None else None  # in a packed row, `starts` has the sizes
    numbers = (batch.inputs.longest, sizes, batch.scale, batch.task_index, batch.num_targets)
    return numbers, tuple((name, t.shape, t.dtype) for name, t in batch_tensors(batch).items())
