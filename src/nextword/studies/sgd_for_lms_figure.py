"""The figure of the study of optimizers for language models: rates, learning, and what is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREEN, INK, ORANGE, VERMILION, beside
from nextword.studies.sgd_for_lms_runs import ADAM, ASGD, MOMENTUM, SGD, TRIGGERED
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STROKES = {
    SGD: (INK, "-", "o"),
    MOMENTUM: (ORANGE, "-", "s"),
    ADAM: (VERMILION, "-", "^"),
    ASGD: (GREEN, "--", "D"),
    TRIGGERED: (BLUE, "-.", "v"),
}


def draw(tables: Tables, figure: Figure) -> None:
    drops = sorted(dict.fromkeys(tables["optimizers"].column("dropout")), reverse=True)
    figure.set_size_inches(14, 4.2 * len(drops))
    figure.set_layout_engine("constrained", hspace=0.08, wspace=0.04)
    grid = figure.subplots(len(drops), 3, width_ratios=(1, 1.05, 0.9), squeeze=False)
    for (rates, curves, reached), drop in zip(grid, drops, strict=True):
        setting = f"dropout {drop:g}" if drop else "no dropout"
        _rates(tables["rates"], rates, drop, f"Choosing the rate, {setting}")
        _curves(tables["curves"], curves, drop, f"Learning at that rate, {setting}")
        _reached(tables["optimizers"], reached, drop, f"Test text, {setting}")


def _rates(table: Table, axes: Any, drop: float, title: str) -> None:
    """Each grid counted from its own lowest rate, so that the shapes can be compared."""
    most, least = [], []
    for name, (colour, dash, shape) in STROKES.items():
        x = table.column("rate", optimizer=name, dropout=drop)
        y = table.column("valid nats", optimizer=name, dropout=drop)
        places = range(1, len(x) + 1)
        axes.plot(places, y, dash, marker=shape, color=colour, markersize=5, linewidth=1.6)
        best = min(places, key=lambda at: y[at - 1])
        axes.plot(best, y[best - 1], "o", markersize=12, markerfacecolor="none", markeredgecolor=colour)
        most.append(sorted(y)[-2] if len(y) > 2 else max(y))
        least.append(min(y))
    names = [name for name in STROKES if name in (SGD, MOMENTUM, ADAM)]
    ticks = []
    for at in range(len(x)):
        every = (table.column("rate", optimizer=name, dropout=drop)[at] for name in names)
        ticks.append("\n".join(f"{rate:g}" for rate in every))
    axes.set_xticks(range(1, len(x) + 1), ticks)
    height = max(most) - min(least)
    axes.set(ylim=(min(least) - 0.08 * height, max(most) + 0.08 * height), ylabel="validation, nats a token")
    axes.set_xlabel("rate of SGD and its averages; momentum; Adam (circle: chosen)", fontsize=9)
    axes.set_title(title)


def _curves(table: Table, axes: Any, drop: float, title: str) -> None:
    labels, shown = [], []
    for name, (colour, dash, _) in STROKES.items():
        steps = table.column("step", optimizer=name, dropout=drop)
        middle, low, high = zip(*table.column("valid nats", optimizer=name, dropout=drop), strict=True)
        axes.plot(steps, middle, dash, color=colour, linewidth=1.8)
        axes.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
        labels.append((middle[-1], name, colour))
        shown += [min(low), middle[len(middle) // 5]]
    height = max(shown) - min(shown)
    axes.set(xlabel="step", xlim=(0, steps[-1]), ylim=(min(shown) - 0.1 * height, max(shown) + 0.1 * height))
    axes.set_title(title)
    beside(axes, labels, gap=0.075)


def _reached(table: Table, axes: Any, drop: float, title: str) -> None:
    for y, (name, (colour, _, shape)) in enumerate(STROKES.items()):
        middle, low, high = table.cell("test nats", optimizer=name, dropout=drop)
        axes.plot([low, high], [y, y], color=colour, linewidth=2, solid_capstyle="round")
        axes.plot(middle, y, shape, color=colour, markersize=7)
        clear = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        text = f"{middle:.3f}"
        axes.annotate(
            text, (high, y), (9, 0), textcoords="offset points", va="center", fontsize=9, color=colour, bbox=clear
        )
    low, high = axes.get_xlim()
    axes.set_xlim(low, high + 0.22 * (high - low))
    axes.set_yticks(range(len(STROKES)), list(STROKES), color=INK)
    axes.set(xlabel="nats a token", ylim=(len(STROKES) - 0.5, -0.5))
    axes.grid(axis="y", visible=False)
    axes.set_title(title)
