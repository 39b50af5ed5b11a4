"""How many examples are learnt from: a share of them (`--labels 0.1`) drawn by the seed, how its classes are balanced,
and whether they are so few that there are hardly any steps.

The last training: of everything that has a label, dev too, once all has been chosen by dev ([task] final, --final).

train  ████████████████ ┐                                dev is scored as ever, but its score says nothing now:
dev    ███ ─────────────┴─▶ train  ███████████████████   those examples are learnt. What says something is test
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nextword.batching.examples import Bucketed
from nextword.core.errors import NextwordError
from nextword.core.types import Vocabulary
from nextword.data.tables import joined_rows
from nextword.objectives import make_objective
from nextword.recipe import Phase, Recipe, names
from nextword.tasks.multitask import Sets
from nextword.tasks.tagging import TagSet
from nextword.tasks.text_data import DataSet

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
    batches = make_objective(phase.objective, phase.batches, vocabulary).batches_per_epoch(train)
    return math.ceil(phase.epochs * max(1, batches // phase.accumulate))


NOTE = "dev is learnt from too, so its scores say nothing; the weights of the last step are kept"


def counted(result: Mapping[str, Any], split: str) -> str:
    """How many examples a number is of, and whether they were learnt from."""
    learnt = ", learnt from too" if split == "dev" and result.get("final") else ""
    return f"{result['examples'][split]:,} examples{learnt}"


def whole(data: Any) -> Any:
    """The same data set, or sets, with the examples of dev at the end of those of train."""
    if isinstance(data, Sets):
        return replace(data, sets=tuple(map(whole, data.sets)))
    if not isinstance(data, (DataSet, TagSet)):
        raise NextwordError("[task] final (--final) is for labelled texts and tagged words, not for spans of passages.")
    if isinstance(data, TagSet):
        train, dev = data.splits["train"], data.splits["dev"]
        late = {tag for one in dev.sentences for tag in one.tags}
        labels = (*data.labels, *(tag for tag in data.unseen if tag in late))
        unseen = tuple(tag for tag in data.unseen if tag not in late)
        joined = replace(train, sentences=[*train.sentences, *dev.sentences])
        data = replace(data, splits={**data.splits, "train": joined}, labels=labels, unseen=unseen)
    else:
        rows = joined_rows([data.splits["train"], data.splits["dev"]])
        data = replace(data, splits={**data.splits, "train": rows})
    return replace(data, notes=(*data.notes, NOTE))
