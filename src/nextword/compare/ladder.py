"""The ladder: which models compare trains when none is named, and how large each may be in the time it has.

A recipe takes part by having a table [compare] with `sizes`, smallest first: each is a set of [model] keys. Of these
the largest is taken that this machine can still train well: one that can pass over the text often enough (`passes`). If
it will pass over it very often, the keys of `often` (dropout) are set too. A model that counts passes over it once,
in seconds: it takes its largest size, and no share of the time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from nextword.contract_protocols import Tokenizer
from nextword.models import MODELS
from nextword.recipe import Recipe, load_recipe, names
from nextword.training import build
from nextword.training.events import Job
from nextword.training.loop import Descent

PASSES = 0.8  # over the text, that a size must at least manage to be taken, unless it is the smallest
OFTEN = 4.0  # passes from which on a model needs what the recipe's `often` says against learning the text by heart
TIMED = 4  # steps


def default_ladder() -> list[Recipe]:
    """Every recipe that offers itself, in the order of the canon."""
    found = [recipe for recipe in map(load_recipe, names()) if recipe.compare]
    return sorted(found, key=lambda recipe: list(MODELS).index(recipe.slug))


def fitted(recipe: Recipe, seconds: float, tokenizer: Tokenizer, train: Any, device: torch.device) -> Recipe:
    """The recipe at the largest of its sizes that can pass over the text often enough in the time given."""
    if counts(recipe):
        largest = recipe.compare.get("sizes", [])[-1:]
        return with_model(recipe, largest[0]) if largest else recipe
    chosen, passes = recipe, 0.0
    for size in recipe.compare.get("sizes", []):
        candidate = with_model(recipe, size)
        possible = seen(candidate, seconds, tokenizer, train, device) / len(train.ids)
        if chosen is not recipe and possible < float(recipe.compare.get("passes", PASSES)):
            break
        chosen, passes = candidate, possible
    return with_model(chosen, recipe.compare.get("often", {})) if passes > OFTEN else chosen


def counts(recipe: Recipe) -> bool:
    """Whether it learns by counting: once over the text, in seconds, whatever its size."""
    return recipe.phases[0].kind == "count"


def with_model(recipe: Recipe, size: Mapping[str, Any]) -> Recipe:
    return replace(recipe, model={**recipe.model, **size})


def seen(recipe: Recipe, seconds: float, tokenizer: Tokenizer, train: Any, device: torch.device) -> float:
    """How many tokens training would get to see in this time, from a few timed steps."""
    job = Job(build(recipe, tokenizer), recipe.phases[0], 0, train, None, tokenizer.lossless, None, device)
    descent = Descent(job)
    descent.total = 1_000_000  # far from the end of any schedule
    batches = descent.batches()
    descent.advance(batches)
    before, began = descent.count, time.perf_counter()
    for _ in range(TIMED):
        descent.advance(batches)
    descent.nats.item()  # wait for the device
    return (descent.count - before) / (time.perf_counter() - began) * seconds
