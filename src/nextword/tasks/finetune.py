"""Fine-tuning: a plan into a run folder, once or for several seeds, and its results.

outcome = run("bert/finetune", "runs/bert", "RTE", "runs/rte", seeds=3)
outcome.mean, outcome.interval            0.66, 0.02: the main metric, and half of its 95 % interval
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import RunError
from nextword.core.io import path_exists, read_json, replace_nonfinite, user_path
from nextword.core.scratch import PREFIX
from nextword.data.tables import Columns
from nextword.metrics.intervals import confidence_interval
from nextword.model_card import CARD, write_card
from nextword.recipe import BUDGETS, Recipe, describe_differences
from nextword.run_folder import RunFolder, explain_read_errors
from nextword.tasks import error_analysis, parse_task, report
from nextword.tasks.base import Dataset, Progress
from nextword.tasks.baselines import BETTER, compare
from nextword.tasks.plan import Plan, build_plan, names_precision, prepare, resolve, with_seed
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import choose_device
from nextword.training.events import END, VALID, Event
from nextword.training.train import open_for_resume, recipe_mismatch, run_phases

RESULTS = "results.json"
PREDICTIONS = "predictions.npz"  # split → probabilities (n, classes) of its examples in their order, or numbers (n, 1)
IMPORTANT = ("task.source", "phase.0.data")  # differences that are named first: others may follow from them


def ignore(*_: object) -> None:
    """A callback that does nothing."""


# ------------------------------------------------------------------------------------------------ one run


def transfer(
    plan: Plan,
    folder: str | Path,
    seed: int | None = None,
    run: RunFolder | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:
    """Train the model of a plan into a run folder; `run` is one to resume."""
    if run is None:
        RunFolder.refuse_if_taken(folder)
    recipe = plan.with_seed(seed) if run is None else run.recipe
    task = plan.task
    train = task.sample(plan.examples["train"], task.config.train_fraction, recipe.phases[0].seed)
    task.check_training(train, task.count(plan.examples["train"]))
    model = task.build(plan, recipe, train)
    labeled = {split: examples for split, examples in plan.examples.items() if split != "train"}
    valid = plan.examples["dev"] if task.trains else labeled
    splits = [{"train": train, "valid": valid}] * len(recipe.phases)
    facts = {
        "data": {phase.name: plan.data.name for phase in recipe.phases},
        "texts": {phase.name: plan.fingerprint for phase in recipe.phases},
    }
    last: Event | None = None
    for event in run_phases(recipe, folder, run, model, plan.tokenizer, splits, plan.device, stop, final=True, **facts):
        last = event
        yield event
    if last is not None and last.kind == END and last.values.get("reason") != "interrupted":
        finished = RunFolder.open(folder)
        predictor, notes = task.finish(model, finished, plan.device)
        plan = replace(plan, notes=(*plan.notes, *notes))
        # From the log, since those before a resume were made by another process.
        validations = [line for line in finished.read_log() if line.get("event") == VALID]
        _finish(finished, plan, last, validations, task.count(train), predictor)


def _finish(
    run: RunFolder,
    plan: Plan,
    end: Event,
    validations: Sequence[Mapping[str, Any]],
    trained_on: int,
    predictor: Any,
) -> None:
    """Evaluate the weights that were kept, and write results, errors, report and card."""
    recipe, task, config = run.recipe, plan.task, plan.task.config
    values = end.values if recipe.phases[-1].keep == "best" else validations[-1]
    result: dict[str, Any] = {
        "data": plan.data.name,
        "kind": config.kind,
        "metric": config.metrics[0],
        "dev": {name: values[name] for name in config.metrics},
        "examples": {split: task.count(some) for split, some in plan.examples.items()} | {"train": trained_on},
        "seed": recipe.phases[0].seed,
        "scratch": config.scratch,
        "merge_dev_into_train": config.merge_dev_into_train,
        "source": config.source,
        "seconds": round(sum(line["seconds"] for line in run.read_log() if line.get("event") == END), 1),  # all phases
        "stopped": end.values.get("reason"),
        "notes": list(plan.notes),
    }
    if plan.unknown is not None:
        result["unknown"] = plan.unknown
    more, predictions = task.evaluate(predictor, plan.data, plan.examples)
    result["examples"] |= more.pop("examples", {})
    result |= more
    if comparisons := _compare_with_baselines(plan, recipe, predictor, trained_on, validations):
        result["baselines"] = comparisons
    _write_report(run, plan, predictor, result)
    if predictions:
        np.savez_compressed(run.path / PREDICTIONS, **predictions)  # type: ignore[arg-type]
    run.log({"event": "task", **result})
    run.seal(error_analysis.FILE, *([PREDICTIONS] if predictions else []), result=result)
    _complete(run)


def _complete(run: RunFolder) -> None:
    """Write the card of a run that has its result, and remove the states: a finished run is not resumed."""
    write_card(run)
    shutil.rmtree(run.path / "state", ignore_errors=True)


def _compare_with_baselines(
    plan: Plan, recipe: Recipe, predictor: Any, trained_on: int, validations: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """How much better the model is than each baseline: one comparison for each task of the run."""
    comparisons = []
    baselines = plan.baselines(recipe)
    for name, part in plan.data.parts.items():
        split = plan.compared_split(part)
        predictions = plan.task.predict_split(predictor, plan.data, name, split, plan.examples) if split else None
        if predictions is None or not baselines[name]:
            continue
        metrics = part.metrics if name else plan.task.config.metrics
        comparison = compare(part.score(split, predictions, metrics), baselines[name], split, metrics, name)
        comparison["only_prediction"] = part.only_prediction(predictions)
        comparison["advice"] = [] if comparison["verdict"] == BETTER else advise(plan, trained_on, validations)
        comparisons.append(comparison)
    return comparisons


FEW_EXAMPLES = 2000  # fine-tuning on fewer is often no better than TF-IDF
STARTERS = {"t5": "starter/t5", "awd-lstm": "starter/awd-lstm", "gpt2": "starter/gpt2", "gpt3": "starter/gpt2"}
STARTER = "starter/bert or --from minilm"


def advise(plan: Plan, trained_on: int, validations: Sequence[Mapping[str, Any]]) -> list[str]:
    """What may help a model that is no better than a baseline; never what the run did already."""
    task, config, recipe = plan.task, plan.task.config, plan.recipe
    data = shlex.quote(plan.data.name)
    advice = []
    if not task.trains:
        advice.append(f"fine-tune a model: nextword transfer bert/finetune --from starter/bert --data {data}")
    elif not config.source:
        advice.append(
            f"start from a pretrained model: nextword transfer {task.example_recipe} --from starter/bert --data {data}"
        )
    elif config.scratch:
        advice.append("start from the pretrained weights: leave --scratch out")
    elif not _is_well_pretrained(config.source):
        advice.append(f"start from a model that has read more text: --from {STARTERS.get(recipe.slug, STARTER)}")
    last = recipe.phases[-1]
    if task.trains and validations and validations[-1].get("best"):
        key, budget = next(((key, v) for key in BUDGETS if (v := getattr(last, key))), ("epochs", 1))
        advice.append(
            f"train longer, since the last validation was the best: --set phase.{last.name}.{key}={2 * budget:g}"
        )
    if config.train_fraction < 1:
        advice.append("train on all examples: leave --train-fraction out")
    elif task.trains and trained_on < FEW_EXAMPLES:
        advice.append(f"label more examples: {trained_on:,} are few for fine-tuning")
    return advice


def _is_well_pretrained(source: str) -> bool:
    """Whether a run is a starter model, or converted from another library's model."""
    if any(name in source for name in ("starter", "minilm")):
        return True
    return Path(source).is_dir() and "converted" in RunFolder.open(source).manifest


def _write_report(run: RunFolder, plan: Plan, predictor: Any, result: Mapping[str, Any]) -> None:
    """What goes wrong on dev, for programs (errors.json) and for people (report.html)."""
    task, config = plan.task, plan.task.config
    errors = {"split": error_analysis.SPLIT, "kind": config.kind}
    errors |= task.analyze_errors(predictor, plan.data, plan.examples["dev"])
    errors = replace_nonfinite(errors)
    run.write(error_analysis.FILE, json.dumps(errors, indent=1, ensure_ascii=False) + "\n")
    data = report.ReportData(
        run=str(run.path),
        result=result,
        errors=errors,
        log=run.read_log(),
        balance=plan.data.balances(config.train_fraction, run.recipe.phases[0].seed),
        wording=task.wording(),
    )
    run.write(report.FILE, report.render(data))


# ------------------------------------------------------------------------------------------------ finished runs


def read_result(folder: str | Path) -> dict[str, Any] | None:
    """The result of a finished run; None before its end."""
    manifest = RunFolder.open(folder).manifest
    return manifest.get("result") if manifest.get("finished") else None


def _resume_result(folder: str | Path) -> dict[str, Any] | None:
    """The result of a finished run, completed if a kill came just after its result; None before its end."""
    result = read_result(folder)
    run = RunFolder.open(folder)
    is_complete = (run.path / CARD).is_file() and not run.has_state and not any(run.path.glob(f"{PREFIX}*"))
    if result is not None and not is_complete:
        with run.lock():
            _complete(run)
    return result


def read_errors(folder: str | Path) -> dict[str, Any] | None:
    """The error analysis of a finished run; None if there is none."""
    path = Path(folder) / error_analysis.FILE
    if not path.is_file():
        return None
    with explain_read_errors(path):
        return read_json(path)


def reopen_data(recipe: Recipe) -> Dataset:
    """The data of a run, by its resolved recipe."""
    task = parse_task(recipe.task, recipe.name)
    data = task.reopen(recipe.phases[0].data)
    return data.merge_dev_into_train() if task.config.merge_dev_into_train else data


def resume(
    folder: str | Path,
    device: str = "auto",
    stop: Callable[[], bool] = lambda: False,
    on_progress: Progress = ignore,
) -> tuple[Plan, Iterator[Event]]:
    """Resume an interrupted run, bit-exactly."""
    run = open_for_resume(folder)
    recipe = run.recipe
    if recipe.task is None:
        raise RunError(f"{folder} has no task. Resume it: nextword train --resume --out {folder}", path=folder)
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    plan = build_plan(recipe, tokenizer, reopen_data(recipe), choose_device(device), on_progress)
    return plan, transfer(plan, folder, run=run, stop=stop)


def require_same(folder: str | Path, recipe: Recipe, data: Dataset, changes: Sequence[str] = ()) -> None:
    """Raise an error if a finished run had another recipe, or other data.

    Relative and absolute paths are the same. So are precisions, unless the changes name one: what a GPU has trained in
    16 bits may be part of a table that is made on a machine without one.
    """
    run = RunFolder.open(folder)
    theirs, ours = _comparable(run.recipe), _comparable(recipe)
    if not names_precision(changes):
        theirs, ours = map(_with_full_precision, (theirs, ours))
    differences = sorted(describe_differences(theirs, ours), key=lambda text: not text.startswith(IMPORTANT))
    if differences:
        raise recipe_mismatch(folder, recipe, differences)
    read = set(run.manifest.get("texts", {}).values())
    if not all(text == data.fingerprint or text.startswith(f"{data.fingerprint}-") for text in read):
        problem = f"{folder} was trained on other data than {data.name} has now: the file or its splits have changed."
        raise RunError(f"{problem} Restore it, or train again with another --out.", path=folder)


def _comparable(recipe: Recipe) -> Recipe:
    """With every key of [task], and absolute paths."""
    table = parse_task(recipe.task, recipe.name).config.as_table()
    phases = (
        replace(phase, data=_absolute(phase.data), init_from=_absolute(phase.init_from)) for phase in recipe.phases
    )
    return replace(recipe, task={**table, "source": _absolute(table["source"])}, phases=tuple(phases))


def _with_full_precision(recipe: Recipe) -> Recipe:
    return replace(recipe, phases=tuple(replace(phase, precision="fp32") for phase in recipe.phases))


def _absolute(name: str) -> str:
    return str(user_path(name).resolve()) if name and path_exists(name) else name


# ------------------------------------------------------------------------------------------------ several seeds


@dataclass(frozen=True)
class Outcome:
    """The results of one task, one per seed."""

    name: str
    runs: tuple[str, ...]
    results: tuple[Mapping[str, Any], ...]
    interrupted: bool = False

    @property
    def metric(self) -> str:
        return str(self.results[0]["metric"])

    def values(self, metric: str = "", split: str = "dev") -> list[float]:
        return [result[split][metric or self.metric] for result in self.results]

    @property
    def mean(self) -> float:
        return confidence_interval(self.values())[0]

    @property
    def interval(self) -> float | None:
        """Half of the 95 % interval of the mean; None for one seed."""
        return confidence_interval(self.values())[1]

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "metric": self.metric,
            "mean": self.mean,
            "interval": self.interval,
            "values": self.values(),
            "runs": list(self.runs),
            "results": [dict(result) for result in self.results],
        }


def run(
    recipe: str,
    source: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    columns: Columns = Columns(),
    kind: str = "",
    seed: int | None = None,
    seeds: int = 0,
    scratch: bool = False,
    changes: Sequence[str] = (),
    device: str = "auto",
    resume: bool = False,
    on_event: Callable[[Event], None] = ignore,
    on_plan: Callable[[Plan], None] = ignore,
    on_progress: Progress = ignore,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Fine-tune a run on a task; with `seeds` = K, K times, into `out`/seed-0 and so on.

    `resume`: reuse finished runs in `out`, and resume interrupted ones, if their settings are the same.
    """
    first = seed or 0
    runs = {Path(out) / f"seed-{first + k}": first + k for k in range(seeds)} if seeds else {Path(out): seed}
    begun = [folder for folder in runs if resume and (folder / "manifest.json").is_file()]
    for folder in runs:
        if folder not in begun:
            RunFolder.refuse_if_taken(folder)
    resolved = resolve(recipe, source, data, columns, kind, scratch, changes, device)
    results = {folder: result for folder in begun if (result := _resume_result(folder)) is not None}
    for folder in results:
        require_same(folder, with_seed(resolved.recipe, runs[folder]), resolved.data, changes)
    plan: Plan | None = None
    names = tuple(map(str, runs))
    for folder, number in runs.items():
        if folder in results:
            continue
        if plan is None:
            plan = prepare(resolved, on_progress)
            on_plan(replace(plan, recipe=plan.with_seed(number)))
        interrupted = open_for_resume(folder, plan.with_seed(number)) if folder in begun else None
        for event in transfer(plan, folder, number, interrupted, stop):
            on_event(event)
        result = read_result(folder)
        if result is None:
            return Outcome(str(data), names, tuple(results.values()), interrupted=True)
        results[folder] = result
    outcome = Outcome(resolved.data.name, names, tuple(results[folder] for folder in runs))
    if seeds:
        write_results(Path(out), {"recipe": recipe, "source": str(source), "scratch": scratch, **outcome.as_dict()})
    return outcome


def continue_run(
    folder: str,
    device: str = "auto",
    on_event: Callable[[Event], None] = ignore,
    on_plan: Callable[[Plan], None] = ignore,
    on_progress: Progress = ignore,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Resume one interrupted run; a finished one is returned as it is."""
    result = _resume_result(folder)
    if result is None:
        plan, events = resume(folder, device, stop, on_progress)
        on_plan(plan)
        for event in events:
            on_event(event)
        result = read_result(folder)
    if result is None:
        return Outcome(folder, (folder,), (), interrupted=True)
    return Outcome(result["data"], (folder,), (result,))


def averages(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The mean over tasks of their main metrics, and its interval over seeds."""
    by_seed = [sum(values) / len(values) for values in zip(*(outcome.values() for outcome in outcomes), strict=True)]
    mean, interval = confidence_interval(by_seed)
    return {"mean": mean, "interval": interval}


def write_results(folder: Path, results: Mapping[str, Any]) -> None:
    write_atomically(folder / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def write_atomically(file: Path, text: str) -> None:
    """Write the file, never half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
