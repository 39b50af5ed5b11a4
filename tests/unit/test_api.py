"""The public functions: every command is one call, and importing nextword is quick."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nextword
from nextword.core.errors import InvalidSetting
from nextword.run_folder import RunFolder

SMALL = ['tokenizer={kind="bytes"}', "model.width=8", "phase.0.steps=6", "phase.0.validate_every=3"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(f"the cat sat on the mat number {i} ." for i in range(400)))
    return path


def test_train_evaluates_the_run_and_writes_its_card(text: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    result = nextword.train(
        "lstm/tiny", tmp_path / "run", data=str(text), changes=SMALL, seed=3, on_event=events.append
    )
    assert [event.kind for event in events][-2:] == ["end", "evaluate"]
    assert not result.is_interrupted
    assert "bits per byte" in repr(result)
    assert result.evaluation.bits_per_byte > 0
    run = RunFolder.open(tmp_path / "run")
    assert run.is_finished
    assert run.recipe.phases[0].seed == 3
    assert any(line.get("event") == "evaluation" for line in run.read_log())
    assert "bits/byte" in (run.path / "card.md").read_text()
    assert set(result.evaluation.values["can"]) == result.load(device="cpu").can


def test_interrupted_training_is_resumed_without_a_recipe(text: Path, tmp_path: Path) -> None:
    result = nextword.train("lstm/tiny", tmp_path / "run", data=str(text), changes=SMALL, stop=lambda: True)
    assert result.is_interrupted
    assert "interrupted" in repr(result)
    assert not (tmp_path / "run" / "card.md").exists()
    result = nextword.train(out=tmp_path / "run", resume=True)
    assert not result.is_interrupted
    assert (tmp_path / "run" / "card.md").is_file()


def test_resume_refuses_other_settings(tmp_path: Path) -> None:
    for options in ({"data": "my.txt"}, {"seed": 2}, {"changes": ["phase.0.steps=2"]}):
        with pytest.raises(InvalidSetting):
            nextword.train(out=tmp_path / "run", resume=True, **options)
    with pytest.raises(InvalidSetting):
        nextword.train(resume=True)


def test_papers_lists_every_model_with_its_recipes() -> None:
    papers = {paper.slug: paper for paper in nextword.papers()}
    assert "lstm/tiny" in papers["lstm"].recipes
    assert "generate" in papers["gpt2"].can
    assert "generate" not in papers["bert"].can


def test_help_is_a_tour() -> None:
    page = pydoc.plain(pydoc.render_doc(nextword))
    for name in ("train", "load", "evaluate", "compare", "transfer", "predict", "convert", "papers"):
        assert f"    {name}(" in page
        assert f"nextword.{name}(" in page


def test_import_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, nextword; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
