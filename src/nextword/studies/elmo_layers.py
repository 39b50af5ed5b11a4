"""Which layers of ELMo does a task take, and what is it worth to hold the layers equal?

A tagger reads one vector a word, γ Σ s_j h_j, with shares s = softmax(w) that it learns; λ‖w‖² draws them together:

    λ = 0        the task alone decides                 ├─ layer 0 ─┼──── layer 1 ────┼ layer 2 ┤
    λ = 1        hardly more than the mean of all       ├── layer 0 ──┼── layer 1 ──┼── layer 2 ──┤

The same sentences are tagged with names, with chunks and with parts of speech (CoNLL-2003 has a column of each), by
taggers that differ in nothing else; with the mix at the input of their LSTM, at its output, or one at either. How far
a mix is from equal is the share that would have to change hands, ½ Σ |s_j − 1/n|.

The ELMo is a small one that this study trains itself, or a run: --run RUN --seeds 3. Seeds are those of taggers: there
is one ELMo, and intervals say nothing about another.

The figure of the study of mixes: shares of the layers by task and λ, and what λ and the place do to the score.

Taggers for the study of mixes: an ELMo, sentences with several columns of tags, and one small tagger after another.

words  pos  chunks  names          one file a split, a column a task: all tasks read the same sentences
  └──▶ every layer of the ELMo, once ──▶ a tagger for each task, λ, place and seed, by the recipe of taggers
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nextword import tasks as transfer
from nextword.core.errors import NextwordError, Unsupported
from nextword.data.builtin import default_name
from nextword.data.conll import open_tagged
from nextword.data.tables import Columns
from nextword.lm.embedding import Contextual
from nextword.lm.loading import load
from nextword.recipe import load_recipe
from nextword.studies._experiment import spread
from nextword.studies._small_models import by, ranged
from nextword.studies._study import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    above,
    below,
    beside,
    bounded,
    in_pairs,
    judged,
    over_seeds,
)
from nextword.training.train import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAYERS = (SKY, BLUE, GREEN, PURPLE, GREY)
TASKS = (VERMILION, BLUE, GREEN)


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13.5, 5)
    figure.set_layout_engine("constrained", wspace=0.06)
    shares, apart, places = figure.subplots(1, 3, width_ratios=(1.3, 0.9, 1))
    _shares(tables["mixes"], shares)
    _draw_apart(tables["mixes"], apart)
    _places(tables["places"], places)


def _shares(table: Table, axes: Any) -> None:
    """A bar a task and λ, cut into layers."""
    layers = [name for name in table.columns if name.startswith("layer")]
    tasks = list(dict.fromkeys(table.column("task")))
    names: list[tuple[float, str]] = []
    y = 0.0
    for row in table.rows:
        y += 0.6 if names and row[1] == table.rows[0][1] else 0.0  # a gap between tasks
        left = 0.0
        for i, layer in enumerate(layers):
            share = row[table.columns.index(layer)][0]
            label = layer if not names else None
            axes.barh(y, share, left=left, height=0.8, color=LAYERS[i % len(LAYERS)], label=label)
            axes.text(left + share / 2, y, f"{share:.0f}", ha="center", va="center", color="white", fontsize=8)
            left += share
        names.append((y, f"{row[0]}, λ = {row[1]:g}" if row[1] == table.rows[0][1] else f"λ = {row[1]:g}"))
        y += 1.0
    axes.set_yticks([at for at, _ in names], [name for _, name in names], color=INK)
    axes.set(ylim=(y - 0.4, -0.6), xlim=(0, 100.5), xlabel="% of the mix, median of seeds")
    axes.grid(visible=False)
    axes.set_title(f"The mix at the input, by {'task and ' if len(tasks) > 1 else ''}λ")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=len(layers), frameon=False, fontsize=9)


def _draw_apart(table: Table, axes: Any) -> None:
    labels = []
    for task, colour in zip(dict.fromkeys(table.column("task")), TASKS, strict=False):
        cells = table.column("from equal", task=task)
        for x, (_, low, high) in enumerate(cells):
            axes.plot([x, x], [low, high], color=colour, linewidth=2, alpha=0.5, solid_capstyle="round")
        axes.plot(range(len(cells)), [cell[0] for cell in cells], "o-", color=colour, linewidth=1.2, markersize=5)
        labels.append((cells[-1][0], task, colour))
    penalties = list(dict.fromkeys(table.column("λ")))
    axes.set_xticks(range(len(penalties)), [f"{one:g}" for one in penalties])
    axes.set(xlabel="λ", ylabel="% that would have to change hands", ylim=(0, None))
    axes.set_title("How far from equal")
    beside(axes, labels)


def _places(table: Table, axes: Any) -> None:
    """Points above the mix at the input, a row a task and place."""
    rows = [row for row in table.rows if row[-1] is not None]
    tasks = list(dict.fromkeys(table.column("task")))
    for y, row in enumerate(rows):
        cell, colour = row[-1], TASKS[tasks.index(row[0]) % len(TASKS)]
        if bounded(cell):
            axes.plot([cell[1], cell[2]], [y, y], color=colour, linewidth=2.5, solid_capstyle="round")
        axes.plot(cell[0], y, "o", color=colour if row[1] != "none" else ORANGE, markersize=7)
    axes.axvline(0, color=GREY, linewidth=1)
    named = [f"{task}, {'no ELMo' if place == 'none' else place}" for task, place, *_ in rows]
    axes.set_yticks(range(len(rows)), named, color=INK)
    axes.set(xlabel="points above the mix at the input", ylim=(len(rows) - 0.5, -0.5))
    axes.grid(axis="y", visible=False)
    axes.set_title("Elsewhere than at the input")


ELMO, TAGGER = "elmo/tiny", "tagger/tiny"
NAMES, CHUNKS, PARTS = "names", "chunks", "parts of speech"
SOURCES: Sequence[tuple[str, Mapping[str, str]]] = (  # the first that is on this machine; column of each task
    ("conll2003", {NAMES: "ner", CHUNKS: "chunk", PARTS: "pos"}),
    ("conll2000", {CHUNKS: "chunk", PARTS: "pos"}),
    ("ud-english-ewt", {PARTS: "upos"}),
    ("python-names", {NAMES: ""}),
)


@dataclass(frozen=True)
class Size:
    """What the study's own ELMo learns, and how large a task is."""

    elmo: int = 500  # steps
    width: int = 64  # of the ELMo, a side
    sentences: tuple[int, int, int] = (1000, 300, 600)  # train, dev, test
    steps: int = 250  # of a tagger
    inner: int = 32  # width of the tagger, a side
    rate: float = 1e-2


@dataclass(frozen=True)
class Tagged:
    """What came of one tagger."""

    score: float  # on the test sentences, in %
    mixes: Mapping[str, tuple[Sequence[float], float]]  # place → shares of the layers, γ


@contextmanager
def cache_in(folder: str | Path) -> Iterator[None]:
    """Everything that is kept for later is kept there, and goes with it."""
    before = os.environ.get("NEXTWORD_CACHE")
    os.environ["NEXTWORD_CACHE"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["NEXTWORD_CACHE"]
        else:
            os.environ["NEXTWORD_CACHE"] = before


def small_elmo(folder: Path, data: str, seed: int, size: Size) -> Path:
    changes = [f"model.width={size.width}", f"model.cells={2 * size.width}", f"phase.0.steps={size.elmo}"]
    changes += [f"phase.0.seed={seed}", f"phase.0.validate={size.elmo}"]
    for _ in train(load_recipe(ELMO, changes).with_data([data]), folder):
        pass
    return folder


def write_tasks(folder: Path, counts: Sequence[int]) -> tuple[str, dict[str, str]]:
    """The beginning of each split as files with a column for each task: whose they are, and task → column."""
    for name, columns in SOURCES:
        try:
            found = {task: open_tagged(name, column) for task, column in columns.items()}
        except NextwordError:  # not on this machine
            continue
        folder.mkdir(parents=True)
        for split, count in zip(("train", "dev", "test"), counts, strict=True):
            if not all(split in one for one in found.values()):
                continue  # without a dev split a part of train is held out
            rows = zip(*(one[split].sentences[:count] for one in found.values()), strict=True)
            text = "\n".join(_lines(tagged) for tagged in rows)
            (folder / f"{split}.conll").write_text(text, encoding="utf-8")
        return name, {task: str(i) for i, task in enumerate(found, 1)}
    raise NextwordError("There are no tagged sentences on this machine. `nextword data conll2003 --from PATH`.")


def _lines(tagged: Sequence[Any]) -> str:
    """One sentence: a word a line, and its tags in every task."""
    words = (word.replace(" ", "_") for word in tagged[0].words)
    return "".join("\t".join(row) + "\n" for row in zip(words, *(one.tags for one in tagged), strict=True))


def settings(elmo: str, place: str, penalty: float, size: Size) -> list[str]:
    """Of the recipe of taggers; an empty place is none: words and letters alone."""
    found = [f"phase.0.steps={size.steps}", f"phase.0.validate={size.steps // 3}", f"model.width={size.inner}"]
    found += [f"phase.0.optimizer.rate={size.rate}", "phase.0.save=3600"]
    if place:
        found += [f"model.contextual={elmo}", f"model.contextual_at={place}", f"model.contextual_l2={penalty}"]
    return found


def ready(elmo: str, data: str, column: str, size: Size) -> None:
    """Vectors of all sentences, found once and kept for the taggers."""
    transfer.make_plan(TAGGER, "", data, Columns(label=column), changes=settings(elmo, "input", 0.0, size))


def tagged(elmo: str, data: str, out: str, column: str, place: str, penalty: float, seed: int, size: Size) -> Tagged:
    changes = settings(elmo, place, penalty, size)
    found = transfer.run(TAGGER, "", data, out, columns=Columns(label=column), seed=seed, changes=changes).results[0]
    network: Any = load(out, "cpu").network
    return Tagged(100 * found["test"][found["metric"]], network.learnt)


CLAIM = Claim(
    "A task takes the layers of ELMo in shares of its own, most from the first LSTM layer; a large λ makes them equal.",
    "Peters et al. 2018, sections 3.2, 5.1, 5.2 and 5.6 (figure 2): small λ is preferred in most tasks, while names "
    "are insensitive to it; a mix at the output too helps some tasks",
)
TAKES_RUN = True  # --run
PENALTIES = (0.0, 0.001, 0.1, 1.0)
USUAL = 0.001  # λ of the comparison of places, as in the paper
PLACES = ("", "input", "output", "both")
FULL = Size()
QUICK = Size(elmo=60, width=32, sentences=(200, 60, 120), steps=60)
LARGE = Size(sentences=(2000, 600, 1500), steps=800, inner=64, rate=5e-3)  # over a run

Cell = tuple[str, str, float, int]  # task, place, λ, seed


# ------------------------------------------------------------------------------------------------ measuring


def measure(given: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    size = QUICK if given.quick else LARGE if given.run else FULL
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        with nullcontext() if given.run else cache_in(here / "cache"):
            data, columns = write_tasks(here / "tasks", size.sentences)
            text = given.data or default_name()
            elmo = Path(given.run).resolve() if given.run else small_elmo(here / "elmo", text, given.seeds[0], size)
            lm: Any = load(elmo)
            read = Contextual(lm, elmo)
            if read.layers < 2:
                raise Unsupported(f"{elmo} has {read.layers} layer of vectors as wide as its last: nothing to mix.")
            own = str(elmo), str(here / "tasks")
            ready(*own, next(iter(columns.values())), size)  # the words are the same in all tasks
            cells = [(task, *how, seed) for task in columns for how in _hows() for seed in given.seeds]
            jobs: dict[Any, Any] = {
                cell: (tagged, (*own, str(here / "runs" / str(i)), columns[cell[0]], *cell[1:], size))
                for i, cell in enumerate(cells)
            }
            runs = spread(jobs, progress)
    whose = f"the run {elmo.name}" if given.run else f"trained here on {text}, {size.elmo} steps of 16 rows of 16 words"
    return tables_of(runs, list(columns), given.seeds), {
        "data": f"{data}: the first {', '.join(f'{n:,}' for n in size.sentences)} sentences of train, dev and test",
        "elmo": f"{whose}: {lm.parameters:,} parameters, {read.layers} vectors a word of {read.width}",
        "taggers": f"words and letters learnt from these sentences, LSTM of {size.inner} a side, CRF; {size.steps} "
        f"steps of 16 sentences, Adam at {size.rate:g}; weights of the best validation",
        "scores": "F1 of spans for names and chunks, accuracy for parts of speech, in %",
        "intervals": "95 %, Student's t over seeds of the taggers, in pairs",
    }


def _hows() -> list[tuple[str, float]]:
    """Place and λ of the taggers: every λ at the input, every place with the usual λ."""
    return [*(("input", penalty) for penalty in PENALTIES), *((p, USUAL) for p in PLACES if p != "input")]


def distance(shares: Sequence[float]) -> float:
    """From equal shares, in %: what would have to change hands."""
    return 50 * float(np.abs(np.asarray(shares) - 1 / len(shares)).sum())


def tables_of(runs: Mapping[Cell, Tagged], tasks: Sequence[str], seeds: Sequence[int]) -> dict[str, Table]:
    def some(task: str, place: str, penalty: float) -> list[Tagged]:
        return [runs[task, place, penalty, seed] for seed in seeds]

    def shares(task: str, place: str, penalty: float, at: str = "") -> np.ndarray:
        """(seeds, layers), in %."""
        return 100 * np.array([one.mixes[at or place][0] for one in some(task, place, penalty)])

    def scores(task: str, place: str, penalty: float = USUAL) -> list[float]:
        return [one.score for one in some(task, place, penalty)]

    def far(task: str, penalty: float) -> list[float]:
        return [distance(one.mixes["input"][0]) for one in some(task, "input", penalty)]

    layers = [f"layer {j}" for j in range(shares(tasks[0], "input", 0.0).shape[1])]
    mixes, effect, chosen, places = [], [], [], []
    for task in tasks:
        for penalty in PENALTIES:
            columns = shares(task, "input", penalty).T.tolist()
            gamma = [one.mixes["input"][1] for one in some(task, "input", penalty)]
            mixes.append(
                (task, penalty, *map(over_seeds, columns), over_seeds(gamma), over_seeds(far(task, penalty)),
                 over_seeds(scores(task, "input", penalty)))
            )  # fmt: skip
        free, held = (far(task, penalty) for penalty in (PENALTIES[0], PENALTIES[-1]))
        gained = in_pairs(scores(task, "input"), scores(task, "input", PENALTIES[-1]))
        effect.append((task, in_pairs(free, held), in_pairs(free, [0.0] * len(free)), gained))
        chosen.append((task, *_favoured(shares(task, "input", PENALTIES[0]))))
        for place in PLACES:
            mixed: list[Any] = [None] * len(layers)
            if place in ("output", "both"):
                mixed = [over_seeds(column) for column in shares(task, place, USUAL, "output").T.tolist()]
            gain = None if place == "input" else in_pairs(scores(task, place), scores(task, "input"))
            places.append((task, place or "none", *mixed, over_seeds(scores(task, place)), gain))
    return {
        "mixes": Table(
            "The mix at the input, in %, by task and λ",
            ("task", "λ", *layers, "γ", "from equal", "score"),
            tuple(mixes),
        ),
        "effect": Table(
            f"What λ does: points, mean and 95 % interval; the score is that of λ = {USUAL:g} above λ = "
            f"{PENALTIES[-1]:g}",
            ("task", "from equal, 0 above 1", "from equal, λ = 0", "score"),
            tuple(effect),
        ),
        "first": Table(
            "Layer 1 at the input, λ = 0: points above the largest other layer",
            ("task", "layer 1", "largest other", "above"),
            tuple(chosen),
        ),
        "places": Table(
            f"Where the mix goes in, λ = {USUAL:g}; layers are those of the mix at the output",
            ("task", "place", *layers, "score", "above input"),
            tuple(places),
        ),
        "tasks": _apart({task: shares(task, "input", PENALTIES[0]) for task in tasks}),
    }


def _favoured(shares: np.ndarray) -> tuple[Any, ...]:
    """Layer 1, the largest of the other layers, and how far the first is above it."""
    others = [j for j in range(shares.shape[1]) if j != 1]
    most = max(others, key=lambda j: float(shares[:, j].mean()))
    first, second = shares[:, 1].tolist(), shares[:, most].tolist()
    return over_seeds(first), f"layer {most}", in_pairs(first, second)


def _apart(shares: Mapping[str, np.ndarray]) -> Table:
    """How far the mixes of two tasks are apart in a seed, above how far two seeds of a task are."""
    rows = []
    names = list(shares)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            between = np.abs(shares[a] - shares[b]).sum(1) / 2  # (seeds,)
            turned = [np.abs(shares[task] - np.roll(shares[task], 1, 0)) for task in (a, b)]  # with the next seed
            within = float(np.mean([each.sum(1).mean() / 2 for each in turned]))
            above_it = in_pairs(between.tolist(), [within] * len(between))
            rows.append((a, b, over_seeds(between.tolist()), within, above_it))
    title = "How far mixes are apart, λ = 0, in % that would have to change hands"
    return Table(title, ("task", "other", "between tasks", "between seeds", "above"), tuple(rows))


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    tasks = tables["effect"].column("task")
    parts = [_held(tables, task) for task in tasks]
    parts += [_first(tables, task) for task in tasks]
    parts += [_differ(row) for row in tables["tasks"].rows]
    if len(tasks) < 2:
        found = f"Only {tasks[0]} are on this machine: `nextword data conll2003 --from PATH` brings three tasks."
        parts.append(Part("Tasks take layers in shares of their own.", judged(None), found, "one task"))
    parts += [_score(tables, task) for task in tasks]
    for task in tasks:
        parts += [_place(tables, task, place) for place in ("none", "output", "both")]
    return parts


def _held(tables: Tables, task: str) -> Part:
    cell = tables["effect"].cell("from equal, 0 above 1", task=task)
    ends = [tables["mixes"].cell("from equal", task=task, λ=penalty)[0] for penalty in (PENALTIES[0], PENALTIES[-1])]
    return Part(
        f"A large λ makes the layers more equal ({task}).",
        judged(above(cell)),
        f"Of {task}, the mix is {ends[0]:.1f} % from equal with λ = 0 and {ends[1]:.1f} % with λ = 1.",
        f"points apart: {ranged(cell, 1)}",
    )


def _first(tables: Tables, task: str) -> Part:
    first = tables["first"]
    cell, other = first.cell("above", task=task), first.cell("largest other", task=task)
    share = first.cell("layer 1", task=task)[0]
    return Part(
        f"Left to itself, a task takes most from the first LSTM layer ({task}).",
        judged(above(cell)),
        f"{task.capitalize()} take {share:.1f} % from layer 1, {abs(cell[0]):.1f} points "
        f"{'more' if cell[0] > 0 else 'less'} than from {other}.",
        f"points more: {ranged(cell, 1)}",
    )


def _differ(row: Sequence[Any]) -> Part:
    a, b, between, within, cell = row
    return Part(
        f"The mixes of {a} and of {b} differ by more than seeds do.",
        judged(above(cell)),
        f"{a.capitalize()} and {b} are {between[0]:.1f} % apart, two seeds of one task {within:.1f} %.",
        f"points more: {ranged(cell, 1)}",
    )


def _score(tables: Tables, task: str) -> Part:
    cell = tables["effect"].cell("score", task=task)
    return Part(
        f"A small λ scores better than a large one ({task}).",
        judged(above(cell)),
        f"With λ = {USUAL:g} {task} are told {by(cell[0], 'points', 2)} than with λ = 1.",
        f"points better: {ranged(cell, 2)}",
        decides=False,
    )


def _place(tables: Tables, task: str, place: str) -> Part:
    cell = tables["places"].cell("above input", task=task, place=place)
    score = tables["places"].cell("score", task=task, place=place)[0]
    says = {
        "none": "Without ELMo it is worse than with it at the input",
        "output": "At the output ELMo does better than at the input",
        "both": "At the output too it does better than at the input alone",
    }
    holds = (below if place == "none" else above)(cell)
    how = {"none": "without ELMo", "output": "with a mix at the output", "both": "with one at either"}[place]
    return Part(
        f"{says[place]} ({task}).",
        judged(holds),
        f"{task.capitalize()} {how}: {score:.1f} %, {by(cell[0], 'points', 2)} than at the input.",
        f"points above: {ranged(cell, 2)}",
        decides=False,
    )
