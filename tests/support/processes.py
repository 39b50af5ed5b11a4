"""Run a function in a forked child: with limits, as an ordinary user, or several at once."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from typing import Any

NOBODY = 65534


def fork(work: Callable[[], Any]) -> tuple[int, int]:
    """Start `work`, whose result is JSON, in a child; return its id and a pipe for `join`."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    os.close(reader)
    try:
        signal.alarm(120)
        answer = {"result": work()}
    except BaseException:
        answer = {"error": traceback.format_exc()}
    with os.fdopen(writer, "w") as pipe:
        pipe.write(json.dumps(answer))
    os._exit(0)


def join(child: tuple[int, int]) -> Any:
    """The result of a child; an AssertionError with its traceback if it failed."""
    pid, reader = child
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    answer = json.loads(text) if text else {"error": f"the child ended with {code}"}
    assert "error" not in answer, answer["error"]
    return answer["result"]


def run_at_once(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of functions that run in one child each, at the same time."""
    return [join(child) for child in [fork(work) for work in works]]


def run_as_ordinary_user(work: Callable[[], Any]) -> Any:
    """The result of a function that runs without the rights of the superuser."""

    def drop_rights_and_work() -> Any:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return work()

    return join(fork(drop_rights_and_work))
