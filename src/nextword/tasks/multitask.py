"""Heads of several tasks over one network: a class of one text, a class of two, a number. A batch is of one task.

    texts ──network.encode──▶ h ─┬─ head of task 0 ──▶ (n, outputs₀)
                                 └─ head of task 1 ──▶ (n, outputs₁)          `batch.part` says which

Each head is as heads/__init__.py has it. All that the network has of its own, its pooler too, is shared.

Examples of several tasks, and sentences without tags, read in turn: batch k is made of (seed, k) alone.

    step      0      1      2      3      4      5
    part      NER    —      POS    —      NER    —          — is of the sentences without tags, if there are any

Which task is drawn with a probability ∝ size^mix: 1 is by size, 0 all alike; 0.5, the root, neither forgets a small
task nor overhears it.

Several data sets for one network: of labelled texts, or of tagged sentences, with others without tags besides.

open_texts("SST-2 + RTE + MRPC")                                   # as --data says it
open_several("conll2000 + conll2003 + ud-english-ewt:upos")        # tags; a column after a colon
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Batch
from nextword.data.tables import Columns
from nextword.metrics.classification import MEAN
from nextword.tasks.base import ModelWithHead
from nextword.tasks.heads import HeadConfig, Headed
from nextword.tasks.mixtures import Several
from nextword.tasks.settings import SEVERAL
from nextword.tasks.text_data import DataSet, open_data


@dataclass(frozen=True)
class ManyConfig:
    model: Any  # the network's class
    settings: Any  # its Config
    heads: tuple[HeadConfig, ...]  # one for each task
    features: str = ""
    frozen: bool = False


class ManyHeaded(ModelWithHead):
    def __init__(self, config: ManyConfig, network: Any) -> None:
        super().__init__(config, network)
        # A list that torch does not look into: what is a head's alone is registered below, the network once
        self.heads = [Headed(one, network) for one in config.heads]
        self.out = nn.ModuleList(head.out for head in self.heads)
        self.dense = nn.ModuleList(head.dense for head in self.heads if head.dense is not None)
        self.widest = max(one.outputs for one in config.heads)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for head in self.heads:
            head.train(mode)
        return self

    def forward(self, batch: Batch) -> Tensor:
        return self.heads[batch.task_index](batch)

    def judge(self, h: Tensor, batch: Batch) -> Tensor:
        return self.heads[batch.task_index].judge(h, batch)

    def evened(self, said: Tensor) -> Tensor:
        """As many columns for every task, so that they lie in one table: those that it has not are never chosen."""
        return F.pad(said, (0, self.widest - said.shape[1]), value=-float("inf"))
















AND = " + "
Progress = Callable[[str, float, float | None], None]


@dataclass(frozen=True)
class Sets:
    """Several data sets for one network."""

    sets: tuple[Any, ...]

    scale = (0.0, 1.0)
    labels = ()
    columns = Columns()

    @property
    def name(self) -> str:
        return AND.join(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.sets)

    @property
    def metrics(self) -> tuple[str, ...]:
        return (MEAN, *self.names)

    @property
    def balance(self) -> dict[str, float]:
        """Data set → its share of the training examples."""
        sizes = {one.name: len(one.splits["train"]) for one in self.sets}
        return {name: size / sum(sizes.values()) for name, size in sizes.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"{one.name}: {note}" for one in self.sets for note in one.notes)

    @property
    def fingerprint(self) -> str:
        return "+".join(one.fingerprint for one in self.sets)




@dataclass(frozen=True)
class DataSets(Sets):
    """Of labelled texts: "SST-2 + RTE + STS-B", classes and numbers side by side."""

    sets: tuple[DataSet, ...]

    kind = frame = SEVERAL

    @property
    def tasks(self) -> tuple[dict[str, Any], ...]:
        """As a run's [task] has them: what each has of its own."""
        return tuple(
            {
                "name": one.name,
                "kind": one.kind,
                "frame": one.frame,
                "labels": list(one.labels),
                "center": one.scale[0],
                "spread": one.scale[1],
                "metrics": list(one.metrics),
                **vars(one.columns),
            }
            for one in self.sets
        )


def names_in(given: str) -> list[str]:
    """What " + " divides, unless all of it is the name of one file; none of them twice."""
    names = [given] if Path(given).exists() else [name.strip() for name in given.split(AND)]
    if len(set(names)) < len(names):
        raise NextwordError(f"{given} names a data set twice. Of one with several columns name those: conll2003:pos.")
    return names


def open_texts(given: str, columns: Columns = Columns(), kind: str = "") -> DataSet | DataSets:
    """One set of labelled texts, or several with " + " between them."""
    names = names_in(given)
    if len(names) == 1:
        return open_data(given, columns, kind)
    if columns != Columns() or kind:
        raise NextwordError("Of several data sets leave --text, --second, --label and --kind out: each has its own.")
    found = tuple(map(open_data, names))
    called = [one.name for one in found]
    if len(set(called)) < len(called):  # RTE + glue/RTE
        raise NextwordError(f"{given} names a data set twice.")
    return DataSets(found)






# ------------------------------------------------------------------------------------------------ for a network


def in_parts(names: Sequence[str], framed: Sequence[dict[str, Any]]) -> dict[str, Several]:
    """Split → its examples of every task; a split that some task lacks is left out."""
    splits = [split for split in framed[0] if all(split in one for one in framed)]
    return {split: Several(tuple(names), tuple(one[split] for one in framed)) for split in splits}
