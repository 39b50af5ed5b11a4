"""Cutting long text into passages that together are exactly the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

PASSAGE = 32 << 10  # characters: long enough to lose nothing at the seams, short enough to batch evenly

# From the best place to cut to the worst; each is cut after the match.
_CUTS = tuple(re.compile(p) for p in (r"\n[^\S\n]*\n\s*", r"\n\s*", r"[.!?。！？]['\"”’)\]]*\s+|[。！？]", r"\s+"))


def cut(text: str, size: int = PASSAGE) -> int:
    """Where to end the first passage of about `size` characters: after a blank line, line, sentence or word."""
    if len(text) <= size + size // 2:
        return len(text)
    low, high = size // 2, size + size // 2
    for pattern in _CUTS:
        ends = [m.end() for m in pattern.finditer(text, low, high) if m.end() < high]
        if ends:
            return min(ends, key=lambda end: abs(end - size))
    return size


def passages(chunks: Iterable[str], size: int = PASSAGE) -> Iterator[str]:
    """Re-cut a stream of text, however it came in pieces, into passages of about `size` characters."""
    rest, enough = "", 2 * size  # cut only with this much ahead, so that the pieces it came in leave no trace
    for chunk in chunks:
        rest += chunk
        start = 0
        while len(rest) - start > enough:
            end = start + cut(rest[start : start + enough], size)
            yield rest[start:end]
            start = end
        rest = rest[start:]
    while rest:
        end = cut(rest[:enough], size)
        yield rest[:end]
        rest = rest[end:]
