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


def test_absent_programs_are_installed_where_that_is_possible(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    browser_programs.install()
    assert not (tmp_path / "asked").exists()  # only the superuser may
    monkeypatch.setattr("os.geteuid", lambda: 0)
    browser_programs.install()
    packages = " ".join(browser_programs.PROGRAMS)
    assert (tmp_path / "asked").read_text() == f"-qq update\n-qq install -y --no-install-recommends {packages}\n"
    assert capsys.readouterr().out.count(f"apt-get install {packages}") == 2  # the script has installed nothing


def test_modules_without_a_face() -> None:
    """All of tests/web/*.test.mjs."""
    (node,) = browser_programs.require("nodejs")
    files = sorted(TESTS.glob("*.test.mjs"))
    result = subprocess.run([node, "--test", *files], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
