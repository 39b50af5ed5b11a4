"""The figure of the study of meanings: whose vectors tell them apart, of made words and of real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREY, INK, VERMILION
from nextword.studies.fill_in_figure import levels
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 5)
    figure.set_layout_engine("constrained", wspace=0.06)
    right, other, words = figure.subplots(1, 3, width_ratios=(1, 1, 1.2))
    levels(tables["vectors"], right, "vector", "right, %", "Words made of two", "% of the places")
    if "senses" in tables:
        title = "Real words (Senseval-2)"
        levels(tables["senses"], other, "vector", "right, %", title, "% of the senses told")
    else:
        levels(tables["vectors"], other, "vector", "nearer", "Nearer to its own meaning", "cosine", named=False)
    _words(tables["words"], words)


def _words(table: Table, axes: Any) -> None:
    """A line a word: from what the table's vector says to what the last layer says."""
    first, last = table.columns[2], table.columns[-1]
    rows = sorted(zip(table.column("word"), table.column(first), table.column(last), strict=True), key=lambda r: r[2])
    for y, (_, before, after) in enumerate(rows):
        axes.plot([before, after], [y, y], color=GREY, linewidth=1)
        axes.plot(before, y, "o", color=VERMILION, markersize=5, label=first if y == 0 else None)
        axes.plot(after, y, "o", color=BLUE, markersize=5, label=last if y == 0 else None)
    names = [word if word.isascii() else f"word {i + 1}" for i, (word, *_) in enumerate(rows)]  # the font has no others
    axes.set_yticks(range(len(rows)), names, color=INK)
    axes.set(xlabel="right, %")
    axes.grid(axis="y", visible=False)
    axes.legend(frameon=False, loc="lower right")
    axes.set_title("Word by word")
