"""Pairs with sources beside them that nobody has translated, for an objective that names such a text (`unlabelled`)."""

from __future__ import annotations

from functools import partial
from typing import Any

from nextword.batching.prepare import prepare
from nextword.batching.sequences import Pairs
from nextword.batching.untranslated import Beside, Sources
from nextword.contract import Vocabulary
from nextword.contract_errors import NextwordError
from nextword.contract_protocols import Tokenizer
from nextword.corpora import open_whole
from nextword.objectives import make_objective
from nextword.recipe import Phase


def with_sources(
    phase: Phase, pairs: Pairs, tokenizer: Tokenizer, vocabulary: Vocabulary, progress: Any
) -> tuple[Beside, str]:
    """The pairs with the text beside them, and its fingerprint."""
    objective = make_objective(phase.objective, phase.batches, vocabulary)
    name, key = objective.unlabelled, f"phase.{phase.name}.objective.unlabelled"
    if tokenizer.end is None:
        raise NextwordError(
            f"Phase '{phase.name}': what a network writes of sources alone has to have an end, and a tokenizer of kind "
            f"'{tokenizer.kind}' has none. Take another, as unigram or bpe."
        )
    try:
        corpus = open_whole(name)
    except NextwordError as problem:
        raise NextwordError(
            f"Sources without translations are to come from {name!r}: {problem} Name another text with --set "
            f"{key}=FILE, or learn from pairs alone with --set {key}=''."
        ) from None
    split = "train" if "train" in corpus.splits else corpus.splits[0]
    text = prepare(corpus, split, tokenizer, progress=partial(progress, "reading sources without translations"))
    found = Beside(pairs, Sources(text, tokenizer.end, objective.layout.length))
    len(found.sources)  # what is wrong with them shows now
    return found, corpus.fingerprint
