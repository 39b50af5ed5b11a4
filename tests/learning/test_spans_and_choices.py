"""Span and choice heads over several networks learn artificial tasks far above chance.

The answer follows a mark (Devlin et al. 2019, section 4.2); the right ending names a word of the context (Radford et
al. 2018, section 3.3).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nextword import tasks as transfer
from nextword.lm.loading import load
from tests.support.tiny_questions import draw_endings, draw_passage, make_squad, write_json, write_json_lines
from tests.support.tiny_transfer import make_run

CHANGES = ["phase.0.optimizer.rate=5e-3", "phase.0.batches.rows=16", "model.dropout=0.0", "task.dropout=0.0"]


@pytest.mark.parametrize(
    ("slug", "n", "epochs"), [("bert", 700, 15), ("xlnet", 400, 6), ("gpt1", 400, 10), ("lstm", 400, 8)]
)
def test_span_head_learns_to_find_the_answer(slug: str, n: int, epochs: int, tmp_path: Path) -> None:
    data = write_json(tmp_path / "made.json", make_squad(n))
    make_run(tmp_path / "run", slug)
    changes = [*CHANGES, f"phase.0.epochs={epochs}", "phase.0.batches.length=32"]
    found = transfer.run("bert/span", tmp_path / "run", str(data), tmp_path / "out", changes=changes, device="cpu")
    assert found.metric == "answer_f1"
    assert found.mean > 0.8  # of a dozen words, a guess is right in one case of ten
    draw = random.Random(77)
    fresh = [draw_passage(draw) for _ in range(40)]
    said = load(tmp_path / "out", device="cpu").predict([("what follows red ?", text) for text, _, _ in fresh])
    assert sum(one.text == gold for one, (_, gold, _) in zip(said, fresh, strict=True)) > 30


def test_span_head_learns_unanswerable_questions(tmp_path: Path) -> None:
    """A passage without the mark has none: that is learnt, too, and the threshold is chosen on dev."""
    write_json(tmp_path / "made/train-v2.0.json", make_squad(400, without=0.4, version="v2.0"))
    write_json(tmp_path / "made/dev-v2.0.json", make_squad(60, seed=1, without=0.4, version="v2.0"))
    make_run(tmp_path / "run")
    changes = [*CHANGES, "phase.0.epochs=12", "phase.0.batches.length=32"]
    data = str(tmp_path / "made")
    found = transfer.run("bert/span", tmp_path / "run", data, tmp_path / "out", changes=changes, device="cpu")
    dev, best = found.results[0]["dev"], found.results[0]["best"]
    assert list(dev) == ["answer_f1", "exact", "has_answer_f1", "no_answer_f1"]
    assert dev["has_answer_f1"] > 0.7
    assert dev["no_answer_f1"] > 0.7
    assert best["answer_f1"] >= dev["answer_f1"]
    model = load(tmp_path / "out", device="cpu")
    assert model.threshold == best["threshold"]  # type: ignore[attr-defined]
    assert model.predict([("what follows red ?", "the old king went far")])[0].text == ""


@pytest.mark.parametrize(
    ("slug", "recipe"), [("bert", "bert/choice"), ("gpt1", "gpt1/choice"), ("lstm", "bert/choice")]
)
def test_choice_head_learns_the_fitting_ending(slug: str, recipe: str, tmp_path: Path) -> None:
    data = write_json_lines(tmp_path / "made.jsonl", draw_endings(1200))
    make_run(tmp_path / "run", slug)
    rate = "1e-2" if slug == "lstm" else "3e-3"
    changes = [*CHANGES[1:], f"phase.0.optimizer.rate={rate}", "phase.0.epochs=12"]
    found = transfer.run(recipe, tmp_path / "run", str(data), tmp_path / "out", changes=changes, device="cpu")
    assert found.results[0]["kind"] == "multiple_choice"
    assert found.mean > 0.8  # one of three
    fresh = draw_endings(60, seed=9)
    said = load(tmp_path / "out", device="cpu").predict([(row["context"], row["choices"]) for row in fresh])
    assert sum(one.label == str(row["label"]) for one, row in zip(said, fresh, strict=True)) > 45
