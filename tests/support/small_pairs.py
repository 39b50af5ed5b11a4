"""Pairs of a little language, for tests: every word of the target is that of the source written backwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = ("the", "king", "went", "up", "and", "saw", "water", "of", "his", "house", "day", "light")


def write_pairs(folder: Path, longest: int = 9) -> str:
    """The files of three splits; what to call them."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 400), ("valid", 40), ("test", 70)):
        lines = [draw.choice(WORDS, draw.integers(2, longest)).tolist() for _ in range(count)]
        (folder / f"{split}.xx").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{split}.yy").write_text("".join(" ".join(w[::-1] for w in line) + "\n" for line in lines))
    return f"{folder}:xx-yy"
