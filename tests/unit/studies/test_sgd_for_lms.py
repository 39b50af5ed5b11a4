"""The study of optimizers for language models: followers against the real optimizers, and verdicts both ways."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.csv_tables import read_tables
from torch import nn

from nextword.core import pytree as nest
from nextword.core.types import Vocabulary
from nextword.objectives.causal import Causal
from nextword.studies import _experiment as pool
from nextword.studies import sgd_for_lms as runs
from nextword.studies import sgd_for_lms as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, run, verdict, write
from nextword.studies.sgd_for_lms import (
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
    Job,
    Outcome,
    Size,
    Text,
    lower,
    network,
    trained,
)
from nextword.training.optimizers import AveragedSGD, averages, hear, make_optimizer

TINY = Size(width=8, rows=4, length=6, steps=40, train=600, valid=200, test=200)


@pytest.fixture(scope="module")
def text() -> Text:
    draw = np.random.default_rng(0)
    train, valid, test = (draw.integers(0, 12, size) for size in (600, 200, 200))
    return Text(train, valid, test, Vocabulary(12, 0))


# ------------------------------------------------------------------------------------------------ measuring


@pytest.mark.parametrize(("name", "options"), [(ASGD, {"start": 20}), (TRIGGERED, {"patience": PATIENCE})])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_follower_finds_what_the_optimizer_itself_finds(
    text: Text, name: str, options: dict[str, int], dropout: float
) -> None:
    job = Job(SGD, 5.0, dropout, 1, TINY)
    found = trained(job, text)[name]
    with pool.apart():
        lstm = network(job, text.vocabulary)
        optimizer = make_optimizer(lstm.parameters(), {"kind": "nt-asgd", "rate": job.rate, **options})
        assert isinstance(optimizer, AveragedSGD)
        objective, state, curve = Causal({"kind": "rows", "rows": 4, "length": 6}), None, []
        ids = np.roll(text.train, np.random.default_rng(1).integers(600))
        for step, batch in enumerate(islice(objective.layout.batches(ids, 1, 0), 40), 1):
            lstm.train()
            loss = objective.loss(lstm, batch, None if batch.reset_state else state)
            state = nest.detach(loss.state)
            loss.value.backward()
            nn.utils.clip_grad_norm_(lstm.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
            if step % (40 // CHECKS) == 0:
                with averages(optimizer):
                    curve.append(runs.nats(lstm, text.valid))
                hear(optimizer, curve)
    assert optimizer.averaging
    assert found.curve == pytest.approx(curve, rel=1e-6)
    assert found.averaged is not None
    assert found.valid == min(found.curve)


def test_sgd_is_not_moved_by_its_followers(text: Text) -> None:
    alone = trained(Job(SGD, 5.0, 0.0, 0, TINY), text)
    assert set(alone) == {SGD, ASGD, TRIGGERED}
    assert alone[SGD].curve[: CHECKS // 2] == alone[ASGD].curve[: CHECKS // 2]
    assert alone[SGD].curve[-1] != alone[ASGD].curve[-1]
    assert alone[ASGD].averaged == 20
    assert set(trained(Job(MOMENTUM, 0.5, 0.0, 0, TINY), text)) == {MOMENTUM}


def test_the_test_text_is_read_with_the_weights_of_the_best_check(text: Text) -> None:
    same = replace(text, test=text.valid)
    found = trained(Job(SGD, 40.0, 0.0, 0, TINY), same)
    for name, outcome in found.items():
        assert outcome.test == pytest.approx(outcome.valid, rel=1e-6), name
    assert found[SGD].valid < found[SGD].curve[-1]  # which was not the last


def test_jobs_are_repeatable_and_go_to_other_processes(text: Text) -> None:
    job = Job(ADAM, 0.01, 0.4, 2, TINY)
    there, data = pickle.loads(pickle.dumps((job, text)))
    first = trained(job, text)
    assert trained(there, data) == first
    assert pickle.loads(pickle.dumps(first)) == first
    assert trained(replace(job, seed=3), text) != first
    done: list[int] = []
    assert runs.train_all([job], text, lambda: done.append(1)) == {job: first}
    assert done == [1]


def test_as_many_rates_for_each_and_each_twice_the_one_before() -> None:
    assert len({len(grid) for grid in GRIDS.values()}) == 1
    assert len({len(grid[study.QUICK_RATES[walk]]) for walk, grid in GRIDS.items()}) == 1
    for grid in GRIDS.values():
        assert [b / a for a, b in pairwise(grid)] == pytest.approx([2] * (len(grid) - 1))


def test_the_rate_is_chosen_by_validation_alone() -> None:
    def outcome(valid: float, test: float) -> dict[str, Outcome]:
        return {SGD: Outcome(valid, test, ()), ASGD: Outcome(-valid, test, ())}

    found = {Job(SGD, rate, 0.4, 0, TINY): outcome(rate, -rate) for rate in (1.0, 2.0, 3.0)}
    found |= {Job(SGD, 9.0, 0.0, 0, TINY): outcome(-99, 0)}
    assert study._best(found, SGD, 0.4) == 1.0
    assert study._best(found, ASGD, 0.4) == 3.0


def test_per_cent_of_perplexity_with_its_interval() -> None:
    these, those = {0: 4.0, 1: 5.0, 2: 6.0}, {0: 4.1, 1: 5.2, 2: 6.3}
    found = lower(these, those)
    assert found is not None
    half = 4.30 * 0.1 / math.sqrt(3)  # differences 0.1, 0.2, 0.3
    assert found == pytest.approx([100 * (1 - math.exp(-x)) for x in (0.2, 0.2 - half, 0.2 + half)])
    assert lower({0: 1.0}, {0: 2.0}) is None


def test_a_small_run_from_text_to_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(study, "QUICK", Size(width=8, rows=4, length=6, steps=10, train=600, valid=500, test=500))
    for module in (study, runs):
        monkeypatch.setattr(module, "CHECKS", 5)
    monkeypatch.setattr(pool, "cores", lambda: 1)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    reports: list[tuple[float, float]] = []
    settings = Settings(quick=True, seeds=(0, 1), data="python")
    finding = run("sgd-for-lms", study, settings, lambda done, total: reports.append((done, total)))
    assert torch.equal(torch.rand(3), expected)
    assert reports[-1][0] == reports[-1][1]
    table = finding.tables["optimizers"]
    assert set(table.column("optimizer")) == set(WALK)
    for row in finding.tables["rates"].rows:
        best = min(finding.tables["rates"].column("valid nats", optimizer=row[0], dropout=row[1]))
        chosen = table.cell("rate", optimizer=row[0], dropout=row[1])
        assert (row[3] == best) == (row[2] == chosen)
    write(finding, study, tmp_path)
    tables = read_tables(tmp_path)
    assert tuple(study.judge(tables)) == finding.parts


# ------------------------------------------------------------------------------------------------ verdicts


def made(below: dict[str, Any], place: dict[str, str] | None = None) -> dict[str, Table]:
    """Tables in which these optimizers are so many per cent below SGD."""
    rows = []
    for drop in (0.4, 0.0):
        for name in WALK:
            fired = ("5 of 5", [300, 300, 300]) if name in (ASGD, TRIGGERED) else (None, None)
            where = (place or {}).get(name, "inside")
            rows.append((name, drop, 1.0, where, [4.0, 3.9, 4.1], below.get(name), *fired))
    columns = ("optimizer", "dropout", "rate", "in its grid", "test nats", "below SGD, %", "averaged", "from step")
    return {"optimizers": Table("", columns, tuple(rows))}


WORSE, BETTER, UNSURE = [-5.0, -6.0, -4.0], [5.0, 4.0, 6.0], [1.0, -2.0, 4.0]
AS_CLAIMED = {MOMENTUM: WORSE, ADAM: WORSE, ASGD: BETTER, TRIGGERED: BETTER}


def test_a_claim_as_it_is_made_holds() -> None:
    parts = study.judge(made(AS_CLAIMED))
    assert [part.verdict for part in parts] == [HOLDS] * 8 + [UNDECIDED] * 2
    assert [part.decides for part in parts] == [True] * 4 + [False] * 6
    assert verdict(parts) == HOLDS


@pytest.mark.parametrize(
    ("change", "part", "expected"),
    [
        ({MOMENTUM: BETTER}, 0, FAILS),
        ({MOMENTUM: UNSURE}, 0, UNDECIDED),
        ({ADAM: BETTER}, 1, FAILS),
        ({ASGD: WORSE}, 2, FAILS),
        ({TRIGGERED: WORSE}, 3, FAILS),
        ({TRIGGERED: [0.0, 0.0, 0.0]}, 3, UNDECIDED),  # a trigger that never fired is SGD itself
        ({ADAM: None}, 1, UNDECIDED),  # one seed
    ],
)
def test_other_numbers_turn_a_part_round(change: dict[str, Any], part: int, expected: str) -> None:
    parts = study.judge(made({**AS_CLAIMED, **change}))
    found = [p.verdict for p in parts[:4]]
    assert found[part] == expected
    assert found[:part] + found[part + 1 :] == [HOLDS] * 3
    assert verdict(parts) == (FAILS if expected == FAILS else UNDECIDED)


def test_who_loses_at_the_edge_of_its_grid_has_not_lost_yet_and_it_is_said() -> None:
    parts = study.judge(made(AS_CLAIMED, {ADAM: "highest"}))
    assert [p.verdict for p in parts[:4]] == [HOLDS, UNDECIDED, HOLDS, HOLDS]
    assert "Adam's rate is the highest of its grid" in parts[1].found
    parts = study.judge(made(AS_CLAIMED, {SGD: "lowest"}))  # SGD wins all the same where it won, and says where it is
    assert [p.verdict for p in parts[:4]] == [HOLDS, HOLDS, UNDECIDED, UNDECIDED]
    assert "SGD's rate is the lowest of its grid" in parts[0].found


@pytest.mark.parametrize(
    ("adam", "place", "expected"),
    [
        ([4.3, 4.2, 4.4], "inside", HOLDS),
        ([3.7, 3.6, 3.8], "inside", FAILS),
        ([4.2, 4.05, 4.3], "inside", UNDECIDED),
        ([4.3, 4.2, 4.4], "highest", UNDECIDED),
    ],
)
def test_averages_against_adam(adam: list[float], place: str, expected: str) -> None:
    tables = made(AS_CLAIMED, {ADAM: place})
    rows = [(*row[:4], adam, *row[5:]) if row[0] == ADAM else row for row in tables["optimizers"].rows]
    parts = study.judge({"optimizers": replace(tables["optimizers"], rows=tuple(rows))})
    assert [part.verdict for part in parts[-2:]] == [expected] * 2


def test_a_trigger_that_never_fired_is_said_to_be_sgd() -> None:
    tables = made({**AS_CLAIMED, TRIGGERED: [0.0, 0.0, 0.0]})
    rows = [(*row[:6], "0 of 5", None) if row[0] == TRIGGERED else row for row in tables["optimizers"].rows]
    part = study.judge({"optimizers": replace(tables["optimizers"], rows=tuple(rows))})[3]
    assert (part.verdict, "never began to average" in part.found) == (UNDECIDED, True)
