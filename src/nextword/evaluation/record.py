"""What `nextword papers --record` writes into a recipe: a run's result, or those of a folder of transfers."""

from __future__ import annotations

import json
import re
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from nextword import __version__
from nextword.core.errors import NextwordError
from nextword.core.io import finite
from nextword.core.types import PSEUDO

KEPT = ("begin", "valid", "end", "evaluation", "adapted", "translated")  # events that stand in a recipe's log
FOUND_OUT = (
    "contextual_layers",
    "contextual_width",
    "contextual_of",
)  # of [model]: the run named there says them
NOT_CHANGES = (".data", ".init", ".seed", ".keep")  # of a phase: given otherwise, or by --final
AFTER = ("evaluation", "adapted", "translated")  # whose seconds are not training


def recorded(*paths: Path) -> tuple[str, dict[str, Any]]:
    """The recipe's name, and what was written into it. Several are transfers to one task, whose average is told too."""
    found = [one for path in paths if path.is_dir() for one in _outcomes(path)]
    if not found and len(paths) == 1:
        return _run(paths[0])
    if len(paths) > 1 and {where for where, _ in found} != {*paths}:
        raise NextwordError(
            f"Several runs are recorded where all are transfers to one task: {', '.join(map(str, paths))}. Record one "
            "at a time."
        )
    return _transfers(", ".join(map(str, paths)), found, _averaged(found) if len(paths) > 1 else {})


def _outcomes(path: Path) -> list[tuple[Path, dict[str, Any]]]:
    """What transfers have come to, each with its folder: those over seeds in a folder, or a run that is one."""
    if not (path / "manifest.json").is_file():
        every = ((file.parent, json.loads(file.read_text())) for file in sorted(path.rglob("results.json")))
        return [(folder, one) for folder, one in every if "tasks" not in one]  # what a suite says, its tasks say
    manifest = json.loads((path / "manifest.json").read_text())
    result = manifest.get("result")
    if not result:
        return []
    metric, scratch = result["metric"], bool(result["scratch"] and result["source"])  # not one that had no source
    facts = {"name": result["data"], "metric": metric, "values": [result["dev"][metric]], "results": [result]}
    return [(path, {"recipe": manifest["recipe"], "scratch": scratch, **facts})]


def _run(run: Path) -> tuple[str, dict[str, Any]]:
    """What was measured, on what, with which code, and the validations that led there."""
    from nextword.model_card import last_evaluation, last_translated
    from nextword.run_folder import RunFolder

    folder = RunFolder.open(run)
    log = folder.read_log()
    result = last_evaluation(folder) or last_translated(folder)
    if result is None and folder.manifest.get("finished"):
        result = _validated(log, folder)
    if result is None:
        raise NextwordError(f"{run} has not been evaluated: run `nextword evaluate {run}` first.")
    spent: dict[int, float] = {}  # phase by phase, also of one that was cut short
    for line in log:
        if line.get("event") not in AFTER:
            spent[line.get("index", 0)] = max(spent.get(line.get("index", 0), 0.0), line.get("seconds", 0.0))
    begins = [line for line in log if line.get("event") == "begin"]
    name = folder.manifest["recipe"]
    measured = {
        "data": f"{result['data']} {result['split']}",
        "parameters": result["parameters"],
        **_numbers(result),
        **_adapted(log, result),
        **_otherwise(log, result),
        "scored": result.get("scored"),  # tokens, where not all of the split's
        "impossible": result.get("impossible") or None,  # tokens with probability zero
        "seconds": round(sum(spent.values()), 1),
        "stopped": None if folder.manifest.get("finished") else _stopped(log),
        "device": begins[-1].get("device", "cpu") if begins else "cpu",
        "commit": _commit(folder.manifest),  # of the code that trained it
        "command": f"nextword train {name}{_changes(name, run, ('tokenizer', 'model', 'phase'))}",
    }
    kept = [{k: v for k, v in line.items() if k != "example"} for line in log if line.get("event") in KEPT]
    return name, _written_down(name, measured, kept)


def _averaged(found: Sequence[tuple[Path, dict[str, Any]]]) -> dict[str, float]:
    """How good the mean of what all said of test is, by the metric of their task."""
    from nextword.tasks.submission import averaged

    (task, metric), *others = {(one["name"], one["metric"]) for _, one in found}
    if others:
        raise NextwordError("What is averaged are runs of one task and one metric: record others by themselves.")
    score = averaged([where for where, _ in found], metric)
    return {f"averaged_test_{_key(task, metric)}": round(100 * score, 2)}


def _key(task: str, metric: str) -> str:
    return f"{task}_{metric}".lower().replace("-", "_")


def _transfers(
    folder: str, found: Sequence[tuple[Path, dict[str, Any]]], averaged: Mapping[str, float]
) -> tuple[str, dict[str, Any]]:
    """The means over seeds of all transfers in a folder; those without pretraining apart, and those of other settings.

    SST-2 …                                     sst_2_accuracy, and sst_2_accuracy_interval, the half of 95 %
    SST-2 … --scratch                           scratch_sst_2_accuracy
    SST-2 … --set task.features=glove           glove_sst_2_accuracy       where the recipe has other features
    the same, of the data's own test split      glove_test_sst_2_accuracy
    conll2003 … --labels 0.1                    share_0_1_conll2003_span_f1
    conll2003 … --features runs/elmo            elmo_conll2003_span_f1
    conll2000 … --set …unlabelled=''            labels_alone_conll2000_span_f1
    IMDb … --from a run that reads backward     backward_test_imdb_accuracy

    A last training, of dev too (--final), has nothing to say of dev.
    """
    from nextword.metrics.classification import interval

    names = {one["recipe"] for _, one in found}
    if len(names) > 1:
        raise NextwordError(
            f"{folder} has transfers by {', '.join(sorted(names))}: record those of one recipe at a time."
        )
    (name,) = names
    values: dict[str, dict[str, list[float]]] = {}  # of each kind of transfer, of each task
    kept, finals = [], set()
    for where, one in found:
        task = _key(one["name"], one["metric"])
        settings = _settings(name, where)
        final = bool(settings.pop("final", False))
        finals.add(final)
        kind = ("scratch_" if one["scratch"] else "") + "".join(f"{_short(*pair)}_" for pair in settings.items())
        if not final:
            values.setdefault(kind, {}).setdefault(task, []).extend(one["values"])
        of_test = [result["test"][one["metric"]] for result in one["results"] if "test" in result]
        if of_test:
            values.setdefault(f"{kind}test_", {}).setdefault(task, []).extend(of_test)
        told = {"source", "notes", *(["dev"] if final else [])}  # what is not kept
        kept += [{**settings, **{k: v for k, v in result.items() if k not in told}} for result in one["results"]]
    measured: dict[str, Any] = {"data": ", ".join(sorted({one["name"] for _, one in found}))}
    tested = any("test_" in kind for kind in values)
    measured["split"] = "test" if finals == {True} else "dev, and test where it says so" if tested else "dev"
    for kind, tasks in sorted(values.items()):
        for task, each in tasks.items():
            mean, spread = interval(each)
            measured[f"{kind}{task}"] = round(100 * mean, 2)
            if spread is not None:
                measured[f"{kind}{task}_interval"] = round(100 * spread, 2)
        measured[f"{kind}mean"] = round(100 * statistics.mean(map(statistics.mean, tasks.values())), 2)
    measured |= averaged
    measured["seeds"] = min(len(each) for tasks in values.values() for each in tasks.values())
    measured |= _where([where for where, _ in found])
    what = "" if _recipe(name).get("tokenizer") else " --from RUN --data TASK"  # one with a network of its own has both
    last = " --final" if finals == {True} else ""
    every = {_changes(name, run, ("phase",)) for where, _ in found for run in _runs_of(where)}
    also = every.pop() if len(every) == 1 else ""  # said where all were trained alike
    measured["command"] = f"nextword transfer {name}{what}{last} --seeds {measured['seeds']}{also}"
    return name, _written_down(name, measured, kept)


def _changes(name: str, run: Path, tables: Sequence[str]) -> str:
    """What a run has set otherwise than the recipe that it names, as options; texts and runs are the reader's own."""
    from nextword.recipe import NOTHING, differences, load_recipe

    try:
        found = differences(load_recipe(name), load_recipe(run / "recipe.toml"))
    except NextwordError:  # not whole, as of the means of runs that lie elsewhere
        return ""
    said = {key: value for key, (_, value) in found.items() if key.partition(".")[0] in tables and value is not NOTHING}
    shown = {key: Path(value).name if isinstance(value, str) else json.dumps(value) for key, value in said.items()}
    return "".join(f" --set {key}={value}" for key, value in shown.items() if not key.endswith(NOT_CHANGES))


def _settings(name: str, folder: Path) -> dict[str, Any]:
    """What a transfer, or a folder with one a seed, has set otherwise than the recipe that it names.

    That is [model] where the recipe has a network of its own, with the name of the run whose vectors are read besides
    instead of its path; and [task], as far as the data does not decide it.
    """
    from nextword.tasks.settings import CHOSEN

    usual, runs = _recipe(name), _runs_of(folder)
    if not usual or not runs:
        return {}
    tables = tomllib.loads((runs[0] / "recipe.toml").read_text(encoding="utf-8"))
    task, found = tables.get("task", {}), {}
    if usual.get("tokenizer"):
        own, model = {**_defaults(usual["paper"]["slug"]), **usual.get("model", {})}, tables.get("model", {})
        found = {key: value for key, value in model.items() if key not in FOUND_OUT and value != own.get(key)}
        found = dict(sorted(found.items(), key=lambda pair: pair[0] != "contextual"))
    asked = {**CHOSEN, **usual.get("task", {})}
    said = {key: task.get(key, "") for key in asked}
    found |= {key: said[key] for key, value in asked.items() if said[key] not in ("", [], {}, _listed(value))}
    found |= _beside(usual, tables)
    found |= {"direction": "backward"} if not usual.get("tokenizer") and tables.get("model", {}).get("backward") else {}
    return {key: Path(value).name if isinstance(value, str) else value for key, value in found.items()}


def _listed(value: Any) -> Any:
    """As a file has it."""
    return list(value) if isinstance(value, tuple) else value


def _defaults(slug: str) -> dict[str, Any]:
    """Of the network's settings, those that are plain values."""
    from nextword.models import model_class

    return {one.name: one.default for one in fields(model_class(slug).Config)}


def _beside(usual: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, str]:
    """The text without labels that was read, where it is not the recipe's own."""
    phases: list[Mapping[str, Any]] = [next(iter(table.get("phase", ())), {}) for table in (usual, tables)]
    own, theirs = (phase.get("objective", {}).get("unlabelled", "") for phase in phases)
    return {} if own == theirs else {"unlabelled": theirs or "labels alone"}


def _recipe(name: str) -> dict[str, Any]:
    """The tables of a recipe that comes along; of any other, none."""
    from nextword.recipe import RECIPES

    path = RECIPES / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _runs_of(folder: Path) -> list[Path]:
    """The folders of runs, one a seed; of a single run its own."""
    return [folder] if (folder / "recipe.toml").is_file() else sorted(p.parent for p in folder.glob("*/recipe.toml"))


def _where(folders: Sequence[Path]) -> dict[str, Any]:
    """On what, and by which code, as far as all runs agree in it."""
    found: dict[str, set[str]] = {"device": set(), "commit": set()}
    for run in (run for folder in folders for run in _runs_of(folder)):
        log, manifest = run / "log.jsonl", run / "manifest.json"
        lines = map(json.loads, log.read_text(encoding="utf-8").splitlines()) if log.is_file() else ()
        found["device"] |= {line["device"] for line in lines if line.get("event") == "begin" and "device" in line}
        if manifest.is_file():
            found["commit"] |= {_commit(json.loads(manifest.read_text(encoding="utf-8"))) or ""}
    return {key: next(iter(some)) for key, some in found.items() if len(some) == 1 and "" not in some}


def _short(key: str, value: Any) -> str:
    """A setting as the beginning of a name: `glove` says enough, a number needs its key."""
    return re.sub(r"\W", "_", value if isinstance(value, str) else f"{key}_{value}".lower())


def _written_down(name: str, measured: Mapping[str, Any], log: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    from nextword.recipe import RECIPES, record

    path = RECIPES / f"{name}.toml"
    if not path.is_file():
        raise NextwordError(f"It was trained from {name}, which is none of the recipes that come along.")
    given = {key: value for key, value in measured.items() if value is not None}
    given |= {"nextword": __version__, "log": f"{path.stem}.log.jsonl"}
    record(path, given)
    lines = (json.dumps(finite(line), ensure_ascii=False, allow_nan=False) + "\n" for line in log)
    path.with_name(given["log"]).write_text("".join(lines))
    return given


def _stopped(log: Sequence[Mapping[str, Any]]) -> str | None:
    """Of a run that was not brought to its end: how far it came, and which weights it left."""
    steps = [line for line in log if line.get("event") == "step"]
    best = [line["step"] for line in log if line.get("event") == "valid" and line.get("best")]
    if not steps or any(line.get("event") == "end" for line in log):
        return None
    left = f"; weights of step {best[-1]:,}, the best on validation" if best else ""
    return f"after {steps[-1]['step']:,} of {steps[-1]['of']:,} steps{left}"


def _commit(manifest: Mapping[str, Any]) -> str | None:
    """Nothing where it is not known: the code was no checkout."""
    found = manifest.get("commit", "unknown")
    return None if found == "none" else found


def _validated(log: Sequence[Mapping[str, Any]], folder: Any) -> dict[str, Any] | None:
    """Of a run that is no model of text, such as one that hides words: its last validation."""
    ends = [line for line in log if line.get("event") == "end" and "valid" in line]
    if not ends:
        return None
    named = folder.recipe.phases[-1].data  # the manifest says where that lay, which is no one else's affair
    data = named or next(reversed(folder.manifest.get("data", {"": "its text"}).values()))
    return {"data": data, "split": "valid", "parameters": ends[-1]["parameters"], "valid_nats": ends[-1]["valid"]}


def _numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    if "valid_nats" in result:
        return {"valid_nats": round(result["valid_nats"], 4)}
    if "decoding" in result:
        return _written(result)
    label = "pseudo_" if result.get("kind") == PSEUDO else ""
    return {
        label + _named(result): round(result["token_perplexity"], 3),
        f"{label}word_perplexity": result["word_perplexity"] and round(result["word_perplexity"], 3),
        f"{label}bits_per_byte": result["bits_per_byte"] and round(result["bits_per_byte"], 4),
    }


def _written(result: Mapping[str, Any]) -> dict[str, Any]:
    """Of a run that makes texts from sources: each metric, of tasks under the task's name, and how it was decoded."""
    found: dict[str, Any] = {}
    for one in result.get("tasks", [result]):
        name = f"{one['task']}_" if "task" in one else ""
        found |= {f"{name}{metric}": round(score["score"], 2) for metric, score in one["scores"].items()}
        found[f"{name}target_perplexity"] = round(one["token_perplexity"], 3)
    return {**found, "pairs": result["pairs"], "decoding": result["decoding"]}


def _otherwise(log: Sequence[Mapping[str, Any]], last: Mapping[str, Any]) -> dict[str, float]:
    """The same pairs decoded in other ways, as `beam_1_bleu`: the last result of each way."""
    if "decoding" not in last or "tasks" in last:
        return {}
    same = [
        line
        for line in log
        if line.get("event") == "translated"
        and all(line[key] == last[key] for key in ("data", "split", "pairs"))
        and line["decoding"] != last["decoding"]
    ]
    return {
        f"{re.sub(r'[^a-z0-9]+', '_', line['decoding'].lower())}_{metric}": round(score["score"], 2)
        for line in same
        for metric, score in line["scores"].items()
    }


def _adapted(log: Sequence[Mapping[str, Any]], plain: Mapping[str, Any]) -> dict[str, float]:
    """The last result of each method that adapts to the text it reads, on the same text as the plain one."""
    same = [
        line
        for line in log
        if line.get("event") == "adapted" and all(line[key] == plain[key] for key in ("data", "split"))
    ]
    return {f"with_{line['method'].replace(' + ', '_')}": round(line["token_perplexity"], 3) for line in same}


def _named(result: Mapping[str, Any]) -> str:
    """A perplexity per token is the literature's number only where tokens are the corpus's own words."""
    return "token_perplexity" if result["bits_per_byte"] is not None else f"{result['split']}_perplexity"
