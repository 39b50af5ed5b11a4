"""The page Tokens in a browser."""

from __future__ import annotations

from collections.abc import Callable

from selenium.webdriver.common.keys import Keys

from nextword.lm.base import TextModel
from tests.support.browser import Browser

Models = Callable[[str], TextModel]
TEXT = "The king of 神 12\nZebra"
CHIPS = """
return [...document.querySelectorAll(`[data-model="${arguments[0]}"] [data-token]`)]
  .map((chip) => chip.firstChild.textContent.replaceAll("␣", " ").replaceAll("⏎", "\\n"));
"""
FAIL = """
const ask = window.fetch;
window.fetch = (path, init) => {
  if (path !== "/tokenize" || !init.body.includes('"gpt2"')) return ask(path, init);
  const error = { message: "internal error", type: "server_error", param: null, code: null };
  return Promise.resolve(new Response(JSON.stringify({ error }), { status: 500 }));
};
"""


def expected_chips(lm: TextModel, text: str) -> list[str]:
    """The tokens as text, or in hexadecimal if they are part of a character."""
    raw = text.encode()
    chips = []
    for start, end in lm.tokenizer.encode(text).spans.tolist():
        try:
            chips.append(raw[start:end].decode())
        except UnicodeDecodeError:
            chips.append(raw[start:end].hex(" "))
    return chips


def test_chips_and_counts_are_those_of_the_tokenizers(browser: Browser, models: Models) -> None:
    names = ["gpt2", "lstm", "bert"]
    browser.open("tokens", models=names, text=TEXT)
    for name in names:
        tokenizer = models(name).tokenizer
        assert browser.run(CHIPS, name) == expected_chips(models(name), TEXT)
        ids = tokenizer.encode(TEXT).ids
        cells = browser.texts(f"tr[data-model={name}] td")
        assert cells[0] == str(len(ids))
        assert cells[3] == f"{len(tokenizer):,}"
        assert cells[1] == f"{len(TEXT) / len(ids):.2f}"
        assert cells[2] == f"{len(TEXT.encode()) / len(ids):.2f}"
        comes_back = tokenizer.decode(ids.tolist()) == TEXT
        assert cells[4].startswith("✓" if comes_back else "✗")
        assert browser.count(f"[data-model={name}] .decoded") == (not comes_back)


def test_lost_text_is_marked(browser: Browser, models: Models) -> None:
    browser.open("tokens", models=["bert"], text=TEXT)
    tokenizer = models("bert").tokenizer
    unknown = int((tokenizer.encode(TEXT).ids == tokenizer.special["[UNK]"]).sum())
    assert browser.count("[data-token].is-unknown") == unknown > 0
    assert browser.texts("[data-token].is-changed")[0].startswith("The")  # read as "the"
    assert browser.count(".chips-text .gap.dropped") == 1  # the line end
    assert f"{unknown} unknown" in browser.texts(".back")[0]
    assert browser.texts(".decoded") == [tokenizer.decode(tokenizer.encode(TEXT).ids.tolist())]


def test_token_shows_id_bytes_and_span_by_keyboard(browser: Browser, models: Models) -> None:
    browser.open("tokens", models=["gpt2", "lstm"], text=TEXT)
    encoding = models("gpt2").tokenizer.encode(TEXT)
    (start, end), id = encoding.spans[1].tolist(), int(encoding.ids[1])
    browser.run("document.querySelector('[data-model=gpt2] [role=listbox]').focus()")
    browser.press(Keys.HOME, Keys.ARROW_RIGHT)
    line = browser.texts("[data-model=gpt2] .line")[0]
    assert f"id {id} " in line
    assert TEXT.encode()[start:end].hex(" ") in line
    assert f"{start}–{end} of" in line
    assert browser.run("return document.querySelectorAll('[data-model=lstm] .same').length") == end - start  # bytes
    active = browser.run("return document.activeElement.getAttribute('aria-activedescendant')")
    assert browser.run("return document.getElementById(arguments[0]).getAttribute('aria-selected')", active) == "true"


def test_bytes_of_a_character_stand_together(browser: Browser) -> None:
    browser.open("tokens", models=["lstm"], text="a神b")
    assert browser.texts(".chips-text .split .whole") == ["神"]
    assert browser.texts(".chips-text .split .is-part") == ["e7", "a5", "9e"]


def test_models_with_the_same_tokenizer_share_a_card(browser: Browser, models: Models) -> None:
    browser.open("tokens", models=["bert", "topics"], text=TEXT)
    browser.open("tokens", models=["bert", "topics"], text=TEXT)  # the second is loaded now
    assert len(browser.texts(".tokenizers .card")) == 1
    assert browser.texts(".tokenizers h2")[0].startswith("bert, topics")


def test_aligned_columns_hold_the_whole_text(browser: Browser) -> None:
    browser.open("tokens", models=["gpt2", "lstm"], text="the king of a land", show="aligned")
    assert browser.texts(".aligned .head") == ["the", "king", "of", "a", "land"]
    assert browser.count(".aligned .column:nth-child(2) .cell:last-child .piece") == 5  # bytes of " king"


def test_saved_page_shows_the_same(browser: Browser) -> None:
    browser.open("tokens", models=["gpt2", "bert"], text=TEXT)
    shown = browser.texts(".card"), browser.texts("td")
    path = browser.save_html()
    browser.open_file(path)
    assert (browser.texts(".card"), browser.texts("td")) == shown
    browser.run("document.querySelector('nw-choice [value=aligned]').click()")
    assert browser.count(".aligned .column") > 3


def test_error_of_one_model_leaves_the_others(browser: Browser) -> None:
    browser.open("tokens", models=["gpt2", "bert"], text=TEXT)
    browser.run(FAIL)
    browser.fill("textarea", "the house")
    browser.wait_for("document.querySelector('.tokenizers .failed')?.textContent === 'internal error'")
    assert browser.run(CHIPS, "bert") == ["the", "house"]


def test_long_text_shows_more_on_demand(browser: Browser) -> None:
    browser.open("tokens", models=["lstm"], text="ab " * 300)
    assert browser.count("[data-token]") == 500
    browser.click("nw-token-chips button")
    assert browser.count("[data-token]") == 900
    assert not browser.run("return document.querySelector('nw-token-chips button').checkVisibility()")


def test_empty_text(browser: Browser) -> None:
    browser.open("tokens", models=["gpt2"], text="")
    assert "Write or paste a text" in browser.text()
