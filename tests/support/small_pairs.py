"""Translation pairs of an artificial language: every target word is the reversed source word."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = ("the", "king", "went", "up", "and", "saw", "water", "of", "his", "house", "day", "light")


def write_pairs(folder: Path, longest: int = 9) -> str:
    """Write the files of three splits; return the corpus name."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 400), ("valid", 40), ("test", 70)):
        lines = [draw.choice(WORDS, draw.integers(2, longest)).tolist() for _ in range(count)]
        (folder / f"{split}.xx").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{split}.yy").write_text("".join(" ".join(w[::-1] for w in line) + "\n" for line in lines))
    return f"{folder}:xx-yy"
