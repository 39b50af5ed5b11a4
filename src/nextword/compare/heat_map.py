"""A heat map as inline SVG: the words of a source across, those of a target down, and the darker the more it looks.

                the  earth  was  …
        die      ██    ░     ·
        Erde     ·     ██    ·

Colours are the page's, so that it can be read in the dark. Each cell tells its share when it is pointed at; for who
cannot see it, the label says which word of the source each word of the target looks at most.
"""

from __future__ import annotations

from collections.abc import Sequence

from nextword.compare.charts import escape, number

CELL = 26.0  # pixels
LETTER = 7.4  # width of a letter of the 13 px labels
LONGEST = 18  # letters of a word that are shown
LEAN = 0.82  # of a label's length is how high it is, leaning by 55 degrees
FAINT = 0.02  # a share below this leaves the cell empty


def heat_map(source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], title: str) -> str:
    """`weights[t][s]`: how much of its attention word t of the target has for word s of the source."""
    rows = [list(row[: len(source)]) for row in weights[: len(target)]]
    if not source or not rows or any(len(row) < len(source) for row in rows):
        return ""
    across, down = [_shown(word) for word in source], [_shown(word) for word in target[: len(rows)]]
    left = 14 + max(LETTER * len(word) for word in down)
    top = 12 + max(LEAN * LETTER * len(word) + 8 for word in across)
    right = max(0.0, max(left + CELL * (i + 0.6) + 0.58 * LETTER * len(word) for i, word in enumerate(across)))
    width, height = max(right, left + CELL * len(across)) + 4, top + CELL * len(down) + 4
    out = [_frame(left, top, CELL * len(across), CELL * len(down))]
    for i, word in enumerate(across):
        x, y = left + CELL * (i + 0.6), top - 8
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" transform="rotate(-55 {x:.1f} {y:.1f})">{escape(word)}</text>')
    for t, (word, row) in enumerate(zip(down, rows, strict=True)):
        y = top + CELL * t
        out.append(f'<text x="{left - 8:.1f}" y="{y + CELL / 2 + 4.5:.1f}" text-anchor="end">{escape(word)}</text>')
        for s, weight in enumerate(row):
            share = number(weight)
            if share is not None and share >= FAINT:
                out.append(_cell(left + CELL * s, y, share, f"{target[t]} ← {source[s]}: {share:.0%}"))
    label = escape(f"{title}. {'; '.join(_said(source, target[t], row) for t, row in enumerate(rows))}.")
    return (
        f'<svg class="map" viewBox="0 0 {width:.0f} {height:.0f}" style="width:{width:.0f}px" role="img" '
        f'aria-label="{label}">{"".join(out)}</svg>'
    )


def _frame(left: float, top: float, width: float, height: float) -> str:
    return f'<rect class="frame" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _cell(x: float, y: float, share: float, note: str) -> str:
    size = CELL - 2
    return (
        f'<rect class="share" x="{x + 1:.1f}" y="{y + 1:.1f}" width="{size:g}" height="{size:g}" rx="2" '
        f'fill-opacity="{min(share, 1.0):.2f}"><title>{escape(note)}</title></rect>'
    )


def _said(source: Sequence[str], word: str, row: Sequence[float]) -> str:
    best = max(range(len(source)), key=lambda s: number(row[s]) or 0.0)
    return f"{word} looks at {source[best]}"


def _shown(word: str) -> str:
    return word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"
