"""What pretraining on translation adds to word vectors: the same classifier over GloVe alone and over [GloVe; CoVe].

    python benchmarks/cove.py                                            # SST-binary and TREC-6, 3 seeds: on a GPU
    python benchmarks/cove.py --from runs/cove --seeds 5 --tasks TREC-6  # an existing encoder
    python benchmarks/cove.py --small                                    # narrow, few epochs: half an hour on a core
    python benchmarks/cove.py --rehearse                                 # tiny sizes, to check that it runs

Finished runs in --out are reused and interrupted ones resumed, so that seeds can be added. Seeds are paired: each seed
gives the difference of its two runs, and the interval (95 %, Student's t) is over these differences. It holds for this
encoder and these test sets, not for others.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from nextword import tasks as transfer
from nextword.metrics.intervals import confidence_interval
from nextword.recipe import load_recipe
from nextword.training.train import train_events

TASKS = ("SST-binary", "TREC-6")
FEATURES = ("glove", "both")
SMALL = {  # changes of the recipes
    "encoder": (
        *("tokenizer.size=6000", "model.output_words=6000", "model.width=200", "model.embedding=100"),
        "phase.0.epochs=4",
    ),
    "classifier": ("task.width=64", "phase.0.epochs=4"),
}
REHEARSED = {
    "encoder": (
        "tokenizer.size=500",
        "model.output_words=500",
        "model.width=16",
        "model.encoder_width=8",
        "phase.0.steps=5",
    ),
    "classifier": ("task.width=4", "phase.0.steps=5"),
}


def encoder(folder: Path, changes: tuple[str, ...], device: str) -> Path:
    """Train a translator, resume it, or reuse it if finished."""
    manifest = folder / "manifest.json"
    if manifest.is_file() and json.loads(manifest.read_text()).get("finished"):
        return folder
    resumed = manifest.is_file()
    recipe = None if resumed else load_recipe("cove/multi30k", changes)
    for event in train_events(recipe, folder, resume=resumed, device=device):
        if event.kind == "valid":
            print(f"  epoch {event.epoch:.1f} · perplexity {event.values['perplexity']:.2f} · {event.seconds:,.0f} s")
    return folder


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--from", dest="source", type=Path, help="run of an encoder; default: OUT/encoder")
    given.add_argument("--out", type=Path, default=Path("runs/cove-features"))
    given.add_argument("--tasks", nargs="+", default=list(TASKS))
    given.add_argument("--seeds", type=int, default=3)
    given.add_argument(
        "--set", dest="changes", action="append", default=[], metavar="A.B=C", help="change the recipe cove/classify"
    )
    given.add_argument("--device", default="auto")
    given.add_argument("--small", action="store_true", help="narrow networks, few epochs")
    given.add_argument("--rehearse", action="store_true", help="tiny sizes")
    asked = given.parse_args()
    sizes = REHEARSED if asked.rehearse else SMALL if asked.small else {"encoder": (), "classifier": ()}
    source = asked.source or encoder(asked.out / "encoder", sizes["encoder"], asked.device)
    found = {}
    for task in asked.tasks:
        outcomes = {}
        for features in FEATURES:
            changes = [*sizes["classifier"], f"task.features={features}", *asked.changes]
            out = asked.out / f"{task}-{features}"
            outcomes[features] = transfer.run(
                "cove/classify", source, task, out, seeds=asked.seeds, changes=changes, device=asked.device, resume=True
            )
        for split in ("dev", "test"):
            values = {features: outcome.values(split=split) for features, outcome in outcomes.items()}
            gain = confidence_interval([b - a for a, b in zip(*(values[one] for one in FEATURES), strict=True)])
            found[f"{task} {split}"] = {"values": values, "difference": gain}
            scores = " · ".join(f"{one} {shown(*confidence_interval(values[one]))}" for one in FEATURES)
            print(f"{task} {split}: {scores} · difference {shown(*gain)}")
    (asked.out / "differences.json").write_text(json.dumps(found, indent=2) + "\n")


def shown(mean: float, spread: float | None) -> str:
    return f"{100 * mean:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")


if __name__ == "__main__":
    main()
