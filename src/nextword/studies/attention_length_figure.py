"""The figure of the study of long sources: quality by length, with attention and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, VERMILION, beside
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

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
