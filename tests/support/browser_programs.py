"""The programs that tests of the playground need, and where they are: Chromium, its driver, Node.js
and curl.

python -m tests.support.browser_programs        # install what is absent, where that is possible (Debian's packages)
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NoReturn

import pytest

# Debian's package → names of the program in it
PROGRAMS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "chromium-driver": ("chromedriver",),
    "nodejs": ("node",),
    "curl": ("curl",),
}


def find(package: str) -> str:
    """The path of a package's program, or ""."""
    return next((path for name in PROGRAMS[package] if (path := shutil.which(name))), "")


def require(*packages: str) -> list[str]:
    """The paths of programs. Where one is absent, the test is skipped."""
    missing = [package for package in packages if not find(package)]
    if missing:
        skip_or_fail(f"PLAYGROUND NOT TESTED: {describe(missing)}")
    return [find(package) for package in packages]


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test; with CI=true in the environment, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def describe(missing: list[str]) -> str:
    programs = ", ".join(PROGRAMS[package][0] for package in missing)
    return f"no {programs} on this machine. On Debian: apt-get install {' '.join(missing)}"


def install() -> None:
    """Install what is absent with apt-get, if this user may; otherwise say what to install."""
    missing = [package for package in PROGRAMS if not find(package)]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"Installing {', '.join(missing)} for the tests of the playground …")
        for words in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
            environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(["apt-get", "-qq", *words], stdout=subprocess.DEVNULL, env=environment, check=False)
        missing = [package for package in missing if not find(package)]
    if missing:
        print(f"Tests of the playground will be skipped: {describe(missing)}")


if __name__ == "__main__":
    install()
