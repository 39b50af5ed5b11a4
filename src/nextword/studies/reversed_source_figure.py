"""The figure of the study of sources fed backwards: what targets cost either way, and what is gained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREY, INK, VERMILION
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

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
