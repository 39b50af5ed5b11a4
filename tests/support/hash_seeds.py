"""Run code under two hash seeds, so that sets of strings have different orders."""

from __future__ import annotations

import os
import subprocess
import sys


def run_with_two_hash_seeds(code: str) -> tuple[str, str]:
    """Return the output of the code in two processes that hash strings differently."""
    first, second = (
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            text=True,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    )
    return first, second
