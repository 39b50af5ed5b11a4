"""Training objectives, by the name that a recipe uses: `objective = { kind = "causal" }`.

objectives/base.py defines the contract. Objectives know no model by name.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nextword.core.errors import check_keys, unknown
from nextword.core.types import Vocabulary

if TYPE_CHECKING:  # objectives import torch, which a command that only reads a recipe should not wait for
    from nextword.objectives.base import Objective

OBJECTIVES = {
    "causal": "nextword.objectives.causal:CausalObjective",
    "bidirectional": "nextword.objectives.bidirectional:BidirectionalObjective",
    "masked": "nextword.objectives.masked:MaskedObjective",
    "permutation": "nextword.objectives.permutation:PermutationObjective",
    "span_corruption": "nextword.objectives.span_corruption:SpanCorruptionObjective",
    "blank_infilling": "nextword.objectives.blank_infilling:BlankInfillingObjective",
    "seq2seq": "nextword.objectives.seq2seq:Seq2SeqObjective",
    "cross_view_seq2seq": "nextword.objectives.seq2seq:CrossViewSeq2SeqObjective",
    "negative_sampling": "nextword.objectives.word_vectors:NegativeSamplingObjective",
    "contrastive": "nextword.objectives.contrastive:ContrastiveObjective",
    "cooccurrence": "nextword.objectives.word_vectors:CooccurrenceObjective",
}


def objective_class(kind: str) -> type[Objective[Any]]:
    """Import the objective of this kind: one of OBJECTIVES, or that of a task."""
    tasks = importlib.import_module("nextword.tasks")  # imported by name, because tasks are built on objectives
    if kind in tasks.TASKS:
        return tasks.task_class(kind).objective
    if kind not in OBJECTIVES:
        raise unknown("objective", kind, OBJECTIVES)
    module, name = OBJECTIVES[kind].split(":")
    return getattr(importlib.import_module(module), name)


def trains_on_pairs(objective: Mapping[str, Any]) -> bool:
    """Whether a phase with these objective settings reads pairs of a source and a target."""
    kind = objective.get("kind", "")
    return kind in OBJECTIVES and objective_class(kind).is_parallel


def trains_blank_filling(objective: Mapping[str, Any]) -> bool:
    """Whether these objective settings teach a sequence-to-sequence network to fill blanks in plain text."""
    kind = objective.get("kind", "")
    return kind in OBJECTIVES and objective_class(kind).fills_blanks


def make_objective(objective: Mapping[str, Any], batches: Mapping[str, Any], vocabulary: Vocabulary) -> Objective[Any]:
    """Build the objective of a recipe's phase from its `objective` and `batches` settings."""
    options = dict(objective)
    kind = options.pop("kind", "causal")
    cls = objective_class(kind)
    known = [name for name in inspect.signature(cls).parameters if name not in ("batches", "vocabulary")]
    check_keys("objective", options, known, kind)
    if cls.needs_vocabulary:
        options["vocabulary"] = vocabulary
    return cls(batches, **options)  # type: ignore[call-arg]
