"""Small n-gram runs of every layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nextword.recipe import parse_recipe
from nextword.run_folder import RunFolder
from nextword.training.train import train_events
from tests.support.ngram_files import LAYOUTS


def make_ngram_run(folder: Path, layout: str = "fast", order: int = 3) -> Path:
    """Train an n-gram run of one of LAYOUTS on a few sentences."""
    draw = np.random.default_rng(0)
    words = [f"w{i}" for i in range(40)]
    lines = [" ".join(words[i] for i in np.minimum(draw.geometric(0.1, 12) - 1, 39)) for _ in range(200)]
    text = folder.parent / f"{folder.name}.txt"
    text.write_text("\n".join(lines) + "\n")
    tables = {
        "paper": {"slug": "ngram"},
        "tokenizer": {"kind": "words"},
        "model": {"order": order, **LAYOUTS[layout]},
        "phase": [{"kind": "count", "data": str(text)}],
    }
    list(train_events(parse_recipe(tables, "here"), folder, device="cpu"))
    return folder


def reseal(folder: Path) -> None:
    """Give a run the checksums of its changed files, as somebody who changed them on purpose would."""
    run = RunFolder(folder)
    run.seal(*run.manifest["files"])
