"""Tasks: from a pretrained run to labels. One task, one file; base.py has the contract.

    from nextword import tasks
    outcome = tasks.run("bert/finetune", "runs/bert", "reviews.csv", "runs/reviews")
    nextword.load("runs/reviews").predict(["A fine film."])[0].label

To add a task: write a subclass of `Task` (base.py) in a file of its own, and add one line to TASKS.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nextword.core.errors import unknown

if TYPE_CHECKING:
    from nextword.tasks.base import AnyTask

# `kind` in a recipe's [task] → the class. In doubt about what a file holds, the first task that recognizes it counts.
TASKS = {
    "question_answering": "nextword.tasks.question_answering:QuestionAnswering",
    "multiple_choice": "nextword.tasks.multiple_choice:MultipleChoice",
    "tagging": "nextword.tasks.tagging:Tagging",
    "cross_view": "nextword.tasks.cross_view:CrossViewTagging",
    "classification": "nextword.tasks.classification:Classification",
    "pair_classification": "nextword.tasks.classification:Classification",
    "regression": "nextword.tasks.regression:Regression",
    "multitask": "nextword.tasks.multitask:Multitask",
    "label_text": "nextword.tasks.label_text:LabelText",
    "in_context": "nextword.tasks.in_context:InContextLearning",
}


def task_class(kind: str) -> type[AnyTask]:
    """Import the task of this kind."""
    if kind not in TASKS:
        raise unknown("task", kind, TASKS, where="[task] kind")
    module, name = TASKS[kind].split(":")
    cls: type[AnyTask] = getattr(importlib.import_module(module), name)
    return cls


def parse_task(table: Mapping[str, Any] | None, where: str) -> AnyTask:
    """The task of a recipe's [task] table; `where` names the recipe or run in errors."""
    return task_class((table or {}).get("kind", "")).parse(table or {}, where)


def task_defaults(kind: str) -> dict[str, Any]:
    """The settings of [task] that a recipe may change, and their defaults."""
    from dataclasses import fields

    from nextword.tasks.base import default_of

    settings = [f for f in fields(task_class(kind).Config) if "option" not in f.metadata]
    return {f.name: default_of(f) for f in settings if f.name not in ("kind", "overrides")}


PUBLIC = {
    "Columns": "nextword.data.tables",
    "Outcome": "nextword.tasks.finetune",
    "Task": "nextword.tasks.base",
    "fine_tune": "nextword.tasks.suite",
    "make_plan": "nextword.tasks.plan",
    "predict_file": "nextword.tasks.predict",
    "read_errors": "nextword.tasks.finetune",
    "read_result": "nextword.tasks.finetune",
    "read_text_data": "nextword.tasks.text_data",
    "resume": "nextword.tasks.finetune",
    "run": "nextword.tasks.finetune",
    "run_suite": "nextword.tasks.suite",
    "transfer": "nextword.tasks.finetune",
}


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(PUBLIC[name]), name)
