"""Next-sentence prediction and sentence-order prediction: which is easier, and does one solve the other?

One small BERT learns to fill in hidden tokens, and goes on from there with pairs of sentences beside them, once with
each question:

    "next"    does B follow A, or is it of another document?          topic alone may tell
    "order"   does B follow A, or A follow B?                         topic tells nothing

Both see the same sentences, half of them with each answer, and nothing in their lengths tells which
(studies/neighbours.py). On the way the head is asked its own question about held-out pairs, and at the end the other
one, too: in both the second answer means that B does not belong after A.

The figure of the study of pairs: learning, who can answer which question, and how much lengths give away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nextword.batching.masked import SentencePairs, Sentences
from nextword.batching.token_stream import Stream
from nextword.core.types import Vocabulary
from nextword.objectives.masked import Masked
from nextword.studies._experiment import corpus_for, enough, spread
from nextword.studies._small_models import (
    INTERVALS,
    Size,
    Text,
    certain,
    encoder,
    learn,
    ranged,
    resampled,
    short_sentences,
    text_of,
    unhidden,
)
from nextword.studies._study import (
    BLUE,
    GREY,
    INK,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    above,
    below,
    beside,
    bounded,
    judged,
    over_seeds,
    widest,
)
from nextword.studies._synthetic import Neighbours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"next": BLUE, "order": VERMILION}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13.5, 4.4)
    figure.set_layout_engine("constrained", wspace=0.06)
    curves, crossed, lengths = figure.subplots(1, 3, width_ratios=(1.1, 1, 0.9))
    _draw_curves(tables["curves"], curves)
    _crossed(tables["pairs"], crossed)
    _lengths(tables["lengths"], lengths)


def _draw_curves(table: Table, axes: Any) -> None:
    labels = []
    for name, colour in COLOURS.items():
        steps = table.column("step", trained_on=name)
        middle, low, high = zip(*table.column("right, %", trained_on=name), strict=True)
        axes.plot(steps, middle, "o-", color=colour, linewidth=1.8, markersize=4)
        axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
        labels.append((middle[-1], name, colour))
    axes.axhline(50, color=GREY, linewidth=1, linestyle=":")
    axes.set(xlabel="step", ylabel="% of held-out pairs right")
    axes.set_title("Learning each question")
    beside(axes, labels)


def _crossed(table: Table, axes: Any) -> None:
    names = []
    for y, (trained, asked, _, cell) in enumerate(table.rows):
        middle, low, high = cell
        names.append(f"trained on {trained}\nasked for {asked}")
        if bounded(cell):
            axes.plot([low, high], [y, y], color=COLOURS[trained], linewidth=2.5, solid_capstyle="round")
        filled = COLOURS[trained] if trained == asked else "white"
        axes.plot(middle, y, "o", color=COLOURS[trained], markerfacecolor=filled, markersize=8)
        axes.annotate(f"{middle:.1f}", (middle, y), (0, 9), textcoords="offset points", ha="center", fontsize=9)
    axes.axvline(50, color=GREY, linewidth=1, linestyle=":")
    axes.set_yticks(range(len(names)), names, color=INK, fontsize=9)
    axes.set(xlabel="% right", ylim=(len(names) - 0.5, -0.6))
    axes.grid(axis="y", visible=False)
    axes.set_title("Who can answer what")


def _lengths(table: Table, axes: Any) -> None:
    x, y = table.column("tokens in a row"), table.column("right, %")
    axes.bar(range(len(x)), y, color="#bbbbbb", width=0.6)
    for at, value in enumerate(y):
        axes.annotate(f"{value:.1f}", (at, value), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.set_xticks(range(len(x)), [str(length) for length in x])
    axes.set(xlabel="tokens in a row", ylabel="% right", ylim=(45, max(*y, 55) + 4))
    axes.set_title("Order told by length alone\n(pairs as BERT gathers them)")


CLAIM = Claim(
    "Next-sentence prediction is easy and sentence-order prediction is harder; a network that learnt the first cannot "
    "do the second, and one that learnt the second can do the first in part.",
    "Lan et al. 2020, section 4.6 and table 5; lecture notes on generative language models: NSP proved too easy",
)
NEXT, ORDER = "next", "order"
PIECES = 2000
FULL, QUICK = Size(layers=1, length=64, steps=900, rate=2e-3), Size(layers=1, rows=16, length=64, steps=120, rate=2e-3)
BEFORE, QUICK_BEFORE = Size(steps=1200, rate=4e-3), Size(rows=32, steps=120, rate=4e-3)  # hidden tokens alone
EACH = 1  # sentences on either side
WEIGHT = 3.0  # of the pair's loss beside that of the hidden tokens: the question is what is studied here
CHECKS = 8
CHANCE, SOLVED = 50.0, 55.0  # per cent right; below the second a question is as good as not answered
ROWS = (64, 128, 256, 512)  # lengths of rows for which the rule of lengths is counted
LEAST = 100  # held-out pairs
UNLEARNT = ", which says nothing while the order itself is not learnt"


def objective(pair: str, size: Size, words: Vocabulary) -> Masked:
    made = Masked({"kind": "pairs", "rows": size.rows, "length": size.length, "pair": pair}, words, pair_weight=WEIGHT)
    made.layout = Neighbours(size.rows, size.length, pair, each=EACH)
    return made


# ------------------------------------------------------------------------------------------------ one run


def asked_both(seed: int, pair: str, size: Size, before: Size, text: Text) -> tuple[list[float], dict[str, np.ndarray]]:
    """Its own question at each check, in per cent right; and at the end each held-out pair of either question."""
    network = encoder(size, text.vocabulary, seed)
    learn(network, short_sentences(before, text.vocabulary), text.train, seed, before)
    objectives = {name: objective(name, size, text.vocabulary) for name in (NEXT, ORDER)}
    curve: list[float] = []

    def check(step: int) -> None:
        curve.append(float(answered(network, objectives[pair], text.test).mean()))

    learn(network, objectives[pair], text.train, seed, size, check, CHECKS)
    return curve, {name: answered(network, asked, text.test) for name, asked in objectives.items()}


@torch.no_grad()
def answered(network: Any, asked: Masked, text: Stream) -> np.ndarray:
    """100 where a held-out pair is told right, 0 where not. Nothing is hidden: pairs are read as they are."""
    found = []
    for batch in asked.held_out(text):
        assert batch.pair is not None
        inputs = batch.inputs
        inputs.ids = unhidden(batch)
        h = network.hidden(inputs, None)[0][-1]
        guess = network.next_sentence(network.pooled(h[:, 0])).argmax(1)
        found.append(100.0 * (guess == batch.pair).numpy())
    return np.concatenate(found)


def by_length(train: Stream, end: int | None) -> Table:
    """Pairs as BERT's program gathers them: how often the longer segment was first, in rows of several lengths."""
    found, rows = Sentences.of(train, end), []
    for length in ROWS:
        texts = SentencePairs(1, length, ORDER).texts(found, 0, 0)
        lengths, swapped = texts.length.reshape(-1, 2), np.asarray(texts.labels) == 1
        ahead = np.where(swapped[:, None], lengths[:, ::-1], lengths)  # as they stand in the document
        told = np.where(ahead[:, 0] == ahead[:, 1], 0.5, ahead[:, 0] > ahead[:, 1]).mean()
        rows.append((length, len(lengths), 100 * float(max(told, 1 - told))))
    return Table(
        "Gathered as BERT gathers them: the order, told by which segment is longer",
        ("tokens in a row", "pairs", "right, %"),
        tuple(rows),
    )


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    size, before = (QUICK, QUICK_BEFORE) if settings.quick else (FULL, BEFORE)
    text, tokenizer = text_of(corpus, PIECES)
    layout = objective(NEXT, size, text.vocabulary).layout
    pairs = [len(layout.texts(Sentences.of(s, text.vocabulary.end), 0, 0)) for s in (text.train, text.test)]
    enough(pairs[1], LEAST, "held-out pairs of neighbouring sentences", corpus)
    given = (size, before, text)
    jobs: dict[Any, Any] = {(p, s): (asked_both, (s, p, *given)) for s in settings.seeds for p in (NEXT, ORDER)}
    runs = spread(jobs, progress)
    tables = {
        "pairs": _pairs(runs, settings.seeds),
        "differences": _differences(runs, settings.seeds),
        "curves": _curves(runs, settings.seeds, size.steps),
        "lengths": by_length(text.train, text.vocabulary.end),
    }
    return tables, {
        "data": f"{corpus.name} ({corpus.source}): {pairs[0]:,} pairs of neighbouring sentences to learn from, "
        f"{pairs[1]:,} held out; WordPiece of {len(tokenizer):,}",
        "network": f"BERT, {size.built()}",
        "training": f"{before.said()}, hidden tokens alone; then {size.said()}, the pair's loss {WEIGHT:g} times that "
        "of a hidden token",
        "intervals": INTERVALS,
    }


def _all(runs: dict[Any, Any], seeds: Sequence[int], trained: str, asked: str) -> np.ndarray:
    return np.stack([runs[trained, seed][1][asked] for seed in seeds])


def _pairs(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    rows = [
        (trained, asked, over_seeds(found.mean(1).tolist()), certain(found))
        for trained in (NEXT, ORDER)
        for asked in (NEXT, ORDER)
        for found in (_all(runs, seeds, trained, asked),)
    ]
    columns = ("trained on", "asked", "right, %", "mean and 95 % interval")
    return Table("Held-out pairs, half of them with each answer", columns, tuple(rows))


def _differences(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    """Seeds go in pairs; the held-out pairs of the two questions are different ones, so their errors add up."""
    found = [_all(runs, seeds, pair, pair) for pair in (NEXT, ORDER)]
    apart = found[0].mean(1) - found[1].mean(1)
    ends = [resampled(each.mean(0)) for each in found]
    half = sum(((high - low) / 2) ** 2 for low, high in ends) ** 0.5
    middle = float(apart.mean())
    cell = widest(middle, apart, (middle - half, middle + half))
    return Table("Next above order, each asked its own, mean and 95 % interval", ("points",), ((cell,),))


def _curves(runs: dict[Any, Any], seeds: Sequence[int], steps: int) -> Table:
    rows = [
        (pair, round(steps * (i + 1) / CHECKS), over_seeds([runs[pair, seed][0][i] for seed in seeds]))
        for pair in (NEXT, ORDER)
        for i in range(CHECKS)
    ]
    return Table("On the way, each asked its own", ("trained on", "step", "right, %"), tuple(rows), detailed=True)


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    """Who has not learnt a question tells nothing of the other; and what nobody can do, nobody is shown to lack."""
    learnt = {pair: above(_cell(tables, pair, pair), CHANCE) is True for pair in (NEXT, ORDER)}
    return [
        _easier(tables),
        _solves(tables, NEXT, NEXT, "Next-sentence prediction is learnt."),
        _cannot(tables, told=learnt[NEXT] and learnt[ORDER]),
        _solves(tables, ORDER, NEXT, "Who learnt the order can do next-sentence prediction in part.", learnt[ORDER]),
        _solves(tables, ORDER, ORDER, "The order is learnt.", decides=False),
        _given_away(tables["lengths"]),
    ]


def _cell(tables: Tables, trained: str, asked: str) -> list[float]:
    table = tables["pairs"]
    return next(row for row in table.rows if tuple(row[:2]) == (trained, asked))[3]


def _easier(tables: Tables) -> Part:
    ((cell,),) = tables["differences"].rows
    own = [_cell(tables, pair, pair)[0] for pair in (NEXT, ORDER)]
    return Part(
        "Next-sentence prediction is easier than the order.",
        judged(above(cell)),
        f"Of pairs half of which are wrong, a network asked for the next sentence tells {own[0]:.1f} % right, one "
        f"asked for the order {own[1]:.1f} %.",
        f"points above: {ranged(cell, 1)}",
    )


def _solves(tables: Tables, trained: str, asked: str, says: str, told: bool = True, decides: bool = True) -> Part:
    """Better than chance, with all of its interval."""
    cell = _cell(tables, trained, asked)
    return Part(
        says,
        judged(above(cell, CHANCE) if told else None),
        f"Trained on {trained} and asked for {asked}, it tells {cell[0]:.1f} % right{'' if told else UNLEARNT}.",
        f"95 %: {ranged(cell, 1)}",
        decides,
    )


def _cannot(tables: Tables, told: bool) -> Part:
    """Below SOLVED, with all of its interval."""
    cell = _cell(tables, NEXT, ORDER)
    return Part(
        "Who learnt it cannot tell the order.",
        judged(below(cell, SOLVED) if told else None),
        f"Trained on {NEXT} and asked for {ORDER}, it tells {cell[0]:.1f} % right{'' if told else UNLEARNT}.",
        f"95 %: {ranged(cell, 1)}",
    )


def _given_away(lengths: Table) -> Part:
    rows = {length: right for length, _, right in lengths.rows}
    short, long = min(rows), max(rows)
    return Part(
        f"Beside all this, in rows of {short} tokens gathered as BERT gathers them the order is given away by length.",
        judged(rows[short] > SOLVED),
        f"That the longer segment comes first, or last, is right for {rows[short]:.1f} % of the pairs in rows of "
        f"{short} tokens and for {rows[long]:.1f} % in rows of {long}.",
        "counted, not estimated",
        decides=False,
    )
