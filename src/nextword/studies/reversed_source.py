"""Does it help to feed the source backwards, and whom?

A network without attention has all of the source in one vector. Read backwards, a source ends where the target begins:

    forwards     a b c d │ A B C D       from each token to its own: four steps
    backwards    d c b a │ A B C D       one, three, five, seven: as many on average, but the first are near

so that learning has somewhere to begin. A network that looks at its source has every token one step away, either way.
All networks here read the source in one direction, and differ in nothing else.

The figure of the study of sources fed backwards: what targets cost either way, and what is gained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nextword.studies._experiment import spread
from nextword.studies._small_models import (
    LOOKING,
    NONE,
    Texts,
    TranslatorSize,
    about,
    by,
    ranged,
    said,
    sized,
    texts_of,
    translator,
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
    difference,
    found,
    joined,
    judged,
    lost_bleu,
    ratio,
)
from nextword.studies._synthetic import Lengths, copied, copier

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"symbols": "Copying symbols", "pairs": "Pairs"}
COLOURS = {"forwards": BLUE, "backwards": VERMILION}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(12, 4.4)
    figure.set_layout_engine("constrained", wspace=0.06)
    for axes, task in zip(figure.subplots(1, 2), TITLES, strict=True):
        _draw_levels(tables["levels"], axes, task)


def _draw_levels(table: Table, axes: Any, task: str) -> None:
    networks = list(dict.fromkeys(table.column("network")))
    for y, network in enumerate(networks):
        for order, shift in (("forwards", -0.13), ("backwards", 0.13)):
            cell = table.cell("nats a token", task=task, network=network, source=order)
            quality = table.cell("% right or BLEU", task=task, network=network, source=order)[0]
            at, colour = y + shift, COLOURS[order]
            if bounded(cell):
                axes.plot(cell[1:], [at, at], color=colour, linewidth=2.5, solid_capstyle="round")
            axes.plot(cell[0], at, "o", color=colour, markersize=8)
            text = f"{quality:.0f} % right" if task == "symbols" else f"BLEU {quality:.1f}"
            above = (8, -15)[order == "backwards"]
            axes.annotate(
                f"{order}: {text}", (cell[0], at), (0, above), textcoords="offset points", ha="center", fontsize=9,
                color=INK,
            )  # fmt: skip
    axes.set_yticks(range(len(networks)), networks, color=INK)
    low, high = axes.get_xlim()
    axes.set(xlim=(low - 0.2 * (high - low), high + 0.2 * (high - low)), ylim=(len(networks) - 0.4, -0.6))
    axes.set_xlabel("nats a token of the target  (left: better)", color=GREY)
    axes.grid(axis="y", visible=False)
    axes.set_title(TITLES[task])


CLAIM = Claim(
    "Feeding the source backwards helps a network without attention, and one with attention less or not at all.",
    "Sutskever, Vinyals & Le 2014, section 3.3; lecture notes on pretrained models: words are fed in reverse order",
)
FORWARDS, BACKWARDS = "forwards", "backwards"
ORDERS = FORWARDS, BACKWARDS
SYMBOLS, PAIRS = "symbols", "pairs"
QUALITY, MORE = "% right or BLEU", "more without than with"
ATTENTION = {NONE: "without attention", LOOKING: "with attention"}
FULL = TranslatorSize(steps=400, length=24, longest=24)
QUICK = TranslatorSize(pieces=800, width=48, steps=60, length=20, longest=20, held=60)
LARGE = TranslatorSize(
    pieces=6000, width=512, rows=64, steps=6000, length=60, longest=60, rate=1e-3, dropout=0.3, held=1000
)
COPYING, QUICK_COPYING = TranslatorSize(width=48, steps=300, rate=1e-2), TranslatorSize(width=24, steps=60, rate=1e-2)
DRAWN = Lengths(4, 20)  # symbols of a sequence
ASKED = (4, 8, 12, 16, 20)

Key = tuple[str, str, str]  # ground, attention, order


# ------------------------------------------------------------------------------------------------ one run


def symbols(seed: int, attention: str, order: str, size: TranslatorSize) -> dict[str, np.ndarray]:
    """(n, 2) each: nats and symbols, and symbols right and symbols."""
    network = copier(seed, size, DRAWN, attention=attention, reverse=order == BACKWARDS)
    every = np.concatenate([copied(network, length) for length in ASKED])
    return {"costs": every[:, [0, 2]], "quality": every[:, [1, 2]]}


def pairs(seed: int, attention: str, order: str, size: TranslatorSize, texts: Texts) -> dict[str, np.ndarray]:
    """(n, 2): nats and tokens; and (n, 10): what BLEU adds up."""
    network = translator(seed, size, texts, attention=attention, reverse=order == BACKWARDS)
    now = said(network, texts)
    return {"costs": now.costs, "quality": counted(now.written, texts.targets)}


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    size = sized(settings.quick, QUICK, FULL, LARGE)
    copying = QUICK_COPYING if settings.quick else COPYING
    corpus, texts = texts_of(settings.data, size)
    tasks: dict[Any, Any] = {}
    for seed in settings.seeds:
        for attention in (LOOKING, NONE):  # the longest first: so no core waits at the end
            for order in (FORWARDS, BACKWARDS):
                tasks[PAIRS, attention, order, seed] = (pairs, (seed, attention, order, size, texts))
                tasks[SYMBOLS, attention, order, seed] = (symbols, (seed, attention, order, copying))
    runs = spread(tasks, progress, workers())
    return {"levels": _levels(runs, settings.seeds), "gains": _gains(runs, settings.seeds)}, {
        "data": about(corpus, texts),
        "networks": f"gated units, one layer of width {size.width} on either side, the source read in one direction; "
        f"{copying.width} for symbols",
        "training": f"{size.said()}; symbols: {copying.steps:,} steps, sequences of {DRAWN.least} to {DRAWN.most}",
        "intervals": INTERVALS,
    }


def stacked(runs: dict[Any, Any], key: Key, what: str, seeds: Sequence[int]) -> np.ndarray:
    """(seeds, n, k)"""
    return np.stack([runs[*key, seed][what] for seed in seeds])


def _right(sums: np.ndarray) -> np.ndarray:
    return 100 * ratio(sums)


def _wrong(sums: np.ndarray) -> np.ndarray:
    return -_right(sums)


def _levels(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    rows = []
    for ground in (SYMBOLS, PAIRS):
        for attention, words in ATTENTION.items():
            for order in (FORWARDS, BACKWARDS):
                key = (ground, attention, order)
                nats = found(ratio, stacked(runs, key, "costs", seeds))
                quality = found(bleu if ground == PAIRS else _right, stacked(runs, key, "quality", seeds))
                rows.append((ground, words, order, nats, quality))
    columns = ("task", "network", "source", "nats a token", QUALITY)
    return Table("Held-out targets, mean and 95 % interval", columns, tuple(rows))


def _gains(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    """How much worse it is to read forwards; and how much more so without attention than with it."""
    rows = []
    for ground in (SYMBOLS, PAIRS):
        scores: dict[str, Score] = {"costs": ratio, "quality": lost_bleu if ground == PAIRS else _wrong}
        parts = {
            (attention, what): [stacked(runs, (ground, attention, order), what, seeds) for order in ORDERS]
            for attention in ATTENTION
            for what in scores
        }
        for attention, words in ATTENTION.items():
            rows.append((ground, words, *(between(scores[what], *parts[attention, what]) for what in scores)))
        more = []
        for what, score in scores.items():
            both = joined(*(joined(*parts[attention, what]) for attention in ATTENTION))
            more.append(found(difference(difference(score)), both))
        rows.append((ground, MORE, *more))
    columns = ("task", "network", "nats a token", QUALITY)
    return Table("Gained by feeding the source backwards (below 0: lost), mean and 95 % interval", columns, tuple(rows))


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    gains = tables["gains"]
    without, with_it = ATTENTION.values()
    parts = []
    for ground, where in ((SYMBOLS, "Copying symbols"), (PAIRS, "On pairs")):
        parts.append(_helps(gains, ground, without, f"{where}, it helps a network without attention."))
        parts.append(_less(gains, ground, f"{where}, it helps a network with attention less."))
        parts.append(_helps(gains, ground, with_it, f"{where}, it helps a network with attention.", decides=False))
    cell = gains.cell(QUALITY, task=PAIRS, network=without)
    said_so = f"Without attention a source that is fed backwards is worth {_signed(cell[0], 1)} of BLEU."
    says = "On pairs, without attention, translations are better, too."
    parts.append(Part(says, judged(above(cell)), said_so, f"95 %: {ranged(cell, 1)}", decides=False))
    return parts


def _helps(gains: Table, ground: str, network: str, says: str, decides: bool = True) -> Part:
    cell, points = (gains.cell(name, task=ground, network=network) for name in ("nats a token", QUALITY))
    unit = "points" if ground == SYMBOLS else "BLEU"
    return Part(
        says,
        judged(above(cell)),
        f"{ground.capitalize()}, {network}: fed backwards, a token costs {abs(cell[0]):.3f} nats "
        f"{'less' if cell[0] > 0 else 'more'} ({by(points[0], unit, 1)}).",
        f"nats saved, 95 %: {ranged(cell)}",
        decides,
    )


def _less(gains: Table, ground: str, says: str) -> Part:
    cell = gains.cell("nats a token", task=ground, network=MORE)
    return Part(
        says,
        judged(above(cell)),
        f"{ground.capitalize()}: without attention it saves {_signed(cell[0], 3)} nats more than with it.",
        f"95 %: {ranged(cell)}",
    )


def _signed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−")
