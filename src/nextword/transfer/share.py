"""A share of the training examples (`--labels 0.1`): drawn by the seed, and how its classes are balanced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np


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
