"""The figure of the study of cuts: how soon every token has had a long past, and what that is worth in nats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREEN, GREY, INK, PURPLE, VERMILION, beside
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS = {
    "fixed": (VERMILION, "-"),
    "varying": (BLUE, "-"),
    "shifted": (GREEN, "-"),
    "overlapping list": (PURPLE, "--"),
}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 5)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    _draw_spreading(tables["spreading"], left)
    _apart(tables["differences"], right)


def _draw_spreading(table: Table, axes: Any) -> None:
    labels = []
    for name, (colour, dash) in LOOKS.items():
        epochs, shares = table.column("epoch", batches=name), table.column("%", batches=name)
        axes.plot(epochs, shares, dash, marker="o", markersize=3.5, color=colour, linewidth=1.6)
        labels.append((shares[-1], name, colour))
    axes.set(xlabel="epochs of tokens read", ylabel="% of tokens", ylim=(-2, None))
    axes.set_title(table.title)
    axes.xaxis.get_major_locator().set_params(integer=True)
    beside(axes, labels)


def _apart(table: Table, axes: Any) -> None:
    """One line a comparison: mean and interval over seeds, test and valid beneath each other."""
    names, widest = [], 1.0
    for y, row in enumerate(table.rows):
        length, name, other, valid, test = row
        names.append(f"{name} − {other}\nlength {length}")
        for cell, shape, lift, filled in ((test, "o", -0.13, True), (valid, "s", 0.13, False)):
            middle, low, high = cell
            colour = LOOKS[name][0]
            if bounded(cell):
                axes.plot([low, high], [y + lift] * 2, color=colour, linewidth=2, solid_capstyle="round")
                widest = max(widest, abs(low), abs(high))
            widest = max(widest, abs(middle))
            axes.plot(
                middle, y + lift, shape, color=colour, markersize=6, markerfacecolor=colour if filled else "white"
            )
    axes.axvline(0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(names)), names, color=INK, fontsize=9)
    axes.set(xlabel="thousandths of a nat a token  (left: better)", ylim=(len(names) - 0.4, -0.6))
    axes.set(xlim=(-1.1 * widest, 1.1 * widest))
    axes.set_title("What it is worth   ● test   □ valid", parse_math=False)
    axes.grid(axis="y", visible=False)
