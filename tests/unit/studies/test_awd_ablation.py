"""The ablation: each variant lacks just its technique, the verdict follows the numbers, and runs are reproducible."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.csv_tables import read_tables

from nextword.recipe import Recipe, load_recipe
from nextword.studies import _experiment as pool
from nextword.studies import awd_ablation as runs
from nextword.studies import awd_ablation as study
from nextword.studies import find_study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Finding, Settings, Table, run, verdict, write
from nextword.tokenizers.training import train_tokenizer
from nextword.training.device import choose_device

WORSE, BETTER, UNSURE = [20.0, 15.0, 25.0], [-20.0, -25.0, -15.0], [2.0, -3.0, 7.0]


def made_up(**cells: list[float | None]) -> dict[str, Table]:
    """Every removal hurts, unless said otherwise (a space in a name is written _)."""
    given = {name.replace("_", " "): cell for name, cell in cells.items()}
    names = [*study.REMOVE, study.ALL_OFF]
    harm = [(name, given.get(name, WORSE), given.get(name, WORSE), 30.0, 40.0) for name in names]
    nats = [(name, 1000, [3.0] * 3, [3.6] * 3, [3.5] * 3) for name in (study.FULL, *names)]
    return {
        "harm": Table("", ("without", "valid", "test", "valid, in the paper", "test, in the paper"), tuple(harm)),
        "nats": Table("", ("without", "parameters", "train", "valid", "test"), tuple(nats)),
    }


def test_when_every_removal_hurts_the_claim_holds() -> None:
    parts = study.judge(made_up())
    assert verdict(parts) == HOLDS
    assert len([part for part in parts if part.decides]) == len(study.REMOVE) == 7
    assert "20 thousandths of a nat more (in the paper 40 more, on PTB)" in parts[0].found


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"weight_decay": BETTER}, FAILS),
        ({"weight_decay": UNSURE}, UNDECIDED),
        ({"weight_decay": UNSURE, "word_dropout": BETTER}, FAILS),
        ({"weight_decay": [20.0, None, None]}, UNDECIDED),  # one seed, from JSON
        ({"weight_decay": [20.0, -math.inf, math.inf]}, UNDECIDED),
        ({"any_regulariser": BETTER}, HOLDS),  # decides nothing
    ],
)
def test_a_removal_that_helps_refutes_and_one_that_may_leaves_it_open(
    cells: dict[str, list[float | None]], expected: str
) -> None:
    assert verdict(study.judge(made_up(**cells))) == expected


@pytest.mark.parametrize(
    ("cell", "expected"), [([90.0, 80.0, 99.0], HOLDS), (WORSE, UNDECIDED), ([2.0, 1.0, 3.0], FAILS)]
)
def test_what_matters_most_is_found_from_intervals(cell: list[float], expected: str) -> None:
    assert study.judge(made_up(weight_dropping=cell))[-1].verdict == expected


def test_averaging_that_never_began_is_not_called_harmless() -> None:
    tables = made_up()
    rows = [
        (name, [0.0] * 3, [0.0] * 3, 1.0, 1.0) if "NT" in name else (name, *rest) for name, *rest in tables["harm"].rows
    ]
    part = study.judge({**tables, "harm": replace(tables["harm"], rows=tuple(rows))})[0]
    assert part.verdict == UNDECIDED
    assert "had not come into play" in part.found


# ------------------------------------------------------------------------------------------------ variants


@pytest.mark.parametrize("name", [study.SMALL, study.LARGE])
def test_each_variant_lacks_one_technique_and_nothing_else(name: str) -> None:
    recipe = load_recipe(name)
    found = study.variants(recipe)
    assert found[study.FULL] == recipe
    where = {
        "averaging (NT-ASGD)": {"optimizer.start", "schedule"},
        "varying lengths": {"batches"},
        "word dropout": {"words"},
        "weight decay": {"optimizer.decay"},
        "AR and TAR": {"objective"},
        "a smaller embedding": {"embedding"},
        "weight dropping": {"connections"},
    }
    for technique, expected in where.items():
        assert changes(recipe, found[technique]) == expected
    regularisers = set().union({"input", "between", "output"}, *where.values()) - {"embedding"}
    assert changes(recipe, found[study.ALL_OFF]) == regularisers
    assert found["a smaller embedding"].model["embedding"] == recipe.model["width"]
    assert found["varying lengths"].phases[0].batches["length"] == recipe.phases[0].batches["length"]


def changes(one: Recipe, other: Recipe) -> set[str]:
    out = {key for key in one.model.keys() | other.model.keys() if one.model.get(key) != other.model.get(key)}
    before, after = one.phases[0], other.phases[0]
    for key, value in vars(before).items():
        now = getattr(after, key)
        if key == "optimizer":
            out |= {f"{key}.{k}" for k in value.keys() | now.keys() if value.get(k) != now.get(k)}
        elif now != value:
            out.add(key)
    assert replace(one, model=other.model, phases=other.phases) == other
    return out


def test_the_papers_size_needs_its_text_a_gpu_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "choose_device", lambda: torch.device("cuda"))
    assert study.at_paper_size(Settings(data="ptb"))
    assert not study.at_paper_size(Settings(data="ptb", quick=True))
    assert not study.at_paper_size(Settings())
    monkeypatch.setattr(study, "choose_device", lambda: torch.device("cpu"))
    assert not study.at_paper_size(Settings(data="ptb"))


# ------------------------------------------------------------------------------------------------ runs


def test_intervals_are_students() -> None:
    middle, low, high = runs.paired([2.01, 2.02, 2.03], [2.0, 2.0, 2.0])
    assert middle == pytest.approx(20)
    assert (high - middle, middle - low) == pytest.approx((4.30 * 10 / 3**0.5,) * 2)
    assert runs.paired([2.01], [2.0])[1:] == [-math.inf, math.inf]
    many = runs.paired(np.tile([0.001, -0.001], 50).tolist(), [0.0] * 100)
    assert many[2] == pytest.approx(1.984 * math.sqrt(100 / 99) / 10, rel=1e-3)


def small_text(folder: Path) -> runs.Text:
    tokenizer = train_tokenizer({"kind": "bytes"}, ())
    ids = np.random.default_rng(0).integers(97, 105, 1200)
    return runs.Text.write(folder, tokenizer, train=ids[:800], valid=ids[800:1000], test=ids[1000:])


def small_recipe(**model: object) -> Recipe:
    recipe = runs.with_model(load_recipe(study.SMALL), embedding=6, width=8, **model)
    batches = {"kind": "variable", "rows": 4, "length": 10}
    return runs.with_seed(recipe, 0, steps=6, validate=2, batches=batches, log=10**6)


def test_side_by_side_comes_to_what_one_after_the_other_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, heard = small_text(tmp_path), []
    recipes = {name: runs.with_seed(small_recipe(), seed) for name, seed in (("a", 0), ("b", 1))}
    monkeypatch.setattr(runs, "choose_device", lambda: choose_device("cpu"))
    monkeypatch.setattr(pool, "cores", lambda: 2)
    beside = runs.train_all(recipes, text, lambda done, total: heard.append((done, total)))
    monkeypatch.setattr(pool, "cores", lambda: 1)
    alone = runs.train_all(recipes, text, lambda done, total: None)
    assert list(beside) == list(alone) == ["a", "b"]
    assert heard == [(1, 2), (2, 2)]
    for name in recipes:
        assert beside[name].curve == pytest.approx(alone[name].curve, rel=1e-5)  # products may be rounded otherwise
        assert beside[name].test == pytest.approx(alone[name].test, rel=1e-5)
    assert beside["a"].curve != beside["b"].curve
    assert len(beside["a"].curve) == 3
    assert beside["a"].valid == pytest.approx(min(beside["a"].curve))  # what is kept is the best


@pytest.fixture(scope="module")
def finding() -> Finding:
    """The whole study, very small, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "cores", lambda: 1)
        patch.setattr(study, "CHARACTERS", (4_000, 4_000))
        patch.setattr(study, "HELD", (3_000, 3_000))
        patch.setattr(study, "EPOCHS", (1, 1))
        patch.setattr(study, "NETWORK", {"embedding": 6, "width": 8, "layers": 2})
        return run("awd-ablation", find_study("awd-ablation"), Settings(quick=True, seeds=(0, 1), data="python"))


def test_a_small_run_has_all_it_should(finding: Finding, tmp_path: Path) -> None:
    assert {"data", "network", "training", "averaging", "size"} <= set(finding.conditions)
    assert [row[0] for row in finding.tables["nats"].rows] == list(study.variants(load_recipe(study.SMALL)))
    parameters = {row[0]: row[1] for row in finding.tables["nats"].rows}
    assert parameters["a smaller embedding"] > parameters[study.FULL] == parameters["weight decay"]
    (said,) = finding.tables["harm"].column("test, in the paper", without="weight dropping")
    assert said == pytest.approx(1000 * math.log(68.9 / 57.3))
    write(finding, find_study("awd-ablation"), tmp_path)
    tables = read_tables(tmp_path)
    assert tuple(study.judge(tables)) == finding.parts
