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
from typing import TYPE_CHECKING, Any

import numpy as np

from nextword.studies import _figures as plot
from nextword.studies._copying import TEST_LENGTHS, Lengths, score_copies, train_copier
from nextword.studies._experiment import require, run_parallel
from nextword.studies._statistics import (
    INTERVALS,
    Score,
    bleu,
    bleu_statistics,
    difference_of,
    format_interval,
    is_above,
    join,
    negated,
    percent,
    ratio,
    score_difference,
    score_interval,
    signed,
    unpaired_difference,
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
    "Without attention, quality drops as the source gets longer; attention recovers long sentences.",
    "Bahdanau, Cho & Bengio 2015, section 5.1 and figure 2; Luong, Pham & Manning 2015, section 5.2",
)
FULL = TranslatorSize(steps=600, length=30, longest=44, held=400)
QUICK = TranslatorSize(pieces=800, width=48, steps=60, length=24, longest=32, held=80)
LARGE = TranslatorSize(
    pieces=6000, width=512, rows=64, steps=6000, length=40, longest=80, rate=1e-3, dropout=0.3, held=1000
)
COPYING, QUICK_COPYING = TranslatorSize(width=48, steps=400, rate=1e-2), TranslatorSize(width=24, steps=60, rate=1e-2)
TRAINING_LENGTHS = Lengths(2, 20)
PARTS = 4  # equal parts of the held-out pairs, by length
MIN_PAIRS = 4 * 15

SYMBOLS, PAIRS = "symbols", "pairs"
NETWORKS = {NO_ATTENTION: "no attention", ATTENTION: "attention"}
NATS, QUALITY = "nats", "quality"
LOSS = {NO_ATTENTION: "loss with length, no attention", ATTENTION: "loss with length, attention"}
SHORTEST, LONGEST, INCREASE = "gain from attention, shortest", "gain from attention, longest", "increase of the gain"
WHERE = {SYMBOLS: "Copying symbols", PAIRS: "Translating pairs"}


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    size = choose_size(settings.quick, QUICK, FULL, LARGE)
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
    return {"levels": _levels(runs, settings.seeds, lengths), "gains": _gains(runs, settings.seeds, lengths)}, {
        "data": pairs.describe(corpus),
        "networks": f"one GRU layer of width {size.width} on each side, unidirectional encoder; width {copying.width} "
        "for symbols",
        "training": f"{size.describe_training()}; symbols: {copying.steps:,} steps on sequences of "
        f"{TRAINING_LENGTHS.shortest} to {TRAINING_LENGTHS.longest}",
        "intervals": INTERVALS,
    }


def run_symbols(seed: int, attention: str, size: TranslatorSize) -> list[dict[str, np.ndarray]]:
    """For each length: nats and symbols (n, 2), correct symbols and symbols (n, 2)."""
    network = train_copier(seed, size, TRAINING_LENGTHS, attention=attention)
    scores = [score_copies(network, length) for length in TEST_LENGTHS]
    return [{NATS: score[:, [0, 2]], QUALITY: score[:, [1, 2]]} for score in scores]


def run_pairs(
    seed: int, attention: str, size: TranslatorSize, pairs: PairData, parts: Sequence[np.ndarray]
) -> list[dict[str, np.ndarray]]:
    """For each part of the held-out pairs: nats and tokens (n, 2), BLEU statistics (n, 10)."""
    output = translate(train_translator(seed, size, pairs, attention=attention), pairs)
    quality = bleu_statistics(output.texts, pairs.targets)
    return [{NATS: output.costs[part], QUALITY: quality[part]} for part in parts]


def split_by_length(lengths: np.ndarray, parts: int = PARTS) -> list[np.ndarray]:
    """Indices of the pairs in each part, shortest sources first."""
    return [np.sort(part) for part in np.array_split(np.argsort(lengths, kind="stable"), parts)]


def _stack(runs: dict[Any, Any], task: str, attention: str, at: int, kind: str, seeds: Sequence[int]) -> np.ndarray:
    """(seeds, n, k)"""
    return np.stack([runs[task, attention, seed][at][kind] for seed in seeds])


def _levels(runs: dict[Any, Any], seeds: Sequence[int], lengths: dict[str, list[str]]) -> Table:
    rows = []
    for task, names in lengths.items():
        quality: Score = bleu if task == PAIRS else percent
        for at, name in enumerate(names):
            cells = [
                score_interval(score, _stack(runs, task, attention, at, kind, seeds))
                for attention in NETWORKS
                for kind, score in ((NATS, ratio), (QUALITY, quality))
            ]
            rows.append((task, name, *cells))
    columns = ("task", "source", *(f"{kind}, {name}" for name in NETWORKS.values() for kind in (NATS, QUALITY)))
    title = "By source length: nats per token, and accuracy in % (symbols) or BLEU (pairs); mean and 95 % interval"
    return Table(title, columns, tuple(rows))


def _gains(runs: dict[Any, Any], seeds: Sequence[int], lengths: dict[str, list[str]]) -> Table:
    """From the shortest sources to the longest: what each network loses, and how the gain from attention grows."""
    rows = []
    for task, names in lengths.items():
        costs: dict[str, Score] = {NATS: ratio, QUALITY: negated(bleu if task == PAIRS else percent)}
        for kind, cost in costs.items():
            first, last = (
                [_stack(runs, task, attention, at, kind, seeds) for attention in NETWORKS] for at in (0, len(names) - 1)
            )
            losses = [unpaired_difference(cost, *ends) for ends in zip(last, first, strict=True)]
            gains = [score_difference(cost, *ends) for ends in (first, last)]
            increase = unpaired_difference(difference_of(cost), join(*last), join(*first))
            rows.append((task, kind, *losses, *gains, increase))
    columns = ("task", "measure", *LOSS.values(), SHORTEST, LONGEST, INCREASE)
    return Table("From the shortest sources to the longest, mean and 95 % interval", columns, tuple(rows))


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    return [part for task in (SYMBOLS, PAIRS) for part in _judge_task(tables, task)]


def _judge_task(tables: Tables, task: str) -> list[Part]:
    gains, where = tables["gains"], WHERE[task]
    lengths = tables["levels"].column("source", task=task)
    unit = "points of accuracy" if task == SYMBOLS else "BLEU"
    loss = {name: gains.cell(column, task=task, measure=QUALITY) for name, column in LOSS.items()}
    increase, short, long = (gains.cell(name, task=task, measure=NATS) for name in (INCREASE, SHORTEST, LONGEST))
    quality = gains.cell(INCREASE, task=task, measure=QUALITY)
    return [
        Part(
            f"{where}, a network without attention loses quality with length.",
            is_above(loss[NO_ATTENTION]),
            f"{where}, from sources of {lengths[0]} tokens to sources of {lengths[-1]} a network without attention "
            f"loses {signed(loss[NO_ATTENTION][0], 1)} {unit}.",
            f"95 %: {format_interval(loss[NO_ATTENTION], 1)}",
            decides=task == SYMBOLS,
        ),
        Part(
            f"{where}, attention saves more nats for longer sources.",
            is_above(increase),
            f"{where}, attention saves {short[0]:.2f} nats per token for the shortest sources and {long[0]:.2f} for "
            "the longest.",
            f"increase in nats: {format_interval(increase, 2)}",
        ),
        Part(
            f"{where}, the gain in {'accuracy' if task == SYMBOLS else 'BLEU'} is also larger for longer sources.",
            is_above(quality),
            f"For the longest sources attention is worth {signed(quality[0], 1)} {unit} more than for the shortest.",
            f"95 %: {format_interval(quality, 1)}",
            decides=task == SYMBOLS,
        ),
        Part(
            f"{where}, a network with attention also loses quality with length.",
            is_above(loss[ATTENTION]),
            f"With attention the loss is {signed(loss[ATTENTION][0], 1)} {unit}.",
            f"95 %: {format_interval(loss[ATTENTION], 1)}",
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


def draw(tables: Tables, figure: Figure) -> None:
    table = tables["levels"]
    for axes, (task, kind, title, label) in zip(plot.panels(figure, 13.5, 4.2, 3), PANELS, strict=True):
        lengths, labels = table.column("source", task=task), []
        for name, color in COLORS.items():
            cells = table.column(f"{kind}, {name}", task=task)
            labels.append((plot.line(axes, range(len(cells)), cells, color, bars=True), name, color))
        axes.set_xticks(range(len(lengths)), lengths)
        axes.set(xlabel="source length, tokens", ylabel=label)
        if kind == QUALITY:
            axes.set_ylim(bottom=0)
        axes.set_title(title)
        plot.label_lines(axes, labels, gap=0.07)
