"""What every page of the playground must do. The list of pages comes from app.js."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.accessibility import excess_width, find_unreachable, find_violations
from tests.support.browser import Browser, page_ids
from tests.support.browser_programs import require

PAGES = page_ids()
RESULT = "main .card, main .bars, main table, main svg, main figure, main .text span"
HOSTILE = "<img src=x onerror=alert(1)> & </script> שלום \u202e العربية 中文 👩‍👩‍👧 " + "W" * 300
# Texts of people, of models and of the language itself: they need not be in the language of the interface
QUOTED = "textarea, input, [dir=auto], [lang]:not(html), .card h2, code, pre, td, svg"
VISIBLE_STRINGS = """
const walker = document.createTreeWalker(document.getElementById("app"), NodeFilter.SHOW_TEXT);
const found = new Set();
while (walker.nextNode()) {
  const parent = walker.currentNode.parentElement;
  if (!parent.closest(arguments[0]) && parent.checkVisibility()) found.add(walker.currentNode.data.trim());
}
for (const name of ["aria-label", "placeholder", "title"]) {
  for (const element of document.querySelectorAll(`#app [${name}]`)) found.add(element.getAttribute(name).trim());
}
return [...found];
"""
UNTRANSLATED = """
const tables = await Promise.all(["common", arguments[0]].map((name) => import(`/web/strings/${name}.js`)));
const untranslated = ({ en, zh }) => Object.keys(en).filter((key) => en[key] !== zh[key]).map((key) => en[key]);
return tables.flatMap((table) => untranslated(table.default));
"""


def write_everywhere(browser: Browser, write: Callable[[str], str]) -> dict[str, str]:
    """Changes of the state: another text in every field that has a text to begin with."""
    defaults = ask_page(browser, "constructor.defaults")
    return {name: write(value) for name, value in defaults.items() if isinstance(value, str) and " " in value}


def other_text(value: str) -> str:
    """Another text for a field. Fields with blanks need one."""
    return "the king ___ go away from us" if "___" in value else "the king said go away from us"


def ask_page(browser: Browser, expression: str) -> Any:
    """The value of a property or a method of the page that is shown."""
    return browser.run(f"return document.querySelector('main article.page > .head + *').{expression}")


def check_hostile_text(browser: Browser, page: str) -> None:
    """Whatever is in a text is shown as text, and breaks no layout."""
    changes = write_everywhere(browser, lambda _: HOSTILE)
    if not changes:
        return  # the page has no text of its reader
    browser.expect_console_errors("status of 4")  # a model may refuse such a text, and the page says so
    browser.follow(page, **changes)
    assert browser.count("main img, main script") == 0
    fields = browser.run("return [...document.querySelectorAll('main textarea, main input')].map((each) => each.value)")
    assert any("<img src=x" in text for text in [*fields, browser.text()])
    assert excess_width(browser) == 0


def run_curl(command: str) -> str:
    """The status that a server answers to a command with curl."""
    (curl,) = require("curl")
    assert command.startswith("curl ")
    script = f"{curl} -s -o /dev/null -w '%{{http_code}}' {command.removeprefix('curl ')}"
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize("page", PAGES)
def test_page_explains_itself_and_begins_with_an_example(browser: Browser, page: str) -> None:
    browser.open(page)
    assert browser.texts("main h1")[0]
    assert 1 <= len(re.findall(r"[.?!](?= |$)", browser.texts("main .lede")[0])) <= 3  # about two sentences
    browser.wait_for(f"document.querySelector('{RESULT}') !== null")
    assert not browser.texts(".notice.error")
    problems: dict[str, object] = {}
    problems["axe, 1280 px, light"] = find_violations(browser)
    browser.set_media(prefers_color_scheme="dark")
    problems["axe, 1280 px, dark"] = find_violations(browser, only_contrast=True)
    browser.set_size(390)
    problems["axe, 390 px, dark"] = find_violations(browser)
    browser.set_media(prefers_color_scheme="light")
    browser.set_size(360)
    problems["scrolls sideways at 360 px by"] = excess_width(browser)
    browser.set_size(1280)
    problems["keyboard"] = find_unreachable(browser)
    assert not {name: found for name, found in problems.items() if found}


@pytest.mark.parametrize("page", PAGES)
def test_page_is_in_chinese_and_shows_hostile_text_as_text(browser: Browser, page: str) -> None:
    browser.set_language("zh-CN")
    browser.open(page)
    browser.wait_for(f"document.querySelector('{RESULT}') !== null")
    assert browser.run("return document.documentElement.lang") == "zh-Hans"
    for css in ("h1", ".lede", "header.top nav a", "nw-toolbar button", "footer p"):
        assert all(re.search("[\u4e00-\u9fff]", text) for text in browser.texts(css)), browser.texts(css)
    shown = browser.run(VISIBLE_STRINGS, QUOTED)
    assert not [text for text in shown if re.fullmatch(r"[a-z]+[.:][a-z][\w:.-]*", text)]  # a key without a text
    assert not set(shown) & set(browser.run(UNTRANSLATED, page))
    browser.set_size(360)
    assert excess_width(browser) == 0
    check_hostile_text(browser, page)


@pytest.mark.parametrize("page", PAGES)
def test_page_can_be_shared(browser: Browser, page: str) -> None:
    browser.open(page)
    if ask_page(browser, "requests()"):
        for command in browser.copied("curl").split("\n"):
            assert run_curl(command) == "200", command
    changes = write_everywhere(browser, other_text)
    browser.follow(page, **changes)
    state = ask_page(browser, "state")
    assert state == state | changes
    link = browser.copied("link")
    browser.follow("type" if page != "type" else "fill")
    browser.driver.back()
    browser.wait_for(f"document.querySelector('main article.page.{page}') !== null")
    browser.settle()
    assert ask_page(browser, "state") == state
    browser.open_link(link)
    assert ask_page(browser, "state") == state
