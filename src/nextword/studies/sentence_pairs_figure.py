"""The figure of the study of pairs: learning, who can answer which question, and how much lengths give away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREY, INK, VERMILION, beside
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"next": BLUE, "order": VERMILION}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13.5, 4.4)
    figure.set_layout_engine("constrained", wspace=0.06)
    curves, crossed, lengths = figure.subplots(1, 3, width_ratios=(1.1, 1, 0.9))
    _draw_curves(tables["curves"], curves)
    _crossed(tables["pairs"], crossed)
    _lengths(tables["lengths"], lengths)


def _draw_curves(table: Table, axes: Any) -> None:
    labels = []
    for name, colour in COLOURS.items():
        steps = table.column("step", trained_on=name)
        middle, low, high = zip(*table.column("right, %", trained_on=name), strict=True)
        axes.plot(steps, middle, "o-", color=colour, linewidth=1.8, markersize=4)
        axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        labels.append((middle[-1], name, colour))
    axes.axhline(50, color=GREY, linewidth=1, linestyle=":")
    axes.set(xlabel="step", ylabel="% of held-out pairs right")
    axes.set_title("Learning each question")
    beside(axes, labels)


def _crossed(table: Table, axes: Any) -> None:
    names = []
    for y, (trained, asked, _, cell) in enumerate(table.rows):
        middle, low, high = cell
        names.append(f"trained on {trained}\nasked for {asked}")
        if bounded(cell):
            axes.plot([low, high], [y, y], color=COLOURS[trained], linewidth=2.5, solid_capstyle="round")
        filled = COLOURS[trained] if trained == asked else "white"
        axes.plot(middle, y, "o", color=COLOURS[trained], markerfacecolor=filled, markersize=8)
        axes.annotate(f"{middle:.1f}", (middle, y), (0, 9), textcoords="offset points", ha="center", fontsize=9)
    axes.axvline(50, color=GREY, linewidth=1, linestyle=":")
    axes.set_yticks(range(len(names)), names, color=INK, fontsize=9)
    axes.set(xlabel="% right", ylim=(len(names) - 0.5, -0.6))
    axes.grid(axis="y", visible=False)
    axes.set_title("Who can answer what")


def _lengths(table: Table, axes: Any) -> None:
    x, y = table.column("tokens in a row"), table.column("right, %")
    axes.bar(range(len(x)), y, color="#bbbbbb", width=0.6)
    for at, value in enumerate(y):
        axes.annotate(f"{value:.1f}", (at, value), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xticks(range(len(x)), [str(length) for length in x])
    axes.set(xlabel="tokens in a row", ylabel="% right", ylim=(45, max(*y, 55) + 4))
    axes.set_title("Order told by length alone\n(pairs as BERT gathers them)")
