"""Does reversing the source help, and which networks?

Claim: feeding the source in reverse helps a network without attention, and helps a network with attention less or
not at all (Sutskever, Vinyals & Le 2014). A reversed source ends where the target begins, so the first dependencies
are short:

    forward    a b c d │ A B C D       distance from each token to its copy: four steps
    reversed   d c b a │ A B C D       one, three, five, seven: the same mean, but learning has a place to start

With attention every source token is one step away, in either order.

Measured: cost and quality of held-out targets for copied symbols and for translated pairs, both source orders, with
and without attention. All encoders are unidirectional and differ in nothing else.

Verdict: on both tasks reversing must save nats without attention, and must save more without attention than with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nextword.studies import _figures as plot
from nextword.studies._copying import TEST_LENGTHS, Lengths, score_copies, train_copier
from nextword.studies._experiment import run_parallel
from nextword.studies._statistics import (
    INTERVALS,
    Score,
    bleu,
    bleu_statistics,
    difference_of,
    format_gain,
    format_interval,
    is_above,
    join,
    more_or_less,
    negated,
    percent,
    ratio,
    score_difference,
    score_interval,
    signed,
)
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._translators import (
    ATTENTION,
    NO_ATTENTION,
    PairData,
    TranslatorSize,
    choose_size,
    load_pairs,
    train_translator,
    translate,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = Claim(
    "Reversing the source helps a network without attention, and helps a network with attention less or not at all.",
    "Sutskever, Vinyals & Le 2014, section 3.3; lecture notes on pretrained models: words are fed in reverse order",
)
FULL = TranslatorSize(steps=400, length=24, longest=24)
QUICK = TranslatorSize(pieces=800, width=48, steps=60, length=20, longest=20, held=60)
LARGE = TranslatorSize(
    pieces=6000, width=512, rows=64, steps=6000, length=60, longest=60, rate=1e-3, dropout=0.3, held=1000
)
COPYING, QUICK_COPYING = TranslatorSize(width=48, steps=300, rate=1e-2), TranslatorSize(width=24, steps=60, rate=1e-2)
TRAINING_LENGTHS = Lengths(4, 20)

FORWARD, REVERSED = "forward", "reversed"
ORDERS = (FORWARD, REVERSED)
SYMBOLS, PAIRS = "symbols", "pairs"
NATS, QUALITY = "nats per token", "accuracy in % or BLEU"
NETWORKS = {NO_ATTENTION: "no attention", ATTENTION: "attention"}
EXTRA = "no attention minus attention"


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    size = choose_size(settings.quick, QUICK, FULL, LARGE)
    copying = QUICK_COPYING if settings.quick else COPYING
    corpus, pairs = load_pairs(settings.data, size)
    jobs: dict[Any, Any] = {}
    for seed in settings.seeds:
        for attention in (ATTENTION, NO_ATTENTION):  # the slowest first, so that no core is idle at the end
            for order in ORDERS:
                jobs[PAIRS, attention, order, seed] = (run_pairs, (seed, attention, order, size, pairs))
                jobs[SYMBOLS, attention, order, seed] = (run_symbols, (seed, attention, order, copying))
    runs = run_parallel(jobs, progress, uses_gpu=True)
    return {"levels": _levels(runs, settings.seeds), "gains": _gains(runs, settings.seeds)}, {
        "data": pairs.describe(corpus),
        "networks": f"one GRU layer of width {size.width} on each side, unidirectional encoder; width {copying.width} "
        "for symbols",
        "training": f"{size.describe_training()}; symbols: {copying.steps:,} steps on sequences of "
        f"{TRAINING_LENGTHS.shortest} to {TRAINING_LENGTHS.longest}",
        "intervals": INTERVALS,
    }


def run_symbols(seed: int, attention: str, order: str, size: TranslatorSize) -> dict[str, np.ndarray]:
    """Nats and symbols (n, 2); correct symbols and symbols (n, 2)."""
    network = train_copier(seed, size, TRAINING_LENGTHS, attention=attention, reverse=order == REVERSED)
    scores = np.concatenate([score_copies(network, length) for length in TEST_LENGTHS])
    return {NATS: scores[:, [0, 2]], QUALITY: scores[:, [1, 2]]}


def run_pairs(seed: int, attention: str, order: str, size: TranslatorSize, pairs: PairData) -> dict[str, np.ndarray]:
    """Nats and tokens (n, 2); BLEU statistics (n, 10)."""
    output = translate(train_translator(seed, size, pairs, attention=attention, reverse=order == REVERSED), pairs)
    return {NATS: output.costs, QUALITY: bleu_statistics(output.texts, pairs.targets)}


def _stack(runs: dict[Any, Any], key: tuple[str, str, str], kind: str, seeds: Sequence[int]) -> np.ndarray:
    """(seeds, n, k)"""
    return np.stack([runs[*key, seed][kind] for seed in seeds])


def _levels(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    rows = []
    for task, quality in ((SYMBOLS, percent), (PAIRS, bleu)):
        for attention, network in NETWORKS.items():
            for order in ORDERS:
                cells = (
                    score_interval(score, _stack(runs, (task, attention, order), kind, seeds))
                    for kind, score in ((NATS, ratio), (QUALITY, quality))
                )
                rows.append((task, network, order, *cells))
    columns = ("task", "network", "source", NATS, QUALITY)
    return Table("Held-out targets, mean and 95 % interval", columns, tuple(rows))


def _gains(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    """How much worse the forward order is; and how much more so without attention than with it."""
    rows: list[tuple[Any, ...]] = []
    for task, quality in ((SYMBOLS, percent), (PAIRS, bleu)):
        costs: dict[str, Score] = {NATS: ratio, QUALITY: negated(quality)}
        both = {
            (attention, kind): [_stack(runs, (task, attention, order), kind, seeds) for order in ORDERS]
            for attention in NETWORKS
            for kind in costs
        }
        for attention, network in NETWORKS.items():
            rows.append((task, network, *(score_difference(costs[k], *both[attention, k]) for k in costs)))
        extra = [
            score_interval(
                difference_of(difference_of(cost)), join(*(join(*both[attention, k]) for attention in NETWORKS))
            )
            for k, cost in costs.items()
        ]
        rows.append((task, EXTRA, *extra))
    title = "Gain from reversing the source (negative: loss), mean and 95 % interval"
    return Table(title, ("task", "network", NATS, QUALITY), tuple(rows))


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    gains = tables["gains"]
    without, with_attention = NETWORKS.values()
    parts = []
    for task, where in ((SYMBOLS, "Copying symbols"), (PAIRS, "Translating pairs")):
        parts.append(_helps(gains, task, without, f"{where}, reversing helps a network without attention."))
        parts.append(_helps_more(gains, task, f"{where}, it helps a network with attention less."))
        statement = f"{where}, it helps a network with attention."
        parts.append(_helps(gains, task, with_attention, statement, decides=False))
    cell = gains.cell(QUALITY, task=PAIRS, network=without)
    parts.append(
        Part(
            "Translating pairs without attention, BLEU also improves.",
            is_above(cell),
            f"Without attention, reversing the source changes BLEU by {signed(cell[0], 1)}.",
            f"95 %: {format_interval(cell, 1)}",
            decides=False,
        )
    )
    return parts


def _helps(gains: Table, task: str, network: str, statement: str, decides: bool = True) -> Part:
    nats, quality = (gains.cell(kind, task=task, network=network) for kind in (NATS, QUALITY))
    amount, word = more_or_less(-nats[0], 3)
    return Part(
        statement,
        is_above(nats),
        f"{task.capitalize()}, {network}: with a reversed source a token costs {amount} nats {word} "
        f"({format_gain(quality[0], 'points' if task == SYMBOLS else 'BLEU', 1)}).",
        f"nats saved, 95 %: {format_interval(nats)}",
        decides,
    )


def _helps_more(gains: Table, task: str, statement: str) -> Part:
    cell = gains.cell(NATS, task=task, network=EXTRA)
    return Part(
        statement,
        is_above(cell),
        f"{task.capitalize()}: reversing saves {signed(cell[0], 3)} nats more without attention than with it.",
        f"95 %: {format_interval(cell)}",
    )


# ------------------------------------------------------------------------------------------------ draw

TITLES = {SYMBOLS: "Copying symbols", PAIRS: "Translating pairs"}
COLORS = {FORWARD: plot.BLUE, REVERSED: plot.VERMILION}


def draw(tables: Tables, figure: Figure) -> None:
    table = tables["levels"]
    for axes, (task, title) in zip(plot.panels(figure, 12, 4.6, 2), TITLES.items(), strict=True):
        for y, network in enumerate(NETWORKS.values()):
            for order, shift in ((FORWARD, -0.2), (REVERSED, 0.2)):
                nats, quality = (table.cell(k, task=task, network=network, source=order) for k in (NATS, QUALITY))
                text = f"{quality[0]:.0f} % correct" if task == SYMBOLS else f"BLEU {quality[0]:.1f}"
                plot.dot(axes, nats, y + shift, COLORS[order], f"{order}: {text}", size=8)
        plot.pad_x(axes, 0.2)
        plot.name_rows(axes, list(NETWORKS.values()), "nats per target token (lower is better)", title)
