"""The page Vectors in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from nextword.lens import find_neighbors, project_vectors
from nextword.lm.base import TextModel
from tests.support.browser import Browser

Models = Callable[[str], TextModel]
WORDS = ["king", "house", "people", "land", "bread", "said", "went"]
TEXTS = ["the king went to see his house", "all people said no", "we have no bread"]
NEAR, SUM = ".plane .card nw-bars", "nw-page-vectors nw-scatter ~ * nw-bars"


def rows(browser: Browser, index: int = 0) -> list[tuple[str, float]]:
    """Words and cosines of a list of neighbors."""
    script = "return [...document.querySelectorAll('.plane .card nw-bars')][arguments[0]].innerText.split('\\n')"
    browser.wait_for(f"document.querySelectorAll('{NEAR}').length > {index}")
    lines = browser.run(script, index)
    return [(word, float(number.replace("−", "-"))) for word, number in zip(lines[::2], lines[1::2], strict=True)]


def places(browser: Browser) -> dict[str, tuple[float, ...]]:
    """The points of the table below the plane."""
    browser.wait_for("document.querySelector('nw-scatter tbody tr') !== null")
    cells = (
        "[...document.querySelectorAll('nw-scatter tbody tr')].map((row) => [...row.cells].map((c) => c.textContent))"
    )
    return {text: (float(x), float(y)) for text, _, x, y in browser.run(f"return {cells}")}


def near(found: list[tuple[str, float]], expected: Any) -> None:
    """The same words, with cosines as they are shown. Words of equal cosine may change places."""
    assert [cosine for _, cosine in found] == pytest.approx([each.cosine for each in expected], abs=6e-4)
    assert sorted(word for word, _ in found) == sorted(each.text.strip() for each in expected)


def test_words_of_a_network_lie_where_the_lens_projects_them(browser: Browser, models: Models) -> None:
    browser.open("vectors", model="gpt2", groups=[], more=" ".join(WORDS), query="king", layer="1")
    space = " " if models("gpt2").tokenizer.kind in ("bpe", "unigram", "bytes") else ""
    items = [space + word for word in WORDS]
    expected = {
        p.text.strip(): (p.x, p.y) for p in project_vectors(models("gpt2"), items, layer=1, pooling="text").points
    }
    shown = places(browser)
    assert shown.keys() == expected.keys()
    for word, place in expected.items():
        assert shown[word] == pytest.approx(place, abs=2e-3)
    others = [item for item in items if item.strip() != "king"]
    near(rows(browser), find_neighbors(models("gpt2"), f"{space}king", others, 8, 1, "text").neighbors)
    browser.click('nw-scatter [aria-label="bread"]')
    browser.wait_for("document.querySelector('.plane .card h2').textContent.includes('bread')")
    others = [item for item in items if item.strip() != "bread"]
    near(rows(browser), find_neighbors(models("gpt2"), f"{space}bread", others, 8, 1, "text").neighbors)
    saved = (rows(browser), shown)
    browser.open_file(browser.save_html())
    assert (rows(browser), places(browser)) == saved
    browser.click('nw-scatter [aria-label="king"]')  # computed in the page, so a saved one answers, too
    browser.wait_for("document.querySelector('.plane .card h2').textContent.includes('king')")


def test_table_of_word_vectors_is_searched_as_a_whole_and_adds_words(browser: Browser, models: Models) -> None:
    browser.open("vectors", model="word2vec", groups=[], more=" ".join(WORDS), query="land", sum="king - house + bread")
    near(rows(browser, 1), find_neighbors(models("word2vec"), "land", k=8).neighbors)
    best = find_neighbors(models("word2vec"), "king - house + bread", k=1).neighbors[0]
    browser.wait_for(f"document.querySelector('.sum output').textContent === '{best.text}'")
    browser.type(".sum input", "people")
    browser.wait_for(lambda: "people+-+house" in browser.fragment)
    best = find_neighbors(models("word2vec"), "people - house + bread", k=1).neighbors[0]
    browser.wait_for(f"document.querySelector('.sum output').textContent === '{best.text}'")


def test_word_moves_with_its_context_from_layer_to_layer(browser: Browser, models: Models) -> None:
    texts = ["the king went", "no king said", "all people and king"]
    browser.open("vectors", model="bert", mode="contexts", word="king", contexts="\n".join(texts), layer="0", query="")
    layers = len(models("bert").network.widths)
    browser.wait_for(f"document.querySelectorAll('input[name=layer]').length === {layers}")
    assert set(places(browser)) == set(texts)
    browser.click(f"#layer-{layers - 1}")
    browser.wait_for(f"location.hash.includes('layer={layers - 1}')")
    browser.settle()
    words = [row.vectors[row.words.index("king")] for row in models("bert").embed_words(texts, layers - 1)]
    cosines = sorted((float(words[0] @ each / (words[0].norm() * each.norm())) for each in words[1:]), reverse=True)
    assert [cosine for _, cosine in rows(browser)] == pytest.approx(cosines, abs=6e-4)


def test_points_are_reached_with_the_keyboard(browser: Browser) -> None:
    browser.open("vectors", model="gpt2", mode="texts", texts="\n".join(TEXTS))
    browser.wait_for("document.querySelectorAll('nw-scatter .point').length === 3")
    assert browser.count("nw-scatter [tabindex='0'].point") == 1
    browser.run("document.querySelector('nw-scatter .point[tabindex=\"0\"]').focus()")
    before = browser.run("return document.activeElement.getAttribute('aria-label')")
    for key in (Keys.ARROW_LEFT, Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ARROW_DOWN):
        browser.press(key)
    label = browser.run("return document.activeElement.getAttribute('aria-label')")
    assert label in TEXTS
    assert before in TEXTS
    browser.press(Keys.ENTER)
    browser.wait_for(f"document.querySelector('.plane .card h2').textContent.includes('{label}')")


def test_words_that_a_model_does_not_know_are_named(browser: Browser) -> None:
    browser.expect_console_errors("status of 4")
    browser.open(
        "vectors", model="word2vec", groups=[], more=f"{' '.join(WORDS)} zzyzx", query="zzyzx", sum="zzyzx + king"
    )
    browser.wait_for("document.querySelectorAll('.failed').length === 2")  # of the neighbors, and of the sum
    assert all("zzyzx" in text for text in browser.texts(".failed"))
    assert re.search(r"does not know: zzyzx", browser.text())
    assert len(places(browser)) == len(WORDS)
