"""Error analysis of answers, multiple choice and several tasks, compared with hand computations, and their reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nextword import tasks as transfer
from nextword.data.squad import Question
from nextword.data.tables import Rows
from nextword.tasks.error_analysis import MAX_TEXT_LENGTH, NO_ANSWER, analyze_answers, analyze_choices
from nextword.tasks.question_answering import Answer
from tests.support.tiny_transfer import draw_color_counts, draw_color_pairs, draw_color_texts, make_run, write_table
from tests.unit.comparison.test_report import Page

SHORT = ["phase.0.steps=4", "phase.0.batches.rows=8", "phase.0.log_every=1", "model.dropout=0.0"]


def make_questions(*answers: tuple[str, ...], context: str = "Denver beat Carolina") -> list[Question]:
    return [Question(str(i), f"q{i}?", context, gold, (0,) * len(gold)) for i, gold in enumerate(answers)]


def make_answer(*texts: tuple[str, float]) -> list[Answer]:
    return [Answer(str(i), text, text, p, 0.0, 0.0) for i, (text, p) in enumerate(texts)]


def test_analyze_answers_equals_hand_computation() -> None:
    """Correct up to case and articles; half right; a missed answer; an answer to an unanswerable question."""
    questions = make_questions(("Denver", "the Broncos"), ("Denver Broncos",), ("Carolina",), ())
    analysis = analyze_answers(
        questions, make_answer(("The broncos", 0.9), ("Denver", 0.8), ("", 0.6), ("Denver", 0.7)), True
    )
    assert (analysis["examples"], analysis["wrong"]) == (4, 3)
    assert [(mistake["label"], mistake["predicted"], mistake["probability"]) for mistake in analysis["mistakes"]] == [
        ("Denver Broncos", "Denver", 0.8), (NO_ANSWER, "Denver", 0.7), ("Carolina", NO_ANSWER, 0.6),
    ]  # fmt: skip
    assert [mistake["answer_f1"] for mistake in analysis["mistakes"]] == pytest.approx([2 / 3, 0, 0])
    assert [(item["text"], item["second"], item["label"]) for item in analysis["correct"]] == [
        ("Denver beat Carolina", "q0?", "The broncos")
    ]
    # each in its own bin: |1 − 0.9|, |0 − 0.8|, |0 − 0.6|, |0 − 0.7|, a quarter each
    assert analysis["calibration"]["error"] == pytest.approx((0.1 + 0.8 + 0.6 + 0.7) / 4)


def test_analyze_answers_cuts_long_passage_around_the_answer() -> None:
    context = "x " * 5_000 + "Denver" + " y" * 5_000
    question = Question("0", "q?", context, ("Denver",), (10_000,))
    (mistake,) = analyze_answers([question], make_answer(("x", 0.5)), False)["mistakes"]
    assert "Denver" in mistake["text"]
    assert len(mistake["text"]) <= MAX_TEXT_LENGTH + 1


def test_analyze_choices_equals_hand_computation() -> None:
    rows = Rows(["c0", "c1"], ["q0", "q1"], ["1", "0"], None, [("a", "b", "c"), ("d", "e")])
    analysis = analyze_choices(rows, np.array([[0.5, 0.3, 0.2], [0.9, 0.1, 0.0]]))
    assert (analysis["examples"], analysis["wrong"]) == (2, 1)
    (first,) = analysis["mistakes"]
    assert first == {
        "text": "c0", "second": "q0", "label": "b", "predicted": "a", "probability": 0.5, "probability_of_label": 0.3,
    }  # fmt: skip
    assert [item["predicted"] for item in analysis["correct"]] == ["d"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    make_run(folder / "bert")
    answers = [(f"who is {i} ?", f"the king {i} is far", f"king {i}" if i % 3 else "") for i in range(40)]
    write_table(folder / "asked.csv", ["question", "context", "answer"], answers)
    ends = [(f"the old house {i}", "the king", f"a queen {i}", i % 2) for i in range(40)]
    write_table(folder / "ends.csv", ["context", "ending0", "ending1", "label"], ends)
    for name, header, rows in (
        ("color", ["text", "label"], draw_color_texts(60)),
        ("pair", ["text", "second", "label"], draw_color_pairs(60)),
        ("count", ["text", "label"], draw_color_counts(60)),
    ):
        write_table(folder / f"{name}.csv", header, rows)
    return folder


@pytest.mark.parametrize(("recipe", "data"), [("bert/span", "asked.csv"), ("bert/choice", "ends.csv")])
def test_report_of_answers_and_choices_has_its_sections(recipe: str, data: str, place: Path, tmp_path: Path) -> None:
    outcome = transfer.run(recipe, place / "bert", str(place / data), tmp_path / "run", changes=SHORT, device="cpu")
    result = transfer.read_errors(tmp_path / "run")
    assert result is not None
    assert result["examples"] == outcome.results[0]["examples"]["dev"]
    numbers = {**outcome.results[0]["dev"], **outcome.results[0].get("best", {})}
    exact = numbers["exact" if recipe == "bert/span" else "accuracy"]
    assert 1 - result["wrong"] / result["examples"] == pytest.approx(exact)
    text = (tmp_path / "run/report.html").read_text()
    Page(text)
    assert "Calibration" in text
    assert "Most confident mistakes" in text
    assert "Confusion matrix" not in text


def test_report_of_several_tasks_has_every_section(place: Path, tmp_path: Path) -> None:
    names = [str(place / f"{name}.csv") for name in ("color", "count", "pair")]
    transfer.run("bert/finetune", place / "bert", " + ".join(names), tmp_path / "run", changes=SHORT, device="cpu")
    result = transfer.read_errors(tmp_path / "run")
    assert result is not None
    assert [task["task"] for task in result["tasks"]] == names
    assert [task["kind"] for task in result["tasks"]] == ["classification", "regression", "pair_classification"]
    text = (tmp_path / "run/report.html").read_text()
    Page(text)
    for title in ("Confusion matrix", "Predicted against gold", "Most confident mistakes"):
        assert title in text
    assert text.count(f"<h3>{names[0]}</h3>") >= 4
    assert f"--task {names[0]}" in text
