"""What does it cost that a network is fed the truth in training, and its own words when it writes?

    taught       the  students opened  →  opened is fed whatever the network has said (teacher forcing)
    writing      the  students [their] →  what it said is fed, and mistakes add up
    scheduled    in training, too, some of what is fed is what it said (scheduled sampling)

A language model learns a made language (made_language.py), of which every probability is known, after true words and
after its own alike: so it is seen how far off it is after either. A translator's target is known, so that it is weighed
by BLEU: of its first choices when it is fed the true target, and of what it writes. To be fed the truth is to be told
half of the answer, so that this gap is of both: of mistakes that add up, and of hints that are gone. Only training in
another way can show how much of it could be mended.

The figure of the study of teacher forcing: what is written, fed the truth or its own, and how translations fare.

The verdict of the study of teacher forcing, from its numbers alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.objectives.causal import Causal
from nextword.objectives.seq2seq import Seq2SeqObjective as Translating
from nextword.studies._experiment import corpus_for, spread
from nextword.studies._small_models import (
    LOOKING,
    Texts,
    TranslatorSize,
    about,
    learn_translation,
    on_device,
    ranged,
    said,
    sized,
    texts_of,
    translator,
    workers,
)
from nextword.studies._study import (
    BLUE,
    INK,
    INTERVALS,
    VERMILION,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    above,
    beside,
    between,
    bleu,
    bounded,
    counted,
    difference,
    found,
    joined,
    judged,
    ratio,
)
from nextword.studies._synthetic import Made, made_from, off_by
from nextword.training.device import choose_device

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"taught": VERMILION, "scheduled": BLUE}
LINES = {"the truth": "--", "its own": "-"}


def draw(tables: Tables, figure: Figure) -> None:
    figure.set_size_inches(12.5, 4.4)
    figure.set_layout_engine("constrained", wspace=0.06)
    writing, translating = figure.subplots(1, 2, width_ratios=(1.2, 1))
    _draw_writing(tables["writing"], writing)
    _draw_translating(tables["translating"], translating)


def _draw_writing(table: Table, axes: Any) -> None:
    labels, places = [], table.columns[3:]
    for row in table.rows:
        name, fed, cells = row[0], row[1], row[3:]
        colour, middles = COLOURS[name], [cell[0] for cell in cells]
        axes.plot(range(len(cells)), middles, LINES[fed], color=colour, linewidth=1.8, marker="o", markersize=5)
        for x, cell in enumerate(cells):
            if bounded(cell):
                axes.plot([x, x], cell[1:], color=colour, linewidth=2.5, alpha=0.35, solid_capstyle="round")
        labels.append((middles[-1], f"{name}, fed {fed}", colour))
    axes.set_xticks(range(len(places)), places)
    axes.set(xlabel="tokens written", ylabel="nats off: KL(truth, network)")
    axes.set_title("A language model writes on")
    beside(axes, labels, gap=0.07)


def _draw_translating(table: Table, axes: Any) -> None:
    columns = {"fed the truth": table.columns[1], "fed its own words": table.columns[2]}
    for x, name in enumerate(columns):
        for shift, (network, colour) in zip((-0.12, 0.12), COLOURS.items(), strict=True):
            cell = table.cell(columns[name], network=network)
            if bounded(cell):
                axes.plot([x + shift] * 2, cell[1:], color=colour, linewidth=2.5, solid_capstyle="round")
            axes.plot(x + shift, cell[0], "o", color=colour, markersize=8)
            axes.annotate(
                f"{network}\n{cell[0]:.1f}", (x + shift, cell[0]), (9 if shift > 0 else -9, 0), fontsize=9, color=INK,
                textcoords="offset points", va="center", ha="left" if shift > 0 else "right",
            )  # fmt: skip
    axes.set_xticks(range(len(columns)), list(columns))
    axes.set(ylabel="BLEU", xlim=(-0.6, len(columns) - 0.4))
    axes.grid(axis="x", visible=False)
    axes.set_title("A translator")


CLAIM = Claim(
    "A network that was fed the truth in training does worse when it is fed its own words, the more the longer it "
    "writes; fed some of its own words in training (scheduled sampling), it writes better.",
    "Bengio, Vinyals, Jaitly & Shazeer 2015; Ranzato et al. 2016; lecture notes on language models: the gap between "
    "training and testing",
)
TAUGHT, SCHEDULED = "taught", "scheduled"
NETWORKS = (TAUGHT, SCHEDULED)
TRUTH, OWN = "the truth", "its own"
WRITING, TRANSLATING = "writing on", "translating"


def judge(tables: Tables) -> list[Part]:
    return [
        _writes_worse(tables),
        _grows(tables),
        _translates_worse(tables),
        _mended(tables),
        _translates_better(tables),
        _narrower(tables),
        *(_costs(tables, task) for task in (WRITING, TRANSLATING)),
    ]


def _cell(tables: Tables, task: str, said: str) -> Any:
    return tables["differences"].cell("by", task=task, said=said)


def _judge_writing(tables: Tables, network: str, fed: str, where: str = "all") -> float:
    return float(tables["writing"].cell(where, network=network, fed=fed)[0])


def _writes_worse(tables: Tables) -> Part:
    cell = _cell(tables, WRITING, "further off after own words")
    own, told = (_judge_writing(tables, TAUGHT, fed) for fed in (OWN, TRUTH))
    return Part(
        "A language model is further off after its own words.",
        judged(above(cell)),
        f"A language model's probabilities are {own:.3f} nats off after its own words and {told:.3f} after true ones.",
        f"nats more: {ranged(cell)}",
    )


def _grows(tables: Tables) -> Part:
    cell = _cell(tables, WRITING, "the more, the longer it writes")
    first, last = tables["writing"].columns[3], tables["writing"].columns[-1]
    gaps = [
        _judge_writing(tables, TAUGHT, OWN, where) - _judge_writing(tables, TAUGHT, TRUTH, where)
        for where in (first, last)
    ]
    return Part(
        "The more so, the longer it writes.",
        judged(above(cell)),
        f"The gap is {gaps[0]:.3f} nats at tokens {first} and {gaps[1]:.3f} at {last}.".replace("-", "−"),
        f"nats wider: {ranged(cell)}",
    )


def _translates_worse(tables: Tables) -> Part:
    cell = _cell(tables, TRANSLATING, "own words are worse")
    told, own = (
        tables["translating"].cell(name, network=TAUGHT)[0] for name in ("BLEU, fed the truth", "BLEU, fed its own")
    )
    return Part(
        "A translator writes worse when it is fed its own words.",
        judged(above(cell)),
        f"Its first choices reach {told:.1f} of BLEU where it is fed the truth, and what it writes {own:.1f}. Some of "
        "that is what the truth gives away.",
        f"BLEU lost: {ranged(cell, 1)}",
    )


def _mended(tables: Tables) -> Part:
    cell = _cell(tables, WRITING, "less so after scheduled sampling")
    before, after = (_judge_writing(tables, name, OWN) for name in (TAUGHT, SCHEDULED))
    return Part(
        "A language model that was fed some of its own words is nearer after them.",
        judged(above(cell)),
        f"After its own words it is {after:.3f} nats off with scheduled sampling, {before:.3f} without.",
        f"nats less: {ranged(cell)}",
    )


def _translates_better(tables: Tables) -> Part:
    cell = _cell(tables, TRANSLATING, "better after scheduled sampling")
    before, after = (tables["translating"].cell("BLEU, fed its own", network=n)[0] for n in (TAUGHT, SCHEDULED))
    return Part(
        "A translator that was fed some of its own words writes better.",
        judged(above(cell)),
        f"It reaches {after:.1f} of BLEU after scheduled sampling, {before:.1f} without.",
        f"BLEU more: {ranged(cell, 1)}",
    )


def _narrower(tables: Tables) -> Part:
    cell = _cell(tables, WRITING, "the gap is narrower")
    return Part(
        "A language model's gap is narrower after scheduled sampling.",
        judged(above(cell)),
        f"By {cell[0]:.3f} nats.".replace("-", "−"),
        f"95 %: {ranged(cell)}",
        decides=False,
    )


def _costs(tables: Tables, task: str) -> Part:
    cell = _cell(tables, task, "scheduled sampling costs, fed the truth")
    who = "language model" if task == WRITING else "translator"
    return Part(
        f"Fed the truth, a {who} is worse after scheduled sampling.",
        judged(above(cell)),
        f"Fed the truth, a true token costs the {who} {abs(cell[0]):.3f} nats {'more' if cell[0] > 0 else 'less'} "
        "after scheduled sampling.",
        f"nats more: {ranged(cell)}",
        decides=False,
    )


SAMPLED, RAMP = 0.25, 0.5  # of the tokens that are fed, from the second epoch on: scheduled sampling
FULL = TranslatorSize(steps=400, length=24, longest=24, held=200)
QUICK = TranslatorSize(pieces=800, width=48, steps=60, length=20, longest=20, held=60)
LARGE = TranslatorSize(
    pieces=6000, width=512, rows=64, steps=6000, length=60, longest=60, rate=1e-3, dropout=0.3, held=1000
)
MODEL = TranslatorSize(pieces=500, width=96, rows=32, steps=600, rate=1e-2, held=300)
QUICK_MODEL = TranslatorSize(pieces=300, width=32, rows=16, steps=60, rate=1e-2, held=60)
LARGE_MODEL = TranslatorSize(pieces=1000, width=512, rows=128, steps=4000, rate=2e-3, held=1000)
READ, WRITTEN, STRETCHES = 6, 30, 3  # tokens of the truth first; then so many are written, looked at in parts


# ------------------------------------------------------------------------------------------------ a language model


def writer(seed: int, sampled: float, size: TranslatorSize, text: Made) -> dict[str, np.ndarray]:
    """(n, WRITTEN): how far the network is off, fed the truth and fed its own; and nats of the truth."""
    torch.manual_seed(seed)
    network = LSTM(RecurrentConfig(width=size.width, tied=True), text.vocabulary).to(choose_device())
    batches = {"kind": "blocks", "rows": size.rows, "length": size.length}
    aim = Causal(batches, sampled=sampled, ramp=RAMP if sampled else 0.0)
    learn_translation(network, aim, None, seed, size, text.batches(size.rows, seed))
    told, own = (off_by(network, text, READ, own, seed) for own in (False, True))
    return {TRUTH: told[0], OWN: own[0], "nats": told[1]}


# ------------------------------------------------------------------------------------------------ a translator


def translated(seed: int, sampled: float, size: TranslatorSize, texts: Texts) -> dict[str, np.ndarray]:
    """(n, 10): what BLEU adds up, fed the truth and fed its own; and (n, 2): nats and tokens of the truth."""
    aim = {"sampled": sampled, "ramp": RAMP if sampled else 0.0}
    network = translator(seed, size, texts, aim, attention=LOOKING)
    now = said(network, texts)
    told = first_choices(network, texts)
    return {TRUTH: counted(told, texts.targets), OWN: counted(now.written, texts.targets), "nats": now.costs}


@torch.no_grad()
def first_choices(network: Any, texts: Texts) -> list[str]:
    """The likeliest token at each place of each held-out target, fed the true ones before it, as a text."""
    asked = Translating({"rows": 64, "length": 10**6})
    order, out = asked.layout.in_order(texts.test), [""] * len(texts.targets)
    at = 0
    for batch in on_device(asked.held_out(texts.test), network.device):
        choices = network.readout.log_probs(network.hidden(batch.inputs, None)[0][-1]).argmax(-1).cpu().numpy()
        there = (batch.targets >= 0).cpu().numpy()
        for row, known in zip(choices, there, strict=True):
            ids = [int(id) for id in row[known] if id not in texts.tokenizer.special.values()]
            out[order[at]] = texts.tokenizer.decode(ids).strip()
            at += 1
    return out


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    """`--data` are pairs; the language models read the built-in text."""
    size, model = sized(settings.quick, QUICK, FULL, LARGE), sized(settings.quick, QUICK_MODEL, MODEL, LARGE_MODEL)
    pairs, texts = texts_of(settings.data, size)
    corpus = corpus_for("")
    with tempfile.TemporaryDirectory() as folder:
        made = made_from(corpus, model, READ + WRITTEN, Path(folder))
        tasks: dict[Any, Any] = {}
        for seed in settings.seeds:
            for name, sampled in ((SCHEDULED, SAMPLED), (TAUGHT, 0.0)):
                tasks[TRANSLATING, name, seed] = (translated, (seed, sampled, size, texts))
                tasks[WRITING, name, seed] = (writer, (seed, sampled, model, made))
        runs = spread(tasks, progress, workers())
    return {
        "writing": _writing(runs, settings.seeds),
        "translating": _translating(runs, settings.seeds),
        "differences": _differences(runs, settings.seeds),
    }, {
        "data": f"{about(pairs, texts)}; a language made from {corpus.name} ({len(made.train):,} rows of "
        f"{READ + WRITTEN} tokens to learn from, {len(made.test):,} to write on from, the first {READ} tokens read)",
        "networks": f"a translator with attention, gated units of width {size.width}; an LSTM of width {model.width}",
        "training": f"{size.said()}; the LSTM {model.steps:,} steps of {model.rows} rows",
        "scheduled sampling": f"{SAMPLED:.0%} of the tokens fed, from the second epoch on".replace("%", " %"),
        "intervals": INTERVALS,
    }


def _stacked(runs: dict[Any, Any], task: str, name: str, what: str, seeds: Sequence[int]) -> np.ndarray:
    return np.stack([runs[task, name, seed][what] for seed in seeds])


def stretch(values: np.ndarray, at: int | None = None) -> np.ndarray:
    """(seeds, n, WRITTEN) → (seeds, n, 2): sums over one stretch, or over all, and how many they are of."""
    part = values if at is None else np.array_split(values, STRETCHES, axis=2)[at]
    return np.stack([part.sum(2), np.full(part.shape[:2], part.shape[2])], 2)


def _writing(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    ends = np.cumsum([0, *(len(part) for part in np.array_split(np.arange(WRITTEN), STRETCHES))])
    names = [f"{a + 1}–{b}" for a, b in pairwise(ends)]
    rows = []
    for name in NETWORKS:
        for fed in (TRUTH, OWN):
            values = _stacked(runs, WRITING, name, fed, seeds)
            rows.append((name, fed, *(found(ratio, stretch(values, at)) for at in (None, *range(STRETCHES)))))
    title = "Writing on: how far off the next token's probabilities are, in nats, by how many were written before"
    return Table(title, ("network", "fed", "all", *names), tuple(rows))


def _translating(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    rows = []
    for name in NETWORKS:
        parts = {what: _stacked(runs, TRANSLATING, name, what, seeds) for what in (TRUTH, OWN, "nats")}
        rows.append((name, found(bleu, parts[TRUTH]), found(bleu, parts[OWN]), found(ratio, parts["nats"])))
    columns = ("network", "BLEU, fed the truth", "BLEU, fed its own", "nats a token, fed the truth")
    return Table("Translating", columns, tuple(rows))


def _differences(runs: dict[Any, Any], seeds: Sequence[int]) -> Table:
    """What decides, in pairs of seeds and texts; above 0 is what the claim says."""

    def gap(name: str, at: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        own, told = (_stacked(runs, WRITING, name, fed, seeds) for fed in (OWN, TRUTH))
        return stretch(own, at), stretch(told, at)

    def target(name: str, what: str) -> np.ndarray:
        return _stacked(runs, TRANSLATING, name, what, seeds)

    costs = [stretch(_stacked(runs, WRITING, name, "nats", seeds)) for name in (SCHEDULED, TAUGHT)]

    def apart(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> list[float]:
        """How much wider the first gap is than the second."""
        return found(difference(difference(ratio)), joined(joined(*one), joined(*other)))

    rows: list[tuple[str, str, Any]] = [
        (WRITING, "further off after own words", between(ratio, *gap(TAUGHT))),
        (WRITING, "the more, the longer it writes", apart(gap(TAUGHT, STRETCHES - 1), gap(TAUGHT, 0))),
        (WRITING, "less so after scheduled sampling", between(ratio, gap(TAUGHT)[0], gap(SCHEDULED)[0])),
        (WRITING, "the gap is narrower", apart(gap(TAUGHT), gap(SCHEDULED))),
        (WRITING, "scheduled sampling costs, fed the truth", between(ratio, *costs)),
        (TRANSLATING, "own words are worse", between(bleu, target(TAUGHT, TRUTH), target(TAUGHT, OWN))),
        (TRANSLATING, "better after scheduled sampling", between(bleu, target(SCHEDULED, OWN), target(TAUGHT, OWN))),
        (
            TRANSLATING,
            "scheduled sampling costs, fed the truth",
            between(ratio, target(SCHEDULED, "nats"), target(TAUGHT, "nats")),
        ),
    ]
    return Table("Above 0: as said. Nats a token, or BLEU; mean and 95 % interval", ("task", "said", "by"), tuple(rows))
