"""How figures of studies look: one palette that colour-blind readers can tell apart, and names beside lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

# Okabe & Ito 2008, without their yellow, which is too light for lines on white
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#cc79a7",
    "#56b4e9",
    "#777777",
)
INK = "#222222"

STYLE: Any = {
    "font.size": 10,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so a figure is the same everywhere
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


def beside(axes: Any, labels: Sequence[tuple[float, str, str]], gap: float = 0.055) -> None:
    """Write (y, text, colour) to the right of the axes, moved apart until none is nearer to another than `gap`."""
    if not labels:
        return
    to_axes = axes.transData + axes.transAxes.inverted()
    x = axes.get_xlim()[1]
    wanted = sorted((float(to_axes.transform((x, y))[1]), text, colour) for y, text, colour in labels)
    for at, (place, text, colour) in zip(_apart([w[0] for w in wanted], gap), wanted, strict=True):
        axes.annotate(
            text,
            xy=(1.0, place),
            xytext=(1.03, at),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=_darker(colour),
            va="center",
            annotation_clip=False,
            fontsize=9,
        )


def _darker(colour: str) -> tuple[float, ...]:
    """Letters are thinner than lines, and need more contrast to be read."""
    return tuple(0.8 * part for part in to_rgb(colour))


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Move sorted places as little as makes every distance at least `gap`: neighbours that touch become one block."""
    blocks: list[list[float]] = []  # [middle, how many]
    for place in places:
        blocks.append([place, 1])
        while len(blocks) > 1 and blocks[-1][0] - blocks[-2][0] < gap * (blocks[-1][1] + blocks[-2][1]) / 2:
            (m1, n1), (m2, n2) = blocks[-2:]
            blocks[-2:] = [[(m1 * n1 + m2 * n2) / (n1 + n2), n1 + n2]]
    return [float(m + gap * (i - (n - 1) / 2)) for m, n in blocks for i in np.arange(n)]
