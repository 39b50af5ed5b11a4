"""What a GPU does, recorded once as a graph and played again without Python.

with recorded() as graph:
    y = work(x)
graph.replay()                      # y anew, from what is in x by then
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def capture_graph(**where: Any) -> Iterator[torch.cuda.CUDAGraph]:
    """A graph of what is done inside; `where` is for `torch.cuda.graph`: its stream, and the memory it shares.

    Python's collector rests meanwhile. It could come upon an older graph that nobody needs, and to destroy one is
    forbidden while another is recorded: the recording would be lost, once in many times and for no visible reason.
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
