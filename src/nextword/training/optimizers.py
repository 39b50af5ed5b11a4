"""Optimizers that recipes name, most of them torch's, and two ways to shrink weights: L2 and decoupled decay.

LAMB: Adam's direction, with a length of its own for each tensor of weights.

You, Li, Reddi et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes" (2020), algorithm 2.

    m ← β₁ m + (1 − β₁) g           m̂ = m / (1 − β₁ᵗ)
    v ← β₂ v + (1 − β₂) g²          v̂ = v / (1 − β₂ᵗ)
    u = m̂ / (√v̂ + ε) + λ x          Adam's direction with decoupled decay
    x ← x − η · ‖x‖ / ‖u‖ · u       the ratio is 1 where either norm is 0; φ of the paper is the identity

So a step changes every tensor by the share η of its own length, however large its gradients: rates can be high, and
batches with them. What the paper calls a layer is one tensor here; queries, keys and values that are one matrix have
one ratio. Weights that are left out of the decay are not scaled either (ratio 1), as in ALBERT's own optimizer: biases
and norms begin at 0 or 1, and their length says nothing of how far they should move. Bias correction is the paper's;
ALBERT's optimizer left it out.

SGD whose weights are averaged from some point on: plain ASGD, and NT-ASGD, which finds that point itself.

    θ ← θ − η (g + λθ)                     every step
    θ̄ ← θ̄ + (θ − θ̄) (p + 1) / (n + p)       after the start, n = 1, 2, …

With p = 0 this is the mean of all weights since the start (Polyak & Juditsky 1992). A higher power p makes the n-th
count about n^p (Shamir & Zhang 2013), so that what was learnt long ago is forgotten: then the average is never far
behind, needs no second stage that begins it anew, and may start at once. NT-ASGD (Merity, Keskar & Socher 2018) starts
when the held-out loss has stopped falling: when it is above the least of those more than `patience` validations ago.
Evaluation and saving use θ̄; training goes on at θ. Before the start θ̄ is θ itself. Rate and share are tensors, so that
a step can be captured and replayed.

A moving average that follows the weights of any optimizer, and is used in their place where nothing is learnt.

    θ̄ ← θ̄ + (θ − θ̄) · max(1 − d, 9 / (10 + n))        after step n = 1, 2, …; after step 0, θ̄ is θ

With d = 0.998 about the last five hundred steps count. At the beginning fewer do, for there the weights are still far
from where they will be: as TensorFlow's average does it that is told the number of updates. The average of a weight is
in the optimizer's state, beside what else is kept of it, and so in what a run saves.

Which layers learn in a phase, and how fast: gradual unfreezing, and rates that fall from the head down.

    [[phase]]  trains = 1      embedding · layer 1 · layer 2 · layer 3 │ head          one epoch
    [[phase]]  trains = 2      embedding · layer 1 · layer 2 │ layer 3 · head          another
    [[phase]]                  │ embedding · layer 1 · layer 2 · layer 3 · head        until it is enough
                               what is left of │ stays as it is, to the bit

    optimizer = { rate = 0.01, discount = 2.6 }        0.01/2.6⁴ · 0.01/2.6³ · 0.01/2.6² · 0.01/2.6 · 0.01

Howard & Ruder (2018, sections 3.2 and 3.3). The groups are those of models/groups.py, for any network and any head.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nextword.core import pytree as nest
from nextword.core.errors import NextwordError, did_you_mean
from nextword.kernels import triton_kernels as kernels
from nextword.models.parameter_groups import groups
from nextword.recipe import Phase


class LAMB(torch.optim.Optimizer):
    """A group with `scaled` false takes Adam's steps as they are. Without decay a scaled group is still scaled."""

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
            raise ValueError(f"betas = {list(betas)} must be two numbers from 0 up to below 1")
        if eps < 0 or weight_decay < 0:
            raise ValueError(f"eps = {eps} and decay = {weight_decay} must not be negative")
        known = {"lr": lr, "weight_decay": weight_decay, "betas": tuple(betas), "eps": eps, "scaled": scaled}
        super().__init__(params, known)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._move(params, group)

    def _move(self, params: list[Any], group: dict[str, Any]) -> None:
        u = self._directions(params, group)
        if group["weight_decay"]:
            torch._foreach_add_(u, params, alpha=group["weight_decay"])
        if group["scaled"]:
            torch._foreach_mul_(u, list(ratios(params, u).unbind()))
        torch._foreach_add_(params, u, alpha=-group["lr"])

    def _directions(self, params: list[Any], group: dict[str, Any]) -> list[Tensor]:
        """m̂ / (√v̂ + ε) of each; one that had no gradient for a while counts the steps that it took itself."""
        grads: Any = [p.grad for p in params]
        states = [self._state(p) for p in params]
        for state in states:
            state["step"] += 1
        m, v = [state["mean"] for state in states], [state["square"] for state in states]
        first, second = group["betas"]
        torch._foreach_lerp_(m, grads, 1 - first)
        torch._foreach_mul_(v, second)
        torch._foreach_addcmul_(v, grads, grads, 1 - second)
        below = torch._foreach_sqrt(v)
        torch._foreach_div_(below, [(1 - second ** state["step"]) ** 0.5 for state in states])
        torch._foreach_add_(below, group["eps"])
        torch._foreach_mul_(below, [1 - first ** state["step"] for state in states])
        return list(torch._foreach_div(m, below))

    def _state(self, p: nn.Parameter) -> dict[str, Any]:
        state: dict[str, Any] = self.state[p]
        if not state:
            state |= {"step": 0, "mean": torch.zeros_like(p), "square": torch.zeros_like(p)}
        return state


def ratios(params: Sequence[Tensor], directions: Sequence[Tensor]) -> Tensor:
    """‖x‖ / ‖u‖ of each pair (n,), and 1 where either is zero; no number leaves the device."""
    x = torch.stack(torch._foreach_norm(list(params)))
    u = torch.stack(torch._foreach_norm(list(directions)))
    return torch.where((x > 0) & (u > 0), x / u, 1.0)


class AveragedSGD(torch.optim.Optimizer):
    """`start`: the step from which on weights are averaged. 0: found by the trigger, with `patience` validations.

    `power`: how much more the later weights count; 0: all the same.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float = 0.0,
        start: int = 0,
        patience: int = 5,
        power: float = 0.0,
    ) -> None:
        if start < 0 or patience < 1 or power < 0:
            raise NextwordError(
                f"NT-ASGD: start = {start} and power = {power} must not be negative, and patience = {patience} at "
                "least 1."
            )
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.start, self.patience, self.power = start, patience, power
        group = self.param_groups[0]
        group |= {"steps": 0, "averaged": 0, "triggered": False}
        first = group["params"][0]
        kind = torch.promote_types(first.dtype, torch.float32)
        self.rate = torch.tensor(lr, device=first.device, dtype=kind)
        self.share = torch.ones((), device=first.device, dtype=kind)
        for p in group["params"]:
            self.state[p]["mean"] = p.detach().clone()

    @property
    def averaging(self) -> bool:
        return bool(self.param_groups[0]["triggered"])

    def prepare(self) -> None:
        """Before a step: write the numbers that it reads into their tensors."""
        group = self.param_groups[0]
        if self.start and group["steps"] >= self.start:
            group["triggered"] = True
        group["steps"] += 1
        if group["triggered"]:
            group["averaged"] += 1
        self.rate.fill_(group["lr"])
        self.share.fill_((self.power + 1) / (max(group["averaged"], 1) + self.power))

    @torch.no_grad()
    def apply(self, scale: Tensor | None = None) -> None:
        """The step itself, of gradients times `scale`; nothing in it depends on a number outside the device."""
        group = self.param_groups[0]
        params = [p for p in group["params"] if p.grad is not None]
        grads: Any = [p.grad for p in params]
        means = [self.state[p]["mean"] for p in params]
        if self.rate.is_cuda and kernels.available():
            whole = torch.ones_like(self.rate) if scale is None else scale
            kernels.averaged_step(params, grads, means, self.rate, self.share, whole, group["weight_decay"])
            return
        if not self.rate.is_cuda:  # its numbers are at hand, and in pieces that stay in the cache memory is read once
            rate, share, decay = float(self.rate), float(self.share), group["weight_decay"]
            for each in zip(params, grads, means, strict=True):
                pieces = max(1, each[0].numel() >> 17)
                for p, g, mean in zip(*(torch.atleast_1d(t).chunk(pieces) for t in each), strict=True):
                    p.sub_(torch.add(g if scale is None else g * scale, p, alpha=decay).mul_(rate))
                    mean.lerp_(p, share)
            return
        if scale is not None:
            grads = torch._foreach_mul(grads, scale)
        if group["weight_decay"]:
            grads = torch._foreach_add(grads, params, alpha=group["weight_decay"])
        torch._foreach_sub_(params, torch._foreach_mul(grads, self.rate))
        change = torch._foreach_sub(params, means)
        torch._foreach_mul_(change, self.share)
        torch._foreach_add_(means, change)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.prepare()
        self.apply()

    def validated(self, history: Sequence[float]) -> bool:
        """Hear the held-out losses so far, oldest first; says whether averaging begins now."""
        group = self.param_groups[0]
        *before, now = history
        if self.start or group["triggered"] or len(before) <= self.patience:
            return False
        group["triggered"] = now > min(before[: -self.patience])
        return bool(group["triggered"])

    @contextlib.contextmanager
    def averages(self) -> Iterator[None]:
        """The network has its averaged weights while this is open."""
        group = self.param_groups[0]
        if not group["triggered"]:
            yield
            return
        with instead(group["params"], [self.state[p]["mean"] for p in group["params"]]):
            yield


@contextlib.contextmanager
def instead(weights: list[Any], others: list[Tensor]) -> Iterator[None]:
    """While this is open, weights have other values."""
    kept = [p.detach().clone() for p in weights]
    _copy(weights, others)
    try:
        yield
    finally:
        _copy(weights, kept)


@torch.no_grad()
def _copy(to: list[Any], values: list[Tensor]) -> None:
    torch._foreach_copy_(to, values)


def averages(optimizer: torch.optim.Optimizer) -> contextlib.AbstractContextManager[None]:
    """The averaged weights of an optimizer that has some, while this is open; for any other, nothing."""
    return optimizer.averages() if hasattr(optimizer, "averages") else contextlib.nullcontext()


def hear(optimizer: torch.optim.Optimizer, history: Sequence[float]) -> bool:
    """Tell an optimizer that listens how held-out text fares; says whether it begins to average now."""
    return isinstance(optimizer, AveragedSGD) and optimizer.validated(history)


NAME, COUNT = "moving", "followed"  # in the state of a weight; in the group, how many steps there have been


def share_of(decay: float, step: int) -> float:
    """How far the average goes towards the weights after this step, counted from 0."""
    return max(1 - decay, 9 / (10 + step))


def follow(optimizer: Optimizer, decay: float) -> Any:
    """The optimizer, with an average after each of its steps."""
    if isinstance(decay, bool) or not isinstance(decay, (int, float)) or not 0 < decay < 1:
        raise NextwordError(f"Optimizer: average = {decay!r} is what is kept at each step, as 0.998: between 0 and 1.")
    optimizer.param_groups[0][COUNT] = 0

    @torch.no_grad()
    def after(stepped: Optimizer, args: Any, kwargs: Any) -> None:
        first = stepped.param_groups[0]
        share = share_of(decay, first[COUNT])
        first[COUNT] += 1
        weights: list[Any] = []
        for p in (p for group in stepped.param_groups for p in group["params"]):
            if NAME in stepped.state.get(p, ()):
                weights.append(p)
            elif p.grad is not None:  # its first step: until then it was its own average
                stepped.state[p][NAME] = p.detach().clone()
        if weights:
            torch._foreach_lerp_([stepped.state[p][NAME] for p in weights], weights, share)

    @contextlib.contextmanager
    def averages() -> Iterator[None]:
        weights = [p for group in optimizer.param_groups for p in group["params"] if NAME in optimizer.state.get(p, ())]
        if not weights:
            yield
            return
        with instead(weights, [optimizer.state[p][NAME] for p in weights]):
            yield

    optimizer.register_step_post_hook(after)
    optimizer.averages = averages  # type: ignore[attr-defined]
    return optimizer


# name → (class, keys it takes beside rate and decay, fixed arguments). `decay` is L2 for the first six (the gradient
# gets λθ) and decoupled for the others (the weights shrink by rate·λ, whatever the gradient's scale; in lamb by a share
# of the step, whose length is rate·‖θ‖). Of adafactor the rate is a share of each tensor's size, and by itself never
# more than 1/√step: 0.01 is T5's
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], tuple[str, ...], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, ("momentum", "nesterov"), {}),
    "nt-asgd": (AveragedSGD, ("start", "patience", "power"), {}),
    "adagrad": (torch.optim.Adagrad, ("eps", "initial_accumulator_value"), {}),
    "rmsprop": (torch.optim.RMSprop, ("alpha", "eps", "momentum"), {}),
    "adam": (torch.optim.Adam, ("betas", "eps"), {"fused": True}),
    "nadam": (torch.optim.NAdam, ("betas", "eps"), {}),
    "adamw": (torch.optim.AdamW, ("betas", "eps"), {"fused": True}),
    "nadamw": (torch.optim.NAdam, ("betas", "eps"), {"decoupled_weight_decay": True}),
    "adafactor": (torch.optim.Adafactor, ("beta2_decay", "eps", "d"), {}),
    "lamb": (LAMB, ("betas", "eps"), {}),
}
DECAYED = ("all", "matrices")
SHARE = "share"  # in a group: of the optimizer's rate, that its weights learn at


def make_optimizer(
    parameters: Iterable[nn.Parameter], options: Mapping[str, Any], layers: Sequence[Sequence[nn.Parameter]] = ()
) -> torch.optim.Optimizer:
    """From a recipe's table: kind, rate, decay, and the kind's own keys under torch's names.

    `discount` = 2.6 has each group of `layers` learn at a rate that is so many times lower than that of the group above
    it (Howard & Ruder 2018); the last, which is the highest, learns at the full rate. Together they are the parameters.

    `decayed = "matrices"` leaves biases, norms and other vectors out of the decay, as the transformers do; in lamb
    their steps are then not scaled either. `average` = 0.998 has weights followed by a moving average (moving.py),
    which validation and the run's files use.
    """
    options = dict(options)
    kind = str(options.pop("kind", "adam")).lower()
    if kind not in OPTIMIZERS:
        raise NextwordError(
            f"No optimizer is called '{kind}'.{did_you_mean(kind, OPTIMIZERS)} There are {', '.join(OPTIMIZERS)}."
        )
    cls, keys, fixed = OPTIMIZERS[kind]
    rate, decay, average = options.pop("rate", 0.001), options.pop("decay", 0.0), options.pop("average", 0.0)
    decayed, discount = options.pop("decayed", "all"), options.pop("discount", 1.0)
    if decayed not in DECAYED or (decayed == "matrices" and cls is AveragedSGD):
        allowed = "all" if cls is AveragedSGD else " or ".join(DECAYED)
        raise NextwordError(f"Optimizer '{kind}': decayed = {decayed!r}; expected {allowed}.")
    for key in options:
        if key not in keys:
            known = ("rate", "decay", "decayed", "average", "discount", *keys)
            raise NextwordError(
                f"Optimizer '{kind}' has no key '{key}'.{did_you_mean(key, known)} It has {', '.join(known)}."
            )
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or rate <= 0:
        raise NextwordError(f"Optimizer '{kind}': rate = {rate!r} must be a number above zero.")
    groups: Any = [{"params": list(parameters)}]
    if _number(discount, kind, cls) != 1:
        top = len(layers) - 1
        groups = [{"params": list(some), SHARE: discount ** (i - top)} for i, some in enumerate(layers)]
    if decayed == "matrices":
        spared: dict[str, Any] = {"weight_decay": 0.0} | ({"scaled": False} if cls is LAMB else {})
        groups = [part for group in groups for part in _by_shape(group, spared)]
    if average and cls is AveragedSGD:
        raise NextwordError(f"Optimizer '{kind}' averages weights in its own way: leave average = {average!r} out.")
    try:
        made = cls(groups, lr=float(rate), weight_decay=float(decay), **fixed, **options)  # type: ignore[call-arg]
    except (TypeError, ValueError) as problem:  # torch checks its own numbers
        raise NextwordError(f"Optimizer '{kind}': {problem}. Mend its table in the recipe.") from None
    return follow(made, average) if average else made


def _number(discount: Any, kind: str, cls: type) -> float:
    if isinstance(discount, bool) or not isinstance(discount, (int, float)) or discount <= 0:
        raise NextwordError(
            f"Optimizer '{kind}': discount = {discount!r} is what the rate is divided by from a layer to the one below "
            "it, as 2.6: a number above zero."
        )
    if discount != 1 and cls is AveragedSGD:
        raise NextwordError(
            f"Optimizer '{kind}' has one rate for all weights: leave discount = {discount} out, or take adam."
        )
    return float(discount)


def _by_shape(group: Mapping[str, Any], spared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Matrices, and vectors, which are spared the decay."""
    found = [
        {**group, "params": [p for p in group["params"] if p.dim() > 1]},
        {**group, "params": [p for p in group["params"] if p.dim() < 2], **spared},
    ]
    return [part for part in found if part["params"]]


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The rate of the highest group; those below have their share of it."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get(SHARE, 1.0)


def clip(optimizer: torch.optim.Optimizer, most: float) -> Tensor:
    """As torch's clip_grad_norm_: the gradients' norm, and whatever is above `most` scaled down to it.

    Torch's fused optimizers divide by a number while they read the gradients anyway: there it costs no pass of its own.
    """
    params = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in params])
    if optimizer.defaults.get("fused"):
        optimizer.grad_scale = ((norm + 1e-6) / most).clamp(min=1.0)  # type: ignore[attr-defined]
    else:
        nn.utils.clip_grads_with_norm_(params, most, norm)
    return norm


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], Any]:
    """The optimizer's tensors by name, and the rest of its state as JSON."""
    state = optimizer.state_dict()
    tensors, shape = nest.flatten({str(key): part for key, part in state["state"].items()}, "optimizer")
    return tensors, {"state": shape, "groups": state["param_groups"]}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], groups: Any) -> None:
    state = nest.unflatten(dict(tensors), groups["state"])
    optimizer.load_state_dict(
        {"state": {int(key): part for key, part in state.items()}, "param_groups": groups["groups"]}
    )


class Learning:
    """What of a network learns in a phase. Weights that are fixed by nature (`frozen`) are in no group."""

    def __init__(self, network: Any, phase: Phase) -> None:
        self.network, self.phase = network, phase
        able = [[p for p in group if p.requires_grad] for group in groups(network)]
        able = [group for group in able if group]
        self.layers = able[-phase.trains :]
        self.resting = [p for group in able[: len(able) - len(self.layers)] for p in group]

    def optimizer(self) -> torch.optim.Optimizer:
        """A new one. Where all learn, it has them in the order in which the network has them."""
        learning = {p for group in self.layers for p in group}
        chosen = [p for p in self.network.parameters() if p in learning or not self.phase.trains]
        return make_optimizer(chosen, self.phase.optimizer, self.layers)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While this is open, nothing else has gradients."""
        for p in self.resting:
            p.requires_grad_(False)
        try:
            yield
        finally:
            for p in self.resting:
                p.requires_grad_(True)
