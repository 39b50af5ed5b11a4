"""Optimizers: torch's own, LAMB and averaged SGD behind one wrapper, and which layers they train.

Optimizer           what the trainer sees: step, clip, set_rate, averaged_weights, on_validation
make_optimizer      a recipe's `optimizer = { kind, rate, weight_decay, … }` → Optimizer
TrainableLayers     gradual unfreezing and discriminative learning rates

LAMB                layer-wise adaptive steps for large batches (You et al. 2020)
AveragedSGD         SGD with averaged weights, NT-ASGD (Merity et al. 2018)
MovingAverage       an exponential moving average of the weights, over any other optimizer
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nextword.batching.settings import require_choice, require_number
from nextword.core import pytree
from nextword.core.errors import InvalidSetting, invalid, unknown
from nextword.models.parameter_groups import groups
from nextword.recipe import Phase

RATE_SHARE = "share"  # key of a parameter group: its learning rate as a fraction of the optimizer's

# ------------------------------------------------------------------------------------------------ the wrapper


class Optimizer:
    """A torch optimizer, with what training asks of it besides steps. Subclasses average the weights."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner

    # ---- state, as torch names it

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.inner.param_groups

    @property
    def state(self) -> Any:
        return self.inner.state

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [p for group in self.param_groups for p in group["params"]]

    def export_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors of the state by name, and everything else as JSON."""
        state = self.inner.state_dict()
        tensors, shape = pytree.flatten({str(key): part for key, part in state["state"].items()}, "optimizer")
        return tensors, {"state": shape, "groups": state["param_groups"]}

    def restore_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """The inverse of `export_state`."""
        state = pytree.unflatten(dict(tensors), values["state"])
        self.inner.load_state_dict(
            {"state": {int(key): part for key, part in state.items()}, "param_groups": values["groups"]}
        )

    # ---- steps

    @property
    def base_rate(self) -> float:
        """The learning rate of the recipe, before any schedule."""
        return float(self.inner.defaults["lr"])

    @property
    def rate(self) -> float:
        """The current learning rate of the top layers."""
        return float(self.param_groups[-1]["lr"])

    def set_rate(self, rate: float) -> None:
        """Set the learning rate; lower layers get their fraction of it."""
        for group in self.param_groups:
            group["lr"] = rate * group.get(RATE_SHARE, 1.0)

    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradients down to this norm, like clip_grad_norm_; return their norm before clipping.

        Fused optimizers of torch divide by a scale while they read the gradients, so that clipping costs no extra pass.
        """
        params = [p for p in self.parameters if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in params if p.grad is not None])
        if self.inner.defaults.get("fused"):
            self.inner.grad_scale = ((norm + 1e-6) / max_norm).clamp(min=1.0)  # type: ignore[attr-defined]
        else:
            nn.utils.clip_grads_with_norm_(params, max_norm, norm)
        return norm

    def step(self) -> None:
        self.inner.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none=set_to_none)

    # ---- recording in a CUDA graph

    is_recordable = False  # whether `apply_step` reads nothing from the host

    def prepare_step(self) -> None:
        """Before a recorded step: write the numbers that it depends on to the device."""

    def apply_step(self, scale: Tensor | None = None) -> None:
        """The step with gradients times `scale`, to be recorded."""
        raise NotImplementedError(f"{type(self.inner).__name__} cannot be recorded")

    # ---- averaging

    def averaged_weights(self) -> contextlib.AbstractContextManager[None]:
        """Within this context the network has its averaged weights, if the optimizer averages them."""
        return contextlib.nullcontext()

    def on_validation(self, losses: Sequence[float]) -> bool:
        """Take note of all validation losses so far, oldest first; return whether averaging starts now."""
        return False

    @property
    def is_averaging(self) -> bool:
        """Whether `averaged_weights` differ from the weights because averaging has been triggered."""
        return False


@contextlib.contextmanager
def swap_weights(weights: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    """Within this context the weights have other values."""
    if not weights:
        yield
        return
    saved = [p.detach().clone() for p in weights]
    with torch.no_grad():
        torch._foreach_copy_(list(weights), list(values))
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(list(weights), saved)


# ------------------------------------------------------------------------------------------------ moving average


def moving_average_weight(decay: float, step: int) -> float:
    """How much the newest weights count after this step (from 0): 1 − decay, but more at the beginning."""
    return max(1 - decay, 9 / (10 + step))


class MovingAverage(Optimizer):
    """An exponential moving average of the weights, used for validation and saved as the model.

        θ̄ ← θ̄ + (θ − θ̄) · max(1 − d, 9 / (10 + n))        after step n = 1, 2, …; after step 0, θ̄ = θ

    With d = 0.998 about the last 500 steps count. Fewer count at the beginning, where the weights are still far from
    their goal (the rule of TensorFlow's ExponentialMovingAverage with num_updates). θ̄ lives in the optimizer's state,
    so it is saved with it.
    """

    AVERAGE, STEPS = "moving_average", "averaged_steps"  # keys in the state of a weight, and in the first group

    def __init__(self, inner: torch.optim.Optimizer, decay: float) -> None:
        super().__init__(inner)
        self.decay = decay
        self.param_groups[0][self.STEPS] = 0

    def step(self) -> None:
        super().step()
        self._update_average()

    @torch.no_grad()
    def _update_average(self) -> None:
        first = self.param_groups[0]
        weight = moving_average_weight(self.decay, first[self.STEPS])
        first[self.STEPS] += 1
        params: list[Tensor] = []
        for p in self.parameters:
            if self.AVERAGE in self.state.get(p, ()):
                params.append(p)
            elif p.grad is not None:  # its first step: until now it was its own average
                self.state[p][self.AVERAGE] = p.detach().clone()
        if params:
            torch._foreach_lerp_([self.state[p][self.AVERAGE] for p in params], params, weight)

    def averaged_weights(self) -> contextlib.AbstractContextManager[None]:
        params = [p for p in self.parameters if self.AVERAGE in self.state.get(p, ())]
        return swap_weights(params, [self.state[p][self.AVERAGE] for p in params])


# ------------------------------------------------------------------------------------------------ LAMB


class LAMB(torch.optim.Optimizer):
    """Adam's direction, with a step length of its own for every tensor of weights.

        m ← β₁ m + (1 − β₁) g           m̂ = m / (1 − β₁ᵗ)
        v ← β₂ v + (1 − β₂) g²          v̂ = v / (1 − β₂ᵗ)
        u = m̂ / (√v̂ + ε) + λ x          Adam's direction with decoupled decay
        x ← x − η · ‖x‖ / ‖u‖ · u       the trust ratio is 1 where either norm is 0; φ of the paper is the identity

    You, Li, Reddi et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes" (2020),
    algorithm 2.

    A step changes every tensor by the fraction η of its own norm, however large its gradients: learning rates can be
    high, and batches large. A layer of the paper is one tensor here, so queries, keys and values in one matrix share a
    ratio. A group with `scaled` false takes plain Adam steps: biases and norms start at 0 or 1, and their size says
    nothing about how far they should move (as in ALBERT's optimizer). Bias correction follows the paper.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float,
        weight_decay: float = 0.0,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-6,
        scaled: bool = True,
    ) -> None:
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas = {list(betas)}: expected two numbers in [0, 1)")
        if eps < 0 or weight_decay < 0:
            raise ValueError(f"eps = {eps} and decay = {weight_decay} must not be negative")
        defaults = {"lr": lr, "weight_decay": weight_decay, "betas": tuple(betas), "eps": eps, "scaled": scaled}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._update(params, group)

    def _update(self, params: list[Any], group: dict[str, Any]) -> None:
        u = self._directions(params, group)
        if group["weight_decay"]:
            torch._foreach_add_(u, params, alpha=group["weight_decay"])
        if group["scaled"]:
            torch._foreach_mul_(u, list(trust_ratios(params, u).unbind()))
        torch._foreach_add_(params, u, alpha=-group["lr"])

    def _directions(self, params: list[Any], group: dict[str, Any]) -> list[Tensor]:
        """m̂ / (√v̂ + ε) of each tensor. The step count t is per tensor: some have no gradient for a while."""
        grads = [p.grad for p in params]
        states = [self._state(p) for p in params]
        for state in states:
            state["step"] += 1
        m, v = [state["mean"] for state in states], [state["square"] for state in states]
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(m, grads, 1 - beta1)
        torch._foreach_mul_(v, beta2)
        torch._foreach_addcmul_(v, grads, grads, 1 - beta2)
        denominator = torch._foreach_sqrt(v)
        torch._foreach_div_(denominator, [(1 - beta2 ** state["step"]) ** 0.5 for state in states])
        torch._foreach_add_(denominator, group["eps"])
        torch._foreach_mul_(denominator, [1 - beta1 ** state["step"] for state in states])
        return list(torch._foreach_div(m, denominator))

    def _state(self, p: nn.Parameter) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        if not state:
            state |= {"step": 0, "mean": torch.zeros_like(p), "square": torch.zeros_like(p)}
        return state


def trust_ratios(params: Sequence[Tensor], directions: Sequence[Tensor]) -> Tensor:
    """‖x‖ / ‖u‖ of each pair (n,), and 1 where either norm is 0; computed without waiting for the device."""
    x = torch.stack(torch._foreach_norm(list(params)))
    u = torch.stack(torch._foreach_norm(list(directions)))
    return torch.where((x > 0) & (u > 0), x / u, 1.0)


# ------------------------------------------------------------------------------------------------ averaged SGD


class AveragedSGD(Optimizer):
    """SGD whose weights are averaged from some step on: ASGD, or NT-ASGD, which finds that step itself.

        θ ← θ − η (g + λθ)                     every step
        θ̄ ← θ̄ + (θ − θ̄) (p + 1) / (n + p)       after the start, n = 1, 2, …

    `start` is the step at which averaging begins; 0 lets the non-monotonic trigger decide (Merity, Keskar & Socher
    2018): the validation loss is above the lowest one of more than `patience` validations ago.

    `power` p = 0 gives the mean of all weights since the start (Polyak & Juditsky 1992). With a higher power the n-th
    weights count about n^p (Shamir & Zhang 2013), so that early ones are forgotten: the average is never far behind and
    may start at once.

    Validation and the saved model use θ̄; training continues at θ. Before the start, θ̄ = θ. Learning rate and averaging
    weight are tensors on the device, so that a CUDA graph can record the step. torch's SGD holds groups and state, but
    does not take the steps.
    """

    is_recordable = True

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float,
        weight_decay: float = 0.0,
        start: int = 0,
        patience: int = 5,
        power: float = 0.0,
    ) -> None:
        for key, value, minimum in (("start", start, 0), ("patience", patience, 1), ("power", power, 0)):
            if value < minimum:
                raise ValueError(f"{key} = {value} must be at least {minimum}")
        super().__init__(torch.optim.SGD(params, lr=lr, weight_decay=weight_decay))
        self.start, self.patience, self.power = start, patience, power
        self.group = self.param_groups[0]
        self.group |= {"steps": 0, "averaged": 0, "triggered": False}
        first = self.parameters[0]
        dtype = torch.promote_types(first.dtype, torch.float32)
        self.rate_tensor = torch.tensor(lr, device=first.device, dtype=dtype)
        self.average_weight = torch.ones((), device=first.device, dtype=dtype)  # (p + 1) / (n + p)
        for p in self.parameters:
            self.state[p]["mean"] = p.detach().clone()

    def restore_state(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        super().restore_state(tensors, values)
        self.group = self.param_groups[0]

    @property
    def is_averaging(self) -> bool:
        return bool(self.group["triggered"])

    def step(self) -> None:
        self.prepare_step()
        self.apply_step()

    def prepare_step(self) -> None:
        if self.start and self.group["steps"] >= self.start:
            self.group["triggered"] = True
        self.group["steps"] += 1
        if self.group["triggered"]:
            self.group["averaged"] += 1
        self.rate_tensor.fill_(self.rate)
        self.average_weight.fill_((self.power + 1) / (max(self.group["averaged"], 1) + self.power))

    @torch.no_grad()
    def apply_step(self, scale: Tensor | None = None) -> None:
        for p in self.parameters:
            if p.grad is not None:
                gradient = p.grad if scale is None else p.grad * scale
                p.sub_(torch.add(gradient, p, alpha=self.group["weight_decay"]).mul_(self.rate_tensor))
                self.state[p]["mean"].lerp_(p, self.average_weight)

    def on_validation(self, losses: Sequence[float]) -> bool:
        """The non-monotonic trigger. Return whether averaging starts now."""
        *earlier, last = losses
        if self.start or self.group["triggered"] or len(earlier) <= self.patience:
            return False
        self.group["triggered"] = last > min(earlier[: -self.patience])
        return self.is_averaging

    def averaged_weights(self) -> contextlib.AbstractContextManager[None]:
        if not self.is_averaging:
            return contextlib.nullcontext()
        return swap_weights(self.parameters, [self.state[p]["mean"] for p in self.parameters])


# ------------------------------------------------------------------------------------------------ from a recipe


@dataclass(frozen=True)
class OptimizerKind:
    build: Callable[..., torch.optim.Optimizer | Optimizer]
    keys: tuple[str, ...]  # settings besides the common ones, with torch's names
    fixed: Mapping[str, Any] = field(default_factory=dict)  # arguments that no recipe changes


# `weight_decay` is L2 regularization for the first six (the gradient gets λθ), and decoupled for the others: the
# weights shrink by rate · λ whatever the gradient's scale (in LAMB, by a fraction of the step, whose length is rate ·
# ‖θ‖). Adafactor's rate is relative to each tensor's size and never above 1/√step; T5 uses 0.01.
OPTIMIZERS: dict[str, OptimizerKind] = {
    "sgd": OptimizerKind(torch.optim.SGD, ("momentum", "nesterov")),
    "nt-asgd": OptimizerKind(AveragedSGD, ("start", "patience", "power")),
    "adagrad": OptimizerKind(torch.optim.Adagrad, ("eps", "initial_accumulator_value")),
    "rmsprop": OptimizerKind(torch.optim.RMSprop, ("alpha", "eps", "momentum")),
    "adam": OptimizerKind(torch.optim.Adam, ("betas", "eps"), {"fused": True}),
    "nadam": OptimizerKind(torch.optim.NAdam, ("betas", "eps")),
    "adamw": OptimizerKind(torch.optim.AdamW, ("betas", "eps"), {"fused": True}),
    "nadamw": OptimizerKind(torch.optim.NAdam, ("betas", "eps"), {"decoupled_weight_decay": True}),
    "adafactor": OptimizerKind(torch.optim.Adafactor, ("beta2_decay", "eps", "d")),
    "lamb": OptimizerKind(LAMB, ("betas", "eps")),
}
COMMON = {"rate": 0.001, "weight_decay": 0.0, "decay_on": "all", "ema_decay": 0.0, "layer_discount": 1.0}
DECAY_ON = ("all", "matrices")


def make_optimizer(
    parameters: Iterable[nn.Parameter], options: Mapping[str, Any], layers: Sequence[Sequence[nn.Parameter]] = ()
) -> Optimizer:
    """Build the optimizer of a recipe's `optimizer` table.

    kind            one of OPTIMIZERS; each has keys of its own, with torch's names
    rate            learning rate
    weight_decay    see OPTIMIZERS
    decay_on        "matrices" spares biases, norms and other vectors, as transformers do; LAMB then does not scale
                    their steps either
    ema_decay       decay of a moving average of the weights, for example 0.998 (MovingAverage)
    layer_discount  divides the learning rate from each group of `layers` to the one below, for example 2.6 (Howard &
                    Ruder 2018). The last group, the top one, has the full rate. Together the layers are the parameters.
    """
    kind, settings = _check_settings(options)
    cls = OPTIMIZERS[kind].build
    param_groups: list[dict[str, Any]] = [{"params": list(parameters)}]
    if settings["layer_discount"] != 1:
        top = len(layers) - 1
        param_groups = [
            {"params": list(layer), RATE_SHARE: settings["layer_discount"] ** (i - top)}
            for i, layer in enumerate(layers)
        ]
    if settings["decay_on"] == "matrices":
        vector_settings = {"weight_decay": 0.0, **({"scaled": False} if cls is LAMB else {})}
        param_groups = [part for group in param_groups for part in _split_by_shape(group, vector_settings)]
    own = {key: value for key, value in settings.items() if key not in COMMON}
    rate, weight_decay = float(settings["rate"]), float(settings["weight_decay"])
    try:
        inner = cls(param_groups, lr=rate, weight_decay=weight_decay, **OPTIMIZERS[kind].fixed, **own)
    except (TypeError, ValueError) as problem:  # torch checks its own numbers
        raise InvalidSetting(f"Optimizer '{kind}': {problem}.", key="optimizer", value=dict(options)) from None
    if isinstance(inner, Optimizer):
        return inner
    return MovingAverage(inner, settings["ema_decay"]) if settings["ema_decay"] else Optimizer(inner)


def check_optimizer(options: Mapping[str, Any]) -> float:
    """Validate a recipe's `optimizer` table without a network, and return its learning rate."""
    parameter = nn.Parameter(torch.zeros(1, 1))
    return make_optimizer([parameter], options, [[parameter]]).base_rate


def _check_settings(options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the kind, and all its settings with their defaults."""
    settings = {**COMMON, **options}
    kind = str(settings.pop("kind", "adam")).lower()
    if kind not in OPTIMIZERS:
        raise unknown("optimizer", kind, OPTIMIZERS)
    known = (*COMMON, *OPTIMIZERS[kind].keys)
    for key in settings:
        if key not in known:
            raise unknown("key", key, known, where=f"optimizer '{kind}'")
    require_number("optimizer.rate", settings["rate"], 0, exclude_low=True)
    require_number("optimizer.weight_decay", settings["weight_decay"], 0)
    require_number("optimizer.layer_discount", settings["layer_discount"], 0, exclude_low=True)
    require_number("optimizer.ema_decay", settings["ema_decay"], 0, 1, exclude_high=True)
    require_choice("optimizer.decay_on", settings["decay_on"], DECAY_ON)
    betas = settings.get("betas", (0.9, 0.999))
    if not isinstance(betas, (list, tuple)) or len(betas) != 2:  # torch unpacks them later
        raise invalid("optimizer.betas", betas, "must be two numbers from 0 to 1.")
    if OPTIMIZERS[kind].build is AveragedSGD:  # it has one group of weights, and averages in its own way
        for key in ("decay_on", "layer_discount", "ema_decay"):
            if settings[key] != COMMON[key]:
                raise invalid(f"optimizer.{key}", settings[key], f"does not work with kind = '{kind}'. Leave it out.")
    return kind, settings


def _split_by_shape(group: Mapping[str, Any], vector_settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Split a parameter group into matrices, and vectors with settings of their own."""
    parts = [
        {**group, "params": [p for p in group["params"] if p.dim() > 1]},
        {**group, "params": [p for p in group["params"] if p.dim() < 2], **vector_settings},
    ]
    return [part for part in parts if part["params"]]


# ------------------------------------------------------------------------------------------------ which layers learn


class TrainableLayers:
    """The layers that a phase trains: gradual unfreezing (Howard & Ruder 2018, sections 3.2 and 3.3).

        [[phase]]  trainable_groups = 1    embedding · layer 1 · layer 2 · layer 3 │ head          one epoch
        [[phase]]  trainable_groups = 2    embedding · layer 1 · layer 2 │ layer 3 · head          another
        [[phase]]                  │ embedding · layer 1 · layer 2 · layer 3 · head        the rest
                                   layers to the left of │ stay frozen, to the bit

        optimizer = { rate = 0.01, layer_discount = 2.6 }        0.01/2.6⁴ · 0.01/2.6³ · 0.01/2.6² · 0.01/2.6 · 0.01

    The layer groups are those of models/parameter_groups.py, for any network and any head. Weights that never learn
    (requires_grad is false) are in no group.
    """

    def __init__(self, network: nn.Module, phase: Phase) -> None:
        self.network, self.phase = network, phase
        trainable = [[p for p in group if p.requires_grad] for group in groups(network)]
        trainable = [group for group in trainable if group]
        self.layers = trainable[-phase.trainable_groups :]
        self.frozen = [p for group in trainable[: len(trainable) - len(self.layers)] for p in group]

    def make_optimizer(self) -> Optimizer:
        """A new optimizer. If all layers learn, it has the weights in the network's order."""
        chosen = {p for group in self.layers for p in group}
        params = [p for p in self.network.parameters() if p in chosen or not self.phase.trainable_groups]
        return make_optimizer(params, self.phase.optimizer, self.layers)

    @contextlib.contextmanager
    def freeze_others(self) -> Iterator[None]:
        """Within this context only these layers have gradients."""
        for p in self.frozen:
            p.requires_grad_(False)
        try:
            yield
        finally:
            for p in self.frozen:
                p.requires_grad_(True)
