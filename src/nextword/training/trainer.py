"""The trainer: one loop for every network and every objective, as a generator of events.

    begin ──▶ step ──▶ … ──▶ validate ──▶ step ──▶ … ──▶ keep_weights
                               │ better than ever: save the model
                               ▼
                             save ◀──▶ restore        every `save_every` seconds, and when interrupted

The trainer knows networks and objectives by their base classes alone. Everything that changes during training is one of
its attributes: weights, optimizer, recurrent state, random state, counters and history. `save` writes all of it into
the run folder and `restore` reads it back, so that a killed run continues bit-exactly.

How a step is taken (eagerly, as a CUDA graph, online) is a strategy object from steps.py.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.batching.settings import require_choice, require_number
from nextword.core import pytree
from nextword.core.errors import RunError, TrainingDiverged, invalid, unknown
from nextword.core.io import Types, check_json
from nextword.core.protocols import Online
from nextword.core.types import Batch, State
from nextword.layers.init import INITIALIZATIONS, unigram_bias
from nextword.models.base import Network
from nextword.objectives import make_objective
from nextword.objectives.base import Objective
from nextword.recipe import Phase
from nextword.run_folder import RunFolder, explain_read_errors, state_position
from nextword.training.device import (
    autocast,
    check_network_options,
    configure_network,
    flops_utilization,
    synchronize,
    to_device,
)
from nextword.training.events import BEGIN, END, STEP, VALID, Event, Job
from nextword.training.noise import check_noise
from nextword.training.optimizers import TrainableLayers, check_optimizer
from nextword.training.schedules import Progress, Schedule
from nextword.training.steps import check_step, make_step

DEFAULT_SCALE = 0.1  # of `initialization`
VALIDATIONS = 10  # per phase, if a budget in steps or minutes does not say how often
MAX_UNIGRAM_TOKENS = 50_000_000  # tokens counted for a unigram bias

# A budget in minutes becomes a number of steps. It is set by timing a few steps, and corrected later:
RETIME_FRACTION = 0.2  # when this fraction of the steps is done, or of the minutes has passed;
RETIME_CERTAIN = 0.1  # once more if this fraction of the minutes had not passed, because first steps can be slow
VALID_TOKENS_PER_SECOND, VALID_TOKENS = 200, 5_000  # held-out tokens per second of such a budget, and at least

PREFIX = "network."  # of the network's tensors in a saved state
# Attributes of the trainer that a saved state has under the same name
SAVED: Types = {
    "total_steps": int,
    "validate_every": int,
    "is_budget_final": bool,
    "validations": list,
    "best": dict,
    "predictions": int,
    "steps_since_log": int,
}


def run_gradient_phase(job: Job) -> Iterator[Event]:
    """Phases of kind `gradient`: train by gradient descent, from the beginning or from the saved state."""
    trainer = Trainer(job)
    with trainer.layers.freeze_others():
        if trainer.restore():
            reason = trainer.end_reason
        else:
            trainer.begin()
            reason = ""
        yield trainer.event(BEGIN, **trainer.describe())
        if trainer.is_pretrained and not trainer.validations:
            yield trainer.event(VALID, **trainer.validate())
        batches = trainer.batches()
        while not reason:
            trainer.step(batches)
            is_due = trainer.is_validation_due()
            if trainer.steps_done % job.phase.log_every == 0 or is_due:
                yield trainer.event(STEP, **trainer.measure())
            if is_due:
                yield trainer.event(VALID, **trainer.validate())
            trainer.retime()
            reason = "interrupted" if job.stop() else trainer.reason_to_stop()
            if reason == "minutes" and not is_due and trainer.valid_data is not None:
                # Cut short: the steps since the last validation may have made the best weights.
                yield trainer.event(STEP, **trainer.measure())
                yield trainer.event(VALID, **trainer.validate())
            is_resumable_end = reason and not (job.final and reason != "interrupted")
            if is_resumable_end or trainer.is_save_due():
                trainer.save(reason)
        if reason != "interrupted":
            trainer.keep_weights()
        yield trainer.event(END, reason=reason, **trainer.summarize())


@dataclass(frozen=True)
class Validation:
    """The result of one pass over the held-out data."""

    nats: float  # per prediction
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the objective, if it has any; the first decides
    breakdown: Mapping[str, float] = field(default_factory=dict)  # nats per prediction of parts, such as directions

    @property
    def criterion(self) -> float:
        """What decides which weights are best; lower is better."""
        return -next(iter(self.metrics.values())) if self.metrics else self.nats


class Trainer:
    """One phase of training. See the module's docstring for the order of calls."""

    def __init__(self, job: Job) -> None:
        phase, network = job.phase, job.network
        self.job, self.phase, self.network = job, phase, network
        self.device = torch.device("cpu") if phase.online else job.device
        self.objective = _make_objective(job)
        self.train_data = job.train
        self.valid_data = job.valid if self.objective.has_validation else None
        network.to(self.device)
        configure_network(network, phase, self.device)
        self.layers = TrainableLayers(network, phase)
        self.optimizer = self.layers.make_optimizer()
        self.schedule = Schedule(self.optimizer.base_rate, phase.schedule)

        # Budget. total_steps is 0 until minutes are turned into steps.
        self.steps_per_epoch = max(1, self.objective.batches_per_epoch(self.train_data) // phase.accumulate)
        self.total_steps = phase.steps or count_steps(phase, self.steps_per_epoch)
        self.validate_every = phase.validate_every or (
            self.steps_per_epoch
            if phase.epochs and self.total_steps > phase.min_steps
            else max(1, self.total_steps // VALIDATIONS)
        )
        self.is_budget_final = not phase.minutes

        # Progress
        self.steps_done = 0
        self.state: State = None  # recurrent state, carried from batch to batch
        self.validations: list[float] = []  # criteria, oldest first
        self.best: dict[str, Any] = {}  # the best validation so far
        self.end_reason = ""

        # Since the last log line
        self.nats = torch.zeros((), dtype=torch.float64, device=self.device)
        self.predictions = 0
        self.steps_since_log = 0
        self.tokens_per_prediction = 1.0  # tokens read for each prediction
        self.loss_terms: Mapping[str, Tensor] = {}  # of the last batch
        self.grad_norm = torch.zeros((), device=self.device)

        # Time
        self.seconds_before = 0.0  # spent before this process
        self.started_at = self.logged_at = self.saved_at = time.perf_counter()

        self.take_step = make_step(self)

    @classmethod
    def check(cls, job: Job) -> None:
        """Validate a phase against its network and data, without moving weights or building an optimizer for them."""
        objective = _make_objective(job)
        Schedule(check_optimizer(job.phase.optimizer), job.phase.schedule)
        objective.batches_per_epoch(job.train)  # raises an error if the data is too short

    @property
    def run(self) -> RunFolder:
        assert self.job.run is not None, "this job has no run folder"
        return self.job.run

    # -------------------------------------------------------------------------------------------- begin

    def begin(self) -> None:
        """Initialize the weights as the recipe says; turn a budget in minutes into steps."""
        torch.manual_seed(self.phase.seed)
        initialize_weights(self.network, self.phase.initialization, self.train_data.ids)
        if self.network.readout is not None:
            self.network.readout.fit_vocabulary(self.train_data.ids)  # classes, trees, proposal distributions
        if self.phase.minutes:
            self._set_budget_by_timing()
        elif self.job.index:
            self.save("")  # the model files of the phase before will be overwritten by this one
        self.started_at = self.logged_at = self.saved_at = time.perf_counter()

    def _set_budget_by_timing(self) -> None:
        """Time real steps and a validation, undo them, and compute how many steps fit into the minutes."""
        budget = self.phase.minutes * 60
        weights = pytree.clone(network_tensors(self.network))
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            batches = self.batches()
            for _ in range(2):  # warm up
                self.step(batches)
            times = [self._now()]
            while len(times) < 4 or (times[-1] - times[0] < min(2.0, 0.04 * budget) and len(times) < 200):
                self.step(batches)
                times.append(self._now())
            step_seconds = statistics.median(b - a for a, b in pairwise(times))  # compilation happens once
            started = self._now()
            if self.valid_data is not None:
                self.compute_validation()
            validation_seconds = VALIDATIONS * (self._now() - started)
        load_network_tensors(self.network, weights)
        self.optimizer = self.layers.make_optimizer()
        self.take_step.reset()
        self.steps_done, self.predictions, self.steps_since_log, self.state = 0, 0, 0, None
        self.nats.zero_()
        self._set_total_steps(max(VALIDATIONS, int((budget - validation_seconds) / step_seconds)))
        self.save("")  # so that a run killed early is not timed again

    def retime(self) -> None:
        """Correct a budget in minutes once the machine's pace is known, then save the number of steps for good."""
        if self.is_budget_final or self.steps_done < 5:
            return
        spent, budget = self.seconds(), 60 * self.phase.minutes
        if self.steps_done < RETIME_FRACTION * self.total_steps and spent < RETIME_FRACTION * budget:
            return
        self.is_budget_final = spent >= RETIME_CERTAIN * budget
        self._set_total_steps(max(self.steps_done + 1, int(budget * self.steps_done / spent)))
        self.save("")

    def _set_total_steps(self, total: int) -> None:
        self.total_steps = total
        self.validate_every = self.phase.validate_every or -(-total // VALIDATIONS)

    # -------------------------------------------------------------------------------------------- step

    def batches(self) -> Iterator[Batch]:
        """Training batches from the current step on."""
        return self.objective.batches(self.train_data, self.phase.seed, self.steps_done * self.phase.accumulate)

    def step(self, batches: Iterator[Batch]) -> None:
        """Take one optimizer step."""
        self.network.train()
        self.take_step(batches)
        self.steps_done += 1
        self.steps_since_log += 1

    def backward(self, loss: Tensor) -> None:
        """Backward pass outside of bf16 autocast, as torch recommends; tf32 applies to both passes."""
        with autocast("tf32" if self.phase.precision == "tf32" else "fp32", self.device):
            loss.backward()

    def set_rate(self, scale: float) -> None:
        """Set the scheduled learning rate, times the batch's scale (variable-length BPTT)."""
        self.optimizer.set_rate(self.schedule(self.progress()) * scale)

    def update_weights(self) -> None:
        """Clip the gradients, take the optimizer's step, and clear the gradients."""
        if self.phase.clip:
            self.grad_norm = self.optimizer.clip(self.phase.clip)
        elif (self.steps_done + 1) % self.phase.log_every == 0:  # only for the log
            self.grad_norm = nn.utils.get_total_norm([p.grad for p in self.network.parameters() if p.grad is not None])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=not self.take_step.keeps_gradients)

    def progress(self) -> Progress:
        epoch, fraction = self.steps_done // self.steps_per_epoch, self.steps_done / max(self.total_steps, 1)
        return Progress(self.steps_done, epoch, fraction, self.validations, self.total_steps)

    def reason_to_stop(self) -> str:
        """The budget that is used up, or "patience"; empty: continue."""
        if self.phase.patience and self.best and len(self.validations) - self.best["at"] > self.phase.patience:
            return "patience"
        if self.steps_done >= self.total_steps:
            return "epochs" if self.phase.epochs else "steps" if self.phase.steps else "minutes"
        if self.phase.minutes and self.seconds() > 1.2 * 60 * self.phase.minutes:
            return "minutes"  # the machine has become slower since it was timed
        return ""

    # -------------------------------------------------------------------------------------------- measure

    def describe(self) -> dict[str, Any]:
        """Values of the BEGIN event."""
        notes = self.objective.notes(self.train_data)
        return {
            "parameters": sum(p.numel() for p in self.network.parameters()),
            "tokens": len(self.train_data.ids),
            "steps": self.total_steps,
            "per_epoch": self.steps_per_epoch,
            "seed": self.phase.seed,
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            **({"notes": notes} if notes else {}),
        }

    def measure(self) -> dict[str, Any]:
        """Loss, gradient norm, learning rate and speed since the last log line. Raises TrainingDiverged."""
        nats = self.nats.item() / max(self.predictions, 1)
        tokens = self.objective.tokens_per_prediction(self.network, self.train_data)
        if not nats < tokens * (3 * math.log(self.network.vocabulary.size) + 10):  # also true for NaN
            self._raise_diverged(nats)
        now = self._now()
        speed = self.predictions * self.tokens_per_prediction / max(now - self.logged_at, 1e-9)
        utilization = flops_utilization(self.network, speed, self.objective.length, self.device)
        values = {
            "loss": nats,
            "of": self.total_steps,
            **self._bits_per_byte(nats, self.train_data, "train"),
            "rate": self.optimizer.rate,
            "norm": float(self.grad_norm),
            **({name: float(term) for name, term in self.loss_terms.items()} if len(self.loss_terms) > 1 else {}),
            "tokens_per_second": round(speed),
            **({} if utilization is None else {"mfu": round(utilization, 4)}),
            "seen": self.steps_done * self.predictions // max(self.steps_since_log, 1),
        }
        self.nats.zero_()
        self.predictions, self.steps_since_log, self.logged_at = 0, 0, now
        return values

    def summarize(self) -> dict[str, Any]:
        """Values of the END event."""
        return {"parameters": self.describe()["parameters"], "tokens": len(self.train_data.ids), **self.best}

    def event(self, kind: str, **values: object) -> Event:
        epoch = self.steps_done / self.steps_per_epoch
        network = self.network if kind == VALID else None
        return Event(kind, self.phase.name, self.steps_done, epoch, self.seconds(), values, network)

    def seconds(self) -> float:
        """Training time of this phase, over all processes that worked on it."""
        return self.seconds_before + self._now() - self.started_at

    def _now(self) -> float:
        synchronize(self.device)
        return time.perf_counter()

    def _bits_per_byte(self, nats: float, data: Any, name: str) -> dict[str, float]:
        if not self.job.lossless or not self.objective.is_likelihood or not data.bytes:
            return {}
        return {f"{name}_bits_per_byte": nats / math.log(2) * len(data.ids) / data.bytes}

    def _raise_diverged(self, nats: float) -> None:
        saved = self.run.states()
        state = f"The last good state is that of step {state_position(saved[0])[1]}" if saved else "No state was saved"
        phase = f"phase.{self.job.index}"
        raise TrainingDiverged(
            f"Training diverged at step {self.steps_done}: the loss is {nats:.4g} nats per {self.objective.unit} "
            f"(learning rate {self.optimizer.rate:g}, gradient norm {float(self.grad_norm):.3g}). {state}, in "
            f"{self.run.path}. Train again with a lower learning rate (--set {phase}.optimizer.rate=…) or with "
            f"clipping (--set {phase}.clip=0.25).",
            step=self.steps_done,
        )

    # -------------------------------------------------------------------------------------------- validate

    @property
    def is_pretrained(self) -> bool:
        """Whether to validate before the first step: the weights were trained before, and may be the best there are.

        A new task head has learned nothing yet, so it is not worth validating.
        """
        is_trained = self.job.index or (self.phase.init_from and not self.objective.has_metrics)
        return self.valid_data is not None and bool(is_trained)

    def is_validation_due(self) -> bool:
        is_time = self.steps_done % self.validate_every == 0 or self.steps_done == self.total_steps
        return self.valid_data is not None and is_time

    def validate(self) -> dict[str, Any]:
        """Validate with the averaged weights, if there are any. The best weights so far become the run's model."""
        started = self._now()
        with self.optimizer.averaged_weights():
            validation = self.compute_validation()
            nats, criterion = validation.nats, validation.criterion
            if not math.isfinite(nats):  # the last step broke the weights: do not save them
                self._raise_diverged(nats)
            lowest = min(self.validations, default=math.inf)
            is_best = not self.best or (criterion, nats) < (lowest, self.best["valid"])  # metrics tie: lower loss wins
            self.validations.append(criterion)
            if is_best:
                at = len(self.validations) if criterion < lowest else self.best["at"]  # patience counts from here
                self.best = {"valid": nats, **validation.metrics, "best_step": self.steps_done, "at": at}
                if self.phase.keep == "best":
                    self.run.save_model(self.network.save, weights=self._weights_origin())
            self.logged_at += self._now() - started  # validation is not training time
            starts_averaging = self.optimizer.on_validation(self.validations)
        perplexity = {"perplexity": math.exp(min(nats, 700))} if self.objective.has_perplexity else {}
        return {
            "valid": nats,
            **(validation.metrics or perplexity),
            **{f"{name}_perplexity": math.exp(min(part, 700)) for name, part in validation.breakdown.items()},
            **self._bits_per_byte(nats, self.valid_data, "valid"),
            "best": is_best,
            **({"averaging": True} if starts_averaging else {}),
        }

    @torch.no_grad()
    def compute_validation(self) -> Validation:
        """Nats per prediction on held-out data, and the objective's metrics."""
        assert self.valid_data is not None
        self.network.eval()
        nats, count = torch.zeros((), dtype=torch.float64, device=self.device), 0
        state: State = None
        data = self.valid_data.first(self._max_valid_tokens())
        outputs: list[Tensor] = []
        parts: dict[str, list[tuple[Tensor, int]]] = {}
        for batch in self.objective.validation_batches(data):
            batch = to_device(batch, self.device)
            with autocast(self.phase.precision, self.device):
                loss = self.objective.loss(self.network, batch, None if batch.reset_state else state)
            state = loss.state
            nats += loss.nats
            count += loss.count
            for name, part in loss.breakdown.items():
                parts.setdefault(name, []).append(part)
            if self.objective.has_metrics:
                assert loss.outputs is not None
                outputs.append(loss.outputs)
        metrics = self.objective.metrics(data, torch.cat(outputs)) if self.objective.has_metrics else {}
        breakdown = {
            name: float(sum(nats.double() for nats, _ in pairs)) / sum(n for _, n in pairs)
            for name, pairs in parts.items()
        }
        return Validation(nats.item() / count, metrics, breakdown)

    def _max_valid_tokens(self) -> int | None:
        """Under a budget in minutes, validate on a part of the data: enough for a curve."""
        if not self.phase.minutes:
            return None
        return max(int(VALID_TOKENS_PER_SECOND * 60 * self.phase.minutes), VALID_TOKENS)

    # -------------------------------------------------------------------------------------------- save and restore

    def is_save_due(self) -> bool:
        if self.steps_since_log and self.phase.log_every > 1:  # save only right after a loss was found to be finite
            return False
        return time.perf_counter() - self.saved_at >= self.phase.save_every

    def save(self, reason: str) -> None:
        """Write everything that changes into the run folder. `reason`: why training ended; empty: it has not."""
        if not all(torch.isfinite(t).all() for t in (self.nats, *self.network.parameters())):
            self._raise_diverged(math.nan)  # the last good state stays
        optimizer_tensors, optimizer_values = self.optimizer.export_state()
        state_tensors, state_shape = pytree.flatten(self.state, "state")
        tensors = {**network_tensors(self.network), **optimizer_tensors, **state_tensors}
        tensors |= {"nats": self.nats, "random": torch.get_rng_state()}
        if self.device.type == "cuda":
            tensors["random_cuda"] = torch.cuda.get_rng_state(self.device)
        values = {
            **{name: vars(self)[name] for name in SAVED},
            "phase": self.job.index,
            "step": self.steps_done,
            "seconds": self.seconds(),
            "reason": "" if reason == "interrupted" else reason,
            "state": state_shape,
            "optimizer": optimizer_values,
        }
        self.run.save_state(pytree.move(tensors, "cpu"), values)
        self.saved_at = time.perf_counter()

    def restore(self) -> bool:
        """Continue from the state saved for this phase; return whether there is one."""
        saved = self.run.load_state()
        if saved is None or saved[1]["phase"] != self.job.index:
            return False
        with explain_read_errors(self.run.path / "state", "Train again."):
            check_json(saved[1], {**SAVED, "reason": str, "seconds": float}, self.run.path / "state")
            self._restore(*saved)
        return True

    def _restore(self, tensors: dict[str, Tensor], values: Mapping[str, Any]) -> None:
        load_network_tensors(self.network, tensors)
        self.optimizer.restore_state(tensors, values["optimizer"])
        self.state = pytree.move(pytree.unflatten(tensors, values["state"]), self.device)
        self.take_step.restore(self.state)
        torch.set_rng_state(tensors["random"])
        if self.device.type == "cuda" and "random_cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random_cuda"], self.device)
        self.nats = tensors["nats"].to(self.device)
        vars(self).update({name: values[name] for name in SAVED})
        self.steps_done, self.seconds_before, self.end_reason = values["step"], values["seconds"], values["reason"]

    def _weights_origin(self) -> dict[str, int]:
        """Entry of the manifest: where the run's model comes from. A damaged state may force an earlier one on us."""
        return {"phase": self.job.index, "step": self.best["best_step"]}

    def keep_weights(self) -> None:
        """Leave the network, and the run's model files, with the best weights on held-out data, or with the last."""
        if self.best and self.phase.keep == "best":
            self.run.verify()
            if self.run.manifest.get("weights") != self._weights_origin():
                raise RunError(
                    f"{self.run.path} no longer has the weights of step {self.best['best_step']} of phase "
                    f"'{self.phase.name}', which were the best: a later phase has replaced them. Train again.",
                    path=self.run.path,
                )
            self.network.reload(self.run.path)
        else:
            with self.optimizer.averaged_weights():
                self.run.save_model(self.network.save)
                weights = pytree.clone(network_tensors(self.network))
            load_network_tensors(self.network, weights)  # the next phase begins with the averaged weights


def count_steps(phase: Phase, steps_per_epoch: int) -> int:
    """Steps of a budget in epochs; 0 without one."""
    return max(math.ceil(phase.epochs * steps_per_epoch), phase.min_steps)


def network_tensors(network: nn.Module) -> dict[str, Tensor]:
    return {PREFIX + name: t for name, t in network.state_dict().items()}


def load_network_tensors(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    network.load_state_dict({k[len(PREFIX) :]: t for k, t in tensors.items() if k.startswith(PREFIX)})


# ------------------------------------------------------------------------------------------------ checks


def _make_objective(job: Job) -> Objective[Any]:
    """Build the objective of a phase; raise an error if any setting does not fit the network."""
    phase, network = job.phase, job.network
    objective = make_objective(phase.objective, phase.batches, network.vocabulary)
    objective.check(network)
    check_initialization(network, phase.initialization)
    check_noise(phase.noise, bool(phase.init_from))
    if phase.online:
        check_online(network, phase)
    check_network_options(network, phase)
    check_step(phase, objective)
    return objective


def check_initialization(network: Network, options: Mapping[str, Any]) -> None:
    """Validate a phase's `initialization = { kind, scale, bias }`."""
    kind = options.get("kind", "")
    if kind and kind not in INITIALIZATIONS:
        raise unknown("initialization", kind, INITIALIZATIONS)
    for key, value in options.items():
        if key not in ("kind", "scale", "bias"):
            raise invalid(f"initialization.{key}", value, "is not a setting. Use kind, scale and bias.")
    require_number("initialization.scale", options.get("scale", DEFAULT_SCALE))
    bias = options.get("bias", "")
    require_choice("initialization.bias", bias, ("", "unigram"))
    if bias and (network.readout is None or network.readout.output_bias is None):
        raise invalid("initialization.bias", bias, "needs an output layer with a bias per word. Leave it out.")


def initialize_weights(network: Network, options: Mapping[str, Any], ids: np.ndarray) -> None:
    if options.get("kind"):
        INITIALIZATIONS[options["kind"]](network, options.get("scale", DEFAULT_SCALE))
    if options.get("bias"):
        bias = network.readout.output_bias
        counts = torch.bincount(torch.as_tensor(ids[:MAX_UNIGRAM_TOKENS].astype("int64")), minlength=len(bias))
        unigram_bias(bias, counts)


def check_online(network: Network, phase: Phase) -> None:
    """A network that updates itself supports only a learning rate and optimizer state."""
    name, where = type(network).__name__, f"phase '{phase.name}'"
    if not isinstance(network, Online):
        problem = f"is for networks that update themselves after every prediction, and {name} does not. Leave it out."
        raise invalid("online", True, problem, where)
    kind = phase.optimizer.get("kind", "adam")
    unknown = phase.optimizer.keys() - {"kind", "rate", "eps", "initial_accumulator_value"}
    if kind != network.learns_with or unknown:
        problem = f"does not work with online = true: {name} uses '{network.learns_with}' and a rate. Leave online out."
        raise invalid("optimizer", dict(phase.optimizer), problem, where)
    defaults = {"clip": 0.0, "accumulate": 1, "cuda_graphs": False, "trainable_groups": 0}
    for key, default in defaults.items():
        value = vars(phase)[key]
        if value != default:
            raise invalid(key, value, "has no effect with online = true, where no batch has a gradient.", where)
