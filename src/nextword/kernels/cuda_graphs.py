"""Writing token by token on a GPU: a step of fixed shapes, recorded once as a graph and replayed.

A step launches a few hundred small kernels, and to launch them one by one takes longer than to run them. A graph has
fixed shapes and places, so keys and values lie in `slots` slots from the start, each row writes where its length says,
and all slots are looked at under a mask. Slots are as many as a power of two holds, so that few graphs serve any
length; where they run out, the next graph takes over with what was read.

    state of any origin ──copied in──▶ [ kept: ids, length, keys, values ] ──replay──▶ log p, and kept is one longer
    kept itself         ──────────────▶            (no copy)

Between the products of a recorded step stand few kernels of its own (layers/step_kernels.py); where there is no Triton,
or weights are in eight bits, the blocks themselves are recorded.

What `kept` holds belongs to the state that was returned last. While someone still has that state, another text is not
written over it: it gets a graph of its own.

T5 writing token by token on a GPU: a decoder's step of fixed shapes, recorded once as a graph and replayed.

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

from nextword.core.types import State
from nextword.kernels.graph_capture import capture_graph
from nextword.kernels.triton_kernels import added_norm, attend, available, linear
from nextword.layers.kv_cache import LEAST, KeyValues
from nextword.layers.quantized import Int8Linear

LEAST_RECORDED = 128  # slots of the smallest graph
GRAPHS = 6  # kept at once; each holds keys and values for its rows and slots


class CapturedStep:
    """One step of a network for so many rows and slots, without a shape or a place that changes."""

    def __init__(self, network: Any, rows: int, slots: int, like: State) -> None:
        self.network, self.rows, self.slots = network, rows, slots
        device = like["length"].device
        self.last = torch.zeros(rows, dtype=torch.long, device=device)
        layers = tuple(tuple(t.new_zeros(rows, t.shape[1], slots, t.shape[3]) for t in pair) for pair in like["layers"])
        self.kept: dict[str, Any] = {
            "ids": torch.zeros(rows, slots, dtype=torch.long, device=device),
            "length": torch.zeros(rows, dtype=torch.long, device=device),
            "layers": layers,
        }
        self.log_probs: Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.swift = (
            device.type == "cuda" and available() and not any(isinstance(one, Int8Linear) for one in network.modules())
        )
        self.held: weakref.ref[Tensor] | None = None  # the lengths in the state that was returned last

    def owns(self, state: State) -> bool:
        return bool(state["layers"]) and state["layers"][0][0] is self.kept["layers"][0][0]

    def free(self) -> bool:
        """Nobody has the state any more that was returned last."""
        return self.held is None or self.held() is None

    def __call__(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        if not self.owns(state):
            self._take_in(state)
        self.last.copy_(last)
        if self.last.is_cuda:
            self._replay()
        else:
            self.log_probs = self.work()
        assert self.log_probs is not None
        length = self.kept["length"].view(-1)
        self.held = weakref.ref(length)
        return self.log_probs.clone(), {
            **self.kept,
            "length": length,
            "most": state["most"] + 1,
            "even": state["even"],
        }

    def work(self) -> Tensor:
        """Read `last`, write it into the slots, and say what may follow."""
        if self.swift:
            h = self._swift()
            self.kept["length"].add_(1)
            return self.network.readout.log_probs(h)
        state = {**self.kept, "most": self.slots - 1, "even": False}
        layers, _ = self.network.forward_cached(self.last.unsqueeze(1), state)
        self.kept["length"].add_(1)
        return self.network.readout.log_probs(layers[-1][:, -1])

    def _swift(self) -> Tensor:
        """The same, kernel by kernel: what the readout reads."""
        net, length = self.network, self.kept["length"]
        norms, after, kind = net.layer_norms(), net.is_post_norm, net.positions.weight.dtype
        x, y = net.embed(self.last, length).float(), None
        self.kept["ids"].scatter_(1, length.unsqueeze(1), self.last.unsqueeze(1))
        for i, (block, (keys, values)) in enumerate(zip(net.blocks, self.kept["layers"], strict=True)):
            h = added_norm(x, y, norms[2 * i], kind, after)
            h = attend(linear(h, block.attention.join), keys, values, length, block.attention.band)
            h = added_norm(x, linear(h, block.attention.out), norms[2 * i + 1], kind, after)
            y = linear(linear(h, block.wide, gelu=True), block.narrow)
        return added_norm(x, y, norms[-1], kind, after)

    def _take_in(self, state: State) -> None:
        most = state["most"]
        self.kept["length"].copy_(state["length"])
        self.kept["ids"][:, :most].copy_(state["ids"][:, :most])
        for ours, theirs in zip(self.kept["layers"], state["layers"], strict=True):
            for to, t in zip(ours, theirs, strict=True):
                to[:, :, :most].copy_(t[:, :, :most])

    def _replay(self) -> None:
        if self.graph is None:
            self._record()
            assert self.graph is not None
        self.graph.replay()

    def _record(self) -> None:
        length = self.kept["length"].clone()
        stream = torch.cuda.Stream(self.last.device)
        stream.wait_stream(torch.cuda.current_stream(self.last.device))
        with torch.cuda.stream(stream):
            for _ in range(2):  # makes every library ready; what it wrote is written over
                self.work()
                self.kept["length"].copy_(length)
        torch.cuda.current_stream(self.last.device).wait_stream(stream)
        with capture_graph() as graph:
            self.log_probs = self.work()
        self.graph = graph
        self.kept["length"].copy_(length)


class GraphSteps:
    """The steps that a network has recorded so far, the latest used last."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.captured: list[CapturedStep] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphSteps:
        return GraphSteps(copy.deepcopy(self.network, memo))  # the copy records its own

    def applies(self, state: State) -> bool:
        """Whether something was read, and one token more has room in the window."""
        return bool(state["layers"]) and 0 < state["most"] < self.network.window

    def __call__(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        step = self._step(len(last), state)
        self.captured = [*(one for one in self.captured if one is not step), step][-GRAPHS:]
        return step(last, state)

    def _step(self, rows: int, state: State) -> CapturedStep:
        slots = LEAST_RECORDED
        while slots < state["most"] + 1:
            slots *= 2
        slots = min(slots, self.network.window)
        fitting = [one for one in self.captured if (one.rows, one.slots) == (rows, slots)]
        own = next((one for one in fitting if one.owns(state)), None)
        return (
            own or next((one for one in fitting if one.free()), None) or CapturedStep(self.network, rows, slots, state)
        )


SOURCE = 64


class CapturedT5Step:
    """One step for so many rows, sources and places, without a shape or a place that changes."""

    def __init__(self, network: Any, key: tuple[int, ...], like: State) -> None:
        self.network, self.key = network, key
        rows, sources, length, places = key
        memory, cache = like["memory"], like["kv_cache"]
        self.last = torch.zeros(rows, dtype=torch.long, device=cache.device)
        self.length = torch.zeros(1, dtype=torch.long, device=cache.device)
        self.memory = memory.new_zeros(sources, *memory.shape[1:4], length, memory.shape[5])
        self.seen = torch.zeros(sources, 1, 1, length, dtype=torch.bool, device=cache.device)
        self.kept = cache.new_zeros(rows, *cache.shape[1:4], places, cache.shape[5])
        heads = cache.shape[3]
        self.bias = cache.new_zeros(places, heads, 1, places)  # of each query
        self.log_probs: Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.held: weakref.ref[Tensor] | None = None  # what was written, in the state that was returned last
        self.written = 0  # its length

    def owns(self, state: State) -> bool:
        """Whether this is the state that was returned last: one from before was written over since."""
        return bool(state["kv_cache"].data_ptr() == self.kept.data_ptr()) and state["length"] == self.written

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
        kv_cache = self.kept.view(self.kept.shape)
        self.held = weakref.ref(kv_cache)
        return self.log_probs.clone(), {**state, "kv_cache": kv_cache, "length": state["length"] + 1}

    def work(self) -> Tensor:
        net: Any = self.network
        x = net.embedding(self.last).unsqueeze(1)
        bias = self.bias.index_select(0, self.length)
        h = net._run_decoder(x, bias, self.memory, self.seen, self._append)[-1]
        self.length.add_(1)
        return net.readout.log_probs(h[:, -1])

    def _append(self, layer: int, keys: Tensor, values: Tensor) -> KeyValues:
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
        if state["kv_cache"].data_ptr() != self.kept.data_ptr():
            self.kept[:, :, :, :, :length].copy_(state["kv_cache"][:, :, :, :, :length])
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
        with capture_graph() as graph:
            self.log_probs = self.work()
        self.graph = graph
        self.length.copy_(length)


class T5GraphSteps:
    """The steps that a network has recorded so far, the latest used last."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.captured: list[CapturedT5Step] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> T5GraphSteps:
        return T5GraphSteps(copy.deepcopy(self.network, memo))  # the copy records its own

    def __call__(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        sources, length = state["memory"].shape[0], state["memory"].shape[4]
        places = LEAST
        while places < state["length"] + 1:
            places *= 2
        key = len(last), sources, -(-length // SOURCE) * SOURCE, places
        fitting = [one for one in self.captured if one.key == key and one.kept.dtype == state["kv_cache"].dtype]
        own = next((one for one in fitting if one.owns(state)), None)
        step = own or next((one for one in fitting if one.free()), None) or CapturedT5Step(self.network, key, state)
        self.captured = [*(one for one in self.captured if one is not step), step][-GRAPHS:]
        return step(last, state)
