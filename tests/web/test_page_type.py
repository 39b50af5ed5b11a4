"""The page Type in a browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from selenium.webdriver.common.keys import Keys

from nextword.lm.base import TextModel
from tests.support.browser import Browser
from tests.support.running_server import held, run_server

Models = Callable[[str], TextModel]
TEXT = "the king of a"


def words(browser: Browser, model: str) -> list[str]:
    return browser.texts(f".card[data-model={model}] .word")


def value(browser: Browser) -> str:
    return str(browser.run("return document.querySelector('textarea').value"))


def test_bars_are_the_next_words_of_the_models_and_a_saved_page_shows_the_same(
    browser: Browser, models: Models
) -> None:
    browser.open("type", models=["ngram", "lstm"], text=TEXT)
    guesses = models("ngram").next(TEXT, k=8)
    assert words(browser, "ngram") == [guess.text.strip() for guess in guesses]
    assert len(words(browser, "lstm")) == 8
    numbers = [float(text.removesuffix(" %")) for text in browser.texts(".card[data-model=ngram] .number")]
    assert all(abs(number - 100 * guess.probability) < 0.06 for number, guess in zip(numbers, guesses, strict=True))
    shown = browser.texts(".card")
    browser.open_file(browser.save_html())
    assert browser.texts(".card") == shown


def test_tab_takes_the_first_word_and_after_escape_leaves(browser: Browser, models: Models) -> None:
    browser.open("type", models=["ngram"], text=TEXT)
    first = models("ngram").next(TEXT, k=1)[0].text.strip()
    longer = f"{TEXT} {first}" if first.isalpha() else TEXT + first
    browser.find("textarea").click()
    browser.press(Keys.END, Keys.TAB)
    assert value(browser) == longer
    browser.settle()
    second = models("ngram").next(longer, k=8)
    assert words(browser, "ngram") == [guess.text.strip() for guess in second]
    browser.press(Keys.ESCAPE, Keys.TAB)
    assert browser.run("return document.activeElement.tagName") == "BUTTON"
    browser.wait_for(f"document.querySelector('[role=status].sr').textContent === 'ngram: {second[0].text.strip()}. '")


def test_tab_takes_no_word_of_an_older_text(browser: Browser, folders: dict[str, Path]) -> None:
    with run_server({"ngram": folders["ngram"]}) as other:
        browser.open("type", address=other.address, text=TEXT)
        with held(other.service.pool.get("ngram")):
            browser.type("textarea", f"x{Keys.TAB}", clear=False)
            assert value(browser) == f"{TEXT}x"


def test_word_is_chosen_with_a_click_or_the_keyboard(browser: Browser) -> None:
    browser.open("type", models=["ngram"], text=TEXT)
    third = words(browser, "ngram")[2]
    browser.click(".card li:nth-child(3) button")
    assert value(browser) == f"{TEXT} {third}"


def test_model_that_fails_leaves_the_others_alone(
    browser: Browser, folders: dict[str, Path], models: Models, tmp_path: Path
) -> None:
    browser.expect_console_errors("status of 503")
    damaged = shutil.copytree(folders["lstm"], tmp_path / "damaged")
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with run_server({"damaged": damaged, "ngram": folders["ngram"]}) as other:
        browser.open("type", address=other.address, models=["damaged", "ngram"], text=TEXT)
        assert browser.count(".card[data-model=damaged] [role=alert]") == 1
        assert words(browser, "ngram") == [guess.text.strip() for guess in models("ngram").next(TEXT, k=8)]
