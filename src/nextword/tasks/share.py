"""How many examples are learnt from: a share of them (`--labels 0.1`) drawn by the seed, how its classes are balanced,
and whether they are so few that there are hardly any steps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from nextword.batching.examples import Bucketed
from nextword.core.types import Vocabulary
from nextword.objectives import make_objective
from nextword.recipe import Phase, Recipe, names

FEW_STEPS = 100  # in all. Mosbach et al. (2021): what fails with little data has mostly been stopped too soon
ROWS = 16
FEW = "few"  # the recipe of a paper for few labels


def shared_out(examples: Any, share: float, seed: int) -> Any:
    """A share of the examples, drawn by the seed: a smaller share of the same seed is a part of a larger one."""
    if share == 1:
        return examples
    if hasattr(examples, "each_part"):
        return examples.each_part(lambda part: shared_out(part, share, seed))
    chosen = drawn(size_of(examples), share, seed)
    return examples.take_units(chosen) if hasattr(examples, "take_units") else examples.take(chosen)


def drawn(size: int, share: float, seed: int) -> np.ndarray:
    """Which of them, in their order."""
    return np.sort(np.random.default_rng([seed, size]).permutation(size)[: number_of(size, share)])


def size_of(examples: Any) -> int:
    """How many there are: of questions it is those, not their windows."""
    return getattr(examples, "units", len(examples))


def number_of(examples: int, share: float) -> int:
    """How many a share of them is: one at least."""
    return max(1, round(share * examples))


def balance_learnt(data: Any, share: float, seed: int) -> dict[str, float]:
    """Class → its share of the rows that are learnt from. Of several data sets each gives the same share."""
    if share == 1 or hasattr(data, "sets"):
        return data.balance
    train = getattr(data.splits["train"], "learnt", data.splits["train"])
    chosen = train.take(drawn(len(train), share, seed).tolist())
    return replace(data, splits={**data.splits, "train": chosen}).balance


def balances_learnt(data: Any, share: float, seed: int) -> dict[str, dict[str, float]]:
    """The same of every task by its name; "" is that of the only one."""
    if not hasattr(data, "sets"):
        return {"": balance_learnt(data, share, seed)}
    return {one.name: balance_learnt(one, share, seed) for one in data.sets}


def few_steps(recipe: Recipe, examples: Any, vocabulary: Vocabulary) -> list[str]:
    """A note, where there are so few examples that training would be over before it has begun."""
    if any(phase.steps or phase.minutes or not phase.epochs for phase in recipe.phases):
        return []  # so it was asked for
    train = shared_out(examples, float((recipe.task or {}).get("share", 1.0)), recipe.phases[0].seed)
    steps = sum(_steps(phase, train, vocabulary) for phase in recipe.phases)
    if steps >= FEW_STEPS:
        return []
    own = f"{recipe.name.partition('/')[0]}/{FEW}"
    if own in names() and recipe.name != own:
        helps = f"{own} has smaller batches and more epochs"
    else:
        epochs = recipe.phases[-1].epochs
        more = -(-FEW_STEPS * max(1, round(epochs)) // steps)
        rows = max(int(phase.batches.get("rows", Bucketed.rows)) for phase in recipe.phases)
        smaller = f"--set 'phase.*.batches.rows={ROWS}' " if rows > ROWS else ""
        helps = f"smaller batches or more epochs may help ({smaller}--set phase.{recipe.phases[-1].name}.epochs={more})"
    some = f"{steps} step{'s' * (steps != 1)}"
    return [f"{size_of(train):,} examples are {some} in all, which is little: {helps}"]


def _steps(phase: Phase, train: Any, vocabulary: Vocabulary) -> int:
    """As many as the loop takes: at least one, however small a part of an epoch was asked for."""
    batches = make_objective(phase.objective, phase.batches, vocabulary).per_epoch(train)
    return math.ceil(phase.epochs * max(1, batches // phase.accumulate))
