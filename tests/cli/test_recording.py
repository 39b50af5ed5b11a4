"""`papers --record`: what is written into a recipe, of runs without an evaluation and of transfers."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from nextword import recipe
from nextword.cli.recording import recorded
from nextword.contract import NextwordError

RECIPE = '[paper]\nslug = "bert"\ntitle = "T"\nauthors = "A"\nyear = 2019\n\n[[phase]]\nname = "task"\n'


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "recipes"
    (folder / "bert").mkdir(parents=True)
    for name in ("finetune", "other", "hidden"):
        (folder / "bert" / f"{name}.toml").write_text(RECIPE)
    monkeypatch.setattr(recipe, "RECIPES", folder)
    return folder


def transfer(folder: Path, task: str, values: list[float], scratch: bool = False, by: str = "bert/finetune") -> None:
    folder.mkdir(parents=True)
    results = [{"data": task, "metric": "accuracy", "dev": {"accuracy": v}, "source": "/a/path"} for v in values]
    found = {"recipe": by, "scratch": scratch, "name": task, "metric": "accuracy", "values": values, "results": results}
    (folder / "results.json").write_text(json.dumps(found))


def test_transfers_are_recorded_by_their_means(recipes: Path, tmp_path: Path) -> None:
    """Seeds that ran apart count as those that ran together."""
    runs = tmp_path / "runs"
    transfer(runs / "a", "SST-2", [0.8, 0.9])
    transfer(runs / "b" / "first", "RTE", [0.5])
    transfer(runs / "b" / "second", "RTE", [0.6])
    transfer(runs / "c", "SST-2", [0.7, 0.7], scratch=True)
    name, measured = recorded(runs)
    assert name == "bert/finetune"
    assert tomllib.loads((recipes / "bert" / "finetune.toml").read_text())["measured"] == measured
    assert (measured["sst_2_accuracy"], measured["rte_accuracy"], measured["mean"]) == (85.0, 55.0, 70.0)
    assert (measured["scratch_sst_2_accuracy"], measured["scratch_mean"], measured["seeds"]) == (70.0, 70.0, 2)
    lines = [json.loads(line) for line in (recipes / "bert" / measured["log"]).read_text().splitlines()]
    assert len(lines) == 6
    assert all("source" not in line for line in lines)  # a path of somebody's machine


def test_transfers_by_several_recipes_are_refused(recipes: Path, tmp_path: Path) -> None:
    transfer(tmp_path / "runs" / "a", "RTE", [0.5])
    transfer(tmp_path / "runs" / "b", "RTE", [0.5], by="bert/other")
    with pytest.raises(NextwordError, match=r"bert/finetune, bert/other"):
        recorded(tmp_path / "runs")


def test_a_run_that_models_no_text_is_recorded_by_its_validation(recipes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    manifest = {"format": 1, "recipe": "bert/hidden", "data": {"train": "wiki"}, "finished": True, "commit": "c0ffee"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    events = [
        {"event": "begin", "index": 0, "seconds": 0.0, "device": "cuda"},
        {"event": "step", "index": 0, "seconds": 3.0, "loss": 2.0},
        {"event": "end", "index": 0, "seconds": 9.0, "parameters": 7, "valid": 2.52115},
    ]
    (run / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    name, measured = recorded(run)
    wanted = {"data": "wiki valid", "valid_nats": 2.5212, "seconds": 9.0, "device": "cuda", "commit": "c0ffee"}
    assert name == "bert/hidden"
    assert {key: measured[key] for key in wanted} == wanted
    assert len((recipes / "bert" / "hidden.log.jsonl").read_text().splitlines()) == 2  # steps are left out
    (run / "manifest.json").write_text(json.dumps({**manifest, "finished": False}))
    with pytest.raises(NextwordError, match="has not been evaluated"):
        recorded(run)
