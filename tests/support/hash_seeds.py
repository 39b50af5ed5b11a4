"""What Python prints where sets and dictionaries of texts have another order."""

from __future__ import annotations

import os
import subprocess
import sys


def said_by_two(code: str) -> tuple[str, str]:
    """What the code prints, by two processes that hash texts differently."""
    one, other = (
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            text=True,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    )
    return one, other
