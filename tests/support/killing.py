"""Deaths of training processes, for test_kill.py: python -m tests.support.killing (signals | renames) TEXT FOLDER

The parent trains the run that nothing happens to, which also imports everything; each child is a fork of it.
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


def child(work: Callable[[], Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except SystemExit as left:
        os._exit(left.code if isinstance(left.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def signals(text: str, base: Path) -> None:
    """SIGKILL a few milliseconds after each new state, until the run has come to its end; killed.json says where."""
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
        at = _state(broken)
        pid = child(partial(app, words, standalone_mode=False))
        while _state(broken) in (at, "") and not _ended(pid):
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.04))
        os.kill(pid, signal.SIGKILL)  # not yet waited for, so it is ours even when it has ended
        code = wait(pid)
        if code == 0:
            break
        assert code == -signal.SIGKILL, code
        killed.append(_state(broken))
    (base / "killed.json").write_text(json.dumps(killed))


def _state(run: Path) -> str:
    pointer = run / "state" / "current"
    return pointer.read_text() if pointer.is_file() else ""


def _ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def renames(text: str, base: Path) -> None:
    """A child for every rename that training does, each dying right before it; another goes on. Prints how many."""
    os.fsync = lambda handle: None  # the disk outlives a killed process
    recipe = load_recipe("lstm/tiny", [*SMALL, "phase.0.steps=2", "phase.0.validate_every=1"]).with_data([text])

    def whole(folder: Path) -> None:
        for _ in train_events(recipe, folder, (folder / "manifest.json").is_file(), device="cpu"):
            pass

    def dying(n: int, folder: Path) -> None:
        left = n

        def mortal(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any, **named: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os._exit(9)
                return function(*given, **named)

            return call

        os.replace, os.rename = mortal(os.replace), mortal(os.rename)
        whole(folder)

    whole(base / "straight")
    for n in itertools.count():
        folder = base / f"at-{n}"
        code = wait(child(partial(dying, n, folder)))
        if code == 0:
            print(n)
            return
        assert code == 9, (n, code)
        assert wait(child(partial(whole, folder))) == 0, n
        RunFolder(folder).verify()


if __name__ == "__main__":
    {"signals": signals, "renames": renames}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
