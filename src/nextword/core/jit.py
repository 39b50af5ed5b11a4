"""Numba compilation and threads for loops over NumPy arrays.

`@jit` compiles a function on its first call and caches the machine code on disk, so that the next process starts fast.
Compiled functions release the GIL, so `run_parallel` can split a range among threads.
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
numba_jit: Any = njit  # untyped, like everything that it decorates
jit: Callable[..., Any] = numba_jit(**OPTIONS)
# For small functions that only read arrays: without Numba's run time there is no reference counting, which would take
# longer than the reads.
jit_leaf: Callable[..., Any] = numba_jit(**OPTIONS, _nrt=False)

MIN_PER_THREAD = 1 << 15  # with less work than this, starting a thread costs more than it saves


@cache
def has_cpu_features(*names: str) -> bool:
    """Whether Numba compiles for a CPU with all of these features, by LLVM's names (such as "avx512vnni").

    NUMBA_CPU_FEATURES, if set ("+avx2,-avx512f"), overrides what this machine has.
    """
    override: str | None = vars(config).get("CPU_FEATURES")
    if override is not None:
        return {f"+{name}" for name in names} <= set(override.split(","))
    features = binding.get_host_cpu_features()
    return all(features.get(name) for name in names)


def num_cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows
        return os.cpu_count() or 1


def run_parallel(total: int, work: Callable[..., Any], *args: Any, least: int = MIN_PER_THREAD) -> list[Any]:
    """Call `work(begin, end, *args)` on consecutive parts of range(total), one thread per core; return all results."""
    parts = max(1, min(num_cores(), total // least))
    edges = [total * i // parts for i in range(parts + 1)]
    # A memmap is a type of its own to Numba, which would compile everything a second time.
    args = tuple(a.view(np.ndarray) if isinstance(a, np.memmap) else a for a in args)
    if parts == 1:
        return [work(0, total, *args)]
    with ThreadPoolExecutor(parts) as pool:
        return list(pool.map(lambda begin, end: work(begin, end, *args), edges[:-1], edges[1:]))


# Only one caller at a time: with two, each could hold half of the pool's threads and wait for the other half forever.
_one_caller = threading.Lock()


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """One pool per process: threads do not survive a fork."""
    return ThreadPoolExecutor(max(64, num_cores()), thread_name_prefix="nextword")


def run_concurrently(threads: int, work: Callable[[int], Any], release: Callable[[], None] = lambda: None) -> None:
    """Run `work(0)` … `work(threads − 1)` at the same time, so that they can wait for each other.

    `release` unblocks the threads that wait for one that will not arrive, as after a KeyboardInterrupt in this thread.
    """
    others: list[Any] = []
    with _one_caller:
        try:
            for t in range(1, threads):
                others.append(_pool(os.getpid()).submit(work, t))
            work(0)
        except BaseException:
            release()
            raise
        finally:
            for other in others:
                other.result()


@jit
def mix_bits(h: np.uint64) -> np.uint64:
    """Scramble 64 bits: every bit of the result depends on every bit of h (the finalizer of MurmurHash3)."""
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))
