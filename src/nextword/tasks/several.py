"""Several data sets for one network: of labelled texts, or of tagged sentences, with others without tags besides.

open_texts("SST-2 + RTE + MRPC")                                   # as --data says it
open_several("conll2000 + conll2003 + ud-english-ewt:upos")        # tags; a column after a colon
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nextword.core.errors import NextwordError
from nextword.core.protocols import Tokenizer
from nextword.data.conll import TaggedSentence, TaggedText
from nextword.data.opening import open_whole
from nextword.data.tables import Columns
from nextword.data.tag_schemes import PLAIN
from nextword.metrics.classification import MEAN
from nextword.objectives import make_objective
from nextword.recipe import Recipe
from nextword.tasks.cross_view import untagged
from nextword.tasks.data import DataSet, open_data
from nextword.tasks.mixed_examples import Several
from nextword.tasks.settings import SEVERAL
from nextword.tasks.tag_data import TagSet, open_tags

AND = " + "
KEY = "phase.0.objective.unlabelled"
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
class TagSets(Sets):
    """Of tags: "conll2000 + conll2003:ner", each with its column of tags if need be."""

    sets: tuple[TagSet, ...]

    kind = frame = "tag"
    scheme = PLAIN  # each has its own

    @property
    def tasks(self) -> tuple[dict[str, Any], ...]:
        """As a run's [task] has them."""
        return tuple({"name": one.name, "scheme": one.scheme, "labels": list(one.labels)} for one in self.sets)

    @property
    def splits(self) -> dict[str, TaggedText]:
        """Sentences of all, one set after the other."""
        found: dict[str, list[TaggedSentence]] = {}
        for one in self.sets:
            for split, text in one.splits.items():
                found.setdefault(split, []).extend(text.sentences)
        return {split: TaggedText(self.name, sentences) for split, sentences in found.items()}


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


def open_several(given: str, column: str = "", scheme: str = "BIOES") -> TagSet | TagSets:
    """One data set, or several with " + " between them; "conll2003:pos" names the column of tags."""
    names = names_in(given)
    if len(names) > 1 and column:
        raise NextwordError(f"--label {column} is of one data set; of several say it with each, as in conll2003:pos.")
    found = tuple(_with_column(name, column, scheme) for name in names)
    return found[0] if len(found) == 1 else TagSets(found)


def _with_column(name: str, column: str, scheme: str) -> TagSet:
    base, colon, own = name.rpartition(":")
    if not colon or Path(name).exists():
        return open_tags(name, column, scheme)
    return replace(open_tags(base, own, scheme), name=name)


# ------------------------------------------------------------------------------------------------ for a network


def in_parts(names: Sequence[str], framed: Sequence[dict[str, Any]]) -> dict[str, Several]:
    """Split → its examples of every task; a split that some task lacks is left out."""
    splits = [split for split in framed[0] if all(split in one for one in framed)]
    return {split: Several(tuple(names), tuple(one[split] for one in framed)) for split in splits}


def with_untagged(
    recipe: Recipe, network: Any, tokenizer: Tokenizer, examples: dict[str, Any], progress: Progress
) -> dict[str, Any]:
    """Training sentences with the text beside them that the recipe's objective names, if it names one."""
    phase = recipe.phases[0]
    objective = make_objective(phase.objective, phase.batches, network.vocabulary)
    train = examples["train"]
    train = train if isinstance(train, Several) else Several(("",), (train,))
    if objective.unlabelled:
        try:
            corpus = open_whole(objective.unlabelled)
        except NextwordError as problem:
            raise NextwordError(
                f"Sentences without tags are to come from {objective.unlabelled!r}: {problem} Name another text with "
                f"--set {KEY}=FILE, or learn from tags alone with --set {KEY}=''."
            ) from None
        own = network.longest, objective.sentences, objective.longest
        text, key = untagged(corpus, tokenizer, *own, progress)
        train = replace(train, untagged=text, key=key)
    return {**examples, "train": train}
