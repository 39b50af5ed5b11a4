"""Several fine-tuned runs together: a suite of benchmarks, twins with and without pretraining, and ensembles.

    task     pretrained     from scratch     difference          seed by seed. ± is half a 95 % interval: that of the
    RTE      62.1 ± 1.3     52.7 ± 0.4       9.4 ± 1.1           differences is narrower than either column's

A twin trains the same network from random weights, with the same data and seeds, in the folder OUT-scratch.

An ensemble averages the test probabilities that its runs have saved (predictions.npz), so it needs no weights: for
example of a forward and a backward language model (Howard & Ruder 2018, section 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import InvalidSetting, RunError, invalid
from nextword.metrics.intervals import confidence_interval
from nextword.run_folder import RunFolder
from nextword.tasks import parse_task
from nextword.tasks.classification import TextTask, score_outputs
from nextword.tasks.datasets.base import bad_data
from nextword.tasks.datasets.catalog import find_benchmark, locate_benchmark
from nextword.tasks.datasets.glue import SUITE, SUITE_TASKS
from nextword.tasks.finetune import (
    PREDICTIONS,
    Outcome,
    averages,
    continue_run,
    reopen_data,
    run,
    write_atomically,
    write_results,
)
from nextword.tasks.plan import load_task_recipe, open_source, require_training, resolve

TABLE = "results.md"
PLAN_OPTIONS = ("columns", "kind", "scratch", "changes", "device")
Results = dict[str, Any]  # what results.json holds

# ------------------------------------------------------------------------------------------------ running


@dataclass(frozen=True)
class FineTuning:
    """What `fine_tune` did."""

    folder: str
    outcomes: Sequence[Outcome]  # one per task
    results: Results  # of a suite or of twins; {}: one task, or interrupted
    is_single: bool = False  # one run, which `resume` continues without further options

    @property
    def interrupted(self) -> bool:
        return any(outcome.interrupted for outcome in self.outcomes)


def fine_tune(
    recipe: str = "",
    source: str = "",
    data: str = "",
    out: str = "",
    *,
    features: str = "",
    train_fraction: float = 1.0,
    merge_dev: bool = False,
    scratch: bool = False,
    compare_scratch: bool = False,
    changes: Sequence[str] = (),
    **options: Any,
) -> FineTuning:
    """Fine-tune a run on one task, on several (`data` = "glue"), or next to a twin from scratch (`compare_scratch`).

    Without a recipe, resume the run in `out`. `data` and `out` default to those of the recipe. `features`: a run whose
    contextual embeddings a tagger also reads. The other options are those of `finetune.run`.
    """
    if not recipe:
        if not out:
            raise InvalidSetting("Name the run to resume with --out RUN (see `nextword runs`).", key="--out")
        keys = ("device", "on_event", "on_plan", "on_progress", "stop")
        outcome = continue_run(out, **{key: options[key] for key in keys if key in options})
        return FineTuning(out, [outcome], {}, is_single=True)
    own = load_task_recipe(recipe)
    data = data or own.phases[0].data
    if features and not own.tokenizer:
        raise invalid(
            "--features", features, f"needs a recipe with a tagger of its own, and {recipe} fine-tunes a run."
        )
    if compare_scratch and (scratch or not source):
        problem = "--compare-scratch needs a pretrained run to compare with. Add --from RUN, and leave --scratch out."
        raise InvalidSetting(problem, key="--compare-scratch")
    changes = [*([f"model.contextual={features}"] if features else []), *changes]
    changes += [f"task.train_fraction={train_fraction}"] if train_fraction != 1 else []
    changes += ["task.merge_dev_into_train=true"] if merge_dev else []
    folder = out or default_folder(open_source(source).recipe.slug if source else own.slug, data, scratch)
    options |= {"changes": changes}
    names = SUITE_TASKS if data.lower() == SUITE and not Path(data).exists() else ()
    if compare_scratch or names:
        own_names = names or (data,)
        return run_suite(recipe, source, own_names, folder, scratch=scratch, compare_scratch=compare_scratch, **options)
    options["scratch"] = scratch
    outcome = run(recipe, source, data, folder, **options)
    return FineTuning(folder, [outcome], {}, is_single=not options.get("seeds"))


def default_folder(slug: str, data: str, scratch: bool) -> str:
    name = "-".join(Path(part).name.split(".")[0].replace(":", "-").lower() for part in data.split(" + "))
    return f"runs/{slug}-{name}{'-scratch' if scratch else ''}"


def run_suite(
    recipe: str,
    source: str | Path,
    names: Sequence[str],
    out: str | Path,
    *,
    scratch: bool = False,
    compare_scratch: bool = False,
    **options: Any,
) -> FineTuning:
    """Fine-tune on several tasks, each in its own folder under `out`, and tabulate the means.

    `compare_scratch`: do each task twice, pretrained and from scratch. The results are empty if training was
    interrupted. To use several GPUs, start one process per task (out/RTE …), then call this with `resume=True`: it
    reuses the finished runs.
    """
    if compare_scratch:
        require_training(load_task_recipe(recipe, options.get("changes", ())))
    _check_all(recipe, source, names, {**options, "scratch": scratch})
    columns = [(Path(out), scratch), *([(twin_folder(out), True)] if compare_scratch else [])]
    outcomes: list[list[Outcome]] = [[] for _ in columns]
    for name in names:
        for done, (folder, is_scratch) in zip(outcomes, columns, strict=True):
            place = folder if compare_scratch and len(names) == 1 else folder / Path(name).name
            done.append(run(recipe, source, name, place, scratch=is_scratch, **options))
            if done[-1].interrupted:
                return FineTuning(str(out), list(chain(*outcomes)), {})
    twins = outcomes[1] if compare_scratch else ()
    results = collect_results(recipe, source, outcomes[0], twins, scratch)
    write_results_table(Path(out), results)
    return FineTuning(str(out), list(chain(*outcomes)), results)


def twin_folder(out: str | Path) -> Path:
    return Path(f"{out}-scratch")


def _check_all(recipe: str, source: str | Path, names: Sequence[str], options: Mapping[str, Any]) -> None:
    """Fail before any training if a task's files are missing, or if the recipe cannot learn it."""
    for benchmark in filter(None, map(find_benchmark, names)):
        locate_benchmark(benchmark)
    plan_options = {key: options[key] for key in PLAN_OPTIONS if key in options}
    for name in names if len(names) > 1 else ():
        resolve(recipe, source, name, **plan_options)


# ------------------------------------------------------------------------------------------------ results


def collect_results(
    recipe: str, source: str | Path, outcomes: Sequence[Outcome], twins: Sequence[Outcome] = (), scratch: bool = False
) -> Results:
    """Return the mean over tasks, the results of every task, and, with twins, theirs and the differences."""
    results: Results = {
        "recipe": recipe,
        "source": str(source),
        "scratch": scratch,
        **averages(outcomes),
        "tasks": [outcome.as_dict() for outcome in outcomes],
    }
    if twins:
        by_task = [_differences(outcome, twin) for outcome, twin in zip(outcomes, twins, strict=True)]
        results["twin"] = {**averages(twins), "tasks": [twin.as_dict() for twin in twins]}
        results["difference"] = {
            **_interval([sum(values) / len(values) for values in zip(*by_task, strict=True)]),
            "tasks": [
                {"name": outcome.name, **_interval(values), "values": values}
                for outcome, values in zip(outcomes, by_task, strict=True)
            ],
        }
    return results


def _differences(outcome: Outcome, twin: Outcome) -> list[float]:
    return [a - b for a, b in zip(outcome.values(), twin.values(), strict=True)]


def _interval(values: Sequence[float]) -> dict[str, float | None]:
    mean, half = confidence_interval(values)
    return {"mean": mean, "interval": half}


def table_header(results: Mapping[str, Any]) -> list[str]:
    n = len(results["tasks"][0]["values"])
    seeds = f", {n} seeds" if n > 1 else ""
    if "twin" in results:
        return ["task", "metric", f"pretrained{seeds}", "from scratch", "difference", "examples"]
    return ["task", "metric", f"{'from scratch' if results['scratch'] else 'dev'}{seeds}", "examples"]


def table_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for every task and one for the mean, in percent; correlations are × 100 too."""
    columns: list[Mapping[str, Any]] = [results]
    if "twin" in results:
        columns += [results["twin"], results["difference"]]
    rows = []
    for i, task in enumerate(results["tasks"]):
        values = [_percent(column["tasks"][i]) for column in columns]
        rows.append([task["name"], task["metric"], *values, f"{task['results'][0]['examples']['dev']:,}"])
    if len(rows) > 1:
        rows.append(["mean", "", *(_percent(column) for column in columns), ""])
    return rows


def _percent(result: Mapping[str, Any]) -> str:
    value = f"{100 * result['mean']:.1f}"
    return value if result["interval"] is None else f"{value} ± {100 * result['interval']:.1f}"


def write_results_table(folder: Path, results: Mapping[str, Any]) -> None:
    """Write results.json, and the table as Markdown."""
    write_results(folder, results)
    header = table_header(results)
    lines = [header, ["---", "---", *["---:"] * (len(header) - 2)], *table_rows(results)]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    recipe = f"`{results['recipe']}`" + (f" from `{results['source']}`" if results["source"] else "")
    write_atomically(folder / TABLE, f"{table}\n{recipe}, dev sets, percent. ± is half a 95 % interval over seeds.\n")


# ------------------------------------------------------------------------------------------------ ensembles


def score_averaged_predictions(runs: Sequence[Path], metric: str, split: str = "test") -> float:
    """Score the mean of the probabilities (or numbers) that several runs have saved for the test set.

    The columns and classes of the gold labels are those of the first run.
    """
    saved = [_saved_predictions(run, split) for run in runs]
    recipe = RunFolder.open(runs[0]).recipe
    data, task = reopen_data(recipe), parse_task(recipe.task, recipe.name)
    rows = data.splits.get(split)
    if not isinstance(task, TextTask) or rows is None or rows.labels is None:
        raise bad_data(data.name, f"there are no labels of texts for {split}, so an average cannot be scored.")
    shapes = {array.shape for array in saved} | {(len(rows), saved[0].shape[1])}
    if len(shapes) > 1:
        problem = f"Predictions for {split} have different shapes: {sorted(shapes)}."
        raise RunError(f"{problem} The runs are {', '.join(map(str, runs))}.", path=runs[0])
    return score_outputs((metric,), task.encode_labels(rows.labels), np.mean(saved, 0))[metric]


def _saved_predictions(run: Path, split: str) -> np.ndarray:
    path = run / PREDICTIONS
    if path.is_file():
        with np.load(path, allow_pickle=False) as arrays:
            if split in arrays:
                saved: np.ndarray = arrays[split].astype(np.float64)
                return saved
    raise RunError(f"{run} has no saved predictions for {split} ({PREDICTIONS}).", path=path)
