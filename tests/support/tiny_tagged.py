"""An artificial language with names whose type follows from the previous word or from the last letters.

mister Karo lives in Velopolis          O B-PER O O B-LOC       …opolis is a place, whatever precedes it
mister Karo Wim met Ann                 O B-PER I-PER O O       only a name after `mister` is a person
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from nextword.recipe import load_recipe

FILLER = ("the", "king", "went", "to", "see", "a", "house", "in", "old", "and", "far", "away", "met")


def draw_name(draw: random.Random) -> str:
    return "".join(draw.choice("bdklmnrstv") + draw.choice("aeiou") for _ in range(draw.randint(1, 3))).capitalize()


def draw_sentence(draw: random.Random) -> list[tuple[str, str]]:
    words: list[tuple[str, str]] = []
    for _ in range(draw.randint(2, 6)):
        kind = draw.random()
        if kind < 0.2:
            words += [("mister", "O"), (draw_name(draw), "B-PER")]
            words += [(draw_name(draw), "I-PER")] if draw.random() < 0.5 else []
        elif kind < 0.4:
            words.append((draw_name(draw) + "polis", "B-LOC"))
        elif kind < 0.8:
            words.append((draw_name(draw), "O"))
        words.append((draw.choice(FILLER), "O"))
    return words


def write_tagged_data(folder: Path, train: int = 300, others: int = 60) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (split, n) in enumerate((("train", train), ("dev", others), ("test", others))):
        draw = random.Random(seed)
        rows = ["".join(f"{word} {tag}\n" for word, tag in draw_sentence(draw)) for _ in range(n)]
        (folder / f"{split}.conll").write_text("\n".join(rows))
    return folder


def quick_changes(**more: Any) -> list[str]:
    """Overrides that make tagger/tiny quick."""
    own: dict[str, Any] = {"phase.0.epochs": 6, "phase.0.validate_every": 0, "tokenizer.size": 100}
    return [f"{key}={value}" for key, value in (own | more).items()]


def load_tagger_recipe(*changes: str) -> Any:
    return load_recipe("tagger/tiny", [*quick_changes(), *changes])
