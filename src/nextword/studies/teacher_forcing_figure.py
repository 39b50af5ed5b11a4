"""The figure of the study of teacher forcing: what is written, fed the truth or its own, and how translations fare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, INK, VERMILION, beside
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"taught": VERMILION, "scheduled": BLUE}
LINES = {"the truth": "--", "its own": "-"}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(12.5, 4.4)
    figure.set_layout_engine("constrained", wspace=0.06)
    writing, translating = figure.subplots(1, 2, width_ratios=(1.2, 1))
    _draw_writing(tables["writing"], writing)
    _draw_translating(tables["translating"], translating)


def _draw_writing(table: Table, axes: Any) -> None:
    labels, places = [], table.columns[3:]
    for row in table.rows:
        name, fed, cells = row[0], row[1], row[3:]
        colour, middles = COLOURS[name], [cell[0] for cell in cells]
        axes.plot(range(len(cells)), middles, LINES[fed], color=colour, linewidth=1.8, marker="o", markersize=5)
        for x, cell in enumerate(cells):
            if bounded(cell):
                axes.plot([x, x], cell[1:], color=colour, linewidth=2.5, alpha=0.35, solid_capstyle="round")
        labels.append((middles[-1], f"{name}, fed {fed}", colour))
    axes.set_xticks(range(len(places)), places)
    axes.set(xlabel="tokens written", ylabel="nats off: KL(truth, network)")
    axes.set_title("A language model writes on")
    beside(axes, labels, gap=0.07)


def _draw_translating(table: Table, axes: Any) -> None:
    columns = {"fed the truth": table.columns[1], "fed its own words": table.columns[2]}
    for x, name in enumerate(columns):
        for shift, (network, colour) in zip((-0.12, 0.12), COLOURS.items(), strict=True):
            cell = table.cell(columns[name], network=network)
            if bounded(cell):
                axes.plot([x + shift] * 2, cell[1:], color=colour, linewidth=2.5, solid_capstyle="round")
            axes.plot(x + shift, cell[0], "o", color=colour, markersize=8)
            axes.annotate(
                f"{network}\n{cell[0]:.1f}", (x + shift, cell[0]), (9 if shift > 0 else -9, 0), fontsize=9, color=INK,
                textcoords="offset points", va="center", ha="left" if shift > 0 else "right",
            )  # fmt: skip
    axes.set_xticks(range(len(columns)), list(columns))
    axes.set(ylabel="BLEU", xlim=(-0.6, len(columns) - 0.4))
    axes.grid(axis="x", visible=False)
    axes.set_title("A translator")
