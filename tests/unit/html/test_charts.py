"""Charts of a report: scales, numbers for people, marks that can be told apart, and colours that can be seen."""

from __future__ import annotations

import math
import re
from importlib.resources import files
from itertools import pairwise

import pytest

from nextword.html import charts
from nextword.html.charts import UNDER

# ------------------------------------------------------------------------------------------------ charts


def test_ticks_are_round_and_inside():
    assert charts.ticks(1.8, 3.1, 4) == [2.0, 2.5, 3.0]
    assert charts.ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
    assert charts.log_ticks(0.9, 1100) == [1, 10, 100, 1000]
    assert charts.log_ticks(9, 120) == [10, 20, 50, 100]


@pytest.mark.parametrize("low", [1e-6, 0.3, 7.0, 1e9])
@pytest.mark.parametrize("ratio", [1.001, 1.3, 8.0, 1e7])
def test_every_scale_has_two_ticks_and_not_many(low, ratio):
    for found in (charts.ticks(low, low * ratio), charts.log_ticks(low, low * ratio)):
        assert 2 <= len(found) <= 9
        assert all(low * (1 - 1e-9) <= t <= low * ratio * (1 + 1e-9) for t in found)


def test_numbers_for_people():
    assert [charts.duration(s) for s in (0.25, 9.0, 59.7, 61.2, 300, 3900)] == [
        "0.25 s", "9 s", "1 min", "1 min 1 s", "5 min", "1 h 5 min",
    ]  # fmt: skip
    assert [charts.count(n) for n in (7, 999, 1000, 1234567, 2.5e9)] == ["7", "999", "1 k", "1.23 M", "2.5 G"]
    assert [charts.size(n) for n in (12, 5012345)] == ["12 B", "5.01 MB"]


def test_a_point_stands_where_its_value_is():
    points = [charts.Point(1, 2.0), charts.Point(10, 1.5), charts.Point(100, 1.0)]
    svg = charts.lines([charts.Series("a", points)], charts.Axis("x", log=True), charts.Axis("y"), "t", 400, 300)
    path = re.search(r'class="line"[^>]*points="([^"]*)"', svg)
    assert path
    (x0, y0), (x1, y1), (x2, y2) = ([float(v) for v in p.split(",")] for p in path[1].split())
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)  # equal factors, equal distances
    assert y1 - y0 == pytest.approx(y2 - y1, abs=0.2)
    assert y0 < y2  # up is more


def test_what_a_logarithm_cannot_show_is_left_out():
    axes = charts.Axis("x", log=True), charts.Axis("y")
    assert charts.scatter([charts.Series("a", [charts.Point(0, 1)])], *axes, "t") == ""
    assert charts.lines([charts.Series("a", [charts.Point(3, math.inf)])], *axes, "t") == ""
    assert "NaN" not in charts.scatter([charts.Series("a", [charts.Point(5, 5, 5, 5)])], *axes, "t")


def test_labels_at_the_ends_of_lines_do_not_touch():
    series = [charts.Series(f"m{i}", [charts.Point(1, 3), charts.Point(9, 2 + i / 1000)], i) for i in range(9)]
    svg = charts.lines(series, charts.Axis("x"), charts.Axis("y"), "t")
    heights = sorted(float(y) for y in re.findall(r'class="name"[^>]* y="([\d.]+)"', svg))
    assert min(b - a for a, b in pairwise(heights)) >= 15


def test_models_are_told_apart_by_shape_as_well_as_colour():
    assert len({charts.marker(i) for i in range(56)}) == 56
    shapes = {re.sub(r"--c\d", "", charts.marker(i)) for i in range(7)}
    assert len(shapes) == 7


def test_heat_rises_with_the_bits_and_spaces_stay_white():
    html = charts.heat([" the", "\n", "x", "y"], [0.5, 20.0, None])
    assert html == (
        ' <span class="h0" title="0.5 bits, probability 70.71%">the</span>'
        '<span class="h7" title="20.0 bits, probability 1 in 1.05 M">↵\n</span>xy'
    )


# ------------------------------------------------------------------------------------------------ colours


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_and_marks_stand_out_from_their_ground(theme):
    css = files("nextword.html").joinpath("page.css").read_text()
    colours = dict(re.findall(r"(--\w+): (#\w{6});", re.findall(r":root \{(.*?)\}", css, re.S)[theme]))
    for ground in ("--paper", "--raised"):
        for ink in ("--ink", "--soft", "--accent"):
            assert contrast(colours[ink], colours[ground]) >= 4.5
        for i in range(charts.COLOURS):
            assert contrast(colours[f"--c{i}"], colours[ground]) >= 3  # WCAG's bound for graphics
    for level in range(1, len(charts.LEVELS) + 1):
        assert contrast(colours["--ink"], colours[f"--h{level}"]) >= 4.5


def over(colour: tuple[int, ...], share: float, ground: str) -> str:
    """A colour that is partly seen through, on a ground."""
    encoder = [int(ground[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in zip(colour, encoder, strict=True))


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_words_that_are_coloured_and_numbers_in_cells_can_be_read(theme):
    css = files("nextword.html").joinpath("page.css").read_text()
    block = re.findall(r":root \{(.*?)\}", css, re.S)[theme]
    colours = dict(re.findall(r"(--\w+): (#\w{6});", block))
    signs = {name: tuple(map(int, parts.split())) for name, parts in re.findall(r"--(for|against): ([\d ]+);", block)}
    levels = re.findall(r"rgb\(var\(--(for|against)\) / (\.\d+)\)", css)
    assert len(levels) == 11  # five of each, and a mark
    for sign, share in levels:
        assert contrast(colours["--ink"], over(signs[sign], float(share), colours["--raised"])) >= 4.5
    accent = tuple(int(colours["--accent"][i : i + 2], 16) for i in (1, 3, 5))
    assert contrast(colours["--ink"], over(accent, UNDER, colours["--paper"])) >= 4.5
