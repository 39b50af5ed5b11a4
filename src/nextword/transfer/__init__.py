"""TASKS: from a run to labels. A head over any network that has vectors inside, both trained by the one loop.

from nextword import transfer
outcome = transfer.run("bert/finetune", "runs/bert", "reviews.csv", "runs/reviews")
nextword.load("runs/reviews").predict(["A fine film."])[0].label
"""

from __future__ import annotations

from nextword.transfer.catalog import TASKS
from nextword.transfer.data import DataSet, open_data
from nextword.transfer.glue import FIVE, SUITE
from nextword.transfer.plan import Plan, make_plan
from nextword.transfer.questions import QuestionSet, open_questions
from nextword.transfer.run import Outcome, averages, errors_in, result_of, resume, run, transfer
from nextword.transfer.suite import suite, twins
from nextword.transfer.tables import Columns, Rows
from nextword.transfer.task import Task

__all__ = [
    "FIVE",
    "SUITE",
    "TASKS",
    "Columns",
    "DataSet",
    "Outcome",
    "Plan",
    "QuestionSet",
    "Rows",
    "Task",
    "averages",
    "errors_in",
    "make_plan",
    "open_data",
    "open_questions",
    "result_of",
    "resume",
    "run",
    "suite",
    "transfer",
    "twins",
]
