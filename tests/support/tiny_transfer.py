"""Small labeled data sets, and run folders of small untrained networks to fine-tune."""

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
COLORS = ("red", "blue")
SPECS: dict[str, dict[str, Any]] = {
    "bert": {"kind": "wordpiece", "size": 200},
    "roberta": {"kind": "bpe", "size": 400, "marks": True},
    "albert": {"kind": "unigram", "size": 150, "marks": True},
    "gpt1": {"kind": "classic-bpe", "size": 200},
    "lstm": {"kind": "words", "size": 200},
    "xlnet": {"kind": "wordpiece", "size": 200},
    "elmo": {"kind": "lexicon", "size": 200},
}
WRITE: dict[str, dict[str, Any]] = {  # sequence-to-sequence networks
    "t5": {"kind": "unigram", "size": 150, "sentinels": 4},
    "seq2seq": {"kind": "words", "size": 200},
}
SHAPE: dict[str, Any] = {"width": 32, "layers": 2, "heads": 4, "window": 32, "dropout": 0.0}
SHAPES: dict[str, dict[str, Any]] = {
    "albert": {**SHAPE, "embedding": 16},
    "lstm": {"width": 32},
    "xlnet": {"width": 32, "layers": 2, "heads": 4, "ffn_width": 64, "memory": 8, "dropout": 0.0, "init_std": 0.1},
    "t5": {"width": 32, "layers": 2, "heads": 4, "head_width": 8, "ffn_width": 64, "dropout": 0.0},
    "seq2seq": {"cell": "gru", "attention": "bahdanau", "width": 32, "embedding": 32, "encoder_width": 32},
    "elmo": {
        "width": 16,
        "cell_size": 32,
        "characters": {"filters": [[1, 8], [3, 16]], "character_width": 8},
        "dropout": 0.0,
    },
}


def draw_sentence(draw: random.Random, *words: str, length: tuple[int, int] = (3, 10)) -> str:
    """Draw filler words and insert the given words at random positions."""
    chosen = draw.choices(FILLER, k=draw.randint(*length))
    for word in words:
        chosen.insert(draw.randrange(len(chosen) + 1), word)
    return " ".join(chosen)


def draw_color_texts(n: int, seed: int = 0) -> list[tuple[str, str]]:
    """Draw texts, each labeled with the color that it names."""
    draw = random.Random(seed)
    return [(draw_sentence(draw, color), color) for color in draw.choices(COLORS, k=n)]


def draw_color_pairs(n: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Draw pairs of texts that each name a color, labeled with the color of the second text."""
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        a, b = draw.choice(COLORS), draw.choice(COLORS)
        rows.append((draw_sentence(draw, a, length=(1, 4)), draw_sentence(draw, b, length=(1, 4)), b))
    return rows


def draw_color_counts(n: int, seed: int = 0) -> list[tuple[str, float]]:
    """Draw texts labeled with their number of red words, plus noise that makes the labels distinct."""
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        k = draw.randint(0, 4)
        rows.append((draw_sentence(draw, *["red"] * k), k + round(draw.uniform(-0.1, 0.1), 3)))
    return rows


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def make_run(folder: Path, slug: str = "bert", seed: int = 0, more: Sequence[str] = (), **model: Any) -> Path:
    """Create the run folder of an untrained network; its tokenizer knows all words above and those of `more` texts."""
    draw = random.Random(5)
    texts = [*(draw_sentence(draw, *COLORS) for _ in range(200)), *more]
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


def make_transfer_folder(folder: Path) -> Path:
    """Fill the folder with a run of each network in SPECS and the files color.csv, pair.csv and count.csv."""
    for slug in SPECS:
        make_run(folder / slug, slug)
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(300))
    write_table(folder / "pair.csv", ["text", "second", "label"], draw_color_pairs(300))
    write_table(folder / "count.csv", ["text", "label"], draw_color_counts(300))
    return folder
