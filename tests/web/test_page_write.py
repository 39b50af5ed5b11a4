"""The page Write in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from selenium.webdriver.common.keys import Keys

from nextword import lens
from nextword.core.types import Greedy, Sample, Stop
from nextword.lm.base import TextModel
from tests.support.accessibility import excess_width, find_violations
from tests.support.browser import Browser
from tests.support.running_server import Running

PROMPT = "the king of a"
TOKENS = "nw-token-text .token"
IDLE = "document.querySelector('[data-run=continue]:not([hidden])') && !document.querySelector('[aria-busy=true]')"
FAIL = """
const real = window.fetch;
const answer = () => new Response('{"error": {"message": "No paper left."}}', { status: 400 });
window.fetch = (path, init) => (path === "/api/generate" ? Promise.resolve(answer()) : real(path, init));
"""
SLIDE = """
const slider = document.querySelector("nw-slider input");
slider.value = 30;
slider.dispatchEvent(new InputEvent("input", { bubbles: true }));
"""
Models = Callable[[str], TextModel]
# Stop after a few tokens, from within the page: the model may be faster than a test
STOP_SOON = """
const css = arguments[0];
new MutationObserver((_, observer) => {
  const button = document.querySelector("[data-run=stop]");
  if (document.querySelectorAll(css).length <= 3 || !button) return;
  observer.disconnect();
  button.click();
  window.hasStopped = true;
}).observe(document.body, { childList: true, subtree: true });
"""


def bodies(browser: Browser, path: str) -> list[dict[str, object]]:
    """What the page asked a route."""
    return [json.loads(request.body) for request in browser.requests() if request.url.endswith(path)]


def press(browser: Browser, button: str) -> None:
    """Press a button, and wait until the model has written."""
    browser.click(f"[data-run={button}]")
    browser.wait_for(IDLE)


def written(browser: Browser) -> str:
    """The text; line ends are also shown as signs."""
    texts = browser.run(f"return [...document.querySelectorAll('{TOKENS}')].map((each) => each.textContent)")
    return "".join(texts).replace("↵", "")


def notes(effect: lens.DecodingEffect) -> list[tuple[str, float, float]]:
    return [(token.text.strip(), token.before, token.after) for token in effect.tokens]


def test_text_is_that_of_the_model_with_the_seed_and_a_link_brings_it_back(browser: Browser, models: Models) -> None:
    browser.open("write", model="lstm", prompt=PROMPT, temperature=0.9, topk=20, seed=5, length=12)
    press(browser, "continue")
    decoding = Sample(0.9, 20, seed=5)
    expected = models("lstm").generate(PROMPT, decoding, Stop(12)).text
    assert written(browser) == expected
    link = browser.copied("link")
    browser.open_link(link)
    browser.wait_for(IDLE)
    assert written(browser) == expected
    assert browser.count(".branch") == 1


def test_bars_are_the_distribution_at_the_token_before_and_after_decoding(browser: Browser, models: Models) -> None:
    browser.open("write", model="gpt2", prompt=PROMPT, topk=5, temperature=0.7, seed=2, length=6)
    press(browser, "continue")
    browser.click(f"{TOKENS}:nth-child(4)")
    browser.wait_for("document.querySelector('.bars .own') !== null")
    ids = [id for piece in models("gpt2").generate(PROMPT, Sample(0.7, 5, seed=2), Stop(6)).pieces for id in piece.ids]
    expected = lens.show_decoding(models("gpt2"), PROMPT, Sample(0.7, 5), 12, ids[:3], ids[3])
    rows = browser.run("return document.querySelectorAll('.bars .row').length")
    assert rows >= 12
    assert browser.texts(".stages tbody th") == ["the model", "temperature", "top-k"]
    assert browser.texts(".stages tbody td:nth-child(2)")[-1] == "5" == str(expected.allowed)
    zero = [text for text in browser.texts(".bars .number") if text.endswith("→ 0")]
    assert len(zero) >= len([token for token in expected.tokens if not token.after])
    assert f"{100 * expected.tokens[0].after:.1f} %" in browser.texts(".bars .number")[0]
    browser.run(SLIDE)
    hotter = lens.show_decoding(models("gpt2"), PROMPT, Sample(1.55, 5), 12, ids[:3], ids[3])
    browser.wait_for(lambda: f"→ {100 * hotter.tokens[0].after:.1f} %" in browser.texts(".bars .number")[0])
    assert len(bodies(browser, "/api/generate")) == 1  # moving a slider generates nothing


def test_another_token_branches_and_undo_goes_back(browser: Browser, models: Models) -> None:
    browser.open("write", model="ngram", prompt=PROMPT, method="greedy", length=8)
    press(browser, "continue")
    first = written(browser)
    tokens = browser.texts(TOKENS)
    browser.click(f"{TOKENS}:nth-child(3)")
    browser.wait_for("document.querySelector('.bars .own') !== null")
    other = browser.wait_for(
        "[...document.querySelectorAll('.bars button.row:not(.own)')][0]?.querySelector('.word').textContent"
    )
    browser.click(".bars button.row:not(.own)")
    browser.wait_for(IDLE)
    browser.wait_for(
        f"document.querySelectorAll('.branch').length === 2 && document.querySelector('{TOKENS}.by-hand') !== null"
    )
    assert browser.texts(TOKENS)[:2] == tokens[:2]
    assert browser.texts(f"{TOKENS}.by-hand")[0] == other.replace("␣", "").strip()
    (_, last) = bodies(browser, "/api/generate")
    model = models("ngram")
    ids = [id for piece in model.generate(PROMPT, Greedy(), Stop(8)).pieces for id in piece.ids]
    assert isinstance(last["ids"], list)
    assert last["ids"][:2] == ids[:2]
    assert len(last["ids"]) == 3
    branched = written(browser)
    press(browser, "undo")
    assert written(browser) == first
    press(browser, "redo")
    assert written(browser) == branched
    browser.fill("nw-page-write textarea", "something else")  # typing keeps the branches
    browser.wait_for(f"document.querySelectorAll('{TOKENS}').length === 0")
    assert browser.count(".branch") == 2
    browser.click(".branch")
    browser.wait_for(lambda: written(browser) == first)
    assert browser.run("return document.querySelector('nw-page-write textarea').value") == PROMPT


def test_tokens_are_chosen_with_the_keyboard(browser: Browser) -> None:
    browser.open("write", model="ngram", prompt=PROMPT, length=5)
    browser.find("nw-page-write textarea").send_keys(Keys.CONTROL, Keys.ENTER)
    browser.wait_for(f"document.querySelectorAll('{TOKENS}').length === 5")
    browser.wait_for(IDLE)
    browser.run(f"document.querySelector('{TOKENS}').focus()")
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ENTER)
    browser.wait_for(f"document.querySelector('{TOKENS}:nth-child(3)').getAttribute('aria-pressed') === 'true'")
    browser.wait_for("document.querySelector('.bars .own') !== null")
    assert browser.run("return document.activeElement.dataset.at") == "2"
    browser.settle()
    assert browser.run("return document.activeElement.dataset.at") == "2"
    assert not find_violations(browser)
    browser.set_size(360)
    assert excess_width(browser) == 0


def test_stopped_text_is_kept_and_comes_back(browser: Browser) -> None:
    browser.open("write", model="lstm", prompt=PROMPT, length=500)
    browser.run(STOP_SOON, TOKENS)
    browser.click("[data-run=continue]")
    browser.wait_for(f"window.hasStopped && {IDLE}")
    text = written(browser)
    assert browser.count(TOKENS) < 500
    browser.open_link(browser.copied("link"))
    browser.wait_for(IDLE)
    assert written(browser) == text


def test_models_that_cannot_continue_say_why(browser: Browser) -> None:
    browser.open("write")
    reasons = " ".join(browser.texts(".reasons li"))
    assert "bert: It reads both sides" in reasons
    assert "seq2seq: It turns a source into a target" in reasons
    names = browser.texts(".chip label")
    assert "gpt2" in names
    assert not {"bert", "seq2seq", "topics"} & set(names)


def test_error_of_the_server_is_shown_and_the_branches_stay(browser: Browser) -> None:
    browser.expect_console_errors("status of 400")
    browser.open("write", model="ngram", prompt=PROMPT, length=4)
    press(browser, "continue")
    browser.run(FAIL)
    press(browser, "continue")
    browser.wait_for("document.querySelector('.notice.error') !== null")
    assert "No paper left." in browser.texts(".notice.error")[0]
    assert browser.count(".branch") == 1
    assert browser.count(TOKENS) == 4


def test_saved_page_shows_the_text_and_the_distribution_at_every_token(browser: Browser) -> None:
    browser.open("write", model="gpt2", prompt=PROMPT, length=5, topp=0.9)
    press(browser, "continue")
    text, branches = written(browser), browser.count(".branch")
    browser.click(f"{TOKENS}:nth-child(2)")
    browser.wait_for("document.querySelector('.bars .own') !== null")
    bars = browser.texts(".bars .row")
    path = browser.save_html()
    browser.open_file(path)
    browser.wait_for("document.querySelector('.bars .own') !== null")
    assert written(browser) == text
    assert browser.texts(".bars .row") == bars
    assert browser.count(".branch") == branches
    browser.click(f"{TOKENS}:nth-child(4)")  # was never looked at before
    browser.wait_for(lambda: browser.texts(".bars .row") != bars)
    assert not browser.texts(".notice")


def test_switching_the_model_keeps_prompt_and_settings(browser: Browser, server: Running) -> None:
    browser.open("write", model="ngram", prompt=PROMPT, temperature=1.2, seed=9)
    press(browser, "continue")
    browser.click(".chip input[value=lstm]")
    browser.settle()
    assert browser.run("return document.querySelector('nw-page-write textarea').value") == PROMPT
    expected = {"temperature=1.2", "seed=9", "model=lstm"}
    browser.wait_for(lambda: expected <= set(browser.fragment.replace("?", "&").split("&")))
    assert browser.count(".branch") == 1
    assert bodies(browser, "/api/distribution")[-1]["model"] == "lstm"


@pytest.mark.parametrize("language", ["zh-CN", "en-US"])
def test_greedy_choice_puts_everything_on_one_token(browser: Browser, language: str) -> None:
    browser.set_language(language)
    browser.open("write", model="gpt2", prompt=PROMPT, method="greedy")
    assert [text for text in browser.texts(".bars .number") if "→ 100.0 %" in text] == browser.texts(".bars .number")[
        :1
    ]
    assert browser.run("return document.querySelector('nw-slider input').disabled")
