"""Capture GPU work as a CUDA graph and replay it without Python.

with capture_graph() as graph:
    y = work(x)
graph.replay()                      # computes y again, from what is in x by then
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def capture_graph(**where: Any) -> Iterator[torch.cuda.CUDAGraph]:
    """Capture what runs inside; `where` are arguments of `torch.cuda.graph`, such as the stream and the memory pool.

    Garbage collection is off meanwhile: it might destroy an older graph, which is forbidden during a capture and would
    make it fail, rarely and for no visible reason.
    """
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, **where):
            yield graph
    finally:
        if collecting:
            gc.enable()
