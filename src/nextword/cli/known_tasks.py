"""`nextword data tasks`: every task there is, what it learns or asks, its metric, and the command that does it."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from nextword.cli.console import console, emit_json
from nextword.cli.results import table
from nextword.cli.tasks import data_here

TASKS = "tasks"
LEARNT, ASKED, WRITTEN = "transfer", "evaluate", "train"
WORDS = ("kind", "metric", "dev split", "by", "")  # columns


def list_known(json: bool) -> None:
    rows = [*_of_texts(), *_of_questions(), *_of_tags(), *_as_texts(), *_in_words()]
    if json:
        emit_json(rows)
        return
    cells = [
        [
            f"[bold]{escape(row['name'])}[/]",
            *(escape(row[key]) for key in ("kind", "metric", "dev", "by")),
            "[green]✓[/]" * row["here"],
            escape(row["title"]),
        ]
        for row in rows
    ]
    table(("task", *WORDS[:-1], "here", WORDS[-1]), cells, words=WORDS)
    console.print(
        "[dim]by transfer: nextword transfer RECIPE --from RUN --data TASK · by train: nextword train t5/tasks --data "
        "TASK · by evaluate: nextword evaluate RUN --task TASK · GLUE's five with labels at hand: --data glue[/]"
    )


def _of_texts() -> list[dict[str, Any]]:
    from nextword.transfer.catalog import TASKS, is_here

    return [
        {
            "name": task.name,
            "title": task.title,
            "kind": task.kind,
            "metric": task.metrics[0],
            "dev": task.dev,
            "by": LEARNT,
            "here": is_here(task),
            "submission": dict(task.submission),
        }
        for task in TASKS.values()
    ]


def _of_questions() -> list[dict[str, Any]]:
    """Questions that a span of a passage answers."""
    from nextword.corpora.catalog import catalog
    from nextword.metrics.answers import OF_ANSWERS
    from nextword.transfer.questions import KIND
    from nextword.transfer.task import OWN

    row = {"kind": "span", "metric": OF_ANSWERS[0], "dev": OWN, "by": LEARNT, "submission": {}}
    return [
        {"name": entry.name, "title": entry.title, "here": entry.place() is not None, **row}
        for entry in catalog().values()
        if entry.kind == KIND
    ]


def _as_texts() -> list[dict[str, Any]]:
    """Text in, text out: answers, translations and summaries are written (docs/text-to-text.md)."""
    from nextword.contract_errors import NextwordError
    from nextword.corpora import open_parallel
    from nextword.corpora.text_to_text import tasks

    def here(name: str) -> bool:
        try:
            open_parallel(name)
        except NextwordError:
            return False
        return True

    row = {"kind": "text", "dev": "", "by": WRITTEN, "submission": {}}
    return [
        {"name": f"tasks:{name}", "title": task.title, "metric": task.metrics[0], "here": here(f"tasks:{name}"), **row}
        for name, task in tasks().items()
        if task.metrics
    ]


def _of_tags() -> list[dict[str, Any]]:
    """Sets of tagged words; what their tags are decides between F1 of spans and accuracy."""
    from nextword.corpora.catalog import ALL, catalog
    from nextword.corpora.tagged import KIND
    from nextword.transfer.task import OWN, TENTH

    return [
        {
            "name": entry.name,
            "title": entry.title,
            "kind": "tag",
            "metric": "span_f1, or token_accuracy",
            "dev": OWN if "valid" in entry.layout else TENTH,
            "by": LEARNT,
            "here": entry.place() is not None,
            "submission": {},
        }
        for entry in catalog().values()
        if entry.kind == KIND and ALL not in entry.layout
    ]


def _in_words() -> list[dict[str, Any]]:
    """Asked of a language model, with examples in its prompt or without; nothing is learnt."""
    from nextword.evaluation.tasks import load_task, task_names

    found = []
    for name in task_names():
        task = load_task(name)
        row = {"name": name, "title": task.title, "kind": "prompt", "metric": task.metric, "dev": "", "by": ASKED}
        found.append({**row, "here": data_here(task), "submission": {}})
    return found
