"""A text as a chart: every token on a background whose color shows its surprisal, −log₂ p.

    bits    0     1     2     4     6     8     11    14
    class   │ -0  │ -1  │ -2  │ -3  │ -4  │ -5  │ -6  │ -7         surprisal-0 … surprisal-7

The colors of the classes are the CSS variables --surprisal-0 … --surprisal-7 in page.css, one set for light and one for
dark screens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise, zip_longest

from nextword.html.formatting import as_number, escape, format_count

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
