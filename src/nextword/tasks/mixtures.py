"""Several data sets for one network: the sets, their examples, and batches drawn from them in turn.

    step      0      1      2      3      4      5
    task      NER    —      POS    —      NER    —          — is a batch of unlabeled sentences, if there are any

Batch k depends on (seed, k) alone. A task is drawn with probability ∝ size^mix: 1 is by size, 0 uniform; 0.5, the root,
neither forgets a small task nor overfits it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from nextword.batching.examples import UNLABELED, Bucketed
from nextword.core.errors import invalid
from nextword.core.types import Batch
from nextword.data.tables import Columns
from nextword.metrics.classification import MEAN
from nextword.tasks.base import Dataset, draw_fraction

SEPARATOR = " + "  # between data sets, in --data
DRAWN = 1024  # tasks drawn at once
ROOT = 0.5


# ------------------------------------------------------------------------------------------------ data sets


def split_names(source: str) -> list[str]:
    """The data sets that --data names, unless it is the name of one file."""
    names = [source] if Path(source).exists() else [name.strip() for name in source.split(SEPARATOR)]
    if len(set(names)) < len(names):
        raise invalid(
            "data", source, "has a data set twice. To learn several of its columns, name them: conll2003:pos."
        )
    return names


@dataclass(frozen=True)
class MixedDataset(Dataset):
    """Several data sets. The mean of their main metrics decides."""

    sets: tuple[Any, ...]  # a Dataset each; subclasses say which

    columns = Columns()
    labels = ()

    @property
    def name(self) -> str:  # type: ignore[override]
        return SEPARATOR.join(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(data.name for data in self.sets)

    @property
    def parts(self) -> Mapping[str, Dataset]:
        return {data.name: data for data in self.sets}

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]
        return (MEAN, *self.names)

    @property
    def possible_metrics(self) -> Sequence[str]:
        return ()

    @property
    def balance(self) -> dict[str, float]:
        """Data set → its fraction of the training examples."""
        sizes = {data.name: len(data.splits["train"]) for data in self.sets}
        return {name: size / sum(sizes.values()) for name, size in sizes.items()}

    def balance_of_fraction(self, fraction: float, seed: int) -> dict[str, float]:
        return self.balance  # each gives the same fraction

    def balances(self, fraction: float, seed: int) -> dict[str, dict[str, float]]:
        return {data.name: data.balance_of_fraction(fraction, seed) for data in self.sets}

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(f"{data.name}: {note}" for data in self.sets for note in data.notes)

    @property
    def fingerprint(self) -> str:
        return "+".join(data.fingerprint for data in self.sets)

    def training_texts(self) -> list[str]:
        return [text for data in self.sets for text in data.training_texts()]

    def merge_dev_into_train(self) -> Self:
        return replace(self, sets=tuple(data.merge_dev_into_train() for data in self.sets))


# ------------------------------------------------------------------------------------------------ examples


@dataclass(frozen=True)
class MixedExamples:
    """Examples of several tasks, and perhaps unlabeled sentences."""

    names: tuple[str, ...]  # of the tasks
    parts: tuple[Any, ...]  # the examples of each
    unlabeled: Any = None

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def ids(self) -> np.ndarray:
        return np.concatenate([part.ids for part in self.parts])

    @property
    def bytes(self) -> int:
        return 0  # unknown, so there are no bits per byte

    @property
    def turns(self) -> int:
        """Steps from one labeled batch to the next."""
        return 1 if self.unlabeled is None else 2

    def map_parts(self, change: Callable[[Any], Any]) -> MixedExamples:
        return replace(self, parts=tuple(map(change, self.parts)))

    def first(self, tokens: int | None) -> MixedExamples:
        """The examples of the first `tokens` tokens, equally many of every task; None: all."""
        return self if tokens is None else self.map_parts(lambda part: part.first(tokens // len(self.parts)))

    def sample(self, fraction: float, seed: int) -> MixedExamples:
        return self.map_parts(lambda part: part.take(draw_fraction(len(part), fraction, seed)))


def join_tasks(names: Sequence[str], encoded: Sequence[Mapping[str, Any]]) -> dict[str, MixedExamples]:
    """Split → its examples of every task; a split that some task lacks is left out."""
    splits = [split for split in encoded[0] if all(split in examples for examples in encoded)]
    return {split: MixedExamples(tuple(names), tuple(examples[split] for examples in encoded)) for split in splits}


# ------------------------------------------------------------------------------------------------ batches


def probabilities(sizes: list[int], mix: float = ROOT) -> np.ndarray:
    """The probability of each task, ∝ size^mix."""
    weights: np.ndarray = np.array(sizes, np.float64) ** mix
    shares: np.ndarray = weights / weights.sum()
    return shares


def draw_tasks(examples: MixedExamples, seed: int, mix: float = ROOT) -> Iterator[int]:
    """Yield the task of each labeled batch, forever."""
    draw = np.random.default_rng([seed, len(examples.parts)])
    odds = probabilities([len(part) for part in examples.parts], mix)
    while True:
        yield from draw.choice(len(odds), DRAWN, p=odds).tolist()


def mixed_batches(
    layout: Bucketed[Any], examples: MixedExamples, seed: int, step: int, mix: float = ROOT
) -> Iterator[Batch]:
    """Yield batches from this step on, labeled and unlabeled ones in turn."""
    turns = examples.turns
    before = -(-step // turns)  # labeled batches before this step
    tasks = draw_tasks(examples, seed, mix)
    done = Counter(islice(tasks, before))
    readers = [layout.batches(part, seed + i, done[i]) for i, part in enumerate(examples.parts)]
    others = iter(()) if examples.unlabeled is None else layout.batches(examples.unlabeled, seed, step - before)
    while True:
        labeled = step % turns == 0
        task = next(tasks) if labeled else UNLABELED
        yield replace(next(readers[task] if labeled else others), task_index=task)
        step += 1


def mixed_validation_batches(layout: Bucketed[Any], parts: Sequence[Any]) -> Iterator[Batch]:
    """Yield every example, one task after the other."""
    for i, part in enumerate(parts):
        for batch in layout.validation_batches(part):
            batch.task_index = i
            yield batch
