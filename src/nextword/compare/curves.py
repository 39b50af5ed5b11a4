"""The learning curves of a report: what validation said of each model, against the time it had trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from nextword.page import charts
from nextword.page.charts import Axis, Point, Series, duration, escape, number
from nextword.page.pieces import Model, listed, plain_name


def learning_curves(
    models: Sequence[Model],
    marks: Mapping[int, int],
    key: str,
    write: Callable[[float], str],
    label: str,
    title: str,
) -> str:
    """`key` of what a validation says, told by `write`; models of which there is nothing to draw are named below."""
    series = []
    for m in models:
        points = [
            Point(seconds, value, note=f"{plain_name(m)}: {write(value)} after {duration(seconds)}")
            for event in m.get("curve") or []
            if (seconds := number(event.get("seconds"))) and (value := number(event.get(key))) and value < math.inf
        ]
        series.append(Series(plain_name(m), points, marks[id(m)]))
    every = [p for s in series for p in s.points]
    if not every:
        return ""
    x = Axis("time of training →", duration, log=charts.far([p.x for p in every], 8), time=True)
    y = Axis(label, log=charts.far([p.y for p in every], 4))
    draw = partial(charts.lines, series, x, y, title)
    without = listed([escape(s.name) for s in series if not s.points])
    missing = f'<p class="note">No curve: {without}.</p>' if without else ""
    return charts.twice(draw, (1040, 420), (344, 340)) + missing
