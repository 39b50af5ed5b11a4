"""Several sets of tagged sentences for one network, and sentences without tags besides: what cross-view training reads.

open_several("conll2000 + conll2003 + ud-english-ewt:upos")        # as --data says it; a column after a colon
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nextword.batching.several import Several
from nextword.batching.tagged import TaggedExamples
from nextword.batching.untagged import untagged
from nextword.contract import NextwordError, Tokenizer
from nextword.corpora import open_whole
from nextword.corpora.tag_schemes import PLAIN
from nextword.corpora.tagged_text import TaggedSentence, TaggedText
from nextword.heads.views import MEAN
from nextword.objectives import make_objective
from nextword.recipe import Recipe
from nextword.transfer.tables import Columns
from nextword.transfer.tagging import TagSet, open_tags

AND = " + "
KEY = "phase.0.objective.unlabelled"
Progress = Callable[[str, float, float | None], None]


@dataclass(frozen=True)
class TagSets:
    """Several data sets for one network: "conll2000 + conll2003:ner", each with its column of tags if need be."""

    sets: tuple[TagSet, ...]

    kind = frame = "tag"
    scale = (0.0, 1.0)
    labels = ()
    scheme = PLAIN  # each has its own
    columns = Columns()

    @property
    def name(self) -> str:
        return AND.join(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.sets)

    @property
    def tasks(self) -> tuple[dict[str, Any], ...]:
        """As a run's [task] has them."""
        return tuple({"name": one.name, "scheme": one.scheme, "labels": list(one.labels)} for one in self.sets)

    @property
    def metrics(self) -> tuple[str, ...]:
        return (MEAN, *self.names)

    @property
    def splits(self) -> dict[str, TaggedText]:
        """Sentences of all, one set after the other."""
        found: dict[str, list[TaggedSentence]] = {}
        for one in self.sets:
            for split, text in one.splits.items():
                found.setdefault(split, []).extend(text.sentences)
        return {split: TaggedText(self.name, sentences) for split, sentences in found.items()}

    @property
    def balance(self) -> dict[str, float]:
        """Data set → its share of the training sentences."""
        sizes = {one.name: len(one.splits["train"]) for one in self.sets}
        return {name: size / sum(sizes.values()) for name, size in sizes.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"{one.name}: {note}" for one in self.sets for note in one.notes)

    @property
    def fingerprint(self) -> str:
        return "+".join(one.fingerprint for one in self.sets)


def open_several(given: str, column: str = "", scheme: str = "BIOES") -> TagSet | TagSets:
    """One data set, or several with " + " between them; "conll2003:pos" names the column of tags."""
    names = [name.strip() for name in given.split(AND)]
    if len(names) > 1 and column:
        raise NextwordError(f"--label {column} is of one data set; of several say it with each, as in conll2003:pos.")
    if len(set(names)) < len(names):
        raise NextwordError(f"{given} names a data set twice. Of one with several columns name those: conll2003:pos.")
    found = tuple(_with_column(name, column, scheme) for name in names)
    return found[0] if len(found) == 1 else TagSets(found)


def _with_column(name: str, column: str, scheme: str) -> TagSet:
    base, colon, own = name.rpartition(":")
    if not colon or Path(name).exists():
        return open_tags(name, column, scheme)
    return replace(open_tags(base, own, scheme), name=name)


# ------------------------------------------------------------------------------------------------ for a network


def in_parts(names: Sequence[str], framed: Sequence[dict[str, TaggedExamples]]) -> dict[str, Several]:
    """Split → its sentences of every task; a split that some task lacks is left out."""
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
