"""The error analysis of a fine-tuned run: the numbers in its folder, and the report page."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nextword
from nextword import tasks as transfer
from nextword.core.errors import NextwordError
from nextword.data.tables import Rows
from nextword.run_folder import RunFolder
from nextword.tasks.error_analysis import (
    MAX_CLASSES,
    MAX_MISTAKES,
    MAX_TEXT_LENGTH,
    analyze_classes,
    analyze_numbers,
    analyze_tags,
)
from nextword.tasks.report import ReportData, render
from tests.support.tiny_transfer import (
    draw_color_counts,
    draw_color_pairs,
    draw_color_texts,
    draw_sentence,
    make_run,
    write_table,
)
from tests.unit.comparison.test_report import Page

QUICK = ["phase.0.optimizer.rate=3e-3", "phase.0.batches.rows=16", "model.dropout=0.0", "phase.0.log_every=2"]


def make_rows(n: int) -> Rows:
    return Rows([f"text {i}" for i in range(n)], None, [""] * n)


# ------------------------------------------------------------------------------------------------ numbers


def test_analyze_classes_sorts_mistakes_by_confidence() -> None:
    probabilities = np.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.6, 0.4]])
    analysis = analyze_classes(("no", "yes"), np.array([1, 0, 1, 1]), probabilities, make_rows(4))
    assert analysis["confusion"] == [[0, 1], [2, 1]]
    assert (analysis["examples"], analysis["wrong"]) == (4, 3)
    outputs = [
        (mistake["text"], mistake["label"], mistake["predicted"], mistake["probability"])
        for mistake in analysis["mistakes"]
    ]
    assert outputs == [("text 0", "yes", "no", 0.9), ("text 1", "no", "yes", 0.7), ("text 3", "yes", "no", 0.6)]
    assert analysis["mistakes"][0]["probability_of_label"] == 0.1
    assert [item["text"] for item in analysis["correct"]] == ["text 2"]
    # each in its own bin: |0 − 0.9|, |0 − 0.7|, |1 − 0.8|, |0 − 0.6|, a quarter each
    assert analysis["calibration"]["error"] == pytest.approx((0.9 + 0.7 + 0.2 + 0.6) / 4)


def test_analyze_classes_truncates_many_classes_and_long_texts() -> None:
    n = MAX_CLASSES + 1
    draw = np.random.default_rng(0)
    labels = [f"c{i}" for i in range(n)]
    long = Rows(["x" * 10_000] * 300, ["y"] * 300, [""] * 300)
    analysis = analyze_classes(labels, draw.integers(0, n, 300), draw.dirichlet(np.ones(n), 300), long)
    assert analysis["confusion"] is None
    assert len(analysis["most_confused"]) == len(analysis["mistakes"]) == MAX_MISTAKES
    assert len(analysis["mistakes"][0]["text"]) == MAX_TEXT_LENGTH
    assert analysis["mistakes"][0]["second"] == "y"


def test_analyze_numbers_sorts_by_absolute_error() -> None:
    analysis = analyze_numbers(np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 1.0]), make_rows(3))
    assert analysis["mean_absolute_error"] == pytest.approx(2.5 / 3)
    assert analysis["root_mean_square_error"] == pytest.approx(np.sqrt((0.25 + 4) / 3))
    assert [(mistake["text"], mistake["error"]) for mistake in analysis["mistakes"]] == [
        ("text 2", -2.0), ("text 0", 0.5), ("text 1", 0.0)
    ]  # fmt: skip


def test_analyze_tags_scores_types_and_sentences() -> None:
    names = ("O", "S-LOC", "S-PER")
    gold = [np.array([1, 0]), np.array([2, 1])]  # LOC O · PER LOC
    predicted = [np.array([1, 0]), np.array([1, 1])]
    analysis = analyze_tags(names, gold, predicted, [("Rome", "is"), ("Ann", "Paris")], has_spans=True)
    types = {item["label"]: item for item in analysis["types"]}
    assert (types["LOC"]["span_precision"], types["LOC"]["span_recall"]) == (2 / 3, 1.0)
    assert types["PER"]["span_f1"] == 0
    assert (analysis["examples"], analysis["wrong"], analysis["words"]) == (2, 1, 4)
    assert analysis["mistakes"] == [
        {"words": ["Ann", "Paris"], "tags": ["B-PER", "B-LOC"], "predicted": ["B-LOC", "B-LOC"]}
    ]  # fmt: skip
    plain = analyze_tags(names, gold, predicted, [(), ()], has_spans=False)
    assert {entry["label"]: entry["recall"] for entry in plain["classes"]} == {"O": 1.0, "S-LOC": 1.0, "S-PER": 0.0}


# ------------------------------------------------------------------------------------------------ a run's folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("errors")
    make_run(folder / "bert")
    write_table(folder / "color.csv", ["text", "label"], draw_color_texts(150))
    write_table(folder / "pair.csv", ["text", "second", "label"], draw_color_pairs(100))
    write_table(folder / "count.csv", ["text", "label"], draw_color_counts(100))
    return folder


@pytest.mark.parametrize("data", ["color", "pair", "count"])
def test_run_has_an_error_analysis_and_a_report(place: Path, data: str) -> None:
    out = place / f"out-{data}"
    changes = [*QUICK, "phase.0.epochs=2"]
    outcome = transfer.run("bert/finetune", place / "bert", str(place / f"{data}.csv"), out, changes=changes)
    result = json.loads((out / "errors.json").read_text())
    assert result == transfer.read_errors(out)
    run = RunFolder.open(out)
    assert "errors.json" in run.manifest["files"]
    run.verify()
    lm = nextword.load(out, device="cpu")
    dev = transfer.read_text_data(str(place / f"{data}.csv")).splits["dev"]
    given: Any = dev.texts if dev.seconds is None else list(zip(dev.texts, dev.seconds, strict=True))
    predictions = lm.predict(given)
    assert result["examples"] == len(dev)
    if data == "count":
        for mistake in result["mistakes"][:12]:  # the sum shown on the page, in the units of the labels
            weights = sum(weight for words in mistake["weights"] for weight in words)
            assert weights - mistake["gap"] == pytest.approx(mistake["predicted"] - mistake["baseline"], abs=1e-4)
        off = [prediction.value - float(gold) for prediction, gold in zip(predictions, dev.labels, strict=True)]
        assert result["mean_absolute_error"] == pytest.approx(np.mean(np.abs(off)), abs=1e-5)
    else:
        wrong = sum(prediction.label != gold for prediction, gold in zip(predictions, dev.labels, strict=True))
        assert result["wrong"] == wrong
        assert outcome.results[0]["dev"]["accuracy"] == pytest.approx(1 - wrong / len(dev))
    assert result["attribution"]["method"] == "integrated gradients"
    assert all("weights" in item for item in result["mistakes"][:12])
    page = (out / "report.html").read_text()
    text = Page(page).text
    assert "Training" in text
    assert page.count('class="plot"') >= 4  # loss and metrics, wide and narrow
    assert f"nextword predict {out} my.csv" in text
    assert ("Predicted against gold" in text) == (data == "count")
    assert ("in the units of the labels" in text) == (data == "count")
    assert ("above the mean of all classes" in text) == (data != "count")
    assert ("Expected calibration error" in text) == (data != "count")
    assert_self_contained(page)


def assert_self_contained(page: str) -> None:
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", page)
    assert "http://" not in page and "https://" not in page  # noqa: PT018
    assert "@import" not in page and "url(" not in page  # noqa: PT018
    assert "default-src 'none'" in page


def test_changed_error_file_is_detected(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    changes = [*QUICK, "phase.0.steps=1"]
    transfer.run("bert/finetune", place / "bert", str(place / "color.csv"), out, changes=changes)
    (out / "report.html").unlink()  # the report may be deleted
    nextword.load(out, device="cpu")
    (out / "errors.json").write_text("{}")
    with pytest.raises(NextwordError, match=r"errors\.json"):
        nextword.load(out, device="cpu")


# ------------------------------------------------------------------------------------------------ the page


def make_report_data(**more: Any) -> ReportData:
    labels = ["<b>", "no & yes"]
    probabilities = np.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8]])
    errors = analyze_classes(
        labels, np.array([1, 0, 1]), probabilities, Rows(["<script>x</script>", "it", ""], None, [])
    )
    errors["mistakes"][0] |= {"words": [["<script>x</script>", "b", "c"]], "weights": [[0.5, -1.0, None]]}
    result = {
        "data": "my <data>", "metric": "accuracy", "dev": {"accuracy": 1 / 3}, "seed": 1, "seconds": 2.0,
        "examples": {"train": 9, "dev": 3}, "source": "runs/x", "scratch": False, "notes": ["a <note>"],
    }  # fmt: skip
    full = {"split": "dev", "kind": "classify", "attribution": {"method": "integrated gradients"}, **errors}
    log = [{"event": "valid", "epoch": 1.0, "valid": 0.5, "accuracy": 0.2}, {"event": "step", "epoch": 0.5}]
    return ReportData("runs/my", **{"result": result, "errors": full, "log": log, **more})


def test_report_escapes_data() -> None:
    page = render(make_report_data())
    assert "<script>" not in page
    assert "<b>" not in page
    text = Page(page).text  # and all tags are closed in order
    assert "my <data>" in text
    assert "a <note>" in text
    assert_self_contained(page)


def test_report_wraps_class_names_in_tables() -> None:
    """Otherwise a narrow screen would not show the numbers next to a long name."""
    page = render(make_report_data())
    assert '<th scope="row" class="model"><span class="class">no &amp; yes</span></th>' in page
    assert ".class { display: block; max-width: 24em; white-space: normal;" in page


def test_report_colors_words_by_attribution() -> None:
    page = render(make_report_data())
    assert '<span class="f2" title="+0.500">' in page  # half of the maximum, two or three of five
    assert '<span class="g5" title="-1.000">b</span>' in page
    assert "the largest weight within its text" in Page(page).text.replace("\n", " ")
    assert '<span class="unread" title="not read' in page
    assert "against" in Page(page).text
    assert "the prediction:" in Page(page).text


def find_section(page: str, name: str) -> str:
    """Return the section of that name."""
    return page.split(f'id="{name}"')[1].split("<section")[0]


LEGEND, AT_LENGTH = 'class="legend"', "integrated gradients"


def test_report_has_a_color_legend_and_one_explanation() -> None:
    """The explanation is in the section where colors first appear."""
    some = make_report_data()
    page = render(some)
    assert LEGEND in find_section(page, "mistakes")
    assert AT_LENGTH in find_section(page, "mistakes")
    assert LEGEND not in find_section(page, "correct")  # the only correct example has no colors
    weights = {"words": [["it"]], "weights": [[1.0]]}
    right = [{**some.errors["mistakes"][0], "label": "<b>", "predicted": "<b>", **weights}]
    page = render(make_report_data(errors={**some.errors, "correct": right}))
    assert LEGEND in find_section(page, "correct")
    assert AT_LENGTH not in find_section(page, "correct")
    page = render(make_report_data(errors={**some.errors, "mistakes": [], "correct": right}))
    assert LEGEND not in find_section(page, "mistakes")
    assert LEGEND in find_section(page, "correct")
    assert AT_LENGTH in find_section(page, "correct")


def test_report_of_regression_explains_what_raises_or_lowers_the_number() -> None:
    errors = analyze_numbers(np.array([1.0, 2.0]), np.array([1.5, 2.0]), make_rows(2))
    errors["mistakes"][0] |= {"words": [["text", "0"]], "weights": [[0.5, -1.0]]}
    full = {"split": "dev", "kind": "regress", "attribution": {"method": "integrated gradients"}, **errors}
    shown = find_section(render(make_report_data(errors=full)), "mistakes")
    for words in ("raises it", "lowers it", "the predicted number, minus"):
        assert words in shown
    assert "the logit of the class" not in shown
    page = render(make_report_data(errors={**full, "numbers": ["1"]}))
    assert "mean of all numbers that can be generated" in find_section(page, "mistakes")


def test_report_says_which_texts_are_too_long_for_colors() -> None:
    errors = analyze_classes(["a", "b"], np.array([1]), np.array([[0.9, 0.1]]), make_rows(1))
    how = {"method": AT_LENGTH, "examples": 0, "of": 1, "too_long": 1}
    page = render(make_report_data(errors={"split": "dev", "kind": "classify", "attribution": how, **errors}))
    assert LEGEND not in page
    assert "too long for attributions" in find_section(page, "mistakes")


def test_report_of_several_tasks_shows_class_balance_per_task() -> None:
    first = analyze_classes(["a", "b"], np.array([0, 1]), np.array([[0.9, 0.1], [0.1, 0.9]]), make_rows(2))
    errors = {"split": "dev", "kind": "several", "tasks": [{"task": "x", **first}, {"task": "y", **first}]}
    shares = {"x": {"a": 0.25, "b": 0.75}, "y": {"a": 0.4, "b": 0.6}}
    shown = find_section(render(make_report_data(errors=errors, balance=shares)), "classes")
    assert re.findall(r"(\d+\.\d)\u00a0%", shown) == ["25.0", "75.0", "40.0", "60.0"]
    assert shown.count("Share of training") == 2


def test_report_of_large_confusion_matrix_shows_the_worst_classes() -> None:
    n = 40
    gold, outputs = np.arange(n), np.arange(n)
    outputs[:3] = [1, 2, 0]
    probabilities = np.eye(n)[outputs]
    errors = analyze_classes([f"class{i}" for i in range(n)], gold, probabilities, make_rows(n))
    page = render(make_report_data(errors={"split": "dev", "kind": "classify", "attribution": {}, **errors}))
    assert "Of 40 classes, the 20 with the most errors." in Page(page).text
    assert re.search(r"class0\b[^<]*class1\b[^<]*1 of 1", page)
    assert not re.search(r"class39\b[^<]* of ", page)


def test_report_counts_epochs_across_phases() -> None:
    """Three phases; the first trains a language model and has no accuracy."""
    log = [{"event": "valid", "index": 0, "epoch": 9.0, "valid": 5.0, "perplexity": 148.4}]
    log += [
        {"event": "valid", "index": i, "epoch": e, "valid": 0.5, "accuracy": 0.2 * i}
        for i in (1, 2)
        for e in (1.0, 2.0)
    ]
    page = render(make_report_data(log=log))
    assert "accuracy ends at 40 after 4" in page
    assert "dev ends at 0.5 after 4" in page


def test_report_without_mistakes_says_so() -> None:
    errors = analyze_classes(["a", "b"], np.array([0, 1]), np.array([[0.9, 0.1], [0.1, 0.9]]), make_rows(2))
    page = render(make_report_data(errors={"split": "dev", "kind": "classify", "attribution": {}, **errors}))
    assert "None: all 2 examples are correct." in Page(page).text


def test_report_shows_other_scripts_and_empty_texts(place: Path, tmp_path: Path) -> None:
    draw = random.Random(1)
    texts = [("東京は red", "はい"), ("", "いいえ"), ("שלום blue", "はい")]
    texts += [
        (draw_sentence(draw, word), label) for word, label in (("red", "はい"), ("blue", "いいえ")) for _ in range(20)
    ]
    data = write_table(tmp_path / "o.csv", ["text", "label"], texts)
    transfer.run("bert/finetune", place / "bert", str(data), tmp_path / "o", changes=[*QUICK, "phase.0.steps=1"])
    assert "はい" in Page((tmp_path / "o/report.html").read_text()).text
