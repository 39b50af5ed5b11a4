"""Dynamic against static masking, on a text small enough to be read many times.

Claim: new masks in every epoch are at least as good as ten fixed masks per text, and at least as good as one (Liu et
al. 2019, RoBERTa).

    one mask     the same tokens of a row are masked in every epoch
    ten masks    ten fixed masks in turn: BERT's data, duplicated ten times
    new masks    drawn anew in every epoch: RoBERTa

Also measured, with new masks: whole-word masking, and masking of up to three words in a row. All networks are scored
on the same masked tokens of a held-out text, once masked token by token and once word by word.

Verdict: ten masks and one mask must not be better than new masks by 0.02 nats or more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import describe_corpus, open_text, require, run_parallel, stack_seeds
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._transformers import (
    Size,
    Text,
    always_masked,
    encode_corpus,
    masked_lm,
    sample_documents,
    score_masked,
    train_bert,
)

CLAIM = Claim(
    "New masks in every epoch are at least as good as ten fixed masks, and at least as good as one.",
    "Liu et al. 2019, section 4.1; lecture notes on generative language models: RoBERTa, dynamic masks",
)
PIECES = 1000
FULL, TRAINED = Size(layers=1, steps=1200, rate=4e-3), 60_000  # training tokens, read about 40 times
QUICK, QUICK_TRAINED = Size(layers=1, width=64, heads=4, rows=32, steps=200, rate=4e-3), 10_000
SAME = 0.02  # nats: a smaller difference (2 % of perplexity) does not count

ONE, TEN, NEW, WORDS, RUNS = "one mask", "ten masks", "new masks", "new, whole words", "new, up to three words"
MASKING: dict[str, dict[str, Any]] = {
    ONE: {"static_masks": 1},
    TEN: {"static_masks": 10},
    NEW: {"static_masks": 0},
    WORDS: {"static_masks": 0, "whole_words": True},
    RUNS: {"static_masks": 0, "max_ngram": 3},
}
TOKENS, ACCURACY, WHOLE = "nats, masked tokens", "accuracy, masked tokens, %", "nats, masked words"
COLUMNS = (TOKENS, ACCURACY, WHOLE)


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus, seeds = open_text(settings.data), settings.seeds
    size, tokens = (QUICK, QUICK_TRAINED) if settings.quick else (FULL, TRAINED)
    full, tokenizer = encode_corpus(corpus, PIECES)
    text = Text(sample_documents(full.train, tokens), full.test, full.vocabulary)
    per_epoch = masked_lm(size, text.vocabulary).batches_per_epoch(text.train)
    require(len(text.train), tokens // 4, "training tokens", corpus)
    jobs: dict[Any, Any] = {(name, seed): (run_seed, (seed, name, size, text)) for seed in seeds for name in MASKING}
    runs = run_parallel(jobs, progress)
    values = {(name, c): stack_seeds(runs, (name,), c) for name in MASKING for c in COLUMNS}
    levels = [(n, *(stats.median_of_means(values[n, c]) for c in COLUMNS)) for n in MASKING]
    others = [n for n in MASKING if n != NEW]
    differences = [(n, *(stats.mean_interval(values[n, c] - values[NEW, c]) for c in COLUMNS)) for n in others]
    return {
        "masks": Table("Held-out text, median and range over seeds", ("masks", *COLUMNS), levels),
        "differences": Table("Difference from new masks, mean and 95 % interval", ("masks", *COLUMNS), differences),
    }, {
        "data": f"{describe_corpus(corpus)}: {len(text.train):,} training tokens, read {size.steps / per_epoch:.0f} "
        f"times; {values[NEW, TOKENS].shape[1]:,} masked tokens of a held-out text; WordPiece of {len(tokenizer):,}",
        "network": f"BERT, {size.describe_network()}",
        "training": size.describe_training(),
        "intervals": stats.INTERVALS,
    }


def run_seed(seed: int, name: str, size: Size, text: Text) -> dict[str, np.ndarray]:
    network = train_bert(seed, size, text, **MASKING[name])
    nats, hits = score_masked(network, always_masked(size, text.vocabulary), text.test)
    by_word = always_masked(size, text.vocabulary, whole_words=True)
    return {TOKENS: nats, ACCURACY: 100.0 * hits, WHOLE: score_masked(network, by_word, text.test)[0]}


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    by_words = "For masked words, masking single tokens trains better than masking"
    return [
        _compare(tables, TOKENS, TEN, f"New masks are at least as good as ten masks, within {SAME:g} nats.", -SAME),
        _compare(tables, TOKENS, ONE, f"New masks are at least as good as one mask, within {SAME:g} nats.", -SAME),
        _compare(tables, TOKENS, ONE, "New masks are better than one mask.", decides=False),
        _compare(tables, TOKENS, TEN, "New masks are better than ten masks.", decides=False),
        _compare(tables, WHOLE, WORDS, f"{by_words} whole words.", decides=False),
        _compare(tables, WHOLE, RUNS, f"{by_words} up to three words.", decides=False),
    ]


def _compare(tables: Tables, column: str, name: str, statement: str, bound: float = 0.0, decides: bool = True) -> Part:
    cell = tables["differences"].cell(column, masks=name)
    new, other = (tables["masks"].cell(column, masks=masks)[0] for masks in (NEW, name))
    return stats.judge_interval(
        statement,
        cell,
        f"A masked {'word' if column == WHOLE else 'token'} costs {new:.3f} nats with {NEW} and {other:.3f} with "
        f"“{name}”.",
        f"“{name}” minus {NEW}",
        test=lambda cell: stats.is_above(cell, bound),
        decides=decides,
    )


# ------------------------------------------------------------------------------------------------ draw


def draw(tables: Tables, figure: plot.Figure) -> None:
    titles = ("Masked tokens: cost", "Masked tokens: accuracy", "Masked words: cost")
    for i, axes in enumerate(plot.panels(figure, 13, 3.8, 3)):
        label, digits = ("%", 1) if COLUMNS[i] == ACCURACY else ("nats (lower is better)", 2)
        plot.dot_rows(tables["masks"], axes, "masks", COLUMNS[i], titles[i], label, named=i == 0, digits=digits)
