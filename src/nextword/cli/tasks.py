"""`nextword evaluate RUN --task NAME`: a task put in words; `nextword evaluate --tasks`: which there are."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from nextword.cli.console import console, emit_json, progress_bar
from nextword.cli.results import table
from nextword.infinity import number

SETTINGS = {"rule": "", "drawn": "item", "long": "slide"}
PERCENT = ("accuracy", "f1", "mcc")  # times 100, as papers print them


def list_tasks(json: bool) -> None:
    """Every task, how it is scored, and whether its data are here."""
    from nextword.evaluation.tasks import load_task, task_names

    rows = []
    for name in task_names():
        task = load_task(name)
        keys = ("name", "title", "data", "split", "shots_from", "rule", "metric", "note")
        rows.append(
            {**{key: getattr(task, key) for key in keys}, "here": data_here(task), "published": list(task.published)}
        )
    if json:
        emit_json(rows)
        return
    cells = [
        [*(escape(row[key]) for key in ("name", "data", "split", "rule", "metric")), "✓" * row["here"], row["title"]]
        for row in rows
    ]
    table(("task", "data", "split", "rule", "metric", "here", ""), cells)
    console.print("[dim]One of them: nextword evaluate RUN --task NAME --shots 5 · its data: nextword data NAME[/]")


def data_here(task: Any) -> bool:
    """Whether the data of a task are on this machine, or made here."""
    from nextword.corpora.catalog import find
    from nextword.evaluation.tasks.reading import GENERATED

    entry = find(task.data)
    return task.data in GENERATED or (entry is not None and entry.place() is not None)


def run_task(
    run: str,
    name: str,
    shots: int,
    limit: int,
    seed: int,
    split: str,
    data: str,
    changes: list[str],
    device: str,
    json: bool,
    quiet: bool,
) -> None:
    """Ask a run, keep the result in its log as the event "task", and show it."""
    from nextword.checkpoint import RunFolder
    from nextword.evaluation.tasks import load_task

    settings = _task_settings(changes)
    rule = settings.pop("rule")
    task = load_task(name, **{k: v for k, v in (("split", split), ("rule", rule)) if v})
    folder = RunFolder.open(run)
    from nextword.evaluation.fewshot import evaluate_task
    from nextword.loading_lm import load

    lm = load(run, device)
    with progress_bar(f"asking {task.name}", quiet=quiet or json) as update:
        found = evaluate_task(
            lm, task, shots, seed=seed, limit=limit or None, folder=data or None, progress=update, **settings
        )
    result = {"slug": folder.recipe.slug, "run": str(folder.path), "parameters": lm.parameters, **found.as_dict()}
    kept = {key: value for key, value in result.items() if key not in ("run", "published", "first")}
    folder.log({"event": "task", **kept})
    if json:
        emit_json(result)
    else:
        show_tasks(found)


def _task_settings(changes: list[str]) -> dict[str, Any]:
    from nextword.contract_errors import NextwordError
    from nextword.recipe import suggestion

    values: dict[str, Any] = dict(SETTINGS)
    for change in changes:
        key, equals, value = change.partition("=")
        group, _, setting = key.strip().partition(".")
        if not equals or group != "task" or setting not in values:
            hint = suggestion(setting or group, list(SETTINGS))
            raise NextwordError(
                f"--set {change}: with --task there are task.rule, task.drawn (item, once) and task.long (slide, "
                f"error).{hint}"
            )
        values[setting] = value.strip().strip('"')
    return values


def show_tasks(found: Any) -> None:
    asked = f"{found.count:,}" + (f" of {found.of:,}" if found.count < found.of else "")
    console.print(f"\n[bold]{escape(found.task)}[/]  {escape(found.title)}")
    times = 100 if found.metric in PERCENT else 1
    cells = [
        f"{found.value * times:.2f}",
        f"{found.low * times:.2f}–{found.high * times:.2f}",
        " · ".join(f"{name} {value * times:.2f}" for name, value in found.baselines.items()) or "–",
        f"{found.shots}" + (f" ({found.drawn})" if found.shots else ""),
        f"{found.split}: {asked}",
        f"{found.seconds:.1f}",
    ]
    heads = [found.metric + (" %" if times == 100 else ""), "95 %", "without a model", "shots", "questions", "seconds"]
    if found.perplexity is not None:
        heads.insert(2, "word ppl")
        cells.insert(2, number(found.perplexity, 2))
    table(heads, [cells])
    for note in _notes(found):
        console.print(f"[dim]· {escape(note)}[/]", soft_wrap=True)


def _notes(found: Any) -> list[str]:
    notes = [f"rule {found.rule}; seed {found.seed}", *found.notes]
    if found.shots:
        notes.append(f"shots from the split {found.shots_from}, none of them among the questions")
    if found.dropped:
        notes.append(
            f"{found.dropped:,} shots in {found.shortened:,} prompts fell away: the window is {found.window:,} tokens"
        )
    if found.slid:
        notes.append(f"{found.slid:,} questions are longer than the window of {found.window:,}: it moved on over them")
    if found.unknown:
        notes.append(f"{found.unknown:,} questions have a word outside the vocabulary in what is to follow")
    if found.ties:
        notes.append(f"{found.ties:,} questions with equal choices were decided by lot")
    for one in found.published:
        notes.append(f"{one['model']}, {one['shots']} shots: {one['value'] * 100:.1f} ({one['source']})")
    return notes
