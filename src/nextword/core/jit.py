"""Loops over arrays, compiled when first used and kept on disk, so that the next process finds them ready.

Compiled functions let other threads run: `spread` cuts a range in two or more and gives each part to a thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from llvmlite import binding
from numba import config, njit

OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
make: Any = njit
compiled: Callable[..., Any] = make(**OPTIONS)
# For small functions that only look into arrays: they count no references to them, which takes longer than looking
leaf: Callable[..., Any] = make(**OPTIONS, _nrt=False)

SMALL = 1 << 15  # below, threads cost more than they give


@cache
def has_instructions(*names: str) -> bool:
    """Whether loops are compiled for a machine that has all of these, as LLVM calls them: this one, unless
    NUMBA_CPU_FEATURES says otherwise."""
    told = getattr(config, "CPU_FEATURES", None)  # "+avx2,-avx512f"
    if told is not None:
        return {f"+{name}" for name in names} <= set(told.split(","))
    found = binding.get_host_cpu_features()
    return all(found.get(name) for name in names)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(total: int, work: Callable[..., Any], *args: Any, least: int = SMALL) -> list[Any]:
    """`work(begin, end, *args)` over parts of a range, one thread a core; what the parts return, in order."""
    parts = max(1, min(cores(), total // least))
    edges = [total * i // parts for i in range(parts + 1)]
    plain = [a.view(np.ndarray) if isinstance(a, np.memmap) else a for a in args]  # one type, compiled once
    if parts == 1:
        return [work(0, total, *plain)]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(lambda begin, end: work(begin, end, *plain), edges[:-1], edges[1:]))


_one_caller = threading.Lock()  # work that waits for work that has not begun would wait forever


@cache
def _helpers(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(64, cores()), thread_name_prefix="nextword")


def together(threads: int, work: Callable[[int], Any], release: Callable[[], None] = lambda: None) -> None:
    """`work(0)` … `work(threads − 1)` at the same time, so that they may wait for each other; one caller at a time.

    `release` frees those that wait for one that will not come, as when this thread is interrupted.
    """
    others: list[Any] = []
    with _one_caller:
        try:
            for t in range(1, threads):
                others.append(_helpers(os.getpid()).submit(work, t))
            work(0)
        except BaseException:
            release()
            raise
        finally:
            for other in others:
                other.result()
