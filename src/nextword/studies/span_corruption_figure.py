"""The figure of the study of beginnings: what each task costs, and how well it is done, after each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREY, INK, VERMILION
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"spans": BLUE, "plain": VERMILION, "nothing": GREY}


def draw(tables: Tables, figure: Figure) -> None:
    table = tables["beginnings"]
    columns = table.columns[1:-1]
    figure.set_size_inches(1.5 + 3.4 * len(columns), 3.4)
    figure.set_layout_engine("constrained", wspace=0.05)
    every = figure.subplots(1, len(columns), squeeze=False)[0]
    for axes, column in zip(every, columns, strict=True):
        _panel(table, axes, column, named=column == columns[0])


def _panel(table: Table, axes: Any, column: str, named: bool) -> None:
    what, task = column.split(", ", 1) if not column.startswith("right") else ("% right", column.split(", ", 2)[2])
    for y, (name, colour) in enumerate(COLOURS.items()):
        cell = table.cell(column, beginning=name)
        if bounded(cell):
            axes.plot(cell[1:], [y, y], color=colour, linewidth=2.5, solid_capstyle="round")
        axes.plot(cell[0], y, "o", color=colour, markersize=8)
        text = f"{cell[0]:.2f}" if what == "nats" else f"{cell[0]:.1f}"
        axes.annotate(text, (cell[0], y), (0, 9), textcoords="offset points", ha="center", fontsize=9, color=INK)
    axes.set_yticks(range(len(COLOURS)), list(COLOURS) if named else [""] * len(COLOURS), color=INK)
    low, high = axes.get_xlim()
    axes.set(xlim=(low - 0.15 * (high - low), high + 0.15 * (high - low)), ylim=(len(COLOURS) - 0.5, -0.6))
    axes.set_xlabel("nats a token  (left: better)" if what == "nats" else f"{what}  (right: better)")
    axes.grid(axis="y", visible=False)
    axes.set_title(task)
