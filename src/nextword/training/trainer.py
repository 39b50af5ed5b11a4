"""The one training loop: a generator of events. It knows networks and objectives by their contracts alone.

Everything that moves is in `Descent`: weights, optimizer, carried memory, random state, counters and history. `save`
writes all of it and `restore` reads it back, so that a run that was killed goes on to the same bits.

Before the first step: weights as the recipe says, and minutes turned into steps by timing the machine.

Exact resume: all that moves in a descent, as tensors and numbers, into the run folder and back.

Weights, optimizer, carried memory, random state, counters and history: a run that was killed goes on to the same bits.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.core import pytree as nest
from nextword.core.errors import NextwordError, did_you_mean
from nextword.core.protocols import Online
from nextword.core.types import Batch, State
from nextword.layers.init import INITIALISATIONS, unigram_bias
from nextword.objectives import make_objective
from nextword.training.device import arithmetic, fitted_out, placed, synchronize, utilisation
from nextword.training.events import BEGIN, END, STEP, VALID, Event, Job
from nextword.training.optimizers import Learning, averages, clip, hear, optimizer_tensors, restore_optimizer, set_rate
from nextword.training.schedules import Progress, Schedule
from nextword.training.steps import graphs_of, passes_of

NUMBERS = ("step", "total", "every", "retimed", "validations", "best", "count", "since")
PREFIX = "network."


def save(descent: Any, reason: str) -> None:
    optimizer, groups = optimizer_tensors(descent.optimizer)
    carried, shape = nest.flatten(descent.carried, "carried")
    tensors = {**network_tensors(descent.network), **optimizer, **carried, "random": torch.get_rng_state()}
    tensors["nats"] = descent.nats
    if descent.device.type == "cuda":
        tensors["random_cuda"] = torch.cuda.get_rng_state(descent.device)
    values = {
        "phase": descent.index,
        "reason": reason,
        "seconds": descent.seconds(),
        "carried": shape,
        "groups": groups,
    }
    values |= {name: getattr(descent, name) for name in NUMBERS}
    descent.run.save_state(nest.move(tensors, "cpu"), values)


def restore(descent: Any) -> bool:
    state = descent.run.load_state()
    if state is None or state[1]["phase"] != descent.index:
        return False
    tensors, values = state
    load_network(descent.network, tensors)
    restore_optimizer(descent.optimizer, tensors, values["groups"])
    descent.carried = nest.move(nest.unflatten(tensors, values["carried"]), descent.device)
    if descent.graphs and descent.carried is not None:
        descent.graphs.carry(descent.carried)
    torch.set_rng_state(tensors["random"])
    if descent.device.type == "cuda" and "random_cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random_cuda"], descent.device)
    descent.nats = tensors["nats"].to(descent.device)
    for name in (*NUMBERS, "reason"):
        setattr(descent, name, values[name])
    descent.before = values["seconds"]
    return True


def network_tensors(network: Any) -> dict[str, Tensor]:
    return {PREFIX + name: t for name, t in network.state_dict().items()}


def load_network(network: Any, tensors: Mapping[str, Tensor]) -> None:
    network.load_state_dict({k[len(PREFIX) :]: t for k, t in tensors.items() if k.startswith(PREFIX)})


VALIDATIONS = 10  # in a budget of steps or minutes that does not say how often
COUNTED = 50_000_000  # tokens, at most, for a bias of unigrams


def check_initial(network: Any, given: Mapping[str, Any]) -> None:
    kind, known = given.get("kind", ""), ", ".join(INITIALISATIONS)
    odd = given.keys() - {"kind", "scale", "bias"} or not isinstance(given.get("scale", 0.1), (int, float))
    if odd or given.get("bias", "") not in ("", "unigram") or (kind and kind not in INITIALISATIONS):
        raise NextwordError(
            f"initial takes kind (one of {known}), scale and bias = 'unigram'; the recipe says "
            f"{dict(given)}.{did_you_mean(str(kind), INITIALISATIONS)}"
        )
    if given.get("bias") and getattr(network.readout, "bias", None) is None:
        raise NextwordError(
            "initial has bias = 'unigram', but this readout has no bias for each word: leave it out of the recipe."
        )


def check_online(network: Any, phase: Any) -> None:
    """Steps that a network takes by itself have a rate and their optimizer's memory, and nothing besides."""
    name = type(network).__name__
    if not isinstance(network, Online):
        raise NextwordError(
            f"Phase '{phase.name}': online = true is for networks that take a step for each thing they predict, and "
            f"{name} takes one for a batch. Leave it out."
        )
    kind = phase.optimizer.get("kind", "adam")
    odd = phase.optimizer.keys() - {"kind", "rate", "eps", "initial_accumulator_value"}
    if kind != network.learns_with or odd:
        raise NextwordError(
            f"Phase '{phase.name}': {name} learns online with an optimizer of kind {network.learns_with} and its rate; "
            f"the recipe says {dict(phase.optimizer)}. Leave online out to learn in batches with any optimizer."
        )
    if phase.clip or phase.accumulate > 1 or phase.graphs or phase.trains:
        raise NextwordError(
            f"Phase '{phase.name}': online = true has no batches of gradients to clip, accumulate, record or keep from "
            "some layers: leave clip, accumulate, graphs and trains out."
        )


def initialise(network: Any, options: Mapping[str, Any], ids: np.ndarray) -> None:
    if options.get("kind"):
        INITIALISATIONS[options["kind"]](network, options.get("scale", 0.1))
    if options.get("bias"):
        bias = network.readout.bias
        unigram_bias(bias, torch.bincount(torch.as_tensor(ids[:COUNTED].astype("int64")), minlength=len(bias)))


def steps_from_minutes(descent: Any) -> None:
    """Time real steps and a validation, undo them, and turn the time into a number of steps."""
    budget = descent.phase.minutes * 60
    kept = nest.clone(network_tensors(descent.network))
    with torch.random.fork_rng([descent.device] if descent.device.type == "cuda" else []):
        batches = descent.batches()
        for _ in range(2):  # warm up
            descent.advance(batches)
        marks = [descent.now()]
        while len(marks) < 4 or (marks[-1] - marks[0] < min(2.0, 0.04 * budget) and len(marks) < 200):
            descent.advance(batches)
            marks.append(descent.now())
        each = statistics.median(b - a for a, b in pairwise(marks))  # what is compiled on the way counts once
        began = descent.now()
        if descent.valid is not None:
            descent.held_out()
        validations = VALIDATIONS * (descent.now() - began)
    load_network(descent.network, kept)
    descent.optimizer = descent.learning.optimizer()
    descent.graphs = graphs_of(descent)  # those recorded hold the old optimizer's rate and averages
    descent.step, descent.count, descent.since, descent.carried = 0, 0, 0, None
    descent.nats.zero_()
    descent.total = max(VALIDATIONS, int((budget - validations) / each))
    descent.every = descent.phase.validate or -(-descent.total // VALIDATIONS)
    descent.save("")  # so that a kill before the first state does not time the machine anew


RETIMED = 0.2  # of the steps, when a budget in minutes is looked at once more,
SURE = 0.1  # and of the minutes that have to be over by then: else it is looked at again later
HELD = (
    200,
    5_000,
)  # held-out tokens validated on per second of a budget in minutes, and at the least: enough for a curve


def descend(job: Job) -> Iterator[Event]:
    """Phases of kind `gradient`."""
    descent = Trainer(job)
    with descent.learning.alone():
        yield from _descended(descent, job)


def _descended(descent: Trainer, job: Job) -> Iterator[Event]:
    if descent.restore():
        reason = descent.reason
    else:
        descent.begin()
        reason = ""
    yield descent.event(BEGIN, **descent.facts())
    if descent.goes_on() and not descent.validations:
        yield descent.event(VALID, **descent.validate())
    batches = descent.batches()
    while not reason:
        descent.advance(batches)
        due = descent.due()
        if descent.step % job.phase.log == 0 or due:
            yield descent.event(STEP, **descent.measure())
        if due:
            yield descent.event(VALID, **descent.validate())
        descent.retime()
        reason = "interrupted" if job.stop() else descent.over()
        if reason == "minutes" and not due and descent.valid is not None:  # cut short: what was learnt since is worth
            yield descent.event(STEP, **descent.measure())  # a look, and perhaps keeping
            yield descent.event(VALID, **descent.validate())
        if (reason and not (job.final and reason != "interrupted")) or descent.save_is_due():
            descent.save(reason)
    if reason != "interrupted":
        descent.keep()
    yield descent.event(END, reason=reason, **descent.summary())


class Trainer:
    def __init__(self, job: Job) -> None:
        network, phase = job.network, job.phase
        device = torch.device("cpu") if phase.online else job.device
        self.network, self.phase, self.index, self.run, self.device = network, phase, job.index, job.run, device
        self.objective = make_objective(phase.objective, phase.batches, network.vocabulary)
        if hasattr(self.objective, "check"):
            self.objective.check(network)
        self.train, self.lossless = job.train, job.lossless
        self.valid: Any = job.valid if hasattr(self.objective, "held_out") else None
        check_initial(network, phase.initial)
        if phase.online:
            check_online(network, phase)
        network.to(device)
        fitted_out(network, phase, device)
        self.learning = Learning(network, phase)
        self.optimizer = self.learning.optimizer()
        self.schedule = Schedule(self.optimizer.defaults["lr"], phase.schedule)
        self.per_epoch = max(1, self.objective.per_epoch(self.train) // phase.accumulate)
        self.total = phase.steps or math.ceil(phase.epochs * self.per_epoch)  # 0 until minutes are turned into steps
        self.every = phase.validate or (self.per_epoch if phase.epochs else max(1, self.total // VALIDATIONS))
        self.step = 0
        self.retimed = not phase.minutes
        self.carried: State = None
        self.validations: list[float] = []
        self.best: dict[str, Any] = {}
        self.nats: Tensor = torch.zeros((), dtype=torch.float64, device=device)  # since the last log line
        self.count, self.since = 0, 0  # predictions and steps since then
        self.shown = 1.0  # tokens read for each prediction
        self.parts: Mapping[str, Tensor] = {}  # of the last batch's loss
        self.judged = hasattr(self.objective, "metrics")  # not by nats: a head that is new has nothing to show yet
        self.perplexity = getattr(self.objective, "perplexity", True)  # are its nats of words?
        self.metrics: Mapping[str, float] = {}  # of the last validation
        self.apart: Mapping[str, float] = {}  # nats a prediction of shares, where the objective has some, likewise
        self.norm: Tensor = torch.zeros((), device=device)
        self.graphs = graphs_of(self)
        self.passes = passes_of(self)
        self.reason = ""
        self.before = 0.0  # seconds spent before this process
        self.clock = self.marked = self.saved = time.perf_counter()

    @property
    def records_steps(self) -> bool:
        """Whether the optimizer's step can be recorded too."""
        return hasattr(self.optimizer, "apply")

    # -------------------------------------------------------------------------------------------- beginning

    def begin(self) -> None:
        """Weights as the recipe says; then, if the budget is time, learn what a step costs and turn it into steps."""
        torch.manual_seed(self.phase.seed)
        initialise(self.network, self.phase.initial, self.train.ids)
        if hasattr(self.network.readout, "prepare"):  # classes, trees and proposals come from the training text
            self.network.readout.prepare(self.train.ids)
        if self.phase.minutes:
            steps_from_minutes(self)
        elif self.index:
            self.save("")  # the phase before ends with model files that this one will overwrite
        self.clock = self.marked = self.saved = time.perf_counter()

    def retime(self) -> None:
        """Early on: the machine's pace is known better than from a few steps, so set their number anew; and save, so
        that from there on no clock decides. First steps may be slow, so after a few of them it is looked at again."""
        if self.retimed or self.step < max(RETIMED * self.total, 5):
            return
        spent, budget = self.seconds(), 60 * self.phase.minutes
        self.retimed = spent >= SURE * budget
        self.total = max(self.step + 1, int(budget * self.step / spent))
        self.every = self.phase.validate or -(-self.total // VALIDATIONS)
        self.save("")

    def facts(self) -> dict[str, Any]:
        return {
            "parameters": sum(p.numel() for p in self.network.parameters()),
            "tokens": len(self.train.ids),
            "steps": self.total,
            "per_epoch": self.per_epoch,
            "seed": self.phase.seed,
            "device": str(self.device),
            "threads": torch.get_num_threads(),
        }

    # -------------------------------------------------------------------------------------------- going on

    def batches(self) -> Iterator[Batch]:
        return self.objective.batches(self.train, self.phase.seed, self.step * self.phase.accumulate)

    def advance(self, batches: Iterator[Batch]) -> None:
        """One step of the optimizer, over `accumulate` batches."""
        self.network.train()
        if self.phase.online:
            self._online(next(batches))
            return
        if self.graphs:
            batch = next(batches)
            self._set_rate(batch.scale)
            if self.records_steps:
                self.optimizer.prepare()  # type: ignore[attr-defined]
            self.graphs(batch)
            if not self.records_steps:
                self._stepped()
            self.carried = self.graphs.state
            self.count += batch.targets.numel()
            self.step += 1
            self.since += 1
            return
        share, scale = 1 / self.phase.accumulate, 0.0
        for _ in range(self.phase.accumulate):
            batch = next(batches)
            scale += batch.scale * share
            if self.passes:
                self.parts = self.passes(batch)
                self.count += batch.predicted
                self.shown = batch.inputs.ids.numel() / batch.predicted
                continue
            batch = placed(batch, self.device)
            with arithmetic(self.phase.precision, self.device):
                loss = self.objective.loss(self.network, batch, None if batch.fresh else self.carried)
            self.backward(loss.value * share)
            self.carried = nest.detach(loss.state)
            self.nats += loss.nats
            self.count += loss.count
            self.parts = loss.parts
            shown = getattr(self.objective, "shown", 1.0)  # less where a token is predicted more than once
            self.shown = shown if batch.at is None else batch.inputs.ids.numel() / max(loss.count, 1)
        self._set_rate(scale)
        self._stepped()
        self.step += 1
        self.since += 1

    def _stepped(self) -> None:
        """The optimizer's step. Gradients that a recorded pass adds to stay where they are."""
        if self.phase.clip:
            self.norm = clip(self.optimizer, self.phase.clip)
        elif (self.step + 1) % self.phase.log == 0:  # for the log alone
            self.norm = nn.utils.get_total_norm([p.grad for p in self.network.parameters() if p.grad is not None])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.graphs is None and self.passes is None)

    def _online(self, batch: Batch) -> None:
        self._set_rate(batch.scale)
        loss = self.network.learn(batch, self.optimizer)
        self.nats += loss.nats
        self.count += loss.count
        self.step += 1
        self.since += 1

    def backward(self, value: Tensor) -> None:
        """Sixteen bits are chosen in the forward pass; how products of 32 are rounded holds for both."""
        with arithmetic("tf32" if self.phase.precision == "tf32" else "fp32", self.device):
            value.backward()

    def _set_rate(self, scale: float) -> None:
        set_rate(self.optimizer, self.schedule(self.progress()) * scale)

    def progress(self) -> Progress:
        epoch, fraction = self.step // self.per_epoch, self.step / max(self.total, 1)
        return Progress(self.step, epoch, fraction, self.validations, self.total)

    def goes_on(self) -> bool:
        """Were the weights trained before? Then they are validated as they came, and kept if nothing better follows."""
        return self.valid is not None and bool(self.index or (self.phase.init and not self.judged))

    def due(self) -> bool:
        """Is it time to validate?"""
        return self.valid is not None and (self.step % self.every == 0 or self.step == self.total)

    def over(self) -> str:
        """Why training is over, or nothing."""
        if self.phase.patience and self.best and len(self.validations) - self.best["at"] > self.phase.patience:
            return "patience"
        if self.step >= self.total:
            return next(name for name in ("epochs", "steps", "minutes") if getattr(self.phase, name))
        if self.phase.minutes and self.seconds() > 1.2 * 60 * self.phase.minutes:
            return "minutes"  # the machine has become slower than it was when it was timed
        return ""

    # -------------------------------------------------------------------------------------------- measuring

    def measure(self) -> dict[str, Any]:
        """Loss, gradient norm, rate and speed since the last line; a loss that is no number ends training here."""
        nats = self.nats.item() / max(self.count, 1)
        tokens = self.objective.tokens_each(self.network, self.train) if hasattr(self.objective, "tokens_each") else 1
        if not nats < tokens * (3 * math.log(self.network.vocabulary.size) + 10):  # NaN is never smaller
            self._diverged(nats)
        now = self.now()
        speed = self.count * self.shown / max(now - self.marked, 1e-9)
        used = utilisation(self.network, speed, getattr(self.objective, "length", 0), self.device)
        line = {
            "loss": nats,
            "of": self.total,
            **self._bits(nats, self.train, "train"),
            "rate": self.optimizer.param_groups[-1]["lr"],
            "norm": float(self.norm),
            **({name: float(part) for name, part in self.parts.items()} if len(self.parts) > 1 else {}),
            "tokens_per_second": round(speed),
            **({} if used is None else {"mfu": round(used, 4)}),
            "seen": self.step * self.count // max(self.since, 1),
        }
        self.nats.zero_()
        self.count, self.since, self.marked = 0, 0, now
        return line

    def _diverged(self, nats: float) -> None:
        state = self.run.load_state()
        kept = f"the last good state, of step {state[1]['step']}, is kept" if state else "no state had been saved yet"
        rate = self.optimizer.param_groups[-1]["lr"]
        of = "a prediction" if hasattr(self.objective, "tokens_each") else "a token"
        raise NextwordError(
            f"Training diverged: the loss is {nats:.4g} nats {of} at step {self.step} (rate {rate:g}, gradient norm "
            f"{float(self.norm):.3g}). In {self.run.path} {kept}. Train anew with a lower rate "
            f"(--set phase.{self.index}.optimizer.rate=…) or clipping (--set phase.{self.index}.clip=0.25)."
        )

    def _bits(self, nats: float, stream: Any, name: str) -> dict[str, float]:
        if not self.lossless or not stream.bytes or not getattr(self.objective, "likelihood", True):
            return {}
        return {f"{name}_bits_per_byte": nats / math.log(2) * len(stream.ids) / stream.bytes}

    def validate(self) -> dict[str, Any]:
        """Nats a token on held-out text; better than ever before means these weights are kept."""
        began = self.now()
        with averages(self.optimizer):
            return self._validated(began)

    def _validated(self, began: float) -> dict[str, Any]:
        nats = self.held_out()
        metrics = self.metrics
        if not math.isfinite(nats):  # the step after the last finite loss broke the weights: they are not kept
            self._diverged(nats)
        wanted = -next(iter(metrics.values())) if metrics else nats  # the lower, the better
        best = min(self.validations, default=math.inf)
        better = not self.best or (wanted, nats) < (best, self.best["valid"])  # of equals, the surer
        self.validations.append(wanted)
        if better:
            at = len(self.validations) if wanted < best else self.best["at"]  # that patience counts from
            self.best = {"valid": nats, **metrics, "best_step": self.step, "at": at}
            if self.phase.keep == "best":
                self.run.save_model(self.network.save)
        self.marked += self.now() - began  # not training time
        triggered = hear(self.optimizer, self.validations)
        return {
            "valid": nats,
            **(metrics or ({"perplexity": math.exp(min(nats, 700))} if self.perplexity else {})),
            **{f"{name}_perplexity": math.exp(min(share, 700)) for name, share in self.apart.items()},
            **self._bits(nats, self.valid, "valid"),
            "best": better,
            **({"averaging": True} if triggered else {}),
        }

    @torch.no_grad()
    def held_out(self) -> float:
        """Nats a prediction; the objective's metrics, where it has some, are set besides."""
        self.network.eval()
        nats, count = torch.zeros((), dtype=torch.float64, device=self.device), 0
        carried: State = None
        some = max(int(HELD[0] * 60 * self.phase.minutes), HELD[1]) if self.phase.minutes else None
        held, said = self.valid.first(some), []
        shares: dict[str, list[tuple[Tensor, int]]] = {}
        for batch in self.objective.held_out(held):
            batch = placed(batch, self.device)
            with arithmetic(self.phase.precision, self.device):
                loss = self.objective.loss(self.network, batch, None if batch.fresh else carried)
            carried = loss.state
            nats += loss.nats
            count += loss.count
            for name, share in loss.apart.items():
                shares.setdefault(name, []).append(share)
            if self.judged:
                said.append(loss.said)
        if self.judged:
            self.metrics = self.objective.metrics(held, torch.cat(said))
        self.apart = {
            name: float(sum(nats.double() for nats, _ in found)) / sum(n for _, n in found)
            for name, found in shares.items()
        }
        return nats.item() / count

    def summary(self) -> dict[str, Any]:
        return {"parameters": self.facts()["parameters"], "tokens": len(self.train.ids), **self.best}

    def event(self, kind: str, **values: Any) -> Event:
        return Event(kind, self.phase.name, self.step, self.step / self.per_epoch, self.seconds(), values)

    def seconds(self) -> float:
        return self.before + self.now() - self.clock

    def now(self) -> float:
        synchronize(self.device)
        return time.perf_counter()

    # -------------------------------------------------------------------------------------------- saving

    def save_is_due(self) -> bool:
        if self.since and self.phase.log > 1:  # only right after a measured, finite loss
            return False
        return time.perf_counter() - self.saved >= self.phase.save

    def save(self, reason: str) -> None:
        if not all(torch.isfinite(t).all() for t in (self.nats, *self.network.parameters())):
            self._diverged(math.nan)  # the last good state stays
        save(self, "" if reason == "interrupted" else reason)
        self.saved = time.perf_counter()

    def restore(self) -> bool:
        """Take up the state saved for this phase, if there is one."""
        return restore(self)

    def keep(self) -> None:
        """The weights that the run is to be used with: the best on held-out text, or the last."""
        if self.best and self.phase.keep == "best":
            self.run.verify()
            cls: Any = type(self.network)
            kept = cls.load(self.run.path, self.network.config, self.network.vocabulary)
            self.network.load_state_dict(kept.state_dict())
        else:
            with averages(self.optimizer):
                self.run.save_model(self.network.save)
                kept = nest.clone(network_tensors(self.network))
            load_network(self.network, kept)  # the next phase begins with what was kept
