"""The figure of the study of mixes: shares of the layers by task and λ, and what λ and the place do to the score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION, beside
from nextword.studies.measures import bounded
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAYERS = (SKY, BLUE, GREEN, PURPLE, GREY)
TASKS = (VERMILION, BLUE, GREEN)


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13.5, 5)
    figure.set_layout_engine("constrained", wspace=0.06)
    shares, apart, places = figure.subplots(1, 3, width_ratios=(1.3, 0.9, 1))
    _shares(tables["mixes"], shares)
    _draw_apart(tables["mixes"], apart)
    _places(tables["places"], places)


def _shares(table: Table, axes: Any) -> None:
    """A bar a task and λ, cut into layers."""
    layers = [name for name in table.columns if name.startswith("layer")]
    tasks = list(dict.fromkeys(table.column("task")))
    names: list[tuple[float, str]] = []
    y = 0.0
    for row in table.rows:
        y += 0.6 if names and row[1] == table.rows[0][1] else 0.0  # a gap between tasks
        left = 0.0
        for i, layer in enumerate(layers):
            share = row[table.columns.index(layer)][0]
            label = layer if not names else None
            axes.barh(y, share, left=left, height=0.8, color=LAYERS[i % len(LAYERS)], label=label)
            axes.text(left + share / 2, y, f"{share:.0f}", ha="center", va="center", color="white", fontsize=8)
            left += share
        names.append((y, f"{row[0]}, λ = {row[1]:g}" if row[1] == table.rows[0][1] else f"λ = {row[1]:g}"))
        y += 1.0
    axes.set_yticks([at for at, _ in names], [name for _, name in names], color=INK)
    axes.set(ylim=(y - 0.4, -0.6), xlim=(0, 100.5), xlabel="% of the mix, median of seeds")
    axes.grid(visible=False)
    axes.set_title(f"The mix at the input, by {'task and ' if len(tasks) > 1 else ''}λ")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=len(layers), frameon=False, fontsize=9)


def _draw_apart(table: Table, axes: Any) -> None:
    labels = []
    for task, colour in zip(dict.fromkeys(table.column("task")), TASKS, strict=False):
        cells = table.column("from equal", task=task)
        for x, (_, low, high) in enumerate(cells):
            axes.plot([x, x], [low, high], color=colour, linewidth=2, alpha=0.5, solid_capstyle="round")
        axes.plot(range(len(cells)), [cell[0] for cell in cells], "o-", color=colour, linewidth=1.2, markersize=5)
        labels.append((cells[-1][0], task, colour))
    penalties = list(dict.fromkeys(table.column("λ")))
    axes.set_xticks(range(len(penalties)), [f"{one:g}" for one in penalties])
    axes.set(xlabel="λ", ylabel="% that would have to change hands", ylim=(0, None))
    axes.set_title("How far from equal")
    beside(axes, labels)


def _places(table: Table, axes: Any) -> None:
    """Points above the mix at the input, a row a task and place."""
    rows = [row for row in table.rows if row[-1] is not None]
    tasks = list(dict.fromkeys(table.column("task")))
    for y, row in enumerate(rows):
        cell, colour = row[-1], TASKS[tasks.index(row[0]) % len(TASKS)]
        if bounded(cell):
            axes.plot([cell[1], cell[2]], [y, y], color=colour, linewidth=2.5, solid_capstyle="round")
        axes.plot(cell[0], y, "o", color=colour if row[1] != "none" else ORANGE, markersize=7)
    axes.axvline(0, color=GREY, linewidth=1)
    named = [f"{task}, {'no ELMo' if place == 'none' else place}" for task, place, *_ in rows]
    axes.set_yticks(range(len(rows)), named, color=INK)
    axes.set(xlabel="points above the mix at the input", ylim=(len(rows) - 0.5, -0.5))
    axes.grid(axis="y", visible=False)
    axes.set_title("Elsewhere than at the input")
