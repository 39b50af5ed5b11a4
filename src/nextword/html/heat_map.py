"""Heat maps as inline SVG: attention (source words across, target words down) and confusion matrices.

                the  earth  was  …
        die      ██    ░     ·
        Erde     ·     ██    ·

The darker a cell, the larger its share of the row. Colors come from page.css. Every cell has a tooltip; for screen
readers the label names the darkest cell of each row.
"""

from __future__ import annotations

from collections.abc import Sequence

from nextword.html.charts import text_width
from nextword.html.formatting import as_number, escape

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
    across, down = [_shorten(word) for word in columns], [_shorten(word) for word in rows]
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


def _shorten(word: str) -> str:
    return word if len(word) <= MAX_LABEL else word[: MAX_LABEL - 1] + "…"
