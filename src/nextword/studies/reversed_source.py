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

from typing import Any

import numpy as np

from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import choose_size, run_parallel, stack_seeds
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._translators import (
    ATTENTION,
    LARGE,
    NETWORKS,
    NO_ATTENTION,
    PAIRS,
    QUALITY_SCORES,
    SYMBOLS,
    TASK_TITLES,
    TEST_LENGTHS,
    Lengths,
    PairData,
    Scores,
    TranslatorSize,
    describe_tasks,
    load_pairs,
    score_copies,
    score_translator,
    train_copier,
    train_translator,
)

CLAIM = Claim(
    "Reversing the source helps a network without attention, and helps a network with attention less or not at all.",
    "Sutskever, Vinyals & Le 2014, section 3.3; lecture notes on pretrained models: words are fed in reverse order",
)
FULL = TranslatorSize(steps=400, length=24, longest=24)
QUICK = TranslatorSize(pieces=800, width=48, steps=60, length=20, longest=20, held=60)
COPYING, QUICK_COPYING = TranslatorSize(width=48, steps=300, rate=1e-2), TranslatorSize(width=24, steps=60, rate=1e-2)
TRAINING_LENGTHS = Lengths(4, 20)

FORWARD, REVERSED = "forward", "reversed"
ORDERS = (FORWARD, REVERSED)
NATS, QUALITY = "nats per token", "accuracy in % or BLEU"
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
    return {"levels": _levels(runs), "gains": _gains(runs)}, {
        "data": pairs.describe(corpus),
        **describe_tasks(size, copying, TRAINING_LENGTHS),
        "intervals": stats.INTERVALS,
    }


def run_symbols(seed: int, attention: str, order: str, size: TranslatorSize) -> Scores:
    network = train_copier(seed, size, TRAINING_LENGTHS, attention=attention, reverse_source=order == REVERSED)
    scores = [score_copies(network, length) for length in TEST_LENGTHS]
    return Scores(*map(np.concatenate, zip(*scores, strict=True)))


def run_pairs(seed: int, attention: str, order: str, size: TranslatorSize, pairs: PairData) -> Scores:
    return score_translator(
        train_translator(seed, size, pairs, attention=attention, reverse_source=order == REVERSED), pairs
    )


def _levels(runs: dict[Any, Any]) -> Table:
    rows = []
    for task, quality in QUALITY_SCORES.items():
        for attention, network in NETWORKS.items():
            for order in ORDERS:
                cells = (
                    stats.score_interval(score, stack_seeds(runs, (task, attention, order), kind))
                    for kind, score in enumerate((stats.ratio, quality))
                )
                rows.append((task, network, order, *cells))
    return Table("Held-out targets, mean and 95 % interval", ("task", "network", "source", NATS, QUALITY), rows)


def _gains(runs: dict[Any, Any]) -> Table:
    """How much worse the forward order is; and how much more so without attention than with it."""
    rows: list[tuple[Any, ...]] = []
    for task, quality in QUALITY_SCORES.items():
        gains, extra = [], []
        for kind, cost in enumerate((stats.ratio, stats.negated(quality))):
            by_network = [[stack_seeds(runs, (task, net, order), kind) for order in ORDERS] for net in NETWORKS]
            gains.append([stats.score_difference(cost, *orders) for orders in by_network])
            both = stats.join(*(stats.join(*orders) for orders in by_network))
            extra.append(stats.score_interval(stats.difference_of(stats.difference_of(cost)), both))
        rows += [(task, network, *cells) for network, *cells in zip(NETWORKS.values(), *gains, strict=True)]
        rows.append((task, EXTRA, *extra))
    title = "Gain from reversing the source (negative: loss), mean and 95 % interval"
    return Table(title, ("task", "network", NATS, QUALITY), rows)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    gains = tables["gains"]
    without, with_attention = NETWORKS.values()
    parts = []
    for task, where in TASK_TITLES.items():
        saved = gains.cell(NATS, task=task, network=EXTRA)
        parts += [
            _helps(gains, task, without, f"{where}, reversing helps a network without attention."),
            stats.judge_interval(
                f"{where}, it helps a network with attention less.",
                saved,
                f"{task.capitalize()}: reversing saves {stats.signed(saved[0], 3)} nats more without attention than "
                "with it.",
            ),
            _helps(gains, task, with_attention, f"{where}, it helps a network with attention.", decides=False),
        ]
    cell = gains.cell(QUALITY, task=PAIRS, network=without)
    statement = "Translating pairs without attention, BLEU also improves."
    evidence = f"Without attention, reversing the source changes BLEU by {stats.signed(cell[0], 1)}."
    return [*parts, stats.judge_interval(statement, cell, evidence, digits=1, decides=False)]


def _helps(gains: Table, task: str, network: str, statement: str, decides: bool = True) -> Part:
    nats, quality = (gains.cell(kind, task=task, network=network) for kind in (NATS, QUALITY))
    amount, word = stats.more_or_less(-nats[0], 3)
    return stats.judge_interval(
        statement,
        nats,
        f"{task.capitalize()}, {network}: with a reversed source a token costs {amount} nats {word} "
        f"({stats.format_gain(quality[0], 'points' if task == SYMBOLS else 'BLEU', 1)}).",
        "nats saved, 95 %",
        decides=decides,
    )


# ------------------------------------------------------------------------------------------------ draw

COLORS = {FORWARD: plot.BLUE, REVERSED: plot.VERMILION}


def draw(tables: Tables, figure: plot.Figure) -> None:
    table = tables["levels"]
    for axes, (task, title) in zip(plot.panels(figure, 12, 4.6, 2), TASK_TITLES.items(), strict=True):
        for y, network in enumerate(NETWORKS.values()):
            for order, shift in ((FORWARD, -0.2), (REVERSED, 0.2)):
                nats, quality = (table.cell(k, task=task, network=network, source=order) for k in (NATS, QUALITY))
                text = f"{quality[0]:.0f} % correct" if task == SYMBOLS else f"BLEU {quality[0]:.1f}"
                plot.dot(axes, nats, y + shift, COLORS[order], f"{order}: {text}", size=8)
        plot.pad_x(axes, 0.2)
        plot.name_rows(axes, list(NETWORKS.values()), "nats per target token (lower is better)", title)
