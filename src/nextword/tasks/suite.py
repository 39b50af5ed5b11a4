"""Several tasks in one table; and a transfer beside its twin, the same network without what it had learnt before.

    task     pretrained     from scratch     difference          of the same seed; ± is the half of a 95 % interval of
    RTE      62.1 ± 1.3     52.7 ± 0.4       9.4 ± 1.1           the differences, which is narrower than that of either

Data and seeds are the same. Runs of the twin lie in a folder of their own beside `out`, OUT-scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nextword.metrics.classification import interval
from nextword.tasks.datasets.catalog import find_task, place_of
from nextword.tasks.finetune import Outcome, averages, replaced, run, write
from nextword.tasks.in_context import refuse_twin
from nextword.tasks.plan import fine_tuning, intended

TABLE = "results.md"


def twin_folder(out: str | Path) -> Path:
    return Path(f"{out}-scratch")


def run_suite(
    recipe: str, source: str | Path, names: Sequence[str], out: str | Path, **options: Any
) -> tuple[list[Outcome], dict[str, Any]]:
    """Several tasks, each into a folder of its own in `out`, one after the other; and their means in one table.

    Where there is more than one processor or GPU, run tasks as processes of their own first (`out`/RTE …), and then
    this, with `again`, which finds them finished.
    """
    _all_fit(recipe, source, names, options)
    outcomes: list[Outcome] = []
    for name in names:
        outcomes.append(run(recipe, source, name, Path(out) / Path(name).name, **options))
        if outcomes[-1].interrupted:
            return outcomes, {}
    found = table(recipe, source, outcomes, scratch=bool(options.get("scratch")))
    keep(Path(out), found)
    return outcomes, found


def _all_fit(recipe: str, source: str | Path, names: Sequence[str], options: Mapping[str, Any]) -> None:
    """A task whose files are not on this machine, or that the recipe cannot learn, is told before any is learnt."""
    for task in filter(None, map(find_task, names)):
        place_of(task)
    asked = {key: options[key] for key in ("columns", "kind", "scratch", "changes", "device") if key in options}
    for name in names if len(names) > 1 else ():
        intended(recipe, source, name, **asked)


def twins(
    recipe: str, source: str | Path, names: Sequence[str], out: str | Path, **options: Any
) -> tuple[list[Outcome], list[Outcome], dict[str, Any]]:
    """Each task pretrained and from scratch; nothing in the last place where it was interrupted."""
    refuse_twin(fine_tuning(recipe, options.get("changes", ())))
    _all_fit(recipe, source, names, options)
    both: tuple[list[Outcome], list[Outcome]] = [], []
    for name in names:
        for outcomes, folder, scratch in ((both[0], Path(out), False), (both[1], twin_folder(out), True)):
            place = folder / Path(name).name if len(names) > 1 else folder
            outcome = run(recipe, source, name, place, **{**options, "scratch": scratch})
            outcomes.append(outcome)
            if outcome.interrupted:
                return *both, {}
    found = table(recipe, source, both[0], both[1])
    keep(Path(out), found)
    return *both, found


def table(
    recipe: str, source: str | Path, outcomes: Sequence[Outcome], beside: Sequence[Outcome] = (), scratch: bool = False
) -> dict[str, Any]:
    """All numbers of a suite: the means, every task, and, where there are twins, theirs and the differences."""
    found = {
        "recipe": recipe,
        "source": str(source),
        "scratch": scratch,
        **averages(outcomes),
        "tasks": [outcome.as_dict() for outcome in outcomes],
    }
    if beside:
        each = [differences(a, b) for a, b in zip(outcomes, beside, strict=True)]
        mean, spread = interval([sum(values) / len(values) for values in zip(*each, strict=True)])
        found["twin"] = {**averages(beside), "tasks": [outcome.as_dict() for outcome in beside]}
        found["difference"] = {
            "mean": mean,
            "interval": spread,
            "tasks": [
                {"name": one.name, "mean": (both := interval(values))[0], "interval": both[1], "values": values}
                for one, values in zip(outcomes, each, strict=True)
            ],
        }
    return found


def differences(a: Outcome, b: Outcome) -> list[float]:
    """Seed by seed: how much better the first is."""
    return [x - y for x, y in zip(a.values(), b.values(), strict=True)]


def rows_of(found: Mapping[str, Any]) -> list[list[str]]:
    """The table in per cent: a row for every task and one for the mean. A correlation is × 100 too."""
    places: list[Mapping[str, Any]] = [found]
    if "twin" in found:
        places += [found["twin"], found["difference"]]
    rows = []
    for i, task in enumerate(found["tasks"]):
        values = [_percent(place["tasks"][i]) for place in places]
        rows.append([task["name"], task["metric"], *values, f"{task['results'][0]['examples']['dev']:,}"])
    if len(rows) > 1:
        rows.append(["mean", "", *(_percent(place) for place in places), ""])
    return rows


def heads_of(found: Mapping[str, Any]) -> list[str]:
    n = len(found["tasks"][0]["values"])
    seeds = f", {n} seeds" if n > 1 else ""
    if "twin" in found:
        return ["task", "metric", f"pretrained{seeds}", "from scratch", "difference", "examples"]
    return ["task", "metric", f"{'from scratch' if found['scratch'] else 'dev'}{seeds}", "examples"]


def markdown(found: Mapping[str, Any]) -> str:
    heads, rows = heads_of(found), rows_of(found)
    lines = [heads, ["---", "---", *["---:"] * (len(heads) - 2)], *rows]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    run = f"`{found['recipe']}`" + (f" from `{found['source']}`" if found["source"] else "")
    return f"{text}\n{run}, dev sets, per cent; ± is the half of a 95 % interval over seeds.\n"


def _percent(one: Mapping[str, Any]) -> str:
    value = f"{100 * one['mean']:.1f}"
    return value if one["interval"] is None else f"{value} ± {100 * one['interval']:.1f}"


def keep(folder: Path, found: Mapping[str, Any]) -> None:
    """results.json, and the same as a table of markdown."""
    write(folder, found)
    replaced(folder / TABLE, markdown(found))
