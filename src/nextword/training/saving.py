"""Exact resume: all that moves in a descent, as tensors and numbers, into the run folder and back.

Weights, optimizer, carried memory, random state, counters and history: a run that was killed goes on to the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nextword import nest
from nextword.training.optimizers import optimizer_tensors, restore_optimizer

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
