"""The package of starter models in `starters/`: its README, and size, checksums and card of each model in it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import nextword
from nextword.cli import COMMANDS
from nextword.core.named_models import STARTER_PACKAGE, STARTERS
from nextword.recipe import load_recipe, recipe_names
from nextword.run_folder import RunFolder
from nextword.tasks.plan import make_plan
from tests.support.fake_starters import install_starter

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "starters"
MODELS = PACKAGE / "src" / STARTER_PACKAGE / "models"
MAX_FILE, MAX_TOTAL = 16e6, 80e6  # bytes
SEALED = ("recipe.toml", "tokenizer.json", "model.safetensors")

folders = sorted(path.parent for path in MODELS.glob("*/manifest.json"))


def promised_names() -> set[str]:
    return set(re.findall(rf"^\| `{STARTERS}([\w-]+)`", (PACKAGE / "README.md").read_text(), re.MULTILINE))


def test_version_is_the_one_that_the_extra_requires() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["starters"] == [f"{project['name']}=={project['version']}"]
    assert project["version"] == nextword.__version__
    assert project["dependencies"] == []


def test_every_promised_model_has_a_recipe() -> None:
    recipes = re.findall(r"^\| `starter/[\w-]+` \|.*?\| `([\w/-]+)`", (PACKAGE / "README.md").read_text(), re.MULTILINE)
    assert len(recipes) == len(promised_names()) == 8
    assert set(recipes) <= set(recipe_names())


def test_page_names_recipes_models_and_commands_that_exist() -> None:
    page = (ROOT / "docs" / "starters.md").read_text()
    used = re.findall(r"nextword (?:train|transfer) (\S+)", page)
    assert len(used) >= 8
    assert set(used) <= set(recipe_names())
    assert set(re.findall(rf"\b{STARTERS}([a-z0-9-]+)", page)) - {"ner"} == promised_names()
    assert set(re.findall(r"^ {4}nextword (\w+)", page, re.MULTILINE)) <= set(COMMANDS)


@pytest.mark.parametrize("recipe", ["bert/pos", "bert/names", "bert/tag"])
def test_tag_recipes_plan_over_a_starter(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_starter(tmp_path, monkeypatch)
    sentence = "the O\nking B-PER\nwent O\nfar O\n\nold O\nhouse B-LOC\nand O\nriver B-LOC\n\n"
    (tmp_path / "tags.conll").write_text(sentence * 20)
    plan = make_plan(recipe, "starter/bert", tmp_path / "tags.conll")
    phase = plan.recipe.phases[0]
    assert (phase.init_from, phase.data) == ("starter/bert", str(tmp_path / "tags.conll"))
    assert load_recipe(recipe).phases[0].epochs == phase.epochs


def test_sentence_vectors_are_trained_with_the_network_of_the_encoder() -> None:
    encoder, vectors = load_recipe("bert/starter"), load_recipe("bert/embed")
    assert {**vectors.model, "dropout": 0.0} == encoder.model
    assert vectors.phases[0].data == encoder.phases[0].data


def test_ulmfit_continues_with_the_network_of_the_starter() -> None:
    starter, tuned = load_recipe("awd-lstm/starter"), load_recipe("ulmfit/starter-lm")
    sizes = {key: value for key, value in starter.model.items() if not key.endswith("dropout")}
    assert {key: value for key, value in tuned.model.items() if not key.endswith("dropout")} == sizes
    assert tuned.phases[0].init_from == "starter/awd-lstm"


def test_backward_starter_differs_from_the_forward_one_in_its_direction_alone() -> None:
    forward, backward = load_recipe("awd-lstm/starter"), load_recipe("awd-lstm/starter-backward")
    assert backward.model == {**forward.model, "backward": True}
    assert (backward.tokenizer, backward.phases) == (forward.tokenizer, forward.phases)


needs_models = pytest.mark.skipif(not folders, reason="STARTER MODELS ABSENT: train them with benchmarks/starters.py")


@needs_models
def test_package_has_every_promised_model_in_its_size() -> None:
    assert {folder.name for folder in folders} == promised_names()
    files = [path for path in MODELS.rglob("*") if path.is_file()]
    large = {str(path.relative_to(MODELS)): path.stat().st_size for path in files if path.stat().st_size > MAX_FILE}
    assert not large
    assert sum(path.stat().st_size for path in files) <= MAX_TOTAL


@needs_models
@pytest.mark.parametrize("folder", folders or [MODELS], ids=lambda folder: folder.name)
def test_starter_model_is_intact_and_documented(folder: Path) -> None:
    run = RunFolder(folder, STARTERS + folder.name)
    run.verify()
    assert run.is_finished
    assert set(SEALED) <= run.manifest["files"].keys()
    assert (folder / "log.jsonl").stat().st_size
    card = (folder / "card.md").read_text()
    assert card.startswith(f"# {run.name}\n")
    assert run.manifest["license"] in card
    assert run.manifest["rounding"]
    for row in run.manifest["rounding"]:
        assert f"{row['before']:.4g} before, {row['after']:.4g} after" in card
    for file in (folder / "recipe.toml", folder / "manifest.json", folder / "card.md", folder / "log.jsonl"):
        assert not re.search(r"/(home|root|tmp|work|Users)/", file.read_text()), f"{file} has a path of one machine"
