"""The figure of the study of n-gram sparsity: what is new in a new text, what is stored, what each remedy buys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextword.infinity import NAME
from nextword.studies.drawing import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, VERMILION, beside
from nextword.studies.ngram_models import KATZ, LIKELIHOOD, REMEDIES, STUPID, by_remedy, percent
from nextword.studies.study import Table, Tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "Witten-Bell": PURPLE,
    "absolute": SKY,
    "Kneser-Ney": GREEN,
    "modified Kneser-Ney": BLUE,
    KATZ: VERMILION,
    STUPID: ORANGE,
}
ALONE = ("smoothing", "back-off")


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 7.2)
    sides: Any = figure.subfigures(1, 2, width_ratios=(1, 1.25))
    left, right = sides
    above, below = left.subplots(2, 1)
    _draw_sparsity(tables["sparsity"], above)
    _draw_storage(tables["storage"], below)
    _draw_perplexity(tables["perplexity"], *right.subplots(2, 1, sharex=True, height_ratios=(1, 2.6)))


def _draw_sparsity(table: Table, axes: Any) -> None:
    orders = table.column("n")
    word, lost = ([share[0] for share in table.column(name)] for name in ("word new, %", "context new, %"))
    axes.set_title("Sparsity: how much of a new text was never seen")
    axes.bar(orders, word, color=ORANGE, width=0.7)
    axes.bar(orders, lost, bottom=word, color=VERMILION, width=0.7)
    for n, share in zip(orders, table.column("new when held out, %"), strict=True):
        axes.text(n, share[0] + 2, percent(share[0]), ha="center", fontsize=9, color=INK)
    axes.set(xlabel="n", ylabel="% of the held-out tokens", xticks=orders, ylim=(0, 108))
    axes.grid(axis="x", visible=False)
    labels = [(word[-1] / 2, "the context was seen,\nbut not this word after it:\nfor smoothing", ORANGE)]
    labels.append((word[-1] + lost[-1] / 2, "the context itself\nis new: for back-off", VERMILION))
    beside(axes, labels, gap=0.3)


def _draw_storage(table: Table, axes: Any) -> None:
    orders = table.column("n")
    axes.set_title("Storage: a model of all n-grams up to n")
    labels = []
    for column, name, colour in (
        ("fast, MB", "fast layout", BLUE),
        ("compact, MB", "compact layout", GREEN),
        ("8 bits, MB", "compact, 8 bits", SKY),
    ):
        y = table.column(column)
        axes.plot(orders, y, "-o", color=colour, markersize=4, linewidth=1.8)
        labels.append((y[-1], f"{name}:\n{y[-1]:.3g} MB", colour))
    text = table.column("fast, MB")[-1] / table.column("fast / text")[-1]
    axes.axhline(text, color=GREY, linestyle="--", linewidth=1.2)
    labels.append((text, f"the text: {text:.3g} MB", GREY))
    axes.set(xlabel="n", ylabel="MB on disk", xticks=orders)
    axes.set_ylim(bottom=0)
    beside(axes, labels, gap=0.13)


def _draw_perplexity(table: Table, above: Any, below: Any) -> None:
    """One axis in two parts: most estimators differ by a few per cent, and adding δ is far above them."""
    lines = by_remedy(table, "smoothing", "back-off", "both")
    orders = range(1, len(table.columns) - 1)
    close = [v for row in by_remedy(table, "back-off", "both").values() for v in row[1:] if v != NAME]
    edge = 0.05 * (max(close) - min(close)) or 1.0
    most = max(v for row in lines.values() for v in row if v != NAME)
    below.set_ylim(min(close) - edge, max(close) + edge)
    above.set(yscale="log", ylim=(1.15 * (max(close) + edge), 4 * most))
    ticks = [d * 10**e for e in range(2, 7) for d in (1, 2, 5)]
    above.set_yticks(shown := [t for t in ticks if above.get_ylim()[0] <= t <= most], [f"{t:,}" for t in shown])
    above.set_yticks([], minor=True)
    for axes in (above, below):
        labels = []
        for name, row in lines.items():
            title, _, form = name.partition(", ")
            alone = next((f" ({remedy} alone)" for remedy in ALONE if name in REMEDIES[remedy]), "")
            colour = COLOURS.get(title, GREY)
            at = [(n, value) for n, value in zip(orders, row, strict=True) if value != NAME]
            stroke = "--" if form == "back-off" else "-"
            axes.plot(*zip(*at, strict=True), stroke, marker="o", color=colour, markersize=4, linewidth=1.8)
            if (axes is above) == (name in REMEDIES["smoothing"]):
                labels.append((at[-1][1], name + alone, colour))
        if axes is above and NAME in by_remedy(table, "neither")[LIKELIHOOD]:
            labels.append((3 * most, f"{LIKELIHOOD}: {NAME} (neither)", INK))
        beside(axes, labels, gap=0.05 if axes is below else 0.13)
    above.set_title("Perplexity: what smoothing and back-off buy")
    above.spines["bottom"].set_visible(False)
    above.tick_params(axis="x", length=0)
    above.set_ylabel("logarithmic scale")
    below.set(xlabel="n", ylabel="perplexity", xticks=orders)
