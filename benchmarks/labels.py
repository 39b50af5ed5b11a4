"""How many labels a method saves: taggers with and without it, by fraction of labels, in one table.

    python benchmarks/labels.py elmo --features runs/elmo --jobs 9      # vectors in context: CoNLL-2003
    python benchmarks/labels.py elmo --only without --jobs 9            # taggers without ELMo, while ELMo is trained
    python benchmarks/labels.py elmo --features runs/elmo --recipe tagger/conll2000 --labels 1 0.1
    python benchmarks/labels.py cvt --jobs 9                            # unlabeled sentences: CoNLL-2000, Wikipedia
    python benchmarks/labels.py elmo --rehearse                         # tiny sizes: a minute or two

Finished runs in --out are reused and interrupted ones resumed, so that a stopped benchmark continues, and seeds and
fractions can be added. Shared data are prepared first. Then `--jobs` taggers train at a time, each in its own process;
they share one GPU.

    OUT/without-0.1/seed-0 …     OUT/with-0.1/seed-0 …      runs, and results.json of their seeds
    OUT/labels.json                                         the table, and the learned weights of layers

Small fractions have short epochs, so their training is counted in steps; both sides see the same number of labeled
batches. ELMo's taggers keep the weights of the best validation on the full dev split, which has more labels than the
smallest fraction. CVT's taggers also train on dev and keep the last weights. Seeds are paired: both sides train on the
same sentences, and the interval of the difference (95 %, Student's t) is over pairs. It holds for this ELMo, or this
unlabeled text, and these test sets, not for others.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from nextword import tasks as transfer
from nextword.lm.loading import load
from nextword.metrics.intervals import confidence_interval
from nextword.recipe import load_recipe
from nextword.run_folder import RunFolder
from nextword.training.train import train_events

SHARES = (1.0, 0.1, 0.01)
VALIDATIONS = 30  # per run whose training is counted in steps
SIDES = ("without", "with")


@dataclass(frozen=True)
class Study:
    recipe: str
    tiny: str  # the recipe of a rehearsal
    steps: Mapping[float, int]  # largest fraction → labeled batches; larger fractions train as long as the recipe says
    without: tuple[str, ...] = ()  # changes of the recipe on the side without the method
    both: tuple[str, ...] = ()  # changes of the recipe on both sides
    turns: int = 1  # steps per labeled batch on the side with the method


STUDIES = {
    "elmo": Study("tagger/conll2003", "tagger/tiny", {0.1: 3000, 0.01: 1500}),
    "cvt": Study(
        "cvt/conll2000",
        "cvt/tiny",
        {1.0: 8000, 0.1: 3500, 0.01: 2000},
        ("phase.0.objective.unlabeled=''",),
        ("task.merge_dev_into_train=true",),
        turns=2,
    ),
}
SMALL_ELMO = ("elmo/tiny", ("phase.0.steps=30", "phase.0.validate_every=30"))


def changes_of(asked: argparse.Namespace, share: float, side: str) -> list[str]:
    """Changes of the recipe for one cell of the table."""
    study = STUDIES[asked.study]
    counted = asked.steps.get(share) or next((n for least, n in sorted(study.steps.items()) if share <= least), 0)
    steps = counted * (study.turns if side == "with" else 1)
    found = [f"phase.0.steps={steps}", f"phase.0.validate_every={max(1, steps // VALIDATIONS)}"]
    found = found if counted else []
    found += [*study.both, *([f"task.train_fraction={share}"] if share != 1 else [])]
    if side == "without":
        found += study.without
    elif asked.features is not None:
        found.append(f"model.contextual={asked.features}")
    return [*found, *asked.changes]


def one(recipe: str, out: Path, seed: int, changes: Sequence[str], device: str) -> tuple[dict[str, Any], float]:
    """Train or resume one tagger in its own process."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    found = transfer.run(recipe, "", "", out, seed=seed, changes=changes, device=device, resume=True)
    return dict(found.results[0]), time.perf_counter() - began


def finished(folder: Path) -> bool:
    return (folder / "manifest.json").is_file() and transfer.read_result(folder) is not None


def train_taggers(asked: argparse.Namespace, cells: Sequence[tuple[float, str]]) -> None:
    """Train all unfinished runs of all cells, the longest first."""
    left = [
        (share, side, seed)
        for share, side in sorted(cells, key=lambda cell: (-cell[0], cell[1] != "with"))
        for seed in range(asked.seeds)
        if not finished(folder_of(asked.out, share, side) / f"seed-{seed}")
    ]
    if not left:
        return
    if any(side == "with" for _, side, _ in left):
        began = time.perf_counter()
        transfer.make_plan(asked.recipe, "", "", changes=changes_of(asked, 1.0, "with"), device=asked.device)
        print(f"shared data: {time.perf_counter() - began:.0f} s", flush=True)
    with ProcessPoolExecutor(min(asked.jobs, len(left)), mp_context=get_context("spawn")) as pool:
        asks = {}
        for share, side, seed in left:
            changes = changes_of(asked, share, side)
            out = folder_of(asked.out, share, side) / f"seed-{seed}"
            asks[pool.submit(one, asked.recipe, out, seed, changes, asked.device)] = share, side, seed
        failed = 0
        for future in as_completed(asks):
            share, side, seed = asks[future]
            problem = future.exception()
            if problem is not None:
                failed += 1
                print(f"{side} {share:g} seed {seed}: {type(problem).__name__}: {problem}", flush=True)
                continue
            result, seconds = future.result()
            scores = " · ".join(
                f"{split} {100 * result[split][result['metric']]:.2f}" for split in ("dev", "test") if split in result
            )
            print(f"{side} {share:g} seed {seed}: {scores} · {seconds:.0f} s", flush=True)
    if failed:
        raise SystemExit(f"{failed} of {len(left)} taggers failed. Run the same command again to retry them.")


def folder_of(out: Path, share: float, side: str) -> Path:
    return out / f"{side}-{share:g}"


def collect(asked: argparse.Namespace, cells: Sequence[tuple[float, str]]) -> dict[str, Any]:
    """Collect the table from finished runs, and write results.json of each cell."""
    outcomes = {}
    for share, side in cells:
        changes = changes_of(asked, share, side)
        out = folder_of(asked.out, share, side)
        outcomes[share, side] = transfer.run(
            asked.recipe, "", "", out, seeds=asked.seeds, changes=changes, device=asked.device, resume=True
        )
    rows: dict[str, Any] = {}
    for share in dict.fromkeys(share for share, _ in cells):
        both = [outcomes[share, side] for side in SIDES]
        row: dict[str, Any] = {"sentences": both[0].results[0]["examples"]["train"]}
        for split in splits_of(both[0].results[0]):
            values = {side: outcome.values(split=split) for side, outcome in zip(SIDES, both, strict=True)}
            row[split] = {
                **{
                    side: {"mean": m, "interval": i}
                    for side, (m, i) in ((s, confidence_interval(values[s])) for s in SIDES)
                },
                "difference": dict(zip(("mean", "interval"), confidence_interval(differences(values)), strict=True)),
                "values": values,
            }
        if asked.features is not None:
            row["mixes"] = [mixes(Path(run)) for run in both[1].runs]
        row["seconds"] = {s: [r["seconds"] for r in o.results] for s, o in zip(SIDES, both, strict=True)}
        rows[f"{share:g}"] = row
    first = next(iter(outcomes.values()))
    return {"recipe": asked.recipe, "data": first.name, "metric": first.metric, "seeds": asked.seeds, "shares": rows}


def splits_of(result: Mapping[str, Any]) -> list[str]:
    """The splits that were not trained on."""
    return [
        split
        for split in ("dev", "test")
        if split in result and not (split == "dev" and result["merge_dev_into_train"])
    ]


def differences(values: dict[str, list[float]]) -> list[float]:
    return [b - a for a, b in zip(*(values[side] for side in SIDES), strict=True)]


def mixes(run: Path) -> dict[str, Any]:
    """The weights with which a tagger mixes ELMo's layers, and γ, at each place."""
    network: Any = load(run, "cpu").network
    return {
        place: {"shares": [round(share, 4) for share in shares], "gamma": round(gamma, 4)}
        for place, (shares, gamma) in network.mix_weights.items()
    }


def worth(rows: dict[str, Any], split: str) -> dict[str, float | None]:
    """For each fraction: the fraction with which the side without is as good, interpolated over its logarithm.

    None: more than all labels, or fewer than the smallest fraction.
    """
    points = sorted((float(share), row[split]["without"]["mean"]) for share, row in rows.items() if split in row)
    found: dict[str, float | None] = {}
    for share, row in rows.items():
        aim, at = row[split]["with"]["mean"], None
        for (a, low), (b, high) in pairwise(points):
            if low <= aim <= high and high > low:
                at = math.exp(math.log(a) + (aim - low) / (high - low) * math.log(b / a))
        found[share] = at
    return found


def report(results: dict[str, Any]) -> None:
    print(f"\n{results['data']}, {results['metric']}, {results['seeds']} seeds: mean ± half of the 95 % interval\n")
    print("| labels | sentences | split | without | with | difference | as good without, at |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    for share, row in results["shares"].items():
        for split in (split for split in ("dev", "test") if split in row):
            cells = [shown(row[split][side]) for side in SIDES] + [shown(row[split]["difference"], signed=True)]
            equal = results["as good without, at"].get(split, {}).get(share)
            at = "" if split == "dev" else "–" if equal is None else f"{100 * equal:.1f} %"
            print(f"| {100 * float(share):g} % | {row['sentences']:,} | {split} | {' | '.join(cells)} | {at} |")


def shown(score: dict[str, Any], signed: bool = False) -> str:
    spread = "" if score["interval"] is None else f" ± {100 * score['interval']:.2f}"
    return f"{100 * score['mean']:{'+' if signed else ''}.2f}{spread}"


def small_elmo(folder: Path, device: str) -> Path:
    """Train a tiny ELMo for the rehearsal."""
    recipe, changes = SMALL_ELMO
    if not (folder / "manifest.json").is_file() or not RunFolder.open(folder).manifest.get("finished"):
        for _ in train_events(load_recipe(recipe, changes), folder, device=device):
            pass
    return folder


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("study", choices=STUDIES)
    given.add_argument("--features", type=Path, help="ELMo run; default with --rehearse: train a tiny one")
    given.add_argument("--out", type=Path, help="default: runs/elmo-labels, or runs/cvt-labels")
    given.add_argument("--recipe", default="", help="recipe of the taggers; default: the study's own")
    given.add_argument(
        "--labels", type=float, nargs="+", default=list(SHARES), help="fractions of the training sentences"
    )
    given.add_argument("--seeds", type=int, default=3)
    given.add_argument(
        "--steps", type=int, nargs="+", default=[], help="labeled batches: one number, or one per fraction"
    )
    given.add_argument("--set", dest="changes", action="append", default=[], metavar="A.B=C", help="change the recipe")
    given.add_argument("--jobs", type=int, default=1, help="number of taggers trained at a time")
    given.add_argument("--only", choices=SIDES, help="train only this side, without a table")
    given.add_argument("--device", default="auto")
    given.add_argument("--rehearse", action="store_true", help="tiny sizes")
    asked = given.parse_args()
    study = STUDIES[asked.study]
    asked.out = asked.out or Path(f"runs/{asked.study}-labels")
    asked.recipe = asked.recipe or (study.tiny if asked.rehearse else study.recipe)
    if asked.rehearse:
        asked.labels, asked.steps = [1.0, 0.1], asked.steps or [100]
    if len(asked.steps) not in (0, 1, len(asked.labels)):
        given.error(f"--steps: expected one number, or {len(asked.labels)}, one per fraction.")
    asked.steps = dict(zip(asked.labels, asked.steps * (len(asked.labels) // max(1, len(asked.steps))), strict=False))
    reads = asked.study == "elmo" and asked.only != "without"
    if reads and asked.features is None and not asked.rehearse:
        given.error("--features is required: an ELMo run (nextword train elmo/wiki --out RUN).")
    if reads:
        asked.features = (asked.features or small_elmo(asked.out / "elmo", asked.device)).resolve()
    cells = [(share, side) for share in asked.labels for side in SIDES]
    train_taggers(asked, [cell for cell in cells if asked.only in (None, cell[1])])
    if asked.only:
        return
    results = collect(asked, cells)
    splits = [split for split in ("dev", "test") if split in next(iter(results["shares"].values()))]
    results["as good without, at"] = {split: worth(results["shares"], split) for split in splits}
    (asked.out / "labels.json").write_text(json.dumps(results, indent=2) + "\n")
    report(results)


if __name__ == "__main__":
    main()
