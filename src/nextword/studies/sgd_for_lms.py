"""Does plain SGD beat momentum and Adam for an LSTM language model, and does averaging its weights beat it?

One small LSTM is trained by each optimizer for the same number of steps at a constant rate. The rate is the best of a
grid by the validation text, the grids being of one size; then all seeds are trained at that rate and the test text is
read. All of it twice: with dropout, which is the setting of the papers that say so, and without.

The figure of the study of optimizers for language models: rates, learning, and what is reached.

One small LSTM language model trained by each optimizer: what `nextword look sgd-for-lms` measures with.

Averaging weights does not change SGD's steps. So one walk of SGD serves three optimizers: two followers go with it,
which are the library's AveragedSGD at a rate of 0. They move nothing, average what they see, and are validated so.

    sgd          the weights as they are
    asgd         their mean from step K on (Polyak & Juditsky 1992); K is half of all steps
    nt-asgd      their mean from where the held-out loss was no longer better than PATIENCE checks before
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from nextword.batching.token_stream import Stream
from nextword.core import pytree as nest
from nextword.core.types import State, Vocabulary
from nextword.data.corpus import Corpus
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.objectives.causal import Causal
from nextword.studies._experiment import apart, corpus_for, enough, spread
from nextword.studies._study import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    beside,
    interval,
    judged,
    over_seeds,
)
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from nextword.training.optimizers import AveragedSGD, averages, hear, make_optimizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SGD, MOMENTUM, ADAM, ASGD, TRIGGERED = "SGD", "momentum 0.9", "Adam", "ASGD from half", "NT-ASGD"
WALKS: dict[str, tuple[str, ...]] = {SGD: (SGD, ASGD, TRIGGERED), MOMENTUM: (MOMENTUM,), ADAM: (ADAM,)}
WALK = {name: walk for walk, names in WALKS.items() for name in names}  # which walk serves an optimizer
OPTIONS: dict[str, dict[str, Any]] = {
    SGD: {"kind": "sgd"},
    MOMENTUM: {"kind": "sgd", "momentum": 0.9},
    ADAM: {"kind": "adam"},
}
GRIDS: dict[str, tuple[float, ...]] = {  # as many for each, twice the one before
    SGD: (10, 20, 40, 80, 160),
    MOMENTUM: (1, 2, 4, 8, 16),
    ADAM: (0.002, 0.004, 0.008, 0.016, 0.032),
}
CLIP = 0.25
PATIENCE = 5
CHECKS = 20  # validations in a walk


@dataclass(frozen=True)
class Text:
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    vocabulary: Vocabulary


@dataclass(frozen=True)
class Size:
    width: int  # of the LSTM and its vectors of tokens
    rows: int  # in a step
    length: int  # of each, in tokens
    steps: int
    train: int  # tokens of each text
    valid: int
    test: int


@dataclass(frozen=True)
class Job:
    walk: str
    rate: float
    dropout: float
    seed: int
    size: Size


@dataclass(frozen=True)
class Outcome:
    """Nats a token. The weights are those of the best check, as training keeps them."""

    valid: float
    test: float
    curve: tuple[float, ...]  # at each check
    averaged: int | None = None  # the step from which on weights are averaged


def network(job: Job, vocabulary: Vocabulary) -> LSTM:
    torch.manual_seed(job.seed)
    return LSTM(RecurrentConfig(width=job.size.width, tied=True, dropout=job.dropout), vocabulary)


def trained(job: Job, text: Text) -> dict[str, Outcome]:
    """Walk once; what each optimizer that this walk serves has found."""
    with apart():
        return _walked(job, text)


def _walked(job: Job, text: Text) -> dict[str, Outcome]:
    lstm = network(job, text.vocabulary)
    params: list[Any] = list(lstm.parameters())
    moving = make_optimizer(params, {**OPTIONS[job.walk], "rate": job.rate})
    voices: dict[str, torch.optim.Optimizer] = {job.walk: moving}
    if job.walk == SGD:
        voices[ASGD] = AveragedSGD(params, lr=0.0, start=job.size.steps // 2)
        voices[TRIGGERED] = AveragedSGD(params, lr=0.0, patience=PATIENCE)
    curves: dict[str, list[float]] = {name: [] for name in voices}
    best: dict[str, Any] = {}
    since: dict[str, int | None] = dict.fromkeys(voices)
    objective = Causal({"kind": "rows", "rows": job.size.rows, "length": job.size.length})
    state: State = None
    checks = {round(job.size.steps * i / CHECKS) for i in range(1, CHECKS + 1)}
    ids = np.roll(text.train, np.random.default_rng(job.seed).integers(len(text.train)))  # seeds differ in rows, too
    for step, batch in enumerate(islice(objective.batches(Stream.from_ids(ids), job.seed, 0), job.size.steps), 1):
        lstm.train()
        loss = objective.loss(lstm, batch, None if batch.fresh else state)
        state = nest.detach(loss.state)
        loss.value.backward()
        nn.utils.clip_grad_norm_(params, CLIP)
        for optimizer in voices.values():
            optimizer.step()
        moving.zero_grad()
        if step not in checks:
            continue
        raw = nats(lstm, text.valid)
        for name, optimizer in voices.items():
            averaging = isinstance(optimizer, AveragedSGD) and optimizer.averaging
            with averages(optimizer):
                curves[name].append(nats(lstm, text.valid) if averaging else raw)
                if curves[name][-1] == min(curves[name]):
                    best[name] = [p.detach().clone() for p in params]
            hear(optimizer, curves[name])
            if since[name] is None and isinstance(optimizer, AveragedSGD) and optimizer.averaging:
                since[name] = optimizer.start or step
    found = {}
    for name, weights in best.items():
        with torch.no_grad():
            torch._foreach_copy_(params, weights)
        found[name] = Outcome(min(curves[name]), nats(lstm, text.test), tuple(curves[name]), since[name])
    return found


@torch.no_grad()
def nats(lstm: LSTM, ids: np.ndarray) -> float:
    """A token, read from left to right without dropout. A loss that is no number is a large one."""
    lstm.eval()
    objective = Causal({"kind": "rows"})
    total, count = 0.0, 0
    state: State = None
    for batch in objective.held_out(Stream.from_ids(ids)):
        loss = objective.loss(lstm, batch, state)
        total, count, state = total + float(loss.nats), count + loss.count, loss.state
    return total / count if np.isfinite(total) else 1e3


def train_all(
    jobs: Sequence[Job], text: Text, done: Callable[[], None], workers: int = 0
) -> dict[Job, dict[str, Outcome]]:
    """Every job, on all cores: each walk is too small to be shared out among them."""
    return spread({job: (trained, (job, text)) for job in jobs}, lambda n, total: done(), workers)


def lower(these: Mapping[int, float], those: Mapping[int, float]) -> list[float] | None:
    """By how many per cent of perplexity these are below those: mean over seeds, 95 % interval. None for one seed."""
    found = interval(np.array([those[seed] - these[seed] for seed in sorted(these)]))
    return None if found is None else [float(100 * (1 - np.exp(-x))) for x in found]


STROKES = {
    SGD: (INK, "-", "o"),
    MOMENTUM: (ORANGE, "-", "s"),
    ADAM: (VERMILION, "-", "^"),
    ASGD: (GREEN, "--", "D"),
    TRIGGERED: (BLUE, "-.", "v"),
}


def draw(tables: Tables, figure: Figure) -> None:
    drops = sorted(dict.fromkeys(tables["optimizers"].column("dropout")), reverse=True)
    figure.set_size_inches(14, 4.2 * len(drops))
    figure.set_layout_engine("constrained", hspace=0.08, wspace=0.04)
    grid = figure.subplots(len(drops), 3, width_ratios=(1, 1.05, 0.9), squeeze=False)
    for (rates, curves, reached), drop in zip(grid, drops, strict=True):
        setting = f"dropout {drop:g}" if drop else "no dropout"
        _rates(tables["rates"], rates, drop, f"Choosing the rate, {setting}")
        _curves(tables["curves"], curves, drop, f"Learning at that rate, {setting}")
        _reached(tables["optimizers"], reached, drop, f"Test text, {setting}")


def _rates(table: Table, axes: Any, drop: float, title: str) -> None:
    """Each grid counted from its own lowest rate, so that the shapes can be compared."""
    most, least = [], []
    for name, (colour, dash, shape) in STROKES.items():
        x = table.column("rate", optimizer=name, dropout=drop)
        y = table.column("valid nats", optimizer=name, dropout=drop)
        places = range(1, len(x) + 1)
        axes.plot(places, y, dash, marker=shape, color=colour, markersize=5, linewidth=1.6)
        best = min(places, key=lambda at: y[at - 1])
        axes.plot(best, y[best - 1], "o", markersize=12, markerfacecolor="none", markeredgecolor=colour)
        most.append(sorted(y)[-2] if len(y) > 2 else max(y))
        least.append(min(y))
    names = [name for name in STROKES if name in (SGD, MOMENTUM, ADAM)]
    ticks = []
    for at in range(len(x)):
        every = (table.column("rate", optimizer=name, dropout=drop)[at] for name in names)
        ticks.append("\n".join(f"{rate:g}" for rate in every))
    axes.set_xticks(range(1, len(x) + 1), ticks)
    height = max(most) - min(least)
    axes.set(ylim=(min(least) - 0.08 * height, max(most) + 0.08 * height), ylabel="validation, nats a token")
    axes.set_xlabel("rate of SGD and its averages; momentum; Adam (circle: chosen)", fontsize=9)
    axes.set_title(title)


def _curves(table: Table, axes: Any, drop: float, title: str) -> None:
    labels, shown = [], []
    for name, (colour, dash, _) in STROKES.items():
        steps = table.column("step", optimizer=name, dropout=drop)
        middle, low, high = zip(*table.column("valid nats", optimizer=name, dropout=drop), strict=True)
        axes.plot(steps, middle, dash, color=colour, linewidth=1.8)
        axes.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
        labels.append((middle[-1], name, colour))
        shown += [min(low), middle[len(middle) // 5]]
    height = max(shown) - min(shown)
    axes.set(xlabel="step", xlim=(0, steps[-1]), ylim=(min(shown) - 0.1 * height, max(shown) + 0.1 * height))
    axes.set_title(title)
    beside(axes, labels, gap=0.075)


def _reached(table: Table, axes: Any, drop: float, title: str) -> None:
    for y, (name, (colour, _, shape)) in enumerate(STROKES.items()):
        middle, low, high = table.cell("test nats", optimizer=name, dropout=drop)
        axes.plot([low, high], [y, y], color=colour, linewidth=2, solid_capstyle="round")
        axes.plot(middle, y, shape, color=colour, markersize=7)
        clear = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        text = f"{middle:.3f}"
        axes.annotate(
            text, (high, y), (9, 0), textcoords="offset points", va="center", fontsize=9, color=colour, bbox=clear
        )
    low, high = axes.get_xlim()
    axes.set_xlim(low, high + 0.22 * (high - low))
    axes.set_yticks(range(len(STROKES)), list(STROKES), color=INK)
    axes.set(xlabel="nats a token", ylim=(len(STROKES) - 0.5, -0.5))
    axes.grid(axis="y", visible=False)
    axes.set_title(title)


CLAIM = Claim(
    "For language modelling plain SGD is better than SGD with momentum and than Adam, and averaged SGD (ASGD, NT-ASGD) "
    "is better than SGD.",
    "Merity, Keskar & Socher 2018, section 4; lecture notes on AWD-LSTM: non-monotonically triggered ASGD",
)
PIECES = 1000  # of the BPE
FULL = Size(width=112, rows=16, length=24, steps=600, train=40_000, valid=6_000, test=20_000)
QUICK = Size(width=64, rows=8, length=20, steps=250, train=15_000, valid=2_000, test=6_000)
QUICK_RATES = {SGD: slice(0, 3), MOMENTUM: slice(0, 3), ADAM: slice(2, 5)}  # of each grid as many, where it is low
DROPOUTS = (0.4, 0.0)
ORDER = (SGD, MOMENTUM, ADAM, ASGD, TRIGGERED)
CLOSE = 0.1  # per cent of perplexity: nothing to speak of


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    size = QUICK if settings.quick else FULL
    text, steps = _text(corpus, size), size.steps
    grids = {walk: grid[QUICK_RATES[walk]] if settings.quick else grid for walk, grid in GRIDS.items()}
    first, *others = settings.seeds
    searched = [Job(w, rate, drop, first, size) for drop in DROPOUTS for w, grid in grids.items() for rate in grid]
    done, total = 0, len(searched) + len(DROPOUTS) * (len(WALKS) + 1) * len(others)

    def ahead() -> None:
        nonlocal done
        done += 1
        progress(min(done, total), total)

    found = train_all(searched, text, ahead)
    tried = [(n, job.dropout, job.rate, found[job][n].valid) for n in ORDER for job in searched if n in found[job]]
    chosen = {(name, drop): _best(found, name, drop) for drop in DROPOUTS for name in ORDER}
    again = [Job(WALK[n], rate, d, seed, size) for seed in others for (n, d), rate in chosen.items()]
    again = list(dict.fromkeys(again))
    total = len(searched) + len(again)
    found |= train_all(again, text, ahead) if again else {}

    def outcomes(name: str, drop: float) -> dict[int, Outcome]:
        walk, rate = WALK[name], chosen[name, drop]
        return {seed: found[Job(walk, rate, drop, seed, size)][name] for seed in settings.seeds}

    runs = {key: outcomes(*key) for key in chosen}
    tables = {
        "optimizers": _compared(runs, chosen, grids),
        "rates": Table(
            f"Validation by rate, seed {first}",
            ("optimizer", "dropout", "rate", "valid nats"),
            tuple(tried),
            detailed=True,
        ),
        "curves": Table(
            "Validation on the way, at the chosen rate",
            ("optimizer", "dropout", "step", "valid nats"),
            tuple(
                (name, drop, round(steps * (i + 1) / CHECKS), over_seeds([run.curve[i] for run in by_seed.values()]))
                for (name, drop), by_seed in runs.items()
                for i in range(CHECKS)
            ),
            detailed=True,
        ),
    }
    with apart():
        count = sum(p.numel() for p in network(searched[0], text.vocabulary).parameters())
    epochs = steps * size.rows * size.length / len(text.train)
    return tables, {
        "data": f"{corpus.name} ({corpus.source}): {len(text.train):,} tokens to learn from, {len(text.valid):,} to "
        f"choose by, {len(text.test):,} to test on; BPE of {PIECES:,} pieces",
        "network": f"LSTM of {size.width}, tied, {count:,} parameters; state carried from piece to piece",
        "training": f"{steps} steps of {size.rows} pieces of {size.length} tokens ({epochs:.1f} epochs), constant "
        f"rate, clipped at {CLIP}; {CHECKS} checks, of which the best is kept",
        "rates": "; ".join(f"{walk}: {', '.join(f'{rate:g}' for rate in grid)}" for walk, grid in grids.items())
        + f" (chosen by seed {first}; ASGD and NT-ASGD choose from SGD's)",
        "averaging": f"ASGD from step {steps // 2} on; NT-ASGD from where a check is worse than the best of those "
        f"before the last {PATIENCE}",
        "intervals": "95 %, Student's t on differences paired by seed",
    }


def _text(corpus: Corpus, size: Size) -> Text:
    """Documents in a random order that is always the same, so that the training text is like the others."""
    tokenizer = train_tokenizer({"kind": "bpe", "size": PIECES}, (d.text for d in corpus.documents("train")))

    def ids(split: str, wanted: int) -> np.ndarray:
        documents = [document.text for document in corpus.documents(split)]
        parts: list[np.ndarray] = []
        for at in np.random.default_rng(0).permutation(len(documents)):
            parts.append(np.asarray(tokenizer.encode(documents[at]).ids))
            if sum(map(len, parts)) >= wanted:
                break
        found = np.concatenate(parts)[:wanted] if parts else np.zeros(0, np.int64)
        enough(len(found), wanted // 2, f"tokens in its split '{split}'", corpus)
        return found

    return Text(ids("train", size.train), ids("valid", size.valid), ids("test", size.test), vocabulary(tokenizer))


def _best(found: dict[Job, dict[str, Outcome]], name: str, drop: float) -> float:
    tried = {job.rate: runs[name].valid for job, runs in found.items() if name in runs and job.dropout == drop}
    return min(tried, key=lambda rate: tried[rate])


def _compared(
    runs: dict[tuple[str, float], dict[int, Outcome]],
    chosen: dict[tuple[str, float], float],
    grids: dict[str, tuple[float, ...]],
) -> Table:
    rows = []
    for (name, drop), by_seed in runs.items():
        rate, grid = chosen[name, drop], grids[WALK[name]]
        tests = {seed: run.test for seed, run in by_seed.items()}
        base = {seed: run.test for seed, run in runs[SGD, drop].items()}
        began = [run.averaged for run in by_seed.values() if run.averaged is not None]
        fired = None if name not in (ASGD, TRIGGERED) else f"{len(began)} of {len(by_seed)}"
        rows.append(
            (
                name,
                drop,
                rate,
                "lowest" if rate == grid[0] else "highest" if rate == grid[-1] else "inside",
                over_seeds(list(tests.values())),
                None if name == SGD else lower(tests, base),
                fired,
                over_seeds(began) if began else None,
            )
        )
    columns = ("optimizer", "dropout", "rate", "in its grid", "test nats", "below SGD, %", "averaged", "from step")
    return Table("Each optimizer at the best of its rates, same number of steps", columns, tuple(rows))


# ------------------------------------------------------------------------------------------------ the verdict


def judge(tables: Tables) -> list[Part]:
    table = tables["optimizers"]
    parts = []
    drops = sorted(dict.fromkeys(table.column("dropout")), reverse=True)
    for drop in drops:
        for other in (MOMENTUM, ADAM):
            parts.append(_beats(table, other, drop, decides=drop > 0))
        for average in (ASGD, TRIGGERED):
            parts.append(_beaten(table, average, drop, decides=drop > 0))
    return parts + [_over_adam(table, drop) for drop in drops]


def _setting(drop: float) -> str:
    return f"With dropout {drop:g}" if drop else "Without dropout"


def _cells(table: Table, name: str, drop: float) -> list[Any]:
    return [table.cell(column, optimizer=name, dropout=drop) for column in ("test nats", "below SGD, %", "rate")]


def _edge(table: Table, names: Sequence[str], drop: float) -> str:
    """Whose rate was chosen at an edge of its grid, and may be better beyond it."""
    where = {name: table.cell("in its grid", optimizer=name, dropout=drop) for name in names}
    said = [f"{name}'s rate is the {place} of its grid" for name, place in where.items() if place != "inside"]
    return f" {'; '.join(said)}, and one beyond might be better." if said else ""


def _uncertainty(cell: Sequence[float] | None, name: str, drop: float) -> str:
    if cell is None:
        return "no interval with one seed"
    return f"{name}, {_setting(drop).lower()}: 95 % interval {_signed(cell[1])} to {_signed(cell[2])} %"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _amount(cell: Sequence[float], name: str) -> str:
    if abs(cell[0]) < CLOSE:
        return f"{name}'s perplexity is SGD's"
    return f"{name}'s perplexity is on average {abs(cell[0]):.1f} % {'below' if cell[0] > 0 else 'above'} SGD's"


def _beats(table: Table, other: str, drop: float, decides: bool) -> Part:
    """SGD against another. Who loses at an edge of its grid may have lost for that."""
    (base, *_), (tests, cell, _) = _cells(table, SGD, drop), _cells(table, other, drop)
    holds = None if cell is None else True if cell[2] < 0 else False if cell[1] > 0 else None
    loser = {True: other, False: SGD}.get(holds) if holds is not None else None
    if loser and _edge(table, (loser,), drop):
        holds = None
    said = f"{_setting(drop)} SGD has {base[0]:.3f} nats and {other} {tests[0]:.3f}"
    return Part(
        f"{_setting(drop)}, SGD is better than {other}.",
        judged(holds),
        f"{said}: {_amount(cell, other)}." + _edge(table, (SGD, other), drop) if cell else f"{said}.",
        _uncertainty(cell, other, drop),
        decides,
    )


def _beaten(table: Table, average: str, drop: float, decides: bool) -> Part:
    (base, *_), (tests, cell, rate) = _cells(table, SGD, drop), _cells(table, average, drop)
    holds = None if cell is None else True if cell[1] > 0 else False if cell[2] < 0 else None
    loser = {True: SGD, False: average}.get(holds) if holds is not None else None
    if loser and _edge(table, (loser,), drop):
        holds = None
    fired, began = (table.cell(column, optimizer=average, dropout=drop) for column in ("averaged", "from step"))
    when = f"averaging in {fired} seeds, from step {began[0]:.0f}" if began else "it never began to average: it is SGD"
    said = f"{_setting(drop)} {average} has {tests[0]:.3f} nats at rate {rate:g} and SGD {base[0]:.3f} ({when})"
    return Part(
        f"{_setting(drop)}, {average} is better than SGD.",
        judged(holds),
        f"{said}: {_amount(cell, average)}." + _edge(table, (SGD, average), drop) if cell else f"{said}.",
        _uncertainty(cell, average, drop),
        decides,
    )


def _over_adam(table: Table, drop: float) -> Part:
    """The better of the averages against Adam, by the ranges over seeds."""
    averages = {name: table.cell("test nats", optimizer=name, dropout=drop) for name in (ASGD, TRIGGERED)}
    name, mine = min(averages.items(), key=lambda pair: pair[1][0])
    adam = table.cell("test nats", optimizer=ADAM, dropout=drop)
    holds = True if mine[2] < adam[1] else False if mine[1] > adam[2] else None
    loser = {True: ADAM, False: name}.get(holds) if holds is not None else None
    return Part(
        f"{_setting(drop)}, averaged SGD is better than Adam.",
        judged(None if loser and _edge(table, (loser,), drop) else holds),
        f"{_setting(drop)} {name} has {mine[0]:.3f} nats and Adam {adam[0]:.3f}." + _edge(table, (name, ADAM), drop),
        f"range over seeds: {mine[1]:.3f} to {mine[2]:.3f}, Adam {adam[1]:.3f} to {adam[2]:.3f}",
        decides=False,
    )
