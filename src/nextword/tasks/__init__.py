"""TASKS: from a run to labels. A head over any network that has vectors inside, both trained by the one loop.

from nextword import transfer
outcome = transfer.run("bert/finetune", "runs/bert", "reviews.csv", "runs/reviews")
nextword.load("runs/reviews").predict(["A fine film."])[0].label
"""

from __future__ import annotations

import importlib
from typing import Any

PUBLIC = {
    "Columns": "nextword.data.tables",
    "DataSet": "nextword.tasks.text_data",
    "SUITE_TASKS": "nextword.tasks.datasets.glue",
    "Outcome": "nextword.tasks.finetune",
    "Plan": "nextword.tasks.plan",
    "QuestionSet": "nextword.tasks.question_answering",
    "Rows": "nextword.data.tables",
    "SUITE": "nextword.tasks.datasets.glue",
    "BENCHMARKS": "nextword.tasks.datasets.catalog",
    "Benchmark": "nextword.tasks.datasets.base",
    "averages": "nextword.tasks.finetune",
    "errors_in": "nextword.tasks.finetune",
    "make_plan": "nextword.tasks.plan",
    "open_data": "nextword.tasks.text_data",
    "open_questions": "nextword.tasks.question_answering",
    "result_of": "nextword.tasks.finetune",
    "resume": "nextword.tasks.finetune",
    "run": "nextword.tasks.finetune",
    "run_suite": "nextword.tasks.suite",
    "transfer": "nextword.tasks.finetune",
    "run_twins": "nextword.tasks.suite",
}


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(PUBLIC[name]), name)
