"""A headless Chromium that shows the playground, and what a test asks of it. Every wait has an end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    JavascriptException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.support.browser_programs import require

PATIENCE = 30.0  # seconds after which something that should happen has not
ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "src/nextword/server/web"
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which containers and the superuser lack; only pages of the own server are opened
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    # Less work for each page: no process of its own, and no copy kept for the way back
    "--disable-features=BackForwardCache,SpareRendererForSitePerProcess,IsolateOrigins",
    "--disable-site-isolation-trials",
    "--renderer-process-limit=1",
    "--no-first-run",
    "--hide-scrollbars",
    "--lang=en-US",
    "--window-size=1280,900",
)
LOCAL = ("data:", "blob:", "about:")  # URLs of requests that reach no server
SETTLED = "!document.querySelector('[aria-busy=true]') && document.querySelector('main article h1') !== null"


def start_chromium() -> webdriver.Chrome:
    """A browser without windows. The test is skipped where Chromium or its driver is absent."""
    binary, driver = require("chromium", "chromium-driver")
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


def page_ids() -> list[str]:
    """The pages that app.js names and that are written already."""
    source = (WEB / "app.js").read_text(encoding="utf-8")
    ids = re.findall(r'import\("\./pages/([\w-]+)\.js"\)', source)
    assert ids
    return [name for name in ids if (WEB / f"pages/{name}.js").exists()]


# ------------------------------------------------------------------------------------------------ the browser


@dataclass(frozen=True)
class Request:
    """A request that the browser made."""

    method: str
    url: str
    body: str


@dataclass
class Browser:
    """The browser in one test."""

    driver: webdriver.Chrome
    address: str  # of the server whose pages `open` shows
    downloads: Path
    origins: set[str] = field(default_factory=set)  # that requests may go to
    _requests: list[Request] = field(default_factory=list)
    _errors: list[str] = field(default_factory=list)
    _expected: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.origins.add(self.address)
        self.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))
        self.set_size(1280)

    def reset(self) -> None:
        """Leave the page, and forget what it kept and how the device was changed."""
        self.run("try { sessionStorage.clear() } catch { /* an error page has none */ }")
        self.driver.get("about:blank")  # ends what the page still asks
        for origin in self.origins:
            self.cdp("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self.set_media()
        self.set_language("en-US")

    # -------------------------------------------------------------------------------------------- pages

    def open(self, page: str = "", *, address: str = "", settle: bool = True, **state: object) -> None:
        """Load a page with this state, as a link to it does, and wait until it has shown its results."""
        address = address or self.address
        self.origins.add(address)
        self.driver.get("about:blank")  # otherwise another fragment is no new load
        self.driver.get(f"{address}/{fragment(page, **state)}" if page else f"{address}/")
        if settle:
            self.settle()

    def follow(self, page: str, **state: object) -> None:
        """Change the fragment of the URL without a new load, as a link within the page does."""
        self.run(
            "window.isArrived = false; addEventListener('hashchange', () => { window.isArrived = true }, {once: true});"
            "location.hash = arguments[0]; window.isArrived ||= location.hash === arguments[1]",
            fragment(page, **state),
            self.fragment,
        )
        self.wait_for(f"window.isArrived && document.querySelector('main article.page.{page}') !== null")
        self.settle()

    def open_link(self, url: str) -> None:
        """Load the page that a link names, in a document of its own."""
        self.driver.get("about:blank")  # otherwise another fragment is no new load
        self.driver.get(url)
        self.settle()

    def open_file(self, path: Path) -> None:
        """Open a saved page, which has no server."""
        self.driver.get(path.as_uri())
        self.settle()

    def settle(self) -> None:
        """Wait until the page is drawn and no request of its `update` is under way."""
        self.wait_for(SETTLED)

    def wait_for(self, condition: str | Callable[[], object], seconds: float = PATIENCE) -> Any:
        """Wait until a JavaScript expression or a function is true, and return its value. Fails when time is up."""
        end, pause = time.monotonic() + seconds, 0.01
        while True:
            try:
                value = self.run(f"return {condition}") if isinstance(condition, str) else condition()
            except JavascriptException:
                value = None  # an element is not there yet
            if value:
                return value
            if time.monotonic() > end:
                text = self.run("return (document.querySelector('main') ?? document.body).innerText")[:800]
                raise AssertionError(f"Not within {seconds} s: {condition}\nConsole: {self.console()}\nPage:\n{text}")
            time.sleep(pause)
            pause = min(0.2, 1.5 * pause)  # each look costs as much as the page itself

    # -------------------------------------------------------------------------------------------- what it shows

    def run(self, script: str, *values: object) -> Any:
        """Run JavaScript in the page. A promise that it returns is waited for."""
        return self.driver.execute_script(script, *values)

    def find(self, css: str) -> WebElement:
        """The first element that matches, once there is one."""
        self.wait_for(lambda: self.driver.find_elements(By.CSS_SELECTOR, css))
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def count(self, css: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", css))

    def texts(self, css: str) -> list[str]:
        """The texts of all elements that match."""
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent.trim())"
        return list(self.run(script, css))

    def text(self) -> str:
        """All visible text of the page."""
        return str(self.run("return document.body.innerText"))

    @property
    def fragment(self) -> str:
        """The fragment of the URL, which has the state of the page."""
        return str(self.run("return location.hash"))

    # -------------------------------------------------------------------------------------------- what a person does

    def click(self, css: str, text: str = "") -> None:
        """Click the first element that matches and, if given, has this text."""
        script = """
            const found = [...document.querySelectorAll(arguments[0])];
            const element = found.find((each) => !arguments[1] || each.textContent.trim() === arguments[1]);
            element?.scrollIntoView({ block: "center", behavior: "instant" });
            return element;
        """

        def click() -> bool:
            try:
                element = self.run(script, css, text)
                if element is not None:
                    element.click()
            except (StaleElementReferenceException, ElementNotInteractableException, ElementClickInterceptedException):
                return False  # the page was just drawn anew
            return element is not None

        self.wait_for(click)

    def type(self, css: str, text: str, *, clear: bool = True) -> None:
        """Type a text into a field, key by key."""
        self.click(css)
        element = self.find(css)
        if clear:
            element.send_keys(Keys.CONTROL, "a")
        element.send_keys(text)

    def fill(self, css: str, text: str) -> None:
        """Put a text into a field at once, as pasting does. Any character is possible."""
        self.find(css)
        self.run(
            "const field = document.querySelector(arguments[0]); field.focus(); field.value = arguments[1];"
            "field.dispatchEvent(new InputEvent('input', {bubbles: true}));"
            "field.dispatchEvent(new Event('change', {bubbles: true}));",
            css,
            text,
        )

    def choose(self, css: str, value: str) -> None:
        """Choose an option of a select element."""
        self.find(css)
        script = """
            const select = document.querySelector(arguments[0]);
            select.value = arguments[1];
            select.dispatchEvent(new Event("change", { bubbles: true }));
        """
        self.run(script, css, value)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def copied(self, button: str) -> str:
        """Press a button of the toolbar (link, curl, python, cli), and return what it put into the clipboard."""
        self.run(
            "window.copied = null; navigator.clipboard.writeText = (text) => { window.copied = text; "
            "return Promise.resolve(); };"
        )
        self.click(f"nw-toolbar [data-copy={button}]")
        return str(self.wait_for("window.copied"))

    def save_html(self) -> Path:
        """Press "Save as HTML", and return the file."""
        before = set(self.downloads.glob("*.html"))
        self.click("nw-toolbar [data-copy=save]")
        (path,) = self.wait_for(lambda: set(self.downloads.glob("*.html")) - before)
        self.wait_for(lambda: path.read_bytes().rstrip().endswith(b"</html>"))
        return Path(path)

    # -------------------------------------------------------------------------------------------- the device

    def set_size(self, width: int, height: int = 900) -> None:
        """A screen of this size; below 600 pixels, a telephone's."""
        self.cdp(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def set_media(self, **features: str) -> None:
        """CSS media features: set_media(prefers_color_scheme="dark", prefers_reduced_motion="reduce")."""
        values = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.cdp("Emulation.setEmulatedMedia", features=values)

    def set_language(self, code: str) -> None:
        """The language that the browser asks for, from the next load on."""
        agent = self.run("return navigator.userAgent")
        self.cdp("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage=code)

    def cdp(self, command: str, **values: object) -> dict[str, Any]:
        """A command of the Chrome DevTools protocol."""
        return dict(self.driver.execute_cdp_cmd(command, values))

    # -------------------------------------------------------------------------------------------- what it did

    def console(self) -> list[str]:
        """Everything that the console calls an error."""
        self._errors += [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        return list(self._errors)

    def expect_console_errors(self, *patterns: str) -> None:
        """Regular expressions for errors that the test provokes."""
        self._expected += patterns

    def console_errors(self) -> list[str]:
        """The errors in the console that the test did not expect."""
        return [error for error in self.console() if not any(re.search(each, error) for each in self._expected)]

    def requests(self) -> list[Request]:
        """All requests of this tab, oldest first."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                sent = message["params"]["request"]
                self._requests.append(Request(sent["method"], sent["url"], sent.get("postData", "")))
        return list(self._requests)

    def foreign_requests(self) -> list[str]:
        """The URLs of requests that left the origins of the tests."""
        allowed = (*LOCAL, "file:", *(f"{origin}/" for origin in self.origins))
        return [request.url for request in self.requests() if not request.url.startswith(allowed)]


def fragment(page: str, **state: object) -> str:
    """The fragment of a page's state, as core/address.js writes it."""

    def write(value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, Sequence) and not isinstance(value, str):
            return ",".join(quote(str(each), safe="!'()*-._~") for each in value)
        return str(value)

    query = urlencode({name: write(value) for name, value in state.items()})
    return f"#/{page}?{query}" if query else f"#/{page}"
