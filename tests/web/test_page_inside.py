"""The page Inside in a browser: each view shows the numbers of the lens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from nextword import lens
from nextword.lm.base import TextModel
from tests.support.accessibility import excess_width, find_unreachable, find_violations
from tests.support.browser import Browser

VIEWS = [("gpt2", "attention"), ("gpt2", "layers"), ("lstm", "gates"), ("lstm", "gradient"), ("gpt2", "saliency")]
Models = Callable[[str], TextModel]
TEXT = "the king of a land went to see"
LONG = " ".join(["the king of a land went to see his house"] * 3)
FAIL = """
const ask = window.fetch;
window.fetch = (path, init) => {
  if (!path.startsWith(arguments[0])) return ask(path, init);
  const error = { message: "internal error", type: "server_error", param: null, code: null };
  return Promise.resolve(new Response(JSON.stringify({ error }), { status: 500 }));
};
"""
DRAG = """
const drawing = document.querySelector("nw-gradient-chart .scroll svg");
const [word] = drawing.querySelectorAll(`[data-step="${arguments[0]}"]`);
const box = drawing.getBoundingClientRect();
drawing.setPointerCapture = () => {};
drawing.hasPointerCapture = () => true;
const at = { clientX: box.left + Number(word.getAttribute("x")), clientY: box.top + 40, bubbles: true, buttons: 1 };
drawing.dispatchEvent(new PointerEvent("pointerdown", { ...at, pointerId: 1, pointerType: "mouse" }));
drawing.dispatchEvent(new PointerEvent("pointermove", { ...at, pointerId: 1, pointerType: "mouse" }));
"""
PERCENT = "[...document.querySelectorAll(arguments[0])].map((each) => parseFloat(each.textContent.replace('−', '-')))"


def numbers(browser: Browser, css: str) -> list[float]:
    return list(browser.run(f"return {PERCENT}", css))


def handle(browser: Browser, name: str) -> str:
    return str(browser.run("return document.querySelector('.handle').getAttribute(arguments[0])", name))


# ------------------------------------------------------------------------------------------------ views


def test_attention_list_has_the_weights_of_the_chosen_word(browser: Browser, models: Models) -> None:
    browser.open("inside", model="gpt2", text=TEXT, layer=1, head=2, row=6)
    found = lens.read_attention(models("gpt2"), TEXT).map("self")
    weights = found.weights[0, 1, 6]
    best = np.argsort(-weights, kind="stable")[:5]
    assert numbers(browser, ".attended .number") == pytest.approx(100 * weights[best], rel=0.01, abs=0.06)
    assert browser.count(".attention-head") == found.weights.shape[0] * found.weights.shape[1]
    browser.run("document.querySelector('nw-token-line .text').focus()")
    browser.press(Keys.ARROW_RIGHT)
    after = found.weights[0, 1, 7]
    assert numbers(browser, ".attended .number")[0] == pytest.approx(100 * after.max(), rel=0.01, abs=0.06)
    browser.wait_for("location.hash.includes('row=7')")


def test_attention_of_a_translation_has_two_lines(browser: Browser) -> None:
    browser.open("inside", model="seq2seq", text="bread no have", source="have no bread")
    assert browser.count("nw-token-line") == 2


def test_layers_show_what_each_layer_predicts(browser: Browser, models: Models) -> None:
    browser.open("inside", model="gpt2", view="layers", text=TEXT, position=3)
    expected = lens.predict_by_layer(models("gpt2"), TEXT, k=5).positions[3]
    shown = numbers(browser, ".layer-cards .number")
    assert shown == pytest.approx(
        [100 * g.probability for each in expected.layers for g in each.top], rel=0.02, abs=0.06
    )
    ranks = browser.texts(".layer-cards .note")
    assert [int(text.rpartition(" ")[2].replace(",", "")) for text in ranks] == [each.rank for each in expected.layers]
    browser.click("tr[data-position='1'] button")
    browser.wait_for("location.hash.includes('position=1')")


def test_gates_show_averages_and_single_units(browser: Browser, models: Models) -> None:
    browser.open("inside", model="lstm", view="gates", text=TEXT, order="index")
    gates = lens.trace_gates(models("lstm"), TEXT).layers[0]
    browser.click(".view details summary")
    browser.find(".view details tbody td")
    table = numbers(browser, ".view details tbody td:nth-child(3)")
    assert table == pytest.approx(gates.gates["forget"].mean(1), abs=0.006)
    browser.run("document.querySelector('nw-matrix canvas').focus()")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    readout = " ".join(browser.texts(".readout"))
    assert f"Unit {gates.units[1]}" in readout
    assert f"forget gate {gates.gates['forget'][1, 1]:.2f}" in readout


def test_gradient_moves_with_the_word(browser: Browser, models: Models) -> None:
    browser.open("inside", model="lstm", view="gradient", text=TEXT, other="none")
    every = lens.trace_gradients(models("lstm"), TEXT)
    (layer,) = every.layers
    assert layer.cell is not None
    last = len(every.targets) - 1

    def factor(step: int) -> float:
        assert layer.cell is not None
        return float((layer.cell[step, 0] / layer.cell[step, step]) ** (1 / step))

    shown = "nw-gradient-chart + .legend + .verdict + .columns strong"
    assert browser.texts(shown) == [f"× {factor(last):.3f}"]
    browser.run("document.querySelector('.handle').focus()")
    browser.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert handle(browser, "aria-valuenow") == str(last - 1)
    assert browser.texts(shown) == [f"× {factor(last - 2):.3f}"]
    before = len(browser.requests())
    browser.run(DRAG, 9)
    assert handle(browser, "aria-valuenow") == "9"
    assert browser.texts(shown) == [f"× {factor(8):.3f}"]
    browser.wait_for("location.hash.includes('step=8')")
    assert len(browser.requests()) == before  # all words came in one answer


def test_saliency_adds_up_and_the_target_can_be_chosen(browser: Browser, models: Models) -> None:
    browser.open("inside", model="gpt2", view="saliency", text=TEXT)
    why = lens.attribute_word(models("gpt2"), TEXT)
    values = sorted((each.value for each in why.tokens), key=abs, reverse=True)[:8]
    assert numbers(browser, ".signed .number") == pytest.approx(values, abs=0.006)
    browser.fill("input[type=text]", "bread")
    other = lens.attribute_word(models("gpt2"), TEXT, " bread")
    best = max((each.value for each in other.tokens), key=abs)
    browser.wait_for("location.hash.includes('target=bread')")
    browser.settle()
    assert numbers(browser, ".signed .number")[0] == pytest.approx(best, abs=0.006)


def test_masked_model_explains_its_blank(browser: Browser, models: Models) -> None:
    browser.open("inside", model="bert", view="saliency", text="the king")
    why = lens.attribute_word(models("bert"), "the king ___")
    values = sorted((each.value for each in why.tokens), key=abs, reverse=True)
    assert numbers(browser, ".signed .number") == pytest.approx(values, abs=0.006)


# ------------------------------------------------------------------------------------------------ the frame


def test_missing_views_are_shown_with_the_reason(browser: Browser) -> None:
    browser.open("inside", model="gpt2", text=TEXT)
    disabled = browser.texts("[role=tab][aria-disabled=true]")
    assert disabled == ["Gates", "Gradients and memory"]
    assert "A Transformer has no gates" in " ".join(browser.texts(".view-reasons"))
    browser.click("#why-gates button")
    browser.settle()
    assert browser.texts("[role=tab][aria-selected=true]") == ["Gates"]
    browser.wait_for("location.hash.includes('model=lstm')")


def test_page_opens_with_an_example_that_changes_with_the_view(browser: Browser) -> None:
    texts = []
    for view in ("attention", "layers"):
        browser.open("inside", model="gpt2", view=view)
        assert not browser.count("nw-notice .error")
        texts.append(browser.run("return document.querySelector('nw-page-inside').field.value"))
    assert all(texts)
    assert texts[0] != texts[1]
    browser.open("inside", model="lstm", view="gradient")
    assert browser.count("nw-gradient-chart polyline") == 2  # cell and hidden state; no second recurrent model


def test_error_of_the_server_is_shown_and_tried_again(browser: Browser) -> None:
    browser.open("inside", model="gpt2", text=TEXT)
    browser.run("window.oldFetch = window.fetch")
    browser.run(FAIL, "/api/layers")
    browser.click("#tab-layers")
    browser.wait_for("document.querySelector('nw-notice .error')")
    assert "internal error" in browser.text()
    browser.run("window.fetch = window.oldFetch")
    browser.click("nw-notice button")
    browser.wait_for("document.querySelector('.layer-cards .number')")
    assert browser.count("nw-notice .error") == 0


def test_saved_page_has_all_views_of_the_model(browser: Browser) -> None:
    browser.open("inside", model="gpt2", text=TEXT)
    before = browser.texts(".attended .number")
    path = browser.save_html()
    browser.open_file(path)
    assert browser.texts(".attended .number") == before
    browser.click("#tab-layers")
    browser.wait_for("document.querySelector('.layer-cards .number')")
    browser.click("#tab-saliency")
    browser.wait_for("document.querySelector('.signed .number')")
    assert browser.count("nw-notice .notice") == 0


def test_saved_page_moves_the_word_without_a_server(browser: Browser) -> None:
    browser.open("inside", model="lstm", view="gradient", text=TEXT)
    shown = "nw-gradient-chart + .legend + .verdict + .columns strong"
    before = browser.texts(shown)
    path = browser.save_html()
    browser.open_file(path)
    assert browser.texts(shown) == before
    browser.run("document.querySelector('.handle').focus()")
    browser.press(Keys.ARROW_LEFT)
    assert browser.texts(shown) != before


@pytest.mark.parametrize(("model", "view"), VIEWS)
def test_views_are_accessible_and_show_texts_in_all_scripts(browser: Browser, model: str, view: str) -> None:
    browser.open("inside", model=model, view=view, text=TEXT)
    assert find_violations(browser) == []
    assert find_unreachable(browser) == []
    browser.set_media(prefers_color_scheme="dark")
    assert find_violations(browser, only_contrast=True) == []
    if model != "gpt2":  # whose window is short
        browser.follow("inside", model=model, view=view, text=LONG)
    for width in (360, 1280):
        browser.set_size(width)
        assert excess_width(browser) == 0, width
    browser.follow("inside", model=model, view=view, text="</b>שלום 中👩 W")
    assert browser.count("nw-notice .error") == 0
    assert browser.count(".view canvas, .view svg, .view table, .view .token") > 0
