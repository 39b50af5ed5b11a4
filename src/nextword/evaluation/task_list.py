"""List every task: fine-tuned (transfer), text to text (train), or posed as text (evaluate)."""

from __future__ import annotations

from collections.abc import Iterator
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
from nextword.tasks.datasets.questions import CATALOG_KIND as QUESTION_ANSWERING


def list_tasks() -> list[dict[str, Any]]:
    """One row per task, with the command that runs it and whether its data is installed."""
    rows = [*_fine_tuned(), *_text_to_text(), *_posed_as_text()]
    return [{"submission": {}, **row} for row in rows]


def _fine_tuned() -> Iterator[dict[str, Any]]:
    for benchmark in BENCHMARKS.values():
        yield {
            "name": benchmark.name,
            "title": benchmark.title,
            "kind": benchmark.kind,
            "metric": benchmark.metrics[0],
            "dev": benchmark.dev,
            "command": "transfer",
            "installed": is_installed(benchmark),
            "submission": dict(benchmark.submission.files),
        }
    for entry in catalog().values():
        row = {"name": entry.name, "title": entry.title, "dev": PUBLISHED, "command": "transfer"}
        installed = entry.find_folder() is not None
        if entry.kind == QUESTION_ANSWERING:
            yield {**row, "kind": "question_answering", "metric": ANSWER_METRICS[0], "installed": installed}
        elif entry.kind == conll.KIND and ALL not in entry.layout:
            dev = PUBLISHED if "valid" in entry.layout else TENTH_OF_TRAIN
            metric = "span_f1, or token_accuracy"  # the tags decide
            yield {**row, "kind": "tagging", "metric": metric, "dev": dev, "installed": installed}


def _text_to_text() -> Iterator[dict[str, Any]]:
    """Answers, translations and summaries that are generated (docs/text-to-text.md)."""
    for name, task in text_tasks().items():
        if task.metrics:
            row = {"name": f"tasks:{name}", "title": task.title, "kind": "text", "metric": task.metrics[0], "dev": ""}
            yield {**row, "command": "train", "installed": _can_open(f"tasks:{name}")}


def _can_open(name: str) -> bool:
    try:
        open_parallel(name)
    except NextwordError:
        return False
    return True


def _posed_as_text() -> Iterator[dict[str, Any]]:
    for task in map(load_task, task_names()):
        row = {"name": task.name, "title": task.title, "kind": "prompt", "metric": task.metric, "dev": ""}
        yield {**row, "command": "evaluate", "installed": task.has_data()}
