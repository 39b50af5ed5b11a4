"""The page Translate in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nextword.core.types import Beam, Stop
from nextword.evaluation.seq2seq import max_target_length
from nextword.lens import read_attention
from nextword.lm.base import TextModel
from nextword.lm.seq2seq import Seq2SeqLM
from tests.support.browser import Browser
from tests.support.running_server import run_server

Models = Callable[[str], TextModel]
SOURCES = ["the king of a land", "we have no bread"]


def test_best_translations_and_their_scores_are_those_of_the_model(browser: Browser, models: Models) -> None:
    browser.open("translate", text="\n".join(SOURCES), width=3)
    lm = models("seq2seq")
    assert isinstance(lm, Seq2SeqLM)
    stop = Stop(max_target_length(lm, SOURCES))
    best = [candidate for row in lm.n_best_many(SOURCES, Beam(3), stop, 3) for candidate in row]
    assert browser.texts("button.candidate .to") == [" ".join(candidate.text.split()) for candidate in best]
    scores = [float(text.split(" ")[0].replace("−", "-")) for text in browser.texts("button.candidate .number")]
    assert scores == [pytest.approx(candidate.log_prob, abs=0.006) for candidate in best]
    greedy = ["".join(piece.text for piece in pieces) for pieces in lm.generate_many(SOURCES, stop=stop)]
    assert browser.texts("p.candidate .to") == [" ".join(text.split()) for text in greedy]
    shown = browser.texts(".translations, nw-alignment")
    browser.open_file(browser.save_html())
    assert browser.texts(".translations, nw-alignment") == shown


def test_word_lights_the_words_that_it_looked_at(browser: Browser, models: Models) -> None:
    browser.open("translate", text=SOURCES[0], mine="land king")
    weights = read_attention(models("seq2seq"), "land king", SOURCES[0]).map("cross").weights[-1].mean(0)
    assert browser.texts('[data-side="rows"]') == ["land", "king"]
    assert browser.texts('[data-side="columns"]') == SOURCES[0].split()
    browser.click('[data-side="rows"]', "king")
    styles = (
        "[...document.querySelectorAll('[data-side=columns]')].map((each) => each.style.getPropertyValue('--share'))"
    )
    lit = [float(share.removesuffix("%")) for share in browser.run(f"return {styles}")]
    assert lit == [pytest.approx(100 * weight, abs=1) for weight in weights[1][: len(lit)]]
    assert "king" in browser.texts("nw-alignment .said")[0]
    table = browser.texts("nw-alignment tbody tr:nth-child(2) td")
    assert int(table[int(weights[1][: len(lit)].argmax())]) == pytest.approx(100 * weights[1][: len(lit)].max(), abs=1)


def test_own_translation_is_scored_against_the_best(browser: Browser, models: Models) -> None:
    browser.open("translate", text=SOURCES[0])
    assert "as likely as the best" in browser.texts(".detail .verdict")[0]
    browser.fill(".detail textarea", "land a of king")
    browser.wait_for("document.querySelector('.detail .verdict').textContent.includes('likely than')")
    score = -models("seq2seq").score("land a of king", SOURCES[0]).nats
    assert f"{score:.2f}".replace("-", "−") in browser.texts(".detail .verdict")[0]
    browser.wait_for("location.hash.includes('mine=land')")
    browser.fill("main textarea", SOURCES[1])
    browser.wait_for("document.querySelector('.from').textContent === 'we have no bread'")
    browser.wait_for("!location.hash.includes('mine=')")


def test_without_a_translator_the_page_says_how_to_train_one(browser: Browser, folders: dict[str, Path]) -> None:
    with run_server({"ngram": folders["ngram"]}) as running:
        browser.open("translate", address=running.address)
        assert "nextword train seq2seq/small" in browser.text()
        links = browser.run("return [...document.querySelectorAll('main a')].map((each) => each.getAttribute('href'))")
        assert "#/train?kind=train&recipe=seq2seq/small" in links
        assert not browser.texts(".notice.error")


def test_error_of_the_server_is_shown(browser: Browser) -> None:
    browser.expect_console_errors("status of 4")
    browser.open("translate", text="word " * 5000)
    assert browser.texts(".notice.error")
    browser.fill("main textarea", SOURCES[0])
    browser.wait_for("document.querySelectorAll('button.candidate').length > 0")
    browser.settle()
    assert not browser.texts(".notice.error")
