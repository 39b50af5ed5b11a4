"""One small LSTM language model trained by each optimizer: what `nextword look sgd-for-lms` measures with.

Averaging weights does not change SGD's steps. So one walk of SGD serves three optimizers: two followers go with it,
which are the library's AveragedSGD at a rate of 0. They move nothing, average what they see, and are validated so.

    sgd          the weights as they are
    asgd         their mean from step K on (Polyak & Juditsky 1992); K is half of all steps
    nt-asgd      their mean from where the held-out loss was no longer better than PATIENCE checks before
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn

from nextword import nest
from nextword.batching.prepare import Stream
from nextword.contract import State, Vocabulary
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.objectives.causal import Causal
from nextword.studies.apart import apart, spread
from nextword.studies.measures import interval
from nextword.training.averaging import AveragedSGD, averages, hear
from nextword.training.optimizers import make_optimizer

SGD, MOMENTUM, ADAM, ASGD, TRIGGERED = "SGD", "momentum 0.9", "Adam", "ASGD from half", "NT-ASGD"
WALKS: dict[str, tuple[str, ...]] = {SGD: (SGD, ASGD, TRIGGERED), MOMENTUM: (MOMENTUM,), ADAM: (ADAM,)}
WALK = {name: walk for walk, names in WALKS.items() for name in names}  # which walk serves an optimizer
OPTIONS: dict[str, dict[str, Any]] = {
    SGD: {"kind": "sgd"},
    MOMENTUM: {"kind": "sgd", "momentum": 0.9},
    ADAM: {"kind": "adam"},
}
GRIDS: dict[str, tuple[float, ...]] = {  # as many for each, twice the one before
    SGD: (10, 20, 40, 80, 160),
    MOMENTUM: (1, 2, 4, 8, 16),
    ADAM: (0.002, 0.004, 0.008, 0.016, 0.032),
}
CLIP = 0.25
PATIENCE = 5
CHECKS = 20  # validations in a walk


@dataclass(frozen=True)
class Text:
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    vocabulary: Vocabulary


@dataclass(frozen=True)
class Size:
    width: int  # of the LSTM and its vectors of tokens
    rows: int  # in a step
    length: int  # of each, in tokens
    steps: int
    train: int  # tokens of each text
    valid: int
    test: int


@dataclass(frozen=True)
class Job:
    walk: str
    rate: float
    dropout: float
    seed: int
    size: Size


@dataclass(frozen=True)
class Outcome:
    """Nats a token. The weights are those of the best check, as training keeps them."""

    valid: float
    test: float
    curve: tuple[float, ...]  # at each check
    averaged: int | None = None  # the step from which on weights are averaged


def network(job: Job, vocabulary: Vocabulary) -> LSTM:
    torch.manual_seed(job.seed)
    return LSTM(RecurrentConfig(width=job.size.width, tied=True, dropout=job.dropout), vocabulary)


def trained(job: Job, text: Text) -> dict[str, Outcome]:
    """Walk once; what each optimizer that this walk serves has found."""
    with apart():
        return _walked(job, text)


def _walked(job: Job, text: Text) -> dict[str, Outcome]:
    lstm = network(job, text.vocabulary)
    params: list[Any] = list(lstm.parameters())
    moving = make_optimizer(params, {**OPTIONS[job.walk], "rate": job.rate})
    voices: dict[str, torch.optim.Optimizer] = {job.walk: moving}
    if job.walk == SGD:
        voices[ASGD] = AveragedSGD(params, lr=0.0, start=job.size.steps // 2)
        voices[TRIGGERED] = AveragedSGD(params, lr=0.0, patience=PATIENCE)
    curves: dict[str, list[float]] = {name: [] for name in voices}
    best: dict[str, Any] = {}
    since: dict[str, int | None] = dict.fromkeys(voices)
    objective = Causal({"kind": "rows", "rows": job.size.rows, "length": job.size.length})
    state: State = None
    checks = {round(job.size.steps * i / CHECKS) for i in range(1, CHECKS + 1)}
    ids = np.roll(text.train, np.random.default_rng(job.seed).integers(len(text.train)))  # seeds differ in rows, too
    for step, batch in enumerate(islice(objective.batches(Stream.from_ids(ids), job.seed, 0), job.size.steps), 1):
        lstm.train()
        loss = objective.loss(lstm, batch, None if batch.fresh else state)
        state = nest.detach(loss.state)
        loss.value.backward()
        nn.utils.clip_grad_norm_(params, CLIP)
        for optimizer in voices.values():
            optimizer.step()
        moving.zero_grad()
        if step not in checks:
            continue
        raw = nats(lstm, text.valid)
        for name, optimizer in voices.items():
            averaging = isinstance(optimizer, AveragedSGD) and optimizer.averaging
            with averages(optimizer):
                curves[name].append(nats(lstm, text.valid) if averaging else raw)
                if curves[name][-1] == min(curves[name]):
                    best[name] = [p.detach().clone() for p in params]
            hear(optimizer, curves[name])
            if since[name] is None and isinstance(optimizer, AveragedSGD) and optimizer.averaging:
                since[name] = optimizer.start or step
    found = {}
    for name, weights in best.items():
        with torch.no_grad():
            torch._foreach_copy_(params, weights)
        found[name] = Outcome(min(curves[name]), nats(lstm, text.test), tuple(curves[name]), since[name])
    return found


@torch.no_grad()
def nats(lstm: LSTM, ids: np.ndarray) -> float:
    """A token, read from left to right without dropout. A loss that is no number is a large one."""
    lstm.eval()
    objective = Causal({"kind": "rows"})
    total, count = 0.0, 0
    state: State = None
    for batch in objective.held_out(Stream.from_ids(ids)):
        loss = objective.loss(lstm, batch, state)
        total, count, state = total + float(loss.nats), count + loss.count, loss.state
    return total / count if np.isfinite(total) else 1e3


def train_all(
    jobs: Sequence[Job], text: Text, done: Callable[[], None], workers: int = 0
) -> dict[Job, dict[str, Outcome]]:
    """Every job, on all cores: each walk is too small to be shared out among them."""
    return spread({job: (trained, (job, text)) for job in jobs}, lambda n, total: done(), workers)


def lower(these: Mapping[int, float], those: Mapping[int, float]) -> list[float] | None:
    """By how many per cent of perplexity these are below those: mean over seeds, 95 % interval. None for one seed."""
    found = interval(np.array([those[seed] - these[seed] for seed in sorted(these)]))
    return None if found is None else [float(100 * (1 - np.exp(-x))) for x in found]
