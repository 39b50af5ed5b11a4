"""List every task: fine-tuned (transfer), text to text (train), or posed as text (evaluate)."""

from __future__ import annotations

from typing import Any

from nextword.core.errors import NextwordError
from nextword.data import conll
from nextword.data.catalog import ALL, catalog
from nextword.data.parallel import open_parallel
from nextword.data.text_to_text import tasks as text_tasks
from nextword.evaluation.prompt_tasks import load_task, task_names
from nextword.metrics.squad import ANSWER_METRICS
from nextword.tasks.datasets.base import PUBLISHED, TENTH_OF_TRAIN
from nextword.tasks.datasets.catalog import BENCHMARKS, is_installed
from nextword.tasks.question_answering import CATALOG_KIND as QUESTION_ANSWERING


def list_tasks() -> list[dict[str, Any]]:
    """One row per task, with the command that runs it and whether its data is installed."""
    return [*_benchmarks(), *_question_answering(), *_tagging(), *_text_to_text(), *_prompt_tasks()]


def _row(
    name: str, title: str, kind: str, metric: str, dev: str, command: str, installed: bool, **more: Any
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "title": title, "kind": kind, "metric": metric, "dev": dev}
    row |= {"command": command, "installed": installed}
    return {**row, "submission": {}, **more}


def _benchmarks() -> list[dict[str, Any]]:
    return [
        _row(
            benchmark.name,
            benchmark.title,
            benchmark.kind,
            benchmark.metrics[0],
            benchmark.dev,
            "transfer",
            is_installed(benchmark),
            submission=dict(benchmark.submission.files),
        )
        for benchmark in BENCHMARKS.values()
    ]


def _question_answering() -> list[dict[str, Any]]:
    return [
        _row(
            entry.name,
            entry.title,
            "question_answering",
            ANSWER_METRICS[0],
            PUBLISHED,
            "transfer",
            entry.find_folder() is not None,
        )
        for entry in catalog().values()
        if entry.kind == QUESTION_ANSWERING
    ]


def _tagging() -> list[dict[str, Any]]:
    """Tagged words; the tags decide between span F1 and token accuracy."""
    return [
        _row(
            entry.name,
            entry.title,
            "tagging",
            "span_f1, or token_accuracy",
            PUBLISHED if "valid" in entry.layout else TENTH_OF_TRAIN,
            "transfer",
            entry.find_folder() is not None,
        )
        for entry in catalog().values()
        if entry.kind == conll.KIND and ALL not in entry.layout
    ]


def _text_to_text() -> list[dict[str, Any]]:
    """Answers, translations and summaries that are generated (docs/text-to-text.md)."""
    return [
        _row(f"tasks:{name}", task.title, "text", task.metrics[0], "", "train", _can_open(f"tasks:{name}"))
        for name, task in text_tasks().items()
        if task.metrics
    ]


def _can_open(name: str) -> bool:
    try:
        open_parallel(name)
    except NextwordError:
        return False
    return True


def _prompt_tasks() -> list[dict[str, Any]]:
    tasks = [load_task(name) for name in task_names()]
    return [_row(task.name, task.title, "prompt", task.metric, "", "evaluate", task.has_data()) for task in tasks]
