"""The frame around the pages, shown by the page Type: keys, lost and slow servers, navigation and languages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from selenium.webdriver.common.keys import Keys

from nextword.lm.base import TextModel
from nextword.server.security import Access
from tests.support.browser import Browser
from tests.support.running_server import KEY, Running, eventually, held, run_server

TEXT = "the king of a"
WORDS = ".card .word"
LOST = "ERR_CONNECTION_REFUSED"


def test_page_asks_for_the_key_and_keeps_it(browser: Browser, folders: dict[str, Path]) -> None:
    browser.expect_console_errors("status of 401")
    with run_server({"ngram": folders["ngram"]}, access=Access(key=KEY)) as locked:
        browser.open("type", address=locked.address, settle=False, text=TEXT)
        browser.type("#key", f"wrong{Keys.ENTER}")
        browser.wait_for("document.querySelector('#key-note')?.textContent.includes('refuses')")
        browser.type("#key", KEY + Keys.ENTER)
        browser.settle()
        assert len(browser.texts(WORDS)) == 8
        browser.driver.refresh()
        browser.settle()
        assert len(browser.texts(WORDS)) == 8  # this tab still has it
        assert KEY not in browser.driver.current_url
        assert KEY not in browser.save_html().read_text()


def test_page_continues_when_the_server_is_back(
    browser: Browser, folders: dict[str, Path], models: Callable[[str], TextModel]
) -> None:
    browser.expect_console_errors(LOST)
    only = {"ngram": folders["ngram"]}
    with ExitStack() as stack:
        address = stack.enter_context(run_server(only)).address
        port = int(address.rpartition(":")[2])
        browser.open("type", address=address, models=["ngram"], text=TEXT)
        stack.close()
        browser.fill("textarea", "in the land")
        browser.wait_for("document.querySelector('.notice.error')?.textContent.includes('does not answer')")
        stack.enter_context(run_server(only, port=port))
        browser.wait_for("!document.querySelector('.notice')")
        expected = [guess.text.strip() for guess in models("ngram").next("in the land", k=8)]
        assert browser.texts(WORDS) == expected
        assert browser.run("return document.querySelector('textarea').value") == "in the land"


def test_other_page_opens_when_the_server_is_back(browser: Browser, folders: dict[str, Path]) -> None:
    browser.expect_console_errors(LOST, "Failed to fetch dynamically imported module")
    only = {"ngram": folders["ngram"]}
    with ExitStack() as stack:
        address = stack.enter_context(run_server(only)).address
        browser.open("type", address=address)
        stack.close()
        browser.click("header.top nav a[data-page=fill]")
        browser.wait_for("document.querySelector('.notice.error')?.textContent.includes('does not answer')")
        stack.enter_context(run_server(only, port=int(address.rpartition(":")[2])))
        browser.wait_for("document.querySelector('main article.page.fill') !== null")
        browser.settle()


def test_slow_model_can_be_cancelled(browser: Browser, server: Running) -> None:
    browser.set_media(prefers_reduced_motion="reduce")
    browser.open("type", models=["lstm"], text=TEXT)
    engine = server.service.pool.get("lstm")
    with held(engine):
        browser.fill("textarea", "in the land")
        browser.wait_for("document.querySelector('.notice.waiting')?.textContent.includes('Waiting')")
        assert browser.run("return document.getAnimations().length") == 0  # nothing moves, as the reader wants it
        browser.click(".notice.waiting button", "Cancel")
        browser.wait_for("!document.querySelector('.notice') && !document.querySelector('[aria-busy=true]')")
        assert eventually(lambda: server.service.metrics.active._value.get() == 0)  # the server knows it, too
    browser.fill("textarea", "go away from")
    browser.settle()
    assert len(browser.texts(WORDS)) == 8


def test_busy_server_is_shown_and_tried_again(browser: Browser, folders: dict[str, Path]) -> None:
    browser.expect_console_errors("status of 429")
    with run_server({"lstm": folders["lstm"]}, queue=1, rows=1) as small:
        browser.open("type", address=small.address, text=TEXT)
        engine = small.service.pool.get("lstm")
        with held(engine):
            others = [engine.call(lambda lm: None)]
            browser.fill("textarea", "in the land")
            browser.wait_for("document.querySelector('.notice.error')?.textContent.includes('busy')")
        for other in others:
            other.result(30)
        browser.click(".notice.error button", "Try again")
        browser.wait_for("!document.querySelector('.notice')")
        assert len(browser.texts(WORDS)) == 8


def test_language_is_kept_and_the_page_with_its_state(browser: Browser) -> None:
    browser.open("type", models=["ngram"], text=TEXT)
    browser.run(
        "const s = document.querySelector('header.top select'); s.value = 'zh'; s.dispatchEvent(new Event('change'))"
    )
    browser.wait_for("document.querySelector('h1')?.textContent.includes('输入')")
    browser.settle()
    assert browser.run("return document.querySelector('textarea').value") == TEXT
    assert browser.run("return document.activeElement.tagName") == "SELECT"
    browser.open("type")
    assert browser.run("return document.documentElement.lang") == "zh-Hans"


def test_menu_of_a_narrow_screen_opens_and_closes(browser: Browser) -> None:
    browser.set_size(390)
    browser.open("type")
    assert not browser.find("header.top nav").is_displayed()
    browser.click(".menu")
    assert browser.find("header.top nav").is_displayed()
    assert browser.find(".menu").get_attribute("aria-expanded") == "true"
    browser.click("header.top nav a[data-page=fill]")
    browser.wait_for("document.querySelector('main article.page.fill') !== null")
    assert not browser.find("header.top nav").is_displayed()
    assert browser.texts("header.top nav [aria-current=page]") == ["Fill"]
    assert browser.run("return document.activeElement.id") == "main"  # where a screen reader goes on
    browser.settle()


def test_page_that_does_not_exist_is_the_first(browser: Browser) -> None:
    for fragment in ("#/nowhere", "#/constructor", "#/%E0%A4%A", "#?text=a", ""):
        browser.open_link(f"{browser.address}/{fragment}")
        assert browser.count("main article.page.type") == 1


def test_fast_navigation_shows_the_last_page(browser: Browser) -> None:
    browser.open("type")
    browser.run("location.hash = '#/translate'; location.hash = '#/fill'; location.hash = '#/type?text=x'")
    browser.wait_for("document.querySelector('main article.page.type textarea')?.value === 'x'")
    browser.settle()
    assert browser.fragment == "#/type?text=x"
    assert browser.count("main article") == 1


def test_typing_fast_neither_loses_a_key_nor_fails(browser: Browser) -> None:
    browser.open("type", models=["ngram"], text="")
    browser.type("textarea", "the king " * 30)
    browser.wait_for(lambda: browser.copied("link").endswith("+".join(["the", "king"] * 30) + "+"))
    browser.wait_for(lambda: browser.copied("link") == browser.driver.current_url)


def test_address_of_the_server_is_all_that_a_page_asks(browser: Browser) -> None:
    browser.open("type", models=["ngram"], text=TEXT)
    assert browser.requests()
    assert {request.url.split("/")[2] for request in browser.requests()} == {browser.address.split("/")[2]}
    assert browser.run("return [document.cookie, navigator.serviceWorker?.controller ?? null]") == ["", None]
