"""What does it cost that a network is fed the truth in training, and its own words when it writes?

    taught       the  students opened  →  opened is fed whatever the network has said (teacher forcing)
    writing      the  students [their] →  what it said is fed, and mistakes add up
    scheduled    in training, too, some of what is fed is what it said (scheduled sampling)

A language model learns a made language (made_language.py), of which every probability is known, after true words and
after its own alike: so it is seen how far off it is after either. A translator's target is known, so that it is weighed
by BLEU: of its first choices when it is fed the true target, and of what it writes. To be fed the truth is to be told
half of the answer, so that this gap is of both: of mistakes that add up, and of hints that are gone. Only training in
another way can show how much of it could be mended.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nextword.models.rnn import LSTM, RecurrentConfig
from nextword.objectives.causal import Causal
from nextword.objectives.sequence import Seq2SeqObjective as Translating
from nextword.studies.apart import spread
from nextword.studies.bleu import INTERVALS, between, bleu, counted, difference, found, joined, ratio
from nextword.studies.made_language import Made, made_from, off_by
from nextword.studies.study import Progress, Settings, Table
from nextword.studies.teacher_forcing_figure import draw
from nextword.studies.teacher_forcing_verdict import (
    CLAIM,
    NETWORKS,
    OWN,
    SCHEDULED,
    TAUGHT,
    TRANSLATING,
    TRUTH,
    WRITING,
    judge,
)
from nextword.studies.text import corpus_for
from nextword.studies.translators import (
    LOOKING,
    TranslatorSize,
    Texts,
    about,
    learn_translation,
    on_device,
    said,
    sized,
    texts_of,
    translator,
    workers,
)
from nextword.training.scale import choose_device

__all__ = ["CLAIM", "draw", "judge", "measure"]
SAMPLED, RAMP = 0.25, 0.5  # of the tokens that are fed, from the second epoch on: scheduled sampling
FULL = TranslatorSize(steps=400, length=24, longest=24, held=200)
QUICK = TranslatorSize(pieces=800, width=48, steps=60, length=20, longest=20, held=60)
LARGE = TranslatorSize(pieces=6000, width=512, rows=64, steps=6000, length=60, longest=60, rate=1e-3, dropout=0.3, held=1000)
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
