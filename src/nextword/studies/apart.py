"""Many small trainings at once: one thread each, on all cores, leaving the caller's random numbers as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch

from nextword.compiled import cores

Task = tuple[Callable[..., Any], tuple[Any, ...]]  # a function of a module, and what to give it


@contextmanager
def apart(device: torch.device | None = None) -> Iterator[None]:
    """One thread, for these products are too small to share out; and random numbers of one's own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng([device] if device is not None and device.type == "cuda" else []):
            yield
    finally:
        torch.set_num_threads(threads)


def alone(function: Callable[..., Any], *given: Any) -> Any:
    with apart():
        return function(*given)


def spread(tasks: Mapping[Any, Task], progress: Callable[[float, float], None], workers: int = 0) -> dict[Any, Any]:
    """What each task finds, by its key, in the tasks' order."""
    workers = min(workers or cores(), len(tasks))
    found: dict[Any, Any] = {}
    if workers < 2:
        for key, (function, given) in tasks.items():
            found[key] = alone(function, *given)
            progress(len(found), len(tasks))
        return found
    # Processes and not threads, since torch has one generator of random numbers a process; spawned and not forked,
    # since a fork takes over locks of torch's threads without the threads
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        asked = {pool.submit(alone, function, *given): key for key, (function, given) in tasks.items()}
        for future in as_completed(asked):
            found[asked[future]] = future.result()
            progress(len(found), len(tasks))
    finally:
        pool.shutdown(cancel_futures=True)
    return {key: found[key] for key in tasks}
