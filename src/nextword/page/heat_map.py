"""A heat map as inline SVG: words across and down, and the darker the cell, the more belongs there.

What a translator looks at: the words of a source across, those of a target down. Which classes are taken for which:
what was said across, what is right down, and how often in each cell.

                the  earth  was  …
        die      ██    ░     ·
        Erde     ·     ██    ·

Colours are the page's, so that it can be read in the dark. Each cell tells its share when it is pointed at; for who
cannot see it, the label says where each row is darkest.
"""

from __future__ import annotations

from collections.abc import Sequence

from nextword.page.charts import escape, number, wide

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
