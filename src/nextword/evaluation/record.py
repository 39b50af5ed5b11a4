"""`nextword papers --record`: write a run's result into its recipe's [measured] table, and its log next to the recipe.

record_result(run)                      a trained run: its last evaluation, and how it was trained
record_result(folder)                   a folder of transfers: means over seeds, by task and setting
record_result(run, run, …)              several transfers to one task: also the score of their averaged predictions
"""

from __future__ import annotations

import json
import re
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from nextword import __version__
from nextword.core.errors import NextwordError, RunError, UnknownName
from nextword.core.io import replace_nonfinite
from nextword.core.types import PSEUDO
from nextword.metrics.intervals import confidence_interval
from nextword.run_folder import RunFolder

LOGGED_EVENTS = ("begin", "valid", "end", "evaluation", "adapted", "translated")  # copied into the recipe's log
EVALUATION_EVENTS = ("evaluation", "adapted", "translated")  # their seconds are not training time
DERIVED_MODEL_KEYS = (
    "contextual_layers",
    "contextual_width",
    "contextual_fingerprint",
)  # read from the run named there
UNREPORTED_PHASE_KEYS = (".data", ".init", ".seed", ".keep")  # set by other options, or by --merge-dev

Outcome = tuple[Path, dict[str, Any]]  # folder of a transfer, or of one per seed; its results


def record_result(*paths: Path) -> tuple[str, dict[str, Any]]:
    """Write the result of these runs into their recipe; return the recipe's name and what was written."""
    outcomes = [outcome for path in paths if path.is_dir() for outcome in _transfer_outcomes(path)]
    if not outcomes and len(paths) == 1:
        return _record_run(paths[0])
    if len(paths) > 1 and {folder for folder, _ in outcomes} != {*paths}:
        raise RunError(
            "Several runs can be recorded together only if all are transfers to one task: "
            f"{', '.join(map(str, paths))}. Record one at a time.",
            path=paths[0],
        )
    averaged = _score_averaged(outcomes) if len(paths) > 1 else {}
    return _record_transfers(", ".join(map(str, paths)), outcomes, averaged)


# ------------------------------------------------------------------------------------------------ a trained run


def _record_run(path: Path) -> tuple[str, dict[str, Any]]:
    from nextword.model_card import last_evaluation, last_translated

    run = RunFolder.open(path)
    log = run.read_log()
    result = last_evaluation(run) or last_translated(run)
    if result is None and run.manifest.get("finished"):
        result = _last_validation(log, run)
    if result is None:
        raise RunError(f"{path} has not been evaluated. Run `nextword evaluate {path}` first.", path=path)
    seconds: dict[int, float] = {}  # by phase, also of one that was cut short
    for line in log:
        if line.get("event") not in EVALUATION_EVENTS:
            phase = line.get("index", 0)
            seconds[phase] = max(seconds.get(phase, 0.0), line.get("seconds", 0.0))
    begins = [line for line in log if line.get("event") == "begin"]
    name = run.manifest["recipe"]
    measured = {
        "data": f"{result['data']} {result['split']}",
        "parameters": result["parameters"],
        **_result_numbers(result),
        **_adapted_numbers(log, result),
        **_other_decodings(log, result),
        "scored": result.get("scored"),  # tokens, if not the whole split
        "impossible": result.get("impossible") or None,  # tokens with probability zero
        "seconds": round(sum(seconds.values()), 1),
        "stopped": None if run.manifest.get("finished") else _describe_stop(log),
        "device": begins[-1].get("device", "cpu") if begins else "cpu",
        "commit": _commit(run.manifest),  # of the code that trained it
        "command": f"nextword train {name}{_changed_settings(name, path, ('tokenizer', 'model', 'phase'))}",
    }
    lines = [{k: v for k, v in line.items() if k != "example"} for line in log if line.get("event") in LOGGED_EVENTS]
    return name, _write_measured(name, measured, lines)


def _result_numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    if "valid_nats" in result:
        return {"valid_nats": round(result["valid_nats"], 4)}
    if "decoding" in result:
        return _translation_numbers(result)
    label = "pseudo_" if result.get("kind") == PSEUDO else ""
    # A perplexity per token is the literature's number only where tokens are the corpus's own words.
    perplexity = "token_perplexity" if result["bits_per_byte"] is not None else f"{result['split']}_perplexity"
    return {
        f"{label}{perplexity}": round(result["token_perplexity"], 3),
        f"{label}word_perplexity": result["word_perplexity"] and round(result["word_perplexity"], 3),
        f"{label}bits_per_byte": result["bits_per_byte"] and round(result["bits_per_byte"], 4),
    }


def _translation_numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    """Each metric (prefixed with the task's name if there are several), and the decoding."""
    numbers: dict[str, Any] = {}
    for task in result.get("tasks", [result]):
        prefix = f"{task['task']}_" if "task" in task else ""
        numbers |= {f"{prefix}{metric}": round(score["score"], 2) for metric, score in task["scores"].items()}
        numbers[f"{prefix}target_perplexity"] = round(task["token_perplexity"], 3)
    return {**numbers, "pairs": result["pairs"], "decoding": result["decoding"]}


def _other_decodings(log: Sequence[Mapping[str, Any]], last: Mapping[str, Any]) -> dict[str, float]:
    """The same pairs decoded in other ways, as `beam_1_bleu`: the last result of each way."""
    if "decoding" not in last or "tasks" in last:
        return {}
    return {
        f"{re.sub(r'[^a-z0-9]+', '_', line['decoding'].lower())}_{metric}": round(score["score"], 2)
        for line in _same(log, "translated", last, ("data", "split", "pairs"))
        if line["decoding"] != last["decoding"]
        for metric, score in line["scores"].items()
    }


def _adapted_numbers(log: Sequence[Mapping[str, Any]], plain: Mapping[str, Any]) -> dict[str, float]:
    """The last result of each adaptive method (cache, dynamic evaluation) on the same text."""
    return {
        f"with_{line['method'].replace(' + ', '_')}": round(line["token_perplexity"], 3)
        for line in _same(log, "adapted", plain, ("data", "split"))
    }


def _same(
    log: Sequence[Mapping[str, Any]], event: str, result: Mapping[str, Any], keys: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    """The events of this kind that agree with a result in these keys."""
    for line in log:
        if line.get("event") == event and all(line[key] == result[key] for key in keys):
            yield line


def _last_validation(log: Sequence[Mapping[str, Any]], run: RunFolder) -> dict[str, Any] | None:
    """The last validation, for a run that models no text (a masked model, for instance)."""
    ends = [line for line in log if line.get("event") == "end" and "valid" in line]
    if not ends:
        return None
    own_data = run.recipe.phases[-1].data  # the manifest has a local path, which should not be published
    data = own_data or next(reversed(run.manifest.get("data", {"": "its text"}).values()))
    return {"data": data, "split": "valid", "parameters": ends[-1]["parameters"], "valid_nats": ends[-1]["valid"]}


def _describe_stop(log: Sequence[Mapping[str, Any]]) -> str | None:
    """How far an unfinished run came, and which weights it left."""
    steps = [line for line in log if line.get("event") == "step"]
    best = [line["step"] for line in log if line.get("event") == "valid" and line.get("best")]
    if not steps or any(line.get("event") == "end" for line in log):
        return None
    weights = f"; weights of step {best[-1]:,}, the best on validation" if best else ""
    return f"after {steps[-1]['step']:,} of {steps[-1]['of']:,} steps{weights}"


# ------------------------------------------------------------------------------------------------ transfers


def _transfer_outcomes(path: Path) -> list[Outcome]:
    """The results of transfers: of all folders with one run per seed below this one, or of a single run."""
    if not (path / "manifest.json").is_file():
        results = ((file.parent, json.loads(file.read_text())) for file in sorted(path.rglob("results.json")))
        return [(folder, result) for folder, result in results if "tasks" not in result]  # a suite repeats its tasks
    manifest = json.loads((path / "manifest.json").read_text())
    result = manifest.get("result")
    if not result:
        return []
    metric, scratch = result["metric"], bool(result["scratch"] and result["source"])  # not one without any source
    facts = {"name": result["data"], "metric": metric, "values": [result["dev"][metric]], "results": [result]}
    return [(path, {"recipe": manifest["recipe"], "scratch": scratch, **facts})]


def _score_averaged(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The score of the mean of all runs' test predictions, by the metric of their task."""
    from nextword.tasks.suite import score_averaged_predictions

    (task, metric), *others = {(outcome["name"], outcome["metric"]) for _, outcome in outcomes}
    if others:
        raise RunError("Only runs of one task with one metric can be averaged. Record the others separately.")
    score = score_averaged_predictions([folder for folder, _ in outcomes], metric)
    return {f"averaged_test_{_key(task, metric)}": round(100 * score, 2)}


def _record_transfers(
    folder: str, outcomes: Sequence[Outcome], averaged: Mapping[str, float]
) -> tuple[str, dict[str, Any]]:
    """Means over seeds of all transfers in a folder; each setting that differs from the recipe has its own prefix:

    SST-2 …                                     sst_2_accuracy, and sst_2_accuracy_interval, half of the 95 % interval
    SST-2 … --scratch                           scratch_sst_2_accuracy
    SST-2 … --set task.features=glove           glove_sst_2_accuracy       if the recipe has other features
    the same, of the data's own test split      glove_test_sst_2_accuracy
    conll2003 … --train-fraction 0.1            train_fraction_0_1_conll2003_span_f1
    conll2003 … --features runs/elmo            elmo_conll2003_span_f1
    conll2000 … --set …unlabeled=''            labels_alone_conll2000_span_f1
    IMDb … --from a run that reads backward     backward_test_imdb_accuracy

    A final training (--merge-dev), which includes dev, has no dev result.
    """
    names = {outcome["recipe"] for _, outcome in outcomes}
    if len(names) > 1:
        raise RunError(
            f"{folder} has transfers of several recipes: {', '.join(sorted(names))}. Record one recipe at a time.",
            path=folder,
        )
    (name,) = names
    values: dict[str, dict[str, list[float]]] = {}  # prefix → task → one value per seed
    lines, finals = [], set()
    for where, outcome in outcomes:
        task = _key(outcome["name"], outcome["metric"])
        settings = _transfer_settings(name, where)
        is_final = bool(settings.pop("merge_dev_into_train", False))
        finals.add(is_final)
        prefix = ("scratch_" if outcome["scratch"] else "") + "".join(f"{_short(*pair)}_" for pair in settings.items())
        if not is_final:
            values.setdefault(prefix, {}).setdefault(task, []).extend(outcome["values"])
        test_values = [result["test"][outcome["metric"]] for result in outcome["results"] if "test" in result]
        if test_values:
            values.setdefault(f"{prefix}test_", {}).setdefault(task, []).extend(test_values)
        omitted = {"source", "notes", *(["dev"] if is_final else [])}
        lines += [
            {**settings, **{k: v for k, v in result.items() if k not in omitted}} for result in outcome["results"]
        ]
    measured: dict[str, Any] = {"data": ", ".join(sorted({outcome["name"] for _, outcome in outcomes}))}
    has_test = any("test_" in prefix for prefix in values)
    measured["split"] = "test" if finals == {True} else "dev, and test where it says so" if has_test else "dev"
    for prefix, tasks in sorted(values.items()):
        for task, per_seed in tasks.items():
            mean, half_width = confidence_interval(per_seed)
            measured[f"{prefix}{task}"] = round(100 * mean, 2)
            if half_width is not None:
                measured[f"{prefix}{task}_interval"] = round(100 * half_width, 2)
        measured[f"{prefix}mean"] = round(100 * statistics.mean(map(statistics.mean, tasks.values())), 2)
    measured |= averaged
    measured["seeds"] = min(len(per_seed) for tasks in values.values() for per_seed in tasks.values())
    measured |= _device_and_commit([where for where, _ in outcomes])
    # A recipe with a network of its own has both the data and no source run.
    source = "" if _recipe_tables(name).get("tokenizer") else " --from RUN --data TASK"
    final = " --merge-dev" if finals == {True} else ""
    all_changes = {_changed_settings(name, run, ("phase",)) for where, _ in outcomes for run in _runs_in(where)}
    changes = all_changes.pop() if len(all_changes) == 1 else ""  # only if all were trained alike
    measured["command"] = f"nextword transfer {name}{source}{final} --num-seeds {measured['seeds']}{changes}"
    return name, _write_measured(name, measured, lines)


def _key(task: str, metric: str) -> str:
    return f"{task}_{metric}".lower().replace("-", "_")


def _short(key: str, value: object) -> str:
    """A setting as a prefix: `glove` is clear by itself, a number needs its key."""
    return re.sub(r"\W", "_", value if isinstance(value, str) else f"{key}_{value}".lower())


def _transfer_settings(name: str, folder: Path) -> dict[str, Any]:
    """The settings in which a transfer, or a folder with one run per seed, differs from its recipe.

    These are the keys of [model] if the recipe has a network of its own (a run is given by its name, not its path), and
    those of [task] that the data does not decide.
    """
    from nextword.tasks import task_defaults

    recipe, runs = _recipe_tables(name), _runs_in(folder)
    if not recipe or not runs:
        return {}
    tables = tomllib.loads((runs[0] / "recipe.toml").read_text(encoding="utf-8"))
    task, different = tables.get("task", {}), {}
    if recipe.get("tokenizer"):
        usual, model = {**_model_defaults(recipe["paper"]["slug"]), **recipe.get("model", {})}, tables.get("model", {})
        different = {k: v for k, v in model.items() if k not in DERIVED_MODEL_KEYS and v != usual.get(k)}
        different = dict(sorted(different.items(), key=lambda pair: pair[0] != "contextual"))
    table = recipe.get("task", {})
    kind = task.get("kind") or table.get("kind")
    usual = {**(task_defaults(kind) if kind else {}), **table}
    actual = {key: task.get(key, "") for key in usual}
    different |= {
        key: actual[key]
        for key, value in usual.items()
        if actual[key] not in ("", [], {}, list(value) if isinstance(value, tuple) else value)
    }
    different |= _unlabeled_text(recipe, tables)
    if not recipe.get("tokenizer") and tables.get("model", {}).get("backward"):
        different["direction"] = "backward"
    return {key: Path(value).name if isinstance(value, str) else value for key, value in different.items()}


def _model_defaults(slug: str) -> dict[str, Any]:
    from nextword.models import model_class

    return {field.name: field.default for field in fields(model_class(slug).Config)}


def _unlabeled_text(recipe: Mapping[str, Any], tables: Mapping[str, Any]) -> dict[str, str]:
    """The unlabeled text of the first phase, if it is not the recipe's own."""
    phases: list[Mapping[str, Any]] = [next(iter(table.get("phase", ())), {}) for table in (recipe, tables)]
    usual, actual = (phase.get("objective", {}).get("unlabeled", "") for phase in phases)
    return {} if usual == actual else {"unlabeled": actual or "labels alone"}


# ------------------------------------------------------------------------------------------------ both


def _recipe_tables(name: str) -> dict[str, Any]:
    """The tables of a recipe that comes with nextword; {} for any other."""
    from nextword.recipe import RECIPES

    path = RECIPES / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _runs_in(folder: Path) -> list[Path]:
    """The run itself, or the runs in a folder with one per seed."""
    return [folder] if (folder / "recipe.toml").is_file() else sorted(p.parent for p in folder.glob("*/recipe.toml"))


def _changed_settings(name: str, run: Path, tables: Sequence[str]) -> str:
    """The settings of these tables in which a run differs from its recipe, as options; not data, runs or seeds."""
    from nextword.recipe import NOT_SET, load_recipe, setting_differences

    try:
        differences = setting_differences(load_recipe(name), load_recipe(run / "recipe.toml"))
    except NextwordError:  # incomplete, such as a folder of means of runs that are elsewhere
        return ""
    changed = {
        key: Path(value).name if isinstance(value, str) else json.dumps(value)
        for key, (_, value) in differences.items()
        if key.partition(".")[0] in tables and value is not NOT_SET and not key.endswith(UNREPORTED_PHASE_KEYS)
    }
    return "".join(f" --set {key}={value}" for key, value in changed.items())


def _device_and_commit(folders: Sequence[Path]) -> dict[str, Any]:
    """Device and commit, where all runs agree."""
    seen: dict[str, set[str]] = {"device": set(), "commit": set()}
    for run in (run for folder in folders for run in _runs_in(folder)):
        log, manifest = run / "log.jsonl", run / "manifest.json"
        lines = map(json.loads, log.read_text(encoding="utf-8").splitlines()) if log.is_file() else ()
        seen["device"] |= {line["device"] for line in lines if line.get("event") == "begin" and "device" in line}
        if manifest.is_file():
            seen["commit"] |= {_commit(json.loads(manifest.read_text(encoding="utf-8"))) or ""}
    return {key: next(iter(values)) for key, values in seen.items() if len(values) == 1 and "" not in values}


def _commit(manifest: Mapping[str, Any]) -> str | None:
    """None if the code was not a git checkout."""
    commit = manifest.get("commit", "unknown")
    return None if commit == "none" else commit


def _write_measured(name: str, measured: Mapping[str, Any], log: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    from nextword.recipe import RECIPES, record_measured

    path = RECIPES / f"{name}.toml"
    if not path.is_file():
        raise UnknownName(f"The run was trained from {name}, which is not a recipe of nextword.", name=name)
    table = {key: value for key, value in measured.items() if value is not None}
    table |= {"nextword": __version__, "log": f"{path.stem}.log.jsonl"}
    record_measured(path, table)
    lines = (json.dumps(replace_nonfinite(line), ensure_ascii=False, allow_nan=False) + "\n" for line in log)
    path.with_name(table["log"]).write_text("".join(lines))
    return table
