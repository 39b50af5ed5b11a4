"""Tries of plausible n-grams with values that no estimator gives: zero, −∞ and positive back-offs."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from nextword.ngrams.trie import NODE, Level, Trie


def make_random_trie(seed: int, order: int, size: int, boundary: int, length: int, keep: float = 0.9) -> Trie:
    """Draw a text of `length` words and keep each n-gram by chance, if its prefix and suffix are kept."""
    draw = np.random.default_rng(seed)
    text = np.minimum(draw.geometric(min(3 / size, 0.9), length) - 1, size - 1).tolist()
    kept: set[tuple[int, ...]] = set()
    levels = []
    for n in range(1, order + 1):
        seen = {tuple(text[i : i + n]) for i in range(length - n + 1)} if n > 1 else {(w,) for w in range(size)}
        inside = [gram for gram in sorted(seen) if boundary not in gram[1:-1]]
        if n > 1:
            inside = [g for g in inside if g[1:] in kept and g[:-1] in kept and draw.random() < keep]
        kept |= set(inside)
        levels.append(inside)
    return Trie([_level(draw, levels, k) for k in range(order)], boundary, {"seed": seed})


def _level(draw: np.random.Generator, levels: list[list[tuple[int, ...]]], k: int) -> Level:
    grams = levels[k]
    words = np.array([gram[-1] for gram in grams], NODE)
    links = first = backoffs = None
    if k:
        links = np.array([bisect_left(levels[k - 1], gram[1:]) for gram in grams], NODE)
    if k < len(levels) - 1:
        starts = [bisect_left(levels[k + 1], gram) for gram in grams]
        first = np.array([*starts, len(levels[k + 1])], NODE)
        backoffs = _replace_some(draw, draw.normal(-0.5, 0.7, len(grams)), 0.0)
    return Level(words, links, first, _replace_some(draw, -draw.gamma(2.0, 2.0, len(grams)), -np.inf), backoffs)


def _replace_some(draw: np.random.Generator, values: Any, special: float) -> np.ndarray:
    values[draw.random(len(values)) < 0.05] = special
    return values.astype(np.float32)
