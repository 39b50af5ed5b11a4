"""The figure of the study of layers: how often a probe of each is right, task by task, and which layer is best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREEN, GREY, INK, VERMILION, beside
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (BLUE, VERMILION, GREEN)


def draw(tables: Tables, figure: Figure) -> None:
    layers = tables["layers"]
    tasks = layers.columns[2:]
    figure.set_size_inches(5.6 * len(tasks), 4.4)
    figure.set_layout_engine("constrained", wspace=0.06)
    for task, axes in zip(tasks, figure.subplots(1, len(tasks), squeeze=False)[0], strict=True):
        _task(layers, tables["best"], task, axes)
        _guess(tables["guesses"], task, axes)


def _task(table: Table, best: Table, task: str, axes: Any) -> None:
    labels = []
    for network, colour in zip(dict.fromkeys(table.column("network")), COLOURS * 9, strict=False):
        x = table.column("layer", network=network)
        cells = table.column(task, network=network)
        middles = [cell[0] for cell in cells]
        if all(map(bounded, cells)):
            axes.fill_between(x, [c[1] for c in cells], [c[2] for c in cells], color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, middles, "o-", color=colour, linewidth=1.6, markersize=5)
        top = round(best.cell(task, network=network)[0])
        axes.plot(top, middles[top], "o", color=colour, markersize=12, fillstyle="none", markeredgewidth=1.6)
        axes.annotate(
            f"{middles[top]:.1f}", (top, middles[top]), (0, 12), textcoords="offset points", ha="center", fontsize=9,
            color=INK,
        )  # fmt: skip
        axes.set_xticks(range(max(x) + 1))
        labels.append((middles[-1], network, colour))
    axes.set(xlabel="layer  (0: the embedding; ringed: best on validation text)", ylabel="% right")
    axes.margins(y=0.18)
    axes.set_title(task.capitalize())
    beside(axes, labels)


def _guess(table: Table, task: str, axes: Any) -> None:
    """The commonest label as a dotted line, where it is near enough to the layers to be drawn."""
    floor, (low, high) = table.rows[0][1 + table.columns[1:].index(task)], axes.get_ylim()
    if floor > low - 0.5 * (high - low):
        axes.axhline(floor, color=GREY, linewidth=1, linestyle=":")
        right = axes.get_xlim()[1]
        axes.annotate(
            "the commonest label",
            (right, floor),
            (0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=GREY,
        )
