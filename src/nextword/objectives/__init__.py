"""Losses: how text is turned into something to predict, and what is scored. Objectives know no model by name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from nextword.core.errors import NextwordError
from nextword.core.types import Vocabulary

OBJECTIVES = {
    "causal": "nextword.objectives.causal:Causal",
    "bidirectional": "nextword.objectives.bidirectional:Bidirectional",
    "masked": "nextword.objectives.masked:Masked",
    "permuted": "nextword.objectives.permutation:Permuted",
    "denoising": "nextword.objectives.span_corruption:Denoising",
    "infilling": "nextword.objectives.blank_infilling:Infilling",
    "sequence": "nextword.objectives.seq2seq:Seq2SeqObjective",
    "task": "nextword.tasks.task_objective:Task",
    "tag": "nextword.tasks.tag_objective:Tag",
    "span": "nextword.tasks.asking:Span",
    "contexts": "nextword.objectives.word_vectors:Negatives",
    "cooccurrence": "nextword.objectives.word_vectors:Cooccurrence",
    "cross-view": "nextword.tasks.cross_view:CrossView",
    "cross-view-sequence": "nextword.objectives.seq2seq:CrossViewSequence",
}


def objective_class(name: str) -> Any:
    module, attribute = OBJECTIVES[name].split(":")
    return getattr(importlib.import_module(module), attribute)


def of_pairs(given: Mapping[str, Any]) -> bool:
    """Whether the text of a phase with this objective is pairs of a source and a target."""
    kind = given.get("kind", "")
    return kind in OBJECTIVES and getattr(objective_class(kind), "parallel", False)


def mends(given: Mapping[str, Any]) -> bool:
    """Whether this objective teaches a network to write what was taken out of plain texts."""
    kind = given.get("kind", "")
    return kind in OBJECTIVES and getattr(objective_class(kind), "mends", False)


def make_objective(given: Mapping[str, Any], batches: Mapping[str, Any], vocabulary: Vocabulary) -> Any:
    """The objective of a recipe's phase over its batches. One that puts tokens of its own in is told the vocabulary."""
    options = dict(given)
    kind = options.pop("kind", "causal")
    if kind not in OBJECTIVES:
        near = get_close_matches(str(kind), OBJECTIVES, n=1)
        hint, known = f" Did you mean '{near[0]}'?" if near else "", ", ".join(OBJECTIVES)
        raise NextwordError(f"No objective is called '{kind}'.{hint} There are {known}.")
    cls = objective_class(kind)
    told = {"vocabulary": vocabulary} if "vocabulary" in inspect.signature(cls).parameters else {}
    try:
        return cls(batches, **options, **told)
    except TypeError:
        raise NextwordError(
            f"Objective '{kind}' was given {', '.join(options)}; some of these it does not know."
        ) from None
