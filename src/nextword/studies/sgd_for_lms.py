"""Does plain SGD beat momentum and Adam for an LSTM language model, and does averaging its weights beat it?

One small LSTM is trained by each optimizer for the same number of steps at a constant rate. The rate is the best of a
grid by the validation text, the grids being of one size; then all seeds are trained at that rate and the test text is
read. All of it twice: with dropout, which is the setting of the papers that say so, and without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nextword.corpora import Corpus
from nextword.studies.apart import apart
from nextword.studies.measures import over_seeds
from nextword.studies.sgd_for_lms_figure import draw
from nextword.studies.sgd_for_lms_runs import (
    ADAM,
    ASGD,
    CHECKS,
    CLIP,
    GRIDS,
    MOMENTUM,
    PATIENCE,
    SGD,
    TRIGGERED,
    WALK,
    WALKS,
    Job,
    Outcome,
    Size,
    Text,
    lower,
    network,
    train_all,
)
from nextword.studies.study import Claim, Part, Progress, Settings, Table, Tables, judged
from nextword.studies.text import corpus_for, enough
from nextword.tokens import train_tokenizer, vocabulary

__all__ = ["CLAIM", "draw", "judge", "measure"]
CLAIM = Claim(
    "For language modelling plain SGD is better than SGD with momentum and than Adam, and averaged SGD (ASGD, NT-ASGD) "
    "is better than SGD.",
    "Merity, Keskar & Socher 2018, section 4; lecture notes on AWD-LSTM: non-monotonically triggered ASGD",
)
PIECES = 1000  # of the BPE
FULL = Size(width=112, rows=16, length=24, steps=600, train=40_000, valid=6_000, test=20_000)
QUICK = Size(width=64, rows=8, length=20, steps=250, train=15_000, valid=2_000, test=6_000)
QUICK_RATES = {SGD: slice(0, 3), MOMENTUM: slice(0, 3), ADAM: slice(2, 5)}  # of each grid as many, where it is low
DROPOUTS = (0.4, 0.0)
ORDER = (SGD, MOMENTUM, ADAM, ASGD, TRIGGERED)
CLOSE = 0.1  # per cent of perplexity: nothing to speak of


def measure(settings: Settings, progress: Progress) -> tuple[dict[str, Table], dict[str, Any]]:
    corpus = corpus_for(settings.data)
    size = QUICK if settings.quick else FULL
    text, steps = _text(corpus, size), size.steps
    grids = {walk: grid[QUICK_RATES[walk]] if settings.quick else grid for walk, grid in GRIDS.items()}
    first, *others = settings.seeds
    searched = [Job(w, rate, drop, first, size) for drop in DROPOUTS for w, grid in grids.items() for rate in grid]
    done, total = 0, len(searched) + len(DROPOUTS) * (len(WALKS) + 1) * len(others)

    def ahead() -> None:
        nonlocal done
        done += 1
        progress(min(done, total), total)

    found = train_all(searched, text, ahead)
    tried = [(n, job.dropout, job.rate, found[job][n].valid) for n in ORDER for job in searched if n in found[job]]
    chosen = {(name, drop): _best(found, name, drop) for drop in DROPOUTS for name in ORDER}
    again = [Job(WALK[n], rate, d, seed, size) for seed in others for (n, d), rate in chosen.items()]
    again = list(dict.fromkeys(again))
    total = len(searched) + len(again)
    found |= train_all(again, text, ahead) if again else {}

    def outcomes(name: str, drop: float) -> dict[int, Outcome]:
        walk, rate = WALK[name], chosen[name, drop]
        return {seed: found[Job(walk, rate, drop, seed, size)][name] for seed in settings.seeds}

    runs = {key: outcomes(*key) for key in chosen}
    tables = {
        "optimizers": _compared(runs, chosen, grids),
        "rates": Table(
            f"Validation by rate, seed {first}",
            ("optimizer", "dropout", "rate", "valid nats"),
            tuple(tried),
            detailed=True,
        ),
        "curves": Table(
            "Validation on the way, at the chosen rate",
            ("optimizer", "dropout", "step", "valid nats"),
            tuple(
                (name, drop, round(steps * (i + 1) / CHECKS), over_seeds([run.curve[i] for run in by_seed.values()]))
                for (name, drop), by_seed in runs.items()
                for i in range(CHECKS)
            ),
            detailed=True,
        ),
    }
    with apart():
        count = sum(p.numel() for p in network(searched[0], text.vocabulary).parameters())
    epochs = steps * size.rows * size.length / len(text.train)
    return tables, {
        "data": f"{corpus.name} ({corpus.source}): {len(text.train):,} tokens to learn from, {len(text.valid):,} to "
        f"choose by, {len(text.test):,} to test on; BPE of {PIECES:,} pieces",
        "network": f"LSTM of {size.width}, tied, {count:,} parameters; state carried from piece to piece",
        "training": f"{steps} steps of {size.rows} pieces of {size.length} tokens ({epochs:.1f} epochs), constant "
        f"rate, clipped at {CLIP}; {CHECKS} checks, of which the best is kept",
        "rates": "; ".join(f"{walk}: {', '.join(f'{rate:g}' for rate in grid)}" for walk, grid in grids.items())
        + f" (chosen by seed {first}; ASGD and NT-ASGD choose from SGD's)",
        "averaging": f"ASGD from step {steps // 2} on; NT-ASGD from where a check is worse than the best of those "
        f"before the last {PATIENCE}",
        "intervals": "95 %, Student's t on differences paired by seed",
    }


def _text(corpus: Corpus, size: Size) -> Text:
    """Documents in a random order that is always the same, so that the training text is like the others."""
    tokenizer = train_tokenizer({"kind": "bpe", "size": PIECES}, (d.text for d in corpus.documents("train")))

    def ids(split: str, wanted: int) -> np.ndarray:
        documents = [document.text for document in corpus.documents(split)]
        parts: list[np.ndarray] = []
        for at in np.random.default_rng(0).permutation(len(documents)):
            parts.append(np.asarray(tokenizer.encode(documents[at]).ids))
            if sum(map(len, parts)) >= wanted:
                break
        found = np.concatenate(parts)[:wanted] if parts else np.zeros(0, np.int64)
        enough(len(found), wanted // 2, f"tokens in its split '{split}'", corpus)
        return found

    return Text(ids("train", size.train), ids("valid", size.valid), ids("test", size.test), vocabulary(tokenizer))


def _best(found: dict[Job, dict[str, Outcome]], name: str, drop: float) -> float:
    tried = {job.rate: runs[name].valid for job, runs in found.items() if name in runs and job.dropout == drop}
    return min(tried, key=lambda rate: tried[rate])


def _compared(
    runs: dict[tuple[str, float], dict[int, Outcome]],
    chosen: dict[tuple[str, float], float],
    grids: dict[str, tuple[float, ...]],
) -> Table:
    rows = []
    for (name, drop), by_seed in runs.items():
        rate, grid = chosen[name, drop], grids[WALK[name]]
        tests = {seed: run.test for seed, run in by_seed.items()}
        base = {seed: run.test for seed, run in runs[SGD, drop].items()}
        began = [run.averaged for run in by_seed.values() if run.averaged is not None]
        fired = None if name not in (ASGD, TRIGGERED) else f"{len(began)} of {len(by_seed)}"
        rows.append(
            (
                name,
                drop,
                rate,
                "lowest" if rate == grid[0] else "highest" if rate == grid[-1] else "inside",
                over_seeds(list(tests.values())),
                None if name == SGD else lower(tests, base),
                fired,
                over_seeds(began) if began else None,
            )
        )
    columns = ("optimizer", "dropout", "rate", "in its grid", "test nats", "below SGD, %", "averaged", "from step")
    return Table("Each optimizer at the best of its rates, same number of steps", columns, tuple(rows))


# ------------------------------------------------------------------------------------------------ the verdict


def judge(tables: Tables) -> list[Part]:
    table = tables["optimizers"]
    parts = []
    drops = sorted(dict.fromkeys(table.column("dropout")), reverse=True)
    for drop in drops:
        for other in (MOMENTUM, ADAM):
            parts.append(_beats(table, other, drop, decides=drop > 0))
        for average in (ASGD, TRIGGERED):
            parts.append(_beaten(table, average, drop, decides=drop > 0))
    return parts + [_over_adam(table, drop) for drop in drops]


def _setting(drop: float) -> str:
    return f"With dropout {drop:g}" if drop else "Without dropout"


def _cells(table: Table, name: str, drop: float) -> list[Any]:
    return [table.cell(column, optimizer=name, dropout=drop) for column in ("test nats", "below SGD, %", "rate")]


def _edge(table: Table, names: Sequence[str], drop: float) -> str:
    """Whose rate was chosen at an edge of its grid, and may be better beyond it."""
    where = {name: table.cell("in its grid", optimizer=name, dropout=drop) for name in names}
    said = [f"{name}'s rate is the {place} of its grid" for name, place in where.items() if place != "inside"]
    return f" {'; '.join(said)}, and one beyond might be better." if said else ""


def _uncertainty(cell: Sequence[float] | None, name: str, drop: float) -> str:
    if cell is None:
        return "no interval with one seed"
    return f"{name}, {_setting(drop).lower()}: 95 % interval {_signed(cell[1])} to {_signed(cell[2])} %"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _amount(cell: Sequence[float], name: str) -> str:
    if abs(cell[0]) < CLOSE:
        return f"{name}'s perplexity is SGD's"
    return f"{name}'s perplexity is on average {abs(cell[0]):.1f} % {'below' if cell[0] > 0 else 'above'} SGD's"


def _beats(table: Table, other: str, drop: float, decides: bool) -> Part:
    """SGD against another. Who loses at an edge of its grid may have lost for that."""
    (base, *_), (tests, cell, _) = _cells(table, SGD, drop), _cells(table, other, drop)
    holds = None if cell is None else True if cell[2] < 0 else False if cell[1] > 0 else None
    loser = {True: other, False: SGD}.get(holds) if holds is not None else None
    if loser and _edge(table, (loser,), drop):
        holds = None
    said = f"{_setting(drop)} SGD has {base[0]:.3f} nats and {other} {tests[0]:.3f}"
    return Part(
        f"{_setting(drop)}, SGD is better than {other}.",
        judged(holds),
        f"{said}: {_amount(cell, other)}." + _edge(table, (SGD, other), drop) if cell else f"{said}.",
        _uncertainty(cell, other, drop),
        decides,
    )


def _beaten(table: Table, average: str, drop: float, decides: bool) -> Part:
    (base, *_), (tests, cell, rate) = _cells(table, SGD, drop), _cells(table, average, drop)
    holds = None if cell is None else True if cell[1] > 0 else False if cell[2] < 0 else None
    loser = {True: SGD, False: average}.get(holds) if holds is not None else None
    if loser and _edge(table, (loser,), drop):
        holds = None
    fired, began = (table.cell(column, optimizer=average, dropout=drop) for column in ("averaged", "from step"))
    when = f"averaging in {fired} seeds, from step {began[0]:.0f}" if began else "it never began to average: it is SGD"
    said = f"{_setting(drop)} {average} has {tests[0]:.3f} nats at rate {rate:g} and SGD {base[0]:.3f} ({when})"
    return Part(
        f"{_setting(drop)}, {average} is better than SGD.",
        judged(holds),
        f"{said}: {_amount(cell, average)}." + _edge(table, (SGD, average), drop) if cell else f"{said}.",
        _uncertainty(cell, average, drop),
        decides,
    )


def _over_adam(table: Table, drop: float) -> Part:
    """The better of the averages against Adam, by the ranges over seeds."""
    averages = {name: table.cell("test nats", optimizer=name, dropout=drop) for name in (ASGD, TRIGGERED)}
    name, mine = min(averages.items(), key=lambda pair: pair[1][0])
    adam = table.cell("test nats", optimizer=ADAM, dropout=drop)
    holds = True if mine[2] < adam[1] else False if mine[1] > adam[2] else None
    loser = {True: ADAM, False: name}.get(holds) if holds is not None else None
    return Part(
        f"{_setting(drop)}, averaged SGD is better than Adam.",
        judged(None if loser and _edge(table, (loser,), drop) else holds),
        f"{_setting(drop)} {name} has {mine[0]:.3f} nats and Adam {adam[0]:.3f}." + _edge(table, (name, ADAM), drop),
        f"range over seeds: {mine[1]:.3f} to {mine[2]:.3f}, Adam {adam[1]:.3f} to {adam[2]:.3f}",
        decides=False,
    )
