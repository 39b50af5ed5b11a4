"""The figure of the study of filling in: who is right how often, and where on the row it matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION, beside
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (BLUE, VERMILION, ORANGE, PURPLE, GREEN)


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 4.6)
    figure.set_layout_engine("constrained", wspace=0.06)
    right, nats, places = figure.subplots(1, 3, width_ratios=(1, 0.8, 1.1))
    levels(tables["networks"], right, "network", "right, %", "Right first choice", "% of the hidden tokens")
    levels(tables["networks"], nats, "network", "nats", "Cost of the hidden token", "nats  (left: better)", named=False)
    _draw_places(tables["places"], places)


def levels(table: Table, axes: Any, key: str, value: str, title: str, label: str, named: bool = True) -> None:
    """A dot and its range over seeds for each row of a table."""
    names = table.column(key)
    for y, (name, colour) in enumerate(zip(names, COLOURS * len(names), strict=False)):
        middle, low, high = table.cell(value, **{key: name})
        axes.plot([low, high], [y, y], color=colour, linewidth=2.5, solid_capstyle="round")
        axes.plot(middle, y, "o", color=colour, markersize=7)
        text = f"{middle:.1f}" if "%" in value else f"{middle:.2f}"
        axes.annotate(text, (middle, y), (0, 9), textcoords="offset points", ha="center", fontsize=9, color=INK)
    axes.set_yticks(range(len(names)), names if named else [""] * len(names), color=INK)
    low, high = axes.get_xlim()
    axes.set(xlim=(low - 0.1 * (high - low), high + 0.1 * (high - low)), ylim=(len(names) - 0.5, -0.6), xlabel=label)
    axes.grid(axis="y", visible=False)
    axes.set_title(title)


def _draw_places(table: Table, axes: Any) -> None:
    labels = []
    for name, colour, shift in zip(table.columns[3:], (VERMILION, ORANGE), (-0.07, 0.07), strict=True):
        middles = []
        for x, cell in enumerate(table.column(name)):
            middle, low, high = cell
            if bounded(cell):
                axes.plot([x + shift] * 2, [low, high], color=colour, linewidth=2, solid_capstyle="round")
            middles.append(middle)
        axes.plot([x + shift for x in range(len(middles))], middles, "o-", color=colour, linewidth=1.2, markersize=5)
        labels.append((middles[-1], f"than {name}", colour))
    axes.axhline(0, color=GREY, linewidth=1)
    ticks = [f"{low}–{high}" for low, high in zip(table.column("from"), table.column("to"), strict=True)]
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set(xlabel="tokens on the left of the hidden one", ylabel="nats")
    axes.set_title("Both sides are better by")
    beside(axes, labels)
