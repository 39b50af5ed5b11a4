"""Which optimizer suits an LSTM language model?

Claim: for language modeling plain SGD is better than SGD with momentum and than Adam, and averaged SGD (ASGD,
NT-ASGD) is better than SGD (Merity, Keskar & Socher 2018).

Measured: a small LSTM, the same number of steps at a constant learning rate. The rate is the best of a grid on
validation text, with equally large grids; then all seeds are trained at that rate and scored on test text. With
dropout, which is the setting of the paper, and without.

Averaging does not change SGD's steps, so one SGD run serves three optimizers: two followers, which are the library's
AveragedSGD at a learning rate of 0, average the weights they see and are validated with the average.

    SGD        the weights themselves
    ASGD       their mean from half of the steps on (Polyak & Juditsky 1992)
    NT-ASGD    their mean from where the validation loss was no better than PATIENCE checks before

Verdict, with dropout: SGD must beat momentum and Adam, and both averages must beat SGD, with the whole 95 %
interval. A loser whose learning rate is at an edge of its grid has not lost yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import nn

from nextword.batching.token_stream import Stream
from nextword.core import pytree
from nextword.core.types import State, Vocabulary
from nextword.data.corpus import Corpus
from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.objectives.causal import CausalObjective
from nextword.studies import _figures as plot
from nextword.studies._experiment import describe_corpus, isolated, open_text, require, run_parallel
from nextword.studies._statistics import is_above, is_below, median_and_range, ranges_below, student_interval
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer
from nextword.training.optimizers import AveragedSGD, Optimizer, make_optimizer


@dataclass(frozen=True)
class Size:
    width: int  # of the LSTM and its embeddings
    rows: int
    length: int
    steps: int
    train: int  # tokens of each text
    valid: int
    test: int


CLAIM = Claim(
    "For language modeling plain SGD is better than SGD with momentum and than Adam, and averaged SGD (ASGD, NT-ASGD) "
    "is better than SGD.",
    "Merity, Keskar & Socher 2018, section 4; lecture notes on AWD-LSTM: non-monotonically triggered ASGD",
)
PIECES = 1000
FULL = Size(width=112, rows=16, length=24, steps=600, train=40_000, valid=6_000, test=20_000)
QUICK = Size(width=64, rows=8, length=20, steps=250, train=15_000, valid=2_000, test=6_000)
DROPOUTS = (0.4, 0.0)
CLIP = 0.25
PATIENCE = 5
CHECKS = 20  # validations in a run
NEGLIGIBLE = 0.1  # per cent of perplexity

SGD, MOMENTUM, ADAM, ASGD, TRIGGERED = "SGD", "momentum 0.9", "Adam", "ASGD from half", "NT-ASGD"
OPTIMIZERS = (SGD, MOMENTUM, ADAM, ASGD, TRIGGERED)
TRAINED_BY = {SGD: SGD, MOMENTUM: MOMENTUM, ADAM: ADAM, ASGD: SGD, TRIGGERED: SGD}  # whose run serves an optimizer
OPTIONS: dict[str, dict[str, Any]] = {
    SGD: {"kind": "sgd"},
    MOMENTUM: {"kind": "sgd", "momentum": 0.9},
    ADAM: {"kind": "adam"},
}
GRIDS: dict[str, tuple[float, ...]] = {  # equally many, each twice the one before
    SGD: (10, 20, 40, 80, 160),
    MOMENTUM: (1, 2, 4, 8, 16),
    ADAM: (0.002, 0.004, 0.008, 0.016, 0.032),
}
QUICK_GRIDS = {SGD: slice(0, 3), MOMENTUM: slice(0, 3), ADAM: slice(2, 5)}  # equally many, where the loss is low

RATE, PLACE, TEST, VALID = "learning rate", "place in its grid", "test nats", "valid nats"
BELOW, FIRED, START = "perplexity below SGD, %", "averaged in", "from step"


# ------------------------------------------------------------------------------------------------ training


@dataclass(frozen=True)
class Text:
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    vocabulary: Vocabulary


@dataclass(frozen=True)
class Run:
    optimizer: str
    rate: float
    dropout: float
    seed: int
    size: Size


@dataclass(frozen=True)
class Outcome:
    """Nats per token with the weights of the best check."""

    valid: float
    test: float
    curve: tuple[float, ...]  # at each check
    averaged: int | None = None  # first averaged step


def make_network(run: Run, vocabulary: Vocabulary) -> LSTM:
    torch.manual_seed(run.seed)
    return LSTM(RecurrentConfig(width=run.size.width, tied=True, dropout=run.dropout), vocabulary)


def train_run(run: Run, text: Text) -> dict[str, Outcome]:
    """Train once; the outcome of each optimizer that this run serves."""
    with isolated():
        return _train(run, text)


def _train(run: Run, text: Text) -> dict[str, Outcome]:
    lstm = make_network(run, text.vocabulary)
    params: list[Any] = list(lstm.parameters())
    main = make_optimizer(params, {**OPTIONS[run.optimizer], "rate": run.rate})
    optimizers: dict[str, Optimizer] = {run.optimizer: main}
    if run.optimizer == SGD:
        optimizers[ASGD] = AveragedSGD(params, lr=0.0, start=run.size.steps // 2)
        optimizers[TRIGGERED] = AveragedSGD(params, lr=0.0, patience=PATIENCE)
    curves: dict[str, list[float]] = {name: [] for name in optimizers}
    best: dict[str, Any] = {}
    start: dict[str, int | None] = dict.fromkeys(optimizers)
    objective = CausalObjective({"kind": "rows", "rows": run.size.rows, "length": run.size.length})
    state: State = None
    checks = {round(run.size.steps * i / CHECKS) for i in range(1, CHECKS + 1)}
    ids = np.roll(text.train, np.random.default_rng(run.seed).integers(len(text.train)))  # seeds also differ in rows
    for step, batch in enumerate(islice(objective.batches(Stream.from_ids(ids), run.seed, 0), run.size.steps), 1):
        lstm.train()
        loss = objective.loss(lstm, batch, None if batch.reset_state else state)
        state = pytree.detach(loss.state)
        loss.value.backward()
        nn.utils.clip_grad_norm_(params, CLIP)
        for optimizer in optimizers.values():
            optimizer.step()
        main.zero_grad()
        if step not in checks:
            continue
        raw = nats_per_token(lstm, text.valid)
        for name, optimizer in optimizers.items():
            with optimizer.averaged_weights():
                curves[name].append(nats_per_token(lstm, text.valid) if optimizer.is_averaging else raw)
                if curves[name][-1] == min(curves[name]):
                    best[name] = [p.detach().clone() for p in params]
            optimizer.on_validation(curves[name])
            if start[name] is None and isinstance(optimizer, AveragedSGD) and optimizer.is_averaging:
                start[name] = optimizer.start or step
    outcomes = {}
    for name, weights in best.items():
        with torch.no_grad():
            torch._foreach_copy_(params, weights)
        test = nats_per_token(lstm, text.test)
        outcomes[name] = Outcome(min(curves[name]), test, tuple(curves[name]), start[name])
    return outcomes


@torch.no_grad()
def nats_per_token(lstm: LSTM, ids: np.ndarray) -> float:
    """Cross-entropy of a text read from left to right without dropout; 1000 if it is not finite."""
    lstm.eval()
    objective = CausalObjective({"kind": "rows"})
    total, count = 0.0, 0
    state: State = None
    for batch in objective.validation_batches(Stream.from_ids(ids)):
        loss = objective.loss(lstm, batch, state)
        total, count, state = total + float(loss.nats), count + loss.count, loss.state
    return total / count if np.isfinite(total) else 1e3


def train_all(runs: Sequence[Run], text: Text, on_done: Callable[[], None]) -> dict[Run, dict[str, Outcome]]:
    return run_parallel({run: (train_run, (run, text)) for run in runs}, lambda done, total: on_done())


# ------------------------------------------------------------------------------------------------ measure

Outcomes = dict[tuple[str, float], dict[int, Outcome]]  # (optimizer, dropout) → seed


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus = open_text(settings.data)
    size = QUICK if settings.quick else FULL
    text, steps = _encode_text(corpus, size), size.steps
    grids = {name: grid[QUICK_GRIDS[name]] if settings.quick else grid for name, grid in GRIDS.items()}
    first, *others = settings.seeds
    search = [Run(name, rate, drop, first, size) for drop in DROPOUTS for name, grid in grids.items() for rate in grid]
    done, total = 0, len(search) + len(DROPOUTS) * (len(GRIDS) + 1) * len(others)

    def on_done() -> None:
        nonlocal done
        done += 1
        progress(min(done, total), total)

    results = train_all(search, text, on_done)
    chosen = {(name, drop): choose_rate(results, name, drop) for drop in DROPOUTS for name in OPTIMIZERS}
    repeats = [Run(TRAINED_BY[n], rate, d, seed, size) for seed in others for (n, d), rate in chosen.items()]
    repeats = list(dict.fromkeys(repeats))
    total = len(search) + len(repeats)
    results |= train_all(repeats, text, on_done) if repeats else {}
    outcomes: Outcomes = {
        (name, drop): {s: results[Run(TRAINED_BY[name], rate, drop, s, size)][name] for s in settings.seeds}
        for (name, drop), rate in chosen.items()
    }
    with isolated():
        parameters = make_network(search[0], text.vocabulary).num_parameters()
    epochs = steps * size.rows * size.length / len(text.train)
    return {
        "optimizers": _optimizers(outcomes, chosen, grids),
        "rates": Table(
            f"Validation loss by learning rate, seed {first}",
            ("optimizer", "dropout", RATE, VALID),
            tuple((n, r.dropout, r.rate, results[r][n].valid) for n in OPTIMIZERS for r in search if n in results[r]),
            detailed=True,
        ),
        "curves": _curves(outcomes, steps),
    }, {
        "data": f"{describe_corpus(corpus)}: {len(text.train):,} training tokens, {len(text.valid):,} validation and "
        f"{len(text.test):,} test tokens; BPE of {PIECES:,} pieces",
        "network": f"LSTM of width {size.width}, tied embeddings, {parameters:,} parameters; state carried over",
        "training": f"{steps} steps of {size.rows} rows of {size.length} tokens ({epochs:.1f} epochs), constant "
        f"learning rate, gradient clipping at {CLIP}; {CHECKS} checks, the best is kept",
        "learning rates": "; ".join(
            f"{name}: {', '.join(f'{rate:g}' for rate in grid)}" for name, grid in grids.items()
        )
        + f" (chosen with seed {first}; ASGD and NT-ASGD choose from SGD's)",
        "averaging": f"ASGD from step {steps // 2} on; NT-ASGD once a check is worse than the best of those before the "
        f"last {PATIENCE}",
        "intervals": "95 %, Student's t on differences paired by seed",
    }


def _encode_text(corpus: Corpus, size: Size) -> Text:
    """Documents in a fixed random order, so that all splits are alike."""
    tokenizer = train_tokenizer({"kind": "bpe", "size": PIECES}, (d.text for d in corpus.documents("train")))

    def encode(split: str, tokens: int) -> np.ndarray:
        documents = [document.text for document in corpus.documents(split)]
        parts: list[np.ndarray] = []
        for index in np.random.default_rng(0).permutation(len(documents)):
            parts.append(np.asarray(tokenizer.encode(documents[index]).ids))
            if sum(map(len, parts)) >= tokens:
                break
        ids = np.concatenate(parts)[:tokens] if parts else np.zeros(0, np.int64)
        require(len(ids), tokens // 2, f"tokens in its split '{split}'", corpus)
        return ids

    splits = (encode("train", size.train), encode("valid", size.valid), encode("test", size.test))
    return Text(*splits, vocabulary(tokenizer))


def choose_rate(results: dict[Run, dict[str, Outcome]], name: str, drop: float) -> float:
    """By validation loss."""
    losses = {run.rate: by[name].valid for run, by in results.items() if name in by and run.dropout == drop}
    return min(losses, key=lambda rate: losses[rate])


def perplexity_below(these: Mapping[int, float], those: Mapping[int, float]) -> list[float] | None:
    """Perplexity of these below that of those in per cent: mean and 95 % interval; None for one seed."""
    interval = student_interval(np.array([those[seed] - these[seed] for seed in sorted(these)]))
    return None if interval is None else [float(100 * (1 - np.exp(-x))) for x in interval]


def _optimizers(
    outcomes: Outcomes, chosen: dict[tuple[str, float], float], grids: dict[str, tuple[float, ...]]
) -> Table:
    rows = []
    for (name, drop), by_seed in outcomes.items():
        rate, grid = chosen[name, drop], grids[TRAINED_BY[name]]
        test, base = ({s: run.test for s, run in by.items()} for by in (by_seed, outcomes[SGD, drop]))
        starts = [run.averaged for run in by_seed.values() if run.averaged is not None]
        place = "lowest" if rate == grid[0] else "highest" if rate == grid[-1] else "inside"
        below = None if name == SGD else perplexity_below(test, base)
        fired = f"{len(starts)} of {len(by_seed)}" if name in (ASGD, TRIGGERED) else None
        start = median_and_range(starts) if starts else None
        rows.append((name, drop, rate, place, median_and_range(list(test.values())), below, fired, start))
    columns = ("optimizer", "dropout", RATE, PLACE, TEST, BELOW, FIRED, START)
    return Table("Each optimizer at its best learning rate, same number of steps", columns, rows)


def _curves(outcomes: Outcomes, steps: int) -> Table:
    rows = [
        (
            name,
            drop,
            round(steps * (i + 1) / CHECKS),
            median_and_range([run.curve[i] for run in by_seed.values()]),
        )
        for (name, drop), by_seed in outcomes.items()
        for i in range(CHECKS)
    ]
    title = "Validation loss during training, at the chosen learning rate"
    return Table(title, ("optimizer", "dropout", "step", VALID), rows, detailed=True)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    table = tables["optimizers"]
    drops = sorted(dict.fromkeys(table.column("dropout")), reverse=True)
    parts = []
    for drop in drops:
        parts += [_sgd_beats(table, other, drop, decides=drop > 0) for other in (MOMENTUM, ADAM)]
        parts += [_beats_sgd(table, average, drop, decides=drop > 0) for average in (ASGD, TRIGGERED)]
    return parts + [_average_beats_adam(table, drop) for drop in drops]


def _setting(drop: float) -> str:
    return f"With dropout {drop:g}" if drop else "Without dropout"


def _edge_note(table: Table, names: Sequence[str], drop: float) -> str:
    """Names the optimizers whose learning rate was chosen at an edge of its grid."""
    places = {name: table.cell(PLACE, optimizer=name, dropout=drop) for name in names}
    notes = [
        f"{name}'s learning rate is the {place} of its grid" for name, place in places.items() if place != "inside"
    ]
    return f" {'; '.join(notes)}; one beyond might be better." if notes else ""


def _unless_at_edge(table: Table, holds: bool | None, winner: str, loser: str, drop: float) -> bool | None:
    """The result, unless whoever lost did so at an edge of its grid. `winner` wins if the part holds."""
    if holds is None:
        return None
    return None if _edge_note(table, (loser if holds else winner,), drop) else holds


def _compare_with_sgd(
    table: Table, name: str, drop: float, statement: str, holds: bool | None, note: str, decides: bool
) -> Part:
    base, test = (table.cell(TEST, optimizer=n, dropout=drop) for n in (SGD, name))
    cell = table.cell(BELOW, optimizer=name, dropout=drop)
    evidence = f"{_setting(drop)} SGD has {base[0]:.3f} nats and {name} {test[0]:.3f}{note}"
    uncertainty = "one seed has no interval"
    if cell:
        side = "below" if cell[0] > 0 else "above"
        amount = "equal to" if abs(cell[0]) < NEGLIGIBLE else f"on average {abs(cell[0]):.1f} % {side}"
        evidence += f": {name}'s perplexity is {amount} SGD's"
        bounds = " to ".join(f"{end:+.1f}".replace("-", "−") for end in cell[1:])
        uncertainty = f"{name}, {_setting(drop).lower()}: 95 % interval {bounds} %"
    edge = _edge_note(table, (SGD, name), drop) if cell else ""
    return Part(statement, holds, f"{evidence}.{edge}", uncertainty, decides)


def _sgd_beats(table: Table, other: str, drop: float, decides: bool) -> Part:
    cell = table.cell(BELOW, optimizer=other, dropout=drop)
    holds = _unless_at_edge(table, is_below(cell) if cell else None, SGD, other, drop)
    return _compare_with_sgd(table, other, drop, f"{_setting(drop)}, SGD is better than {other}.", holds, "", decides)


def _beats_sgd(table: Table, average: str, drop: float, decides: bool) -> Part:
    cell = table.cell(BELOW, optimizer=average, dropout=drop)
    holds = _unless_at_edge(table, is_above(cell) if cell else None, average, SGD, drop)
    fired, start = (table.cell(column, optimizer=average, dropout=drop) for column in (FIRED, START))
    rate = table.cell(RATE, optimizer=average, dropout=drop)
    when = f"averaging in {fired} seeds, from step {start[0]:.0f}" if start else "never averaging: it is SGD"
    note, statement = f" at learning rate {rate:g} ({when})", f"{_setting(drop)}, {average} is better than SGD."
    return _compare_with_sgd(table, average, drop, statement, holds, note, decides)


def _average_beats_adam(table: Table, drop: float) -> Part:
    """The better of the averages against Adam, by ranges over seeds."""
    averages = {name: table.cell(TEST, optimizer=name, dropout=drop) for name in (ASGD, TRIGGERED)}
    name, best = min(averages.items(), key=lambda pair: pair[1][0])
    adam = table.cell(TEST, optimizer=ADAM, dropout=drop)
    return Part(
        f"{_setting(drop)}, averaged SGD is better than Adam.",
        _unless_at_edge(table, ranges_below(best, adam), name, ADAM, drop),
        f"{_setting(drop)} {name} has {best[0]:.3f} nats and Adam {adam[0]:.3f}."
        + _edge_note(table, (name, ADAM), drop),
        f"range over seeds: {best[1]:.3f} to {best[2]:.3f}, Adam {adam[1]:.3f} to {adam[2]:.3f}",
        decides=False,
    )


# ------------------------------------------------------------------------------------------------ draw

STYLES = {
    SGD: (plot.INK, "-", "o"),
    MOMENTUM: (plot.ORANGE, "-", "s"),
    ADAM: (plot.VERMILION, "-", "^"),
    ASGD: (plot.GREEN, "--", "D"),
    TRIGGERED: (plot.BLUE, "-.", "v"),
}


def draw(tables: Tables, figure: plot.Figure) -> None:
    drops = sorted(dict.fromkeys(tables["optimizers"].column("dropout")), reverse=True)
    figure.set_size_inches(14.5, 4.2 * len(drops))
    figure.set_layout_engine("constrained", hspace=0.08, wspace=0.04)
    grid = figure.subplots(len(drops), 3, width_ratios=(1, 1.05, 0.9), squeeze=False)
    for (rates, curves, test), drop in zip(grid, drops, strict=True):
        setting = f"dropout {drop:g}" if drop else "no dropout"
        _draw_rates(tables["rates"], rates, drop, f"Choosing the learning rate, {setting}")
        _draw_curves(tables["curves"], curves, drop, f"Training, {setting}")
        _draw_test(tables["optimizers"], test, drop, f"Test text, {setting}")


def _draw_rates(table: Table, axes: plot.Axes, drop: float, title: str) -> None:
    """Each grid starts at its own lowest rate, so that the shapes can be compared."""
    high, low = [], []
    for name, (color, dash, marker) in STYLES.items():
        y = table.column(VALID, optimizer=name, dropout=drop)
        places = range(1, len(y) + 1)
        axes.plot(places, y, dash, marker=marker, color=color, markersize=5, linewidth=1.6)
        best = min(places, key=lambda place: y[place - 1])
        axes.plot(best, y[best - 1], "o", markersize=12, markerfacecolor="none", markeredgecolor=color)
        high.append(sorted(y)[-2] if len(y) > 2 else max(y))
        low.append(min(y))
    rates = [table.column(RATE, optimizer=name, dropout=drop) for name in (SGD, MOMENTUM, ADAM)]
    ticks = ["\n".join(f"{rate:g}" for rate in place) for place in zip(*rates, strict=True)]
    axes.set_xticks(range(1, len(ticks) + 1), ticks)
    height = max(high) - min(low)
    axes.set(ylim=(min(low) - 0.08 * height, max(high) + 0.08 * height), ylabel="validation, nats per token")
    axes.set_xlabel("learning rate of SGD and averages; momentum; Adam (circle: chosen)", fontsize=9)
    axes.set_title(title)


def _draw_curves(table: Table, axes: plot.Axes, drop: float, title: str) -> None:
    labels, visible = [], []
    for name, (color, dash, _) in STYLES.items():
        steps = table.column("step", optimizer=name, dropout=drop)
        cells = table.column(VALID, optimizer=name, dropout=drop)
        labels.append((plot.line(axes, steps, cells, color, dash), name, color))
        visible += [min(cell[1] for cell in cells), cells[len(cells) // 5][0]]
    height = max(visible) - min(visible)
    axes.set(
        xlabel="step", xlim=(0, steps[-1]), ylim=(min(visible) - 0.1 * height, max(visible) + 0.1 * height), title=title
    )
    plot.label_lines(axes, labels, gap=0.075)


def _draw_test(table: Table, axes: plot.Axes, drop: float, title: str) -> None:
    for y, (name, (color, _, marker)) in enumerate(STYLES.items()):
        cell = table.cell(TEST, optimizer=name, dropout=drop)
        plot.dot(axes, cell, y, color, f"{cell[0]:.3f}", marker=marker)
    plot.pad_x(axes)
    plot.name_rows(axes, list(STYLES), "nats per token", title)
