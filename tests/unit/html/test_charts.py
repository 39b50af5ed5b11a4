"""Charts of a report: scales, labels, marks, and the contrast of the colors in page.css."""

from __future__ import annotations

import math
import re
from importlib.resources import files
from itertools import pairwise

import pytest

from nextword.html import charts
from nextword.html.charts import NUMBER_OPACITY, SURPRISAL_EDGES, surprisal_class, surprisal_legend, surprisal_text

# ------------------------------------------------------------------------------------------------ charts


def test_ticks_are_round_and_inside_the_range():
    assert charts.ticks(1.8, 3.1, 4) == [2.0, 2.5, 3.0]
    assert charts.ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
    assert charts.log_ticks(0.9, 1100) == [1, 10, 100, 1000]
    assert charts.log_ticks(9, 120) == [10, 20, 50, 100]


@pytest.mark.parametrize("low", [1e-6, 0.3, 7.0, 1e9])
@pytest.mark.parametrize("ratio", [1.001, 1.3, 8.0, 1e7])
def test_ticks_any_scale_number_two_to_nine(low, ratio):
    for found in (charts.ticks(low, low * ratio), charts.log_ticks(low, low * ratio)):
        assert 2 <= len(found) <= 9
        assert all(low * (1 - 1e-9) <= t <= low * ratio * (1 + 1e-9) for t in found)


def test_line_chart_log_axis_places_equal_factors_at_equal_distances():
    points = [charts.Point(1, 2.0), charts.Point(10, 1.5), charts.Point(100, 1.0)]
    svg = charts.line_chart([charts.Series("a", points)], charts.Axis("x", log=True), charts.Axis("y"), "t", 400, 300)
    path = re.search(r'class="line"[^>]*points="([^"]*)"', svg)
    assert path
    (x0, y0), (x1, y1), (x2, y2) = ([float(v) for v in p.split(",")] for p in path[1].split())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)  # equal factors, equal distances
    assert y1 - y0 == pytest.approx(y2 - y1, abs=0.2)
    assert y0 < y2  # up is more


def test_charts_drop_points_that_a_log_axis_cannot_show():
    axes = charts.Axis("x", log=True), charts.Axis("y")
    assert charts.scatter_chart([charts.Series("a", [charts.Point(0, 1)])], *axes, "t") == ""
    assert charts.line_chart([charts.Series("a", [charts.Point(3, math.inf)])], *axes, "t") == ""
    assert "NaN" not in charts.scatter_chart([charts.Series("a", [charts.Point(5, 5, 5, 5)])], *axes, "t")


def test_line_chart_labels_do_not_touch():
    series = [charts.Series(f"m{i}", [charts.Point(1, 3), charts.Point(9, 2 + i / 1000)], i) for i in range(9)]
    svg = charts.line_chart(series, charts.Axis("x"), charts.Axis("y"), "t")
    heights = sorted(float(y) for y in re.findall(r'class="name"[^>]* y="([\d.]+)"', svg))
    assert min(b - a for a, b in pairwise(heights)) >= 15


def test_marker_shapes_differ_without_color():
    assert len({charts.marker(i) for i in range(56)}) == 56
    shapes = {re.sub(r"--c\d", "", charts.marker(i)) for i in range(7)}
    assert len(shapes) == 7


# ------------------------------------------------------------------------------------------------ colors


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_page_colors_have_enough_contrast(theme):
    css = files("nextword.html").joinpath("page.css").read_text()
    colors = dict(re.findall(r"(--[\w-]+): (#\w{6});", re.findall(r":root \{(.*?)\}", css, re.S)[theme]))
    for ground in ("--paper", "--raised"):
        for ink in ("--ink", "--soft", "--accent"):
            assert contrast(colors[ink], colors[ground]) >= 4.5
        for i in range(charts.NUM_COLORS):
            assert contrast(colors[f"--c{i}"], colors[ground]) >= 3  # WCAG's bound for graphics
    for level in range(1, len(SURPRISAL_EDGES) + 1):
        assert contrast(colors["--ink"], colors[f"--surprisal-{level}"]) >= 4.5


def blend(color: tuple[int, ...], share: float, ground: str) -> str:
    """A transparent color on a background."""
    background = [int(ground[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in zip(color, background, strict=True))


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colored_words_and_map_numbers_have_enough_contrast(theme):
    css = files("nextword.html").joinpath("page.css").read_text()
    block = re.findall(r":root \{(.*?)\}", css, re.S)[theme]
    colors = dict(re.findall(r"(--[\w-]+): (#\w{6});", block))
    signs = {name: tuple(map(int, parts.split())) for name, parts in re.findall(r"--(for|against): ([\d ]+);", block)}
    levels = re.findall(r"rgb\(var\(--(for|against)\) / (\.\d+)\)", css)
    assert len(levels) == 11  # five of each, and a mark
    for sign, share in levels:
        assert contrast(colors["--ink"], blend(signs[sign], float(share), colors["--raised"])) >= 4.5
    accent = tuple(int(colors["--accent"][i : i + 2], 16) for i in (1, 3, 5))
    assert contrast(colors["--ink"], blend(accent, NUMBER_OPACITY, colors["--paper"])) >= 4.5


# ------------------------------------------------------------------------------------------------ surprisal


@pytest.mark.parametrize(("bits", "level"), [(0.0, 0), (0.99, 0), (1.0, 1), (8.0, 5), (14.0, 7), (math.inf, 7)])
def test_surprisal_class_rises_with_the_bits(bits: float, level: int) -> None:
    assert surprisal_class(bits) == f"surprisal-{level}"


def test_surprisal_text_colors_tokens_and_leaves_spaces_white() -> None:
    html = surprisal_text([" the", "\n", "x", "y"], [0.5, 20.0, None])
    assert html == (
        ' <span class="surprisal-0" title="0.5 bits, probability 70.71%">the</span>'
        '<span class="surprisal-7" title="20.0 bits, probability 1 in 1.05 M">↵\n</span>xy'
    )


def test_surprisal_legend_has_a_box_per_class() -> None:
    assert surprisal_legend().count('class="surprisal-') == len(SURPRISAL_EDGES) + 1
