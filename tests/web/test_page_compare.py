"""The page Compare in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nextword
from nextword.lm.base import TextModel
from tests.support.browser import Browser
from tests.support.running_server import Running, run_server
from tests.support.server_runs import TALE

Models = Callable[[str], TextModel]
TEXT = "the king of a land went to see his house and all people said no"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, dict[str, Any]]]:
    """A server with the runs of a comparison, and what `compare --json` printed."""
    folder = tmp_path_factory.mktemp("compared")
    text = folder / "tale.txt"
    text.write_text("".join(f"{TALE} . {n} and {n * n} .\n" for n in range(150)), encoding="utf-8")
    out = folder / "duel"
    nextword.compare(["ngram/tiny", "lstm/tiny"], data=text, out=out, minutes=0.05, progress=False, device="cpu")
    runs = {name: out / name for name in ("ngram-tiny", "lstm-tiny")}
    with run_server(runs) as running:
        yield running, json.loads((out / "comparison.json").read_text(encoding="utf-8"))


def bars(browser: Browser) -> list[tuple[str, str]]:
    """The models that are ranked on the text, with their bits per byte."""
    browser.wait_for("document.querySelector('.score-bars') !== null")
    names = browser.texts("ol.score-bars .who-name")
    return list(zip(names, browser.texts("ol.score-bars .number b"), strict=True))


def test_models_are_ranked_on_a_text_of_ones_own(browser: Browser, compared: tuple[Running, dict[str, Any]]) -> None:
    server, _ = compared
    browser.open("compare", address=server.address, text=TEXT)
    for text in (TEXT, "we have no bread . 7 and 49 ."):
        browser.fill("nw-page-compare textarea", text)
        bits = {name: nextword.load(folder).score(text).bits_per_byte() or 0 for name, folder in server.folders.items()}
        expected = [(name, f"{bits[name]:.3f}") for name in sorted(bits, key=bits.__getitem__)]
        browser.wait_for(f"document.querySelector('ol.score-bars b').textContent === '{expected[0][1]}'")
        assert bars(browser) == expected
    shown = bars(browser)
    browser.open_file(browser.save_html())
    assert bars(browser) == shown


def test_scores_that_must_not_be_compared_have_no_rank(browser: Browser, models: Models) -> None:
    browser.open("compare", models=["lstm", "bert", "ngram"], text=TEXT)
    assert bars(browser) == [("lstm", f"{models('lstm').score(TEXT).bits_per_byte():.3f}")]
    assert browser.texts("ul.score-bars .who-name") == ["bert", "ngram"]
    assert "pseudo-likelihood" in browser.text()
    assert "loses part of the text" in browser.text()  # the tokenizer of words


def test_report_shows_what_the_command_prints(browser: Browser, compared: tuple[Running, dict[str, Any]]) -> None:
    server, result = compared
    browser.open("compare", address=server.address)
    names = [row["name"] for row in result["models"]]
    assert browser.texts(".leaderboard tbody th .flag") == names
    assert browser.texts(".leaderboard td.main") == [f"{row['bits_per_byte']:.3f}" for row in result["models"]]
    assert browser.texts(".headline")[0].startswith("On tale")
    assert browser.count(".leaderboard svg.interval") == 2
    if result["mixture"]:
        assert f"{result['mixture']['bits_per_byte']:.3f}" in browser.texts(".mixture")[0]
    browser.click("nw-line-chart summary")
    browser.wait_for("document.querySelectorAll('nw-line-chart tbody tr').length > 1")
    links = browser.run("return [...document.querySelectorAll('.leaderboard a')].map((link) => link.hash)")
    assert sorted(links) == sorted(f"#/type?models={name}" for name in names)
    board = browser.texts(".leaderboard")
    browser.open_file(browser.save_html())
    assert browser.texts(".leaderboard") == board


def test_error_of_one_model_leaves_the_others(browser: Browser, folders: dict[str, Path]) -> None:
    with run_server({"lstm": folders["lstm"], "gone": folders["lstm"]}) as server:
        server.service.pool.folders = {**server.service.pool.folders, "gone": folders["lstm"] / "gone"}
        browser.expect_console_errors("status of")
        browser.open("compare", address=server.address, models=["lstm", "gone"], text=TEXT)
        browser.wait_for(
            "document.querySelector('.compare .failed') !== null || document.querySelector('.notice.error') !== null"
        )
        assert [name for name, _ in bars(browser)] == ["lstm"]
        assert "gone" in browser.texts(".compare .failed")[0]


def test_without_a_text_nothing_is_ranked(browser: Browser) -> None:
    browser.open("compare", models=["ngram"], text=" ")
    assert browser.count(".score-bars") == 0
    assert "Type a text." in browser.text()
