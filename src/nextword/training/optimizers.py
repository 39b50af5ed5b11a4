"""Optimizers that recipes name, most of them torch's, and two ways to shrink weights: L2 and decoupled decay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nextword import nest
from nextword.contract import NextwordError
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


def make_optimizer(parameters: Iterable[nn.Parameter], options: Mapping[str, Any]) -> torch.optim.Optimizer:
    """From a recipe's table: kind, rate, decay, and the kind's own keys under torch's names.

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
    decayed = options.pop("decayed", "all")
    if decayed not in DECAYED or (decayed == "matrices" and cls is AveragedSGD):
        allowed = "all" if cls is AveragedSGD else " or ".join(DECAYED)
        raise NextwordError(f"Optimizer '{kind}': decayed = {decayed!r}; expected {allowed}.")
    for key in options:
        if key not in keys:
            known = ("rate", "decay", "decayed", "average", *keys)
            raise NextwordError(
                f"Optimizer '{kind}' has no key '{key}'.{suggestion(key, known)} It has {', '.join(known)}."
            )
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or rate <= 0:
        raise NextwordError(f"Optimizer '{kind}': rate = {rate!r} must be a number above zero.")
    parameters = list(parameters)
    groups: Any = parameters
    if decayed == "matrices":
        spared: dict[str, Any] = {"weight_decay": 0.0} | ({"scaled": False} if cls is LAMB else {})
        groups = [
            {"params": [p for p in parameters if p.dim() > 1]},
            {"params": [p for p in parameters if p.dim() < 2], **spared},
        ]
        groups = [group for group in groups if group["params"]]
    if average and cls is AveragedSGD:
        raise NextwordError(f"Optimizer '{kind}' averages weights in its own way: leave average = {average!r} out.")
    try:
        made = cls(groups, lr=float(rate), weight_decay=float(decay), **fixed, **options)  # type: ignore[call-arg]
    except (TypeError, ValueError) as problem:  # torch checks its own numbers
        raise NextwordError(f"Optimizer '{kind}': {problem}. Mend its table in the recipe.") from None
    return follow(made, average) if average else made


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
