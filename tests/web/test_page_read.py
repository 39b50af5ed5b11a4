"""The page Read in a browser."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from nextword import lens
from nextword.lens.surprisal import TextExplanation
from nextword.lm.base import TextModel
from tests.support.browser import Browser

Models = Callable[[str], TextModel]
TEXT = "the king of a land went to see his house\nand all people said zebra"
EDGES = (10, 100, 1000)
CELLS = "[...document.querySelectorAll('nw-heat-text [data-i]')].map((each) => [each.textContent, each.classList[0]])"
DIRECTION = "getComputedStyle(document.querySelector('nw-heat-text .block')).direction"
STALL = """
const ask = window.fetch;
window.isStalled = true;
window.fetch = (path, init) => {
  if (path !== "/api/explain" || !window.isStalled) return ask(path, init);
  const abort = (fail) => fail(new DOMException("", "AbortError"));
  return new Promise((_, fail) => init.signal.addEventListener("abort", () => abort(fail)));
};
"""
HOVER = """
document.querySelector(`[data-i="${arguments[0]}"]`).dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
"""
ROWS = """
return [...document.querySelectorAll("h3 + .scroll tbody tr")]
  .map((row) => [...row.children].map((cell) => cell.textContent));
"""
MARKS = """
return [...document.querySelectorAll("nw-heat-text [data-i]")]
  .map((each) => getComputedStyle(each).textDecorationStyle + each.classList[0]);
"""
FAIL = """
const ask = window.fetch;
window.fetch = (path, init) => {
  if (!path.startsWith("/api/explain") || !init.body.includes('"lstm"')) return ask(path, init);
  const error = { message: "internal error", type: "server_error", param: null, code: null };
  return Promise.resolve(new Response(JSON.stringify({ error }), { status: 500 }));
};
"""


def band(rank: int) -> str:
    return f"band-{sum(rank > edge for edge in EDGES)}"


def expected_cells(explained: TextExplanation) -> list[list[str]]:
    """The colored words of a text, if no token is part of a character: the space before a word stays outside."""
    return [[each.token.text.lstrip(" ") or each.token.text, band(each.rank)] for each in explained.tokens]


def read_count(text: str) -> float:
    """1,234 or 4.68 M."""
    number, _, letter = text.replace(",", "").partition(" ")
    return float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[letter]


def totals(browser: Browser, model: str) -> list[str]:
    return browser.texts(f".totals tr[data-model={model}] td")


def test_colors_and_totals_are_those_of_the_model(browser: Browser, models: Models) -> None:
    browser.open("read", models=["gpt2", "lstm"], model="gpt2", text=TEXT)
    explained = lens.explain_text(models("gpt2"), TEXT)
    assert browser.run(f"return {CELLS}") == expected_cells(explained)
    for name in ("gpt2", "lstm"):
        score = models(name).score(TEXT)
        bits, perplexity = totals(browser, name)[:2]
        assert float(bits) == pytest.approx(score.bits_per_byte(), abs=6e-4)
        assert read_count(perplexity) == pytest.approx(score.word_perplexity(), rel=0.01)
    share = sum(each.rank <= 10 for each in explained.tokens) / len(explained.tokens)
    assert totals(browser, "gpt2")[5] == f"{round(100 * share)} %"


def test_saved_page_shows_the_same_and_switches_models(browser: Browser, models: Models) -> None:
    browser.open("read", models=["gpt2", "ngram"], model="gpt2", text=TEXT)
    path = browser.save_html()
    browser.open_file(path)
    for name in ("gpt2", "ngram"):
        browser.run("document.querySelector(`nw-choice input[value='${arguments[0]}']`).click()", name)
        assert browser.run(f"return {CELLS}") == expected_cells(lens.explain_text(models(name), TEXT))
    assert browser.count("a.write") == 0  # there is no page Write in the file


def test_long_text_is_saved_whole(browser: Browser) -> None:
    browser.open("read", models=["ngram"])
    text = f"{TEXT}\n" * 150
    browser.fill("textarea", text)
    browser.wait_for("document.querySelector('nw-page-read').passage.text.length > 9000")
    browser.settle()
    before = totals(browser, "ngram")
    assert "text=" not in browser.fragment  # too long for a link
    browser.driver.refresh()
    browser.settle()
    assert totals(browser, "ngram") == before
    path = browser.save_html()
    browser.open_file(path)
    assert totals(browser, "ngram") == before


def test_token_shows_what_was_expected(browser: Browser, models: Models) -> None:
    browser.open("read", models=["gpt2"], text=TEXT)
    token = lens.explain_text(models("gpt2"), TEXT).tokens[2]
    browser.run(HOVER, 2)
    facts = " ".join(browser.texts("nw-token-detail .facts"))
    assert f"{token.bits:.2f} bits" in facts
    assert f"rank {token.rank}" in facts
    assert f"entropy {token.entropy / math.log(2):.2f} bits" in facts
    shown = browser.texts("nw-token-detail .word")
    assert [word.strip("␣").replace("⏎", "\n") for word in shown[:5]] == [each.text.strip(" ") for each in token.top]


def test_tokens_are_reached_by_keyboard(browser: Browser, models: Models) -> None:
    browser.open("read", models=["gpt2"], text=TEXT)
    tokens = lens.explain_text(models("gpt2"), TEXT).tokens
    browser.run("document.querySelector('input[type=range]').focus()")
    browser.press(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert browser.texts(".chosen") == [tokens[2].token.text.strip()]
    spoken = browser.run("return document.querySelector('input[type=range]').getAttribute('aria-valuetext')")
    assert tokens[2].token.text.strip() in spoken
    assert f"{tokens[2].bits:.2f} bits" in spoken
    browser.run(HOVER, 5)
    assert browser.texts(".chosen") == [tokens[2].token.text.strip()]  # kept
    browser.press(Keys.ESCAPE)
    browser.run(HOVER, 5)
    assert browser.texts(".chosen") == [tokens[5].token.text.strip()]


def test_alternative_continues_in_write(browser: Browser, models: Models) -> None:
    browser.open("read", models=["gpt2"], text=TEXT)
    token = lens.explain_text(models("gpt2"), TEXT).tokens[2]
    browser.click('[data-i="2"]')
    assert "prompt=the+king" in browser.run("return document.querySelector('a.write').getAttribute('href')")
    browser.click("nw-token-detail li:first-child button")
    prompt = TEXT[: TEXT.index(token.token.text)] + token.top[0].text
    browser.wait_for("document.querySelector('main article.page.write') !== null")
    assert browser.wait_for("document.querySelector('nw-page-write').state.prompt") == prompt
    browser.settle()


def spread(explained: TextExplanation) -> list[float]:
    """The bits of each byte."""
    bits = [0.0] * len(explained.text.encode())
    for each in explained.tokens:
        for byte in range(each.token.start, each.token.end):
            bits[byte] += each.bits / (each.token.end - each.token.start)
    return bits


def test_difference_aligns_two_tokenizers_by_bytes(browser: Browser, models: Models) -> None:
    text = "the king of a land"
    browser.open("read", models=["gpt2", "lstm"], model="gpt2", other="lstm", show="difference", text=text)
    browser.wait_for("document.querySelectorAll('h3 + .scroll tbody tr').length === 5")
    first, second = (spread(lens.explain_text(models(name), text)) for name in ("gpt2", "lstm"))
    starts = [0, 3, 8, 11, 13]  # of the words, each with the space before it
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        rows = {row[0]: row[1:] for row in browser.run(ROWS)}
        expected = sum(first[start:end]), sum(second[start:end])
        shown = [float(value.replace("−", "-")) for value in rows[text[start:end].strip()]]
        assert shown == pytest.approx([*expected, expected[0] - expected[1]], abs=0.006)
    marks = browser.run(MARKS)
    assert all(mark.startswith("dotted" if "g" in mark[5:] else "solid") for mark in marks)  # never color alone


def test_pseudo_likelihoods_are_shown_and_not_compared(browser: Browser) -> None:
    browser.open("read", models=["gpt2", "bert"], model="bert", show="one", text=TEXT)
    assert browser.count("nw-heat-text [data-i]") > 5
    assert "pseudo-likelihoods" in browser.texts(".notes")[0]
    assert browser.texts(".totals tbody:last-child tr")[0].startswith("Pseudo-likelihoods")
    assert totals(browser, "bert")[0] == "–"
    browser.run("document.querySelector('nw-choice [value=difference]').click()")
    assert browser.count("nw-heat-text [data-i]") == 0
    assert "cannot be subtracted" in browser.texts(".notes")[0]


def test_translation_is_read_with_its_source(browser: Browser, models: Models) -> None:
    browser.open("read", models=["seq2seq"], text="land a of king")
    assert "Write its source" in browser.text()
    browser.fill("input[type=text]", "king of a land")
    browser.wait_for("document.querySelectorAll('nw-heat-text [data-i]').length > 0")
    browser.settle()
    explained = lens.explain_text(models("seq2seq"), "land a of king", "king of a land")
    assert [text for text, _ in browser.run(f"return {CELLS}")][-1] == explained.tokens[-1].token.text  # the end
    assert int(totals(browser, "seq2seq")[3]) == len(explained.tokens)


def test_long_text_is_read_in_parts_with_context(browser: Browser, models: Models) -> None:
    text = " ".join(f"Sentence {i} of a long text is here." + ("\n" if i % 5 == 0 else "") for i in range(160))
    assert 4096 < len(text) < 8000  # the model reads bytes
    browser.open("read", models=["lstm"], text=text)
    bodies: list[dict[str, Any]] = browser.run(
        "return document.querySelector('nw-page-read').requests().map(({body}) => body)"
    )
    assert len(bodies) > 4
    assert "".join(body["text"] for body in bodies) == text
    assert all(text[:at].endswith(body.get("source", "")) for at, body in zip(_starts(bodies), bodies, strict=True))
    lm = models("lstm")
    bits = sum(lens.explain_text(lm, body["text"], body.get("source"), 0).nats for body in bodies) / math.log(2)
    assert float(totals(browser, "lstm")[0]) == pytest.approx(bits / len(text), abs=6e-4)
    assert int(totals(browser, "lstm")[3].replace(",", "")) == len(text)
    assert f"in {len(bodies)} parts" in browser.texts(".notes")[0]
    drawn = browser.count("nw-heat-text [data-i]")
    assert drawn < len(text)  # only what is near the screen has elements
    browser.run("window.scrollTo(0, document.body.scrollHeight)")
    browser.wait_for("[...document.querySelectorAll('nw-heat-text .block')].at(-1).querySelector('[data-i]') !== null")


def _starts(bodies: list[dict[str, Any]]) -> list[int]:
    starts = [0]
    for body in bodies[:-1]:
        starts.append(starts[-1] + len(body["text"]))
    return starts


def test_error_of_one_model_leaves_the_others(browser: Browser) -> None:
    browser.open("read", models=["lstm", "gpt2"], show="side")
    browser.run(FAIL)
    browser.fill("textarea", TEXT)
    browser.wait_for("document.querySelector('.heats .failed') !== null")
    browser.settle()
    assert browser.texts(".heats .failed")[0].startswith("internal error")
    assert browser.count("[data-heat=gpt2] [data-i]") > 5
    assert browser.texts(".heats .text")[0] == TEXT  # the text is there, uncolored


def test_reading_is_cancelled_and_resumed(browser: Browser) -> None:
    browser.open("read", models=["gpt2"])
    browser.run(STALL)
    browser.fill("textarea", TEXT)
    browser.click(".notice.waiting button")
    browser.wait_for("document.querySelector('.notes button')?.textContent === 'Read on'")
    assert browser.texts("nw-heat-text .text") == [TEXT]  # shown at once, without colors
    assert browser.count("[data-i]") == 0
    browser.run("window.isStalled = false")
    browser.click(".notes button")
    browser.wait_for("document.querySelectorAll('[data-i]').length > 5")
    browser.settle()
    assert browser.texts(".notes") == [""]


def test_file_is_opened_and_what_is_no_text_is_refused(browser: Browser, tmp_path: Path) -> None:
    browser.open("read", models=["ngram"])
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text("the king", encoding="utf-8")
    bad.write_bytes(b"\xff\xfe\x00")
    browser.find("input[type=file]").send_keys(str(bad))
    browser.wait_for("document.querySelector('nw-text-file .failed').textContent.includes('bad.txt')")
    browser.find("input[type=file]").send_keys(str(good))
    browser.wait_for("document.querySelector('nw-heat-text .text')?.textContent === 'the king'")


def test_scripts_without_spaces_and_from_right_to_left(browser: Browser) -> None:
    browser.open("read", models=["gpt2"], text="起初，神创造天地。地是空虚混沌。")
    assert "Character perplexity" in browser.texts(".totals th")
    assert browser.texts(".under .note") == ["16 characters"]
    assert browser.run(f"return {DIRECTION}") == "ltr"
    browser.open("read", models=["gpt2"], text="בראשית ברא אלהים")
    assert browser.run(f"return {DIRECTION}") == "rtl"


def test_empty_text(browser: Browser) -> None:
    browser.open("read", models=["gpt2"], text=" ")
    assert "Write or paste a text" in browser.text()
    assert browser.count("nw-heat-text") == 0
