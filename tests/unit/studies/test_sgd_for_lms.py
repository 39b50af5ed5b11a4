from __future__ import annotations

import math
import pickle
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from torch import nn

from nextword.core import pytree
from nextword.core.types import Vocabulary
from nextword.objectives.causal import CausalObjective
from nextword.studies import _experiment
from nextword.studies import sgd_for_lms as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Table, overall_verdict
from nextword.studies.sgd_for_lms import ADAM, ASGD, MOMENTUM, SGD, TRIGGERED, Outcome, Run, Size, Text, train_run
from nextword.training.optimizers import AveragedSGD, make_optimizer
from tests.support.study_tables import change, verdicts

TINY = Size(width=8, rows=4, length=6, steps=40, train=600, valid=200, test=200)


@pytest.fixture(scope="module")
def text() -> Text:
    draw = np.random.default_rng(0)
    train, valid, test = (draw.integers(0, 12, size) for size in (600, 200, 200))
    return Text(train, valid, test, Vocabulary(12, 0))


# ------------------------------------------------------------------------------------------------ training


@pytest.mark.parametrize(("name", "options"), [(ASGD, {"start": 20}), (TRIGGERED, {"patience": study.PATIENCE})])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_follower_equals_the_averaging_optimizer(
    text: Text, name: str, options: dict[str, int], dropout: float
) -> None:
    run = Run(SGD, 5.0, dropout, 1, TINY)
    outcome = train_run(run, text)[name]
    with _experiment.isolated():
        lstm = study.make_network(run, text.vocabulary)
        optimizer = make_optimizer(lstm.parameters(), {"kind": "nt-asgd", "rate": run.rate, **options})
        assert isinstance(optimizer, AveragedSGD)
        objective, state, curve = CausalObjective({"kind": "rows", "rows": 4, "length": 6}), None, []
        ids = np.roll(text.train, np.random.default_rng(1).integers(600))
        for step, batch in enumerate(islice(objective.layout.batches(ids, 1, 0), 40), 1):
            lstm.train()
            loss = objective.loss(lstm, batch, None if batch.reset_state else state)
            state = pytree.detach(loss.state)
            loss.value.backward()
            nn.utils.clip_grad_norm_(lstm.parameters(), study.CLIP)
            optimizer.step()
            optimizer.zero_grad()
            if step % (40 // study.CHECKS) == 0:
                with optimizer.averaged_weights():
                    curve.append(study.nats_per_token(lstm, text.valid))
                optimizer.on_validation(curve)
    assert optimizer.is_averaging
    assert outcome.curve == pytest.approx(curve, rel=1e-6)
    assert outcome.averaged is not None
    assert outcome.valid == min(outcome.curve)


def test_followers_do_not_change_sgd(text: Text) -> None:
    outcomes = train_run(Run(SGD, 5.0, 0.0, 0, TINY), text)
    assert set(outcomes) == {SGD, ASGD, TRIGGERED}
    half = study.CHECKS // 2
    assert outcomes[SGD].curve[:half] == outcomes[ASGD].curve[:half]
    assert outcomes[SGD].curve[-1] != outcomes[ASGD].curve[-1]
    assert outcomes[ASGD].averaged == 20
    assert set(train_run(Run(MOMENTUM, 0.5, 0.0, 0, TINY), text)) == {MOMENTUM}


def test_test_text_is_scored_with_the_best_weights(text: Text) -> None:
    outcomes = train_run(Run(SGD, 40.0, 0.0, 0, TINY), replace(text, test=text.valid))
    for name, outcome in outcomes.items():
        assert outcome.test == pytest.approx(outcome.valid, rel=1e-6), name
    assert outcomes[SGD].valid < outcomes[SGD].curve[-1]  # the best was not the last


def test_runs_are_reproducible_and_can_be_pickled(text: Text) -> None:
    run = Run(ADAM, 0.01, 0.4, 2, TINY)
    copied_run, copied_text = pickle.loads(pickle.dumps((run, text)))
    outcome = train_run(run, text)
    assert train_run(copied_run, copied_text) == outcome
    assert pickle.loads(pickle.dumps(outcome)) == outcome
    assert train_run(replace(run, seed=3), text) != outcome
    done: list[int] = []
    assert study.train_all([run], text, lambda: done.append(1)) == {run: outcome}
    assert done == [1]


def test_grids_are_equally_large_and_double_each_step() -> None:
    assert len({len(grid) for grid in study.GRIDS.values()}) == 1
    assert len({len(grid[study.QUICK_GRIDS[name]]) for name, grid in study.GRIDS.items()}) == 1
    for grid in study.GRIDS.values():
        assert [b / a for a, b in pairwise(grid)] == pytest.approx([2] * (len(grid) - 1))


def test_learning_rate_is_chosen_by_validation_loss() -> None:
    def outcomes(valid: float, test: float) -> dict[str, Outcome]:
        return {SGD: Outcome(valid, test, ()), ASGD: Outcome(-valid, test, ())}

    results = {Run(SGD, rate, 0.4, 0, TINY): outcomes(rate, -rate) for rate in (1.0, 2.0, 3.0)}
    results |= {Run(SGD, 9.0, 0.0, 0, TINY): outcomes(-99, 0)}
    assert study.choose_rate(results, SGD, 0.4) == 1.0
    assert study.choose_rate(results, ASGD, 0.4) == 3.0


def test_perplexity_difference_has_students_interval() -> None:
    cell = study.perplexity_below({0: 4.0, 1: 5.0, 2: 6.0}, {0: 4.1, 1: 5.2, 2: 6.3})
    half = 4.30 * 0.1 / math.sqrt(3)  # differences 0.1, 0.2, 0.3
    assert cell == pytest.approx([100 * (1 - math.exp(-x)) for x in (0.2, 0.2 - half, 0.2 + half)])
    assert study.perplexity_below({0: 1.0}, {0: 2.0}) is None


# ------------------------------------------------------------------------------------------------ verdicts

WORSE, BETTER, UNSURE = [-5.0, -6.0, -4.0], [5.0, 4.0, 6.0], [1.0, -2.0, 4.0]
AS_CLAIMED = {MOMENTUM: WORSE, ADAM: WORSE, ASGD: BETTER, TRIGGERED: BETTER}


def make_tables(below: dict[str, Any], places: dict[str, str] | None = None) -> dict[str, Table]:
    """Perplexities below SGD's in per cent, and places of the learning rates in their grids."""
    rows = []
    for drop in (0.4, 0.0):
        for name in study.OPTIMIZERS:
            fired = ("5 of 5", [300, 300, 300]) if name in (ASGD, TRIGGERED) else (None, None)
            place = (places or {}).get(name, "inside")
            rows.append((name, drop, 1.0, place, [4.0, 3.9, 4.1], below.get(name), *fired))
    columns = ("optimizer", "dropout", study.RATE, study.PLACE, study.TEST, study.BELOW, study.FIRED, study.START)
    return {"optimizers": Table("", columns, tuple(rows))}


def test_claimed_order_holds() -> None:
    parts = study.judge(make_tables(AS_CLAIMED))
    assert verdicts(parts) == [HOLDS] * 8 + [UNDECIDED] * 2
    assert [part.decides for part in parts] == [True] * 4 + [False] * 6
    assert overall_verdict(parts) == HOLDS


@pytest.mark.parametrize(
    ("cells", "part", "expected"),
    [
        ({MOMENTUM: BETTER}, 0, FAILS),
        ({MOMENTUM: UNSURE}, 0, UNDECIDED),
        ({ADAM: BETTER}, 1, FAILS),
        ({ASGD: WORSE}, 2, FAILS),
        ({TRIGGERED: WORSE}, 3, FAILS),
        ({TRIGGERED: [0.0, 0.0, 0.0]}, 3, UNDECIDED),  # a trigger that never fired is SGD
        ({ADAM: None}, 1, UNDECIDED),  # one seed
    ],
)
def test_contrary_numbers_reverse_a_part(cells: dict[str, Any], part: int, expected: str) -> None:
    parts = study.judge(make_tables({**AS_CLAIMED, **cells}))
    results = verdicts(parts[:4])
    assert results[part] == expected
    assert results[:part] + results[part + 1 :] == [HOLDS] * 3
    assert overall_verdict(parts) == (FAILS if expected == FAILS else UNDECIDED)


def test_loser_at_the_edge_of_its_grid_is_undecided() -> None:
    parts = study.judge(make_tables(AS_CLAIMED, {ADAM: "highest"}))
    assert verdicts(parts[:4]) == [HOLDS, UNDECIDED, HOLDS, HOLDS]
    assert "Adam's learning rate is the highest" in parts[1].evidence
    parts = study.judge(make_tables(AS_CLAIMED, {SGD: "lowest"}))
    assert verdicts(parts[:4]) == [HOLDS, HOLDS, UNDECIDED, UNDECIDED]
    assert "SGD's learning rate is the lowest" in parts[0].evidence


@pytest.mark.parametrize(
    ("adam", "place", "expected"),
    [
        ([4.3, 4.2, 4.4], "inside", HOLDS),
        ([3.7, 3.6, 3.8], "inside", FAILS),
        ([4.2, 4.05, 4.3], "inside", UNDECIDED),
        ([4.3, 4.2, 4.4], "highest", UNDECIDED),
    ],
)
def test_averages_are_compared_with_adam_by_ranges(adam: list[float], place: str, expected: str) -> None:
    table = change(make_tables(AS_CLAIMED, {ADAM: place})["optimizers"], study.TEST, adam, optimizer=ADAM)
    assert verdicts(study.judge({"optimizers": table})[-2:]) == [expected] * 2


def test_trigger_that_never_fired_is_reported() -> None:
    table = make_tables({**AS_CLAIMED, TRIGGERED: [0.0, 0.0, 0.0]})["optimizers"]
    table = change(table, study.START, None, optimizer=TRIGGERED)
    part = study.judge({"optimizers": table})[3]
    assert (part.verdict, "never averaging" in part.evidence) == (UNDECIDED, True)
