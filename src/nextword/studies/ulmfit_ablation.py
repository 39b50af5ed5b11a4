"""Does every part of ULMFiT count? Each is left out in turn, and the error of what is left is held beside the whole.

    general text ─▶ the task's texts ─▶ its labels                   left out: the first stage, the second, or both
                    └─ rates divided by 2.6 a layer ─┘               one rate for all layers
                    └─ slanted triangles ────────────┘               a constant rate
                                         └ layers one by one         all layers at once
                                         └ last, greatest, mean      the last vector alone
    from the left, and from the right: probabilities averaged        one direction

Small networks, a few hundred labels; every seed has language models of its own.

Small trainings for the study of ULMFiT's parts: a task, and the three stages with one part or another left out.

general text ──▶ stage 1 ──▶ stage 2, on the task's texts ──▶ stage 3, on its labels ──▶ probabilities of test
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nextword import tasks as transfer
from nextword.core.errors import NextwordError
from nextword.data.opening import open_whole
from nextword.data.tables import Rows
from nextword.lm.loading import load
from nextword.recipe import load_recipe
from nextword.studies._experiment import spread
from nextword.studies._study import (
    BLUE,
    GREY,
    INK,
    NO_INTERVAL,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    above,
    below,
    bounded,
    in_pairs,
    judged,
    over_seeds,
)
from nextword.studies.elmo_layers import cache_in
from nextword.tasks.data import open_data
from nextword.training.train import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GENERAL, TUNED, CLASSIFIED = "ulmfit/tiny", "ulmfit/tiny-lm", "ulmfit/tiny-classify"
SOURCES = (("TREC-6", "wikitext-2"), ("SST-5", "wikitext-2"))  # task and general text: the first that are here
BOOKS = "books of the World English Bible"  # on every machine: of which part of it is a verse?
PARTS = {  # the first book of each
    "Genesis": "law",
    "Joshua": "history",
    "Job": "poetry",
    "Isaiah": "prophets",
    "Matthew": "gospels",
    "Romans": "letters",
}
SPLITS = ("train", "dev", "test")
ALL, ALONE, ONE_RATE, CONSTANT, BACKWARD = "all parts", "no pretraining", "one rate", "constant rate", "backwards"
NO_TUNING, NEITHER, AT_ONCE, LAST = "no tuning", "neither", "thawed at once", "last vector"
TOGETHER = "both directions"
OFF = {ONE_RATE: "phase.*.optimizer.discount=1", CONSTANT: "phase.*.schedule=constant"}  # in stages 2 and 3
TUNINGS = (ALL, ALONE, ONE_RATE, CONSTANT, BACKWARD)  # ways of the second stage
CLASSIFIERS = (ALL, ALONE, NO_TUNING, NEITHER, ONE_RATE, CONSTANT, AT_ONCE, LAST, BACKWARD)


@dataclass(frozen=True)
class Size:
    examples: tuple[int, int, int] = (500, 300, 500)  # train, dev, test
    general: int = 1500  # steps of the first stage, of 16 rows of 32 words
    tuned: int = 300  # of the second
    epochs: int = 6  # of the third, when all layers learn
    embedding: int = 64
    width: int = 128

    @property
    def network(self) -> list[str]:
        return [f"model.embedding={self.embedding}", f"model.width={self.width}"]


@dataclass(frozen=True)
class Said:
    """What a classifier says of the test examples."""

    p: np.ndarray  # (n, classes)
    gold: np.ndarray  # (n,)

    @property
    def error(self) -> float:
        """In %."""
        return 100 * float((self.p.argmax(1) != self.gold).mean())


# ------------------------------------------------------------------------------------------------ the task


def write_task(folder: Path, counts: Sequence[int]) -> tuple[str, str]:
    """The beginning of each split, and all its texts without labels: the task's name, and the general text's."""
    name, text, splits = _found()
    folder.mkdir(parents=True)
    texts = []
    for split, count in zip(SPLITS, counts, strict=True):
        rows = splits[split]
        texts += rows.texts
        few = rows.take(_drawn(len(rows))[:count])
        lines = ({"text": t, "label": label} for t, label in zip(few.texts, few.labels or (), strict=True))
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    plain = "".join(json.dumps({"text": t}) + "\n" for t in texts)
    folder.with_suffix(".texts.jsonl").write_text(plain, encoding="utf-8")
    return name, text


def _drawn(size: int) -> list[int]:
    return np.random.default_rng(size).permutation(size).tolist()


def _found() -> tuple[str, str, Mapping[str, Rows]]:
    for name, text in SOURCES:
        try:
            splits = open_data(name).splits
            open_whole(text)
        except NextwordError:  # not on this machine
            continue
        return name, text, splits
    return BOOKS, "kjv", _verses()


def _verses() -> dict[str, Rows]:
    """Verses with the part of the book that they are of; chapters, not verses, are shared out among the splits."""
    found: dict[str, tuple[list[str], list[str]]] = {split: ([], []) for split in SPLITS}
    corpus = open_whole("web")
    part, chapters = "", [one for split in corpus.splits for one in corpus.documents(split)]
    for i, chapter in enumerate(chapters):
        part = PARTS.get(chapter.title.rpartition(" ")[0], part)
        texts, labels = found["dev" if i % 10 == 3 else "test" if i % 10 == 7 else "train"]
        verses = [verse for verse in chapter.text.splitlines() if len(verse.split()) > 5]
        texts += verses
        labels += [part] * len(verses)
    return {split: Rows(texts, labels=labels) for split, (texts, labels) in found.items()}


# ------------------------------------------------------------------------------------------------ the stages


def first(out: str, text: str, seed: int, backward: bool, size: Size) -> None:
    changes = [*size.network, f"phase.0.steps={size.general}", f"phase.0.validate={size.general}"]
    _trained(GENERAL, [*changes, *_turned(backward)], text, out, seed)


def second(out: str, texts: str, init: str, how: str, seed: int, size: Size) -> None:
    changes = [*size.network, f"phase.1.steps={size.tuned}", f"phase.1.validate={size.tuned}"]
    changes += [f"phase.0.init={init}"] if how != ALONE else ["phase.0.init=''", "phase.*.trains=0"]
    changes += [OFF[how]] if how in OFF else []
    _trained(TUNED, [*changes, *_turned(how == BACKWARD)], texts, out, seed)


def third(out: str, data: str, source: str, how: str, seed: int, size: Size) -> Said:
    changes = [f"phase.all.epochs={size.epochs}"]
    changes += [OFF[how]] if how in OFF else []
    changes += ["phase.*.trains=0"] if how == AT_ONCE else ["task.reads=last"] if how == LAST else []
    transfer.run(CLASSIFIED, source, data, out, seed=seed, scratch=how == NEITHER, changes=changes, device="cpu")
    model: Any = load(out, "cpu")
    rows = open_data(data).splits["test"]
    return Said(model.settings.decoded(model.said(rows.texts)), model.settings.encoded(rows.labels or ()))


def _turned(backward: bool) -> list[str]:
    return ["model.backward=true"] if backward else []


def _trained(recipe: str, changes: Sequence[str], data: str, out: str, seed: int) -> None:
    own = [*changes, *(f"phase.{i}.seed={seed + 1000 * i}" for i in range(len(load_recipe(recipe).phases)))]
    for _ in train(load_recipe(recipe, own).with_data([data]), out, device="cpu"):
        pass


CLAIM = Claim(
    "Every part of ULMFiT lowers the error: pretraining, tuning on the task's texts, rates by layer, slanted rates, "
    "layers that thaw one by one, and two directions.",
    "Howard & Ruder 2018, section 5, tables 4, 6 and 7; both directions: section 5, at its end",
)
FULL = Size()
QUICK = Size(examples=(120, 60, 120), general=60, tuned=30, epochs=1, embedding=24, width=32)
SAYS = {  # what the claim says of each way to leave something out
    ALONE: "Without pretraining on general text the error is larger",
    NO_TUNING: "Without tuning the language model on the task's texts the error is larger",
    NEITHER: "Without either the error is larger",
    ONE_RATE: "With one rate for all layers the error is larger",
    CONSTANT: "With a constant rate the error is larger",
    AT_ONCE: "With all layers thawed at once the error is larger",
}
BESIDE = {
    LAST: "With the last vector alone the error is larger",
    BACKWARD: "From right to left the error is another than from left to right",
}

Cell = tuple[str, int]  # way, seed


def measure(given: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    size = QUICK if given.quick else FULL
    with tempfile.TemporaryDirectory() as folder, cache_in(Path(folder) / "cache"):
        here = Path(folder)
        name, general = write_task(here / "task", size.examples)
        data, texts = str(here / "task"), str(here / "task.texts.jsonl")
        general = given.data or general
        said = _stages(here, data, texts, general, given.seeds, size, progress)
    return tables_of(said, given.seeds), {
        "data": f"{name}: {', '.join(f'{n:,}' for n in size.examples)} examples of train, dev and test; all its texts "
        f"for the second stage, {general} for the first",
        "network": f"AWD-LSTM, 2 layers of {size.width}, embeddings of {size.embedding}; {size.general:,} steps of 16 "
        f"rows of 32 words, then 50 and {size.tuned:,} of 8 rows, then 3 + {size.epochs} epochs of 16 texts",
        "intervals": "95 %, Student's t over seeds, in pairs; each seed has language models of its own",
    }


def _stages(
    here: Path, data: str, texts: str, general: str, seeds: Sequence[int], size: Size, progress: Progress
) -> dict[Cell, Said]:
    """One stage after the other, of each all that there is to train at once."""
    whole = len(seeds) * (2 + len(TUNINGS) + len(CLASSIFIERS))

    def told(before: int, done: float, _: float) -> None:
        progress(before + done, whole)

    def place(*parts: Any) -> str:
        return str(here / "-".join(map(str, parts)).replace(" ", "_"))

    ones = [(backward, seed) for seed in seeds for backward in (False, True)]
    jobs: dict[Any, Any] = {(b, seed): (first, (place(1, b, seed), general, seed, b, size)) for b, seed in ones}
    spread(jobs, partial(told, 0))
    twos = [(how, seed) for seed in seeds for how in TUNINGS]
    jobs = {
        (how, seed): (second, (place(2, how, seed), texts, place(1, how == BACKWARD, seed), how, seed, size))
        for how, seed in twos
    }
    spread(jobs, partial(told, len(ones)))
    threes = [(how, seed) for seed in seeds for how in CLASSIFIERS]
    source = {
        (how, seed): place(1, False, seed) if how == NO_TUNING else place(2, how if how in TUNINGS else ALL, seed)
        for how, seed in threes
    }
    jobs = {cell: (third, (place(3, *cell), data, source[cell], *cell, size)) for cell in threes}
    return spread(jobs, partial(told, len(ones) + len(twos)))


def tables_of(said: Mapping[Cell, Said], seeds: Sequence[int]) -> dict[str, Table]:
    def errors(how: str) -> list[float]:
        if how != TOGETHER:
            return [said[how, seed].error for seed in seeds]
        pairs = [(said[ALL, seed], said[BACKWARD, seed]) for seed in seeds]
        return [Said((one.p + other.p) / 2, one.gold).error for one, other in pairs]

    usual = errors(ALL)
    rows = [
        (how, over_seeds(errors(how)), None if how == ALL else in_pairs(errors(how), usual))
        for how in (*CLASSIFIERS, TOGETHER)
    ]
    return {
        "errors": Table(
            "Errors on test, in %, and points above all parts together", ("left out", "error", "above"), tuple(rows)
        )
    }


# ------------------------------------------------------------------------------------------------ the verdict


def judge(tables: Tables) -> list[Part]:
    table = tables["errors"]
    parts = [_part(table, how, says, above) for how, says in SAYS.items()]
    parts.append(_part(table, TOGETHER, "Both directions together have a smaller error than one", below))
    parts.append(_part(table, LAST, BESIDE[LAST], above, decides=False))
    apart = table.cell("above", left_out=BACKWARD)
    other = above(apart) if above(apart) is not None else below(apart)
    parts.append(_told(table, BACKWARD, BESIDE[BACKWARD], None if other is None else True, False))
    return parts


def _part(table: Table, how: str, says: str, test: Any, decides: bool = True) -> Part:
    return _told(table, how, says, test(table.cell("above", left_out=how)), decides)


def _told(table: Table, how: str, says: str, holds: bool | None, decides: bool) -> Part:
    error, points = table.cell("error", left_out=how), table.cell("above", left_out=how)
    usual = table.cell("error", left_out=ALL)
    sure = f"points above: {points[1]:.1f} to {points[2]:.1f}" if bounded(points) else NO_INTERVAL
    found = f"{how[0].upper()}{how[1:]}: {error[0]:.1f} %, {points[0]:+.1f} points from {usual[0]:.1f} %."
    return Part(f"{says}.", judged(holds), found, sure, decides)


# ------------------------------------------------------------------------------------------------ the figure


def draw(tables: Tables, figure: Figure) -> None:
    """Points above or below all parts together, with their intervals."""
    figure.set_size_inches(8, 4.2)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    rows = [row for row in tables["errors"].rows if row[2] is not None]
    for y, (_, error, points) in enumerate(rows):
        if bounded(points):
            axes.plot(points[1:], [y, y], color=GREY, linewidth=3, solid_capstyle="round")
        axes.plot(points[0], y, "o", color=VERMILION if points[0] > 0 else BLUE, markersize=7)
        axes.annotate(f"{error[0]:.1f} %", (1.01, y), xycoords=("axes fraction", "data"), va="center", color=INK)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel="points of error above all parts together, mean and 95 % interval")
    axes.grid(visible=False, axis="y")
    axes.set_title(f"All parts: {tables['errors'].cell('error', left_out=ALL)[0]:.1f} % of the test examples wrong")
