"""Two diagrams of predictions, as inline SVG: how sure against how often right, and numbers against those said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nextword.page.charts import Axis, Frame, Point, Series, svg, whole

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
