from __future__ import annotations

import numpy as np
import pytest

from nextword.micro import NPLM
from nextword.studies import autograd as study
from nextword.studies._study import FAILS, HOLDS, Settings, Tables, overall_verdict
from tests.support.study_tables import change, verdicts


@pytest.fixture(scope="module")
def tables() -> Tables:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "WORDS", 400)
        patch.setattr(study, "VOCABULARY", 40)
        patch.setattr(study, "QUICK_REPEATS", 2)
        measured, _ = study.measure(Settings((0, 1), quick=True, data="python"), lambda done, total: None)
    return measured


def test_engine_is_exact_and_finite_differences_are_not(tables: Tables) -> None:
    assert verdicts(study.judge(tables))[:2] == [HOLDS, HOLDS]
    errors = [cell[0] for cell in tables["differences"].column("NPLM")]
    best = int(np.argmin(errors))
    assert 0 < best < len(errors) - 1  # too large a step is wrong, and too small a one


def test_graph_has_the_gradients_of_the_neuron(tables: Tables) -> None:
    out = np.tanh(0.5 * -1.2 + 0.3)
    slope = 2 * (out - 1) * (1 - out**2)
    gradients = {row[1]: row[4] for row in tables["graph"].rows}
    assert gradients["w"] == pytest.approx(slope * 0.5)
    assert gradients["x"] == pytest.approx(slope * -1.2)
    assert gradients["loss"] == 1.0


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("exact", "largest difference / largest gradient", [1e-6, 1e-7, 1e-5]),
        ("cost", study.FACTOR, [9.0, 8.0, 10.0]),
        ("differences", "RNN", [1e-15, 1e-16, 1e-14]),
    ],
)
def test_numbers_that_contradict_the_claim_reverse_the_verdict(
    tables: Tables, table: str, column: str, value: list[float]
) -> None:
    cheap = {**tables, "cost": change(tables["cost"], study.FACTOR, [2.0, 1.9, 2.1])}
    assert overall_verdict(study.judge(cheap)) == HOLDS
    assert overall_verdict(study.judge({**cheap, table: change(cheap[table], column, value)})) == FAILS


def test_rare_words_share_an_id() -> None:
    ids = study.number_words(["the", "cat", "the", "dog"])
    assert ids.tolist()[0] == ids.tolist()[2] == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "VOCABULARY", 2)
        assert study.number_words(["the", "cat", "the", "dog"]).tolist() == [1, 0, 1, 0]


def test_weights_are_as_before_after_finite_differences() -> None:
    model = NPLM(11, seed=3)
    before = {name: weight.data.copy() for name, weight in model.weights.items()}
    study.difference_errors(model, np.random.default_rng(0).integers(0, 11, (4, 9)), seed=1)
    assert all(np.array_equal(before[name], weight.data) for name, weight in model.weights.items())
