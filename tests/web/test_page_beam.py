"""The page Beam in a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nextword import lens
from nextword.core.types import Beam, Greedy, Stop
from nextword.lm.base import TextModel
from tests.support.accessibility import excess_width, find_violations
from tests.support.browser import Browser

PROMPT = "the king of a"
WORDS = ".beam-drawing .node .word"
Models = Callable[[str], TextModel]


def words(browser: Browser, state: str) -> list[str]:
    return [text.lstrip("◆★ ") for text in browser.texts(f".beam-drawing .node.{state} .word")]


def test_it_opens_on_the_worked_example(browser: Browser) -> None:
    browser.open("beam", step=1)
    assert words(browser, "kept") == ["a", "the", "cat", "dog"]
    assert words(browser, "pruned") == ["cat", "dog"]
    caption = browser.texts(".beam-caption")[0]
    kept, pruned = caption.split("Pruned")
    assert "the cat" in kept
    assert "the dog" in kept
    assert "a cat" in pruned
    assert "a dog" in pruned
    browser.open("beam")
    assert "“the dog barks” with 16.6 %" in browser.texts(".verdict")[0]
    assert "1.4 times as likely as “a cat sleeps”" in browser.texts(".verdict")[0]
    assert browser.texts(".beam-result .text-cell") == ["the dog barks", "the cat sleeps", "a cat sleeps"]
    assert browser.texts(".beam-drawing .on-greedy .word") == ["◆ a", "◆ cat", "◆ sleeps", "◆ EOS"]
    assert not [request for request in browser.requests() if "/api/" in request.url]  # the page searches by itself


def test_steps_go_forward_and_back(browser: Browser) -> None:
    browser.set_media(prefers_reduced_motion="reduce")
    browser.open("beam")
    browser.click("[data-step=first]")
    assert browser.count(WORDS) == 2
    assert browser.count(".beam-result table") == 0
    browser.click("[data-step=forward]")
    assert browser.count(WORDS) == 6
    assert browser.run("return document.activeElement.dataset.step") == "forward"
    browser.click("[data-step=back]")
    browser.wait_for(lambda: "step=0" in browser.fragment)
    browser.click("[data-step=all]")
    assert browser.count(".beam-result table") == 1


def test_table_can_be_changed_and_shared(browser: Browser) -> None:
    browser.open("beam")
    browser.run(
        "const input = document.querySelector('.beam-table input'); input.value = 0.95; "
        "input.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    browser.wait_for("document.querySelector('.beam-result .text-cell').textContent === 'a dog barks'")
    browser.open_link(browser.copied("link"))
    assert browser.texts(".beam-result .text-cell")[0] == "a dog barks"
    assert browser.run("return document.querySelector('.beam-table input').value") == "0.95"
    browser.click(".beam-setup button", "Reset the table")
    assert browser.texts(".beam-result .text-cell")[0] == "the dog barks"


@pytest.mark.parametrize("name", ["gpt2", "ngram", "seq2seq"])
def test_tree_of_a_model_is_that_of_the_lens(browser: Browser, models: Models, name: str) -> None:
    browser.open("beam", kind="model", model=name, prompt=PROMPT, width=3, steps=4)
    tree = lens.trace_beam(models(name), PROMPT, Beam(3), Stop(4))
    for state in ("kept", "pruned", "complete", "open"):
        assert len(words(browser, state)) == sum(node.state == state for node in tree.nodes)
    greedy = models(name).generate(PROMPT, Greedy(), Stop(4)).text.strip() or "∅"
    texts = [candidate.text.strip() or "∅" for candidate in tree.candidates]
    assert browser.texts(".beam-result .text-cell") == [*texts, greedy]
    scores = [f"{candidate.score:.3f}".replace("-", "−") for candidate in tree.candidates]
    assert browser.texts(".beam-result td:nth-child(4)")[:3] == scores
    leaves = browser.count(".beam-list li")
    assert leaves == browser.count(".beam-drawing .node")  # the list is the drawing in words
    browser.run("document.querySelector('nw-beam-tree details').open = true")
    assert not find_violations(browser)
    browser.set_size(360)
    assert excess_width(browser) == 0


def test_error_of_the_server_is_shown(browser: Browser) -> None:
    browser.expect_console_errors("status of 400")
    browser.open("beam", kind="model", model="seq2seq", prompt="x" * 10, steps=20, penalty=99)
    browser.wait_for("document.querySelector('.notice.error') !== null")
    assert "length_penalty" in browser.texts(".notice.error")[0]


@pytest.mark.parametrize("state", [{}, {"kind": "model", "model": "gpt2", "prompt": PROMPT, "steps": 3}], ids=str)
def test_saved_page_shows_the_same(browser: Browser, state: dict[str, Any]) -> None:
    browser.open("beam", **state)
    shown = browser.texts(".beam-result td"), browser.texts(WORDS)
    path = browser.save_html()
    browser.open_file(path)
    assert (browser.texts(".beam-result td"), browser.texts(WORDS)) == shown
    browser.click("[data-step=first]")
    assert browser.count(WORDS) < len(shown[1])
