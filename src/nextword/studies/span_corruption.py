"""Which is the better beginning: to write what was taken out of a text, or to write on from its first half?

    spans     Thank you <x> me to your party <y> week    →   <x> for inviting <y> last
    plain     Thank you for inviting me to your          →   party last week
    nothing   no beginning: weights as they were drawn

One small T5 learns either from the same text, as many steps of as many tokens, source and target together; then it is
tuned on a few examples of two other tasks, each text in and text out. Plain is a language model with an encoder, which
is given the first half (Raffel et al. 2020, section 3.2.3). It writes more of what it reads, so that a step has more to
learn from, and takes longer: what is equal is the tokens read.

The figure of the study of beginnings: what each task costs, and how well it is done, after each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nextword.batching.causal import Blocks
from nextword.batching.seq2seq import Pairs
from nextword.batching.token_stream import Stream
from nextword.core.protocols import Tokenizer
from nextword.core.types import Batch, Inputs
from nextword.data.pairs import Parallel
from nextword.models.t5 import T5, T5Config
from nextword.objectives.seq2seq import Seq2SeqObjective as Writing
from nextword.objectives.span_corruption import Denoising
from nextword.studies._experiment import enough, held_out, spread
from nextword.studies._small_models import (
    TranslatorSize,
    answered,
    learn_translation,
    pairs_of,
    ranged,
    sized,
    spaced,
    texts_of,
    workers,
)
from nextword.studies._study import (
    BLUE,
    GREY,
    INK,
    INTERVALS,
    VERMILION,
    Claim,
    Part,
    Progress,
    Score,
    Settings,
    Table,
    Tables,
    above,
    between,
    bleu,
    bounded,
    counted,
    found,
    judged,
    lost_bleu,
    over_seeds,
    ratio,
)
from nextword.tokenizers import vocabulary
from nextword.training.device import choose_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"spans": BLUE, "plain": VERMILION, "nothing": GREY}


def draw(tables: Tables, figure: Figure) -> None:
    table = tables["beginnings"]
    columns = table.columns[1:-1]
    figure.set_size_inches(1.5 + 3.4 * len(columns), 3.4)
    figure.set_layout_engine("constrained", wspace=0.05)
    every = figure.subplots(1, len(columns), squeeze=False)[0]
    for axes, column in zip(every, columns, strict=True):
        _panel(table, axes, column, named=column == columns[0])


def _panel(table: Table, axes: Any, column: str, named: bool) -> None:
    what, task = column.split(", ", 1) if not column.startswith("right") else ("% right", column.split(", ", 2)[2])
    for y, (name, colour) in enumerate(COLOURS.items()):
        cell = table.cell(column, beginning=name)
        if bounded(cell):
            axes.plot(cell[1:], [y, y], color=colour, linewidth=2.5, solid_capstyle="round")
        axes.plot(cell[0], y, "o", color=colour, markersize=8)
        text = f"{cell[0]:.2f}" if what == "nats" else f"{cell[0]:.1f}"
        axes.annotate(text, (cell[0], y), (0, 9), textcoords="offset points", ha="center", fontsize=9, color=INK)
    axes.set_yticks(range(len(COLOURS)), list(COLOURS) if named else [""] * len(COLOURS), color=INK)
    low, high = axes.get_xlim()
    axes.set(xlim=(low - 0.15 * (high - low), high + 0.15 * (high - low)), ylim=(len(COLOURS) - 0.5, -0.6))
    axes.set_xlabel("nats a token  (left: better)" if what == "nats" else f"{what}  (right: better)")
    axes.grid(axis="y", visible=False)
    axes.set_title(task)


CLAIM = Claim(
    "To write spans that were taken out of a text is a better beginning for other tasks than to write on, for as many "
    "tokens read.",
    "Raffel et al. 2020, tables 2 and 4; lecture notes on pretrained models",
)
SPANS, PLAIN, NOTHING = "spans", "plain", "nothing"
VERSES, BOOKS = "target from source", "book of a verse"
FULL = TranslatorSize(pieces=800, width=64, rows=24, length=48, longest=60, steps=500, rate=0.05, held=200)
QUICK = TranslatorSize(pieces=500, width=32, rows=8, length=32, longest=40, steps=40, rate=0.05, held=60)
LARGE = TranslatorSize(pieces=8000, width=384, rows=64, length=128, longest=128, steps=6000, rate=0.01, held=1000)
TUNING, QUICK_TUNING, LARGE_TUNING = (600, 120), (60, 20), (4000, 1000)  # examples of a task, and steps
SENTINELS = 30
DESCENT = {"kind": "adafactor"}  # the paper's, whose rate is a share of the weights: Adam hardly moves so large ones
NAMED = ", book:"  # after a verse, of which the book is asked


@dataclass(frozen=True)
class Task:
    """Text in, text out."""

    train: Pairs
    sources: tuple[str, ...]
    targets: tuple[str, ...]


def network_of(size: TranslatorSize, tokenizer: Tokenizer, seed: int) -> T5:
    torch.manual_seed(seed)
    width = size.width
    config = T5Config(width=width, layers=2, heads=4, head=width // 4, inner=4 * width, dropout=0.0)
    return T5(config, vocabulary(tokenizer)).to(choose_device())


# ------------------------------------------------------------------------------------------------ beginnings


def halves(stream: Stream, size: TranslatorSize, text: int, begin: int, end: int, seed: int) -> Iterator[Batch]:
    """Blocks of so many tokens of text: the first half is the source, the rest the target, each with an end."""
    for plain in Blocks(size.rows, text).batches(stream.ids, seed, 0):
        ids = plain.inputs.ids
        ended = torch.full((len(ids), 1), end)
        source, target = (torch.cat([half, ended], 1) for half in (ids[:, : text // 2], ids[:, text // 2 :]))
        read = torch.cat([torch.full_like(ended, begin), target[:, :-1]], 1)
        yield Batch(Inputs(read, source=Inputs(source)), target, fresh=True, predicted=target.numel())


def tokens_of(batch: Batch) -> int:
    """In the source and in the target."""
    assert batch.inputs.source is not None
    return batch.inputs.source.ids.numel() + batch.targets.numel()


def begun(seed: int, how: str, size: TranslatorSize, tokenizer: Tokenizer, text: Stream) -> tuple[T5, float]:
    """A network that has learnt so, and the seconds it took."""
    network, started = network_of(size, tokenizer, seed), time.process_time()
    objective = Denoising({"rows": size.rows, "length": size.length}, vocabulary(tokenizer))
    batches = objective.batches(text, seed, 0)
    if how == NOTHING:
        return network, 0.0
    if how == PLAIN:
        assert tokenizer.end is not None
        each = tokens_of(next(objective.batches(text, seed, 0))) // size.rows - 2  # without the ends of both sides
        batches = halves(text, size, each, tokenizer.begin, tokenizer.end, seed)
    learn_translation(network, objective, text, seed, size, batches, DESCENT)
    return network, time.process_time() - started


# ------------------------------------------------------------------------------------------------ tasks


def run(
    seed: int,
    how: str,
    size: TranslatorSize,
    tuning: tuple[int, int],
    tokenizer: Tokenizer,
    text: Stream,
    tasks: dict[str, Task],
) -> dict[str, Any]:
    """By task: nats and tokens of the true targets (n, 2), and what tells how good texts are."""
    first, seconds = begun(seed, how, size, tokenizer, text)
    out: dict[str, Any] = {"seconds": seconds}
    for name, task in tasks.items():
        network = deepcopy(first)
        objective = Writing({"rows": size.rows, "length": size.longest})
        learn_translation(network, objective, task.train, seed, replace(size, steps=tuning[1]), descent=DESCENT)
        now = answered(network, tokenizer, task.sources, task.targets)
        out[name] = {"costs": now.costs, "quality": _quality(name, now.written, task.targets)}
    return out


def _quality(name: str, written: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    if name == VERSES:
        return counted(written, targets)
    right = [one.strip() == target for one, target in zip(written, targets, strict=True)]
    return np.stack([100.0 * np.array(right), np.ones(len(right))], 1)


def tasks_of(
    corpus: Parallel, size: TranslatorSize, count: int, tokenizer: Tokenizer, chosen: np.ndarray
) -> dict[str, Task]:
    """The pairs themselves; and where they have titles (chapters of the Bible), the book that a target stands in."""
    train, test = list(corpus.documents("train")), list(corpus.documents(held_out(corpus)))
    some, asked = [train[i] for i in spaced(len(train), 2 * count)], [test[i] for i in chosen]
    found_tasks = {VERSES: ([(p.source or "", p.text) for p in some], [(p.source or "", p.text) for p in asked])}
    if all(pair.title for pair in (*some, *asked)):
        found_tasks[BOOKS] = (
            [(pair.text + NAMED, pair.title.rsplit(" ", 1)[0]) for pair in some],
            [(pair.text + NAMED, pair.title.rsplit(" ", 1)[0]) for pair in asked],
        )
    out = {}
    for name, (learnt, held) in found_tasks.items():
        pairs = pairs_of(tokenizer, learnt).within(size.longest)
        pairs = replace(pairs, chosen=pairs.chosen[spaced(len(pairs), count)])
        sources, targets = zip(*held, strict=True)
        out[name] = Task(pairs, sources, targets)
    return out


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    size = sized(settings.quick, QUICK, FULL, LARGE)
    tuning = QUICK_TUNING if settings.quick else LARGE_TUNING if size is LARGE else TUNING
    corpus, texts = texts_of(settings.data, size, "unigram", sentinels=SENTINELS)
    text = texts.train.target
    enough(len(text), 20 * size.length, "tokens of targets to learn from", corpus)
    tasks = tasks_of(corpus, size, tuning[0], texts.tokenizer, texts.test.chosen)
    jobs: dict[Any, Any] = {
        (how, seed): (run, (seed, how, size, tuning, texts.tokenizer, text, tasks))
        for seed in settings.seeds
        for how in (PLAIN, SPANS, NOTHING)
    }
    runs = spread(jobs, progress, workers())
    parameters = sum(p.numel() for p in network_of(size, texts.tokenizer, 0).parameters())
    return {
        "beginnings": _beginnings(runs, settings.seeds, list(tasks)),
        "differences": _differences(runs, settings.seeds, list(tasks)),
    }, {
        "data": f"{corpus.name} ({corpus.source}): {len(text):,} tokens of targets to begin with; "
        + "; ".join(
            f"{name}: {len(task.train):,} examples, {len(task.sources):,} held out" for name, task in tasks.items()
        )
        + f"; unigram of {len(texts.tokenizer):,}",
        "network": f"T5, two layers of width {size.width} on either side, {parameters:,} parameters",
        "training": f"{size.steps:,} steps of {size.rows} rows of {size.length} tokens and what was taken out of them; "
        f"Adafactor, rate {size.rate:g}; then {tuning[1]:,} steps on a task",
        "intervals": INTERVALS,
    }


def _stacked(runs: dict[Any, Any], how: str, task: str, what: str, seeds: Sequence[int]) -> np.ndarray:
    return np.stack([runs[how, seed][task][what] for seed in seeds])


def _beginnings(runs: dict[Any, Any], seeds: Sequence[int], tasks: Sequence[str]) -> Table:
    rows = []
    for how in (SPANS, PLAIN, NOTHING):
        cells = []
        for task in tasks:
            cells.append(found(ratio, _stacked(runs, how, task, "costs", seeds)))
            cells.append(found(bleu if task == VERSES else ratio, _stacked(runs, how, task, "quality", seeds)))
        rows.append((how, *cells, over_seeds([runs[how, seed]["seconds"] for seed in seeds])))
    columns = [f"{what}, {task}" for task in tasks for what in ("nats", "BLEU" if task == VERSES else "right, %")]
    title = "Held-out examples of each task, mean and 95 % interval"
    return Table(title, ("beginning", *columns, "seconds to begin"), tuple(rows))


def _differences(runs: dict[Any, Any], seeds: Sequence[int], tasks: Sequence[str]) -> Table:
    """How much better spans are than the others; and plain than nothing."""
    rows = []
    for better, than in ((SPANS, PLAIN), (SPANS, NOTHING), (PLAIN, NOTHING)):
        for task in tasks:
            worse: dict[str, Score] = {"costs": ratio, "quality": lost_bleu if task == VERSES else _lost}
            cells = (
                between(s, _stacked(runs, than, task, w, seeds), _stacked(runs, better, task, w, seeds))
                for w, s in worse.items()
            )
            rows.append((task, better, than, *cells))
    columns = ("task", "beginning", "than", "nats", "BLEU or % right")
    return Table("Better by (below 0: worse), mean and 95 % interval", columns, tuple(rows))


def _lost(sums: np.ndarray) -> np.ndarray:
    return -ratio(sums)


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    apart = tables["differences"]
    tasks = list(dict.fromkeys(apart.column("task")))
    return [
        *(_better(apart, task, SPANS, PLAIN, decides=True) for task in tasks),
        *(_better(apart, task, how, NOTHING, decides=False) for task in tasks for how in (SPANS, PLAIN)),
    ]


def _better(apart: Table, task: str, better: str, than: str, decides: bool) -> Part:
    where = {"task": task, "beginning": better, "than": than}
    cell, quality = apart.cell("nats", **where), apart.cell("BLEU or % right", **where)
    unit = "BLEU" if task == VERSES else "points of those right"
    return Part(
        f"For the task “{task}”, {better} {'are' if better == SPANS else 'is'} a better beginning than {than}.",
        judged(above(cell)),
        f"{task.capitalize()}: after {better} a token costs {abs(cell[0]):.3f} nats "
        f"{'less' if cell[0] > 0 else 'more'} than after {than} ({quality[0]:+.1f} {unit}).".replace("-", "−"),
        f"nats less: {ranged(cell)}",
        decides,
    )
