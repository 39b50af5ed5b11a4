"""What axe-core finds in a page, which controls Tab reaches, and how wide the page is."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from selenium.webdriver.common.keys import Keys

from tests.support.browser import Browser
from tests.support.browser_programs import skip_or_fail

# A control that Tab must reach: of radio buttons, one of each group
CONTROLS = """
const isControl = (element) => element.tabIndex >= 0 && !element.disabled && element.checkVisibility();
const groups = new Set();
const controls = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
  .filter(isControl)
  .filter((element) => {
    if (element.type !== "radio") return true;
    const isFirst = !groups.has(element.name);
    groups.add(element.name);
    return isFirst;
  });
"""
DESCRIBE = """
const describe = (element) => {
  const text = element.getAttribute("aria-label") ?? (element.name || element.textContent);
  return `${element.tagName.toLowerCase()} ${element.id} ${text.trim().slice(0, 40)}`;
};
"""
# Note every control that gets the focus, and whether one sees it: something must change when the focus goes
WATCH = """
const look = (element) => {
  const near = [element, ...(element.labels ?? []), element.parentElement, ...element.querySelectorAll("*")];
  return near.slice(0, 12).map((each) => {
    const style = getComputedStyle(each);
    const outline = style.outlineStyle === "none" ? "" : style.outline;
    return [outline, style.boxShadow, style.backgroundColor, style.borderColor, style.stroke, style.strokeWidth].join();
  }).join();
};
window.visits = [];
let last = null;
const visit = ({ target }) => {
  if (last?.element.isConnected && look(last.element) === last.look) last.visit.isUnseen = true;
  let index = controls.indexOf(target);
  if (index < 0 && target.type === "radio") {
    index = controls.findIndex((each) => each.type === "radio" && each.name === target.name);
  }
  const visit = { index, name: describe(target) };
  if (index >= 0 && window.visits.some((each) => each.index === index)) {
    document.removeEventListener("focusin", window.visit); // the beginning of the page again
    return;
  }
  window.visits.push(visit);
  last = { element: target, look: look(target), visit };
};
document.removeEventListener("focusin", window.visit);
window.visit = visit;
document.addEventListener("focusin", visit);
return controls.map(describe);
"""
DRAWN = "return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))"


@cache
def _axe_source() -> str:
    spec = find_spec("axe_playwright_python")
    if spec is None or not spec.submodule_search_locations:
        skip_or_fail("PLAYGROUND NOT TESTED: axe-core is absent; make setup-dev installs it")
    return (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")


def find_violations(browser: Browser, *, only_contrast: bool = False) -> list[str]:
    """The serious and critical violations of what the page shows now."""
    if not browser.run("return Boolean(window.axe)"):
        browser.run(_axe_source())
    options: dict[str, object] = {"resultTypes": ["violations"], "preload": False, "iframes": False}
    if only_contrast:
        options["runOnly"] = ["color-contrast"]
    script = "return axe.run(document, arguments[0]).then((result) => result.violations)"
    return [
        f"{found['id']}: {found['help']}: {[node['html'][:160] for node in found['nodes'][:3]]}"
        for found in browser.run(script, options)
        if found["impact"] in ("serious", "critical")
    ]


def find_unreachable(browser: Browser) -> list[str]:
    """What is wrong when somebody presses Tab through the page: controls not reached, and focus that is not seen."""
    browser.run(DRAWN)  # charts follow the width of the page
    browser.run("document.activeElement?.blur(); window.scrollTo(0, 0)")
    names = browser.run(CONTROLS + DESCRIBE + WATCH)
    browser.press(
        *[Keys.ESCAPE, Keys.TAB] * (len(names) + 5)
    )  # where Tab means something else, Escape makes it move on
    visits = browser.run("document.removeEventListener('focusin', window.visit); return window.visits")
    reached = {visit["index"] for visit in visits}
    problems = [f"Tab does not reach: {name}" for index, name in enumerate(names) if index not in reached]
    problems += [f"focus is not visible: {visit['name']}" for visit in visits if visit.get("isUnseen")]
    if browser.count('[tabindex]:not([tabindex="0"], [tabindex="-1"])'):
        problems.append("a positive tabindex changes the order")
    return problems


def excess_width(browser: Browser) -> int:
    """By how many pixels the page scrolls sideways."""
    return int(browser.run("const root = document.documentElement; return root.scrollWidth - root.clientWidth"))
