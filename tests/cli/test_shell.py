"""Behavior that needs a real process: closed pipes, locales, and the imports of `--help`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import environment, start

PYTHON = sys.executable


def shell(script: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environ = environment(**variables)
    return subprocess.run(["bash", "-o", "pipefail", "-c", script], env=environ, capture_output=True, timeout=120)


@pytest.mark.parametrize("words", ["generate RUN The --max-tokens 3000", "papers --json"])
def test_closed_pipe_ends_quietly(trained: Path, words: str) -> None:
    done = shell(f"{PYTHON} -m nextword {words.replace('RUN', str(trained))} | head -c 3")
    assert len(done.stdout) == 3
    assert done.stderr == b""
    assert done.returncode == 0


def test_output_is_utf8_in_any_locale(trained: Path) -> None:
    command = f"{PYTHON} -m nextword generate {trained} 'Größe ✓ 東京' --max-tokens 2 --temperature 0"
    done = shell(command, LC_ALL="C")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode("utf-8").startswith("Größe ✓ 東京")


def test_input_and_output_are_utf8_in_any_locale(trained: Path) -> None:
    command = f"printf 'Größe ✓\\n' | {PYTHON} -m nextword evaluate {trained} --data - --lines --json"
    done = shell(command, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["text"] == "Größe ✓"


def test_piped_output_has_no_errors_or_colors(trained: Path) -> None:
    process = start("evaluate", trained)
    shown, message = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "bits/byte" in shown
    assert message == ""
    assert "\x1b" not in shown, "no colors into a pipe"


@pytest.mark.parametrize(
    "words", ["['--help']", "['--version']", "['train', '--help']", "['papers', 'nonsense', '--help']"]
)
def test_help_imports_no_torch(words: str) -> None:
    run = f"import sys; from nextword.cli import app; app({words}, standalone_mode=False)"
    script = f"{run}; assert 'torch' not in sys.modules"
    done = subprocess.run([PYTHON, "-c", script], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
