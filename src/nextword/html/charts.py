"""Charts as inline SVG and HTML: pure functions from numbers to markup, without a plotting library or files to load.

    line_chart            one line per series, labeled at its end
    scatter_chart         points with error bars
    reliability_diagram   predicted probability against accuracy
    regression_chart      gold numbers against predictions
    interval_bar          a value and its interval, inside a table cell
    model_key             the mark of a model, in front of its name
    attention_map         source words across, target words down: the darker a cell, the larger its share of the row
    confusion_map         gold labels down, predictions across, in the same way
    surprisal_text        a text, every token on a background whose color shows its surprisal, −log₂ p

A model keeps one mark (color and shape) in every chart, and its name stands next to its line or point, so that no chart
depends on color alone. Colors are the CSS variables --c0 … --c7 and --surprisal-0 … --surprisal-7 of page.css, which
has a light and a dark set of them.

    bits    0     1     2     4     6     8     11    14
    class   │ -0  │ -1  │ -2  │ -3  │ -4  │ -5  │ -6  │ -7         surprisal-0 … surprisal-7

Every cell of a map has a tooltip; for screen readers the label names the darkest cell of each row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

from nextword.html.formatting import as_number, escape, format_count, format_integer

NUM_COLORS = 8  # --c0 … --c7 in page.css
CHARACTER_WIDTH, LINE_HEIGHT = 7.3, 16.0  # pixels of the 13 px labels
BOLD_FACTOR = 1.13  # series names are bold, and wider by this factor
# Round numbers of seconds for the ticks of a time axis
TIME_TICKS = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800),
    *(3600 * hours for hours in (1, 2, 4, 8, 24, 48, 120, 240)),
)
# Polygons within a circle of radius 1. Seven shapes and eight colors make 56 marks before one repeats.
SHAPES = (
    "circle",
    "-.85,-.85 .85,-.85 .85,.85 -.85,.85",
    "0,-1.15 1.1,.8 -1.1,.8",
    "0,-1.25 1.25,0 0,1.25 -1.25,0",
    "0,1.15 1.1,-.8 -1.1,-.8",
    "-.4,-1.1 .4,-1.1 .4,-.4 1.1,-.4 1.1,.4 .4,.4 .4,1.1 -.4,1.1 -.4,.4 -1.1,.4 -1.1,-.4 -.4,-.4",
    "0,-1.2 1.1,-.35 .7,1 -.7,1 -1.1,-.35",
)

Box = tuple[float, float, float, float]  # left, top, right, bottom
PERCENT = "{:.0%}".format


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    low: float | None = None  # error bar
    high: float | None = None
    note: str = ""  # tooltip


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[Point]
    mark: int = 0


@dataclass(frozen=True)
class Axis:
    label: str
    write: Callable[[float], str] = "{:g}".format
    log: bool = False
    time: bool = False  # seconds: ticks at round seconds, minutes and hours


# ------------------------------------------------------------------------------------------------ charts


def line_chart(series: Sequence[Series], x: Axis, y: Axis, title: str, width: int = 960, height: int = 400) -> str:
    """One line per series, its name at its end; empty if there is nothing to draw."""
    series = _drawable(series, x, y)
    if not series:
        return ""
    names = {s.name: _shorten(s.name) for s in series}
    widest = max(text_width(name) for name in names.values())
    plot = PlotArea(series, x, y, width, height, right=22 + BOLD_FACTOR * widest, pad=0)
    parts = [plot.draw()]
    for s in reversed(series):  # the first series, which is the best, on top
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in map(plot.at, _thin(s.points, 240)))
        parts.append(f'<polyline class="line" style="stroke:var(--c{s.mark % NUM_COLORS})" points="{path}"/>')
        parts += [marker(s.mark, *plot.at(p), 4.5, p.note) for p in _thin(s.points, 8)]
    ends = [plot.at(s.points[-1]) for s in series]
    label_heights = _spread_labels([b for _, b in ends], plot.top, plot.bottom)
    for s, (a, b), label in zip(series, ends, label_heights, strict=True):
        parts.append(f'<polyline class="lead" points="{a + 6:.1f},{b:.1f} {plot.right + 14:.1f},{label:.1f}"/>')
        parts.append(
            f'<text class="name" x="{plot.right + 18:.1f}" y="{label + 4.5:.1f}">{escape(names[s.name])}</text>'
        )
    summary = [f"{s.name} ends at {y.write(s.points[-1].y)} after {x.write(s.points[-1].x)}" for s in series]
    return svg_element(parts, title, summary, width, height)


def scatter_chart(series: Sequence[Series], x: Axis, y: Axis, title: str, width: int = 500, height: int = 380) -> str:
    """Points with error bars, each with its name where there is room for it."""
    series = _drawable(series, x, y)
    if not series:
        return ""
    plot = PlotArea(series, x, y, width, height, right=14, pad=0.09)
    parts, boxes = [plot.draw()], []
    for s in series:
        for p in s.points:
            a, b = plot.at(p)
            low, high = plot.y_pixel(p.y if p.low is None else p.low), plot.y_pixel(p.y if p.high is None else p.high)
            if low - high > 1:
                parts.append(
                    f'<path class="bar" style="stroke:var(--c{s.mark % NUM_COLORS})" '
                    f'd="M{a:.1f},{high:.1f}V{low:.1f}M{a - 4:.1f},{high:.1f}h8M{a - 4:.1f},{low:.1f}h8"/>'
                )
            parts.append(marker(s.mark, a, b, 5.5, p.note))
            boxes.append((a - 6, min(high, b - 6), a + 6, max(low, b + 6)))
    for s in series:
        name = _shorten(s.name)
        a, b = plot.at(s.points[-1])
        inside = (plot.left, plot.top - 12, plot.right + 12, plot.bottom)
        box = _place_label(a, b, text_width(name), boxes, inside)
        boxes.append(box)
        parts.append(f'<text class="name" x="{box[0]:.1f}" y="{box[3] - 4:.1f}">{escape(name)}</text>')
    summary = [f"{s.name}: {y.write(p.y)} at {x.write(p.x)}" for s in series for p in s.points]
    return svg_element(parts, title, summary, width, height)


def reliability_diagram(bins: Sequence[Mapping[str, Any]], width: int = 500, height: int = 380) -> str:
    """One bar per bin of probabilities, as high as its accuracy; a calibrated model follows the diagonal.

    The short line is the mean probability in the bin; the number at the foot of the bar is its number of examples.
    """
    filled = [bin for bin in bins if bin["examples"]]
    if not filled:
        return ""
    unit_square = [Series("", [Point(0.0, 0.0), Point(1.0, 1.0)])]
    x, y = Axis("predicted probability →", PERCENT), Axis("share that is right", PERCENT)
    plot = PlotArea(unit_square, x, y, width, height, right=14, pad=0)
    parts = [plot.draw()]
    for bin in filled:
        left, right = plot.x_pixel(bin["low"]) + 1, plot.x_pixel(bin["high"]) - 1
        top, base = plot.y_pixel(bin["accuracy"]), plot.y_pixel(0.0)
        tooltip = (
            f"{format_integer(bin['examples'])} examples, mean probability {bin['confidence']:.1%}, "
            f"{bin['accuracy']:.1%} right"
        )
        parts.append(
            f'<rect class="bin" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
            f'height="{max(base - top, 0.5):.1f}"><title>{tooltip}</title></rect>'
        )
        confidence = plot.y_pixel(bin["confidence"])
        parts.append(
            f'<line class="sure" x1="{left:.1f}" x2="{right:.1f}" y1="{confidence:.1f}" y2="{confidence:.1f}"/>'
        )
        parts.append(
            f'<text class="name" x="{(left + right) / 2:.1f}" y="{base - 6:.1f}" text-anchor="middle">'
            f"{format_integer(bin['examples'])}</text>"
        )
    parts.append(_diagonal(plot, Point(0, 0), Point(1, 1)))
    summary = [
        f"{bin['low']:.0%} to {bin['high']:.0%}: {bin['examples']} examples, {bin['accuracy']:.0%}" for bin in filled
    ]
    return svg_element(parts, "Accuracy against predicted probability", summary, width, height)


def regression_chart(pairs: Sequence[Sequence[float]], width: int = 500, height: int = 380) -> str:
    """(gold, predicted) pairs as points; on the diagonal both are equal."""
    if not pairs:
        return ""
    points = [Point(x, y, note=f"gold {x:g}, predicted {y:.4g}") for x, y in pairs]
    low, high = min(min(p.x, p.y) for p in points), max(max(p.x, p.y) for p in points)
    ends = [Point(low, low), Point(high, high)]
    plot = PlotArea([Series("", [*points, *ends])], Axis("gold →"), Axis("predicted"), width, height, 14, 0.03)
    parts = [plot.draw(), _diagonal(plot, *ends)]
    for p in points:
        x, y = plot.at(p)
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{p.note}</title></circle>')
    summary = [f"{len(points)} examples, from {low:g} to {high:g}"]
    return svg_element(parts, "Predicted against gold numbers", summary, width, height)


def _diagonal(plot: PlotArea, start: Point, end: Point) -> str:
    (a, b), (c, d) = plot.at(start), plot.at(end)
    return f'<line class="diagonal" x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}"/>'


def responsive_figure(draw: Callable[..., str], wide: tuple[int, int], narrow: tuple[int, int]) -> str:
    """The chart in two sizes, so that its labels stay readable on a phone; page.css shows one of them."""
    sizes = ((css, draw(width=w, height=h)) for css, (w, h) in (("wide", wide), ("narrow", narrow)))
    return "<figure>" + "".join(f'<div class="{css}">{chart}</div>' for css, chart in sizes) + "</figure>"


def svg_element(parts: Sequence[str], title: str, summary: Sequence[str], width: int, height: int) -> str:
    """The <svg> around the parts of a chart; title and summary are for screen readers."""
    label = escape(f"{title}. {'; '.join(summary)}.")
    return f'<svg class="plot" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


# ------------------------------------------------------------------------------------------------ marks in tables


def marker(mark: int, x: float = 0, y: float = 0, radius: float = 5, note: str = "") -> str:
    """The mark of a series at a point."""
    shape = SHAPES[mark % len(SHAPES)]
    style = f'class="m" style="fill:var(--c{mark % NUM_COLORS})"'
    title = f"<title>{escape(note)}</title>" if note else ""
    if shape == "circle":
        return f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}">{title}</circle>'
    corners = (corner.split(",") for corner in shape.split())
    points = " ".join(f"{x + radius * float(a):.1f},{y + radius * float(b):.1f}" for a, b in corners)
    return f'<polygon {style} points="{points}">{title}</polygon>'


def model_key(mark: int) -> str:
    """The mark of a model alone, to stand before its name in a table."""
    return f'<svg class="key" viewBox="-8 -8 16 16" aria-hidden="true">{marker(mark, radius=6)}</svg>'


def interval_bar(
    value: float, low: float | None, high: float | None, start: float, end: float, mark: int = 0, zero: bool = False
) -> str:
    """A value and its interval on the scale start … end, for a table cell that also shows the numbers.

    `zero`: with a line across the whole height at 0.
    """

    def x_of(v: float) -> float:
        return 8 + 124 * min(1.0, max(0.0, (v - start) / (end - start))) if end > start else 70

    color = f'style="stroke:var(--c{mark % NUM_COLORS})"'
    parts = ['<line class="grid" x1="2" x2="138" y1="9" y2="9"/>']
    if zero:
        parts.append(f'<line class="axis" x1="{x_of(0):.1f}" x2="{x_of(0):.1f}" y1="0" y2="18"/>')
    if low is not None and high is not None:
        parts.append(f'<line class="bar" {color} x1="{x_of(low):.1f}" x2="{x_of(high):.1f}" y1="9" y2="9"/>')
    parts.append(f'<line class="value" {color} x1="{x_of(value):.1f}" x2="{x_of(value):.1f}" y1="2" y2="16"/>')
    return f'<svg class="interval" viewBox="0 0 140 18" aria-hidden="true">{"".join(parts)}</svg>'


# ------------------------------------------------------------------------------------------------ axes and ticks


class PlotArea:
    """Maps values to pixels and draws axes, grid and ticks."""

    def __init__(self, series: Sequence[Series], x: Axis, y: Axis, width: int, height: int, right: float, pad: float):
        points = [p for s in series for p in s.points]
        self.x, self.y, self.width, self.height = x, y, width, height
        heights = [v for p in points for v in (p.low, p.y, p.high) if v is not None and math.isfinite(v)]
        self.xs = _domain([p.x for p in points], x.log, pad)
        self.ys = _domain(heights, y.log, 0.07)
        self.y_ticks = _axis_ticks(y, *self.ys, 6)
        self.left = 14 + max((text_width(y.write(t)) for t in self.y_ticks), default=0)
        self.right, self.top, self.bottom = width - right, 34.0, height - 44.0

    def at(self, p: Point) -> tuple[float, float]:
        return self.x_pixel(p.x), self.y_pixel(p.y)

    def x_pixel(self, v: float) -> float:
        return self.left + (self.right - self.left) * _fraction(v, self.xs, self.x.log)

    def y_pixel(self, v: float) -> float:
        return self.bottom - (self.bottom - self.top) * _fraction(v, self.ys, self.y.log)

    def draw(self) -> str:
        left, right, bottom = f"{self.left:.1f}", f"{self.right:.1f}", f"{self.bottom:.1f}"
        parts = [
            f'<text class="axis" x="0" y="14">{escape(self.y.label)}</text>',
            f'<text class="axis" x="{right}" y="{self.height - 6}" text-anchor="end">{escape(self.x.label)}</text>',
            f'<line class="base" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>',
        ]
        for t in self.y_ticks:
            v = self.y_pixel(t)
            parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{v:.1f}" y2="{v:.1f}"/>')
            parts.append(f'<text x="{self.left - 8:.1f}" y="{v + 4.5:.1f}" text-anchor="end">{self.y.write(t)}</text>')
        for t in _axis_ticks(self.x, *self.xs, most=max(2, int((self.right - self.left) / 80))):
            v = self.x_pixel(t)
            parts.append(f'<line class="base" x1="{v:.1f}" x2="{v:.1f}" y1="{bottom}" y2="{self.bottom + 5:.1f}"/>')
            parts.append(f'<text x="{v:.1f}" y="{self.bottom + 19:.1f}" text-anchor="middle">{self.x.write(t)}</text>')
        return "".join(parts)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers in [low, high], in steps of 1, 2 or 5 times a power of ten.

    ticks(1.8, 3.1) == [2.0, 2.5, 3.0]
    """
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    values = _multiples(low, high, next(s * power for s in (1, 2, 5, 10) if s * power >= raw * (1 - 1e-9)))
    return values if len(values) > 1 else ticks(low, high, most + 2)  # a single tick shows no scale


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """The densest of 1–2–5, 1–3 and powers of ten that fits, in [low, high] (both positive)."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        values = [d * 10.0**e for e in decades for d in digits if low <= d * 10.0**e <= high]
        if len(values) <= most:
            break
    return values[:: math.ceil(len(values) / most)] if len(values) > 2 else ticks(low, high, most)


def needs_log_axis(values: Sequence[float], ratio: float) -> bool:
    """Whether the largest value is more than `ratio` times the smallest."""
    return max(values) > ratio * min(values) > 0


def _axis_ticks(axis: Axis, low: float, high: float, most: int) -> list[float]:
    if not axis.time:
        return (log_ticks if axis.log else ticks)(low, high, most)
    if not axis.log:
        return _multiples(low, high, next((t for t in TIME_TICKS if t >= (high - low) / most), TIME_TICKS[-1]))
    values = [t for t in TIME_TICKS if low <= t <= high]
    # Thin out from the largest down: the end of the budget is the tick a reader looks for.
    return values[:: -math.ceil(len(values) / most)][::-1] if len(values) > 1 else ticks(low, high, most)


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _domain(values: Sequence[float], log: bool, pad: float) -> tuple[float, float]:
    """The range of an axis: that of the values, and a share `pad` more at both ends."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * abs(high):
        return (low / 1.5, high * 1.5) if log else (low - (abs(low) / 5 or 1), high + (abs(high) / 5 or 1))
    if log:
        factor = (high / low) ** pad
        return low / factor, high * factor
    margin = (high - low) * pad
    return low - margin, high + margin


def _fraction(v: float, domain: tuple[float, float], log: bool) -> float:
    """Where a value lies on its axis: 0 at the start, 1 at the end."""
    low, high = domain
    if log:
        return math.log(v / low) / math.log(high / low)
    return (v - low) / (high - low)


def _drawable(series: Sequence[Series], x: Axis, y: Axis) -> list[Series]:
    """Drop the points that are infinite or that a logarithmic axis cannot show."""

    def fits(p: Point) -> bool:
        return all(math.isfinite(v) and (v > 0 or not axis.log) for v, axis in ((p.x, x), (p.y, y)))

    fitting = [Series(s.name, [p for p in s.points if fits(p)], s.mark) for s in series]
    return [s for s in fitting if s.points]


def _thin(points: Sequence[Point], most: int) -> Sequence[Point]:
    """At most about `most` of the points, always including the last one."""
    return points[:: -math.ceil(len(points) / most)][::-1]


# ------------------------------------------------------------------------------------------------ labels


def text_width(text: str) -> float:
    """Width of a label in pixels. Chinese, Japanese and Korean characters are as wide as they are high."""
    return sum(13.0 if ord(c) >= 0x2E80 else CHARACTER_WIDTH for c in text)


def _shorten(name: str, most: int = 16) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _spread_labels(wanted: Sequence[float], top: float, bottom: float) -> list[float]:
    """The heights nearest to the wanted ones at which labels do not touch, in the same order."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gap = min(LINE_HEIGHT, (bottom - top) / max(1, len(wanted) - 1))
    heights: list[float] = []
    for i in order:  # push down what touches the label above
        heights.append(max(wanted[i], heights[-1] + gap) if heights else max(wanted[i], top))
    limit = bottom
    for rank in reversed(range(len(heights))):  # push up what has left the bottom
        heights[rank] = min(heights[rank], limit)
        limit = heights[rank] - gap
    return [heights[order.index(i)] for i in range(len(wanted))]


def _place_label(a: float, b: float, width: float, taken: Sequence[Box], inside: Box) -> Box:
    """The place next to (a, b) where a label covers least of what is taken and stays inside."""
    half = LINE_HEIGHT / 2
    sides = [(a + 10, b - half), (a - 10 - width, b - half)]
    above_and_below = [(a - width / 2, b - 9 - LINE_HEIGHT), (a - width / 2, b + 9)]
    corners = [(x, y) for x in (a + 8, a - 8 - width) for y in (b - 8 - LINE_HEIGHT, b + 8)]
    boxes: list[Box] = [(x, y, x + width, y + LINE_HEIGHT) for x, y in sides + above_and_below + corners]

    def cost(box: Box) -> float:
        outside = (box[2] - box[0]) * (box[3] - box[1]) - _overlap(box, inside)
        return 3 * outside + sum(_overlap(box, other) for other in taken)

    return min(boxes, key=cost)


def _overlap(p: Box, q: Box) -> float:
    return max(0.0, min(p[2], q[2]) - max(p[0], q[0])) * max(0.0, min(p[3], q[3]) - max(p[1], q[1]))


# ------------------------------------------------------------------------------------------------ surprisal


SURPRISAL_EDGES = (1, 2, 4, 6, 8, 11, 14)  # bits at which the next color begins


def surprisal_class(bits: float) -> str:
    """The CSS class for a token with this surprisal."""
    return f"surprisal-{sum(bits >= edge for edge in SURPRISAL_EDGES)}"


def surprisal_text(tokens: Sequence[str], bits: Sequence[float | None]) -> str:
    """The tokens as HTML, each colored by its bits, with the probability as a tooltip. Tokens without bits stay plain.

    A token's leading space stays outside its background.
    """
    parts = []
    for token, value in zip_longest(tokens, bits[: len(tokens)]):
        word = token.lstrip(" ") or token
        space, text = token[: len(token) - len(word)], escape(word).replace("\n", "↵\n")
        cost = as_number(value)
        if cost is not None:
            text = f'<span class="{surprisal_class(cost)}" title="{_tooltip(cost)}">{text}</span>'
        parts.append(space + text)
    return "".join(parts)


def surprisal_legend() -> str:
    """The color scale: one box per class, labeled with its range of bits."""
    ranges = [f"{low}–{high}" for low, high in pairwise((0, *SURPRISAL_EDGES))] + [f"{SURPRISAL_EDGES[-1]}+"]
    boxes = "".join(f'<span class="surprisal-{level}">{label}</span>' for level, label in enumerate(ranges))
    return f'<p class="legend"><span class="unit">bits</span>{boxes}</p>'


def _tooltip(bits: float) -> str:
    if bits == math.inf:
        return "∞ bits, impossible"
    probability = 2.0 ** -min(bits, 1000)
    odds = f"{probability:.2%}" if probability >= 0.001 else f"1 in {format_count(1 / probability)}"
    return f"{bits:.1f} bits, probability {odds}"


# ------------------------------------------------------------------------------------------------ heat maps


CELL = 26.0  # pixels
CELL_WITH_NUMBER = 36.0  # minimum width of a cell that shows a count
MAX_LABEL = 18  # characters of a row or column label
LABEL_RISE = 0.82  # height of a column label, rotated by 55°, as a share of its length
MIN_SHARE = 0.02  # cells with a smaller share stay empty
NUMBER_OPACITY = 0.5  # cells with a number are this much paler, so that it stays readable


def attention_map(source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], title: str) -> str:
    """`weights[t][s]`: the attention that target word t pays to source word s."""
    rows = [list(row[: len(source)]) for row in weights[: len(target)]]
    if not source or not rows or any(len(row) < len(source) for row in rows):
        return ""

    def tooltip(t: int, s: int) -> str:
        share = as_number(rows[t][s])
        return "" if share is None else f"{target[t]} ← {source[s]}: {share:.0%}"

    tooltips = [[tooltip(t, s) for s in range(len(source))] for t in range(len(rows))]
    summary = [f"{target[t]} looks at {source[_largest(row)]}" for t, row in enumerate(rows)]
    return _draw_map(source, target[: len(rows)], rows, tooltips, [], f"{title}. {'; '.join(summary)}.", CELL)


def confusion_map(labels: Sequence[str], counts: Sequence[Sequence[int]], totals: Sequence[int], title: str) -> str:
    """A confusion matrix: gold classes down, predictions across, counts in the cells, shares of the row as color.

    `totals` are the sums of the rows, which may include columns that are not shown.
    """
    if not labels:
        return ""
    totals = [max(total, 1) for total in totals]
    shares = [[n / total for n in row] for row, total in zip(counts, totals, strict=True)]
    tooltips = [
        [
            f"{labels[i]} predicted as {labels[j]}: {n:,} of {totals[i]:,} ({n / totals[i]:.0%})"
            for j, n in enumerate(row)
        ]
        for i, row in enumerate(counts)
    ]
    summary = [
        f"{label} is mostly predicted as {labels[_largest(row)]}" for label, row in zip(labels, shares, strict=True)
    ]
    widest = max(text_width(f"{n:,}") for row in counts for n in row)
    numbers = [[f"{n:,}" if n else "" for n in row] for row in counts]
    cell = max(CELL_WITH_NUMBER, 12 + widest)
    return _draw_map(labels, labels, shares, tooltips, numbers, f"{title}. {'; '.join(summary)}.", cell)


def _draw_map(
    columns: Sequence[str],
    rows: Sequence[str],
    shares: Sequence[Sequence[float]],
    tooltips: Sequence[Sequence[str]],
    numbers: Sequence[Sequence[str]],
    label: str,
    cell: float,
) -> str:
    across, down = [_shorten(word, MAX_LABEL) for word in columns], [_shorten(word) for word in rows]
    left = 14 + max(text_width(word) for word in down)
    top = 12 + max(LABEL_RISE * text_width(word) + 8 for word in across)
    right = max(0.0, max(left + cell * (i + 0.6) + 0.58 * text_width(word) for i, word in enumerate(across)))
    width, height = max(right, left + cell * len(across)) + 4, top + cell * len(down) + 4
    parts = [
        f'<rect class="frame" x="{left:.1f}" y="{top:.1f}" width="{cell * len(across):.1f}" '
        f'height="{cell * len(down):.1f}"/>'
    ]
    for i, word in enumerate(across):
        x, y = left + cell * (i + 0.6), top - 8
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" transform="rotate(-55 {x:.1f} {y:.1f})">{escape(word)}</text>')
    for t, (word, row) in enumerate(zip(down, shares, strict=True)):
        y = top + cell * t
        parts.append(f'<text x="{left - 8:.1f}" y="{y + cell / 2 + 4.5:.1f}" text-anchor="end">{escape(word)}</text>')
        for s, weight in enumerate(row):
            share, number = as_number(weight), numbers[t][s] if numbers else ""
            if share is not None and (share >= MIN_SHARE or number):
                parts.append(_draw_cell(left + cell * s, y, cell, share, tooltips[t][s], number))
    return (
        f'<svg class="map" viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _draw_cell(x: float, y: float, cell: float, share: float, tooltip: str, number: str = "") -> str:
    size, opacity = cell - 2, min(share, 1.0) * (NUMBER_OPACITY if number else 1.0)
    rect = (
        f'<rect class="share" x="{x + 1:.1f}" y="{y + 1:.1f}" width="{size:g}" height="{size:g}" rx="2" '
        f'fill-opacity="{opacity:.2f}"><title>{escape(tooltip)}</title></rect>'
    )
    center = f'x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4.5:.1f}"'
    return rect + (f'<text class="count" {center} text-anchor="middle">{escape(number)}</text>' if number else "")


def _largest(row: Sequence[float]) -> int:
    return max(range(len(row)), key=lambda s: as_number(row[s]) or 0.0)
