from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from nextword.recipe import Recipe, load_recipe
from nextword.studies import awd_ablation as study
from nextword.studies._study import FAILS, HOLDS, UNDECIDED, Settings, Table, overall_verdict
from tests.support.study_tables import change

WORSE, BETTER, UNSURE = [20.0, 15.0, 25.0], [-20.0, -25.0, -15.0], [2.0, -3.0, 7.0]


def make_tables(**cells: list[float | None]) -> dict[str, Table]:
    """Every removal hurts, unless given otherwise (with _ for a space)."""
    given = {name.replace("_", " "): cell for name, cell in cells.items()}
    names = [*study.REMOVE, study.ALL]
    costs = [(name, given.get(name, WORSE), given.get(name, WORSE), 30.0, 40.0) for name in names]
    nats = [(name, 1000, [3.0] * 3, [3.6] * 3, [3.5] * 3) for name in (study.NOTHING, *names)]
    return {
        "costs": Table("", ("without", "valid", "test", "valid, paper", "test, paper"), tuple(costs)),
        "nats": Table("", ("without", "parameters", "train", "valid", "test"), tuple(nats)),
    }


def test_claim_holds_if_every_removal_hurts() -> None:
    parts = study.judge(make_tables())
    assert overall_verdict(parts) == HOLDS
    assert len([part for part in parts if part.decides]) == len(study.REMOVE) == 7
    assert "20 thousandths of a nat more (in the paper 40 more, on PTB)" in parts[0].evidence


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"weight_decay": BETTER}, FAILS),
        ({"weight_decay": UNSURE}, UNDECIDED),
        ({"weight_decay": UNSURE, "word_dropout": BETTER}, FAILS),
        ({"weight_decay": [20.0, None, None]}, UNDECIDED),  # one seed, from JSON
        ({"weight_decay": [20.0, -math.inf, math.inf]}, UNDECIDED),
        ({"any_regularizer": BETTER}, HOLDS),  # a side result
    ],
)
def test_one_removal_decides(cells: dict[str, list[float | None]], expected: str) -> None:
    assert overall_verdict(study.judge(make_tables(**cells))) == expected


@pytest.mark.parametrize(
    ("cell", "expected"), [([90.0, 80.0, 99.0], HOLDS), (WORSE, UNDECIDED), ([2.0, 1.0, 3.0], FAILS)]
)
def test_largest_cost_is_found_from_intervals(cell: list[float], expected: str) -> None:
    assert study.judge(make_tables(weight_dropping=cell))[-1].verdict == expected


def test_averaging_that_never_started_is_undecided() -> None:
    tables = make_tables()
    for split in ("valid", "test"):
        tables["costs"] = change(tables["costs"], split, [0.0] * 3, without="averaging (NT-ASGD)")
    part = study.judge(tables)[0]
    assert part.verdict == UNDECIDED
    assert "exactly the same" in part.evidence


def changed_settings(a: Recipe, b: Recipe) -> set[str]:
    keys = {key for key in a.model.keys() | b.model.keys() if a.model.get(key) != b.model.get(key)}
    before, after = vars(a.phases[0]), vars(b.phases[0])
    for key, value in before.items():
        if key == "optimizer":
            options = value.keys() | after[key].keys()
            keys |= {f"{key}.{option}" for option in options if value.get(option) != after[key].get(option)}
        elif after[key] != value:
            keys.add(key)
    assert replace(a, model=b.model, phases=b.phases) == b
    return keys


@pytest.mark.parametrize("name", [study.SMALL, study.LARGE])
def test_each_variant_lacks_only_its_technique(name: str) -> None:
    recipe = load_recipe(name)
    variants = study.make_variants(recipe)
    assert variants[study.NOTHING] == recipe
    expected = {
        "averaging (NT-ASGD)": {"optimizer.start", "schedule"},
        "varying lengths": {"batches"},
        "word dropout": {"word_dropout"},
        "weight decay": {"optimizer.weight_decay"},
        "AR and TAR": {"objective"},
        "a smaller embedding": {"embedding"},
        "weight dropping": {"weight_dropout"},
    }
    for technique, settings in expected.items():
        assert changed_settings(recipe, variants[technique]) == settings
    regularizers = set().union({"input_dropout", "layer_dropout", "output_dropout"}, *expected.values()) - {"embedding"}
    assert changed_settings(recipe, variants[study.ALL]) == regularizers
    assert variants["a smaller embedding"].model["embedding"] == recipe.model["width"]
    assert variants["varying lengths"].phases[0].batches["length"] == recipe.phases[0].batches["length"]


def test_paper_size_needs_its_text_and_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "choose_device", lambda: torch.device("cuda"))
    assert study.is_paper_size(Settings(data="ptb"))
    assert not study.is_paper_size(Settings(data="ptb", quick=True))
    assert not study.is_paper_size(Settings())
    monkeypatch.setattr(study, "choose_device", lambda: torch.device("cpu"))
    assert not study.is_paper_size(Settings(data="ptb"))
