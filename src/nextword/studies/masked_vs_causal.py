"""Does a network that reads both sides fill in a masked token better than one that reads only the left?

Claim: for filling in a masked token, context from both sides beats context from the left alone (Devlin et al. 2019).

Measured: a small BERT and a small GPT-2 of the same shape read the same rows in the same order, equally often. Then
one token of each held-out row is masked, the same for both:

    BERT       [CLS] in the beginning [MASK] created the heavens [SEP]         p(god | all the others)
    GPT-2      [CLS] in the beginning                                          p(god | left context)
    rescored   [CLS] in the beginning {god, he, …} created the heavens [SEP]   its best candidates, by the whole row

A causal model can use the right side: p(x | rest) ∝ p(x and what follows | left context). For all V tokens this is
exact and V times the work; here it is done for the most likely candidates, which share the probability they had
together. BERT learns from 15 % of the tokens it reads, so GPT-2 is also trained on an equal number of predictions.

Verdict: BERT must beat GPT-2 in accuracy and in nats. The other two comparisons are side results.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nextword.batching.token_stream import Stream
from nextword.core.types import Inputs, Vocabulary
from nextword.models.base import Network
from nextword.models.encoder import PREDICTED
from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import describe_corpus, open_text, require, run_parallel, stack_seeds
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._transformers import (
    Size,
    Text,
    encode_corpus,
    masked_lm,
    original_ids,
    slices,
    train_bert,
    train_gpt2,
)
from nextword.tokenizers.special_tokens import Marks

CLAIM = Claim(
    "For filling in a masked token, context from both sides beats context from the left alone.",
    "Devlin et al. 2019, sections 1 and 5.1; lecture notes on generative language models: GPT is limited by reading in "
    "one direction",
)
PIECES = 1000
FULL = Size(layers=1, steps=2000, rate=4e-3)
QUICK = Size(layers=1, width=64, heads=4, rows=32, steps=300, rate=4e-3)
CANDIDATES = 16  # rescored
PLACES = ((0, 4), (5, 9), (10, 14), (15, 19), (20, 99))  # tokens to the left of the masked one
MIN_ROWS = 200  # held out
BATCH = 64

BERT, GPT, RESCORED, FEWER = "BERT", "GPT-2", "GPT-2, rescored", "GPT-2, equal predictions"
NETWORKS = (BERT, GPT, RESCORED, FEWER)
ACCURACY, NATS = "accuracy, %", "nats"


class Holes(NamedTuple):
    """Held-out rows, and the masked position in each."""

    ids: np.ndarray  # (n, length)
    is_token: np.ndarray  # (n, length) False at padding
    positions: np.ndarray  # (n,)

    @property
    def targets(self) -> np.ndarray:
        """(n,) the masked tokens."""
        return self.ids[np.arange(len(self.positions)), self.positions]


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus, seeds = open_text(settings.data), settings.seeds
    size = QUICK if settings.quick else FULL
    text, tokenizer = encode_corpus(corpus, PIECES)
    holes = make_holes(text.test, size, text.vocabulary)
    require(len(holes.positions), MIN_ROWS, "held-out rows of full sentences", corpus)
    fewer = replace(size, steps=max(1, round(PREDICTED * size.steps)))
    jobs: dict[Any, Any] = {}
    for seed in seeds:
        jobs[BERT, seed] = (run_bert, (seed, size, text, holes))
        jobs[GPT, seed] = (run_gpt2, (seed, size, text, holes, True))
        jobs[FEWER, seed] = (run_gpt2, (seed, fewer, text, holes, False))
    results = run_parallel(jobs, progress)
    runs = {(name, seed): scores for (_, seed), by_name in results.items() for name, scores in by_name.items()}
    nats, hits = ({name: stack_seeds(runs, (name,), i) for name in NETWORKS} for i in (0, 1))
    return {
        "networks": _networks(nats, hits),
        "differences": _differences(nats, hits),
        "places": _by_place(holes, nats),
    }, {
        "data": f"{describe_corpus(corpus)}: {len(text.train):,} training tokens, one masked token in each of "
        f"{len(holes.positions):,} held-out rows; WordPiece of {len(tokenizer):,}",
        "networks": f"BERT and GPT-2, {size.describe_network()}",
        "training": f"{size.describe_training()}; “{FEWER}”: {fewer.steps:,} steps",
        "rescoring": f"the {CANDIDATES} most likely tokens, by the rest of the row",
        "intervals": stats.INTERVALS,
    }


def make_holes(stream: Stream, size: Size, vocabulary: Vocabulary) -> Holes:
    """One fixed random position in each row; special tokens are never masked."""
    ids, masks = [], []
    for batch in masked_lm(size, vocabulary).validation_batches(stream):
        ids.append(original_ids(batch))
        masks.append(batch.inputs.token_mask)
    rows, is_token = torch.cat(ids).numpy(), torch.cat([mask for mask in masks if mask is not None]).numpy()
    is_word = is_token & ~np.isin(rows, list(vocabulary.special.values()))
    keep = is_word.any(1)
    rows, is_token, is_word = rows[keep], is_token[keep], is_word[keep]
    chance = np.random.default_rng(0).random(rows.shape) * is_word
    return Holes(rows, is_token, chance.argmax(1))


Scores = tuple[np.ndarray, np.ndarray]  # nats of the masked token (n,), and whether it was the first choice (n,)


def run_bert(seed: int, size: Size, text: Text, holes: Holes) -> dict[str, Scores]:
    network = train_bert(seed, size, text)
    mask = Marks.of(text.vocabulary).mask
    parts = []
    with torch.no_grad():
        for part in slices(len(holes.positions), BATCH):
            ids, positions = torch.from_numpy(holes.ids[part]).clone(), torch.from_numpy(holes.positions[part])
            rows = torch.arange(len(ids))
            ids[rows, positions] = mask
            parts.append(
                network.fill(Inputs(ids, torch.from_numpy(holes.is_token[part])), rows * size.length + positions)
            )
    return {BERT: _score(torch.cat(parts), holes)}


def run_gpt2(seed: int, size: Size, text: Text, holes: Holes, with_rescoring: bool) -> dict[str, Scores]:
    network = train_gpt2(seed, size, text)
    with torch.no_grad():
        log_p = torch.cat([predict_from_left(network, holes, part) for part in slices(len(holes.positions), BATCH)])
        if not with_rescoring:
            return {FEWER: _score(log_p, holes)}
        return {GPT: _score(log_p, holes), RESCORED: _score(rescore(network, log_p, holes), holes)}


def predict_from_left(network: Network, holes: Holes, part: slice) -> Tensor:
    """log p of every token at the masked position, given the left context: (n, V)."""
    h = network.hidden(Inputs(torch.from_numpy(holes.ids[part])), None)[0][-1]
    return network.readout.log_probs(h[torch.arange(len(h)), torch.from_numpy(holes.positions[part]) - 1])


def rescore(network: Network, log_p: Tensor, holes: Holes) -> Tensor:
    """Redistribute the joint probability of the best candidates by how well the rest of the row follows each."""
    best, which = log_p.topk(min(CANDIDATES, log_p.shape[1]), 1)  # (n, k)
    rest = torch.stack([_score_rest(network, holes, part, which[part]) for part in slices(len(log_p), 1)])
    return log_p.scatter(1, which, (best + rest).log_softmax(1) + best.logsumexp(1, keepdim=True))


def _score_rest(network: Network, holes: Holes, part: slice, candidates: Tensor) -> Tensor:
    """log p of what follows the masked position of one row, for each candidate: (k,)."""
    row, position = torch.from_numpy(holes.ids[part])[0], int(holes.positions[part][0])
    end = int(holes.is_token[part].sum())
    ids = row[:end].repeat(candidates.shape[1], 1)
    ids[:, position] = candidates[0]
    h = network.hidden(Inputs(ids), None)[0][-1][:, position : end - 1]
    targets = ids[:, position + 1 :]
    return -network.readout.nll(h.reshape(-1, h.shape[-1]), targets.reshape(-1)).view(targets.shape).sum(1)


def _score(log_p: Tensor, holes: Holes) -> Scores:
    targets = torch.from_numpy(holes.targets)
    return -log_p.gather(1, targets[:, None]).squeeze(1).numpy(), (log_p.argmax(1) == targets).numpy()


def _networks(nats: dict[str, np.ndarray], hits: dict[str, np.ndarray]) -> Table:
    rows = [
        (
            name,
            stats.median_and_range((100 * hits[name].mean(1)).tolist()),
            stats.median_and_range(nats[name].mean(1).tolist()),
        )
        for name in NETWORKS
    ]
    return Table("Masked tokens, median and range over seeds", ("network", ACCURACY, NATS), rows)


def _differences(nats: dict[str, np.ndarray], hits: dict[str, np.ndarray]) -> Table:
    rows = [
        (
            name,
            stats.mean_interval(100.0 * hits[BERT] - 100.0 * hits[name]),
            stats.mean_interval(nats[name] - nats[BERT]),
        )
        for name in NETWORKS[1:]
    ]
    title = f"Advantage of {BERT} (negative: worse), mean and 95 % interval"
    return Table(title, ("compared with", ACCURACY, NATS), rows)


def _by_place(holes: Holes, nats: dict[str, np.ndarray]) -> Table:
    left = holes.positions - 1  # [CLS] is not a word
    rows = []
    for low, high in PLACES:
        inside = (low <= left) & (left <= high)
        if inside.sum() > 1:
            gains = [stats.mean_interval(nats[name][:, inside] - nats[BERT][:, inside]) for name in (GPT, RESCORED)]
            rows.append((low, int(min(high, left.max())), int(inside.sum()), *gains))
    title = f"Nats that {BERT} saves, by the number of tokens on the left"
    return Table(title, ("from", "to", "rows", GPT, RESCORED), rows, detailed=True)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    return [
        _is_better(tables, GPT, ACCURACY, "BERT is right more often than GPT-2."),
        _is_better(tables, GPT, NATS, "BERT gives the masked token more probability than GPT-2."),
        _is_better(
            tables, RESCORED, NATS, "BERT does so even if GPT-2 rescores candidates by the whole row.", decides=False
        ),
        _is_better(tables, FEWER, NATS, "BERT learns more from each prediction it is trained on.", decides=False),
    ]


def _is_better(tables: Tables, other: str, measure: str, statement: str, decides: bool = True) -> Part:
    cell = tables["differences"].cell(measure, compared_with=other)
    mine, its = (tables["networks"].cell(measure, network=name)[0] for name in (BERT, other))
    if measure == NATS:
        gain = stats.format_gain(cell[0], "nats", 2)
        evidence = f"A masked token costs {BERT} {mine:.2f} nats and {other} {its:.2f}: {gain}."
    else:
        gain = stats.format_gain(cell[0], "points", 1)
        evidence = f"{BERT} is right for {mine:.1f} % of the masked tokens, {other} for {its:.1f} %: {gain}."
    return stats.judge_interval(statement, cell, evidence, "advantage", 2 if measure == NATS else 1, decides=decides)


# ------------------------------------------------------------------------------------------------ draw


def draw(tables: Tables, figure: plot.Figure) -> None:
    accuracy, nats, places = plot.panels(figure, 13.5, 4.6, 3, (1, 0.8, 1.1))
    networks = tables["networks"]
    plot.dot_rows(networks, accuracy, "network", ACCURACY, "Accuracy", "% of the masked tokens", digits=1)
    plot.dot_rows(networks, nats, "network", NATS, "Cost", "nats (lower is better)", named=False)
    _draw_places(tables["places"], places)


def _draw_places(table: Table, axes: plot.Axes) -> None:
    ticks = [f"{low}–{high}" for low, high in zip(table.column("from"), table.column("to"), strict=True)]
    curves = [
        (f"vs. {name}", table.column(name), color)
        for name, color in zip(table.columns[3:], (plot.VERMILION, plot.ORANGE), strict=True)
    ]
    axes.axhline(0, color=plot.GREY, linewidth=1)
    plot.lines(
        axes, curves, ticks=ticks, bars=True, width=1.2,
        xlabel="tokens to the left of the masked one", ylabel="nats saved", title="Advantage of BERT by position",
    )  # fmt: skip
