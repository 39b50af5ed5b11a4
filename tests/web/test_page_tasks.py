"""The page Tasks in a browser."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from selenium.webdriver.common.keys import Keys

from nextword.lm.base import TextModel
from nextword.tasks.in_context import zero_shot_class
from tests.support.browser import Browser

Models = Callable[[str], TextModel]
TEXT, OTHER = "the king of a land went to see his house", "the king of a land went to see no bread"


def percents(browser: Browser, css: str = "nw-bars .number") -> list[float]:
    return [float(text.split(" ")[0]) for text in browser.texts(css)]


def predict(lm: TextModel, *examples: Any) -> list[Any]:
    return list(cast("Any", lm).predict(list(examples)))


def test_classes_have_probabilities_and_words_attributions(browser: Browser, models: Models) -> None:
    browser.open("tasks", model="topics", text=TEXT)
    lm = cast("Any", models("topics"))
    prediction = predict(lm, TEXT)[0]
    assert browser.texts("nw-bars .word") == list(prediction.probabilities)
    assert percents(browser) == [pytest.approx(100 * p, abs=0.06) for p in prediction.probabilities.values()]
    assert browser.texts(".verdict strong") == [prediction.label]
    explanation = lm.explain([TEXT])[0]
    assert browser.texts("nw-label-result .text span") == TEXT.split()
    signs = browser.run(
        "return [...document.querySelectorAll('nw-label-result .text span')].map((each) => each.title[0])"
    )
    assert signs == ["+" if weight >= 0 else "−" for weight in explanation.weights[0]]
    other = next(label for label in prediction.probabilities if label != prediction.label)
    browser.click(
        "nw-bars button.row", browser.texts("nw-bars button.row")[list(prediction.probabilities).index(other)]
    )
    browser.wait_for(f"document.querySelector('nw-label-result h3').textContent.includes('“{other}”')")
    shown = browser.texts(".task-results")
    browser.open_file(browser.save_html())
    assert browser.texts(".task-results") == shown


def test_pinned_result_is_compared_with_the_edited_text(browser: Browser, models: Models) -> None:
    browser.open("tasks", model="topics", text=TEXT)
    browser.click(".task-results button", "Pin, then edit and compare")
    browser.wait_for("document.querySelectorAll('.pinned .card').length === 2")
    browser.fill('[data-field="text"]', OTHER)
    browser.wait_for("document.querySelectorAll('.pinned .changed').length === 2")
    assert browser.texts(".pinned .changed mark") == ["his", "house", "no", "bread"]
    before, after = (each.probabilities for each in predict(models("topics"), TEXT, OTHER))
    changes = [text.split(" % ")[1] for text in browser.texts(".pinned .card:last-child nw-bars .number")]
    for change, label in zip(changes, before, strict=True):
        assert float(change.replace("−", "-")) == pytest.approx(100 * (after[label] - before[label]), abs=0.06)
    browser.click(".task-results button", "Unpin")
    browser.wait_for("!document.querySelector('.pinned')")


def test_several_texts_are_a_table_that_can_be_downloaded(browser: Browser, models: Models) -> None:
    texts = [TEXT, "bread, and bread", OTHER]
    browser.open("tasks", model="topics", text="\n\n".join(texts), many=True)
    expected = predict(models("topics"), *texts)
    assert browser.texts(".predictions td.main") == [each.label for each in expected]
    browser.click("[data-download]")
    path = Path(browser.wait_for(lambda: list(browser.downloads.glob("*.csv")))[0])
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    assert [row["text"] for row in rows] == texts
    for row, each in zip(rows, expected, strict=True):
        assert row["predicted"] == each.label
        assert float(row["p(good)"]) == pytest.approx(each.probabilities["good"], abs=1e-5)


def test_spans_are_marked_and_counted(browser: Browser, models: Models) -> None:
    browser.open("tasks", model="tags", text="the king of a land\nwe have no bread")
    sentences = predict(models("tags"), "the king of a land", "we have no bread")
    lm = cast("Any", models("tags"))
    spans = [span for sentence in sentences for span in lm.spans_of(sentence)]
    assert browser.count("nw-tag-result mark") == len(spans)
    assert sum(int(text.split(" ")[1]) for text in browser.texts(".tags-legend button")) == len(spans)
    if spans:
        browser.click(".tags-legend button")
        browser.wait_for("document.querySelector('.tags-legend button').ariaPressed === 'true'")
        assert browser.count("nw-tag-result mark.lit") > 0


def test_answer_is_marked_in_the_passage(browser: Browser, models: Models) -> None:
    question, passage = "where is the king ?", "the king of the land went to see his house"
    browser.open("tasks", model="answers", text=passage, question=question)
    answer = predict(models("answers"), (question, passage))[0]
    assert answer.text in browser.texts(".passage mark")
    assert browser.texts("nw-bars .word") == [text for text, _ in answer.others]
    assert percents(browser) == [pytest.approx(100 * p, rel=0.05) for _, p in answer.others]
    browser.click("nw-bars li:last-child button")
    browser.wait_for(lambda: answer.others[-1][0] in browser.texts(".passage mark"))
    browser.type('[data-field="question"]', "who ?")
    browser.wait_for("location.hash.includes('who')")
    browser.settle()
    assert browser.run("return document.activeElement.dataset.field") == "question"  # typing is not interrupted


def test_candidates_have_probabilities(browser: Browser, models: Models) -> None:
    browser.open("tasks", model="choices", text="the king went", choices="home\naway\nto bread")
    prediction = predict(models("choices"), ("the king went", "", ("home", "away", "to bread")))[0]
    assert browser.texts("nw-bars .word") == ["home", "away", "to bread"]
    assert percents(browser) == [pytest.approx(100 * p, abs=0.06) for p in prediction.probabilities.values()]


@pytest.mark.parametrize("name", ["gpt2", "bert", "word2vec"])
def test_other_models_choose_among_given_labels(browser: Browser, models: Models, name: str) -> None:
    labels, template = ["king", "bread"], "it is {label} ."
    browser.open("tasks", model=name, text=TEXT, labels=", ".join(labels), template=template)
    lm = models(name)
    prediction = zero_shot_class(lm)(lm, labels, template).predict([TEXT])[0]
    assert browser.texts("nw-bars .word") == labels
    assert percents(browser) == [pytest.approx(100 * prediction.probabilities[each], abs=0.06) for each in labels]


def test_error_and_missing_fields_are_explained(browser: Browser) -> None:
    browser.expect_console_errors("status of 4")
    browser.open("tasks", model="gpt2", text=TEXT, labels="one", template="{label}")
    assert "at least two labels" in browser.text()
    browser.fill('[data-field="labels"]', "one, two")
    browser.wait_for("document.querySelectorAll('nw-bars .row').length === 2")
    browser.fill('[data-field="template"]', "no place for it")
    browser.wait_for("document.querySelector('.notice.error')?.textContent.includes('{label}')")
    browser.fill('[data-field="template"]', "a {label}")
    browser.wait_for("!document.querySelector('.notice.error')")


def test_markup_in_texts_and_labels_is_text(browser: Browser) -> None:
    hostile = "<img src=x onerror=alert(1)> שלום 中文 " + "W" * 300
    for name in ("topics", "tags"):
        browser.open("tasks", model=name, text=hostile)
        assert browser.count("main img") == 0
        browser.set_size(360)
        assert browser.run("return document.documentElement.scrollWidth") <= 360
        browser.set_size(1280)
    browser.open("tasks", model="gpt2", text=hostile, labels=f"{hostile[:60]}, b", many=True)
    assert browser.count("main img") == 0


def test_keyboard_keeps_its_place_while_results_are_drawn_anew(browser: Browser) -> None:
    browser.open("tasks", model="topics", text=TEXT)
    browser.click("details.more summary")
    browser.click("nw-bars li:last-child button")
    browser.wait_for("document.activeElement.closest('nw-bars li:last-child') && location.hash.includes('label=')")
    browser.settle()
    assert browser.run("return document.querySelector('nw-label-result details').open")
    browser.click(".task-results button", "Pin, then edit and compare")
    browser.wait_for("document.activeElement.textContent === 'Unpin'")
    browser.run("document.querySelector('nw-model-picker input:checked').focus()")
    before = browser.run("return document.activeElement.value")
    browser.press(Keys.ARROW_RIGHT)
    browser.wait_for("location.hash.includes('model=') && !location.hash.includes('model=topics')")
    browser.settle()
    assert browser.run("return document.activeElement.value") != before
    assert browser.run("return document.activeElement.type") == "radio"
