"""The starter models: train them on one GPU, round them into the package `starters/`, and judge them on a CPU.

Before, on any machine with the data sets enwiki, ud-english-ewt and glue/STS-B in a folder of NEXTWORD_DATA:

    python benchmarks/starters.py prepare              # tokenizers and data into carry/: carry/kit, carry/a, carry/b
                                                       # four minutes; again, in seconds, after the last commit

On a machine with a GPU and 16 cores, 26 minutes in four commands: the first with carry/a and carry/kit, the second with
carry/b, the others with nothing. Code and results lie in WORK, an absolute path outside of the checkout, which may be
tidied between commands:

    mkdir -p WORK/data/enwiki WORK/code/carry && cp carry/a/* WORK/data/enwiki/ && \\
        cp -r carry/kit WORK/code/carry/ && cp -r benchmarks src starters WORK/code/ && cd WORK/code && \\
        export PYTHONPATH=src:carry/kit/packages && python3 benchmarks/starters.py check
    cp carry/b/* WORK/data/enwiki/ && cd WORK/code && export PYTHONPATH=src:carry/kit/packages && \\
        python3 benchmarks/starters.py train --work WORK --detach && \\
        python3 benchmarks/starters.py status --work WORK --wait 540
    cd WORK/code && export PYTHONPATH=src:carry/kit/packages && \\
        python3 benchmarks/starters.py status --work WORK --wait 560 && \\
        python3 benchmarks/starters.py export --work WORK --out OUT bert awd-lstm awd-lstm-backward elmo
    cd WORK/code && export PYTHONPATH=src:carry/kit/packages && \\
        python3 benchmarks/starters.py status --work WORK --wait 560 && \\
        python3 benchmarks/starters.py export --work WORK --out OUT gpt2 t5 embed embed-topics pos

`check` fails within seconds if the machine lacks a package or a GPU. The third command ends with the models of the
first step, the last one says "all done"; models that are not packed yet are named and left out, so any but the first
may be repeated.

Afterwards, with the files of OUT:

    python benchmarks/starters.py unpack OUT/*.tar     # into starters/src/nextword_starters/models
    make test ARGS=tests/unit/test_starters.py         # sizes, checksums, cards
    python benchmarks/starters.py judge --record       # each goal beside what is measured, an hour on two cores;
                                                       # the cards of the models get the numbers
    nextword papers --record starters/src/nextword_starters/models/bert     # and so on: [measured] in the recipes

`--rehearse` does all of it in minutes on a CPU, with tiny networks and a little text, carry/rehearsal/a/enwiki. It
never touches `starters/`, so `judge --rehearse` needs PYTHONPATH=WORK/site.

`train` runs in steps; a step is one or several models side by side. Killed or cut off, the same command continues: each
model is resumed from its last state (one a minute), and finished ones are left alone. Recurrent networks are chains of
small products that leave most of a GPU idle. With NVIDIA's multi-process service, which `train` starts if the machine
has it, they share it with a Transformer (SHARED); without it, processes take turns (IN_TURNS). The minutes of a model
are those of its step; `--minutes bert=7` changes them, `--step bert+elmo=8` replaces the steps. When a model is done,
it is measured on held-out text, rounded into the package, and measured again; its card has both numbers. Sentence
vectors are trained twice, with few neighbors and with more: judge both (`judge search zero-embed --embed
starter/embed-topics`), keep one as the folder `embed`, and set its share in the recipe bert/embed.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch

from nextword.batching.token_stream import prepare
from nextword.conversion import convert
from nextword.core.named_models import STARTERS
from nextword.data.catalog import find_entry
from nextword.data.opening import open_corpus
from nextword.evaluation.evaluate_run import evaluate_finished_run
from nextword.lm.loading import load
from nextword.metrics.intervals import wilson
from nextword.model_card import write_card
from nextword.models.storage import FILE
from nextword.recipe import Recipe, load_recipe
from nextword.run_folder import RunFolder, git_commit
from nextword.tasks import finetune
from nextword.tasks.plan import make_plan
from nextword.tasks.predict import predict_file
from nextword.tasks.text_data import read_one
from nextword.tokenizers.loading import load_tokenizer
from nextword.training.device import choose_device
from nextword.training.events import Job
from nextword.training.train import build_network, build_tokenizer, train_events
from nextword.training.trainer import Trainer

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "starters" / "src"
CARRY = Path("carry")
MEGABYTE = 1e6
WIKIPEDIA = "CC BY-SA 4.0; trained on English Wikipedia of 2015 (CC BY-SA 3.0)"
TREEBANK = "CC BY-SA 4.0; trained on Universal Dependencies English EWT (CC BY-SA 4.0), over starter/bert"


@dataclass(frozen=True)
class Model:
    """How a starter model is made."""

    recipe: str
    storage: str
    licence: str = WIKIPEDIA
    base: str = ""  # the starter model that it is trained from
    is_task: bool = False
    tiny: Sequence[str] = ()  # settings of a rehearsal
    minutes: float = 0  # 0: those of its step
    changes: Sequence[str] = ()  # of the recipe


SMALL = ("phase.0.log_every=1", "phase.0.save_every=5", "phase.0.compile=false", "phase.0.eval_tokens=2000")
WIDTHS = ("model.width=64", "model.layers=2", "model.heads=2")
MODELS = {
    "bert": Model(
        "bert/starter",
        "int8",
        tiny=(*SMALL, *WIDTHS, "phase.0.batches.tokens=2048", "phase.0.eval_tokens=20", "tokenizer.size=1000"),
    ),
    "gpt2": Model(
        "gpt2/starter",
        "int8",
        tiny=(*SMALL, *WIDTHS, "phase.0.batches.rows=2", "tokenizer.size=1000"),
    ),
    "t5": Model(
        "t5/starter",
        "int8",
        tiny=(
            *SMALL,
            "model.width=64",
            "model.layers=1",
            "model.decoder_layers=1",
            "model.ffn_width=64",
            "model.heads=1",
            "phase.0.batches.rows=4",
            "tokenizer.size=600",
        ),
    ),
    "awd-lstm": Model(
        "awd-lstm/starter",
        "int8",
        tiny=(*SMALL, "model.width=32", "model.embedding=16", "phase.0.batches.rows=8", "tokenizer.size=1000"),
    ),
    "awd-lstm-backward": Model(
        "awd-lstm/starter-backward",
        "int8",
        tiny=(*SMALL, "model.width=32", "model.embedding=16", "phase.0.batches.rows=8", "tokenizer.size=1000"),
    ),
    "elmo": Model(
        "elmo/starter",
        "int8",
        tiny=(
            *SMALL,
            "model.width=16",
            "model.cell_size=32",
            "model.output_words=900",
            "model.readout.cutoffs=[200, 500]",
            "phase.0.batches.rows=8",
            "tokenizer.size=1000",
        ),
    ),
    "embed": Model(
        "bert/embed",
        "int4",
        base="starter/bert",
        minutes=2,
        tiny=(*SMALL, *WIDTHS, "phase.0.batches.rows=16"),
    ),
    "pos": Model(
        "bert/pos",
        "int4",
        TREEBANK,
        base="starter/bert",
        is_task=True,
        tiny=("phase.0.steps=6", "phase.0.validate_every=6"),
    ),
}
# One of the two becomes starter/embed: more neighbors may be better at topics, and worse at likeness (docs/starters.md)
MODELS["embed-topics"] = replace(MODELS["embed"], changes=("phase.0.batches.same_fraction=0.4",))
# Steps: models side by side, and their minutes. The tokens take two minutes before, packing one minute at the end.
# Most goals are goals of bert, so its step is the longer one.
SHARED = [("bert awd-lstm awd-lstm-backward elmo", 11.5), ("gpt2 t5 embed embed-topics pos", 6.5)]
IN_TURNS = [
    ("bert", 6.5),
    ("gpt2", 3.0),
    ("embed embed-topics pos", 2.0),
    ("t5", 2.3),
    ("awd-lstm awd-lstm-backward elmo", 5.5),
]


# ------------------------------------------------------------------------------------------------ one model


@dataclass(frozen=True)
class Sitting:
    """Where everything of one training lies."""

    work: Path
    is_rehearsal: bool = False
    minutes: Mapping[str, float] = field(default_factory=dict)

    @property
    def kit(self) -> Path:
        """What `prepare` has made: tokenizers, small data sets, and a package that a machine may lack."""
        return (CARRY / ("rehearsal" if self.is_rehearsal else "kit")).resolve()

    def tokenizer(self, name: str) -> Path:
        return self.kit / "tokenizers" / f"{name.removesuffix('-backward')}.json"

    @property
    def package(self) -> Path:
        """The folder that holds the package while models are trained, on PYTHONPATH; `unpack` fills `starters/`."""
        return self.work / "site"

    def run(self, name: str) -> Path:
        return self.work / "runs" / name

    def packed(self, name: str) -> Path:
        return self.package / "nextword_starters" / "models" / name

    def log(self, name: str) -> Path:
        return self.work / "logs" / f"{name}.log"

    def recipe(self, name: str) -> Recipe:
        model = MODELS[name]
        changes = [*model.changes, *(model.tiny if self.is_rehearsal else ())]
        minutes = self.minutes.get(name, 0)
        if minutes and not model.is_task:
            changes.append(f"phase.0.minutes={minutes}")
        return load_recipe(model.recipe, changes)

    def environment(self) -> dict[str, str]:
        paths = [str(self.package), str(ROOT / "src"), os.environ.get("PYTHONPATH", ""), str(self.kit / "packages")]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "NEXTWORD_DATA": os.pathsep.join([str(self.work / "data"), str(self.kit / "data")]),
            "NEXTWORD_CACHE": str(self.work / "cache"),
            "OMP_NUM_THREADS": "2",
            "RAYON_NUM_THREADS": "5",
            "PYTHONUNBUFFERED": "1",
        }


def tokenize(sitting: Sitting, name: str) -> None:
    """Tokenize the text of a model into the cache, where training finds it."""
    corpus, tokenizer = open_corpus("enwiki"), load_tokenizer(sitting.tokenizer(name))
    for split in ("train", "valid", "test"):
        stream = prepare(corpus, split, tokenizer)
        print(f"{name} {split}: {len(stream.ids):,} tokens of {stream.bytes:,} bytes", flush=True)


def train_one(sitting: Sitting, name: str) -> None:
    """Train a model, or continue it, then round it into the package."""
    model, folder, recipe = MODELS[name], sitting.run(name), sitting.recipe(name)
    while model.base and not is_packed(sitting.packed(model.base.removeprefix(STARTERS))):
        time.sleep(1)
    if model.is_task:
        train_task(sitting, name, recipe)
    else:
        if not is_finished(folder):
            begun = (folder / "manifest.json").is_file()
            tokenizer = None if model.base else load_tokenizer(sitting.tokenizer(name))
            resume = begun and RunFolder.open(folder).has_state
            if begun and not resume:
                shutil.rmtree(folder)
            for event in train_events(None if resume else recipe, folder, resume, tokenizer=tokenizer):
                print(json.dumps(event.as_line()), flush=True)
    pack(sitting, name)


def train_task(sitting: Sitting, name: str, recipe: Recipe) -> None:
    folder, changes = sitting.run(name), list(MODELS[name].tiny) if sitting.is_rehearsal else []
    if is_finished(folder):
        return
    if (folder / "manifest.json").is_file() and RunFolder.open(folder).has_state:
        _, events = finetune.resume(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        plan = make_plan(MODELS[name].recipe, MODELS[name].base, "", changes=changes)
        events = finetune.transfer(plan, folder)
    for event in events:
        print(json.dumps(event.as_line()), flush=True)


# ------------------------------------------------------------------------------------------------ packing


def is_packed(folder: Path) -> bool:
    return (folder / "card.md").is_file() and "rounding" in RunFolder.open(folder).manifest


def is_finished(folder: Path) -> bool:
    return (folder / "manifest.json").is_file() and RunFolder.open(folder).is_finished


def pack(sitting: Sitting, name: str) -> None:
    """Round a finished run into the package, measure it before and after, and write the card."""
    model, source, target = MODELS[name], sitting.run(name), sitting.packed(name)
    if is_packed(target):
        print(f"{name} is packed", flush=True)
        return
    shutil.rmtree(target, ignore_errors=True)
    before = measure(source, model)
    convert(source, target, to=model.storage)
    after = measure(target, model)
    run = RunFolder.open(target)
    rounding = [{"metric": key, "before": before[key], "after": after[key]} for key in before]
    run.seal(license=model.licence, rounding=rounding, commit=(sitting.kit / "commit").read_text())
    if not model.is_task:
        evaluate_finished_run(run)
    for file in ("manifest.json", "log.jsonl"):  # where the text lay is nobody's business
        run.write(file, (target / file).read_text(encoding="utf-8").replace(f"{sitting.work / 'data'}{os.sep}", ""))
    write_card(RunFolder(target, STARTERS + name))
    size = sum(path.stat().st_size for path in target.iterdir()) / MEGABYTE
    print(json.dumps({"packed": name, "megabytes": round(size, 2), "rounding": rounding}), flush=True)


def measure(folder: Path, model: Model) -> dict[str, float]:
    """What is compared before and after rounding, on held-out text."""
    if model.is_task:
        test = find_entry("ud-english-ewt").require_folder() / "en_ewt-ud-test.conllu.xz"  # type: ignore[union-attr]
        scores = predict_file(str(folder), str(test)).scores or {}
        return {f"UD-EWT test {key}": float(value) for key, value in scores.items()}
    run = RunFolder.open(folder)
    recipe, tokenizer, device = run.recipe, load_tokenizer(run.path / "tokenizer.json"), choose_device("auto")
    corpus = open_corpus(recipe.phases[0].data)
    valid = prepare(corpus, "valid", tokenizer)
    network = build_network(recipe, tokenizer)
    network.reload(run.path)
    phase = replace(recipe.phases[0], compile=False, cuda_graphs=False)  # not worth it for one pass
    trainer = Trainer(Job(network, phase, 0, valid, valid, tokenizer.lossless, None, device))
    validation = trainer.compute_validation()
    unit = trainer.objective.unit
    measured = {f"nats per {unit} of held-out Wikipedia": validation.nats}
    if trainer.objective.is_likelihood and tokenizer.lossless and valid.bytes:
        measured["bits per byte of held-out Wikipedia"] = validation.nats / np.log(2) * len(valid.ids) / valid.bytes
    if model.recipe == "bert/embed":
        measured["STS-B dev Spearman"] = similarity(str(folder))[0]
    return measured


def similarity(run: str) -> tuple[float, np.ndarray, np.ndarray]:
    """Spearman's correlation of cosines and judgments on STS-B dev."""
    rows = read_one("STS-B").splits["dev"]
    assert rows.seconds is not None
    assert rows.labels is not None
    lm = load(run)
    u, v = (torch.nn.functional.normalize(lm.embed(list(texts)), dim=1) for texts in (rows.texts, rows.seconds))
    cosines, gold = (u * v).sum(1).numpy(), np.array([float(label) for label in rows.labels])
    return spearman(gold, cosines), gold, cosines


def spearman(gold: np.ndarray, scores: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(gold, scores).statistic)


# ------------------------------------------------------------------------------------------------ the sitting


def train(
    sitting: Sitting, steps: Sequence[tuple[str, float]], names: Sequence[str], limit: float, alone: bool
) -> None:
    """Tokenize all texts at once, and run the steps, each as soon as its tokens are there."""
    started = time.monotonic()
    (sitting.work / "done").unlink(missing_ok=True)
    (sitting.work / "logs").mkdir(parents=True, exist_ok=True)
    package = sitting.packed("bert").parent.parent
    (package / "models").mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    sharing = {} if alone else start_sharing(sitting)
    say("processes share the GPU" if sharing else "processes take turns", started)
    environment = sitting.environment() | sharing
    steps = steps or choose_steps(SHARED if sharing else IN_TURNS, names, sitting.is_rehearsal)
    wanted = [name for names, _ in steps for name in names.split()]
    tokens = {
        name: spawn(sitting, f"tokens-{name}", ["tokens", name], environment)
        for name in wanted
        if not MODELS[name].base and not name.endswith("-backward")
    }
    workers = Workers(sitting, environment)
    for names, minutes in steps:
        own = {
            name: sitting.minutes.get(name) or (not sitting.is_rehearsal and MODELS[name].minutes) or minutes
            for name in names.split()
        }
        for name in own:
            if name.removesuffix("-backward") in tokens:
                tokens[name.removesuffix("-backward")].wait()
        say(f"step: {', '.join(f'{name} ({value:g} min)' for name, value in own.items())}", started)
        for name, value in own.items():
            workers.start(name, value)
        while not all(is_finished(sitting.run(name)) or name in workers.failed for name in own):
            workers.look_after()
        say(f"trained: {names}", started)
        if (time.monotonic() - started) / 60 > limit:
            workers.failed.append(f"{limit:g} minutes are over")
            break
    while workers.running:
        workers.look_after()
    if sharing:
        stop_sharing(environment)
    (sitting.work / "done").write_text(json.dumps(workers.failed))
    say(f"all done; failed: {workers.failed or 'none'}", started)


class Workers:
    """The processes that train and pack; one that fails is resumed once. The next step begins while they pack."""

    def __init__(self, sitting: Sitting, environment: Mapping[str, str]) -> None:
        self.sitting, self.environment = sitting, environment
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.minutes: dict[str, float] = {}
        self.resumed: set[str] = set()
        self.failed: list[str] = []

    def start(self, name: str, minutes: float) -> None:
        self.minutes[name] = minutes
        words = ["one", name, "--minutes", f"{name}={minutes:g}"]
        self.running[name] = spawn(self.sitting, name, words, self.environment)

    def look_after(self) -> None:
        time.sleep(0.5)
        for name, process in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[name]
            if process.returncode and name not in self.resumed:
                self.resumed.add(name)
                self.start(name, self.minutes[name])
            elif process.returncode:
                self.failed.append(name)


def choose_steps(
    plan: Sequence[tuple[str, float]], names: Sequence[str], is_rehearsal: bool
) -> list[tuple[str, float]]:
    """The steps, reduced to some of the models."""
    steps = [(" ".join(n for n in planned.split() if not names or n in names), minutes) for planned, minutes in plan]
    return [(kept, 0.1 if is_rehearsal else minutes) for kept, minutes in steps if kept]


def spawn(
    sitting: Sitting, label: str, words: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start this program for one model, with its output in the log."""
    command = [sys.executable, str(Path(__file__).resolve()), *words, "--work", str(sitting.work)]
    command += ["--rehearse"] if sitting.is_rehearsal else []
    with sitting.log(label).open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=dict(environment))


def start_sharing(sitting: Sitting) -> dict[str, str]:
    """Start NVIDIA's multi-process service, and return the environment of its clients; {} where there is none."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None or not torch.cuda.is_available():
        return {}
    folders = {key: str(sitting.work / "mps") for key in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")}
    (sitting.work / "mps").mkdir(exist_ok=True)
    environment = {**os.environ, **folders}
    subprocess.run([control, "-d"], env=environment, check=False)
    if can_compute(environment):
        return folders
    stop_sharing(environment)
    return {}


def stop_sharing(environment: Mapping[str, str]) -> None:
    subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=dict(environment), check=False)


def can_compute(environment: Mapping[str, str]) -> bool:
    """Whether another process can use the GPU in this environment."""
    code = "import torch; x = torch.ones(64, 64, device='cuda'); print(float((x @ x).sum()))"
    try:
        return not subprocess.run([sys.executable, "-c", code], env=dict(environment), timeout=60).returncode
    except subprocess.TimeoutExpired:
        return False


def say(text: str, started: float) -> None:
    print(f"{(time.monotonic() - started) / 60:5.1f} min  {text}", flush=True)


def status(sitting: Sitting, wait: float) -> None:
    """The last line of every log; with `wait`, after so many seconds or at the end."""
    until = time.monotonic() + wait
    while not (sitting.work / "done").is_file() and time.monotonic() < until:
        time.sleep(1)
    for log in sorted((sitting.work / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime):
        lines = log.read_text(errors="replace").splitlines()
        print(f"{log.stem:>24}  {lines[-1][:400] if lines else ''}")
    print("all done" if (sitting.work / "done").is_file() else "not done yet", flush=True)


def export(sitting: Sitting, names: Sequence[str], out: Path) -> None:
    """A tar file for each packed model, and one of the logs."""
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not is_packed(sitting.packed(name)):
            print(f"{name}: not packed yet")
            continue
        with tarfile.open(out / f"{name}.tar", "w") as archive:
            archive.add(sitting.packed(name), arcname=name)
        print(f"{name}: {(out / f'{name}.tar').stat().st_size / 2**20:.2f} MiB")
    with tarfile.open(out / "logs.tar.gz", "w:gz") as archive:
        archive.add(sitting.work / "logs", arcname="logs")


def check() -> None:
    """End with an error if something is missing that only a later step would import; say what there is."""
    import numba
    import sklearn

    modules = (numba, np, sklearn, torch)
    print(", ".join(f"{module.__name__} {module.__version__}" for module in modules))
    print(f"{torch.cuda.get_device_name()}, {len(os.sched_getaffinity(0))} cores")
    print(f"multi-process service: {shutil.which('nvidia-cuda-mps-control') or 'none'}")


def unpack(files: Sequence[Path], target: Path) -> None:
    for file in files:
        with tarfile.open(file) as archive:
            archive.extractall(target, filter="data")
        run = RunFolder.open(target / file.stem)
        run.verify()
        print(f"{file.stem}: {(run.path / FILE).stat().st_size / MEGABYTE:.2f} MB")


# ------------------------------------------------------------------------------------------------ before


def prepare_kit(sitting: Sitting, models: Sequence[str]) -> None:
    """Tokenizers, the text in two parts, small data sets and small packages, into carry/."""
    sitting.kit.mkdir(parents=True, exist_ok=True)
    (sitting.kit / "commit").write_text(git_commit())  # which the machine with the GPU cannot know
    for name in ("ud-english-ewt", "glue/STS-B"):
        copy_small_data(name, sitting.kit / "data")
    folder = Path(tomli_w.__file__).parent  # small, and not on every machine with torch
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(folder, sitting.kit / "packages" / folder.name, dirs_exist_ok=True, ignore=ignored)
    entry = find_entry("enwiki")
    assert entry is not None
    parts = sorted(entry.require_folder().glob("enwiki-*.jsonl.xz"))
    if sitting.is_rehearsal:
        cut_text(parts[0], sitting.kit / "a" / "enwiki" / parts[0].name)
        os.environ["NEXTWORD_DATA"] = str(sitting.kit / "a")
    else:
        for part in parts:
            folder = CARRY / part.name.split(".")[0].rsplit("-", 1)[1]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / part.name).write_bytes(part.read_bytes())
    corpus = open_corpus("enwiki")
    (sitting.kit / "tokenizers").mkdir(parents=True, exist_ok=True)
    for name in models:
        file = sitting.tokenizer(name)
        if MODELS[name].base or name.endswith("-backward") or file.is_file():
            continue
        began = time.perf_counter()
        recipe = load_recipe(MODELS[name].recipe, MODELS[name].tiny if sitting.is_rehearsal else ())
        build_tokenizer(recipe, corpus).save(file)
        print(f"tokenizer of {name}: {time.perf_counter() - began:.0f} s", flush=True)


def copy_small_data(name: str, home: Path) -> None:
    """Copy the folder of a data set from the first folder of NEXTWORD_DATA that has it."""
    homes = [Path(home) for home in os.environ.get("NEXTWORD_DATA", "").split(os.pathsep)]
    source = next((home / name for home in homes if (home / name).is_dir()), None)
    if source is None:
        sys.exit(f"{name} is in no folder of NEXTWORD_DATA")
    target = home / name
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.is_file():
            (target / path.name).write_bytes(path.read_bytes())


def cut_text(source: Path, target: Path, size: int = 3_000_000) -> None:
    """The beginning of a text, for a rehearsal."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(source, "rb") as file, lzma.open(target, "wb", preset=0) as out:
        done = 0
        for line in file:
            out.write(line)
            done += len(line)
            if done > size:
                return


# ------------------------------------------------------------------------------------------------ judging


@dataclass(frozen=True)
class Judgment:
    """A goal beside what was measured. Scores are percentages, or 100 times a correlation."""

    goal: str
    aim: float
    value: float
    low: float
    high: float
    seconds: float
    setting: str
    reference: float | None = None  # of a baseline on the same examples
    model: str = "starter/bert"

    def row(self) -> list[str]:
        reference = "" if self.reference is None else f"{self.reference:.1f}"
        verdict = "reached" if self.value >= self.aim else "missed"
        interval = f"{self.low:.1f}–{self.high:.1f}"
        return [
            self.goal,
            f"{self.aim:.1f}",
            f"{self.value:.1f}",
            interval,
            reference,
            verdict,
            f"{self.seconds:.0f} s",
        ]


TOPICS = ("business", "politics", "sport", "tech")
WORDS = 40  # of a snippet, as many as AG News has


def snippets(rows: int, articles: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Pieces of articles with their topics, in random order."""
    pieces = []
    for article in articles:
        words = article["article"].split()
        for at in range(0, max(len(words) - WORDS // 2, 1), WORDS):
            pieces.append((" ".join(words[at : at + WORDS]), article["topic"]))
    random.Random(1).shuffle(pieces)
    return pieces[:rows]


def topic_data(folder: Path, data: Path, rows: int, tests: int) -> Path:
    """Snippets of BBC News of four topics, a stand-in for AG News; no article is in train and test."""
    with lzma.open(data / "bbc-news-summary" / "bbc.jsonl.xz", "rt", encoding="utf-8") as file:
        articles = [article for line in file if (article := json.loads(line))["topic"] in TOPICS]
    random.Random(0).shuffle(articles)
    held = len(articles) // 4
    target = folder / f"topics-{rows}"
    write_csv(target / "train.csv", ("text", "label"), snippets(rows, articles[held:]))
    write_csv(target / "test.csv", ("text", "label"), snippets(tests, articles[:held]))
    return target


def pair_data(folder: Path, rows: int, is_graded: bool) -> Path:
    """Pairs of STS-B: their likeness from 0 to 5, or three classes of it, a stand-in for SICK's two tasks."""
    data = read_one("STS-B")
    target = folder / ("likeness" if is_graded else "relation")
    for split, name, limit in (("train", "train", rows), ("dev", "test", None)):
        some = data.splits[split]
        assert some.seconds is not None
        assert some.labels is not None
        labels = [label if is_graded else relation(float(label)) for label in some.labels]
        triples = list(zip(some.texts, some.seconds, labels, strict=True))
        random.Random(0).shuffle(triples)
        write_csv(target / f"{name}.csv", ("sentence1", "sentence2", "label"), triples[:limit])
    return target


def relation(likeness: float) -> str:
    return "same" if likeness >= 4 else "related" if likeness >= 2 else "other"


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def transfer(recipe: str, source: str, data: Path | str, out: Path, *more: str) -> tuple[dict[str, Any], float]:
    """Run `nextword transfer` as a user does; its result, and the seconds that all of it took."""
    command = [sys.executable, "-m", "nextword", "transfer", recipe, "--data", str(data), "--out", str(out), "--quiet"]
    command += ["--from", source] if source else []
    began = time.perf_counter()
    subprocess.run([*command, *more], check=True, stdout=subprocess.DEVNULL)
    result = finetune.read_result(out)
    assert result is not None
    return result, time.perf_counter() - began


def best_baseline(result: Mapping[str, Any], split: str, metric: str) -> float | None:
    scores = [method[split][metric] for method in result["baselines"][0]["methods"] if split in method]
    return 100 * max(scores) if scores else None


def judge_class(
    goal: str, aim: float, above: float | None, data: Path, out: Path, source: str, more: Sequence[str]
) -> Judgment:
    """Fine-tune on classes; the aim is a score, or so many points above the best baseline."""
    result, seconds = transfer("bert/finetune", source, data, out, *more)
    value, total = result["test"]["accuracy"], result["examples"]["test"]
    low, high = wilson(round(value * total), total)
    reference = best_baseline(result, "test", "accuracy")
    aim = aim if above is None else (reference or 0) + above
    setting = f"{result['examples']['train']:,} training rows, {total:,} test rows of {data.name}"
    return Judgment(goal, aim, 100 * value, 100 * low, 100 * high, seconds, setting, reference)


def judge_numbers(goal: str, aim: float, data: Path, out: Path, source: str, more: Sequence[str]) -> Judgment:
    result, seconds = transfer("bert/finetune", source, data, out, *more)
    with np.load(out / finetune.PREDICTIONS) as predictions:
        scores = predictions["test"][:, 0].astype(float)
    with (data / "test.csv").open(encoding="utf-8", newline="") as file:
        gold = np.array([float(row["label"]) for row in csv.DictReader(file)])
    setting = f"{result['examples']['train']:,} training pairs, {len(gold):,} test pairs of STS-B"
    return correlation(goal, aim, gold, scores, seconds, setting, best_baseline(result, "test", "spearman"))


def correlation(
    goal: str,
    aim: float,
    gold: np.ndarray,
    scores: np.ndarray,
    seconds: float,
    setting: str,
    reference: float | None = None,
    model: str = "starter/bert",
) -> Judgment:
    """Spearman's, with its bootstrap interval."""
    draw = np.random.default_rng(0)
    samples = [draw.integers(len(gold), size=len(gold)) for _ in range(500)]
    values = [spearman(gold[rows], scores[rows]) for rows in samples]
    low, high = np.quantile(values, (0.025, 0.975))
    value = 100 * spearman(gold, scores)
    return Judgment(goal, aim, value, 100 * low, 100 * high, seconds, setting, reference, model)


def judge_prompted(goal: str, aim: float, run: str, file: Path, limit: int, folder: Path) -> Judgment:
    """Zero-shot topics."""
    from nextword.tasks.predict import Prompt

    began = time.perf_counter()
    with file.open(encoding="utf-8", newline="") as opened:
        rows = [(row["text"], row["label"]) for row in csv.DictReader(opened)][:limit]
    some = folder / "asked.csv"
    write_csv(some, ("text", "label"), rows)
    predictions = predict_file(run, str(some), prompt=Prompt(TOPICS, is_calibrated=run.endswith("gpt2")))
    value = predictions.scores["accuracy"]
    low, high = wilson(round(value * len(rows)), len(rows))
    setting = f"{len(rows):,} snippets of BBC News, four topics, chance 25"
    seconds = time.perf_counter() - began
    return Judgment(goal, aim, 100 * value, 100 * low, 100 * high, seconds, setting, model=run)


def judge_tagger(
    goal: str, aim: float, result: Mapping[str, Any], metric: str, seconds: float, setting: str, model: str
) -> Judgment:
    """Tags of the test set. The interval is that of as many independent words or names."""
    value, total = result[metric], {"token_accuracy": 25_000, "span_f1": 5_600}[metric]
    low, high = wilson(round(value * total), total)
    return Judgment(goal, aim, 100 * value, 100 * low, 100 * high, seconds, setting, model=model)


def record(judgments: Sequence[Judgment]) -> None:
    """Write what was measured into the cards of the models."""
    for name in {judgment.model for judgment in judgments}:
        run = RunFolder.open(name)
        own = [judgment for judgment in judgments if judgment.model == name]
        rows = [f"{j.goal} {j.value:.1f} ({j.low:.1f}–{j.high:.1f}; {j.setting})" for j in own]
        run.seal(measured=rows)
        write_card(run)


def judge(
    data: Path, wanted: Sequence[str], out: Path | None, is_recorded: bool, vectors: str, is_rehearsal: bool
) -> None:
    """Measure every goal, in the order of their cost, and print a table."""
    rows, tests, limit = (60, 40, 12) if is_rehearsal else (6000, 2000, 500)
    short = ["--set", "phase.0.steps=3"] if is_rehearsal else []
    with tempfile.TemporaryDirectory(prefix="nextword-judge-") as scratch:
        folder = Path(scratch)
        topics, few = topic_data(folder, data, rows, tests), topic_data(folder, data, min(rows, 200), tests)
        graded, classes = pair_data(folder, min(rows, 4500), True), pair_data(folder, min(rows, 4500), False)

        def search() -> Judgment:
            began = time.perf_counter()
            _, gold, cosines = similarity(vectors)
            seconds = time.perf_counter() - began
            setting = f"{len(gold):,} pairs of STS-B dev"
            return correlation("semantic search", 70, gold, cosines, seconds, setting, model=vectors)

        def pos() -> Judgment:
            began = time.perf_counter()
            test = data / "ud-english-ewt" / "en_ewt-ud-test.conllu.xz"
            scores = predict_file("starter/pos", str(test)).scores
            return judge_tagger(
                "parts of speech",
                95.5,
                scores,
                "token_accuracy",
                time.perf_counter() - began,
                "UD-EWT test",
                "starter/pos",
            )

        def names() -> Judgment:
            result, seconds = transfer("bert/names", "starter/bert", "conll2003", folder / "names", *short)
            return judge_tagger("names", 88, result["test"], "span_f1", seconds, "CoNLL-2003 test", "starter/bert")

        def names_elmo() -> Judgment:
            words = ("--features", "starter/elmo", *short)
            result, seconds = transfer("tagger/small", "", "conll2003", folder / "names-elmo", *words)
            return judge_tagger(
                "names, elmo", 88, result["test"], "span_f1", seconds, "CoNLL-2003 test", "starter/elmo"
            )

        goals: dict[str, Callable[[], Judgment]] = {
            "search": search,
            "zero-embed": lambda: judge_prompted(
                "zero-shot topics, embed", 60, vectors, topics / "test.csv", limit, folder
            ),
            "zero-gpt2": lambda: judge_prompted(
                "zero-shot topics, gpt2", 60, "starter/gpt2", topics / "test.csv", limit, folder
            ),
            "pos": pos,
            "few": lambda: judge_class("topics, 200 rows", 0, 8, few, folder / "few", "starter/bert", short),
            "pairs": lambda: judge_class("relation of pairs", 0, 4.1, classes, folder / "pairs", "starter/bert", short),
            "likeness": lambda: judge_numbers(
                "likeness of pairs", 75, graded, folder / "graded", "starter/bert", short
            ),
            "topics": lambda: judge_class(
                "topics, 6,000 rows", 0, 1.1, topics, folder / "topics", "starter/bert", short
            ),
            "names": names,
            "names-elmo": names_elmo,
        }
        judgments = []
        for name, goal in goals.items():
            if wanted and name not in wanted:
                continue
            judgments.append(goal())
            print(f"{name}: {judgments[-1]}", flush=True)
    header = ["", "goal", "measured", "95 %", "baseline", "", "time"]
    print("\n| " + " | ".join(header) + " |\n| --- |" + " ---: |" * (len(header) - 1))
    for judgment in judgments:
        print(f"| {' | '.join(judgment.row())} |")
    print("\n" + "\n".join(f"- {judgment.goal}: {judgment.setting}" for judgment in judgments))
    if is_recorded:
        record(judgments)
    if out:
        out.write_text(json.dumps([vars(judgment) for judgment in judgments], indent=1) + "\n")


# ------------------------------------------------------------------------------------------------ command line


def minutes_of(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    if name not in MODELS:
        raise argparse.ArgumentTypeError(f"expected MODEL=MINUTES, with a model of {', '.join(MODELS)}")
    return name, float(value)


def step_of(text: str) -> tuple[str, float]:
    names, _, value = text.rpartition("=")
    unknown = [name for name in names.split("+") if name not in MODELS]
    if unknown:
        raise argparse.ArgumentTypeError(f"expected MODEL+MODEL=MINUTES; there is no {', '.join(unknown)}")
    return names.replace("+", " "), float(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "command", choices=("prepare", "check", "tokens", "one", "train", "status", "export", "unpack", "judge")
    )
    parser.add_argument("names", nargs="*", help="models; of unpack: files; of judge: goals")
    parser.add_argument("--work", type=Path, default=Path("runs/starters"), help="folder of the training")
    parser.add_argument("--rehearse", action="store_true", help="tiny networks and little text")
    parser.add_argument("--minutes", type=minutes_of, action="append", default=[], metavar="MODEL=MINUTES")
    parser.add_argument("--step", type=step_of, action="append", default=[], metavar="MODEL+MODEL=MINUTES")
    parser.add_argument("--limit", type=float, default=22, help="minutes after which no step begins")
    parser.add_argument("--alone", action="store_true", help="no multi-process service: the steps for taking turns")
    parser.add_argument("--detach", action="store_true", help="train: go on in the background")
    parser.add_argument("--wait", type=float, default=0, help="status: seconds to wait for the end")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/starters/export"), help="export: folder of the tar files"
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="judge: folder of the data sets")
    parser.add_argument("--embed", default="starter/embed", help="judge: the model of sentence vectors")
    parser.add_argument("--record", action="store_true", help="judge: write the results into the models' cards")
    parser.add_argument("--json", type=Path, help="judge: also write the results to this file")
    asked = parser.parse_intermixed_args()
    sitting = Sitting(asked.work.resolve(), asked.rehearse, dict(asked.minutes))
    names = asked.names
    if asked.command == "prepare":
        prepare_kit(sitting, names or list(MODELS))
    elif asked.command == "check":
        check()
    elif asked.command == "tokens":
        tokenize(sitting, names[0])
    elif asked.command == "one":
        train_one(sitting, names[0])
    elif asked.command == "train" and asked.detach:
        words = [word for word in sys.argv[1:] if word != "--detach"]
        asked.work.mkdir(parents=True, exist_ok=True)
        with (asked.work / "train.log").open("ab") as log:
            command = [sys.executable, str(Path(__file__).resolve()), *words]
            process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=sitting.environment()
            )
        print(f"training in the background, process {process.pid}")
    elif asked.command == "train":
        train(sitting, asked.step, names, asked.limit, asked.alone)
    elif asked.command == "status":
        status(sitting, asked.wait)
    elif asked.command == "export":
        export(sitting, names or list(MODELS), asked.out)
    elif asked.command == "unpack":
        package = sitting.package if sitting.is_rehearsal else PACKAGE
        unpack([Path(name) for name in names], package / "nextword_starters" / "models")
    else:
        judge(asked.data, names, asked.json, asked.record, asked.embed, asked.rehearse)


if __name__ == "__main__":
    main()
