"""T5 writing token by token on a GPU: a decoder's step of fixed shapes, recorded once as a graph and replayed.

As models/recorded.py does it for one text, here for rows that write from sources: keys and values of the sources lie in
a multiple of SOURCE places, those of what is written in a power of two, and masks say what is there. All rows have
written equally much, so that one number says where the next token goes and which distances count.

    state of any origin ──copied in──▶ [ memory, seen, kept, length ] ──replay──▶ log p, and kept is one longer
    kept itself         ──────────────▶            (no copy)

What was recorded belongs to the state that was returned last. While someone still has it, other texts are not written
over it: they get a graph of their own.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nextword.contract import State
from nextword.layers.graph import recorded
from nextword.layers.written import LEAST, Kept

SOURCE = 64
GRAPHS = 6  # kept at once


class T5FixedStep:
    """One step for so many rows, sources and places, without a shape or a place that changes."""

    def __init__(self, network: Any, key: tuple[int, ...], like: State) -> None:
        self.network, self.key = network, key
        rows, sources, length, places = key
        memory, past = like["memory"], like["past"]
        self.last = torch.zeros(rows, dtype=torch.long, device=past.device)
        self.length = torch.zeros(1, dtype=torch.long, device=past.device)
        self.memory = memory.new_zeros(sources, *memory.shape[1:4], length, memory.shape[5])
        self.seen = torch.zeros(sources, 1, 1, length, dtype=torch.bool, device=past.device)
        self.kept = past.new_zeros(rows, *past.shape[1:4], places, past.shape[5])
        heads = past.shape[3]
        self.bias = past.new_zeros(places, heads, 1, places)  # of each query
        self.log_probs: Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.held: weakref.ref[Tensor] | None = None  # what was written, in the state that was returned last
        self.written = 0  # its length

    def owns(self, state: State) -> bool:
        """Whether this is the state that was returned last: one from before was written over since."""
        return bool(state["past"].data_ptr() == self.kept.data_ptr()) and state["length"] == self.written

    def free(self) -> bool:
        """Nobody has the state any more that was returned last."""
        return self.held is None or self.held() is None

    def __call__(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        if not self.owns(state):
            self._take_in(state)
        self.written = state["length"] + 1
        self.last.copy_(last)
        if not self.last.is_cuda:
            self.log_probs = self.work()
        else:
            if self.graph is None:
                self._record()
            assert self.graph is not None
            self.graph.replay()
        assert self.log_probs is not None
        past = self.kept.view(self.kept.shape)
        self.held = weakref.ref(past)
        return self.log_probs.clone(), {**state, "past": past, "length": state["length"] + 1}

    def work(self) -> Tensor:
        net: Any = self.network
        x = net.embedding(self.last).unsqueeze(1)
        bias = self.bias.index_select(0, self.length)
        h = net._write(x, bias, self.memory, self.seen, self._extended)[-1]
        self.length.add_(1)
        return net.readout.log_probs(h[:, -1])

    def _extended(self, layer: int, keys: Tensor, values: Tensor) -> Kept:
        own = self.kept[:, layer]
        for i, new in enumerate((keys, values)):
            own[:, i].index_copy_(2, self.length, new)
        return own[:, 0], own[:, 1]

    def _take_in(self, state: State) -> None:
        memory, there, length = state["memory"], state["there"], state["length"]
        size = memory.shape[4]
        self.memory[:, :, :, :, :size].copy_(memory)
        if there is None:
            self.seen.zero_()[..., :size] = True
        else:
            self.seen.copy_(F.pad(there, (0, self.seen.shape[-1] - size))[:, None, None, :])
        if state["past"].data_ptr() != self.kept.data_ptr():
            self.kept[:, :, :, :, :length].copy_(state["past"][:, :, :, :, :length])
        self.length.fill_(length)
        places = self.key[3]  # the distances' numbers may have been trained since the last text
        bias = self.network.decoder.distances(places, places)  # (H, query, key)
        later = torch.ones(places, places, dtype=torch.bool, device=bias.device).triu(1)
        self.bias.copy_(bias.masked_fill(later, float("-inf")).transpose(0, 1).unsqueeze(2))

    def _record(self) -> None:
        length = self.length.clone()
        stream = torch.cuda.Stream(self.last.device)
        stream.wait_stream(torch.cuda.current_stream(self.last.device))
        with torch.cuda.stream(stream):
            for _ in range(2):  # makes every library ready; what it wrote is written over
                self.work()
                self.length.copy_(length)
        torch.cuda.current_stream(self.last.device).wait_stream(stream)
        with recorded() as graph:
            self.log_probs = self.work()
        self.graph = graph
        self.length.copy_(length)


class T5Steps:
    """The steps that a network has recorded so far, the latest used last."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.made: list[T5FixedStep] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> T5Steps:
        return T5Steps(copy.deepcopy(self.network, memo))  # the copy records its own

    def __call__(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        sources, length = state["memory"].shape[0], state["memory"].shape[4]
        places = LEAST
        while places < state["length"] + 1:
            places *= 2
        key = len(last), sources, -(-length // SOURCE) * SOURCE, places
        fitting = [one for one in self.made if one.key == key and one.kept.dtype == state["past"].dtype]
        own = next((one for one in fitting if one.owns(state)), None)
        step = own or next((one for one in fitting if one.free()), None) or T5FixedStep(self.network, key, state)
        self.made = [*(one for one in self.made if one is not step), step][-GRAPHS:]
        return step(last, state)
