"""Kill training processes, for test_kill.py: python -m tests.support.killing (signals | renames) TEXT FOLDER

The parent trains the uninterrupted run, which also imports everything; each child is a fork of it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from nextword.cli import app
from nextword.recipe import load_recipe
from nextword.run_folder import RunFolder
from nextword.training.train import train_events

SMALL = ['tokenizer={kind="bytes"}', "model.width=8", "phase.0.log_every=1", "phase.0.save_every=0"]


def run_child(work: Callable[[], Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_by_signal(text: str, base: Path) -> None:
    """Send SIGKILL a few milliseconds after each new state until the run finishes; list the states in killed.json."""
    settings = [
        word for change in [*SMALL, "phase.0.steps=60", "phase.0.validate_every=7"] for word in ("--set", change)
    ]
    command = ["train", "lstm/tiny", "--data", text, "--quiet", "--json", *settings, "--out"]
    app([*command, str(base / "straight")], standalone_mode=False)
    sys.stdout.flush()
    broken, killed = base / "broken", []
    while True:
        words = ["train", "--resume", "--quiet", "--json", "--out", str(broken)]
        words = words if broken.exists() else [*command, str(broken)]
        state = _state(broken)
        pid = run_child(partial(app, words, standalone_mode=False))
        while _state(broken) in (state, "") and not _has_ended(pid):
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.04))
        os.kill(pid, signal.SIGKILL)  # not yet waited for, so the id is still ours if it has ended
        code = wait(pid)
        if code == 0:
            break
        assert code == -signal.SIGKILL, code
        killed.append(_state(broken))
    (base / "killed.json").write_text(json.dumps(killed))


def _state(run: Path) -> str:
    pointer = run / "state" / "current"
    return pointer.read_text() if pointer.is_file() else ""


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_before_renames(text: str, base: Path) -> None:
    """Fork a child for every rename that training does, kill it right before, and resume; print their number."""
    os.fsync = lambda handle: None  # the disk outlives a killed process
    recipe = load_recipe("lstm/tiny", [*SMALL, "phase.0.steps=2", "phase.0.validate_every=1"]).with_data([text])

    def train(folder: Path) -> None:
        for _ in train_events(recipe, folder, (folder / "manifest.json").is_file(), device="cpu"):
            pass

    def train_and_die(n: int, folder: Path) -> None:
        remaining = n

        def limit_calls(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any, **named: Any) -> Any:
                nonlocal remaining
                remaining -= 1
                if remaining < 0:
                    os._exit(9)
                return function(*given, **named)

            return call

        os.replace, os.rename = limit_calls(os.replace), limit_calls(os.rename)
        train(folder)

    train(base / "straight")
    for n in itertools.count():
        folder = base / f"at-{n}"
        code = wait(run_child(partial(train_and_die, n, folder)))
        if code == 0:
            print(n)
            return
        assert code == 9, (n, code)
        assert wait(run_child(partial(train, folder))) == 0, n
        RunFolder(folder).verify()


if __name__ == "__main__":
    {"signals": kill_by_signal, "renames": kill_before_renames}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
