"""Numbers as people read them, and text that is safe inside HTML."""

from __future__ import annotations

import html
import math

from nextword.core.io import format_number

# Show control characters as their Unicode pictures (U+2400 …), drop C1 controls, replace lone surrogates.
_VISIBLE = {c: 0x2400 + c for c in range(32) if chr(c) not in "\t\n"} | {0x7F: 0x2421} | dict.fromkeys(range(128, 160))
_VISIBLE |= dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)


def escape(value: object) -> str:
    """Escape any text for HTML; control characters become visible."""
    return html.escape(str(value).translate(_VISIBLE))


def as_number(value: object) -> float | None:
    """The value as a float; None for null, nan, booleans and anything else that is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value)


def format_integer(value: float) -> str:
    """1234567 → 1,234,567"""
    return f"{value:,.0f}" if math.isfinite(value) else "∞"


def format_count(value: float) -> str:
    """1234567 → 1.23 M"""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit * 0.9995:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g}"


def format_size(value: float) -> str:
    """1234567 → 1.23 MB"""
    return f"{format_count(value)}B" if value >= 999.5 else f"{value:.0f} B"


def format_perplexity(value: float) -> str:
    return format_number(value, 1 if value < 1000 else 0)


def format_duration(seconds: float) -> str:
    """61.2 → 1 min 1 s"""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    parts = ((minutes, "min"), (rest, "s")) if minutes < 60 else ((minutes // 60, "h"), (minutes % 60, "min"))
    return " ".join(f"{n} {unit}" for n, unit in parts if n)
