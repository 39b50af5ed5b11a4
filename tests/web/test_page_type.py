"""The page Type in a browser."""

from __future__ import annotations

from collections.abc import Callable

from nextword.lm.base import TextModel
from tests.support.browser import Browser

TEXT = "the king of a"


def test_bars_are_the_next_words_of_the_model(browser: Browser, models: Callable[[str], TextModel]) -> None:
    browser.open("type", models=["ngram"], text=TEXT)
    words = [guess.text.strip() for guess in models("ngram").next(TEXT, k=8)]
    assert browser.texts(".card .word") == words
    path = browser.save_html()
    browser.open_file(path)
    assert browser.texts(".card .word") == words
