"""[MASK] stands in the text that a network learns from and never in the text it is used on. Does that cost something?

One small BERT, three ways to put something in the place of a hidden token:

    80 / 10 / 10     the mask, any token, the token itself, in so many per cent of the places: BERT's own
    [MASK] alone     always the mask: plain tokens are never asked about, so their vectors may say little of them
    no [MASK]        any token in 80 %, the token itself in 20 %: what is read has no mask in it, ever

Then plain text is read, without any mask: what a linear probe finds in the last layer's vectors, what the network says
of a token that it is given, and whether it notices a token that does not belong.

A network that finds [MASK] alone may also learn more slowly, and have worse vectors for that. So the first way is
looked at a second time, stopped on its way as soon as it fills in hidden tokens as well as the second does at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nextword.batching.token_stream import Stream
from nextword.core.types import Inputs
from nextword.objectives.masked import Masked
from nextword.studies._experiment import corpus_for, enough, held_out, spread
from nextword.studies._probes import CASE, TAGS, Task, case_task, probed, tags_task
from nextword.studies._small_models import (
    INTERVALS,
    Size,
    Text,
    asked,
    certain,
    encoder,
    hidden_tokens,
    learn,
    masked_sentences,
    ranged,
    short_sentences,
    text_of,
    unhidden,
)
from nextword.studies._study import (
    GREY,
    Claim,
    Part,
    Progress,
    Settings,
    Table,
    Tables,
    above,
    below,
    judged,
    over_seeds,
)
from nextword.studies.masked_vs_causal import levels

CLAIM = Claim(
    "[MASK] in pretraining and never in use costs something: a network that found [MASK] in every hidden place has "
    "worse vectors for plain text than one that found other tokens there, too.",
    "Devlin et al. 2019, section 3.1 and appendix C.2; lecture notes on ELMo: BERT's mask makes pretraining and "
    "fine-tuning differ",
)
MIXED, STOPPED, ALONE, NEVER = "80 / 10 / 10", "80 / 10 / 10, stopped", "[MASK] alone", "no [MASK]"
WAYS: dict[str, dict[str, float]] = {  # in the order of training: where to stop is known after the first
    ALONE: {"masked": 1.0, "replaced": 0.0},
    MIXED: {"masked": 0.8, "replaced": 0.1},
    NEVER: {"masked": 0.0, "replaced": 0.8},
}
ORDER = (MIXED, STOPPED, ALONE, NEVER)
HIDDEN, GIVEN, NOTICED = "nats of a token behind [MASK]", "nats of a token it is given", "wrong token noticed, %"
STEP = "steps"
PIECES = 1000
FULL = Size(layers=1, steps=1800, rate=4e-3)
QUICK = Size(layers=1, width=64, heads=4, rows=32, steps=250, rate=4e-3)
SENTENCES = ((4000, 1500), (600, 300))  # for the probe: to learn from and to test on, in full and when quick
LEAST = 100  # sentences for either
CHECKS = 24  # places where the first way may be stopped

Found = dict[str, np.ndarray]  # measure → its value for each unit of text


# ------------------------------------------------------------------------------------------------ one run


def read_plain(seed: int, size: Size, text: Text, tasks: Sequence[Task]) -> dict[str, Found]:
    """All ways, from the same beginning."""
    found: dict[str, Found] = {}
    masks = masked_sentences(size, text.vocabulary)
    for way, hiding in WAYS.items():
        network = encoder(size, text.vocabulary, seed)

        def check(step: int, network: Any = network) -> None:
            if (
                STOPPED not in found
                and hidden_tokens(network, masks, text.test)[0].mean() <= found[ALONE][HIDDEN].mean()
            ):
                found[STOPPED] = measured(network, size, text, tasks) | {STEP: np.array([float(step)])}

        checks = CHECKS if way == MIXED else 0
        learn(network, short_sentences(size, text.vocabulary, **hiding), text.train, seed, size, check, checks)
        found[way] = measured(network, size, text, tasks) | {STEP: np.array([float(size.steps)])}
    found.setdefault(STOPPED, found[MIXED])  # never as good: then where it ends
    return found


def measured(network: Any, size: Size, text: Text, tasks: Sequence[Task]) -> Found:
    masks = masked_sentences(size, text.vocabulary)
    wrong = short_sentences(size, text.vocabulary, masked=0.0, replaced=1.0)
    return {
        HIDDEN: hidden_tokens(network, masks, text.test)[0],
        GIVEN: given(network, masks, text.test),
        NOTICED: 100 * noticed(network, wrong, text.test),
        **{task.name: 100.0 * probed(network, task) for task in tasks},
    }


@torch.no_grad()
def given(network: Any, objective: Masked, text: Stream) -> np.ndarray:
    """The tokens that an objective would hide, not hidden: the nats that the readout gives to what stands there."""
    found = []
    for batch in objective.held_out(text):
        at, targets = asked(batch)
        h = network.hidden(Inputs(unhidden(batch), batch.inputs.padding), None)[0][-1]
        found.append(network.readout.nll(h.reshape(-1, h.shape[-1])[at], targets).numpy())
    return np.concatenate(found)


@torch.no_grad()
def noticed(network: Any, objective: Masked, text: Stream) -> np.ndarray:
    """For each row: how often a token put there by chance has more nats than one that belongs, over all such pairs.

    0.5 is chance. Rows that chance left as they were are left out.
    """
    found = []
    for batch in objective.held_out(text):
        ids, true = batch.inputs.ids, unhidden(batch)
        h = network.hidden(batch.inputs, None)[0][-1]
        nats = network.readout.nll(h.reshape(-1, h.shape[-1]), ids.reshape(-1)).view(ids.shape)
        words = torch.from_numpy(~np.isin(true.numpy(), list(network.vocabulary.special.values())))
        for row, wrong, there in zip(nats, ids != true, words, strict=True):
            bad, good = row[wrong], row[there & ~wrong]
            if len(bad) and len(good):
                found.append(float((bad[:, None] > good).float().mean()))
    return np.array(found)


# ------------------------------------------------------------------------------------------------ measuring


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    size, counts = (QUICK if settings.quick else FULL), SENTENCES[int(settings.quick)]
    text, tokenizer = text_of(corpus, PIECES)
    tasks = [case_task(corpus, ("train", held_out(corpus)), tokenizer, size.length, counts)]
    enough(min(len(tasks[0].train.ids), len(tasks[0].test.ids)), LEAST, "sentences for a probe", corpus)
    if len(tasks[0].classes) < 2:  # a text without capitals
        tasks.clear()
    if tags := tags_task(tokenizer, size.length, counts):
        tasks.append(tags)
    jobs: dict[Any, Any] = {seed: (read_plain, (seed, size, text, tasks)) for seed in settings.seeds}
    runs = spread(jobs, progress)
    measures = (*(task.name for task in tasks), HIDDEN, GIVEN, NOTICED)
    found = {
        (way, m): np.stack([runs[seed][way][m] for seed in settings.seeds]) for way in ORDER for m in (*measures, STEP)
    }
    common = {task.name: 100 * task.common for task in tasks}
    return {
        "ways": _ways(measures, found, common),
        "differences": _differences(measures, found),
    }, {
        "data": f"{corpus.name} ({corpus.source}): {len(text.train):,} tokens to learn from; WordPiece of "
        f"{len(tokenizer):,}",
        "network": f"BERT, {size.built()}",
        "training": size.said(),
        "probes": "; ".join(f"{t.name}: {_count(t)}" for t in tasks)
        + ("" if tags else ". The treebank for parts of speech is not on this machine (NEXTWORD_DATA)"),
        "intervals": INTERVALS,
    }


def _count(task: Task) -> str:
    words = [int((rows.labels >= 0).sum()) for rows in (task.train, task.test)]
    return f"{len(task.classes)} classes, {words[0]:,} words to learn from, {words[1]:,} to test on"


def _name(measure: str) -> str:
    return f"{measure}, right, %" if measure in (CASE, TAGS) else measure


def _ways(measures: Sequence[str], found: dict[Any, np.ndarray], common: dict[str, float]) -> Table:
    columns = (*measures, STEP)
    rows: list[tuple[Any, ...]] = [
        (way, *(over_seeds(found[way, m].mean(1).tolist()) for m in columns)) for way in ORDER
    ]
    rows.append(("the commonest class", *(common.get(m) for m in columns)))
    return Table("Plain text, read", ("hidden places hold", *map(_name, columns)), tuple(rows))


def _differences(measures: Sequence[str], found: dict[Any, np.ndarray]) -> Table:
    rows = [
        (way, other, *(certain(found[way, m] - found[other, m]) for m in measures))
        for way, other in ((ALONE, MIXED), (ALONE, STOPPED), (NEVER, MIXED))
    ]
    return Table("Above, mean and 95 % interval", ("hidden places hold", "above", *map(_name, measures)), tuple(rows))


# ------------------------------------------------------------------------------------------------ judging


def judge(tables: Tables) -> list[Part]:
    """The first probe decides, against both: in use, and where neither has learnt more than the other."""
    ways, apart = tables["ways"], tables["differences"]
    probes = [name for name in (TAGS, CASE) if _name(name) in ways.columns]
    return [
        *(_worse(ways, apart, name, other, name == probes[0]) for name in probes for other in (MIXED, STOPPED)),
        *(_without(ways, apart, name) for name in probes[:1]),
        _said(ways, apart),
        _noticed(ways, apart),
        _paid(ways, apart),
    ]


def _cells(
    ways: Table, apart: Table, column: str, way: str, other: str = MIXED
) -> tuple[float, float, Sequence[float]]:
    that, this = (ways.cell(column, hidden_places_hold=name)[0] for name in (other, way))
    return that, this, apart.cell(column, hidden_places_hold=way, above=other)


def _worse(ways: Table, apart: Table, probe: str, other: str, decides: bool) -> Part:
    that, alone, cell = _cells(ways, apart, _name(probe), ALONE, other)
    where = "" if other == MIXED else ", and not for having learnt less"
    step = ways.cell(STEP, hidden_places_hold=other)[0]
    when = "" if other == MIXED else f", stopped at step {step:.0f}, where it fills in as well"
    return Part(
        f"Its vectors of plain text are worse for a linear probe{where} ({probe}).",
        judged(below(cell)),
        f"Of {probe}, a probe on the vectors gets {alone:.1f} % right where [MASK] stood alone and {that:.1f} % with "
        f"{MIXED}{when}.",
        f"points above: {ranged(cell, 2)}",
        decides,
    )


def _without(ways: Table, apart: Table, probe: str) -> Part:
    mixed, never, cell = _cells(ways, apart, _name(probe), NEVER)
    return Part(
        f"A network that never saw [MASK] has better vectors than {MIXED} ({probe}).",
        judged(above(cell)),
        f"Without any [MASK] a probe gets {never:.1f} % right, with {MIXED} {mixed:.1f} %.",
        f"points above: {ranged(cell, 2)}",
        decides=False,
    )


def _said(ways: Table, apart: Table) -> Part:
    mixed, alone, cell = _cells(ways, apart, GIVEN, ALONE)
    return Part(
        "Asked for a token that it is given, it is less sure of it.",
        judged(above(cell)),
        f"The readout gives a plain token {alone:.2f} nats where [MASK] stood alone, {mixed:.2f} with {MIXED}.",
        f"nats above: {ranged(cell, 2)}",
        decides=False,
    )


def _noticed(ways: Table, apart: Table) -> Part:
    mixed, alone, cell = _cells(ways, apart, NOTICED, ALONE)
    return Part(
        "It is worse at noticing a token that does not belong.",
        judged(below(cell)),
        f"A wrong token has more nats than a right one of its row in {alone:.1f} % of the pairs where [MASK] stood "
        f"alone, in {mixed:.1f} % with {MIXED}; chance is 50 %.",
        f"points above: {ranged(cell, 1)}",
        decides=False,
    )


def _paid(ways: Table, apart: Table) -> Part:
    mixed, alone, cell = _cells(ways, apart, HIDDEN, ALONE)
    return Part(
        "What it has for that: after as many steps it is better at tokens behind [MASK].",
        judged(below(cell)),
        f"A token behind [MASK] costs {alone:.2f} nats where [MASK] stood alone, {mixed:.2f} with {MIXED}.",
        f"nats above: {ranged(cell, 3)}",
        decides=False,
    )


# ------------------------------------------------------------------------------------------------ drawing


def draw(tables: Tables, figure: Any) -> None:
    """Each measure in a panel; a dotted line where the commonest class stands."""
    ways = tables["ways"]
    key, *measures, _ = ways.columns
    figure.set_size_inches(3.1 * len(measures) + 1, 3.4)
    figure.set_layout_engine("constrained", wspace=0.05)
    *seen, last = ways.rows
    short = {HIDDEN: "a token behind [MASK]", GIVEN: "a token it is given", NOTICED: "a wrong token noticed"}
    panels = zip(figure.subplots(1, len(measures), squeeze=False)[0], measures, last[1:-1], strict=True)
    for i, (axes, measure, floor) in enumerate(panels):
        title, label = short.get(measure, measure.split(",")[0]), "nats" if "nats" in measure else "%"
        levels(Table("", ways.columns, tuple(seen)), axes, key, measure, title, label, named=i == 0)
        if floor is not None and floor > axes.get_xlim()[0]:
            axes.axvline(floor, color=GREY, linewidth=1, linestyle=":")
