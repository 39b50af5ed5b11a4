"""Does attention recover what long sentences lose?

Without attention all of a source goes through one vector, as wide for forty tokens as for four. With attention the
decoder looks at each token as it writes. Networks of one size, with and without, learn the same pairs; then held-out
targets are asked for by how long their sources are, of pairs some longer than any that was learnt from.

    symbols   copied: nothing can be guessed, so what is not carried is lost
    pairs     translated: much can be guessed from the target's own beginning

The figure of the study of long sources: quality by length, with attention and without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nextword.studies._experiment import enough, spread
from nextword.studies._small_models import (
    LOOKING,
    NONE,
    Texts,
    TranslatorSize,
    about,
    ranged,
    said,
    sized,
    texts_of,
    translator,
    workers,
)
from nextword.studies._study import (
    BLUE,
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
    beside,
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
    unpaired,
)
from nextword.studies._synthetic import Lengths, copied, copier

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"without": VERMILION, "with attention": BLUE}
PANELS = (
    ("symbols", "quality", "Copying symbols", "% of symbols right"),
    ("pairs", "nats", "Pairs: cost of the target", "nats a token  (down: better)"),
    ("pairs", "quality", "Pairs: translations", "BLEU"),
)


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13.5, 4.2)
    figure.set_layout_engine("constrained", wspace=0.05)
    for axes, panel in zip(figure.subplots(1, 3), PANELS, strict=True):
        _panel(tables["levels"], axes, *panel)


def _panel(table: Table, axes: Any, task: str, what: str, title: str, label: str) -> None:
    sources, labels = table.column("source", task=task), []
    for name, colour in COLOURS.items():
        cells = table.column(f"{what}, {name}", task=task)
        middles = [cell[0] for cell in cells]
        axes.plot(range(len(cells)), middles, "o-", color=colour, linewidth=1.8, markersize=5)
        for x, cell in enumerate(cells):
            if bounded(cell):
                axes.plot([x, x], cell[1:], color=colour, linewidth=2.5, alpha=0.45, solid_capstyle="round")
        labels.append((middles[-1], name, colour))
    axes.set_xticks(range(len(sources)), sources)
    axes.set(xlabel="tokens of the source", ylabel=label)
    if what == "quality":
        axes.set_ylim(bottom=0)
    axes.set_title(title)
    beside(axes, labels, gap=0.07)


CLAIM = Claim(
    "Without attention a network loses the more the longer its source is; attention recovers long sentences.",
    "Bahdanau, Cho & Bengio 2015, section 5.1 and figure 2; Luong, Pham & Manning 2015, section 5.2",
)
SYMBOLS, PAIRS = "symbols", "pairs"
NETWORKS = {NONE: "without", LOOKING: "with attention"}
FULL = TranslatorSize(steps=600, length=30, longest=44, held=400)
QUICK = TranslatorSize(pieces=800, width=48, steps=60, length=24, longest=32, held=80)
LARGE = TranslatorSize(
    pieces=6000, width=512, rows=64, steps=6000, length=40, longest=80, rate=1e-3, dropout=0.3, held=1000
)
COPYING, QUICK_COPYING = TranslatorSize(width=48, steps=400, rate=1e-2), TranslatorSize(width=24, steps=60, rate=1e-2)
DRAWN = Lengths(2, 20)  # symbols of a sequence that is learnt from
ASKED = (4, 8, 12, 16, 20)
NATS, QUALITY = "nats", "quality"
LOST = {NONE: "lost, without", LOOKING: "lost, with attention"}
SHORTEST, LONGEST, MORE = "attention's worth, shortest", "longest", "worth more"
WHERE = {SYMBOLS: "Copying symbols", PAIRS: "On pairs"}
PARTS = 4  # of the held-out pairs, by length, equally many in each
LEAST = 4 * 15  # held-out pairs


# ------------------------------------------------------------------------------------------------ one run


def symbols(seed: int, attention: str, size: TranslatorSize) -> list[dict[str, np.ndarray]]:
    """For each length (n, 2): nats and symbols; symbols right and symbols."""
    network = copier(seed, size, DRAWN, attention=attention)
    each = [copied(network, length) for length in ASKED]
    return [{"costs": one[:, [0, 2]], "quality": one[:, [1, 2]]} for one in each]


def pairs(seed: int, attention: str, size: TranslatorSize, texts: Texts, parts: Sequence[np.ndarray]) -> Any:
    """For each part of the held-out pairs (n, 2): nats and tokens; and (n, 10): what BLEU adds up."""
    now = said(translator(seed, size, texts, attention=attention), texts)
    quality = counted(now.written, texts.targets)
    return [{"costs": now.costs[part], "quality": quality[part]} for part in parts]


def by_length(lengths: np.ndarray, parts: int = PARTS) -> list[np.ndarray]:
    """Which pairs are in each part: the shortest sources first, equally many in each."""
    return [np.sort(part) for part in np.array_split(np.argsort(lengths, kind="stable"), parts)]


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    size = sized(settings.quick, QUICK, FULL, LARGE)
    copying = QUICK_COPYING if settings.quick else COPYING
    corpus, texts = texts_of(settings.data, size)
    enough(len(texts.test), LEAST, f"held-out pairs of at most {size.longest} tokens a side", corpus)
    parts = by_length(texts.lengths)
    tasks: dict[Any, Any] = {}
    for seed in settings.seeds:
        for attention in (LOOKING, NONE):
            tasks[PAIRS, attention, seed] = (pairs, (seed, attention, size, texts, parts))
            tasks[SYMBOLS, attention, seed] = (symbols, (seed, attention, copying))
    runs = spread(tasks, progress, workers())
    names = {
        SYMBOLS: [str(length) for length in ASKED],
        PAIRS: [f"{texts.lengths[part].min()}–{texts.lengths[part].max()}" for part in parts],
    }
    return {"levels": _levels(runs, settings.seeds, names), "gains": _gains(runs, settings.seeds, names)}, {
        "data": about(corpus, texts),
        "networks": f"gated units, one layer of width {size.width} on either side, the source read in one direction; "
        f"{copying.width} for symbols",
        "training": f"{size.said()}; symbols: {copying.steps:,} steps, sequences of {DRAWN.least} to {DRAWN.most}",
        "intervals": INTERVALS,
    }


def stacked(runs: dict[Any, Any], ground: str, attention: str, at: int, what: str, seeds: Sequence[int]) -> np.ndarray:
    """(seeds, n, k)"""
    return np.stack([runs[ground, attention, seed][at][what] for seed in seeds])


def _right(sums: np.ndarray) -> np.ndarray:
    return 100 * ratio(sums)


def _wrong(sums: np.ndarray) -> np.ndarray:
    return -_right(sums)


def _levels(runs: dict[Any, Any], seeds: Sequence[int], names: dict[str, list[str]]) -> Table:
    rows = []
    for ground, lengths in names.items():
        for at, length in enumerate(lengths):
            cells = []
            for attention in NETWORKS:
                cells.append(found(ratio, stacked(runs, ground, attention, at, "costs", seeds)))
                cells.append(
                    found(bleu if ground == PAIRS else _right, stacked(runs, ground, attention, at, "quality", seeds))
                )
            rows.append((ground, length, *cells))
    columns = ("task", "source", *(f"{what}, {name}" for name in NETWORKS.values() for what in ("nats", "quality")))
    title = "By length of the source: nats a token, and % right (symbols) or BLEU (pairs), mean and 95 % interval"
    return Table(title, columns, tuple(rows))


def _gains(runs: dict[Any, Any], seeds: Sequence[int], names: dict[str, list[str]]) -> Table:
    """From the shortest sources to the longest: what each network loses, and how much more attention is worth."""
    rows = []
    for ground, lengths in names.items():
        scores: dict[str, Score] = {"costs": ratio, "quality": lost_bleu if ground == PAIRS else _wrong}
        for (what, score), measure in zip(scores.items(), (NATS, QUALITY), strict=True):
            first, last = (
                [stacked(runs, ground, attention, at, what, seeds) for attention in NETWORKS]
                for at in (0, len(lengths) - 1)
            )
            lost = [unpaired(score, *ends) for ends in zip(last, first, strict=True)]
            worth = [between(score, *ends) for ends in (first, last)]
            rows.append((ground, measure, *lost, *worth, unpaired(difference(score), joined(*last), joined(*first))))
    columns = ("task", "measure", *LOST.values(), SHORTEST, LONGEST, MORE)
    return Table("From the shortest sources to the longest, mean and 95 % interval", columns, tuple(rows))


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    return [part for ground in (SYMBOLS, PAIRS) for part in _judged(tables, ground)]


def _judged(tables: Tables, ground: str) -> list[Part]:
    """BLEU of long texts and of short ones are not quite one measure, so on pairs nats decide."""
    gains, where = tables["gains"], WHERE[ground]
    ends = [row[1] for row in tables["levels"].rows if row[0] == ground]
    unit = "points of those right" if ground == SYMBOLS else "BLEU"
    lost = {name: gains.cell(column, task=ground, measure=QUALITY) for name, column in LOST.items()}
    worth, short, long = (gains.cell(name, task=ground, measure=NATS) for name in (MORE, SHORTEST, LONGEST))
    better = gains.cell(MORE, task=ground, measure=QUALITY)
    return [
        Part(
            f"{where}, a network without attention loses with length.",
            judged(above(lost[NONE])),
            f"{where}, from sources of {ends[0]} tokens to those of {ends[-1]} a network without attention loses "
            f"{_signed(lost[NONE][0])} {unit}.",
            f"95 %: {ranged(lost[NONE], 1)}",
            decides=ground == SYMBOLS,
        ),
        Part(
            f"{where}, attention is worth more where sources are longer.",
            judged(above(worth)),
            f"{where}, attention saves {short[0]:.2f} nats a token where sources are shortest and {long[0]:.2f} where "
            "they are longest.",
            f"nats more: {ranged(worth, 2)}",
        ),
        Part(
            f"{where}, it is so in {'shares right' if ground == SYMBOLS else 'BLEU'}, too.",
            judged(above(better)),
            f"Where they are longest it is worth {_signed(better[0])} {unit} more.",
            f"95 %: {ranged(better, 1)}",
            decides=ground == SYMBOLS,
        ),
        Part(
            f"{where}, a network with attention loses with length, too.",
            judged(above(lost[LOOKING])),
            f"With attention {_signed(lost[LOOKING][0])} {unit} are lost.",
            f"95 %: {ranged(lost[LOOKING], 1)}",
            decides=False,
        ),
    ]


def _signed(value: float) -> str:
    return f"{value:.1f}".replace("-", "−")
