"""Masks that never come again against masks that do, on a text small enough to be read many times.

    one mask       the same tokens of a row are hidden whenever it is read
    ten masks      ten different ones in turn: BERT's data, duplicated ten times before training
    new masks      drawn anew each time: RoBERTa

And beside them, drawn anew, too: whole words, and runs of up to three words. All are asked for the same hidden tokens
of a held-out text, once with tokens hidden one by one and once with whole words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nextword.studies._experiment import corpus_for, enough, spread
from nextword.studies._small_models import (
    INTERVALS,
    Size,
    Text,
    certain,
    encoder,
    hidden_tokens,
    learn,
    masked_sentences,
    ranged,
    short_sentences,
    some,
    text_of,
)
from nextword.studies._study import Claim, Part, Progress, Settings, Table, Tables, above, judged, over_seeds
from nextword.studies.masked_vs_causal import levels

CLAIM = Claim(
    "Masks drawn anew whenever a text is read are as good as ten masks that come again, or better, and as good as one "
    "mask or better.",
    "Liu et al. 2019, section 4.1; lecture notes on generative language models: RoBERTa, dynamic masks",
)
ONE, TEN, NEW, WORDS, RUNS = "one mask", "ten masks", "new masks", "new, whole words", "new, runs of words"
WAYS: dict[str, dict[str, Any]] = {
    ONE: {"static": 1},
    TEN: {"static": 10},
    NEW: {"static": 0},
    WORDS: {"static": 0, "whole_words": True},
    RUNS: {"static": 0, "grams": 3},
}
TOKENS = "nats of hidden tokens"
WHOLE = "nats of hidden words"
RIGHT = "hidden tokens right, %"
PIECES = 1000
FULL, READ = Size(layers=1, steps=1200, rate=4e-3), 60_000  # tokens of text: read 40 times
QUICK, QUICK_READ = Size(layers=1, width=64, heads=4, rows=32, steps=200, rate=4e-3), 10_000
NEAR = 0.02  # nats: 2 % of perplexity, within which two ways are as good as each other


def learned(seed: int, way: str, size: Size, text: Text) -> dict[str, np.ndarray]:
    words = text.vocabulary
    network = encoder(size, words, seed)
    learn(network, short_sentences(size, words, **WAYS[way]), text.train, seed, size)
    nats, right = hidden_tokens(network, masked_sentences(size, words), text.test)
    whole = masked_sentences(size, words, whole_words=True)
    return {TOKENS: nats, RIGHT: 100.0 * right, WHOLE: hidden_tokens(network, whole, text.test)[0]}


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    size, read = (QUICK, QUICK_READ) if settings.quick else (FULL, READ)
    whole, tokenizer = text_of(corpus, PIECES)
    text = Text(some(whole.train, read), whole.test, whole.vocabulary)
    per_epoch = short_sentences(size, text.vocabulary).per_epoch(text.train)
    enough(len(text.train), read // 4, "tokens to learn from", corpus)
    jobs: dict[Any, Any] = {(w, seed): (learned, (seed, w, size, text)) for seed in settings.seeds for w in WAYS}
    runs = spread(jobs, progress)
    columns = (TOKENS, RIGHT, WHOLE)
    found = {(way, c): np.stack([runs[way, seed][c] for seed in settings.seeds]) for way in WAYS for c in columns}
    return {
        "ways": Table(
            "A held-out text",
            ("masks", *columns),
            tuple((w, *(over_seeds(found[w, c].mean(1).tolist()) for c in columns)) for w in WAYS),
        ),
        "differences": Table(
            "Above new masks, mean and 95 % interval",
            ("masks", *columns),
            tuple((w, *(certain(found[w, c] - found[NEW, c]) for c in columns)) for w in WAYS if w != NEW),
        ),
    }, {
        "data": f"{corpus.name} ({corpus.source}): {len(text.train):,} tokens to learn from, read "
        f"{size.steps / per_epoch:.0f} times; {found[NEW, TOKENS].shape[1]:,} hidden tokens of a held-out text; "
        f"WordPiece of {len(tokenizer):,}",
        "network": f"BERT, {size.built()}",
        "training": size.said(),
        "intervals": INTERVALS,
    }


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    ways, apart = tables["ways"], tables["differences"]
    return [
        _no_worse(ways, apart, TEN),
        _no_worse(ways, apart, ONE),
        _better(ways, apart, TOKENS, ONE, "New masks are better than one mask."),
        _better(ways, apart, TOKENS, TEN, "New masks are better than ten masks."),
        _better(ways, apart, WHOLE, WORDS, "For whole words hidden, tokens hidden one by one teach better than words."),
        _better(ways, apart, WHOLE, RUNS, "For whole words hidden, tokens hidden one by one teach better than runs."),
    ]


def _cells(ways: Table, apart: Table, column: str, way: str) -> tuple[float, float, Sequence[float]]:
    new, other = (ways.cell(column, masks=name)[0] for name in (NEW, way))
    return new, other, apart.cell(column, masks=way)


def _no_worse(ways: Table, apart: Table, way: str) -> Part:
    new, other, cell = _cells(ways, apart, TOKENS, way)
    return Part(
        f"New masks are as good as {way}, or better, to within {NEAR:g} nats.",
        judged(above(cell, -NEAR)),
        f"A hidden token costs {new:.3f} nats with new masks and {other:.3f} with {way}.",
        f"{way} above new masks: {ranged(cell)}",
    )


def _better(ways: Table, apart: Table, column: str, way: str, says: str) -> Part:
    new, other, cell = _cells(ways, apart, column, way)
    return Part(
        says,
        judged(above(cell)),
        f"{column.capitalize()}: {new:.3f} with new masks, {other:.3f} with {way}.",
        f"{way} above: {ranged(cell)}",
        decides=False,
    )


def draw(tables: Tables, figure: Any) -> None:
    figure.set_size_inches(13, 3.8)
    figure.set_layout_engine("constrained", wspace=0.05)
    ways = tables["ways"]
    titles = ("Tokens hidden one by one", "The likeliest is right", "Whole words hidden")
    for i, (axes, column, title) in enumerate(zip(figure.subplots(1, 3), ways.columns[1:], titles, strict=True)):
        label = "%" if "%" in column else "nats  (left: better)"
        levels(ways, axes, "masks", column, title, label, named=i == 0)
