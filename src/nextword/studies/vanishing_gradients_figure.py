"""The figure of the study of vanishing gradients: norms by distance before and after training, and clipping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.studies.drawing import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION, beside
from nextword.studies.study import Table, Tables
from nextword.studies.vanishing_gradients_paths import (
    ATTENTION,
    GATED,
    HC,
    LEAKY,
    PLAIN,
    RESIDUAL,
    TAMED,
    TRAINED,
    UNTRAINED,
    H,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STROKES = {  # colour and dashes: two ways to tell lines apart
    PLAIN: (VERMILION, "-"),
    LEAKY: (ORANGE, "-"),
    RESIDUAL: (PURPLE, "-"),
    GATED: (GREEN, "-"),
    HC: (BLUE, "-"),
    H: (BLUE, ":"),
    ATTENTION: (SKY, "-"),
    "bound": (GREY, "--"),
}
BOUND = r"bound $(\gamma_h\,\gamma_w)^{t-k}$"


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 9)
    figure.set_layout_engine("constrained", hspace=0.08, wspace=0.04)
    (untrained, trained), (bound, clipping) = figure.subplots(2, 2, height_ratios=(1.35, 1))
    _curves(tables["norms"], untrained, UNTRAINED, "Untrained: how much of a gradient arrives")
    _curves(tables["norms"], trained, TRAINED, "Trained on text: how much of a gradient arrives")
    _bound(tables["bound"], bound)
    _clipping(tables["losses"], clipping)


def _curves(table: Table, axes: Any, weights: str, title: str) -> None:
    far = table.column("t − k", network=PLAIN, weights=weights)
    labels, every = [], [1.0]
    for name, (colour, dash) in STROKES.items():
        middle, low, high = zip(*table.column("norm", network=name, weights=weights), strict=True)
        axes.plot(far, middle, dash, color=colour, linewidth=1.8)
        axes.fill_between(far, low, high, color=colour, alpha=0.18, linewidth=0)
        text = BOUND if name == "bound" else name
        labels.append((middle[-1], text, colour))
        every += [] if name == "bound" else [min(low), max(high)]
    top, bound = 1e6 * max(every), labels[-1][0]
    axes.set(yscale="log", ylim=(min(every) / 10, min(top, 10 * max(bound, *every))), xlim=(1, far[-1]))
    if bound > top:  # it leaves the picture: its name stays at the edge, and says where it goes
        labels[-1] = (top, f"bound: {bound:.0e}", GREY)
    axes.set(xlabel="t − k, steps back", ylabel=r"$\|\partial h_t/\partial h_k\|$")
    axes.set_title(title)
    beside(axes, labels, gap=0.07)


def _bound(table: Table, axes: Any) -> None:
    """The factor a step against ‖W‖, with the one that the bound allows."""
    rows = sorted((row for row in table.rows if row[0] != TRAINED), key=lambda row: row[table.columns.index("‖W‖")][0])
    norms, gammas, steps = ([row[table.columns.index(name)] for row in rows] for name in ("‖W‖", "γ_h·γ_w", "a step"))
    x = [norm[0] for norm in norms]
    labels = []
    for cells, colour, dash, name in (
        (gammas, GREY, "--", r"bound $\gamma_h\,\gamma_w$"),
        (steps, VERMILION, "-", PLAIN),
    ):
        middle, low, high = zip(*cells, strict=True)
        axes.plot(x, middle, dash, marker="o", color=colour, markersize=4, linewidth=1.8)
        axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
        labels.append((middle[-1], name, colour))
    axes.axhline(1, color=INK, linewidth=0.8)
    axes.text(x[0], 1.06, "explodes", fontsize=9, color=INK, va="bottom")
    axes.text(x[-1], 0.94, "vanishes", fontsize=9, color=INK, va="top", ha="right")
    axes.set(xscale="log", yscale="log", xlabel="‖W‖ of an untrained tanh RNN", ylabel="factor a step back")
    axes.set_xticks(x, [f"{norm:.2g}" for norm in x])
    axes.set_xticks([], minor=True)
    ticks = [tick for tick in (0.25, 0.5, 1, 2, 4, 8) if tick >= min(low for _, low, _ in steps) / 2]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_title("What the bound allows, and what happens")
    beside(axes, labels, gap=0.12)


def _clipping(table: Table, axes: Any) -> None:
    labels = []
    most = 0.0
    for (name, scale, rate), colour in zip(TAMED, (GREEN, VERMILION), strict=True):
        for clip in dict.fromkeys(table.column("clip")):
            found = table.column("nats", **{"network": name, "‖W‖": scale, "rate": rate, "clip": clip})
            middle, low, high = zip(*found, strict=True)
            steps = range(1, len(middle) + 1)
            dash = "--" if clip == "none" else "-"
            axes.plot(steps, middle, dash, color=colour, linewidth=1.8)
            axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
            labels.append((middle[-1], f"{name},\n{'without' if clip == 'none' else 'clipped'}", colour))
            most = max(most, *high)
    axes.set(yscale="log", xlabel="step", ylabel="nats a byte", xlim=(1, None), ylim=(2, 1.15 * most))
    ticks = [tick for tick in (2, 3, 5, 10, 20, 50, 100) if tick <= most]
    axes.set_yticks(ticks, [f"{tick}" if tick < 100 else "100 or\nno number" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_title(f"SGD at rate {TAMED[0][2]:g} where gradients explode (‖W‖ = {TAMED[0][1]:g})")
    beside(axes, labels, gap=0.13)
