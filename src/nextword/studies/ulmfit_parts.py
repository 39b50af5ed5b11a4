"""Does every part of ULMFiT count? Each is left out in turn, and the error of what is left is held beside the whole.

    general text ─▶ the task's texts ─▶ its labels                   left out: the first stage, the second, or both
                    └─ rates divided by 2.6 a layer ─┘               one rate for all layers
                    └─ slanted triangles ────────────┘               a constant rate
                                         └ layers one by one         all layers at once
                                         └ last, greatest, mean      the last vector alone
    from the left, and from the right: probabilities averaged        one direction

Small networks, a few hundred labels; every seed has language models of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nextword.studies.apart import spread
from nextword.studies.drawing import BLUE, GREY, INK, VERMILION
from nextword.studies.elmo_mix_runs import cache_in
from nextword.studies.measures import NO_INTERVAL, above, below, bounded, in_pairs, over_seeds
from nextword.studies.study import Claim, Part, Progress, Settings, Table, Tables, judged
from nextword.studies.ulmfit_parts_runs import (
    ALL,
    ALONE,
    AT_ONCE,
    BACKWARD,
    CLASSIFIERS,
    CONSTANT,
    LAST,
    NEITHER,
    NO_TUNING,
    ONE_RATE,
    TOGETHER,
    TUNINGS,
    Said,
    Size,
    first,
    second,
    third,
    write_task,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = Claim(
    "Every part of ULMFiT lowers the error: pretraining, tuning on the task's texts, rates by layer, slanted rates, "
    "layers that thaw one by one, and two directions.",
    "Howard & Ruder 2018, section 5, tables 4, 6 and 7; both directions: section 5, at its end",
)
FULL = Size()
QUICK = Size(examples=(120, 60, 120), general=60, tuned=30, epochs=1, embedding=24, width=32)
SAYS = {  # what the claim says of each way to leave something out
    ALONE: "Without pretraining on general text the error is larger",
    NO_TUNING: "Without tuning the language model on the task's texts the error is larger",
    NEITHER: "Without either the error is larger",
    ONE_RATE: "With one rate for all layers the error is larger",
    CONSTANT: "With a constant rate the error is larger",
    AT_ONCE: "With all layers thawed at once the error is larger",
}
BESIDE = {
    LAST: "With the last vector alone the error is larger",
    BACKWARD: "From right to left the error is another than from left to right",
}

Cell = tuple[str, int]  # way, seed


def measure(given: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    size = QUICK if given.quick else FULL
    with tempfile.TemporaryDirectory() as folder, cache_in(Path(folder) / "cache"):
        here = Path(folder)
        name, general = write_task(here / "task", size.examples)
        data, texts = str(here / "task"), str(here / "task.texts.jsonl")
        general = given.data or general
        said = _stages(here, data, texts, general, given.seeds, size, progress)
    return tables_of(said, given.seeds), {
        "data": f"{name}: {', '.join(f'{n:,}' for n in size.examples)} examples of train, dev and test; all its texts "
        f"for the second stage, {general} for the first",
        "network": f"AWD-LSTM, 2 layers of {size.width}, embeddings of {size.embedding}; {size.general:,} steps of 16 "
        f"rows of 32 words, then 50 and {size.tuned:,} of 8 rows, then 3 + {size.epochs} epochs of 16 texts",
        "intervals": "95 %, Student's t over seeds, in pairs; each seed has language models of its own",
    }


def _stages(
    here: Path, data: str, texts: str, general: str, seeds: Sequence[int], size: Size, progress: Progress
) -> dict[Cell, Said]:
    """One stage after the other, of each all that there is to train at once."""
    whole = len(seeds) * (2 + len(TUNINGS) + len(CLASSIFIERS))

    def told(before: int, done: float, _: float) -> None:
        progress(before + done, whole)

    def place(*parts: Any) -> str:
        return str(here / "-".join(map(str, parts)).replace(" ", "_"))

    ones = [(backward, seed) for seed in seeds for backward in (False, True)]
    jobs: dict[Any, Any] = {(b, seed): (first, (place(1, b, seed), general, seed, b, size)) for b, seed in ones}
    spread(jobs, partial(told, 0))
    twos = [(how, seed) for seed in seeds for how in TUNINGS]
    jobs = {
        (how, seed): (second, (place(2, how, seed), texts, place(1, how == BACKWARD, seed), how, seed, size))
        for how, seed in twos
    }
    spread(jobs, partial(told, len(ones)))
    threes = [(how, seed) for seed in seeds for how in CLASSIFIERS]
    source = {
        (how, seed): place(1, False, seed) if how == NO_TUNING else place(2, how if how in TUNINGS else ALL, seed)
        for how, seed in threes
    }
    jobs = {cell: (third, (place(3, *cell), data, source[cell], *cell, size)) for cell in threes}
    return spread(jobs, partial(told, len(ones) + len(twos)))


def tables_of(said: Mapping[Cell, Said], seeds: Sequence[int]) -> dict[str, Table]:
    def errors(how: str) -> list[float]:
        if how != TOGETHER:
            return [said[how, seed].error for seed in seeds]
        pairs = [(said[ALL, seed], said[BACKWARD, seed]) for seed in seeds]
        return [Said((one.p + other.p) / 2, one.gold).error for one, other in pairs]

    usual = errors(ALL)
    rows = [
        (how, over_seeds(errors(how)), None if how == ALL else in_pairs(errors(how), usual))
        for how in (*CLASSIFIERS, TOGETHER)
    ]
    return {
        "errors": Table(
            "Errors on test, in %, and points above all parts together", ("left out", "error", "above"), tuple(rows)
        )
    }


# ------------------------------------------------------------------------------------------------ the verdict


def judge(tables: Tables) -> list[Part]:
    table = tables["errors"]
    parts = [_part(table, how, says, above) for how, says in SAYS.items()]
    parts.append(_part(table, TOGETHER, "Both directions together have a smaller error than one", below))
    parts.append(_part(table, LAST, BESIDE[LAST], above, decides=False))
    apart = table.cell("above", left_out=BACKWARD)
    other = above(apart) if above(apart) is not None else below(apart)
    parts.append(_told(table, BACKWARD, BESIDE[BACKWARD], None if other is None else True, False))
    return parts


def _part(table: Table, how: str, says: str, test: Any, decides: bool = True) -> Part:
    return _told(table, how, says, test(table.cell("above", left_out=how)), decides)


def _told(table: Table, how: str, says: str, holds: bool | None, decides: bool) -> Part:
    error, points = table.cell("error", left_out=how), table.cell("above", left_out=how)
    usual = table.cell("error", left_out=ALL)
    sure = f"points above: {points[1]:.1f} to {points[2]:.1f}" if bounded(points) else NO_INTERVAL
    found = f"{how[0].upper()}{how[1:]}: {error[0]:.1f} %, {points[0]:+.1f} points from {usual[0]:.1f} %."
    return Part(f"{says}.", judged(holds), found, sure, decides)


# ------------------------------------------------------------------------------------------------ the figure


def draw(tables: Tables, figure: Figure) -> None:
    """Points above or below all parts together, with their intervals."""
    figure.set_size_inches(8, 4.2)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    rows = [row for row in tables["errors"].rows if row[2] is not None]
    for y, (_, error, points) in enumerate(rows):
        if bounded(points):
            axes.plot(points[1:], [y, y], color=GREY, linewidth=3, solid_capstyle="round")
        axes.plot(points[0], y, "o", color=VERMILION if points[0] > 0 else BLUE, markersize=7)
        axes.annotate(f"{error[0]:.1f} %", (1.01, y), xycoords=("axes fraction", "data"), va="center", color=INK)
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel="points of error above all parts together, mean and 95 % interval")
    axes.grid(visible=False, axis="y")
    axes.set_title(f"All parts: {tables['errors'].cell('error', left_out=ALL)[0]:.1f} % of the test examples wrong")
