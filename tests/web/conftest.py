"""A server with tiny runs of all kinds and a headless Chromium, one of each per test process.

A test fails if the console shows an error that it did not expect (`browser.expect_console_errors`), or if a request
leaves the server's origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from nextword.lm.base import TextModel
from tests.support.browser import Browser, start_chromium
from tests.support.running_server import Running, make_loader, run_server, train_once


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name → run. Do not modify."""
    return train_once(tmp_path_factory)


@pytest.fixture(scope="session")
def server(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """It serves all runs and trains. For other settings, call `run_server`, and open its address."""
    with run_server(folders, train=tmp_path_factory.mktemp("trained")) as running:
        yield running


@pytest.fixture(scope="session")
def models(folders: dict[str, Path]) -> Callable[[str], TextModel]:
    """The same models in this process, to compare with."""
    return make_loader(folders)


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    chromium = start_chromium()
    try:
        yield chromium
    finally:
        chromium.quit()


@pytest.fixture
def browser(driver: webdriver.Chrome, server: Running, tmp_path: Path) -> Iterator[Browser]:
    """The browser, in which no test has left anything."""
    for log in ("browser", "performance"):
        driver.get_log(log)
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    tab = Browser(driver, server.address, downloads)
    yield tab
    foreign, errors = tab.foreign_requests(), tab.console_errors()
    tab.reset()
    assert not foreign, f"requests left the origin: {foreign}"
    assert not errors, f"the console shows errors: {errors}"
