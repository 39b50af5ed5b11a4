"""Optimizers that recipes name, most of them torch's, and two ways to shrink weights: L2 and decoupled decay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nextword import nest
from nextword.contract_errors import NextwordError
from nextword.recipe import suggestion
from nextword.training.averaging import AveragedSGD
from nextword.training.lamb import LAMB
from nextword.training.moving import follow

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
            f"No optimizer is called '{kind}'.{suggestion(kind, OPTIMIZERS)} There are {', '.join(OPTIMIZERS)}."
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
                f"Optimizer '{kind}' has no key '{key}'.{suggestion(key, known)} It has {', '.join(known)}."
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
