"""Charts as inline SVG: pure functions from numbers to markup, with no library and nothing to load.

A model keeps one mark (a colour and a shape) in every chart, and its name stands beside its line or point, so that no
chart is read by colour alone. Colours are the CSS variables --c0 … --c7 of the page, which differ in the dark.

Two diagrams of predictions, as inline SVG: how sure against how often right, and numbers against those said.

A heat map as inline SVG: words across and down, and the darker the cell, the more belongs there.

What a translator looks at: the words of a source across, those of a target down. Which classes are taken for which:
what was said across, what is right down, and how often in each cell.

                the  earth  was  …
        die      ██    ░     ·
        Erde     ·     ██    ·

Colours are the page's, so that it can be read in the dark. Each cell tells its share when it is pointed at; for who
cannot see it, the label says where each row is darkest.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

LEVELS = (1, 2, 4, 6, 8, 11, 14)  # bits at which the heat of a token rises: h0 … h7 in page.css
COLOURS = 8  # --c0 … --c7 in page.css
LETTER, LINE = 7.3, 16.0  # width of a letter and height of a line of the 13 px labels
BOLD = 1.13  # names of lines are wider than that by so much
TIMES = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    20,
    30,
    60,
    120,
    300,
    600,
    1200,
    1800,
    *(3600 * h for h in (1, 2, 4, 8, 24, 48, 120, 240)),
)

# Shapes within a circle of radius 1. Seven of them against eight colours: 56 marks before one repeats.
SHAPES = (
    "circle",
    "-.85,-.85 .85,-.85 .85,.85 -.85,.85",
    "0,-1.15 1.1,.8 -1.1,.8",
    "0,-1.25 1.25,0 0,1.25 -1.25,0",
    "0,1.15 1.1,-.8 -1.1,-.8",
    "-.4,-1.1 .4,-1.1 .4,-.4 1.1,-.4 1.1,.4 .4,.4 .4,1.1 -.4,1.1 -.4,.4 -1.1,.4 -1.1,-.4 -.4,-.4",
    "0,-1.2 1.1,-.35 .7,1 -.7,1 -1.1,-.35",
)

# Text may hold anything: control characters become their pictures, lone surrogates the replacement character.
_PICTURES = {c: 0x2400 + c for c in range(32) if chr(c) not in "\t\n"} | {0x7F: 0x2421} | dict.fromkeys(range(128, 160))
_PICTURES |= dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    low: float | None = None  # error bar
    high: float | None = None
    note: str = ""  # shown when pointed at


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


def escape(value: object) -> str:
    return html.escape(str(value).translate(_PICTURES))


# ------------------------------------------------------------------------------------------------ numbers for people


def number(value: object) -> float | None:
    """The number, or None for what is none: null, missing, not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value)


def whole(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "∞"


def count(value: float) -> str:
    """1234567 → 1.23 M"""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit * 0.9995:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g}"


def size(value: float) -> str:
    return f"{count(value)}B" if value >= 999.5 else f"{value:.0f} B"


def perplexity(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else whole(value)


def duration(seconds: float) -> str:
    """61.2 → 1 min 1 s"""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return " ".join(f"{n} {unit}" for n, unit in ((minutes, "min"), (rest, "s")) if n)
    return " ".join(f"{n} {unit}" for n, unit in ((minutes // 60, "h"), (minutes % 60, "min")) if n)


# ------------------------------------------------------------------------------------------------ drawing


def marker(mark: int, x: float = 0, y: float = 0, radius: float = 5, note: str = "") -> str:
    shape = SHAPES[mark % len(SHAPES)]
    at = f'class="m" style="fill:var(--c{mark % COLOURS})"'
    title = f"<title>{escape(note)}</title>" if note else ""
    if shape == "circle":
        return f'<circle {at} cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}">{title}</circle>'
    corners = (corner.split(",") for corner in shape.split())
    points = " ".join(f"{x + radius * float(a):.1f},{y + radius * float(b):.1f}" for a, b in corners)
    return f'<polygon {at} points="{points}">{title}</polygon>'


def key(mark: int) -> str:
    """The mark of a model alone, to stand before its name in a table."""
    return f'<svg class="key" viewBox="-8 -8 16 16" aria-hidden="true">{marker(mark, radius=6)}</svg>'


def interval(value: float, low: float | None, high: float | None, start: float, end: float, mark: int = 0) -> str:
    """A value and its interval on the scale start … end, for a table cell; the cell says the numbers in words."""

    def at(v: float) -> float:
        return 8 + 124 * min(1.0, max(0.0, (v - start) / (end - start))) if end > start else 70

    colour = f'style="stroke:var(--c{mark % COLOURS})"'
    out = ['<line class="grid" x1="2" x2="138" y1="9" y2="9"/>']
    if low is not None and high is not None:
        out.append(f'<line class="bar" {colour} x1="{at(low):.1f}" x2="{at(high):.1f}" y1="9" y2="9"/>')
    out.append(f'<line class="value" {colour} x1="{at(value):.1f}" x2="{at(value):.1f}" y1="2" y2="16"/>')
    return f'<svg class="interval" viewBox="0 0 140 18" aria-hidden="true">{"".join(out)}</svg>'


def heat(tokens: Sequence[str], bits: Sequence[float | None]) -> str:
    """The text itself as a chart: each token on a ground that is the darker the more bits it cost."""
    out = []
    for token, paid in zip_longest(tokens, bits[: len(tokens)]):
        word = token.lstrip(" ") or token
        space, shown = token[: len(token) - len(word)], escape(word).replace("\n", "↵\n")
        cost = number(paid)
        if cost is not None:
            chance = 2.0 ** -min(cost, 1000)
            odds = f"{chance:.2%}" if chance >= 0.001 else f"1 in {count(1 / chance)}"
            said = "∞ bits, impossible" if cost == math.inf else f"{cost:.1f} bits, probability {odds}"
            shown = f'<span class="h{sum(cost >= edge for edge in LEVELS)}" title="{said}">{shown}</span>'
        out.append(space + shown)
    return "".join(out)


def heat_legend() -> str:
    ends = [f"{a}–{b}" for a, b in pairwise((0, *LEVELS))] + [f"{LEVELS[-1]}+"]
    steps = "".join(f'<span class="h{level}">{end}</span>' for level, end in enumerate(ends))
    return f'<p class="legend"><span class="unit">bits</span>{steps}</p>'


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers in [low, high], in steps of 1, 2 or 5 times a power of ten.

    ticks(1.8, 3.1) == [2.0, 2.5, 3.0]
    """
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    found = _steps(low, high, next(s * power for s in (1, 2, 5, 10) if s * power >= raw * (1 - 1e-9)))
    return found if len(found) > 1 else ticks(low, high, most + 2)  # one tick alone tells no scale


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """The densest of 1–2–5, 1–3 and powers of ten that fits, in [low, high] (both positive)."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [d * 10.0**e for e in decades for d in digits if low <= d * 10.0**e <= high]
        if len(found) <= most:
            break
    return found[:: math.ceil(len(found) / most)] if len(found) > 2 else ticks(low, high, most)


def _steps(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _axis_ticks(axis: Axis, low: float, high: float, most: int) -> list[float]:
    if not axis.time:
        return (log_ticks if axis.log else ticks)(low, high, most)
    if not axis.log:
        return _steps(low, high, next((t for t in TIMES if t >= (high - low) / most), TIMES[-1]))
    found = [t for t in TIMES if low <= t <= high]
    # From the largest down: the end of the budget is the tick one looks for.
    return found[:: -math.ceil(len(found) / most)][::-1] if len(found) > 1 else ticks(low, high, most)


class Frame:
    """The plotting area: maps values to pixels and draws axes, grid and ticks."""

    def __init__(self, series: Sequence[Series], x: Axis, y: Axis, width: int, height: int, right: float, pad: float):
        points = [p for s in series for p in s.points]
        self.x, self.y, self.width, self.height = x, y, width, height
        heights = [v for p in points for v in (p.low, p.y, p.high) if v is not None and math.isfinite(v)]
        self.xs = _domain([p.x for p in points], x.log, pad)
        self.ys = _domain(heights, y.log, 0.07)
        self.y_ticks = _axis_ticks(y, *self.ys, 6)
        self.left = 14 + max((wide(y.write(t)) for t in self.y_ticks), default=0)
        self.right, self.top, self.bottom = width - right, 34.0, height - 44.0

    def at(self, p: Point) -> tuple[float, float]:
        return self.across(p.x), self.up(p.y)

    def across(self, v: float) -> float:
        return self.left + (self.right - self.left) * _share(v, self.xs, self.x.log)

    def up(self, v: float) -> float:
        return self.bottom - (self.bottom - self.top) * _share(v, self.ys, self.y.log)

    def draw(self) -> str:
        left, right, bottom = f"{self.left:.1f}", f"{self.right:.1f}", f"{self.bottom:.1f}"
        out = [
            f'<text class="axis" x="0" y="14">{escape(self.y.label)}</text>',
            f'<text class="axis" x="{right}" y="{self.height - 6}" text-anchor="end">{escape(self.x.label)}</text>',
            f'<line class="base" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>',
        ]
        for t in self.y_ticks:
            v = self.up(t)
            out.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{v:.1f}" y2="{v:.1f}"/>')
            out.append(f'<text x="{self.left - 8:.1f}" y="{v + 4.5:.1f}" text-anchor="end">{self.y.write(t)}</text>')
        for t in _axis_ticks(self.x, *self.xs, most=max(2, int((self.right - self.left) / 80))):
            v = self.across(t)
            out.append(f'<line class="base" x1="{v:.1f}" x2="{v:.1f}" y1="{bottom}" y2="{self.bottom + 5:.1f}"/>')
            out.append(f'<text x="{v:.1f}" y="{self.bottom + 19:.1f}" text-anchor="middle">{self.x.write(t)}</text>')
        return "".join(out)


def lines(series: Sequence[Series], x: Axis, y: Axis, title: str, width: int = 960, height: int = 400) -> str:
    """One line a series, its name at its end. Empty text where there is nothing to draw."""
    series = _drawable(series, x, y)
    if not series:
        return ""
    names = {s.name: _short(s.name) for s in series}
    frame = Frame(series, x, y, width, height, right=22 + BOLD * max(wide(n) for n in names.values()), pad=0)
    out = [frame.draw()]
    for s in reversed(series):  # the first, which is the best, on top
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in map(frame.at, _thin(s.points, 240)))
        out.append(f'<polyline class="line" style="stroke:var(--c{s.mark % COLOURS})" points="{path}"/>')
        out += [marker(s.mark, *frame.at(p), 4.5, p.note) for p in _thin(s.points, 8)]
    ends = [frame.at(s.points[-1]) for s in series]
    labels = _apart([b for _, b in ends], frame.top, frame.bottom)
    for s, (a, b), label in zip(series, ends, labels, strict=True):
        out.append(f'<polyline class="lead" points="{a + 6:.1f},{b:.1f} {frame.right + 14:.1f},{label:.1f}"/>')
        out.append(
            f'<text class="name" x="{frame.right + 18:.1f}" y="{label + 4.5:.1f}">{escape(names[s.name])}</text>'
        )
    said = [f"{s.name} ends at {y.write(s.points[-1].y)} after {x.write(s.points[-1].x)}" for s in series]
    return svg(out, title, said, width, height)


def scatter(series: Sequence[Series], x: Axis, y: Axis, title: str, width: int = 500, height: int = 380) -> str:
    """Points with error bars, each with its name where there is room for it."""
    series = _drawable(series, x, y)
    if not series:
        return ""
    frame = Frame(series, x, y, width, height, right=14, pad=0.09)
    out, boxes = [frame.draw()], []
    for s in series:
        for p in s.points:
            a, b = frame.at(p)
            low, high = frame.up(p.y if p.low is None else p.low), frame.up(p.y if p.high is None else p.high)
            if low - high > 1:
                out.append(
                    f'<path class="bar" style="stroke:var(--c{s.mark % COLOURS})" '
                    f'd="M{a:.1f},{high:.1f}V{low:.1f}M{a - 4:.1f},{high:.1f}h8M{a - 4:.1f},{low:.1f}h8"/>'
                )
            out.append(marker(s.mark, a, b, 5.5, p.note))
            boxes.append((a - 6, min(high, b - 6), a + 6, max(low, b + 6)))
    for s in series:
        name = _short(s.name)
        a, b = frame.at(s.points[-1])
        box = _room(a, b, wide(name), boxes, (frame.left, frame.top - 12, frame.right + 12, frame.bottom))
        boxes.append(box)
        out.append(f'<text class="name" x="{box[0]:.1f}" y="{box[3] - 4:.1f}">{escape(name)}</text>')
    said = [f"{s.name}: {y.write(p.y)} at {x.write(p.x)}" for s in series for p in s.points]
    return svg(out, title, said, width, height)


def twice(draw: Callable[..., str], wide: tuple[int, int], narrow: tuple[int, int]) -> str:
    """The chart in two sizes, so that its letters stay readable on a phone; the page shows one of them."""
    two = ((css, draw(width=w, height=h)) for css, (w, h) in (("wide", wide), ("narrow", narrow)))
    return "<figure>" + "".join(f'<div class="{css}">{svg}</div>' for css, svg in two) + "</figure>"


def far(values: Sequence[float], times: float) -> bool:
    """Whether the values lie so far apart that an axis should be logarithmic."""
    return max(values) > times * min(values) > 0


def svg(parts: Sequence[str], title: str, said: Sequence[str], width: int, height: int) -> str:
    label = escape(f"{title}. {'; '.join(said)}.")
    return f'<svg class="plot" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _drawable(series: Sequence[Series], x: Axis, y: Axis) -> list[Series]:
    """Without the points that a logarithm or a screen cannot show."""

    def fine(p: Point) -> bool:
        return all(math.isfinite(v) and (v > 0 or not axis.log) for v, axis in ((p.x, x), (p.y, y)))

    kept = [Series(s.name, [p for p in s.points if fine(p)], s.mark) for s in series]
    return [s for s in kept if s.points]


def _domain(values: Sequence[float], log: bool, pad: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    if high - low <= 1e-9 * abs(high):
        return (low / 1.5, high * 1.5) if log else (low - (abs(low) / 5 or 1), high + (abs(high) / 5 or 1))
    if log:
        more = (high / low) ** pad
        return low / more, high * more
    more = (high - low) * pad
    return low - more, high + more


def _share(v: float, domain: tuple[float, float], log: bool) -> float:
    low, high = domain
    if log:
        return math.log(v / low) / math.log(high / low)
    return (v - low) / (high - low)


def _thin(points: Sequence[Point], most: int) -> Sequence[Point]:
    """At most about `most` of the points, the last one always among them."""
    return points[:: -math.ceil(len(points) / most)][::-1]


def wide(text: str) -> float:
    """Pixels of a label. Chinese, Japanese and Korean letters are as wide as they are high."""
    return sum(13.0 if ord(c) >= 0x2E80 else LETTER for c in text)


def _short(name: str, most: int = 16) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _apart(wanted: Sequence[float], top: float, bottom: float) -> list[float]:
    """Heights nearest to the wanted ones at which labels do not touch; order is kept."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gap = min(LINE, (bottom - top) / max(1, len(wanted) - 1))
    placed: list[float] = []
    for i in order:
        placed.append(max(wanted[i], placed[-1] + gap) if placed else max(wanted[i], top))
    limit = bottom
    for rank in reversed(range(len(placed))):
        placed[rank] = min(placed[rank], limit)
        limit = placed[rank] - gap
    return [placed[order.index(i)] for i in range(len(wanted))]


Box = tuple[float, float, float, float]  # left, top, right, bottom


def _room(a: float, b: float, wide: float, taken: Sequence[Box], inside: Box) -> Box:
    """Where beside (a, b) a label covers least of what is taken and stays inside."""
    h = LINE / 2
    corners = [(a + 10, b - h), (a - 10 - wide, b - h), (a - wide / 2, b - 9 - LINE), (a - wide / 2, b + 9)]
    corners += [(a + 8, b - 8 - LINE), (a + 8, b + 8), (a - 8 - wide, b - 8 - LINE), (a - 8 - wide, b + 8)]
    boxes: list[Box] = [(x, y, x + wide, y + LINE) for x, y in corners]

    def cost(box: Box) -> float:
        outside = (box[2] - box[0]) * (box[3] - box[1]) - _overlap(box, inside)
        return 3 * outside + sum(_overlap(box, other) for other in taken)

    return min(boxes, key=cost)


def _overlap(p: Box, q: Box) -> float:
    return max(0.0, min(p[2], q[2]) - max(p[0], q[0])) * max(0.0, min(p[3], q[3]) - max(p[1], q[1]))


SHARE = "{:.0%}".format


def reliability(bins: Sequence[Mapping[str, Any]], width: int = 500, height: int = 380) -> str:
    """A bar for each bin of probabilities: how many of its examples are right. On the diagonal, it means what it says.

    The short line is the mean probability in the bin; the number at its foot is how many examples it holds.
    """
    some = [one for one in bins if one["examples"]]
    if not some:
        return ""
    corners = [Series("", [Point(0.0, 0.0), Point(1.0, 1.0)])]
    frame = Frame(
        corners, Axis("probability of what was said →", SHARE), Axis("share that is right", SHARE), width, height, 14, 0
    )
    out = [frame.draw()]
    for one in some:
        left, right = frame.across(one["low"]) + 1, frame.across(one["high"]) - 1
        top, base = frame.up(one["accuracy"]), frame.up(0.0)
        note = (
            f"{whole(one['examples'])} examples, said with {one['confidence']:.1%} on average, "
            f"{one['accuracy']:.1%} of them right"
        )
        out.append(
            f'<rect class="bin" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
            f'height="{max(base - top, 0.5):.1f}"><title>{note}</title></rect>'
        )
        sure = frame.up(one["confidence"])
        out.append(f'<line class="sure" x1="{left:.1f}" x2="{right:.1f}" y1="{sure:.1f}" y2="{sure:.1f}"/>')
        out.append(
            f'<text class="name" x="{(left + right) / 2:.1f}" y="{base - 6:.1f}" text-anchor="middle">'
            f"{whole(one['examples'])}</text>"
        )
    a, b = frame.at(Point(0, 0)), frame.at(Point(1, 1))
    out.append(f'<line class="diagonal" x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}"/>')
    said = [f"{one['low']:.0%} to {one['high']:.0%}: {one['examples']} examples, {one['accuracy']:.0%}" for one in some]
    return svg(out, "How many are right against how sure they were said", said, width, height)


def dots(pairs: Sequence[Sequence[float]], width: int = 500, height: int = 380) -> str:
    """Numbers that are right across, those that were said up; on the diagonal both are the same."""
    if not pairs:
        return ""
    points = [Point(x, y, note=f"right {x:g}, said {y:.4g}") for x, y in pairs]
    low, high = min(min(p.x, p.y) for p in points), max(max(p.x, p.y) for p in points)
    ends = [Point(low, low), Point(high, high)]
    frame = Frame([Series("", [*points, *ends])], Axis("right →"), Axis("said"), width, height, 14, 0.03)
    (a, b), (c, d) = map(frame.at, ends)
    out = [frame.draw(), f'<line class="diagonal" x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}"/>']
    for p in points:
        x, y = frame.at(p)
        out.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{p.note}</title></circle>')
    said = [f"{len(points)} examples, from {low:g} to {high:g}"]
    return svg(out, "Numbers that were said against those that are right", said, width, height)


CELL = 26.0  # pixels
WIDE = 36.0  # of a cell with a number in it
LONGEST = 18  # letters of a word that are shown
LEAN = 0.82  # of a label's length is how high it is, leaning by 55 degrees
FAINT = 0.02  # a share below this leaves the cell empty
UNDER = 0.5  # of the colour, where a number is written over it: it can be read, in the light and in the dark


def heat_map(source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], title: str) -> str:
    """`weights[t][s]`: how much of its attention word t of the target has for word s of the source."""
    rows = [list(row[: len(source)]) for row in weights[: len(target)]]
    if not source or not rows or any(len(row) < len(source) for row in rows):
        return ""
    notes = [
        [f"{target[t]} ← {source[s]}: {share:.0%}" if (share := number(w)) is not None else "" for s, w in enumerate(r)]
        for t, r in enumerate(rows)
    ]
    said = [f"{target[t]} looks at {source[_most(row)]}" for t, row in enumerate(rows)]
    return _drawn(source, target[: len(rows)], rows, notes, [], f"{title}. {'; '.join(said)}.", CELL)


def matrix(labels: Sequence[str], counts: Sequence[Sequence[int]], totals: Sequence[int], title: str) -> str:
    """Which class (a row) was taken for which (a column): shares of each row as colour, the counts in the cells.

    `totals` of the rows may be more than what is shown of them.
    """
    if not labels:
        return ""
    totals = [max(total, 1) for total in totals]
    shares = [[n / total for n in row] for row, total in zip(counts, totals, strict=True)]
    notes = [
        [f"{labels[i]} taken for {labels[j]}: {n:,} of {totals[i]:,} ({n / totals[i]:.0%})" for j, n in enumerate(row)]
        for i, row in enumerate(counts)
    ]
    said = [f"{label} is mostly taken for {labels[_most(row)]}" for label, row in zip(labels, shares, strict=True)]
    widest = max(wide(f"{n:,}") for row in counts for n in row)
    numbers = [[f"{n:,}" if n else "" for n in row] for row in counts]
    return _drawn(labels, labels, shares, notes, numbers, f"{title}. {'; '.join(said)}.", max(WIDE, 12 + widest))


def _drawn(
    source: Sequence[str],
    target: Sequence[str],
    shares: Sequence[Sequence[float]],
    notes: Sequence[Sequence[str]],
    numbers: Sequence[Sequence[str]],
    label: str,
    cell: float,
) -> str:
    across, down = [_shown(word) for word in source], [_shown(word) for word in target]
    left = 14 + max(wide(word) for word in down)
    top = 12 + max(LEAN * wide(word) + 8 for word in across)
    right = max(0.0, max(left + cell * (i + 0.6) + 0.58 * wide(word) for i, word in enumerate(across)))
    width, height = max(right, left + cell * len(across)) + 4, top + cell * len(down) + 4
    out = [_frame(left, top, cell * len(across), cell * len(down))]
    for i, word in enumerate(across):
        x, y = left + cell * (i + 0.6), top - 8
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" transform="rotate(-55 {x:.1f} {y:.1f})">{escape(word)}</text>')
    for t, (word, row) in enumerate(zip(down, shares, strict=True)):
        y = top + cell * t
        out.append(f'<text x="{left - 8:.1f}" y="{y + cell / 2 + 4.5:.1f}" text-anchor="end">{escape(word)}</text>')
        for s, weight in enumerate(row):
            share, written = number(weight), numbers[t][s] if numbers else ""
            if share is not None and (share >= FAINT or written):
                out.append(_cell(left + cell * s, y, cell, share, notes[t][s], written))
    return (
        f'<svg class="map" viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px" role="img" '
        f'aria-label="{escape(label)}">{"".join(out)}</svg>'
    )


def _frame(left: float, top: float, width: float, height: float) -> str:
    return f'<rect class="frame" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _cell(x: float, y: float, cell: float, share: float, note: str, written: str = "") -> str:
    size, depth = cell - 2, min(share, 1.0) * (UNDER if written else 1.0)
    title = f"<title>{escape(note)}</title>"
    out = (
        f'<rect class="share" x="{x + 1:.1f}" y="{y + 1:.1f}" width="{size:g}" height="{size:g}" rx="2" '
        f'fill-opacity="{depth:.2f}">{title}</rect>'
    )
    at = f'x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4.5:.1f}"'
    return out + (f'<text class="count" {at} text-anchor="middle">{escape(written)}</text>' if written else "")


def _most(row: Sequence[float]) -> int:
    return max(range(len(row)), key=lambda s: number(row[s]) or 0.0)


def _shown(word: str) -> str:
    return word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"
