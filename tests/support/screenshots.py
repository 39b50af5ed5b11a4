"""Pictures of every page of the playground for docs/playground/: at 1280 and 390 pixels, light and dark.

    nextword serve runs/demo runs/kjv-to-web runs/bert runs/word2vec runs/sentiment --port 8000
    python -m tests.support.screenshots http://127.0.0.1:8000 docs/playground

The models are those of `make demo`, and seq2seq/small, bert/small, word2vec/small and bert/finetune on SST-2, each
trained for a few minutes. Look at the pictures before you commit them.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from tests.support.browser import Browser, page_ids, start_chromium

WIDTHS = (1280, 390)
THEMES = ("light", "dark")
TALLEST = 1800  # pixels; what is below is left out
COLORS = 256  # of the palette, which makes a file half as large
# page → the state to show; the others show their first example
STATES: Mapping[str, Mapping[str, Any]] = {
    "type": {"models": ["ngram", "lstm", "gpt2"], "text": "And God said to"},
    "fill": {"models": ["ngram", "lstm", "gpt2"]},
    "inside": {"model": "lstm", "view": "gradient"},
}


def take(browser: Browser, page: str, width: int, theme: str, language: str = "en-US") -> bytes:
    """A picture of a page with its results."""
    browser.set_language(language)
    browser.set_media(prefers_color_scheme=theme, prefers_reduced_motion="reduce")
    browser.set_size(width)
    browser.open(page, **STATES.get(page, {}))
    browser.wait_for("document.querySelector('.notice') === null", seconds=120)
    height = min(TALLEST, int(browser.run("return document.documentElement.scrollHeight")))
    browser.set_size(width, height)
    return bytes(browser.driver.get_screenshot_as_png())


def save(picture: bytes, path: Path) -> None:
    """Write a picture with a small palette."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="of a server that runs, http://127.0.0.1:8000")
    parser.add_argument("out", type=Path, help="folder of the pictures")
    parser.add_argument("pages", nargs="*", help="only these pages")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    driver = start_chromium()
    try:
        with tempfile.TemporaryDirectory() as downloads:
            browser = Browser(driver, asked.address.rstrip("/"), Path(downloads))
            for page in asked.pages or page_ids():
                for width in WIDTHS:
                    for theme in THEMES:
                        save(take(browser, page, width, theme), asked.out / f"{page}-{width}-{theme}.png")
            if not asked.pages:
                save(take(browser, "type", 1280, "light", "zh-CN"), asked.out / "type-1280-light-zh.png")
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
