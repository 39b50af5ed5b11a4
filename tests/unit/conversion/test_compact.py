"""Runs with rounded weights: they keep their log and their abilities, and can be trained further."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import nextword
from nextword.core.errors import InvalidSetting, RunError, Unsupported
from nextword.model_card import write_card
from nextword.run_folder import RunFolder
from tests.support.fake_starters import install_starter
from tests.support.tiny_transfer import draw_color_texts, make_run, write_table


def test_rounded_run_predicts_nearly_the_same_and_is_smaller(tmp_path: Path) -> None:
    source = make_run(tmp_path / "bert")
    RunFolder.open(source).log({"event": "end", "step": 1})
    done = nextword.convert(source, tmp_path / "small", to="int8", progress=False)
    text = "the king went to the river"
    exact, rounded = (nextword.load(path).embed([text])[0] for path in (source, tmp_path / "small"))
    assert float(torch.cosine_similarity(exact, rounded, dim=0)) > 0.999
    sizes = [(path / "model.safetensors").stat().st_size for path in (source, tmp_path / "small")]
    assert sizes[1] < 0.45 * sizes[0]  # small matrices: scales, vectors and the header weigh much
    assert RunFolder.open(tmp_path / "small").read_log() == [{"event": "end", "step": 1}]
    assert "int8" in (tmp_path / "small" / "card.md").read_text()
    assert "int8" in done.notes[0]


def test_task_of_a_starter_is_stored_as_differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_starter(tmp_path, monkeypatch)
    table = write_table(tmp_path / "color.csv", ["text", "label"], draw_color_texts(60))
    tuned = nextword.transfer("bert/finetune", "starter/bert", table, out=tmp_path / "tuned", epochs=1, progress=False)
    nextword.convert(tuned, tmp_path / "small", to="int4", progress=False)
    texts = [text for text, _ in draw_color_texts(20, seed=3)]
    exact, rounded = (nextword.load(path).predict(texts) for path in (tuned.path, tmp_path / "small"))
    for a, b in zip(exact, rounded, strict=True):
        assert a.probabilities["red"] == pytest.approx(b.probabilities["red"], abs=0.02)
    scores = [RunFolder.open(path).manifest["result"] for path in (tuned.path, tmp_path / "small")]
    assert scores[0] == scores[1]


def test_only_finished_runs_with_weights_are_rounded(tmp_path: Path) -> None:
    source = make_run(tmp_path / "bert")
    with pytest.raises(InvalidSetting, match="starter"):
        nextword.convert(source, tmp_path / "small", to="int4", progress=False)
    run = RunFolder.open(source)
    run.seal(finished=False)
    with pytest.raises(RunError, match="not finished"):
        nextword.convert(source, tmp_path / "small", to="int8", progress=False)
    texts = [text for text, _ in draw_color_texts(600)]
    ngram = nextword.train("ngram/tiny", texts, out=tmp_path / "ngram", progress=False)
    with pytest.raises(Unsupported, match="n-grams"):
        nextword.convert(ngram, tmp_path / "small", to="int8", progress=False)
    assert not (tmp_path / "small").exists()


def test_card_tells_what_rounding_costs_and_the_license(tmp_path: Path) -> None:
    nextword.convert(make_run(tmp_path / "bert"), tmp_path / "small", to="int8", progress=False)
    run = RunFolder.open(tmp_path / "small")
    run.seal(license="CC BY-SA 3.0", rounding=[{"metric": "accuracy", "before": 0.91234, "after": 0.9}])
    write_card(RunFolder(run.path, "starter/bert"))
    card = (run.path / "card.md").read_text()
    assert card.startswith("# starter/bert\n")
    assert "accuracy 0.9123 before, 0.9 after" in card
    assert "CC BY-SA 3.0" in card
