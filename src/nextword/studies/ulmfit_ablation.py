"""Does every part of ULMFiT lower the error? Each part is left out in turn.

Claim: pretraining, fine-tuning on the texts of the task, discriminative learning rates, slanted triangular learning
rates, gradual unfreezing and two directions all lower the error (Howard & Ruder 2018).

    general text ─▶ texts of the task ─▶ its labels               left out: the first stage, the second, or both
                    └ rates divided by 2.6 per layer ┘             one learning rate for all layers
                    └ slanted triangular rates ──────┘             a constant learning rate
                                         └ gradual unfreezing      all layers at once
                                         └ last, max, mean pool    the last vector only
    from the left and from the right, probabilities averaged      one direction

Measured: the test error of small networks with a few hundred labels; every seed has its own language models.

Verdict: leaving out any of the parts must raise the error, and both directions together must have a lower error than
one. Concatenated pooling and the backward direction alone are side results.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nextword import tasks as transfer
from nextword.core.errors import NextwordError
from nextword.data.opening import open_unsplit
from nextword.data.tables import Rows
from nextword.lm.loading import load
from nextword.recipe import load_recipe
from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import run_parallel
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies.elmo_layers import cache_in
from nextword.tasks.classification import Classifier
from nextword.tasks.text_data import read_text_data
from nextword.training.train import train_events


@dataclass(frozen=True)
class Size:
    examples: tuple[int, int, int] = (500, 300, 500)  # train, dev, test
    general: int = 1500  # steps of the first stage, of 16 rows of 32 words
    tuned: int = 300  # steps of the second
    epochs: int = 6  # of the third, with all layers unfrozen
    embedding: int = 64
    width: int = 128

    @property
    def network(self) -> list[str]:
        return [f"model.embedding={self.embedding}", f"model.width={self.width}"]


CLAIM = Claim(
    "Every part of ULMFiT lowers the error: pretraining, fine-tuning on the texts of the task, discriminative and "
    "slanted triangular learning rates, gradual unfreezing, and two directions.",
    "Howard & Ruder 2018, section 5, tables 4, 6 and 7; both directions: section 5, at its end",
)
FULL = Size()
QUICK = Size(examples=(120, 60, 120), general=60, tuned=30, epochs=1, embedding=24, width=32)
GENERAL, TUNED, CLASSIFIED = "ulmfit/tiny", "ulmfit/tiny-lm", "ulmfit/tiny-classify"  # recipes of the stages
SOURCES = (("TREC-6", "wikitext-2"), ("SST-5", "wikitext-2"))  # task and general text: the first on this machine
BOOKS = "books of the World English Bible"  # on every machine: which part of the Bible is a verse from?
BOOK_PARTS = {  # the first book of each part
    "Genesis": "law",
    "Joshua": "history",
    "Job": "poetry",
    "Isaiah": "prophets",
    "Matthew": "gospels",
    "Romans": "letters",
}
SPLITS = ("train", "dev", "test")

COMPLETE, NO_PRETRAINING, NO_TUNING, NEITHER = "complete", "no pretraining", "no tuning", "neither"
ONE_RATE, CONSTANT, AT_ONCE, LAST = "one rate", "constant rate", "unfrozen at once", "last vector"
BACKWARD, BOTH = "backward", "both directions"
OFF = {ONE_RATE: "phase.*.optimizer.layer_discount=1", CONSTANT: "phase.*.schedule=constant"}  # in stages 2 and 3
SECOND_STAGES = (COMPLETE, NO_PRETRAINING, ONE_RATE, CONSTANT, BACKWARD)
CLASSIFIERS = (COMPLETE, NO_PRETRAINING, NO_TUNING, NEITHER, ONE_RATE, CONSTANT, AT_ONCE, LAST, BACKWARD)
ERROR, DIFFERENCE = "error, %", "minus complete"


# ------------------------------------------------------------------------------------------------ the task


def write_task(folder: Path, counts: Sequence[int]) -> tuple[str, str]:
    """Write a sample of each split, and all texts without labels; return the names of the task and the general text."""
    name, text, splits = _find_task()
    folder.mkdir(parents=True)
    texts = []
    for split, count in zip(SPLITS, counts, strict=True):
        rows = splits[split]
        texts += rows.texts
        few = rows.take(np.random.default_rng(len(rows)).permutation(len(rows)).tolist()[:count])
        lines = ({"text": t, "label": label} for t, label in zip(few.texts, few.labels or (), strict=True))
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    unlabeled = "".join(json.dumps({"text": t}) + "\n" for t in texts)
    folder.with_suffix(".texts.jsonl").write_text(unlabeled, encoding="utf-8")
    return name, text


def _find_task() -> tuple[str, str, Mapping[str, Rows]]:
    for name, text in SOURCES:
        try:
            splits = read_text_data(name).splits
            open_unsplit(text)
        except NextwordError:  # not on this machine
            continue
        return name, text, splits
    return BOOKS, "kjv", make_verses()


def make_verses() -> dict[str, Rows]:
    """Verses labeled with their part of the Bible; whole chapters are assigned to splits."""
    verses: dict[str, tuple[list[str], list[str]]] = {split: ([], []) for split in SPLITS}
    corpus = open_unsplit("web")
    part, chapters = "", [chapter for split in corpus.splits for chapter in corpus.documents(split)]
    for i, chapter in enumerate(chapters):
        part = BOOK_PARTS.get(chapter.title.rpartition(" ")[0], part)
        texts, labels = verses["dev" if i % 10 == 3 else "test" if i % 10 == 7 else "train"]
        long = [verse for verse in chapter.text.splitlines() if len(verse.split()) > 5]
        texts += long
        labels += [part] * len(long)
    return {split: Rows(texts, labels=labels) for split, (texts, labels) in verses.items()}


# ------------------------------------------------------------------------------------------------ the stages


class Prediction(NamedTuple):
    """Class probabilities of the test examples."""

    p: np.ndarray  # (n, classes)
    gold: np.ndarray  # (n,)

    @property
    def error(self) -> float:
        """In %."""
        return 100 * float((self.p.argmax(1) != self.gold).mean())


def run_stage_1(out: str, text: str, seed: int, backward: bool, size: Size) -> None:
    changes = [*size.network, f"phase.0.steps={size.general}", f"phase.0.validate_every={size.general}"]
    _train(GENERAL, changes + _direction(backward), text, out, seed)


def run_stage_2(out: str, texts: str, init: str, variant: str, seed: int, size: Size) -> None:
    changes = [*size.network, f"phase.1.steps={size.tuned}", f"phase.1.validate_every={size.tuned}"]
    changes += (
        ["phase.0.init_from=''", "phase.*.trainable_groups=0"]
        if variant == NO_PRETRAINING
        else [f"phase.0.init_from={init}"]
    )
    changes += [OFF[variant]] if variant in OFF else []
    _train(TUNED, changes + _direction(variant == BACKWARD), texts, out, seed)


def run_stage_3(out: str, data: str, source: str, variant: str, seed: int, size: Size) -> Prediction:
    changes = [f"phase.all.epochs={size.epochs}"]
    changes += [OFF[variant]] if variant in OFF else []
    changes += (
        ["phase.*.trainable_groups=0"] if variant == AT_ONCE else ["task.pooling=last"] if variant == LAST else []
    )
    transfer.run(CLASSIFIED, source, data, out, seed=seed, scratch=variant == NEITHER, changes=changes, device="cpu")
    model: Classifier = load(out, "cpu")
    rows = read_text_data(data).splits["test"]
    return Prediction(model.task.decode(model.logits(rows.texts)), model.task.encode_labels(rows.labels or ()))


def _direction(backward: bool) -> list[str]:
    return ["model.backward=true"] if backward else []


def _train(recipe: str, changes: Sequence[str], data: str, out: str, seed: int) -> None:
    seeded = [*changes, *(f"phase.{i}.seed={seed + 1000 * i}" for i in range(len(load_recipe(recipe).phases)))]
    for _ in train_events(load_recipe(recipe, seeded).with_data([data]), out, device="cpu"):
        pass


# ------------------------------------------------------------------------------------------------ measure

Key = tuple[str, int]  # variant, seed


def measure(settings: Settings, progress: Progress) -> Measured:
    size = QUICK if settings.quick else FULL
    with tempfile.TemporaryDirectory() as name, cache_in(Path(name) / "cache"):
        folder = Path(name)
        task, general = write_task(folder / "task", size.examples)
        general = settings.data or general
        predictions = _run_stages(folder, general, settings.seeds, size, progress)
    return make_tables(predictions, settings.seeds), {
        "data": f"{task}: {', '.join(f'{n:,}' for n in size.examples)} examples of train, dev and test; all its texts "
        f"for the second stage, {general} for the first",
        "network": f"AWD-LSTM, 2 layers of {size.width}, embeddings of {size.embedding}; {size.general:,} steps of 16 "
        f"rows of 32 words, then 50 and {size.tuned:,} of 8 rows, then 3 + {size.epochs} epochs of 16 texts",
        "intervals": "95 %, Student's t over seeds, paired; each seed has its own language models",
    }


def _run_stages(
    folder: Path, general: str, seeds: Sequence[int], size: Size, progress: Progress
) -> dict[Key, Prediction]:
    """One stage after the other; all runs of a stage in parallel."""
    total = len(seeds) * (2 + len(SECOND_STAGES) + len(CLASSIFIERS))
    data, texts = str(folder / "task"), str(folder / "task.texts.jsonl")

    def report(before: int, done: float, _: float) -> None:
        progress(before + done, total)

    def path(*parts: object) -> str:
        return str(folder / "-".join(map(str, parts)).replace(" ", "_"))

    jobs: dict[Any, Any] = {
        (b, seed): (run_stage_1, (path(1, b, seed), general, seed, b, size)) for seed in seeds for b in (False, True)
    }
    run_parallel(jobs, partial(report, 0))
    done = len(jobs)
    jobs = {
        (v, seed): (run_stage_2, (path(2, v, seed), texts, path(1, v == BACKWARD, seed), v, seed, size))
        for seed in seeds
        for v in SECOND_STAGES
    }
    run_parallel(jobs, partial(report, done))
    done += len(jobs)

    def source(variant: str, seed: int) -> str:
        if variant == NO_TUNING:
            return path(1, False, seed)
        return path(2, variant if variant in SECOND_STAGES else COMPLETE, seed)

    jobs = {
        (v, seed): (run_stage_3, (path(3, v, seed), data, source(v, seed), v, seed, size))
        for seed in seeds
        for v in CLASSIFIERS
    }
    return run_parallel(jobs, partial(report, done))


def make_tables(predictions: Mapping[Key, Prediction], seeds: Sequence[int]) -> dict[str, Table]:
    def errors(variant: str) -> list[float]:
        if variant != BOTH:
            return [predictions[variant, seed].error for seed in seeds]
        pairs = [(predictions[COMPLETE, seed], predictions[BACKWARD, seed]) for seed in seeds]
        return [Prediction((forward.p + backward.p) / 2, forward.gold).error for forward, backward in pairs]

    complete = errors(COMPLETE)
    rows = [
        (v, stats.median_and_range(errors(v)), None if v == COMPLETE else stats.paired_difference(errors(v), complete))
        for v in (*CLASSIFIERS, BOTH)
    ]
    title = "Test error in %, median and range; difference in points, mean and 95 % interval"
    return {"errors": Table(title, ("variant", ERROR, DIFFERENCE), rows)}


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    table = tables["errors"]
    statements = {
        NO_PRETRAINING: "Without pretraining on general text the error is higher.",
        NO_TUNING: "Without fine-tuning the language model on the texts of the task the error is higher.",
        NEITHER: "Without either the error is higher.",
        ONE_RATE: "With one learning rate for all layers the error is higher.",
        CONSTANT: "With a constant learning rate the error is higher.",
        AT_ONCE: "With all layers unfrozen at once the error is higher.",
    }
    differs = _judge(
        table, BACKWARD, "The backward direction has a different error than the forward one.", decides=False
    )
    return [
        *(_judge(table, variant, statement) for variant, statement in statements.items()),
        _judge(table, BOTH, "Both directions together have a lower error than one.", stats.is_below),
        _judge(table, LAST, "With the last vector only the error is higher.", decides=False),
        replace(differs, holds=None if differs.holds is None else True),
    ]


def _judge(table: Table, variant: str, statement: str, test: stats.Test = stats.is_above, decides: bool = True) -> Part:
    error, points = (table.cell(column, variant=variant) for column in (ERROR, DIFFERENCE))
    complete = table.cell(ERROR, variant=COMPLETE)
    evidence = f"{variant.capitalize()}: {error[0]:.1f} %, {points[0]:+.1f} points from {complete[0]:.1f} %."
    evidence = evidence.replace("-", "−")
    return stats.judge_interval(statement, points, evidence, "difference in points", 1, test=test, decides=decides)


# ------------------------------------------------------------------------------------------------ draw


def draw(tables: Tables, figure: plot.Figure) -> None:
    """Points above or below the complete ULMFiT."""
    (axes,) = plot.panels(figure, 8, 4.2, 1)
    rows = [row for row in tables["errors"].rows if row[2] is not None]
    for y, (_, error, points) in enumerate(rows):
        plot.dot(axes, points, y, plot.VERMILION if points[0] > 0 else plot.BLUE)
        axes.annotate(f"{error[0]:.1f} %", (1.01, y), xycoords=("axes fraction", "data"), va="center", color=plot.INK)
    axes.axvline(0, color=plot.INK, linewidth=1)
    title = f"Complete ULMFiT: {tables['errors'].cell(ERROR, variant=COMPLETE)[0]:.1f} % error on the test examples"
    label = "points of error above the complete ULMFiT, mean and 95 % interval"
    plot.name_rows(axes, [row[0] for row in rows], label, title)
