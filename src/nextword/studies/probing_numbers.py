"""What probes of every layer add up to: accuracies, best layers and differences, each with its 95 % interval.

    answers (seeds, L, words) ──by sentence──▶ sums ──drawn again 2,000 times──▶ accuracies (draws, L)

A draw is of whole sentences, for the words of one are not independent, and it is the same for all layers, so that their
differences are in pairs. The senses of each word are drawn by themselves and then averaged over the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nextword.studies.measures import widest
from nextword.studies.probing_words import Answers, Asked, Question, guesses
from nextword.studies.small_transformers import DRAWS
from nextword.studies.study import Table

OTHER, EMBEDDING, LAST = "the other task's best", "layer 0, the embedding", "the last layer"
COMMON, FORM = "the commonest label", "the commonest label of the same word form"
INTERVALS = (
    "95 %, a bootstrap over sentences and contexts, the same for all layers (so differences are in pairs); where there "
    "are several seeds, the wider of that and of Student's t over them"
)

Found = dict[str, list[list[Answers]]]  # network → seed by seed → question by question


class Sums(NamedTuple):
    """Right answers to one question, by sentence: what a bootstrap draws is sentences."""

    right: np.ndarray  # (seeds, L, sentences)
    size: np.ndarray  # (sentences,) words that are asked about

    def accuracy(self) -> np.ndarray:
        """(seeds, L)"""
        return 100 * self.right.sum(2) / self.size.sum()


def summed(hits: Sequence[np.ndarray], units: np.ndarray) -> Sums:
    """Of hits (L, words) of each seed, and the sentence of each word."""
    where = np.unique(units, return_inverse=True)[1]
    size = np.bincount(where)
    right = [[np.bincount(where, layer, len(size)) for layer in seed] for seed in hits]
    return Sums(np.array(right), size)


def drawn(questions: Sequence[Sums], seed: int) -> np.ndarray:
    """(draws, L): accuracies in per cent over sentences drawn again, the mean over questions and over networks."""
    draw = np.random.default_rng(seed)
    total = np.zeros((DRAWS, questions[0].right.shape[1]))
    for right, size in questions:
        times = draw.multinomial(len(size), np.full(len(size), 1 / len(size)), DRAWS)  # (draws, sentences)
        total += 100 * (times @ right.mean(0).T) / (times @ size)[:, None]
    return total / len(questions)


def told(middle: float, by_seed: np.ndarray, draws: np.ndarray, alone: bool) -> list[float]:
    """[middle, low, high]: over the text, and over the seeds where they are wider.

    `alone`: the network is given, so nothing but the text is a draw. Otherwise one seed has no interval.
    """
    low, high = (float(np.quantile(draws, q)) for q in (0.025, 0.975))
    return [middle, low, high] if alone and len(by_seed) < 2 else widest(middle, by_seed, (low, high))


class Level(NamedTuple):
    """One network at one task. The commonest label is the last row of `test`, as if it were a layer."""

    valid: np.ndarray  # (seeds, L)
    valid_draws: np.ndarray  # (draws, L)
    test: np.ndarray  # (seeds, L + 1)
    test_draws: np.ndarray  # (draws, L + 1)

    @property
    def best(self) -> int:
        return int(self.valid.mean(0).argmax())


def level(seeds: Sequence[Sequence[Answers]], questions: Sequence[Asked], task: str) -> Level:
    sums: list[list[Sums]] = [[], []]
    for i, question in enumerate(questions):
        if question.task == task:
            usual = (question.test.labels == np.bincount(question.train.labels).argmax())[None]
            sums[0].append(summed([found[i].valid for found in seeds], question.valid.units))
            sums[1].append(summed([np.concatenate([f[i].test, usual]) for f in seeds], question.test.units))
    valid, test = (np.mean([s.accuracy() for s in part], axis=0) for part in sums)
    return Level(valid, drawn(sums[0], 0), test, drawn(sums[1], 1))


# ------------------------------------------------------------------------------------------------ tables

Levels = dict[str, dict[str, Level]]  # network → task


def tables_of(found: Found, questions: Sequence[Asked], asks: Sequence[Question], alone: bool) -> dict[str, Table]:
    tasks = tuple(dict.fromkeys(question.task for question in questions))
    levels = {name: {task: level(seeds, questions, task) for task in tasks} for name, seeds in found.items()}
    return {
        "layers": _layers(levels, tasks, alone),
        "best": _best(levels, tasks, alone),
        "differences": _differences(levels, tasks, alone),
        "halves": _halves(levels, tasks, alone),
        "guesses": _guesses(asks, tasks),
        "words": _number_words(found, questions),
    }


def _layers(levels: Levels, tasks: Sequence[str], alone: bool) -> Table:
    rows = []
    for name, by in levels.items():
        for layer in range(by[tasks[0]].valid.shape[1]):
            cells = [
                told(float(at.test[:, layer].mean()), at.test[:, layer], at.test_draws[:, layer], alone)
                for at in (by[task] for task in tasks)
            ]
            rows.append((name, layer, *cells))
    return Table(
        "Right in the test, %, by a linear probe of each layer: mean and 95 % interval",
        ("network", "layer", *tasks),
        tuple(rows),
    )


def _best(levels: Levels, tasks: Sequence[str], alone: bool) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, by in levels.items():
        top = [(at.best, at.valid.argmax(1), at.valid_draws.argmax(1)) for at in (by[task] for task in tasks)]
        if len(tasks) > 1:
            (a, seeds_a, draws_a), (b, seeds_b, draws_b) = top
            top.append((b - a, seeds_b - seeds_a, draws_b - draws_a))
        depth = by[tasks[0]].valid.shape[1] - 1
        cells = [
            [_layer(value, 0 if i < len(tasks) else -depth, depth) for value in told(*found, alone=alone)]
            for i, found in enumerate(top)
        ]
        rows.append((name, *cells, *[None] * (2 - len(tasks))))
    return Table(
        "The layer with the best probe on validation text, and its 95 % interval",
        ("network", *tasks, "apart"),
        tuple(rows),
    )


def _layer(value: float, least: int, most: int) -> float:
    """As a count, where it is one, and within what there is: Student's t knows nothing of a first and a last layer."""
    if np.isfinite(value):
        value = min(max(value, least), most)
    return int(value) if float(value).is_integer() else float(value)


def _differences(levels: Levels, tasks: Sequence[str], alone: bool) -> Table:
    rows = []
    for name, by in levels.items():
        depth = by[tasks[0]].valid.shape[1]
        against = {OTHER: [by[task].best for task in tasks[::-1]]} if len(tasks) > 1 else {}
        against |= {EMBEDDING: [0] * len(tasks), LAST: [depth - 1] * len(tasks), COMMON: [depth] * len(tasks)}
        for what, others in against.items():
            cells = []
            for task, other in zip(tasks, others, strict=True):
                at = by[task]
                seeds, draws = (part[:, at.best] - part[:, other] for part in (at.test, at.test_draws))
                cells.append(told(float(seeds.mean()), seeds, draws, alone))
            rows.append((name, what, *cells))
    return Table(
        "Points by which the best layer is above, in the test: mean and 95 % interval",
        ("network", "above", *tasks),
        tuple(rows),
    )


def _halves(levels: Levels, tasks: Sequence[str], alone: bool) -> Table:
    """Nothing is chosen here: the mean of the lower half of the layers against the mean of the upper half.

    The embedding belongs to neither, nor does a layer in the middle.
    """
    rows: list[tuple[Any, ...]] = []
    for name, by in levels.items():
        depth = by[tasks[0]].valid.shape[1] - 1
        half = depth // 2
        if not half:
            continue
        lower, upper = slice(1, 1 + half), slice(1 + depth - half, 1 + depth)
        cells: list[Any] = []
        for at in by.values():
            seeds, draws = (part[:, lower].mean(1) - part[:, upper].mean(1) for part in (at.test, at.test_draws))
            cells.append(told(float(seeds.mean()), seeds, draws, alone))
        rows.append((name, *cells))
    return Table(
        "Points by which the lower half of the layers is above the upper half, in the test: mean and 95 % interval",
        ("network", *tasks),
        tuple(rows),
    )


def _guesses(asks: Sequence[Question], tasks: Sequence[str]) -> Table:
    right = {(q.task, q.word): guesses(q) for q in asks}
    rows = [
        (name, *(float(np.mean([100 * r[way].mean() for (t, _), r in right.items() if t == task])) for task in tasks))
        for name, way in ((COMMON, "all"), (FORM, "form"))
    ]
    return Table("Right in the test without any network, %", ("guess", *tasks), tuple(rows))


def _number_words(found: Found, questions: Sequence[Asked]) -> Table:
    """The senses word by word; the commonest sense of each in the last row."""
    asks = [(i, question) for i, question in enumerate(questions) if question.word]
    rows: list[tuple[Any, ...]] = []
    for name, seeds in found.items():
        for layer in range(len(seeds[0][0].valid)):
            cells = [float(np.mean([100 * by[i].test[layer].mean() for by in seeds])) for i, _ in asks]
            rows.append((name, layer, *cells))
    usual = [100 * float((q.test.labels == np.bincount(q.train.labels).argmax()).mean()) for _, q in asks]
    rows.append((COMMON, None, *usual))
    return Table(
        "Senses right in the test, %, word by word",
        ("network", "layer", *(q.word for _, q in asks)),
        tuple(rows),
        detailed=True,
    )
