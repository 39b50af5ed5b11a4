"""The figure of the study of blanks: who is right, and what the truth costs, by how many words are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.blanks_verdict import (
    AT_ONCE,
    BERT_NAME,
    GLM_NAME,
    GPT,
    LIKED,
    NATS,
    RESCORED,
    RIGHT,
    SEVERAL,
    TOLD_BERT,
    TOLD_GPT,
)
from nextword.studies.drawing import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, beside
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Who is told the length is drawn with dashes
LINES: dict[str, tuple[str, str]] = {
    GLM_NAME: (BLUE, "-"),
    BERT_NAME: (VERMILION, "-"),
    LIKED: (ORANGE, "-"),
    GPT: (GREEN, "-"),
    RESCORED: (PURPLE, "-"),
    TOLD_BERT: (VERMILION, "--"),
    AT_ONCE: (SKY, "--"),
    TOLD_GPT: (GREEN, "--"),
}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 4.8)
    figure.set_layout_engine("constrained", wspace=0.06)
    right, nats = figure.subplots(1, 2)
    _panel(tables[RIGHT], right, "Filled with the very words", "% of the blanks")
    _panel(tables[NATS], nats, "Cost of the true words", "nats a word  (below: better)")


def _panel(table: Table, axes: Any, title: str, label: str) -> None:
    words = [column for column in table.columns[1:] if column != SEVERAL]
    names = [name for name in table.column("network") if name in LINES]
    labels = []
    for i, name in enumerate(names):
        colour, dashes = LINES[name]
        cells = [table.cell(column, network=name) for column in words]
        shift = 0.03 * (i - (len(names) - 1) / 2)  # so that intervals stand side by side
        places = [x + shift for x in range(len(words))]
        for x, cell in zip(places, cells, strict=True):
            if bounded(cell):
                axes.plot([x, x], cell[1:], color=colour, linewidth=1.6, solid_capstyle="round")
        middles = [cell[0] for cell in cells]
        axes.plot(places, middles, "o", linestyle=dashes, color=colour, linewidth=1.2, markersize=4.5)
        labels.append((middles[-1], name, colour))
    axes.set_xticks(range(len(words)), words)
    axes.set(xlabel="words that are missing", ylabel=label)
    axes.set_title(title)
    beside(axes, labels)
