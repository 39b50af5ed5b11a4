"""The figure of the study of beams: BLEU, the model's own score and the length of texts, by width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREY, VERMILION, beside
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"plain": VERMILION, "by length": BLUE}
TITLES = {
    "BLEU": "How good texts are",
    "log p of a text": "How much the model likes them",
    "length, % of the references'": "How long they are",
}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13.5, 4.2)
    figure.set_layout_engine("constrained", wspace=0.05)
    for axes, (what, title) in zip(figure.subplots(1, 3), TITLES.items(), strict=True):
        _panel(tables["widths"], axes, what, title)


def _panel(table: Table, axes: Any, what: str, title: str) -> None:
    labels, widths = [], list(dict.fromkeys(table.column("width")))
    for name, colour in COLOURS.items():
        cells = table.column(what, search=name)
        middles = [cell[0] for cell in cells]
        axes.plot(range(len(cells)), middles, "o-", color=colour, linewidth=1.8, markersize=5)
        if all(map(bounded, cells)):
            low, high = zip(*(cell[1:] for cell in cells), strict=True)
            axes.fill_between(range(len(cells)), low, high, color=colour, alpha=0.12, linewidth=0)
        labels.append((middles[-1], name, colour))
    if "length" in what:
        axes.axhline(100, color=GREY, linewidth=1, linestyle=":")
    axes.set_xticks(range(len(widths)), [str(width) for width in widths])
    axes.set(xlabel="width of the beam", ylabel=what)
    axes.set_title(title)
    beside(axes, labels, gap=0.07)
