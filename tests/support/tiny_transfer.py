"""Small labelled data, and runs of small networks to be transferred, made without training."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nextword.conversion.base import create_run
from nextword.models import model_class
from nextword.recipe import parse_recipe
from nextword.tokenizers import vocabulary
from nextword.tokenizers.training import train_tokenizer

FILLER = ("the", "a", "king", "queen", "house", "river", "went", "saw", "old", "new", "and", "of", "to", "in", "far")
COLOURS = ("red", "blue")
SPECS: dict[str, dict[str, Any]] = {
    "bert": {"kind": "wordpiece", "size": 200},
    "roberta": {"kind": "bpe", "size": 400, "marks": True},
    "albert": {"kind": "unigram", "size": 150, "marks": True},
    "gpt1": {"kind": "classic-bpe", "size": 200},
    "lstm": {"kind": "words", "size": 200},
    "xlnet": {"kind": "wordpiece", "size": 200},
    "elmo": {"kind": "lexicon", "size": 200},
}
WRITE: dict[str, dict[str, Any]] = {  # those that make texts from sources
    "t5": {"kind": "unigram", "size": 150, "sentinels": 4},
    "seq2seq": {"kind": "words", "size": 200},
}
SHAPE: dict[str, Any] = {"width": 32, "layers": 2, "heads": 4, "window": 32, "dropout": 0.0}
SHAPES: dict[str, dict[str, Any]] = {
    "albert": {**SHAPE, "embedding": 16},
    "lstm": {"width": 32},
    "xlnet": {"width": 32, "layers": 2, "heads": 4, "inner": 64, "memory": 8, "dropout": 0.0, "init_std": 0.1},
    "t5": {"width": 32, "layers": 2, "heads": 4, "head_width": 8, "ffn_width": 64, "dropout": 0.0},
    "seq2seq": {"cell": "gru", "attention": "bahdanau", "width": 32, "embedding": 32, "encoder_width": 32},
    "elmo": {
        "width": 16,
        "cell_size": 32,
        "characters": {"filters": [[1, 8], [3, 16]], "characters": 8},
        "dropout": 0.0,
    },
}


def sentence(draw: random.Random, *words: str, length: tuple[int, int] = (3, 10)) -> str:
    """Some words, and these among them."""
    chosen = draw.choices(FILLER, k=draw.randint(*length))
    for word in words:
        chosen.insert(draw.randrange(len(chosen) + 1), word)
    return " ".join(chosen)


def coloured(n: int, seed: int = 0) -> list[tuple[str, str]]:
    """Texts with the colour that occurs in each."""
    draw = random.Random(seed)
    return [(sentence(draw, colour), colour) for colour in draw.choices(COLOURS, k=n)]


def paired(n: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Two texts that name a colour each, and the second one's."""
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        a, b = draw.choice(COLOURS), draw.choice(COLOURS)
        rows.append((sentence(draw, a, length=(1, 4)), sentence(draw, b, length=(1, 4)), b))
    return rows


def counted(n: int, seed: int = 0) -> list[tuple[str, float]]:
    """Texts, and how many of their words are red; with a little noise, so that the numbers are many."""
    draw = random.Random(seed)
    found = []
    for _ in range(n):
        k = draw.randint(0, 4)
        found.append((sentence(draw, *["red"] * k), k + round(draw.uniform(-0.1, 0.1), 3)))
    return found


def written(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def run_of(folder: Path, slug: str = "bert", seed: int = 0, more: Sequence[str] = (), **model: Any) -> Path:
    """A run folder of an untrained network over a tokenizer that knows all words above, and those of `more` texts."""
    draw = random.Random(5)
    texts = [*(sentence(draw, *COLOURS) for _ in range(200)), *more]
    spec = (SPECS | WRITE)[slug]
    tokenizer = train_tokenizer(spec, texts)
    shape = {**SHAPES.get(slug, SHAPE), **model}
    length = {"kind": "pairs", "rows": 4, "length": 32}
    tables = {"paper": {"slug": slug}, "tokenizer": spec, "model": shape, "phase": [{"steps": 1, "batches": length}]}
    recipe = parse_recipe(tables, f"{slug}/made")
    cls = model_class(slug)
    torch.manual_seed(seed)
    network = cls(cls.Config(**shape), vocabulary(tokenizer, spellings=True))
    create_run(folder, recipe, tokenizer, lambda place: network)
    return folder


def furnished(folder: Path) -> Path:
    """The folder, with a run of each network above and labelled files: of a colour, of a pair, of a count."""
    for slug in SPECS:
        run_of(folder / slug, slug)
    written(folder / "colour.csv", ["text", "label"], coloured(300))
    written(folder / "pair.csv", ["text", "second", "label"], paired(300))
    written(folder / "count.csv", ["text", "label"], counted(300))
    return folder
