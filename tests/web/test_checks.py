"""The checks of all pages notice what they are there for."""

from __future__ import annotations

import pytest

from tests.support.accessibility import excess_width, find_unreachable, find_violations
from tests.support.browser import Browser

FAULTS = """
const add = (name, attributes, style) => {
  const element = Object.assign(document.createElement(name), attributes);
  Object.assign(element.style, style);
  document.querySelector("main").prepend(element);
};
add("p", { textContent: "pale" }, { color: "#ccc", background: "#fff" });
add("input", {}, {});
add("button", { textContent: "unseen" }, { outline: "none" });
add("div", { textContent: "wide" }, { width: "1400px" });
"""


def test_faults_of_a_page_are_found(browser: Browser) -> None:
    browser.open("type", models=["ngram"])
    assert (find_violations(browser), find_unreachable(browser), excess_width(browser)) == ([], [], 0)
    browser.run(FAULTS)
    assert sorted(found.split(":")[0] for found in find_violations(browser)) == ["color-contrast", "label"]
    assert [found.split(":")[0] for found in find_violations(browser, only_contrast=True)] == ["color-contrast"]
    problems = find_unreachable(browser)
    assert "focus is not visible: button  unseen" in problems
    assert excess_width(browser) > 0
    browser.run("document.querySelector('main input').onkeydown = (event) => event.preventDefault()")
    assert "Tab does not reach: a  API reference" in find_unreachable(browser)


def test_faults_of_a_program_are_found(browser: Browser) -> None:
    browser.open("type", models=["ngram"])
    browser.expect_console_errors("^console-api .*on purpose", "Content Security Policy", "violates the document's")
    browser.run("console.error('on purpose'); fetch('http://localhost:9/x').catch(() => null)")
    browser.wait_for(lambda: len(browser.console()) >= 2)
    assert browser.console_errors() == []
    browser._requests.clear()
    browser.cdp("Page.setBypassCSP", enabled=True)
    browser.open("type", models=["ngram"])
    browser.expect_console_errors("ERR_")
    browser.run("return fetch('http://localhost:9/x').catch(() => null)")
    browser.cdp("Page.setBypassCSP", enabled=False)
    assert browser.foreign_requests() == ["http://localhost:9/x"]
    browser._requests.clear()
    with pytest.raises(AssertionError, match="Not within"):
        browser.wait_for("false", 0.1)
