"""What happens where a program is absent that the tests of the playground need; and those that node runs itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import browser_programs

TESTS = Path(__file__).parent


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_absent_programs_are_named(monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="apt-get install chromium chromium-driver"):
        browser_programs.require("chromium", "chromium-driver")


def test_modules_without_a_face() -> None:
    """All of tests/web/*.test.mjs."""
    (node,) = browser_programs.require("nodejs")
    files = sorted(TESTS.glob("*.test.mjs"))
    result = subprocess.run([node, "--test", *files], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
