"""Predictions for test sets whose labels are kept back, in the files that GLUE's server takes, and other leaderboards.

    RTE.tsv     index   prediction         one file a task, CoLA.tsv … WNLI.tsv, of MNLI three: MNLI-m.tsv, MNLI-mm.tsv
                0       not_entailment     and AX.tsv, of the diagnostic sentences. Labels are as in the training file,
                1       entailment         and of STS-B numbers from 0 to 5

    answer.txt  InputStoryid,AnswerRightEnding      of Story Cloze: the ending is 1 or 2
    SWAG.csv    2                                   of SWAG: 0 to 3 on a line each, in the order of the test file

Of several seeds the run that was best on dev speaks. The files lie side by side, without a folder around them in a zip.

What several runs of one task said of its test set, averaged: forward and backward (Howard & Ruder 2018, 3.3).

forward    0.9 0.1 ┐
backward   0.4 0.6 ┴▶ 0.65 0.35        said.npz of each run is enough: no weights are needed
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.data.tables import Rows
from nextword.lm.loading import load
from nextword.run_folder import RunFolder
from nextword.tasks.datasets import glue
from nextword.tasks.datasets.base import Task
from nextword.tasks.datasets.catalog import TASKS, find_task, place_of
from nextword.tasks.finetune import SAID, data_of, result_of
from nextword.tasks.settings import settings_of
from nextword.tasks.several import AND
from nextword.tasks.task_objective import measured

MANIFEST = "manifest.json"
ZIP = ".zip"
Progress = Callable[[str, int, int], None]


def predictions(
    folder: str | Path,
    device: str = "auto",
    progress: Progress = lambda name, done, total: None,
) -> dict[str, str]:
    """File name → its text, of a run, of a folder of seeds, or of a suite."""
    found: dict[str, str] = {}
    for run in speaking(Path(folder)):
        tasks = _tasks(run)
        asked = {task.name: _asked(task) for task in tasks}
        lm: Any = load(run, device)
        for task in tasks:
            model = lm.of(task.name) if hasattr(lm, "of") else lm
            for name, rows in asked[task.name].items():
                said = model.predict(_given(rows), lambda a, b, name=name: progress(name, a, b))
                found[name] = written(task, rows, said)
    return found


def _asked(task: Task) -> dict[str, Rows]:
    """File that predictions go into → what they are wanted of."""
    place = place_of(task)
    splits, _ = task.read(place)
    found = {name: splits[split] for split, name in task.submission.items() if split in splits}
    if not found:
        raise NextwordError(
            f"{place} has no test file of {task.name}, so there is nothing to predict. Put the official one there"
            + (", as test.tsv." if not task.catalog else ".")
        )
    if task.key and any(rows.ids is None for rows in found.values()):
        raise NextwordError(
            f"{place}: the test file of {task.name} has no column '{task.key}', by which predictions are handed in. "
            "Put the official one there."
        )
    return found


def written(task: Task, rows: Rows, said: Any) -> str:
    """The file of one split: the index that the benchmark gave, or else the row's number, and what was said."""
    ids = rows.ids or [str(i) for i in range(len(rows))]
    return task.heading + "".join(task.line(id, _shown(task, one)) for id, one in zip(ids, said, strict=True))


def _shown(task: Task, one: Any) -> str:
    if one.value is None:
        return one.label
    low, high = task.bounds or (one.value, one.value)
    return f"{min(max(one.value, low), high):.3f}"


def _given(rows: Rows) -> list[Any]:
    columns = [one for one in (rows.texts, rows.seconds, rows.choices) if one is not None]
    return list(rows.texts) if len(columns) == 1 else list(zip(*columns, strict=True))


def _tasks(run: Path) -> list[Task]:
    """What a run has learnt of those that predictions are handed in for."""
    recipe = RunFolder.open(run).recipe
    name = recipe.phases[0].data if recipe.task is not None else ""
    tasks = [task for one in name.split(AND) if (task := find_task(one.strip())) is not None and task.submission]
    if not tasks:
        known = ", ".join(one.name for one in TASKS.values() if one.submission)
        raise NextwordError(
            f"{run} was {f'trained on {name}' if name else 'not transferred to a task'}: predictions are handed in for "
            f"{known}. For any other text: nextword predict {run} FILE."
        )
    return tasks


def speaking(folder: Path) -> list[Path]:
    """The runs that predictions are made with: this one, the best of its seeds, or that of each task below."""
    if (folder / MANIFEST).is_file():
        return [folder]
    below = sorted(one for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []
    seeds = [one for one in below if one.name.startswith("seed-") and (one / MANIFEST).is_file()]
    if seeds:
        return [max(seeds, key=_dev)]
    found = [run for one in below for run in _speaking_below(one)]
    if not found:
        raise NextwordError(f"{folder} has no finished transfer in it. Expected a run, or the folder of a suite.")
    return found


def _speaking_below(folder: Path) -> list[Path]:
    """The same one level down, where a folder of something else is passed over."""
    return speaking(folder) if (folder / MANIFEST).is_file() or list(folder.glob(f"seed-*/{MANIFEST}")) else []


def _dev(run: Path) -> float:
    result: Mapping[str, Any] | None = result_of(run)
    if result is None:
        raise NextwordError(f"{run} is not finished. Go on with it: nextword transfer --resume --out {run}")
    return result["dev"][result["metric"]]


def refuse_taken(folder: str | Path, place: Path) -> None:
    """Before anything is predicted: a zip, or a file in the folder, that is there already is not overwritten."""
    names = {name for run in speaking(Path(folder)) for task in _tasks(run) for name in task.submission.values()}
    wanted = [place] if place.suffix.lower() == ZIP else [place, *(place / name for name in sorted(names))]
    there = next((one for one in wanted if one.is_file()), None)
    if there is not None:
        raise NextwordError(
            f"--submission: {there} is there already, and nothing is overwritten. Choose another place, or remove it."
        )


def save(files: Mapping[str, str], place: Path) -> None:
    """Into a folder, or a zip; what is there under other names stays."""
    if place.suffix.lower() == ZIP:
        place.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / name).write_text(text, encoding="utf-8")


def sizes(files: Mapping[str, str]) -> dict[str, int]:
    """File name → how many predictions are in it."""
    headed = {name: bool(task.heading) for task in TASKS.values() for name in task.submission.values()}
    return {name: text.count("\n") - headed[name] for name, text in files.items()}


def lacking(files: Mapping[str, str]) -> list[str]:
    """Files that GLUE's server expects besides these, where some of these are for it."""
    wanted = [name for task in glue.TASKS for name in task.submission.values()]
    return [name for name in wanted if name not in files] if any(name in files for name in wanted) else []


SPLIT = "test"


def averaged(runs: Sequence[Path], metric: str) -> float:
    """The metric of the mean of the probabilities, or of the numbers, that runs have kept of the test set.

    What is right is read as the first of them has read it: its columns and its classes.
    """
    found = [_said(run) for run in runs]
    recipe = RunFolder.open(runs[0]).recipe
    data, settings = data_of(recipe), settings_of(recipe.task or {}, recipe.name)
    rows = data.splits.get(SPLIT)
    if rows is None or rows.labels is None:
        raise NextwordError(f"{data.name} has no labels for {SPLIT}, so that an average cannot be measured.")
    shapes = {one.shape for one in found} | {(len(rows), found[0].shape[1])}
    if len(shapes) > 1:
        raise NextwordError(f"{', '.join(map(str, runs))} have said of {SPLIT} what does not fit together: {shapes}.")
    return measured((metric,), settings.encoded(rows.labels), np.mean(found, 0))[metric]


def _said(run: Path) -> np.ndarray:
    path = run / SAID
    if path.is_file():
        with np.load(path, allow_pickle=False) as kept:
            if SPLIT in kept:
                return kept[SPLIT].astype(np.float64)
    raise NextwordError(f"{run} has kept nothing that it said of {SPLIT} ({SAID}), so there is nothing to average.")
