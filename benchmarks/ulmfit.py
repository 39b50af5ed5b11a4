"""ULMFiT from Wikipedia to a classifier of film reviews, one direction at a time, and the average of both.

    python benchmarks/ulmfit.py --out runs/ulmfit                          # forward: three stages, and the test set
    python benchmarks/ulmfit.py --out runs/ulmfit --direction backward     # later, or on another machine
    python benchmarks/ulmfit.py --out runs/ulmfit --join                   # errors of each, and of their average
    python benchmarks/ulmfit.py --out runs/few --labels 0.004 --scratch    # 100 labels, with and without pretraining
    python benchmarks/ulmfit.py --out /tmp/ulmfit --rehearse               # tiny sizes, to check that it runs

    OUT/texts                        texts of all splits without labels, for the second stage; 2 % are held out
    OUT/forward/{wiki,lm,task}       runs; finished ones are reused
    OUT/forward.npz                  probabilities of the test examples, for --join; benchmarks/predictions has those of
                                     the runs in docs/reproductions.md

Errors are reported for the whole test set, and without the test texts that also occur in train.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from nextword.tasks.finetune import PREDICTIONS, read_result
from nextword.tasks.text_data import read_one

RECIPES = {
    False: ("ulmfit/pretrain", "ulmfit/lm", "ulmfit/classify"),
    True: ("ulmfit/tiny", "ulmfit/tiny-lm", "ulmfit/tiny-classify"),
}
SIDES = ("forward", "backward")
EACH = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", default="IMDb", help="data set of labeled texts")
    parser.add_argument("--direction", default="forward", choices=SIDES)
    parser.add_argument("--set-wiki", action="append", default=[], metavar="A.B=C", help="change the recipe of stage 1")
    parser.add_argument("--set-lm", action="append", default=[], metavar="A.B=C", help="change the recipe of stage 2")
    parser.add_argument("--set-task", action="append", default=[], metavar="A.B=C", help="change the recipe of stage 3")
    parser.add_argument("--labels", type=float, default=1.0, help="fraction of the training labels")
    parser.add_argument("--scratch", action="store_true", help="also train stage 3 without the first two stages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--join", action="store_true", help="only print the errors, and those of the average")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes")
    asked = parser.parse_args()
    if asked.join:
        joined(asked.out, asked.data)
        return
    if asked.rehearse:
        asked.data = "TREC-6" if asked.data == "IMDb" else asked.data
    place, (first, second, third) = asked.out / asked.direction, RECIPES[asked.rehearse]
    texts = all_texts(asked.out, asked.data)
    turned = ["--set", "model.backward=true"] if asked.direction == "backward" else []
    stage(place / "wiki", ["train", first, *turned, *given(asked.set_wiki)])
    begins = ["--set", f"phase.0.init_from={place / 'wiki'}"]
    stage(place / "lm", ["train", second, "--data", str(texts), *begins, *turned, *given(asked.set_lm)])
    task = ["transfer", third, "--from", str(place / "lm"), "--data", asked.data, "--seed", str(asked.seed)]
    task += ["--train-fraction", str(asked.labels)] if asked.labels != 1 else []
    task += given(asked.set_task)
    stage(place / "task", task)
    kept(asked.out / f"{asked.direction}.npz", place / "task")
    if asked.scratch:
        stage(place / "scratch", [*task, "--scratch"])
        kept(asked.out / f"{asked.direction}-scratch.npz", place / "scratch")
    joined(asked.out, asked.data)


def given(settings: list[str]) -> list[str]:
    return [part for one in settings for part in ("--set", one)]


def stage(out: Path, command: list[str]) -> None:
    """Train one run, resume it, or reuse it if finished."""
    if (out / "manifest.json").is_file() and json.loads((out / "manifest.json").read_text()).get("finished"):
        print(f"{out} is finished", flush=True)
        return
    began = time.perf_counter()
    again = ["--resume"] if (out / "state" / "current").is_file() else []
    words = [command[0], *again] if again else command
    subprocess.run([sys.executable, "-m", "nextword", *words, "--out", str(out), "--quiet"], check=True)
    print(f"{out}: {time.perf_counter() - began:.0f} s", flush=True)


def all_texts(out: Path, name: str) -> Path:
    """Write the texts of all splits without labels into a folder: one in EACH for validation, one in EACH for test."""
    folder = out / "texts"
    if not folder.is_dir():
        part = out / "texts.part"
        part.mkdir(parents=True, exist_ok=True)
        texts = [text for rows in read_one(name).splits.values() for text in rows.texts]
        held = {"valid": texts[::EACH], "test": texts[EACH // 2 :: EACH]}
        kept = [text for i, text in enumerate(texts) if i % EACH not in (0, EACH // 2)]
        for split, some in {"train": kept, **held}.items():
            lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in some)
            (part / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
        part.rename(folder)
    return folder


def kept(path: Path, run: Path) -> None:
    """Save the run's probabilities of the test examples in 16 bits, which is enough for the average."""
    with np.load(run / PREDICTIONS) as predictions:
        np.savez_compressed(path, p=predictions["test"].astype(np.float16))
    result = read_result(run) or {}
    print(f"{run}: { ({key: result.get(key) for key in ('dev', 'test', 'test_unseen', 'seconds')}) }", flush=True)


def joined(out: Path, name: str) -> None:
    """Print the errors of all predictions in `out`, and of the average of both directions."""
    found = {path.stem: np.load(path)["p"].astype(float) for path in sorted(out.glob("*.npz"))}
    both = [found[side] for side in SIDES if side in found]
    if len(both) == len(SIDES):
        found["both, averaged"] = sum(both) / len(both)
    data = read_one(name)
    rows = data.splits["test"]
    gold = np.array([data.labels.index(label) for label in rows.labels or ()])
    new = data.unseen_rows("test")
    print("\n| | test error, % | without texts that occur in train |\n| --- | ---: | ---: |")
    for side, p in found.items():
        wrong = p.argmax(1) != gold
        print(f"| {side} | {100 * wrong.mean():.2f} | {100 * wrong[new].mean():.2f} |", flush=True)


if __name__ == "__main__":
    main()
