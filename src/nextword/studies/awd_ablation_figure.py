"""The figure of the ablation: what each technique's absence costs here, beside what the paper says it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREEN, GREY, INK, ORANGE, VERMILION
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 5.8)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_costs(tables["harm"], left)
    _gaps(tables["nats"], right)


def _draw_costs(table: Table, axes: Any) -> None:
    names = table.column("without")
    for y, row in enumerate(table.rows):
        _, _, (middle, low, high), _, said = row
        if bounded((middle, low, high)):
            axes.plot([low, high], [y, y], color=BLUE, linewidth=2.5, solid_capstyle="round", zorder=3)
        axes.plot(middle, y, "o", color=BLUE, markersize=7, zorder=4, label="here, 95 % over seeds" if y == 0 else None)
        if said is not None:
            label = "the paper, PTB" if y == 0 else None
            axes.plot(said, y, "D", color=ORANGE, markersize=7, markerfacecolor="white", zorder=2, label=label)
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.set(xlabel="thousandths of a nat a token, test  (right: worse without it)", ylim=(len(names) - 0.4, -0.6))
    axes.set_title("What going without it costs")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False, fontsize=9)


def _gaps(table: Table, axes: Any) -> None:
    """From the text that was learnt to a new one: a long line is a text learnt by heart."""
    names = table.column("without")
    for y, row in enumerate(table.rows):
        train, test = row[2][0], row[4][0]
        axes.plot([train, test], [y, y], color="#cccccc", linewidth=3, zorder=1)
        axes.plot(train, y, "s", color=GREEN, markersize=6.5, label="text it learnt from" if y == 0 else None)
        axes.plot(test, y, "o", color=VERMILION, markersize=6.5, label="new text" if y == 0 else None)
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.set(xlabel="nats a token, median of seeds", ylim=(len(names) - 0.4, -0.6))
    axes.set_title("Learnt, and learnt by heart, without …")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False, fontsize=9)
