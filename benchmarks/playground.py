"""The playground in Chromium on the loopback: first paint, typing, a long text in Read, and its weight.

    python benchmarks/playground.py                        # runs/demo: n-gram and LSTM; needs Chromium (make setup-dev)
    python benchmarks/playground.py RUN RUN                # other models
    python benchmarks/playground.py --rounds 3 --keys 40   # a rehearsal

First paint: loads without a cache, and again with a filled one; "bars" is when the first result of Type
is on the screen, of models that are loaded. Typing: one key every 120 ms; a key's delay ends with the frame in which
the bars of a model show the text with this key, or a later one. Read: frames while the wheel scrolls through 10,000
words, and delays from a key or a move of the pointer to the next frame. Headless Chromium draws 60 frames a second.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from nextword.data.builtin import bible_chapters

if TYPE_CHECKING:
    from tests.support.browser import Browser

ROOT = Path(__file__).resolve().parent.parent
KEY_SECONDS = 0.12  # about 100 words a minute
WORDS = 10_000  # of the long text
TYPED = (
    "And it came to pass in those days that the king sent his servants to the city, and they said to all the people of "
    "the land: Hear the word of Yahweh, you who fear him and keep his commandments, for he is good to "
)
# When the first bars are drawn, before anything else runs in the page
WATCH_LOAD = """
new MutationObserver((_, observer) => {
  if (!document.querySelector(".bars .row")) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.barsAt = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
# For each model, the delays from a key to the frame that shows bars for it
WATCH_TYPING = """
const field = document.querySelector("textarea");
window.delays = {};
const waiting = {};
field.addEventListener("input", (event) => {
  for (const bars of document.querySelectorAll("nw-bars")) {
    (waiting[bars.model] ??= []).push({ length: field.value.length, at: window.keyAt });
  }
});
addEventListener("keydown", (event) => { window.keyAt = event.timeStamp; }, true);
new MutationObserver(() => {
  requestAnimationFrame(() => setTimeout(() => {
    const now = performance.now();
    for (const bars of document.querySelectorAll("nw-bars")) {
      const own = waiting[bars.model] ?? [];
      while (own.length && own[0].length <= bars.text.length) {
        (window.delays[bars.model] ??= []).push(now - own.shift().at);
      }
    }
  }));
}).observe(document.querySelector("nw-cards"), { childList: true, subtree: true });
"""
WATCH_FRAMES = """
Object.assign(window, { frames: [], tasks: [], delays: [], isWatching: true });
let last = performance.now();
const watch = (now) => {
  window.frames.push(now - last);
  last = now;
  if (window.isWatching) requestAnimationFrame(watch);
};
requestAnimationFrame(watch);
const note = (list, entries) => list.push(...entries.getEntries().map((entry) => entry.duration));
new PerformanceObserver((entries) => note(window.tasks, entries)).observe({ type: "longtask" });
for (const name of ["keydown", "pointermove"]) {
  addEventListener(name, (event) => {
    requestAnimationFrame(() => setTimeout(() => window.delays.push(performance.now() - event.timeStamp)));
  }, true);
}
"""


@contextmanager
def serve(runs: Sequence[Path]) -> Iterator[str]:
    """The address of a server with these runs."""
    command = [sys.executable, "-m", "nextword", "serve", *map(str, runs), "--port", "0", "--no-train", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline()]
        while lines[-1] != "}\n":
            lines.append(process.stdout.readline())
            assert lines[-1], "the server has ended"
        yield json.loads("".join(lines))["address"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextmanager
def open_browser(address: str) -> Iterator[Browser]:
    from tests.support.browser import Browser, start_chromium

    driver = start_chromium()
    try:
        with TemporaryDirectory() as folder:
            yield Browser(driver, address, Path(folder))
    finally:
        driver.quit()


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def show_row(name: str, values: Sequence[float], target: str = "") -> None:
    middle, most = statistics.median(values), percentile(values, 0.95)
    print(f"| {name} | {middle:.0f} ms | {most:.0f} ms | {max(values):.0f} ms | {target} |", flush=True)


def measure_first_paint(browser: Browser, rounds: int) -> None:
    browser.cdp("Page.addScriptToEvaluateOnNewDocument", source=WATCH_LOAD)
    browser.open("type")  # loads the models
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    for cache in ("no", "filled"):
        browser.cdp("Network.setCacheDisabled", cacheDisabled=cache == "no")
        paints, bars = [], []
        for _ in range(rounds):
            browser.open("type")
            paints.append(browser.wait_for(paint))
            bars.append(browser.wait_for("window.barsAt"))
        show_row(f"first paint, {cache} cache", paints, "≤ 1 s")
        show_row(f"bars of the first example, {cache} cache", bars)


def measure_typing(browser: Browser, models: Sequence[str], keys: int) -> None:
    browser.open("type", models=models, text="")
    browser.find("textarea").click()
    browser.run(WATCH_TYPING)
    began = time.perf_counter()
    for i, letter in enumerate((TYPED * (1 + keys // len(TYPED)))[:keys]):
        time.sleep(max(0.0, began + i * KEY_SECONDS - time.perf_counter()))
        browser.cdp("Input.dispatchKeyEvent", type="keyDown", text=letter, key=letter)
        browser.cdp("Input.dispatchKeyEvent", type="keyUp", key=letter)
    browser.wait_for(f"Object.values(window.delays).every((own) => own.length === {keys})")
    for name, delays in browser.run("return window.delays").items():
        show_row(f"key to bars, {name}, {keys} keys", delays, "p95 ≤ 150 ms")


def measure_reading(browser: Browser, models: Sequence[str]) -> None:
    words = chain.from_iterable(chapter.text.split(" ") for chapter in bible_chapters("web"))
    text = " ".join(word for word, _ in zip(words, range(WORDS), strict=False))
    began = time.perf_counter()
    browser.open("read", models=models, text=text, settle=False)
    browser.wait_for("document.querySelector('nw-heat-text .text [data-i]') !== null", 600)
    first = time.perf_counter() - began
    browser.wait_for("!document.querySelector('[aria-busy=true]')", 600)
    last = time.perf_counter() - began
    print(f"| Read, {WORDS:,} words: first colors, all colors | {first:.1f} s, {last:.1f} s | | | |")
    browser.run(WATCH_FRAMES)
    height = browser.run("return document.documentElement.scrollHeight")
    distance = min(height, 60_000)
    browser.cdp(
        "Input.synthesizeScrollGesture", x=600, y=500, yDistance=-distance, speed=5000, gestureSourceType="mouse"
    )
    show_frames(browser, f"frame while {distance:,} px are scrolled")
    browser.run(
        "window.scrollTo({top: 900, behavior: 'instant'}); Object.assign(window, {frames: [], tasks: [], delays: []})"
    )
    for i in range(60):
        browser.cdp("Input.dispatchMouseEvent", type="mouseMoved", x=200 + 10 * i, y=300 + 5 * (i % 40))
        time.sleep(0.03)
    browser.run("document.querySelector('main .slider input').focus({preventScroll: true})")
    for _ in range(60):
        for kind in ("keyDown", "keyUp"):
            browser.cdp("Input.dispatchKeyEvent", type=kind, key="ArrowRight", windowsVirtualKeyCode=39)
        time.sleep(0.03)
    show_row("pointer or arrow key to the next frame", browser.run("return window.delays"), "≤ 200 ms")
    show_frames(browser, "frame meanwhile")


def show_frames(browser: Browser, name: str) -> None:
    frames, tasks = browser.run("return [window.frames, window.tasks]")
    show_row(name, frames, "≤ 50 ms")
    longest = f"{max(tasks):.0f} ms" if tasks else "–"
    print(f"| tasks of more than 50 ms | {len(tasks)} | | {longest} | 0 |")


def show_weight(browser: Browser) -> None:
    from tests.support.browser import page_ids

    from nextword.server.playground import read_files

    files = read_files().values()
    packed, plain = sum(len(file.compressed) for file in files), sum(len(file.content) for file in files)
    pages = {}
    browser.cdp("Network.setCacheDisabled", cacheDisabled=True)
    sizes = (
        "performance.getEntriesByType('resource').filter((e) => e.name.includes('/web/')).map((e) => e.encodedBodySize)"
    )
    for page in page_ids():
        browser.open(page)
        pages[page] = sum(browser.run(f"return {sizes}"))
    lightest, heaviest = min(pages, key=lambda page: pages[page]), max(pages, key=lambda page: pages[page])
    print("\n| weight | received | unpacked | target |\n| --- | --- | --- | --- |")
    print(f"| all {len(files)} files | {packed / 1000:.0f} kB | {plain / 1000:.0f} kB | ≤ 300 kB received |")
    for name, page in (("lightest", lightest), ("heaviest", heaviest)):
        print(f"| the {name} page alone, {page} | {pages[page] / 1000:.0f} kB | | |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs = [ROOT / "runs/demo/ngram", ROOT / "runs/demo/lstm"]
    parser.add_argument(
        "runs", nargs="*", type=Path, default=runs, help="run folders; default: n-gram and LSTM of the demo"
    )
    parser.add_argument("--rounds", type=int, default=20, help="page loads")
    parser.add_argument("--keys", type=int, default=200, help="keys to type")
    options: Any = parser.parse_args()
    sys.path.insert(0, str(ROOT))  # for tests.support
    names = [run.name for run in options.runs]
    print(f"load of the machine at the beginning: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| what | median | 95 % | longest | target |\n| --- | --- | --- | --- | --- |")
    with serve(options.runs) as address, open_browser(address) as browser:
        measure_first_paint(browser, options.rounds)
        measure_typing(browser, names, options.keys)
        measure_reading(browser, names)
        show_weight(browser)


if __name__ == "__main__":
    main()
