"""How wide should a beam be?

Claim: beam search translates better than greedy search; a width of ten is enough, and wider beams find texts that
the model prefers but that are not better (Sutskever, Vinyals & Le 2014; Koehn & Knowles 2017).

Measured: held-out sources translated with each beam width, ranked in two ways:

    width              1    2    3    5    10    20    50
    log p              the most probable hypothesis
    log p per token    divided by the number of tokens, because probability alone prefers short texts

BLEU, the model's own score, and the length of the texts. With `--run`, a trained run translates its own held-out
pairs.

Verdict: width 5 must beat greedy search in BLEU; width 50 must not beat width 10 by 0.3 BLEU or more, while the
model gives its texts more probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nextword.core.errors import Unsupported
from nextword.core.types import Beam, Stop
from nextword.data.parallel import open_parallel
from nextword.evaluation.seq2seq import BATCH_SIZE, EXTRA_TOKENS, MAX_LENGTH_RATIO
from nextword.lm.base import TextModel
from nextword.lm.loading import load, wrap_network
from nextword.run_folder import RunFolder
from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import choose_size, describe_corpus, held_out_split, isolated, require, run_parallel
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._translators import (
    ATTENTION,
    LARGE,
    MIN_PAIRS,
    PairData,
    TranslatorSize,
    load_pairs,
    spaced_indices,
    train_translator,
)

CLAIM = Claim(
    "Beam search translates better than greedy search; a width of ten is enough, and wider beams find texts that the "
    "model prefers but that are not better.",
    "Sutskever, Vinyals & Le 2014, section 3.2 and table 1; Koehn & Knowles 2017, section 3.6; lecture notes on "
    "pretrained models: widths of 8 to 12",
)
FULL = TranslatorSize(steps=450, held=120)
QUICK = TranslatorSize(pieces=800, width=48, steps=60, length=20, longest=20, held=40)
LONGER = replace(LARGE, longest=80)
RUN_PAIRS, QUICK_RUN_PAIRS = 300, 60  # held-out pairs of a run

WIDTHS = (1, 2, 3, 5, 10, 20, 50)
GREEDY, MIDDLE, ENOUGH, WIDEST = 1, 5, 10, 50
BY_PROBABILITY, BY_TOKEN = "log p", "log p per token"
LENGTH_PENALTY = {BY_PROBABILITY: 0.0, BY_TOKEN: 1.0}
SAME = 0.3  # BLEU: a smaller gain does not count
BLEU, LOG_P, LENGTH = "BLEU", "log p of a text", "length, % of the references"


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    runs, conditions = (_translate_with_run if settings.run else _train_and_translate)(settings, progress)
    statistics = {key: np.stack([run[key] for run in runs]) for key in runs[0]}
    single = bool(settings.run)
    tables = {"widths": _widths(statistics, single), "differences": _differences(statistics, single)}
    over_text = "95 %, a paired bootstrap over the held-out texts: there is only one run"
    return tables, {**conditions, "intervals": over_text if single else stats.INTERVALS}


def _train_and_translate(settings: Settings, progress: Progress) -> tuple[list[dict[Any, Any]], dict[str, Any]]:
    size = choose_size(settings.quick, QUICK, FULL, LONGER)
    corpus, pairs = load_pairs(settings.data, size)
    jobs: dict[Any, Any] = {seed: (run_seed, (seed, size, pairs)) for seed in settings.seeds}
    runs = run_parallel(jobs, progress, uses_gpu=True)
    return list(runs.values()), {
        "data": pairs.describe(corpus),
        "network": f"GRU with attention, one layer of width {size.width} on each side",
        "training": size.describe_training(),
    }


def _translate_with_run(settings: Settings, progress: Progress) -> tuple[list[dict[Any, Any]], dict[str, Any]]:
    """On the held-out pairs of the run, or of --data."""
    with isolated():
        lm: TextModel = load(settings.run)
        if not lm.network.is_conditional:
            raise Unsupported(
                f"{settings.run} continues a prompt but does not translate a source. Choose the run of a model that "
                "was trained on pairs (docs/sequence.md).",
                ability="translate",
            )
        corpus = open_parallel(settings.data or RunFolder.open(settings.run).recipe.phases[-1].data)
        documents = list(corpus.documents(held_out_split(corpus)))
        require(len(documents), MIN_PAIRS, "held-out pairs", corpus)
        pairs = [documents[i] for i in spaced_indices(len(documents), QUICK_RUN_PAIRS if settings.quick else RUN_PAIRS)]
        total = len(LENGTH_PENALTY) * len(WIDTHS)
        done = iter(range(1, total + 1))
        sources, targets = [pair.source or "" for pair in pairs], [pair.text for pair in pairs]
        result = search_all(lm, sources, targets, lambda: progress(next(done), total))
    return [result], {
        "data": f"{describe_corpus(corpus)}: {len(pairs):,} of {len(documents):,} held-out pairs, translated by the "
        f"run {Path(settings.run).resolve().name}: {type(lm.network).__name__}, {lm.parameters:,} parameters"
    }


def run_seed(seed: int, size: TranslatorSize, pairs: PairData) -> dict[Any, Any]:
    network = train_translator(seed, size, pairs, attention=ATTENTION)
    return search_all(wrap_network(network, pairs.tokenizer), pairs.sources, pairs.targets)


def search_all(
    lm: TextModel, sources: Sequence[str], targets: Sequence[str], on_done: Callable[[], None] = lambda: None
) -> dict[Any, Any]:
    """By ranking and width (n, 12): BLEU statistics, log p of the text, and 1."""
    lengths = [len(encoding) for encoding in lm.tokenizer.encode_batch(list(sources))]
    order = sorted(range(len(sources)), key=lambda i: -lengths[i])
    results = {}
    for ranking, penalty in LENGTH_PENALTY.items():
        for width in WIDTHS:
            texts, scores = [""] * len(sources), np.ones((len(sources), 2))
            for start in range(0, len(order), BATCH_SIZE):
                group = order[start : start + BATCH_SIZE]
                stop = Stop(MAX_LENGTH_RATIO * lengths[group[0]] + EXTRA_TOKENS)
                best = lm.n_best_many([sources[i] for i in group], Beam(width, length_penalty=penalty), stop, 1)
                for i, (hypothesis,) in zip(group, best, strict=True):
                    texts[i], scores[i, 0] = hypothesis.text.strip(), hypothesis.log_prob
            results[ranking, width] = np.concatenate([stats.bleu_statistics(texts, targets), scores], 1)
            on_done()
    return results


SCORES: dict[str, stats.Score] = {
    BLEU: lambda sums: stats.bleu(sums[..., :-2]),
    LOG_P: lambda sums: stats.ratio(sums[..., -2:]),
    LENGTH: lambda sums: 100 * stats.length_ratio(sums[..., :-2]),
}
COMPARED = (  # (ranking, width) minus (ranking, width)
    ((BY_PROBABILITY, MIDDLE), (BY_PROBABILITY, GREEDY)),
    ((BY_PROBABILITY, ENOUGH), (BY_PROBABILITY, MIDDLE)),
    ((BY_PROBABILITY, WIDEST), (BY_PROBABILITY, ENOUGH)),
    ((BY_PROBABILITY, WIDEST), (BY_PROBABILITY, GREEDY)),
    ((BY_TOKEN, WIDEST), (BY_TOKEN, ENOUGH)),
    ((BY_TOKEN, MIDDLE), (BY_PROBABILITY, MIDDLE)),
    ((BY_TOKEN, WIDEST), (BY_PROBABILITY, WIDEST)),
)


def _widths(statistics: dict[Any, np.ndarray], single: bool) -> Table:
    rows = [
        (ranking, width, *(stats.score_interval(score, part, single_network=single) for score in SCORES.values()))
        for (ranking, width), part in statistics.items()
    ]
    return Table("Held-out sources, mean and 95 % interval", ("ranked by", "width", *SCORES), rows)


def _differences(statistics: dict[Any, np.ndarray], single: bool) -> Table:
    rows = []
    for this, other in COMPARED:
        cells = (
            stats.score_difference(s, statistics[this], statistics[other], single_network=single)
            for s in SCORES.values()
        )
        rows.append((beam_name(this), beam_name(other), *cells))
    return Table("Differences, mean and 95 % interval", ("beam", "minus", *SCORES), rows)


def beam_name(key: tuple[str, int]) -> str:
    return f"{key[1]}, by {key[0]}"


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    def cell(what: str, this: tuple[str, int], other: tuple[str, int]) -> Any:
        return tables["differences"].cell(what, beam=beam_name(this), minus=beam_name(other))

    greedy, middle, enough, widest = ((BY_PROBABILITY, width) for width in (GREEDY, MIDDLE, ENOUGH, WIDEST))
    gain, wide = cell(BLEU, middle, greedy), cell(BLEU, widest, enough)
    log_p, length = cell(LOG_P, widest, enough), cell(LENGTH, widest, greedy)
    normalized = cell(BLEU, (BY_TOKEN, WIDEST), widest)
    normalized_wide = cell(BLEU, (BY_TOKEN, WIDEST), (BY_TOKEN, ENOUGH))
    return [
        stats.judge_interval(
            f"Width {MIDDLE} translates better than greedy search.",
            gain,
            f"Width {MIDDLE} is {_ahead(gain)} greedy search in BLEU.",
            digits=2,
        ),
        stats.judge_interval(
            f"Width {WIDEST} translates no better than width {ENOUGH}, within {SAME:g} BLEU.",
            wide,
            f"Width {WIDEST} is {_ahead(wide)} width {ENOUGH} in BLEU.",
            digits=2,
            test=lambda cell: stats.is_below(cell, SAME),
        ),
        stats.judge_interval(
            "The model gives the texts of the wider beam more probability.",
            log_p,
            f"The texts of width {WIDEST} have {stats.signed(log_p[0], 3)} nats more log-probability than those of "
            f"width {ENOUGH}.",
        ),
        stats.judge_interval(
            "The widest beam writes shorter texts than greedy search.",
            length,
            f"At width {WIDEST} texts are {abs(length[0]):.1f} % of the reference length "
            f"{'shorter' if length[0] < 0 else 'longer'}.",
            digits=1,
            test=stats.is_below,
            decides=False,
        ),
        stats.judge_interval(
            f"Dividing scores by length improves width {WIDEST}.",
            normalized,
            f"Ranked by log p per token, width {WIDEST} is {_ahead(normalized)} the same width ranked by log p.",
            digits=2,
            decides=False,
        ),
        stats.judge_interval(
            f"With scores divided by length, width {WIDEST} is better than width {ENOUGH}.",
            normalized_wide,
            f"Both ranked by log p per token, width {WIDEST} is {_ahead(normalized_wide)} width {ENOUGH}.",
            digits=2,
            decides=False,
        ),
    ]


def _ahead(cell: Sequence[Any]) -> str:
    return f"{abs(cell[0]):.2f} {'ahead of' if cell[0] > 0 else 'behind'}"


# ------------------------------------------------------------------------------------------------ draw

COLORS = {BY_PROBABILITY: plot.VERMILION, BY_TOKEN: plot.BLUE}
TITLES = {BLEU: "Quality", LOG_P: "The model's own score", LENGTH: "Length"}


def draw(tables: Tables, figure: plot.Figure) -> None:
    table = tables["widths"]
    widths = list(dict.fromkeys(table.column("width")))
    for axes, (score, title) in zip(plot.panels(figure, 13.5, 4.2, 3), TITLES.items(), strict=True):
        if score == LENGTH:
            axes.axhline(100, color=plot.GREY, linewidth=1, linestyle=":")
        curves = [(f"by {name}", table.column(score, ranked_by=name), color) for name, color in COLORS.items()]
        plot.lines(axes, curves, ticks=widths, gap=0.07, xlabel="beam width", ylabel=score, title=title)
