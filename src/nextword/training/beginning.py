"""Before the first step: weights as the recipe says, and minutes turned into steps by timing the machine."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from nextword import nest
from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Online
from nextword.layers.initial import INITIALISATIONS, unigram_bias
from nextword.recipe import suggestion
from nextword.training.graphs import graphs_of
from nextword.training.saving import load_network, network_tensors

VALIDATIONS = 10  # in a budget of steps or minutes that does not say how often
COUNTED = 50_000_000  # tokens, at most, for a bias of unigrams


def check_initial(network: Any, given: Mapping[str, Any]) -> None:
    kind, known = given.get("kind", ""), ", ".join(INITIALISATIONS)
    odd = given.keys() - {"kind", "scale", "bias"} or not isinstance(given.get("scale", 0.1), (int, float))
    if odd or given.get("bias", "") not in ("", "unigram") or (kind and kind not in INITIALISATIONS):
        raise NextwordError(
            f"initial takes kind (one of {known}), scale and bias = 'unigram'; the recipe says "
            f"{dict(given)}.{suggestion(str(kind), INITIALISATIONS)}"
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
