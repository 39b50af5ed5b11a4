"""..."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from nextword.batching.examples import UNTAGGED
from nextword.core.types import Batch

DRAWN = 1024  # turns drawn at once


ROOT = 0.5


@dataclass(frozen=True)
class Several:
    names: tuple[str, ...]  # of the tasks
    parts: tuple[Any, ...]  # Examples or TaggedExamples, one of each
    untagged: Any = None  # TaggedExamples
    key: str = ""  # of what has no tags: another text is another run

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def ids(self) -> np.ndarray:
        return np.concatenate([part.ids for part in self.parts])

    @property
    def bytes(self) -> int:
        return 0  # not known, so nobody speaks of bits per byte

    @property
    def turns(self) -> int:
        """Steps from one batch with tags to the next."""
        return 1 if self.untagged is None else 2

    def each_part(self, change: Callable[[Any], Any]) -> Several:
        """The same with every task's examples changed."""
        return replace(self, parts=tuple(map(change, self.parts)))

    def first(self, tokens: int | None) -> Several:
        """The examples of the first so many tokens, an equal share of every task; None: all."""
        return self if tokens is None else self.each_part(lambda part: part.first(tokens // len(self.parts)))


def parts_of(text: Any) -> tuple[Any, ...]:
    return text.parts if isinstance(text, Several) else (text,)


def probabilities(sizes: list[int], mix: float = ROOT) -> np.ndarray:
    """Of each task to be next, ∝ size^mix."""
    weights = np.array(sizes, np.float64) ** mix
    return weights / weights.sum()


def drawn(text: Several, seed: int, mix: float = ROOT) -> Iterator[int]:
    """The tasks of one labelled batch after the other, without end."""
    draw = np.random.default_rng([seed, len(text.parts)])
    odds = probabilities([len(part) for part in text.parts], mix)
    while True:
        yield from draw.choice(len(odds), DRAWN, p=odds).tolist()


def validation_batches(layout: Any, text: Any) -> Iterator[Batch]:
    """Every example of one task after the other."""
    for i, part in enumerate(parts_of(text)):
        for batch in layout.validation_batches(part):
            batch.task_index = i
            yield batch


def in_turn(layout: Any, text: Several, seed: int, step: int, mix: float = ROOT) -> Iterator[Batch]:
    """Batches from this step on."""
    turns = text.turns
    before = -(-step // turns)  # batches with tags before this one
    tasks = drawn(text, seed, mix)
    done = Counter(islice(tasks, before))
    readers = [layout.batches(part, seed + i, done[i]) for i, part in enumerate(text.parts)]
    others = iter(()) if text.untagged is None else layout.batches(text.untagged, seed, step - before)
    while True:
        tagged = step % turns == 0
        part = next(tasks) if tagged else UNTAGGED
        yield replace(next(readers[part] if tagged else others), task_index=part)
        step += 1
