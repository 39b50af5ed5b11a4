"""The verdict of the study of teacher forcing, from its numbers alone."""

from __future__ import annotations

from typing import Any

from nextword.studies.measures import above
from nextword.studies.small_transformers import ranged
from nextword.studies.study import Claim, Part, Tables, judged

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
    gaps = [_judge_writing(tables, TAUGHT, OWN, where) - _judge_writing(tables, TAUGHT, TRUTH, where) for where in (first, last)]
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
