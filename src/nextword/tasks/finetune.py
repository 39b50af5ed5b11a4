"""Transfer itself: a plan into a run folder, once or for several seeds; and what came of it.

outcome = run("bert/finetune", "runs/bert", "RTE", "runs/rte", seeds=3)
outcome.mean, outcome.spread            0.66, 0.02: the headline metric, and the half of its 95 % interval

A finished run that is asked for once more (`--resume`): its result is taken only if the same is asked for.

Taken for the same, though it is written otherwise: a path relative or absolute; and the precision, unless it was named:
what a GPU has learnt in sixteen bits may be put into a table on a machine without one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import NextwordError
from nextword.core.io import replace_nonfinite
from nextword.data.tables import Columns, Rows
from nextword.metrics.intervals import confidence_interval
from nextword.model_card import write_card
from nextword.recipe import Recipe, differing
from nextword.run_folder import RunFolder
from nextword.tasks import error_analysis as errors
from nextword.tasks import in_context, report
from nextword.tasks.classification import measured, open_classifier
from nextword.tasks.cross_view import open_several
from nextword.tasks.label_text import open_writer
from nextword.tasks.multitask import DataSets, open_texts
from nextword.tasks.plan import Plan, framed, headed, intended, names_precision, planned, seeded
from nextword.tasks.question_answering import open_answerer, open_questions
from nextword.tasks.settings import Settings, settings_of
from nextword.tasks.subsets import balances_learnt, shared_out, size_of, whole
from nextword.tasks.tagging import open_tagger
from nextword.tasks.text_data import DataSet, Progress
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import choose_device
from nextword.training.events import END, VALID, Event
from nextword.training.train import open_for_resume, recipe_mismatch, run_phases

FIRST = ("task.source", "phase.0.data")  # of what differs, said first: the rest may follow from it


def refuse_if_other(folder: str | Path, recipe: Recipe, data: Any, changes: Sequence[str] = ()) -> None:
    """An error that names what differs, where a finished run has learnt otherwise, or from other rows."""
    run = RunFolder.open(folder)
    there, asked = _plain(run.recipe), _plain(recipe)
    if not names_precision(changes):
        there, asked = (
            replace(one, phases=tuple(replace(phase, precision="fp32") for phase in one.phases))
            for one in (there, asked)
        )
    found = sorted(differing(there, asked), key=lambda one: not one.startswith(FIRST))
    if found:
        raise recipe_mismatch(folder, recipe, found)
    read = set(run.manifest.get("texts", {}).values())
    if not all(one == data.fingerprint or one.startswith(f"{data.fingerprint}-") for one in read):
        raise NextwordError(
            f"{folder} was trained on other rows than {data.name} has now: the file or its splits have changed. "
            "Restore it, or train anew with another --out."
        )


def _plain(recipe: Recipe) -> Recipe:
    """With every key of [task], and paths in full."""
    task = settings_of(recipe.task or {}, recipe.name).table()
    phases = (replace(phase, data=_whole(phase.data), init=_whole(phase.init)) for phase in recipe.phases)
    return replace(recipe, task={**task, "source": _whole(task["source"])}, phases=tuple(phases))


def _whole(name: str) -> str:
    return str(Path(name).expanduser().resolve()) if name and Path(name).expanduser().exists() else name


Hear = Callable[[Event], None]
RESULTS = "results.json"
UNSEEN = "_unseen"  # a split without the examples that are in train or dev too
PREDICTIONS = "predictions.npz"  # split → probabilities (n, classes) of its examples in their order, or the numbers (n, 1)


def nobody(*_: Any) -> None:
    pass


# ------------------------------------------------------------------------------------------------ one run


def transfer(
    plan: Plan,
    folder: str | Path,
    seed: int | None = None,
    run: RunFolder | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Event]:
    """Train a head and the network under it into a run folder; `run` is one to be gone on with."""
    if run is None:
        RunFolder.refuse_if_taken(folder)
    recipe = plan.seeded(seed) if run is None else run.recipe
    seed, prompted = recipe.phases[0].seed, plan.settings.prompted
    train = shared_out(plan.examples["train"], plan.settings.share, seed)
    _more_than_one_class(plan, train)
    network: Any
    held: Any = plan.examples["dev"]
    if prompted:
        held = {split: some for split, some in plan.examples.items() if split != "train"}
        network = in_context.shown(plan.lm, plan.settings, train, list(held.values()), seed)
        plan = replace(plan, notes=(*plan.notes, *network.notes))
    else:
        network = headed(recipe, plan.tokenizer)
    streams = [{"train": train, "valid": held}] * len(recipe.phases)
    facts = {
        "data": {phase.name: plan.data.name for phase in recipe.phases},
        "texts": {phase.name: plan.fingerprint for phase in recipe.phases},
    }
    checked: list[Mapping[str, Any]] = []
    last: Event | None = None
    for event in run_phases(
        recipe, folder, run, network, plan.tokenizer, streams, plan.device, stop, final=True, **facts
    ):
        if event.kind == VALID:
            checked.append(event.values)
        last = event
        yield event
    if last is not None and last.kind == END and last.values.get("reason") != "interrupted":
        finished = RunFolder.open(folder)
        model = network if prompted else _opened(finished, plan)
        _finish(finished, plan, recipe, last, checked, size_of(train), model)


def _more_than_one_class(plan: Plan, train: Any) -> None:
    """Or an error: so small a share of the labels that there is nothing to tell apart."""
    settings = plan.settings
    if settings.kind in ("classify", "pair") and not settings.tasks and len(set(train.labels.tolist())) < 2:
        raise NextwordError(
            f"--labels {settings.share:g} draws {size_of(train)} of {size_of(plan.examples['train'])} examples, and "
            f"every one is {settings.labels[int(train.labels[0])]!r}. Draw more, or with another --seed."
        )


def _finish(
    run: RunFolder, plan: Plan, recipe: Recipe, end: Event, checked: Sequence[Mapping[str, Any]], train: int, model: Any
) -> None:
    """The numbers of the weights that were kept, or of the prompt, into the manifest, the log and the card."""
    names = tuple(plan.settings.metrics)
    best = recipe.phases[-1].keep == "best"
    values = end.values if best else checked[-1]
    result = {
        "data": plan.data.name,
        "kind": plan.settings.kind,
        "metric": names[0],
        "dev": {name: values[name] for name in names},
        "examples": {split: size_of(some) for split, some in plan.examples.items()} | {"train": train},
        "seed": recipe.phases[0].seed,
        "scratch": plan.settings.scratch,
        "final": plan.settings.final,
        "source": plan.settings.source,
        "seconds": round(sum(line["seconds"] for line in run.read_log() if line.get("event") == END), 1),  # all phases
        "stopped": end.values.get("reason"),
        "notes": list(plan.notes),
    }
    if plan.unknown is not None:
        result["unknown"] = plan.unknown
    if plan.settings.prompted:
        result["shots"] = model.solved
    said: dict[str, np.ndarray] = {}
    others = [split for split in plan.examples if split not in ("train", "dev")]
    if isinstance(plan.data, DataSets):
        result["tasks"] = _each_task(model, plan)
    elif others or plan.settings.unanswered:
        result |= _measured(model, plan, names, others, said)
    for split in others:
        if f"{split}{UNSEEN}" in result:
            result["examples"][f"{split}{UNSEEN}"] = len(unseen(plan.data.splits, split))
    _look(run, plan, model, result)
    if said:
        np.savez_compressed(run.path / PREDICTIONS, **said)  # type: ignore[arg-type]
    run.log({"event": "task", **result})
    run.seal(errors.FILE, *([PREDICTIONS] if said else []), result=result)
    write_card(run)
    shutil.rmtree(run.path / "state", ignore_errors=True)  # a finished run is not gone on with


def _opened(run: RunFolder, plan: Plan) -> Any:
    """The weights that were kept, as they are used."""
    openers: dict[str, Any] = {"tag": open_tagger, "span": open_answerer}
    usual = open_writer if plan.settings.worded else open_classifier
    return openers.get(plan.settings.kind, usual)(run, plan.device)


def _measured(
    model: Any, plan: Plan, names: tuple[str, ...], splits: Sequence[str], kept: dict[str, np.ndarray]
) -> dict[str, Any]:
    """The metrics of the weights that were kept, on splits that nobody chose by; `kept`: to be given what was said."""
    if plan.settings.kind == "tag":
        return {split: model.measured(plan.examples[split]) for split in splits}
    if plan.settings.kind == "span":
        best = {"best": model.chosen_threshold(plan.examples["dev"])} if plan.settings.unanswered else {}
        return best | {split: model.measured(plan.examples[split]) for split in splits}
    return _of_texts(model, plan.data, names, splits, plan.examples, kept)


def _each_task(model: Any, plan: Plan) -> dict[str, Any]:
    """Of several tasks on texts: all metrics of each, on all its splits that have labels but train."""
    found = {}
    for one in plan.data.sets:
        splits = [split for split, rows in one.splits.items() if split != "train" and rows.labels is not None]
        found[one.name] = _of_texts(model.of(one.name), one, one.metrics, splits)
    return found


def _of_texts(
    model: Any,
    data: DataSet,
    names: tuple[str, ...],
    splits: Sequence[str],
    framed: Mapping[str, Any] | None = None,
    kept: dict[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Of examples that are `framed` already, or else of the texts."""
    found = {}
    for split in splits:
        rows = data.splits[split]
        gold = model.settings.encoded(rows.labels or ())
        said = model.said_of(framed[split]) if framed else model.said(rows.texts, rows.seconds)
        if kept is not None:
            kept[split] = model.settings.decoded(said).astype(np.float32)
        found[split] = measured(names, gold, said)
        new = unseen(data.splits, split) if split != "dev" else []
        if 0 < len(new) < len(rows):
            found[f"{split}{UNSEEN}"] = measured(names, gold[new], said[new])
    return found


def _look(run: RunFolder, plan: Plan, model: Any, result: Mapping[str, Any]) -> None:
    """What it gets wrong on dev, for programs and for people."""
    found = replace_nonfinite(errors.errors_of(model, plan.settings, plan.data, plan.examples["dev"]))
    run.write(errors.FILE, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    balance = balances_learnt(plan.data, plan.settings.share, run.recipe.phases[0].seed)
    prompt = (model.ahead, model.question, model.put) if plan.settings.prompted else None
    looked = report.Looked(str(run.path), result, found, run.read_log(), balance, plan.notes, prompt)
    run.write(report.FILE, report.render(looked))


def errors_in(folder: str | Path) -> dict[str, Any] | None:
    """What a finished transfer gets wrong on dev; None where that was not kept."""
    path = Path(folder) / errors.FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def unseen(splits: Mapping[str, Rows], split: str) -> list[int]:
    """The rows of a split whose texts stand neither in train nor in dev."""
    known = {one for some in ("train", "dev") for one in splits[some].examples}
    return [i for i, one in enumerate(splits[split].examples) if one not in known]


def resume(
    folder: str | Path,
    device: str = "auto",
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = nobody,
) -> tuple[Plan, Iterator[Event]]:
    """Go on with a run, to the same bits; of one that is finished there is nothing to be done."""
    run = open_for_resume(folder)
    recipe = run.recipe
    if recipe.task is None:
        raise NextwordError(f"{folder} is no transfer. Go on with it by `nextword train --resume --out {folder}`.")
    tokenizer = load_tokenizer(run.path / "tokenizer.json")
    plan = framed(recipe, tokenizer, data_of(recipe), choose_device(device), progress)
    return plan, transfer(plan, folder, run=run, stop=stop)


def data_of(recipe: Recipe) -> Any:
    """The data of a transfer, by the recipe of its run: as they were opened when it began."""
    settings = settings_of(recipe.task or {}, recipe.name)
    given, named = recipe.phases[0].data, Columns(settings.text, settings.second, settings.label)
    found: Any
    if settings.kind == "tag":
        found = open_several(given, settings.label, settings.scheme or Settings.scheme)
    elif settings.kind == "span":
        found = open_questions(given, named)
    else:
        found = open_texts(given, named, settings.kind if settings.text else "")
    return whole(found) if settings.final else found


def result_of(folder: str | Path) -> dict[str, Any] | None:
    """What came of a finished transfer; None before its end."""
    manifest = RunFolder.open(folder).manifest
    return manifest.get("result") if manifest.get("finished") else None


# ------------------------------------------------------------------------------------------------ several


@dataclass(frozen=True)
class Outcome:
    """Results of one task, a run each."""

    name: str
    runs: tuple[str, ...]
    results: tuple[Mapping[str, Any], ...]
    interrupted: bool = False

    @property
    def metric(self) -> str:
        return self.results[0]["metric"]

    def values(self, metric: str = "", split: str = "dev") -> list[float]:
        return [result[split][metric or self.metric] for result in self.results]

    @property
    def mean(self) -> float:
        return confidence_interval(self.values())[0]

    @property
    def spread(self) -> float | None:
        return confidence_interval(self.values())[1]

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "metric": self.metric,
            "mean": self.mean,
            "interval": self.spread,
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
    again: bool = False,
    hear: Hear = nobody,
    told: Callable[[Plan], None] = nobody,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = nobody,
) -> Outcome:
    """Transfer a run to a task; with `seeds` = K, K times, into `out`/seed-0 and so on.

    `again`: what is finished in `out` is taken as it is, and what was begun is gone on with, if the same is asked for.
    `told` hears of the plan before the first step, `hear` of every event.
    """
    first = seed or 0
    folders = [Path(out) / f"seed-{first + k}" for k in range(seeds)] if seeds else [Path(out)]
    numbers = [first + k for k in range(seeds)] if seeds else [seed]
    begun = [again and (folder / "manifest.json").is_file() for folder in folders]
    for folder, there in zip(folders, begun, strict=True):
        if not there:
            RunFolder.refuse_if_taken(folder)
    results: list[Mapping[str, Any]] = []
    asked = intended(recipe, source, data, columns, kind, scratch, changes, device)
    finished = [result_of(folder) if there else None for folder, there in zip(folders, begun, strict=True)]
    for folder, number, found in zip(folders, numbers, finished, strict=True):
        if found is not None:
            refuse_if_other(folder, seeded(asked.recipe, number), asked.data, changes)
    plan: Plan | None = None
    for folder, number, there, found in zip(folders, numbers, begun, finished, strict=True):
        if found is None:
            if plan is None:
                plan = planned(asked, progress)
                told(replace(plan, recipe=plan.seeded(number)))
            opened = open_for_resume(folder, plan.seeded(number)) if there else None
            for event in transfer(plan, folder, number, opened, stop):
                hear(event)
            found = result_of(folder)
            if found is None:
                return Outcome(str(data), tuple(map(str, folders)), tuple(results), interrupted=True)
        results.append(found)
    outcome = Outcome(results[0]["data"], tuple(map(str, folders)), tuple(results))
    if seeds:
        write(Path(out), {"recipe": recipe, "source": str(source), "scratch": scratch, **outcome.as_dict()})
    return outcome


def averages(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The mean over tasks of their headline metrics, and its interval over seeds."""
    each = [sum(values) / len(values) for values in zip(*(one.values() for one in outcomes), strict=True)]
    mean, spread = confidence_interval(each)
    return {"mean": mean, "interval": spread}


def write(folder: Path, found: Mapping[str, Any]) -> None:
    replaced(folder / RESULTS, json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def replaced(file: Path, text: str) -> None:
    """The file with this text, never half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
