"""The page Fill in a browser."""

from __future__ import annotations

import math
from collections.abc import Callable

from selenium.webdriver.common.keys import Keys

from nextword.core.types import Beam, Stop
from nextword.lm.base import TextModel
from tests.support.browser import Browser

Models = Callable[[str], TextModel]
TEXT = "the king ___ to see his ___ ."
LEFT, RIGHT = "the king of a", "and all people"


def words(browser: Browser, model: str, blank: int = 0) -> list[str]:
    """The guesses of a model for one of the blanks."""
    css = f'.card[data-model="{model}"] nw-bars'
    script = "return [...document.querySelectorAll(arguments[0])][arguments[1]].innerText.split('\\n')"
    browser.wait_for(f"document.querySelectorAll('{css}').length > {blank}")
    return [line for line in browser.run(script, css, blank) if "%" not in line]


def test_every_blank_has_the_guesses_of_each_model_and_a_saved_page_shows_the_same(
    browser: Browser, models: Models
) -> None:
    browser.open("fill", models=["bert", "glm", "ngram"], text=TEXT)
    for name in ("bert", "glm"):
        for blank, guesses in enumerate(models(name).fill(TEXT, k=8)):
            assert words(browser, name, blank) == [guess.text for guess in guesses]
    best = models("glm").infill_many([TEXT], Beam(8), Stop(24), 5)[0]
    assert browser.count(".card[data-model=glm] .span-row") == len(best)
    assert len(words(browser, "ngram", 1)) == 8
    shown = browser.texts(".card")
    browser.open_file(browser.save_html())
    assert browser.texts(".card") == shown


def test_model_that_reads_from_the_left_weighs_its_guesses_by_the_words_after_the_blank(
    browser: Browser, models: Models
) -> None:
    browser.open("fill", models=["ngram"], text=f"{LEFT} ___ {RIGHT}")
    lm = models("ngram")
    guesses = [guess.text.strip() for guess in lm.next(LEFT, k=20)]
    nats = {word: lm.score(f"{LEFT} {word} {RIGHT}").nats for word in guesses}
    total = sum(math.exp(-value) for value in nats.values())
    best = sorted(nats, key=lambda word: nats[word])[:8]
    shown = words(browser, "ngram")
    assert [round(nats[word], 6) for word in shown] == [round(nats[word], 6) for word in best]
    share = 100 * math.exp(-nats[shown[0]]) / total
    number = browser.texts(".card .number")[0].removesuffix(" %")
    assert math.isclose(float(number), share, rel_tol=0.02)


def test_word_is_hidden_guessed_and_put_back(browser: Browser) -> None:
    browser.open("fill", models=["bert"], text="the king said to all people", hidden=[])
    assert "no blank" in browser.text()
    browser.click(".strip [role=button]", "said")
    browser.wait_for("document.querySelector('textarea').value === 'the king ___ to all people'")
    browser.wait_for("document.querySelector('.blank-block h3').innerText.includes('said')")
    browser.click("nw-bars button.row")
    chosen = browser.wait_for(
        "document.querySelector('.card .note, nw-cards .note') && document.querySelector('textarea').value"
    )
    assert chosen.startswith("the king ")
    assert "___" not in chosen
    browser.click(".actions button", "Undo")
    browser.wait_for("document.querySelector('textarea').value.includes('___')")
    browser.click(".strip .blank")
    assert browser.wait_for("document.querySelector('textarea').value") == "the king said to all people"


def test_examples_know_their_hidden_words_and_other_texts_do_not(browser: Browser) -> None:
    browser.open("fill", models=["ngram"])
    assert browser.texts(".blank-block .note")[0].startswith("heavens")
    browser.open("fill", models=["ngram"], text=TEXT)
    assert not browser.texts(".blank-block .note")
    browser.run("document.querySelector('.strip .hide').focus()")
    browser.press(Keys.ENTER)
    browser.wait_for("document.querySelector('textarea').value.startsWith('___ king')")
    browser.wait_for("document.querySelector('.blank-block .note')?.textContent.startsWith('the')")


def test_button_hides_the_selection(browser: Browser) -> None:
    browser.open("fill", models=["bert"], text="the king said", hidden=[])
    browser.run(
        "document.querySelector('textarea').focus(); document.querySelector('textarea').setSelectionRange(3, 8)"
    )
    browser.click(".actions button", "Insert a blank")
    assert browser.wait_for("document.querySelector('textarea').value") == "the ___ said"
    browser.wait_for("document.querySelector('.blank-block h3').innerText.includes('king')")


def test_error_of_one_model_is_in_its_card(browser: Browser) -> None:
    browser.expect_console_errors("status of 4")
    browser.open("fill", models=["bert", "ngram"], text="the [MASK] and the ___ said")
    assert "[MASK]" in browser.texts(".card[data-model=bert] .failed")[0]
    assert len(words(browser, "ngram")) == 8


def test_models_that_cannot_fill_are_listed_with_the_reason(browser: Browser) -> None:
    browser.open("fill")
    reasons = " ".join(browser.texts(".reasons li"))
    assert "word2vec" in reasons
    assert "seq2seq" in reasons
    assert "bert" not in reasons
