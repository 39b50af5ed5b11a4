"""Does a network that sees both sides of a hidden token fill it in better than one that reads from the left?

A small BERT and a small GPT-2 of one shape read the same rows in the same order, as often. Then one token of each
held-out row is hidden, the same for both:

    BERT      [CLS] in the beginning [MASK] created the heavens [SEP]      p(god | all the others)
    GPT-2     [CLS] in the beginning                                       p(god | what is before it)
    rescored  [CLS] in the beginning {god, he, …} created the heavens [SEP]    its best few, by the whole row

Reading from the left has an answer to the right side: p(x | rest) ∝ p(x and what follows | before). For all V tokens it
is exact and V times the work; here it is taken for the likeliest few, which share the probability they had together.

A masked network learns from 15 % of what it reads. So GPT-2 is trained a second time, on as many predictions.

The figure of the study of filling in: who is right how often, and where on the row it matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nextword.batching.token_stream import Stream
from nextword.core.types import Inputs, Vocabulary
from nextword.models.encoder import PREDICTED
from nextword.studies._experiment import corpus_for, enough, spread
from nextword.studies._small_models import (
    INTERVALS,
    Size,
    Text,
    by,
    certain,
    encoder,
    learn,
    left_to_right,
    ranged,
    short_sentences,
    spans,
    text_of,
    unhidden,
)
from nextword.studies._study import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    above,
    beside,
    bounded,
    judged,
    over_seeds,
)
from nextword.tokenizers.base import Marks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (BLUE, VERMILION, ORANGE, PURPLE, GREEN)


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(13, 4.6)
    figure.set_layout_engine("constrained", wspace=0.06)
    right, nats, places = figure.subplots(1, 3, width_ratios=(1, 0.8, 1.1))
    levels(tables["networks"], right, "network", "right, %", "Right first choice", "% of the hidden tokens")
    levels(tables["networks"], nats, "network", "nats", "Cost of the hidden token", "nats  (left: better)", named=False)
    _draw_places(tables["places"], places)


def levels(table: Table, axes: Any, key: str, value: str, title: str, label: str, named: bool = True) -> None:
    """A dot and its range over seeds for each row of a table."""
    names = table.column(key)
    for y, (name, colour) in enumerate(zip(names, COLOURS * len(names), strict=False)):
        middle, low, high = table.cell(value, **{key: name})
        axes.plot([low, high], [y, y], color=colour, linewidth=2.5, solid_capstyle="round")
        axes.plot(middle, y, "o", color=colour, markersize=7)
        text = f"{middle:.1f}" if "%" in value else f"{middle:.2f}"
        axes.annotate(text, (middle, y), (0, 9), textcoords="offset points", ha="center", fontsize=9, color=INK)
    axes.set_yticks(range(len(names)), names if named else [""] * len(names), color=INK)
    low, high = axes.get_xlim()
    axes.set(xlim=(low - 0.1 * (high - low), high + 0.1 * (high - low)), ylim=(len(names) - 0.5, -0.6), xlabel=label)
    axes.grid(axis="y", visible=False)
    axes.set_title(title)


def _draw_places(table: Table, axes: Any) -> None:
    labels = []
    for name, colour, shift in zip(table.columns[3:], (VERMILION, ORANGE), (-0.07, 0.07), strict=True):
        middles = []
        for x, cell in enumerate(table.column(name)):
            middle, low, high = cell
            if bounded(cell):
                axes.plot([x + shift] * 2, [low, high], color=colour, linewidth=2, solid_capstyle="round")
            middles.append(middle)
        axes.plot([x + shift for x in range(len(middles))], middles, "o-", color=colour, linewidth=1.2, markersize=5)
        labels.append((middles[-1], f"than {name}", colour))
    axes.axhline(0, color=GREY, linewidth=1)
    ticks = [f"{low}–{high}" for low, high in zip(table.column("from"), table.column("to"), strict=True)]
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set(xlabel="tokens on the left of the hidden one", ylabel="nats")
    axes.set_title("Both sides are better by")
    beside(axes, labels)


CLAIM = Claim(
    "For filling in a hidden token context from both sides beats context from the left alone.",
    "Devlin et al. 2019, sections 1 and 5.1; lecture notes on generative language models: GPT is limited by reading in "
    "one direction",
)
BOTH, LEFT, RESCORED, FEWER = "BERT", "GPT-2", "GPT-2, rescored", "GPT-2, as many predictions"
PIECES = 1000
FULL = Size(layers=1, steps=2000, rate=4e-3)
QUICK = Size(layers=1, width=64, heads=4, rows=32, steps=300, rate=4e-3)
KEPT = 16  # candidates that are rescored
PLACES = ((0, 4), (5, 9), (10, 14), (15, 19), (20, 99))  # tokens to the left of the hidden one
LEAST = 200  # held-out rows
AT_ONCE = 64


@dataclass(frozen=True)
class Holes:
    """Held-out rows, and the place in each that is hidden."""

    ids: np.ndarray  # (n, length)
    padding: np.ndarray  # (n, length) True where there is a token
    at: np.ndarray  # (n,)

    @property
    def right(self) -> np.ndarray:
        """(n,) the tokens that are hidden."""
        return self.ids[np.arange(len(self.at)), self.at]


def holes(stream: Stream, size: Size, words: Vocabulary) -> Holes:
    """One place in each row, drawn once and for all; marks are never hidden."""
    ids, padding = [], []
    for batch in short_sentences(size, words).held_out(stream):
        ids.append(unhidden(batch))
        padding.append(batch.inputs.padding)
    rows, there = torch.cat(ids).numpy(), torch.cat([p for p in padding if p is not None]).numpy()
    free = there & ~np.isin(rows, list(words.special.values()))
    kept = free.any(1)
    rows, there, free = rows[kept], there[kept], free[kept]
    chance = np.random.default_rng(0).random(rows.shape) * free
    return Holes(rows, there, chance.argmax(1))


# ------------------------------------------------------------------------------------------------ one run

Found = tuple[np.ndarray, np.ndarray]  # nats of the hidden token (n,), and whether it was the first choice (n,)


def fill_both(seed: int, size: Size, text: Text, given: Holes) -> dict[str, Found]:
    network = encoder(size, text.vocabulary, seed)
    learn(network, short_sentences(size, text.vocabulary), text.train, seed, size)
    mask = Marks.of(text.vocabulary).mask
    parts = []
    with torch.no_grad():
        for here in spans(len(given.at), AT_ONCE):
            ids, at = torch.from_numpy(given.ids[here]).clone(), torch.from_numpy(given.at[here])
            rows = torch.arange(len(ids))
            ids[rows, at] = mask
            inputs = Inputs(ids, torch.from_numpy(given.padding[here]))
            parts.append(network.fill(inputs, rows * size.length + at))
    return {BOTH: _found(torch.cat(parts), given)}


def fill_left(seed: int, size: Size, text: Text, given: Holes, rescoring: bool) -> dict[str, Found]:
    network = left_to_right(seed, size, text)
    with torch.no_grad():
        log_p = torch.cat([_next(network, given, here) for here in spans(len(given.at), AT_ONCE)])
        if not rescoring:
            return {FEWER: _found(log_p, given)}
        return {LEFT: _found(log_p, given), RESCORED: _found(rescored(network, log_p, given), given)}


def _next(network: Any, given: Holes, here: slice) -> Tensor:
    """log p of every token at the hidden place, from what is before it: (n, V)."""
    h = network.hidden(Inputs(torch.from_numpy(given.ids[here])), None)[0][-1]
    return network.readout.log_probs(h[torch.arange(len(h)), torch.from_numpy(given.at[here]) - 1])


def rescored(network: Any, log_p: Tensor, given: Holes) -> Tensor:
    """The likeliest few share what they had together by how well the rest of the row follows each. Still sums to 1."""
    kept, which = log_p.topk(min(KEPT, log_p.shape[1]), 1)  # (n, k)
    after = torch.stack([_followed(network, given, here, which[here]) for here in spans(len(log_p), 1)])
    together = kept.logsumexp(1, keepdim=True)
    return log_p.scatter(1, which, (kept + after).log_softmax(1) + together)


def _followed(network: Any, given: Holes, here: slice, which: Tensor) -> Tensor:
    """log p of what follows the hidden place, for each candidate in it: (k,)."""
    row, at = torch.from_numpy(given.ids[here])[0], int(given.at[here][0])
    end = int(given.padding[here].sum())
    ids = row[:end].repeat(which.shape[1], 1)
    ids[:, at] = which[0]
    h = network.hidden(Inputs(ids), None)[0][-1][:, at : end - 1]
    targets = ids[:, at + 1 :]
    return -network.readout.nll(h.reshape(-1, h.shape[-1]), targets.reshape(-1)).view(targets.shape).sum(1)


def _found(log_p: Tensor, given: Holes) -> Found:
    right = torch.from_numpy(given.right)
    return -log_p.gather(1, right[:, None]).squeeze(1).numpy(), (log_p.argmax(1) == right).numpy()


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    size = QUICK if settings.quick else FULL
    text, tokenizer = text_of(corpus, PIECES)
    given = holes(text.test, size, text.vocabulary)
    enough(len(given.at), LEAST, "held-out rows of whole sentences", corpus)
    fewer = replace(size, steps=max(1, round(PREDICTED * size.steps)))
    tasks: dict[Any, Any] = {}
    for seed in settings.seeds:
        tasks[BOTH, seed] = (fill_both, (seed, size, text, given))
        tasks[LEFT, seed] = (fill_left, (seed, size, text, given, True))
        tasks[FEWER, seed] = (fill_left, (seed, fewer, text, given, False))
    runs = {(name, seed): found for (_, seed), by in spread(tasks, progress).items() for name, found in by.items()}
    names = (BOTH, LEFT, RESCORED, FEWER)
    nats = {name: np.stack([runs[name, seed][0] for seed in settings.seeds]) for name in names}
    hits = {name: np.stack([runs[name, seed][1] for seed in settings.seeds]) for name in names}
    shape = f"{size.layers} layer of width {size.width}" if size.layers == 1 else f"{size.layers} × {size.width}"
    return {
        "networks": _networks(names, nats, hits),
        "differences": _differences(names, nats, hits),
        "places": _places(given, nats),
    }, {
        "data": f"{corpus.name} ({corpus.source}): {len(text.train):,} tokens to learn from, one hidden token in each "
        f"of {len(given.at):,} held-out rows; WordPiece of {len(tokenizer):,}",
        "networks": f"BERT and GPT-2 of {shape}, {size.heads} heads, window {size.length}",
        "training": size.said() + f"; the last network {fewer.steps:,} steps",
        "rescored": f"the {KEPT} likeliest by what follows them",
        "intervals": INTERVALS,
    }


def _networks(names: Sequence[str], nats: dict[str, np.ndarray], hits: dict[str, np.ndarray]) -> Table:
    rows = [
        (name, over_seeds((100 * hits[name].mean(1)).tolist()), over_seeds(nats[name].mean(1).tolist()))
        for name in names
    ]
    return Table("The same hidden tokens", ("network", "right, %", "nats"), tuple(rows))


def _differences(names: Sequence[str], nats: dict[str, np.ndarray], hits: dict[str, np.ndarray]) -> Table:
    rows = [
        (name, certain(100.0 * hits[BOTH] - 100.0 * hits[name]), certain(nats[name] - nats[BOTH]))
        for name in names
        if name != BOTH
    ]
    return Table(
        f"{BOTH} is better by (below 0: worse), mean and 95 % interval", ("than", "right, %", "nats"), tuple(rows)
    )


def _places(given: Holes, nats: dict[str, np.ndarray]) -> Table:
    before = given.at - 1  # [CLS] is no word
    rows = []
    for low, high in PLACES:
        here = (low <= before) & (before <= high)
        if here.sum() > 1:
            gains = [certain(nats[name][:, here] - nats[BOTH][:, here]) for name in (LEFT, RESCORED)]
            rows.append((low, int(min(high, before.max())), int(here.sum()), *gains))
    return Table(
        f"Nats by which {BOTH} is better, by how many tokens are on the left",
        ("from", "to", "places", LEFT, RESCORED),
        tuple(rows),
        detailed=True,
    )


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    levels, apart = tables["networks"], tables["differences"]
    return [
        _better(levels, apart, LEFT, "right, %", "It is right more often than reading from the left."),
        _better(levels, apart, LEFT, "nats", "It gives the hidden token more probability."),
        _better(
            levels, apart, RESCORED, "nats", "It does so, too, where the other may rescore its best by the whole row.",
            decides=False,
        ),
        _better(
            levels, apart, FEWER, "nats", "It learns more from each prediction it is trained on.", decides=False
        ),
    ]  # fmt: skip


def _better(levels: Table, apart: Table, other: str, measure: str, says: str, decides: bool = True) -> Part:
    cell = apart.cell(measure, than=other)
    mine, its = (levels.cell(measure, network=name)[0] for name in (BOTH, other))
    if measure == "nats":
        found = f"{BOTH} needs {mine:.2f} nats for a hidden token, {other} {its:.2f}: {by(cell[0], 'nats', 2)}."
    else:
        found = f"{BOTH} is right in {mine:.1f} % of the places, {other} in {its:.1f} %: {by(cell[0], 'points', 1)}."
    return Part(
        says, judged(above(cell)), found, f"better by {ranged(cell, 2 if measure == 'nats' else 1)}", decides=decides
    )
