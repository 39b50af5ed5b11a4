"""Does attention help more the longer the source is?

Claim: without attention, quality drops with the length of the source; attention recovers long sentences (Bahdanau,
Cho & Bengio 2015; Luong, Pham & Manning 2015). Without attention the whole source passes through one vector of fixed
width.

Measured: networks of one size, with and without attention, on the same data. Held-out targets are scored by the
length of their source; some held-out pairs are longer than any training pair.

    symbols   copied: nothing can be guessed, so whatever is not carried is lost
    pairs     translated: much of a target can be guessed from its own beginning

Verdict: on symbols the network without attention must lose accuracy with length, and the gain from attention must
grow with length in nats and in accuracy; on pairs the gain must grow in nats. BLEU of short and of long texts is not
quite one measure, so on pairs BLEU does not decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import choose_size, require, run_parallel, stack_seeds
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
    "Without attention, quality drops as the source gets longer; attention recovers long sentences.",
    "Bahdanau, Cho & Bengio 2015, section 5.1 and figure 2; Luong, Pham & Manning 2015, section 5.2",
)
FULL = TranslatorSize(steps=600, length=30, longest=44, held=400)
QUICK = TranslatorSize(pieces=800, width=48, steps=60, length=24, longest=32, held=80)
LONGER = replace(LARGE, length=40, longest=80)
COPYING, QUICK_COPYING = TranslatorSize(width=48, steps=400, rate=1e-2), TranslatorSize(width=24, steps=60, rate=1e-2)
TRAINING_LENGTHS = Lengths(2, 20)
PARTS = 4  # equal parts of the held-out pairs, by length
MIN_PAIRS = 4 * 15

NATS, QUALITY = Scores._fields
LOSS = {NO_ATTENTION: "loss with length, no attention", ATTENTION: "loss with length, attention"}
SHORTEST, LONGEST, INCREASE = "gain from attention, shortest", "gain from attention, longest", "increase of the gain"


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    size = choose_size(settings.quick, QUICK, FULL, LONGER)
    copying = QUICK_COPYING if settings.quick else COPYING
    corpus, pairs = load_pairs(settings.data, size)
    require(len(pairs.test), MIN_PAIRS, f"held-out pairs of at most {size.longest} tokens per side", corpus)
    parts = split_by_length(pairs.source_lengths)
    jobs: dict[Any, Any] = {}
    for seed in settings.seeds:
        for attention in (ATTENTION, NO_ATTENTION):
            jobs[PAIRS, attention, seed] = (run_pairs, (seed, attention, size, pairs, parts))
            jobs[SYMBOLS, attention, seed] = (run_symbols, (seed, attention, copying))
    runs = run_parallel(jobs, progress, uses_gpu=True)
    lengths = {
        SYMBOLS: [str(length) for length in TEST_LENGTHS],
        PAIRS: [f"{pairs.source_lengths[part].min()}–{pairs.source_lengths[part].max()}" for part in parts],
    }
    return {"levels": _levels(runs, lengths), "gains": _gains(runs, lengths)}, {
        "data": pairs.describe(corpus),
        **describe_tasks(size, copying, TRAINING_LENGTHS),
        "intervals": stats.INTERVALS,
    }


def run_symbols(seed: int, attention: str, size: TranslatorSize) -> list[Scores]:
    """For each length."""
    network = train_copier(seed, size, TRAINING_LENGTHS, attention=attention)
    return [score_copies(network, length) for length in TEST_LENGTHS]


def run_pairs(
    seed: int, attention: str, size: TranslatorSize, pairs: PairData, parts: Sequence[np.ndarray]
) -> list[Scores]:
    """For each part of the held-out pairs."""
    nats, quality = score_translator(train_translator(seed, size, pairs, attention=attention), pairs)
    return [Scores(nats[part], quality[part]) for part in parts]


def split_by_length(lengths: np.ndarray, parts: int = PARTS) -> list[np.ndarray]:
    """Indices of the pairs in each part, shortest sources first."""
    return [np.sort(part) for part in np.array_split(np.argsort(lengths, kind="stable"), parts)]


def _levels(runs: dict[Any, Any], lengths: dict[str, list[str]]) -> Table:
    rows = []
    for task, names in lengths.items():
        scores = (stats.ratio, QUALITY_SCORES[task])
        for part, name in enumerate(names):
            cells = [
                stats.score_interval(score, stack_seeds(runs, (task, attention), part, kind))
                for attention in NETWORKS
                for kind, score in enumerate(scores)
            ]
            rows.append((task, name, *cells))
    columns = ("task", "source", *(f"{kind}, {name}" for name in NETWORKS.values() for kind in (NATS, QUALITY)))
    title = "By source length: nats per token, and accuracy in % (symbols) or BLEU (pairs); mean and 95 % interval"
    return Table(title, columns, rows)


def _gains(runs: dict[Any, Any], lengths: dict[str, list[str]]) -> Table:
    """From the shortest sources to the longest: what each network loses, and how the gain from attention grows."""
    rows = []
    for task in lengths:
        for kind, cost in enumerate((stats.ratio, stats.negated(QUALITY_SCORES[task]))):
            first, last = (
                [stack_seeds(runs, (task, attention), part, kind) for attention in NETWORKS] for part in (0, -1)
            )
            losses = [stats.unpaired_difference(cost, *ends) for ends in zip(last, first, strict=True)]
            gains = [stats.score_difference(cost, *ends) for ends in (first, last)]
            difference = stats.difference_of(cost)
            increase = stats.unpaired_difference(difference, stats.join(*last), stats.join(*first))
            rows.append((task, Scores._fields[kind], *losses, *gains, increase))
    columns = ("task", "measure", *LOSS.values(), SHORTEST, LONGEST, INCREASE)
    return Table("From the shortest sources to the longest, mean and 95 % interval", columns, rows)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    return [part for task in (SYMBOLS, PAIRS) for part in _judge_task(tables, task)]


def _judge_task(tables: Tables, task: str) -> list[Part]:
    gains, where, is_symbols = tables["gains"], TASK_TITLES[task], task == SYMBOLS
    lengths = tables["levels"].column("source", task=task)
    unit = "points of accuracy" if is_symbols else "BLEU"
    loss = {name: gains.cell(column, task=task, measure=QUALITY) for name, column in LOSS.items()}
    increase, short, long = (gains.cell(name, task=task, measure=NATS) for name in (INCREASE, SHORTEST, LONGEST))
    quality = gains.cell(INCREASE, task=task, measure=QUALITY)
    return [
        stats.judge_interval(
            f"{where}, a network without attention loses quality with length.",
            loss[NO_ATTENTION],
            f"{where}, from sources of {lengths[0]} tokens to sources of {lengths[-1]} a network without attention "
            f"loses {stats.signed(loss[NO_ATTENTION][0], 1)} {unit}.",
            digits=1,
            decides=is_symbols,
        ),
        stats.judge_interval(
            f"{where}, attention saves more nats for longer sources.",
            increase,
            f"{where}, attention saves {short[0]:.2f} nats per token for the shortest sources and {long[0]:.2f} for "
            "the longest.",
            "increase in nats",
            digits=2,
        ),
        stats.judge_interval(
            f"{where}, the gain in {'accuracy' if is_symbols else 'BLEU'} is also larger for longer sources.",
            quality,
            f"For the longest sources attention is worth {stats.signed(quality[0], 1)} {unit} more than for the "
            "shortest.",
            digits=1,
            decides=is_symbols,
        ),
        stats.judge_interval(
            f"{where}, a network with attention also loses quality with length.",
            loss[ATTENTION],
            f"With attention the loss is {stats.signed(loss[ATTENTION][0], 1)} {unit}.",
            digits=1,
            decides=False,
        ),
    ]


# ------------------------------------------------------------------------------------------------ draw

COLORS = {"no attention": plot.VERMILION, "attention": plot.BLUE}
PANELS = (
    (SYMBOLS, QUALITY, "Copying symbols", "correct symbols, %"),
    (PAIRS, NATS, "Pairs: cost of the target", "nats per token (lower is better)"),
    (PAIRS, QUALITY, "Pairs: translations", "BLEU"),
)


def draw(tables: Tables, figure: plot.Figure) -> None:
    table = tables["levels"]
    for axes, (task, kind, title, label) in zip(plot.panels(figure, 13.5, 4.2, 3), PANELS, strict=True):
        curves = [(name, table.column(f"{kind}, {name}", task=task), color) for name, color in COLORS.items()]
        lengths = table.column("source", task=task)
        limits = (0, None) if kind == QUALITY else None
        plot.lines(
            axes, curves, ticks=lengths, bars=True, gap=0.07,
            xlabel="source length, tokens", ylabel=label, title=title, ylim=limits,
        )  # fmt: skip
