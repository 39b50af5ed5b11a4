"""An artificial language for CoVe: translations depend on the context, and word vectors are random.

    the bank with river3   →  theo banko witho c        every word takes the ending of the group of
    an old coin7           →  ana olda c                the group member, which itself becomes "c"

The vector of river3 is no closer to river4 than to coin7, so a translator has to learn the groups.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nextword.recipe import load_recipe
from nextword.training.train import train_events

GROUPS = ("river", "coin")
MEMBERS = 12
FILLERS = ("the", "a", "with", "old")
ENDINGS = {"river": "o", "coin": "a"}
WRITTEN = 2 * (len(FILLERS) + 1) + 1 + len(FILLERS) + 1 + 2  # all words of both sides but those of the groups
WIDTH = 16


def draw_sentence(draw: np.random.Generator, group: str, member: int) -> tuple[str, str]:
    """Draw a source and its target."""
    words = draw.choice(FILLERS, draw.integers(1, 3)).tolist()
    words.insert(draw.integers(len(words) + 1), "bank")
    at = draw.integers(len(words) + 1)
    target = [word + ENDINGS[group] for word in words]
    words.insert(at, f"{group}{member}")
    target.insert(at, "c")
    return " ".join(words), " ".join(target)


def draw_sentences(n: int, seed: int, members: range = range(MEMBERS)) -> list[tuple[str, str, str]]:
    """Draw sources with their targets and groups."""
    draw = np.random.default_rng(seed)
    groups = draw.choice(GROUPS, n).tolist()
    return [(*draw_sentence(draw, group, int(draw.choice(members))), group) for group in groups]


def write_cove_data(folder: Path) -> Path:
    """Write translation pairs to `pairs`, and to vectors.txt the vectors of all source words and two more."""
    (folder / "pairs").mkdir(parents=True)
    for seed, (split, n) in enumerate((("train", 2000), ("valid", 50), ("test", 50))):
        rows = draw_sentences(n, seed)
        for at, side in enumerate(("xx", "yy")):
            (folder / "pairs" / f"{split}.{side}").write_text("".join(row[at] + "\n" for row in rows))
    draw = np.random.default_rng(5)
    words = [*FILLERS, "bank", *(f"{group}{i}" for group in GROUPS for i in range(MEMBERS)), "never", "seen"]
    lines = [f"{word} " + " ".join(f"{x:.4f}" for x in draw.normal(0, 1, WIDTH)) for word in words]
    (folder / "vectors.txt").write_text("\n".join(lines) + "\n")
    return folder


def load_cove_recipe(place: Path, *changes: str) -> Any:
    vectors = place / "vectors.txt"
    model = (
        f"{{ vectors = '{vectors}', vector_width = {WIDTH}, encoder_width = 32, width = 32, output_words = {WRITTEN} }}"
    )
    own = [f"phase.0.data={place / 'pairs'}:xx-yy", f"tokenizer.size={WRITTEN}", f"model={model}", "phase.0.steps=20"]
    return load_recipe("cove/tiny", [*own, "phase.0.validate_every=10000", *changes])


def train_cove(place: Path, name: str, *changes: str) -> Path:
    list(train_events(load_cove_recipe(place, *changes), place / name, device="cpu"))
    return place / name
