"""A worker without training, for tests of jobs: it does what the prompt of its job says.

finish          one model trained, at once
wait            trains until it is stopped
crash           is killed by a signal in the middle
fail            ends with an error that names the folder
deaf            ignores a stop
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any


def emit(event: str, **values: Any) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


def main() -> None:
    job = json.loads(sys.stdin.readline())
    name, order = job["models"][0], job["prompt"]
    place = {"model": name, "phase": "train", "epoch": 0.5}
    begun = os.path.join(job["folder"], "begun")
    first = 3 if os.path.exists(begun) else 0  # a resumed run goes on at step 3
    os.makedirs(job["folder"], exist_ok=True)
    with open(begun, "w") as file:
        file.write("")
    emit("begin", **place, step=first, seconds=0.0, parameters=7, tokens=100, steps=10)
    for line in ("not JSON", "12", "{}"):
        print(line, flush=True)
    for step in range(first + 1, 6):
        emit("step", **place, step=step, seconds=step, loss=1 / step, of=10, rate=0.1, norm=1.0)
    emit("valid", **place, step=5, seconds=5.0, valid=0.5, best=True)
    if order == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "fail":
        emit("outcome", state="failed", error=f"Cannot read {job['folder']}/model: damaged.")
        return
    if order == "deaf":
        time.sleep(60)
    if order == "wait":
        sys.stdin.readline()
        emit("end", **place, step=5, seconds=5.0, reason="interrupted")
        emit("outcome", state="stopped", error=None)
        return
    emit("sample", model=name, step=5, seconds=5.0, final=True, kind="continuation", prompt="a", text="b")
    emit("end", **place, step=10, seconds=10.0, reason="steps")
    emit("evaluate", **place, step=10, seconds=10.0, bits_per_byte=1.5)
    emit("outcome", state="finished", error=None)


if __name__ == "__main__":
    main()
