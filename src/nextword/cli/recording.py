"""What `nextword papers --record` writes into a recipe: a run's result, or those of a folder of transfers."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nextword import __version__
from nextword.contract import PSEUDO, NextwordError
from nextword.infinity import finite

KEPT = ("begin", "valid", "end", "evaluation", "adapted", "translated")  # events that stand in a recipe's log
AFTER = ("evaluation", "adapted", "translated")  # whose seconds are not training


def recorded(path: Path) -> tuple[str, dict[str, Any]]:
    """The recipe's name, and what was written into it."""
    if path.is_dir() and not (path / "manifest.json").is_file() and any(path.rglob("results.json")):
        return _transfers(path)
    return _run(path)


def _run(run: Path) -> tuple[str, dict[str, Any]]:
    """What was measured, on what, with which code, and the validations that led there."""
    from nextword.card import last_evaluation, last_translated
    from nextword.checkpoint import RunFolder

    folder = RunFolder.open(run)
    log = folder.read_log()
    result = last_evaluation(folder) or last_translated(folder)
    if result is None and folder.manifest.get("finished"):
        result = _validated(log, folder.manifest)
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
        "impossible": result.get("impossible") or None,  # tokens with probability zero
        "seconds": round(sum(spent.values()), 1),
        "device": begins[-1].get("device", "cpu") if begins else "cpu",
        "commit": folder.manifest.get("commit", "unknown"),  # of the code that trained it
        "command": f"nextword train {name}",
    }
    kept = [{k: v for k, v in line.items() if k != "example"} for line in log if line.get("event") in KEPT]
    return name, _written_down(name, measured, kept)


def _transfers(folder: Path) -> tuple[str, dict[str, Any]]:
    """The means over seeds of all transfers in a folder, those without pretraining apart."""
    every = (json.loads(path.read_text()) for path in sorted(folder.rglob("results.json")))
    found = [one for one in every if "tasks" not in one]  # what a suite says, its tasks say themselves
    names = {one["recipe"] for one in found}
    if len(names) > 1:
        raise NextwordError(
            f"{folder} has transfers by {', '.join(sorted(names))}: record those of one recipe at a time."
        )
    (name,) = names
    values: dict[tuple[str, str], list[float]] = {}
    for one in found:
        task = f"{one['name']}_{one['metric']}".lower().replace("-", "_")
        values.setdefault(("scratch_" if one["scratch"] else "", task), []).extend(one["values"])
    measured: dict[str, Any] = {"data": ", ".join(sorted({one["name"] for one in found})), "split": "dev"}
    for kind in sorted({kind for kind, _ in values}):
        means = {task: 100 * statistics.mean(each) for (of, task), each in values.items() if of == kind}
        measured |= {f"{kind}{task}": round(mean, 2) for task, mean in means.items()}
        measured[f"{kind}mean"] = round(statistics.mean(means.values()), 2)
    measured["seeds"] = min(len(each) for each in values.values())
    measured["command"] = f"nextword transfer {name} --from RUN --data TASK --seeds {measured['seeds']}"
    kept = [{k: v for k, v in result.items() if k != "source"} for one in found for result in one["results"]]
    return name, _written_down(name, measured, kept)


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


def _validated(log: Sequence[Mapping[str, Any]], manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of a run that is no model of text, such as one that hides words: its last validation."""
    ends = [line for line in log if line.get("event") == "end" and "valid" in line]
    if not ends:
        return None
    data = next(reversed(manifest.get("data", {"": "its text"}).values()))
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
