"""Shared look of the figures: a palette for color-blind readers, direct labels, and lines and dots with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import to_rgb

from nextword.studies._statistics import has_interval
from nextword.studies._study import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito 2008, without their yellow, which is too light for lines on white
BLUE, SKY, GREEN = "#0072b2", "#56b4e9", "#009e73"
VERMILION, ORANGE, PURPLE = "#d55e00", "#e69f00", "#cc79a7"
GREY, INK = "#777777", "#222222"
COLORS = (BLUE, VERMILION, ORANGE, PURPLE, GREEN)

STYLE: Any = {
    "font.size": 10,
    "font.family": "DejaVu Sans",  # ships with matplotlib, so a figure is the same everywhere
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "svg.hashsalt": "nextword",  # the same numbers give the same file
}


def panels(figure: Figure, width: float, height: float, columns: int, ratios: Sequence[float] | None = None) -> Any:
    """One row of panels."""
    figure.set_size_inches(width, height)
    figure.set_layout_engine("constrained", wspace=0.06)
    return figure.subplots(1, columns, width_ratios=ratios, squeeze=False)[0]


def line(
    axes: Axes,
    x: Sequence[float],
    cells: Sequence[Cell],
    color: str,
    style: str = "o-",
    *,
    bars: bool = False,
    width: float = 1.8,
    size: float = 5,
) -> float:
    """Plot the middles of cells, with a band or with bars for their intervals; return the last middle."""
    middles = [cell[0] for cell in cells]
    axes.plot(x, middles, style, color=color, linewidth=width, markersize=size)
    if bars:
        for position, cell in zip(x, cells, strict=True):
            if has_interval(cell):
                axes.plot(
                    [position, position], cell[1:], color=color, linewidth=2.5, alpha=0.45, solid_capstyle="round"
                )
    elif all(map(has_interval, cells)):
        _, low, high = zip(*cells, strict=True)
        axes.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    return float(middles[-1])


def lines(
    axes: Axes,
    curves: Iterable[tuple[str, Sequence[Cell], str] | tuple[str, Sequence[Cell], str, str]],
    x: Sequence[float] = (),
    *,
    ticks: Sequence[object] = (),
    gap: float = 0.055,
    bars: bool = False,
    width: float = 1.8,
    size: float = 5,
    **properties: object,
) -> None:
    """Lines (name, cells, color, style), each with its name at its end; `properties` are those of `axes.set`.

    Without x, the cells are evenly spaced and `ticks` name them.
    """
    labels = []
    for name, cells, color, *style in curves:
        last = line(axes, x or range(len(cells)), cells, color, *style, bars=bars, width=width, size=size)
        labels.append((last, name, color))
    if ticks:
        axes.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
    axes.set(**properties)
    label_lines(axes, labels, gap)


def dot(
    axes: Axes,
    cell: Cell,
    y: float,
    color: str,
    text: str = "",
    *,
    marker: str = "o",
    filled: bool = True,
    size: float = 7,
) -> None:
    """A horizontal interval with a marker at its middle and a text above it."""
    if has_interval(cell):
        axes.plot(cell[1:], [y, y], color=color, linewidth=2.5, solid_capstyle="round")
    axes.plot(cell[0], y, marker, color=color, markersize=size, markerfacecolor=color if filled else "white")
    if text:
        axes.annotate(text, (cell[0], y), (0, 9), textcoords="offset points", ha="center", fontsize=9, color=INK)


def name_rows(axes: Axes, names: Sequence[str], label: str, title: str, size: float | None = None) -> None:
    """Names on the y axis, top to bottom."""
    axes.set_yticks(range(len(names)), names, color=INK, fontsize=size)
    axes.set(ylim=(len(names) - 0.5, -0.6), xlabel=label, title=title)
    axes.grid(axis="y", visible=False)


def pad_x(axes: Axes, share: float = 0.1) -> None:
    """Leave room on both sides for the texts of `dot`."""
    low, high = axes.get_xlim()
    axes.set_xlim(low - share * (high - low), high + share * (high - low))


def dot_rows(
    table: Table, axes: Axes, key: str, value: str, title: str, label: str, *, named: bool = True, digits: int = 2
) -> None:
    """A dot with its interval for each row of a table."""
    names = table.column(key)
    for y, (name, color) in enumerate(zip(names, COLORS * len(names), strict=False)):
        cell = table.cell(value, **{key: name})
        dot(axes, cell, y, color, f"{cell[0]:.{digits}f}")
    pad_x(axes)
    name_rows(axes, names if named else [""] * len(names), label, title)


def reference_line(axes: Axes, x: float) -> None:
    """A dotted vertical line at a baseline, if it is within view on the right."""
    if axes.get_xlim()[0] < x < axes.get_xlim()[1]:
        axes.axvline(x, color=GREY, linewidth=1, linestyle=":")


def label_lines(axes: Axes, labels: Sequence[tuple[float, str, str]], gap: float = 0.055) -> None:
    """Write (y, text, color) to the right of the axes, moved apart until no two are closer than `gap`."""
    if not labels:
        return
    to_axes = axes.transData + axes.transAxes.inverted()
    x = axes.get_xlim()[1]
    wanted = sorted((float(to_axes.transform((x, y))[1]), text, color) for y, text, color in labels)
    for height, (y, text, color) in zip(_move_apart([label[0] for label in wanted], gap), wanted, strict=True):
        axes.annotate(
            text,
            xy=(1.0, y),
            xytext=(1.03, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=[0.8 * part for part in to_rgb(color)],  # letters are thinner than lines and need more contrast
            va="center",
            annotation_clip=False,
            fontsize=9,
        )


def _move_apart(places: Sequence[float], gap: float) -> list[float]:
    """Move sorted places as little as needed to keep them `gap` apart: neighbors that touch form a block."""
    blocks: list[list[float]] = []  # [center, count]
    for place in places:
        blocks.append([place, 1])
        while len(blocks) > 1 and blocks[-1][0] - blocks[-2][0] < gap * (blocks[-1][1] + blocks[-2][1]) / 2:
            (m1, n1), (m2, n2) = blocks[-2:]
            blocks[-2:] = [[(m1 * n1 + m2 * n2) / (n1 + n2), n1 + n2]]
    return [float(m + gap * (i - (n - 1) / 2)) for m, n in blocks for i in np.arange(n)]
