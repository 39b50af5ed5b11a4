"""Which pretraining objective is better: filling in corrupted spans, or continuing the text?

Claim: for the same number of tokens read, span corruption is a better pretraining objective than language modeling
(Raffel et al. 2020).

    spans     Thank you <x> me to your party <y> week    →   <x> for inviting <y> last
    prefix    Thank you for inviting me to your          →   party last week
    none      no pretraining: random weights

Measured: a small T5 is pretrained on the same text with the same number of source and target tokens, then fine-tuned
on a few examples of two text-to-text tasks. `prefix` is a language model with an encoder that reads the first half
of a text (section 3.2.3 of the paper). It predicts more of the tokens it reads; what is equal is the tokens read.

Verdict: after `spans` the held-out targets of every task must cost fewer nats per token than after `prefix`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from nextword.batching.causal import Blocks
from nextword.batching.seq2seq import Pairs
from nextword.batching.token_stream import Stream
from nextword.core.types import Batch, Inputs
from nextword.data.parallel_files import ParallelCorpus
from nextword.models.t5 import T5, T5Config
from nextword.objectives.seq2seq import Seq2SeqObjective
from nextword.objectives.span_corruption import SpanCorruptionObjective
from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import (
    choose_size,
    describe_corpus,
    held_out_split,
    isolated,
    require,
    run_parallel,
    stack_seeds,
)
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._translators import (
    TranslatorSize,
    encode_pairs,
    generate_and_score,
    load_pairs,
    spaced_indices,
    train_seq2seq,
)
from nextword.tokenizers import vocabulary
from nextword.tokenizers.base import Tokenizer
from nextword.training.device import choose_device

CLAIM = Claim(
    "For the same number of tokens read, filling in corrupted spans is a better pretraining objective than continuing "
    "the text.",
    "Raffel et al. 2020, tables 2 and 4; lecture notes on pretrained models",
)
FULL = TranslatorSize(pieces=800, width=64, rows=24, length=48, longest=60, steps=500, rate=0.05, held=200)
QUICK = TranslatorSize(pieces=500, width=32, rows=8, length=32, longest=40, steps=40, rate=0.05, held=60)
LARGE = TranslatorSize(pieces=8000, width=384, rows=64, length=128, longest=128, steps=6000, rate=0.01, held=1000)
FINE_TUNING, QUICK_FINE_TUNING, LARGE_FINE_TUNING = (600, 120), (60, 20), (4000, 1000)  # examples of a task, steps
SENTINELS = 30
OPTIMIZER = {"kind": "adafactor"}  # the paper's; its rate is relative to the weights, which are too large for Adam
BOOK_PROMPT = ", book:"

SPANS, PREFIX, NONE = "spans", "prefix", "none"
TRANSLATION, BOOKS = "translation", "book of a verse"
NATS, QUALITY = "nats", "quality"


class Task(NamedTuple):
    """Text in, text out."""

    train: Pairs
    sources: tuple[str, ...]
    targets: tuple[str, ...]


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    size, seeds = choose_size(settings.quick, QUICK, FULL, LARGE), settings.seeds
    tuning = QUICK_FINE_TUNING if settings.quick else LARGE_FINE_TUNING if size is LARGE else FINE_TUNING
    corpus, pairs = load_pairs(settings.data, size, "unigram", sentinels=SENTINELS)
    text = pairs.train.target
    require(len(text), 20 * size.length, "target tokens to train on", corpus)
    tasks = make_tasks(corpus, size, tuning[0], pairs.tokenizer, pairs.test.chosen)
    jobs: dict[Any, Any] = {
        (name, seed): (run_seed, (seed, name, size, tuning, pairs.tokenizer, text, tasks))
        for seed in seeds
        for name in (PREFIX, SPANS, NONE)
    }
    runs = run_parallel(jobs, progress, uses_gpu=True)
    with isolated():
        parameters = make_network(size, pairs.tokenizer, 0).num_parameters()
    examples = "; ".join(
        f"{name}: {len(task.train):,} examples, {len(task.sources):,} held out" for name, task in tasks.items()
    )
    return {
        "pretraining": _levels(runs, list(tasks)),
        "differences": _differences(runs, list(tasks)),
    }, {
        "data": f"{describe_corpus(corpus)}: {len(text):,} target tokens for pretraining; {examples}; unigram "
        f"tokenizer of {len(pairs.tokenizer):,}",
        "network": f"T5, two layers of width {size.width} on each side, {parameters:,} parameters",
        "training": f"{size.steps:,} steps of {size.rows} rows of {size.length} tokens plus the tokens taken out; "
        f"Adafactor, learning rate {size.rate:g}; then {tuning[1]:,} steps on a task",
        "intervals": stats.INTERVALS,
    }


def make_network(size: TranslatorSize, tokenizer: Tokenizer, seed: int) -> T5:
    torch.manual_seed(seed)
    width = size.width
    config = T5Config(width=width, layers=2, heads=4, head_width=width // 4, ffn_width=4 * width, dropout=0.0)
    return T5(config, vocabulary(tokenizer)).to(choose_device())


def pretrain(seed: int, name: str, size: TranslatorSize, tokenizer: Tokenizer, text: Stream) -> tuple[T5, float]:
    """The pretrained network, and the seconds it took."""
    network, start = make_network(size, tokenizer, seed), time.process_time()
    objective = SpanCorruptionObjective({"rows": size.rows, "length": size.length}, vocabulary(tokenizer))
    batches = objective.batches(text, seed, 0)
    if name == NONE:
        return network, 0.0
    if name == PREFIX:
        assert tokenizer.end is not None
        per_row = count_tokens(next(objective.batches(text, seed, 0))) // size.rows - 2  # without both end tokens
        batches = split_in_halves(text, size, per_row, tokenizer.begin, tokenizer.end, seed)
    train_seq2seq(network, objective, text, seed, size, batches, OPTIMIZER)
    return network, time.process_time() - start


def split_in_halves(
    stream: Stream, size: TranslatorSize, tokens: int, begin: int, end: int, seed: int
) -> Iterator[Batch]:
    """Blocks of text: the first half is the source, the rest the target, each with an end token."""
    for block in Blocks(size.rows, tokens).batches(stream.ids, seed, 0):
        ids = block.inputs.ids
        ends = torch.full((len(ids), 1), end)
        source, target = (torch.cat([half, ends], 1) for half in (ids[:, : tokens // 2], ids[:, tokens // 2 :]))
        read = torch.cat([torch.full_like(ends, begin), target[:, :-1]], 1)
        yield Batch(Inputs(read, source=Inputs(source)), target, reset_state=True, num_targets=target.numel())


def count_tokens(batch: Batch) -> int:
    """Source and target tokens."""
    assert batch.inputs.source is not None
    return batch.inputs.source.ids.numel() + batch.targets.numel()


def run_seed(
    seed: int,
    name: str,
    size: TranslatorSize,
    tuning: tuple[int, int],
    tokenizer: Tokenizer,
    text: Stream,
    tasks: dict[str, Task],
) -> dict[str, Any]:
    """By task: nats and tokens of the true targets (n, 2), and statistics of the quality."""
    pretrained, seconds = pretrain(seed, name, size, tokenizer, text)
    results: dict[str, Any] = {"seconds": seconds}
    for task_name, task in tasks.items():
        network = deepcopy(pretrained)
        objective = Seq2SeqObjective({"rows": size.rows, "length": size.longest})
        train_seq2seq(network, objective, task.train, seed, replace(size, steps=tuning[1]), optimizer=OPTIMIZER)
        output = generate_and_score(network, tokenizer, task.sources, task.targets)
        if task_name == TRANSLATION:
            quality = stats.bleu_statistics(output.texts, task.targets)
        else:
            hits = [text.strip() == target for text, target in zip(output.texts, task.targets, strict=True)]
            quality = np.stack([100.0 * np.array(hits), np.ones(len(hits))], 1)
        results[task_name] = {NATS: output.costs, QUALITY: quality}
    return results


def make_tasks(
    corpus: ParallelCorpus, size: TranslatorSize, count: int, tokenizer: Tokenizer, chosen: np.ndarray
) -> dict[str, Task]:
    """Translation of the pairs; and, if they have titles (chapters of the Bible), the book that a target is from."""
    train, test = list(corpus.documents("train")), list(corpus.documents(held_out_split(corpus)))
    splits = [[train[i] for i in spaced_indices(len(train), 2 * count)], [test[i] for i in chosen]]
    texts = {TRANSLATION: [[(pair.source or "", pair.text) for pair in split] for split in splits]}
    if all(pair.title for split in splits for pair in split):
        texts[BOOKS] = [[(pair.text + BOOK_PROMPT, pair.title.rsplit(" ", 1)[0]) for pair in s] for s in splits]
    tasks = {}
    for name, (examples, held) in texts.items():
        pairs = encode_pairs(tokenizer, examples).within(size.longest)
        pairs = replace(pairs, chosen=pairs.chosen[spaced_indices(len(pairs), count)])
        sources, targets = zip(*held, strict=True)
        tasks[name] = Task(pairs, sources, targets)
    return tasks


def _quality(task: str) -> stats.Score:
    return stats.bleu if task == TRANSLATION else stats.ratio


def quality_name(task: str) -> str:
    return "BLEU" if task == TRANSLATION else "accuracy, %"


def _levels(runs: dict[Any, Any], tasks: Sequence[str]) -> Table:
    rows = []
    for name in (SPANS, PREFIX, NONE):
        cells = [
            stats.score_interval(score, stack_seeds(runs, (name,), task, kind))
            for task in tasks
            for kind, score in ((NATS, stats.ratio), (QUALITY, _quality(task)))
        ]
        rows.append((name, *cells, stats.median_and_range(stack_seeds(runs, (name,), "seconds").tolist())))
    columns = [f"{task}: {kind}" for task in tasks for kind in ("nats per token", quality_name(task))]
    title = "Held-out examples of each task, mean and 95 % interval"
    return Table(title, ("pretraining", *columns, "seconds of pretraining"), rows)


def _differences(runs: dict[Any, Any], tasks: Sequence[str]) -> Table:
    rows = []
    for name, other in ((SPANS, PREFIX), (SPANS, NONE), (PREFIX, NONE)):
        for task in tasks:
            costs: dict[str, stats.Score] = {NATS: stats.ratio, QUALITY: stats.negated(_quality(task))}
            cells = (
                stats.score_difference(cost, *(stack_seeds(runs, (n,), task, kind) for n in (other, name)))
                for kind, cost in costs.items()
            )
            rows.append((task, name, other, *cells))
    columns = ("task", "pretraining", "compared with", NATS, QUALITY)
    title = "Advantage in nats per token, and in BLEU or points (negative: worse); mean and 95 % interval"
    return Table(title, columns, rows)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    differences = tables["differences"]
    tasks = list(dict.fromkeys(differences.column("task")))
    return [
        *(_is_better(differences, task, SPANS, PREFIX, decides=True) for task in tasks),
        *(_is_better(differences, task, name, NONE, decides=False) for task in tasks for name in (SPANS, PREFIX)),
    ]


def _is_better(differences: Table, task: str, name: str, other: str, decides: bool) -> Part:
    where = {"task": task, "pretraining": name, "compared_with": other}
    nats, quality = (differences.cell(kind, **where) for kind in (NATS, QUALITY))
    amount, word = stats.more_or_less(-nats[0], 3)
    unit = "BLEU" if task == TRANSLATION else "points of accuracy"
    return stats.judge_interval(
        f"For the task “{task}”, pretraining “{name}” is better than “{other}”.",
        nats,
        f"{task.capitalize()}: after “{name}” a token costs {amount} nats {word} than after “{other}” "
        f"({quality[0]:+.1f} {unit}).".replace("-", "−"),
        "nats saved",
        decides=decides,
    )


# ------------------------------------------------------------------------------------------------ draw

COLORS = {SPANS: plot.BLUE, PREFIX: plot.VERMILION, NONE: plot.GREY}


def draw(tables: Tables, figure: plot.Figure) -> None:
    table = tables["pretraining"]
    columns = table.columns[1:-1]
    names = list(COLORS)
    for i, axes in enumerate(plot.panels(figure, 1.5 + 3.4 * len(columns), 3.4, len(columns))):
        task, kind = columns[i].split(": ")
        for y, (name, color) in enumerate(COLORS.items()):
            cell = table.cell(columns[i], pretraining=name)
            plot.dot(axes, cell, y, color, f"{cell[0]:.{2 if 'nats' in kind else 1}f}", size=8)
        plot.pad_x(axes, 0.15)
        direction = "lower" if "nats" in kind else "higher"
        plot.name_rows(axes, names if i == 0 else [""] * 3, f"{kind} ({direction} is better)", task.capitalize())
