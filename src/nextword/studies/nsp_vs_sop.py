"""Next-sentence prediction and sentence-order prediction: which is easier, and does one task solve the other?

Claim: next-sentence prediction (NSP) is easy and sentence-order prediction (SOP) is harder; a network trained on NSP
cannot do SOP, and one trained on SOP can partly do NSP (Lan et al. 2020).

    NSP   does B follow A, or is it from another document?   the topic may tell
    SOP   does B follow A, or A follow B?                    the topic tells nothing

Measured: a small BERT learns masked tokens and then continues with sentence pairs, once with each task. Its pair
head is scored on its own task during training, and on both tasks at the end: in both, label 1 means that B does not
belong after A.

Pairs packed as in BERT's code give themselves away in short rows: a row is filled until a sentence no longer fits,
which is then a long one and comes last. So here both passages have the same number of sentences and fit completely:

    NSP   A, the sentences after A               label 0       half of each label, drawn anew in every epoch
          A, another passage of similar length   label 1       from another document
    SOP   A, the sentences after A               label 0
          the sentences after A, A               label 1

Verdict: NSP must be learned and be easier than SOP; training on NSP must not give more than 55 % on SOP; training on
SOP must give more than chance on NSP. Where a task is not learned at all, transfer to it is undecided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nextword.batching.masked import SentencePairs, Sentences, Texts, derive_key
from nextword.batching.token_stream import Stream
from nextword.core.errors import DataError
from nextword.core.types import Vocabulary
from nextword.models.bert import BERT
from nextword.objectives.masked import MaskedObjective
from nextword.studies import _figures as plot
from nextword.studies import _statistics as stats
from nextword.studies._experiment import describe_corpus, open_text, require, run_parallel, stack_seeds
from nextword.studies._study import Claim, Measured, Part, Progress, Settings, Table, Tables
from nextword.studies._transformers import Size, Text, encode_corpus, make_bert, masked_lm, original_ids, train_on

CLAIM = Claim(
    "Next-sentence prediction is easy and sentence-order prediction is harder; a network that learned the first cannot "
    "do the second, and one that learned the second can partly do the first.",
    "Lan et al. 2020, section 4.6 and table 5; lecture notes on generative language models: NSP proved too easy",
)
PIECES = 2000
FULL, QUICK = Size(layers=1, length=64, steps=900, rate=2e-3), Size(layers=1, rows=16, length=64, steps=120, rate=2e-3)
MLM, QUICK_MLM = Size(steps=1200, rate=4e-3), Size(rows=32, steps=120, rate=4e-3)  # masked tokens alone, before
SENTENCES = 1  # on either side of a pair
WEIGHT = 3.0  # of the pair loss relative to the loss of masked tokens
CHECKS = 8
CHANCE, SOLVED = 50.0, 55.0  # accuracy in %; below the second a task counts as not solved
ROW_LENGTHS = (64, 128, 256, 512)  # for which the length heuristic is counted
MIN_PAIRS = 100  # held out
SEED_KEY = 7  # separates the random draws of this file

NEXT, ORDER = "next", "order"  # values of the recipe key `pair`
NAMES = {NEXT: "NSP", ORDER: "SOP"}
ACCURACY, MEAN = "accuracy, %", "mean and 95 % interval"
NOT_LEARNED = ", which says nothing because the task itself was not learned"


# ------------------------------------------------------------------------------------------------ pairs


@dataclass(frozen=True)
class NeighborPairs(SentencePairs):
    """Pairs of `each` sentences and the `each` after them, wherever both fit into a row; passages may overlap."""

    each: int = 1

    def _make_texts(self, sentences: Sentences, seed: int, variant: int) -> Texts:
        first, middle, last, document = find_passages(sentences, self.each, self.length - 3)
        if len(first) < 2:
            raise DataError(
                f"Fewer than two pairs of {self.each} and {self.each} sentences fit into rows of {self.length} tokens. "
                "Use a text whose documents have several sentences."
            )
        draw = np.random.default_rng(int(derive_key(SEED_KEY, seed, variant)))
        label = draw.random(len(first)) < 0.5
        a, b = np.stack((first, middle - first), 1), np.stack((middle, last - middle), 1)
        if self.pair == ORDER:
            pairs = np.where(label[:, None, None], np.stack((b, a), 1), np.stack((a, b), 1))
        else:
            other = find_strangers(b[:, 1], document, draw)
            label &= document[other] != document
            pairs = np.stack((a, np.where(label[:, None], b[other], b)), 1)
            pairs[:, 1, 1] = np.minimum(pairs[:, 1, 1], self.length - 3 - pairs[:, 0, 1])
        bounds = np.arange(0, 2 * len(first) + 1, 2)
        return Texts(pairs[:, :, 0].reshape(-1), pairs[:, :, 1].reshape(-1), bounds, label.astype(np.int64))


def find_passages(sentences: Sentences, each: int, room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Start, middle, end and document of every run of 2 · each sentences that fits into the room."""
    starts = np.arange(len(sentences) - 2 * each + 1)
    document = np.searchsorted(sentences.documents, np.arange(len(sentences)), side="right") - 1
    first, middle = sentences.first[starts], sentences.first[starts + each]
    last = sentences.last[starts + 2 * each - 1]
    fits = (document[starts] == document[starts + 2 * each - 1]) & (last - first <= room)
    return first[fits], middle[fits], last[fits], document[starts[fits]]


def find_strangers(lengths: np.ndarray, document: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """For each passage another one of similar length, from another document if possible."""
    order = np.lexsort((draw.random(len(lengths)), lengths))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)
    same = document[other] == document
    further = np.empty_like(order)
    further[order] = np.roll(order, 2)
    return np.where(same, further, other)


def make_objective(pair: str, size: Size, vocabulary: Vocabulary) -> MaskedObjective:
    batches = {"kind": "pairs", "rows": size.rows, "length": size.length, "pair": pair}
    objective = MaskedObjective(batches, vocabulary, pair_weight=WEIGHT)
    objective.layout = NeighborPairs(size.rows, size.length, pair, each=SENTENCES)
    return objective


# ------------------------------------------------------------------------------------------------ measure


def measure(settings: Settings, progress: Progress) -> Measured:
    corpus, seeds = open_text(settings.data), settings.seeds
    size, mlm = (QUICK, QUICK_MLM) if settings.quick else (FULL, MLM)
    text, tokenizer = encode_corpus(corpus, PIECES)
    layout = make_objective(NEXT, size, text.vocabulary).layout
    pairs = [len(layout.texts(Sentences.of(s, text.vocabulary.end), 0, 0)) for s in (text.train, text.test)]
    require(pairs[1], MIN_PAIRS, "held-out pairs of neighboring sentences", corpus)
    jobs: dict[Any, Any] = {
        (pair, seed): (run_seed, (seed, pair, size, mlm, text)) for seed in seeds for pair in (NEXT, ORDER)
    }
    runs = run_parallel(jobs, progress)
    return {
        "pairs": _pairs(runs),
        "differences": _differences(runs),
        "curves": _curves(runs, size.steps),
        "lengths": guess_order_by_length(text.train, text.vocabulary.end),
    }, {
        "data": f"{describe_corpus(corpus)}: {pairs[0]:,} training pairs of neighboring sentences, {pairs[1]:,} held "
        f"out; WordPiece of {len(tokenizer):,}",
        "network": f"BERT, {size.describe_network()}",
        "training": f"masked tokens: {mlm.describe_training()}; then with pairs: {size.describe_training()}, pair loss "
        f"weighted {WEIGHT:g}",
        "intervals": stats.INTERVALS,
    }


def run_seed(seed: int, pair: str, size: Size, mlm: Size, text: Text) -> tuple[list[float], dict[str, np.ndarray]]:
    """Accuracy on its own task at each check; at the end, the result of each held-out pair of both tasks."""
    network = make_bert(size, text.vocabulary, seed)
    train_on(network, masked_lm(mlm, text.vocabulary), text.train, seed, mlm)
    objectives = {name: make_objective(name, size, text.vocabulary) for name in (NEXT, ORDER)}
    curve: list[float] = []

    def check(step: int) -> None:
        curve.append(float(classify_pairs(network, objectives[pair], text.test).mean()))

    train_on(network, objectives[pair], text.train, seed, size, check, CHECKS)
    return curve, {name: classify_pairs(network, objective, text.test) for name, objective in objectives.items()}


@torch.no_grad()
def classify_pairs(network: BERT, objective: MaskedObjective, text: Stream) -> np.ndarray:
    """100 for each held-out pair classified correctly, else 0. Nothing is masked."""
    results = []
    assert network.next_sentence is not None
    for batch in objective.validation_batches(text):
        assert batch.pair_labels is not None
        inputs = batch.inputs
        inputs.ids = original_ids(batch)
        h = network.hidden(inputs, None)[0][-1]
        guess = network.next_sentence(network.pooled(h[:, 0])).argmax(1)
        results.append(100.0 * (guess == batch.pair_labels).numpy())
    return np.concatenate(results)


def guess_order_by_length(train: Stream, end: int | None) -> Table:
    """Pairs packed as in BERT's code: how well the longer segment tells the order, for several row lengths."""
    sentences, rows = Sentences.of(train, end), []
    for length in ROW_LENGTHS:
        texts = SentencePairs(1, length, ORDER).texts(sentences, 0, 0)
        lengths, is_swapped = texts.length.reshape(-1, 2), np.asarray(texts.labels) == 1
        original = np.where(is_swapped[:, None], lengths[:, ::-1], lengths)  # as in the document
        hits = np.where(original[:, 0] == original[:, 1], 0.5, original[:, 0] > original[:, 1]).mean()
        rows.append((length, len(lengths), 100 * float(max(hits, 1 - hits))))
    return Table("Order predicted from segment length, packed as BERT packs", ("row length", "pairs", ACCURACY), rows)


def _pairs(runs: dict[Any, Any]) -> Table:
    rows = []
    for trained, name in NAMES.items():
        for tested, test_name in NAMES.items():
            hits = stack_seeds(runs, (trained,), 1, tested)
            rows.append((name, test_name, stats.median_of_means(hits), stats.mean_interval(hits)))
    return Table("Held-out pairs, half of each label", ("trained on", "tested on", ACCURACY, MEAN), rows)


def _differences(runs: dict[Any, Any]) -> Table:
    """Paired by seed; the two tasks have different held-out pairs, so their sampling errors add up."""
    hits = [stack_seeds(runs, (pair,), 1, pair) for pair in (NEXT, ORDER)]
    difference = hits[0].mean(1) - hits[1].mean(1)
    half = sum(((high - low) / 2) ** 2 for low, high in (stats.bootstrap_mean(each.mean(0)) for each in hits)) ** 0.5
    mean = float(difference.mean())
    cell = stats.wider_interval(mean, difference, (mean - half, mean + half))
    return Table("NSP minus SOP, each on its own task, mean and 95 % interval", ("points",), ((cell,),))


def _curves(runs: dict[Any, Any], steps: int) -> Table:
    rows = [
        (name, round(steps * (i + 1) / CHECKS), stats.median_and_range(stack_seeds(runs, (pair,), 0, i).tolist()))
        for pair, name in NAMES.items()
        for i in range(CHECKS)
    ]
    return Table("During training, each on its own task", ("trained on", "step", ACCURACY), rows, detailed=True)


# ------------------------------------------------------------------------------------------------ judge


def judge(tables: Tables) -> list[Part]:
    nsp, sop = NAMES.values()
    is_learned = {name: stats.is_above(_cell(tables, name, name), CHANCE) is True for name in (nsp, sop)}
    return [
        _is_easier(tables),
        _is_solved(tables, nsp, nsp, "Next-sentence prediction is learned."),
        _is_not_solved(tables, nsp, sop, is_learned[nsp] and is_learned[sop]),
        _is_solved(tables, sop, nsp, "A network trained on the order can partly do NSP.", is_learned[sop]),
        _is_solved(tables, sop, sop, "Sentence order is learned.", decides=False),
        _length_tells_order(tables["lengths"]),
    ]


def _cell(tables: Tables, trained: str, tested: str) -> list[float]:
    return tables["pairs"].cell(MEAN, trained_on=trained, tested_on=tested)


def _is_easier(tables: Tables) -> Part:
    ((cell,),) = tables["differences"].rows
    own = [_cell(tables, name, name)[0] for name in NAMES.values()]
    return stats.judge_interval(
        "Next-sentence prediction is easier than sentence-order prediction.",
        cell,
        f"A network trained on NSP classifies {own[0]:.1f} % of its pairs correctly, one trained on SOP {own[1]:.1f} "
        "%; chance is 50 %.",
        "difference in points",
        digits=1,
    )


def _is_solved(
    tables: Tables, trained: str, tested: str, statement: str, is_learned: bool = True, decides: bool = True
) -> Part:
    """Better than chance, with the whole interval."""
    cell = _cell(tables, trained, tested)
    return Part(
        statement,
        stats.is_above(cell, CHANCE) if is_learned else None,
        f"Trained on {trained} and tested on {tested}, it is right for {cell[0]:.1f} %"
        f"{'' if is_learned else NOT_LEARNED}.",
        f"95 %: {stats.format_interval(cell, 1)}",
        decides,
    )


def _is_not_solved(tables: Tables, trained: str, tested: str, is_learned: bool) -> Part:
    """Below SOLVED, with the whole interval."""
    part = _is_solved(tables, trained, tested, "A network trained on NSP cannot tell the order.", is_learned)
    holds = stats.is_below(_cell(tables, trained, tested), SOLVED) if is_learned else None
    return Part(part.statement, holds, part.evidence, part.uncertainty)


def _length_tells_order(lengths: Table) -> Part:
    rows = {length: accuracy for length, _, accuracy in lengths.rows}
    short, long = min(rows), max(rows)
    return Part(
        f"Packed as BERT packs them, pairs in rows of {short} tokens give the order away by segment length.",
        rows[short] > SOLVED,
        f"Which segment is longer tells the order for {rows[short]:.1f} % of the pairs in rows of {short} tokens and "
        f"for {rows[long]:.1f} % in rows of {long}.",
        "counted, not estimated",
        decides=False,
    )


# ------------------------------------------------------------------------------------------------ draw

COLORS = {"NSP": plot.BLUE, "SOP": plot.VERMILION}


def draw(tables: Tables, figure: plot.Figure) -> None:
    curves, transfer, lengths = plot.panels(figure, 13.5, 4.4, 3, (1.1, 1, 0.9))
    _draw_curves(tables["curves"], curves)
    _draw_transfer(tables["pairs"], transfer)
    _draw_lengths(tables["lengths"], lengths)


def _draw_curves(table: Table, axes: plot.Axes) -> None:
    axes.axhline(CHANCE, color=plot.GREY, linewidth=1, linestyle=":")
    curves = [(name, table.column(ACCURACY, trained_on=name), color) for name, color in COLORS.items()]
    steps = table.column("step", trained_on=curves[0][0])
    label = "accuracy on held-out pairs, %"
    plot.lines(axes, curves, steps, size=4, xlabel="step", ylabel=label, title="Learning each task")


def _draw_transfer(table: Table, axes: plot.Axes) -> None:
    names = []
    for y, (trained, tested, _, cell) in enumerate(table.rows):
        names.append(f"trained on {trained}\ntested on {tested}")
        plot.dot(axes, cell, y, COLORS[trained], f"{cell[0]:.1f}", filled=trained == tested, size=8)
    axes.axvline(CHANCE, color=plot.GREY, linewidth=1, linestyle=":")
    plot.name_rows(axes, names, "accuracy, %", "Transfer between tasks", size=9)


def _draw_lengths(table: Table, axes: plot.Axes) -> None:
    x, y = table.column("row length"), table.column(ACCURACY)
    axes.bar(range(len(x)), y, color="#bbbbbb", width=0.6)
    for i, value in enumerate(y):
        axes.annotate(f"{value:.1f}", (i, value), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xticks(range(len(x)), [str(length) for length in x])
    axes.set(
        xlabel="row length, tokens",
        ylabel="accuracy, %",
        ylim=(45, max(*y, 55) + 4),
        title="Order predicted from length alone\n(pairs packed as BERT packs)",
    )
