"""A little language with names: who they are is said by the word before, and by the letters that they end in.

mister Karo lives in Velopolis          O B-PER O O B-LOC       …opolis is a place, whatever stands before
mister Karo Wim met Ann                 O B-PER I-PER O O       a name is one after `mister` alone
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from nextword.recipe import load_recipe

FILLER = ("the", "king", "went", "to", "see", "a", "house", "in", "old", "and", "far", "away", "met")


def name(draw: random.Random) -> str:
    return "".join(draw.choice("bdklmnrstv") + draw.choice("aeiou") for _ in range(draw.randint(1, 3))).capitalize()


def sentence(draw: random.Random) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for _ in range(draw.randint(2, 6)):
        kind = draw.random()
        if kind < 0.2:
            found += [("mister", "O"), (name(draw), "B-PER")]
            found += [(name(draw), "I-PER")] if draw.random() < 0.5 else []
        elif kind < 0.4:
            found.append((name(draw) + "polis", "B-LOC"))
        elif kind < 0.8:
            found.append((name(draw), "O"))
        found.append((draw.choice(FILLER), "O"))
    return found


def furnished(folder: Path, train: int = 300, others: int = 60) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (split, n) in enumerate((("train", train), ("dev", others), ("test", others))):
        draw = random.Random(seed)
        rows = ["".join(f"{word} {tag}\n" for word, tag in sentence(draw)) for _ in range(n)]
        (folder / f"{split}.conll").write_text("\n".join(rows))
    return folder


def small(**more: Any) -> list[str]:
    """Changes to tagger/tiny that make it quick."""
    own: dict[str, Any] = {"phase.0.epochs": 6, "phase.0.validate_every": 0, "tokenizer.size": 100}
    return [f"{key}={value}" for key, value in (own | more).items()]


def recipe_of(*changes: str) -> Any:
    return load_recipe("tagger/tiny", [*small(), *changes])
