"""Which layers of ELMo does a task use, and what does it cost to keep their weights equal?

Claim: a task mixes the layers of ELMo with weights of its own, most from the first LSTM layer; a large λ makes the
weights equal (Peters et al. 2018).

A tagger reads one vector per word, γ Σ s_j h_j, with learned weights s = softmax(w); the penalty λ‖w‖² draws them
together:

    λ = 0    the task alone decides               ├─ layer 0 ─┼──── layer 1 ────┼ layer 2 ┤
    λ = 1    hardly more than the mean of all     ├── layer 0 ──┼── layer 1 ──┼── layer 2 ──┤

Measured: the same sentences are tagged with named entities, chunks and parts of speech (CoNLL-2003 has a column of
each) by taggers that differ in nothing else; with the mix at the input of their LSTM, at its output, or at both. The
distance of a mix from equal weights is ½ Σ |s_j − 1/n|. All layers of all words are computed once and cached:

    words  pos  chunks  entities        one file per split, one column per task
      └──▶ every layer of the ELMo ──▶ a tagger for each task, λ, place and seed

The ELMo is a small one that the study trains, or a run: --run RUN --num-seeds 3. Seeds are those of the taggers: there
is one ELMo, and the intervals say nothing about another.

Verdict: in every task a large λ must make the weights more equal, and without a penalty layer 1 must have the
largest weight; the mixes of any two tasks must differ by more than those of two seeds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nextword import tasks as transfer
from nextword.core.errors import MissingFile, NextwordError, Unsupported
from nextword.data.builtin import default_name
from nextword.data.conll import open_tagged
from nextword.data.tables import Columns
from nextword.lm.base import TextModel
from nextword.lm.embedding import ContextualVectors
from nextword.lm.loading import load
from nextword.models.bilstm_crf import Tagger as TaggerNetwork
from nextword.recipe import load_recipe
from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import run_parallel
from nextword.studies._study import Cell, Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.training.train import train_events


@dataclass(frozen=True)
class Size:
    """The ELMo that the study trains, and the taggers."""

    elmo: int = 500  # steps
    width: int = 64  # of the ELMo, per direction
    sentences: tuple[int, int, int] = (1000, 300, 600)  # train, dev, test
    steps: int = 250  # of a tagger
    inner: int = 32  # width of the tagger, per direction
    rate: float = 1e-2


CLAIM = Claim(
    "A task mixes the layers of ELMo with weights of its own, most from the first LSTM layer; a large λ makes the "
    "weights equal.",
    "Peters et al. 2018, sections 3.2, 5.1, 5.2 and 5.6 (figure 2): small λ is preferred in most tasks, while named "
    "entities are insensitive to it; a mix at the output as well helps some tasks",
)
FULL = Size()
QUICK = Size(elmo=60, width=32, sentences=(200, 60, 120), steps=60)
WITH_RUN = Size(sentences=(2000, 600, 1500), steps=800, inner=64, rate=5e-3)
ELMO, TAGGER = "elmo/tiny", "tagger/tiny"  # recipes
ENTITIES, CHUNKS, TAGS = "named entities", "chunks", "parts of speech"
SOURCES: Sequence[tuple[str, Mapping[str, str]]] = (  # the first on this machine; column of each task
    ("conll2003", {ENTITIES: "ner", CHUNKS: "chunk", TAGS: "pos"}),
    ("conll2000", {CHUNKS: "chunk", TAGS: "pos"}),
    ("ud-english-ewt", {TAGS: "upos"}),
    ("python-names", {ENTITIES: ""}),
)
PENALTIES = (0.0, 0.001, 0.1, 1.0)
FREE, USUAL, HELD = PENALTIES[0], 0.001, PENALTIES[-1]  # λ; the usual one is the paper's
PLACES = ("", "input", "output", "both")

DISTANCE, SCORE = "distance from equal, %", "score, %"
SHRINKS, GAIN = "distance, λ = 0 minus λ = 1", f"score, λ = {USUAL:g} minus λ = {HELD:g}"
LAYER_1, RIVAL, MORE = "layer 1, %", "largest other", "layer 1 minus largest other"
FROM_INPUT = "score minus score at the input"


# ------------------------------------------------------------------------------------------------ taggers


class Tagger(NamedTuple):
    """The result of one tagger."""

    score: float  # on the test sentences, in %
    mixes: Mapping[str, tuple[Sequence[float], float]]  # place → layer weights, γ


@contextmanager
def cache_in(folder: str | Path) -> Iterator[None]:
    """Keep everything that is cached in this folder."""
    before = os.environ.get("NEXTWORD_CACHE")
    os.environ["NEXTWORD_CACHE"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["NEXTWORD_CACHE"]
        else:
            os.environ["NEXTWORD_CACHE"] = before


def train_elmo(folder: Path, data: str, seed: int, size: Size) -> Path:
    changes = [f"model.width={size.width}", f"model.cell_size={2 * size.width}", f"phase.0.steps={size.elmo}"]
    changes += [f"phase.0.seed={seed}", f"phase.0.validate_every={size.elmo}"]
    for _ in train_events(load_recipe(ELMO, changes).with_data([data]), folder):
        pass
    return folder


def write_tasks(folder: Path, counts: Sequence[int]) -> tuple[str, dict[str, str]]:
    """Write the beginning of each split with one column per task; return the source's name and task → column."""
    for name, columns in SOURCES:
        try:
            tasks = {task: open_tagged(name, column) for task, column in columns.items()}
        except NextwordError:  # not on this machine
            continue
        folder.mkdir(parents=True)
        for split, count in zip(("train", "dev", "test"), counts, strict=True):
            if not all(split in task for task in tasks.values()):
                continue  # without a dev split, part of train is held out
            rows = zip(*(task[split].sentences[:count] for task in tasks.values()), strict=True)
            text = "\n".join(_format_sentence(tagged) for tagged in rows)
            (folder / f"{split}.conll").write_text(text, encoding="utf-8")
        return name, {task: str(i) for i, task in enumerate(tasks, 1)}
    raise MissingFile("No tagged sentences on this machine. Install some: `nextword data conll2003 --install PATH`.")


def _format_sentence(tagged: Sequence[Any]) -> str:
    """One line per word, with its tag in every task."""
    words = (word.replace(" ", "_") for word in tagged[0].words)
    return "".join("\t".join(row) + "\n" for row in zip(words, *(task.tags for task in tagged), strict=True))


def _tagger_changes(elmo: str, place: str, penalty: float, size: Size) -> list[str]:
    """Changes to the tagger recipe; an empty place means words and letters only."""
    changes = [f"phase.0.steps={size.steps}", f"phase.0.validate_every={size.steps // 3}", f"model.width={size.inner}"]
    changes += [f"phase.0.optimizer.rate={size.rate}", "phase.0.save_every=3600"]
    if place:
        changes += [f"model.contextual={elmo}", f"model.contextual_place={place}", f"model.contextual_l2={penalty}"]
    return changes


def cache_vectors(elmo: str, data: str, column: str, size: Size) -> None:
    """Compute the vectors of all sentences once, for all taggers."""
    transfer.make_plan(TAGGER, "", data, Columns(label=column), changes=_tagger_changes(elmo, "input", 0.0, size))


def run_tagger(
    elmo: str, data: str, out: str, column: str, place: str, penalty: float, seed: int, size: Size
) -> Tagger:
    changes = _tagger_changes(elmo, place, penalty, size)
    plan = transfer.run(TAGGER, "", data, out, columns=Columns(label=column), seed=seed, changes=changes)
    result = plan.results[0]
    network: TaggerNetwork = load(out, "cpu").network
    return Tagger(100 * result["test"][result["metric"]], network.mix_weights)


# ------------------------------------------------------------------------------------------------ measure

Key = tuple[str, str, float, int]  # task, place, λ, seed


def measure(settings: Settings, progress: Progress) -> Measured:
    size, seeds = QUICK if settings.quick else WITH_RUN if settings.run else FULL, settings.seeds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with nullcontext() if settings.run else cache_in(folder / "cache"):
            source, columns = write_tasks(folder / "tasks", size.sentences)
            text = settings.data or default_name()
            elmo = Path(settings.run).resolve() if settings.run else train_elmo(folder / "elmo", text, seeds[0], size)
            lm: TextModel = load(elmo)
            vectors = ContextualVectors(lm, elmo)
            if vectors.layers < 2:
                raise Unsupported(
                    f"{elmo} has only one layer as wide as its last, so there is nothing to mix.", ability="embed"
                )
            inputs = str(elmo), str(folder / "tasks")
            cache_vectors(*inputs, next(iter(columns.values())), size)  # all tasks have the same words
            keys = [(task, *variant, seed) for task in columns for variant in _variants() for seed in seeds]
            jobs: dict[Any, Any] = {
                key: (run_tagger, (*inputs, str(folder / "runs" / str(i)), columns[key[0]], *key[1:], size))
                for i, key in enumerate(keys)
            }
            runs = run_parallel(jobs, progress)
    origin = f"the run {elmo.name}" if settings.run else f"trained on {text}, {size.elmo} steps of 16 rows of 16 words"
    return make_tables(runs, list(columns), seeds), {
        "data": f"{source}: the first {', '.join(f'{n:,}' for n in size.sentences)} sentences of train, dev and test",
        "elmo": f"{origin}: {lm.parameters:,} parameters, {vectors.layers} vectors of {vectors.width} per word",
        "taggers": f"words and letters learned from these sentences, LSTM of {size.inner} per direction, CRF; "
        f"{size.steps} steps of 16 sentences, Adam at {size.rate:g}; weights of the best validation",
        "scores": "span F1 for named entities and chunks, accuracy for parts of speech, in %",
        "intervals": "95 %, Student's t over seeds of the taggers, paired",
    }


def _variants() -> list[tuple[str, float]]:
    """Place and λ: every λ at the input, every place with the usual λ."""
    return [*(("input", penalty) for penalty in PENALTIES), *((p, USUAL) for p in PLACES if p != "input")]


def distance_from_equal(weights: Sequence[float]) -> float:
    """In %: half the sum of the differences from equal weights."""
    return 50 * float(np.abs(np.asarray(weights) - 1 / len(weights)).sum())


def make_tables(runs: Mapping[Key, Tagger], tasks: Sequence[str], seeds: Sequence[int]) -> dict[str, Table]:
    def weights(task: str, place: str, penalty: float, mix: str = "") -> np.ndarray:
        """(seeds, layers), in %."""
        return 100 * np.array([runs[task, place, penalty, seed].mixes[mix or place][0] for seed in seeds])

    def scores(task: str, place: str, penalty: float = USUAL) -> list[float]:
        return [runs[task, place, penalty, seed].score for seed in seeds]

    def distances(task: str, penalty: float) -> list[float]:
        return [distance_from_equal(runs[task, "input", penalty, seed].mixes["input"][0]) for seed in seeds]

    layers = [f"layer {j}, %" for j in range(weights(tasks[0], "input", FREE).shape[1])]
    mixes, effects, first, places = [], [], [], []
    for task in tasks:
        for penalty in PENALTIES:
            gamma = [runs[task, "input", penalty, seed].mixes["input"][1] for seed in seeds]
            columns = [*weights(task, "input", penalty).T.tolist(), gamma, distances(task, penalty)]
            mixes.append((task, penalty, *map(stats.median_and_range, [*columns, scores(task, "input", penalty)])))
        shrinks = stats.paired_difference(distances(task, FREE), distances(task, HELD))
        effects.append((task, shrinks, stats.paired_difference(scores(task, "input"), scores(task, "input", HELD))))
        first.append((task, *_compare_layer_1(weights(task, "input", FREE))))
        for place in PLACES:
            mix: list[Any] = [None] * len(layers)
            if place in ("output", "both"):
                mix = [stats.median_and_range(column) for column in weights(task, place, USUAL, "output").T.tolist()]
            gain = None if place == "input" else stats.paired_difference(scores(task, place), scores(task, "input"))
            places.append((task, place or "none", *mix, stats.median_and_range(scores(task, place)), gain))
    return {
        "mixes": Table("The mix at the input by task and λ", ("task", "λ", *layers, "γ", DISTANCE, SCORE), mixes),
        "effect": Table("Effect of λ in points, mean and 95 % interval", ("task", SHRINKS, GAIN), effects),
        "first": Table(
            "Weight of layer 1 at the input, λ = 0, mean and 95 % interval",
            ("task", LAYER_1, RIVAL, MORE),
            first,
        ),
        "places": Table(
            f"Place of the mix, λ = {USUAL:g}; layers are those of the mix at the output",
            ("task", "place", *layers, SCORE, FROM_INPUT),
            places,
        ),
        "tasks": _compare_tasks({task: weights(task, "input", FREE) for task in tasks}),
    }


def _compare_layer_1(weights: np.ndarray) -> tuple[Any, ...]:
    """Layer 1, the largest other layer, and the difference."""
    others = [j for j in range(weights.shape[1]) if j != 1]
    largest = max(others, key=lambda j: float(weights[:, j].mean()))
    first, other = weights[:, 1].tolist(), weights[:, largest].tolist()
    return stats.median_and_range(first), f"layer {largest}", stats.paired_difference(first, other)


def _compare_tasks(weights: Mapping[str, np.ndarray]) -> Table:
    """Distance between the mixes of two tasks in a seed, compared with the distance between two seeds of a task."""
    rows = []
    for a, b in combinations(weights, 2):
        between = (np.abs(weights[a] - weights[b]).sum(1) / 2).tolist()  # (seeds,)
        shifted = [np.abs(weights[task] - np.roll(weights[task], 1, 0)) for task in (a, b)]  # with the next seed
        within = float(np.mean([each.sum(1).mean() / 2 for each in shifted]))
        rows.append(
            (a, b, stats.median_and_range(between), within, stats.paired_difference(between, [within] * len(between)))
        )
    title = "Distance between mixes in %, λ = 0"
    return Table(title, ("task", "other", "between tasks", "between seeds", "difference"), rows)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    tasks = tables["effect"].column("task")
    parts = [_makes_equal(tables, task) for task in tasks]
    parts += [_uses_layer_1(tables["first"], task) for task in tasks]
    parts += [_differ(*row) for row in tables["tasks"].rows]
    if len(tasks) < 2:
        missing = f"Only {tasks[0]} are on this machine. `nextword data conll2003 --install PATH` installs three tasks."
        parts.append(Part("Tasks mix the layers with weights of their own.", None, missing, "one task"))
    parts += [_scores_better(tables, task) for task in tasks]
    return parts + [_compare_place(tables, task, place) for task in tasks for place in ("none", "output", "both")]


def _makes_equal(tables: Tables, task: str) -> Part:
    cell = tables["effect"].cell(SHRINKS, task=task)
    free, held = (tables["mixes"].cell(DISTANCE, task=task, λ=penalty)[0] for penalty in (FREE, HELD))
    return stats.judge_interval(
        f"A large λ makes the weights more equal ({task}).",
        cell,
        f"For {task}, the mix is {free:.1f} % from equal with λ = 0 and {held:.1f} % with λ = 1.",
        "difference in points",
        digits=1,
    )


def _uses_layer_1(first: Table, task: str) -> Part:
    weight, other, cell = (first.cell(column, task=task) for column in (LAYER_1, RIVAL, MORE))
    amount, word = stats.more_or_less(cell[0], 1)
    statement = f"Without a penalty, layer 1 has the largest weight ({task})."
    evidence = f"For {task}, layer 1 has a weight of {weight[0]:.1f} %, {amount} points {word} than {other}."
    return stats.judge_interval(statement, cell, evidence, "difference in points", 1)


def _differ(a: str, b: str, between: Cell, within: float, cell: Cell) -> Part:
    statement = f"The mixes of {a} and {b} differ by more than those of two seeds."
    evidence = f"{a.capitalize()} and {b} are {between[0]:.1f} % apart, two seeds of one task {within:.1f} %."
    return stats.judge_interval(statement, cell, evidence, "difference in points", 1)


def _scores_better(tables: Tables, task: str) -> Part:
    cell = tables["effect"].cell(GAIN, task=task)
    statement = f"A small λ scores better than a large one ({task})."
    evidence = f"For {task}, λ = {USUAL:g} is {stats.format_gain(cell[0], 'points', 2)} than λ = 1."
    return stats.judge_interval(statement, cell, evidence, "points better", 2, decides=False)


def _compare_place(tables: Tables, task: str, place: str) -> Part:
    score, cell = (tables["places"].cell(column, task=task, place=place) for column in (SCORE, FROM_INPUT))
    statement, how, test = {
        "none": ("Without ELMo the tagger is worse than with it at the input", "without ELMo", stats.is_below),
        "output": ("ELMo at the output is better than at the input", "with a mix at the output", stats.is_above),
        "both": ("ELMo at both is better than at the input alone", "with a mix at both", stats.is_above),
    }[place]
    gain = stats.format_gain(cell[0], "points", 2)
    evidence = f"{task.capitalize()} {how}: {score[0]:.1f} %, {gain} than at the input."
    return stats.judge_interval(
        f"{statement} ({task}).", cell, evidence, "difference in points", 2, test=test, decides=False
    )


# ------------------------------------------------------------------------------------------------ draw

LAYER_COLORS = (plot.SKY, plot.BLUE, plot.GREEN, plot.PURPLE, plot.GREY)
TASK_COLORS = (plot.VERMILION, plot.BLUE, plot.GREEN)


def draw(tables: Tables, figure: plot.Figure) -> None:
    weights, distances, places = plot.panels(figure, 14, 5, 3, (1.3, 0.9, 1))
    _draw_weights(tables["mixes"], weights)
    _draw_distances(tables["mixes"], distances)
    _draw_places(tables["places"], places)


def _draw_weights(table: Table, axes: plot.Axes) -> None:
    """A bar for each task and λ, divided into layers."""
    layers = [i for i, name in enumerate(table.columns) if name.startswith("layer")]
    names: list[str] = []
    positions: list[float] = []
    y = 0.0
    for row in table.rows:
        is_first = row[1] == table.rows[0][1]
        y += 0.6 if positions and is_first else 0.0  # a gap between tasks
        left = 0.0
        for i, color in zip(layers, LAYER_COLORS * len(layers), strict=False):
            share = row[i][0]
            label = None if positions else table.columns[i].removesuffix(", %")
            axes.barh(y, share, left=left, height=0.8, color=color, label=label)
            axes.text(left + share / 2, y, f"{share:.0f}", ha="center", va="center", color="white", fontsize=8)
            left += share
        names.append(f"{row[0]}, λ = {row[1]:g}" if is_first else f"λ = {row[1]:g}")
        positions.append(y)
        y += 1.0
    axes.set_yticks(positions, names, color=plot.INK)
    axes.set(ylim=(y - 0.4, -0.6), xlim=(0, 100.5), xlabel="weight in %, median over seeds")
    axes.grid(visible=False)
    axes.set_title("The mix at the input")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=len(layers), frameon=False, fontsize=9)


def _draw_distances(table: Table, axes: plot.Axes) -> None:
    penalties = [f"{penalty:g}" for penalty in dict.fromkeys(table.column("λ"))]
    tasks = dict.fromkeys(table.column("task"))
    curves = [(task, table.column(DISTANCE, task=task), color) for task, color in zip(tasks, TASK_COLORS, strict=False)]
    plot.lines(
        axes, curves, ticks=penalties, bars=True, width=1.2,
        xlabel="λ", ylabel="distance from equal weights, %", ylim=(0, None), title="Distance from equal weights",
    )  # fmt: skip


def _draw_places(table: Table, axes: plot.Axes) -> None:
    rows = [row for row in table.rows if row[-1] is not None]
    tasks = list(dict.fromkeys(table.column("task")))
    for y, row in enumerate(rows):
        plot.dot(axes, row[-1], y, TASK_COLORS[tasks.index(row[0]) % len(TASK_COLORS)])
    axes.axvline(0, color=plot.GREY, linewidth=1)
    names = [f"{task}, {'no ELMo' if place == 'none' else place}" for task, place, *_ in rows]
    plot.name_rows(axes, names, "points above the mix at the input", "Other places")
