"""Generate token by token on a GPU: a step of fixed shapes, captured once as a CUDA graph and replayed.

Reference: `CausalNetwork.step` (tests/parity/test_gpt.py, tests/unit/kernels/test_cuda_graphs_t5.py). Selected in
dispatch.py.

A step launches a few hundred small kernels, and launching them takes longer than running them. A graph has fixed shapes
and addresses, so keys and values have a fixed number of slots, each row writes where its length says, and all slots are
attended to under a mask. The number of slots is a power of two, so that few graphs serve any length; when they run out,
the next graph takes over.

    any other state           ──copied in──▶ [ buffers: ids, length, keys, values ] ──replay──▶ log p, one token longer
    the state returned last   ──────────────▶            (no copy)

The buffers belong to the state that was returned last. While someone still holds it, another text is not written over
it, but gets a graph of its own.

`CapturedStep` is for decoders: between the products of its step are a few Triton kernels (triton_kernels.py); without
Triton, or with int8 weights, the blocks themselves are captured. `CapturedT5Step` is for T5: keys and values of the
source have a multiple of SOURCE slots, those of the target a power of two. All rows have generated equally many tokens,
so one number says where the next token goes and which distances count.
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
from nextword.kernels.triton_kernels import added_norm, attend, available
from nextword.layers.kv_cache import LEAST, KeyValues
from nextword.layers.quantized import Int8Linear

LEAST_RECORDED = 128  # slots of the smallest graph
GRAPHS = 6  # graphs in memory at once; each has keys and values for its rows and slots


class CapturedStep:
    """One step of a network for a number of rows and slots; no shape or address changes."""

    def __init__(self, network: Any, rows: int, slots: int, like: State) -> None:
        self.network, self.rows, self.slots = network, rows, slots
        device = like["length"].device
        self.last = torch.zeros(rows, dtype=torch.long, device=device)
        layers = tuple(tuple(t.new_zeros(rows, t.shape[1], slots, t.shape[3]) for t in pair) for pair in like["layers"])
        self.cache: dict[str, Any] = {
            "ids": torch.zeros(rows, slots, dtype=torch.long, device=device),
            "length": torch.zeros(rows, dtype=torch.long, device=device),
            "layers": layers,
        }
        self.log_probs: Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.uses_triton = (
            device.type == "cuda" and available() and not any(isinstance(one, Int8Linear) for one in network.modules())
        )
        self.held: weakref.ref[Tensor] | None = None  # lengths of the state returned last

    def owns(self, state: State) -> bool:
        return bool(state["layers"]) and state["layers"][0][0] is self.cache["layers"][0][0]

    def free(self) -> bool:
        """Whether nobody holds the state returned last any more."""
        return self.held is None or self.held() is None

    def __call__(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        count = len(last)
        if not self.owns(state):
            self._copy_in(state)
        elif self.held is None or self.held() is not state["length"]:  # rows have come or gone
            self.cache["length"][:count].copy_(state["length"])
        self.cache["length"][count:].zero_()  # rows that nobody has: they write to their first slot
        self.last[:count].copy_(last)
        if self.last.is_cuda:
            self._replay()
        else:
            self.log_probs = self.work()
        assert self.log_probs is not None
        length = self.cache["length"][:count]
        self.held = weakref.ref(length)
        return self.log_probs[:count].clone(), {
            **self.cache,
            "length": length,
            "most": state["most"] + 1,
            "even": state["even"],
        }

    def work(self) -> Tensor:
        """Read `last`, store its keys and values, and return log p."""
        if self.uses_triton:
            h = self._run_kernels()
            self.cache["length"].add_(1)
            return self.network.readout.log_probs(h)
        state = {**self.cache, "most": self.slots - 1, "even": False}
        layers, _ = self.network.forward_cached(self.last.unsqueeze(1), state)
        self.cache["length"].add_(1)
        return self.network.readout.log_probs(layers[-1][:, -1])

    def _run_kernels(self) -> Tensor:
        """The step with Triton kernels; returns what the readout reads."""
        net, length = self.network, self.cache["length"]
        norms, after, kind = net.layer_norms(), net.is_post_norm, net.positions.weight.dtype
        x, y = net.embed(self.last, length).float(), None
        self.cache["ids"].scatter_(1, length.unsqueeze(1), self.last.unsqueeze(1))
        for i, (block, (keys, values)) in enumerate(zip(net.blocks, self.cache["layers"], strict=True)):
            h = added_norm(x, y, norms[2 * i], kind, after)
            h = attend(block.attention.join(h), keys, values, length, block.attention.band)
            h = added_norm(x, block.attention.out(h), norms[2 * i + 1], kind, after)
            y = block.narrow(F.gelu(block.wide(h), approximate="tanh"))
        return added_norm(x, y, norms[-1], kind, after)

    def _copy_in(self, state: State) -> None:
        most = state["most"]
        self.cache["length"][: len(state["length"])].copy_(state["length"])
        self.cache["ids"][:, :most].copy_(state["ids"][: self.rows, :most])
        for ours, theirs in zip(self.cache["layers"], state["layers"], strict=True):
            for to, t in zip(ours, theirs, strict=True):
                to[:, :, :most].copy_(t[: self.rows, :, :most])

    def _replay(self) -> None:
        if self.graph is None:
            self._capture()
            assert self.graph is not None
        self.graph.replay()

    def _capture(self) -> None:
        length = self.cache["length"].clone()
        stream = torch.cuda.Stream(self.last.device)
        stream.wait_stream(torch.cuda.current_stream(self.last.device))
        with torch.cuda.stream(stream):
            for _ in range(2):  # initializes libraries; what it wrote is overwritten
                self.work()
                self.cache["length"].copy_(length)
        torch.cuda.current_stream(self.last.device).wait_stream(stream)
        with capture_graph() as graph:
            self.log_probs = self.work()
        self.graph = graph
        self.cache["length"].copy_(length)


class GraphSteps:
    """The steps captured so far, the most recently used last."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.captured: list[CapturedStep] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphSteps:
        return GraphSteps(copy.deepcopy(self.network, memo))  # the copy captures its own

    def applies(self, state: State) -> bool:
        """Whether the state is not empty and the window has room for one more token."""
        return bool(state["layers"]) and 0 < state["most"] < self.network.window

    def __call__(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        # A state has room for more rows if some have come or gone: the same graph serves those that come and go next
        step = self._step(len(state["ids"]), state)
        self.captured = [*(other for other in self.captured if other is not step), step][-GRAPHS:]
        return step(last, state)

    def _step(self, rows: int, state: State) -> CapturedStep:
        slots = LEAST_RECORDED
        while slots < state["most"] + 1:
            slots *= 2
        slots = min(slots, self.network.window)
        fitting = [step for step in self.captured if (step.rows, step.slots) == (rows, slots)]
        own = next((step for step in fitting if step.owns(state)), None)
        return (
            own
            or next((step for step in fitting if step.free()), None)
            or CapturedStep(self.network, rows, slots, state)
        )


SOURCE = 64  # sources have a multiple of so many slots


class CapturedT5Step:
    """One step for a number of rows, sources and slots; no shape or address changes."""

    def __init__(self, network: Any, key: tuple[int, ...], like: State) -> None:
        self.network, self.key = network, key
        rows, sources, length, places = key
        memory, cache = like["memory"], like["kv_cache"]
        self.last = torch.zeros(rows, dtype=torch.long, device=cache.device)
        self.length = torch.zeros(1, dtype=torch.long, device=cache.device)
        self.memory = memory.new_zeros(sources, *memory.shape[1:4], length, memory.shape[5])
        self.seen = torch.zeros(sources, 1, 1, length, dtype=torch.bool, device=cache.device)
        self.cache = cache.new_zeros(rows, *cache.shape[1:4], places, cache.shape[5])
        heads = cache.shape[3]
        self.bias = cache.new_zeros(places, heads, 1, places)  # of each query
        self.log_probs: Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.held: weakref.ref[Tensor] | None = None  # the cache of the state returned last
        self.written = 0  # its length

    def owns(self, state: State) -> bool:
        """Whether this is the state returned last; earlier ones have been overwritten."""
        return bool(state["kv_cache"].data_ptr() == self.cache.data_ptr()) and state["length"] == self.written

    def free(self) -> bool:
        """Whether nobody holds the state returned last any more."""
        return self.held is None or self.held() is None

    def __call__(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        if not self.owns(state):
            self._copy_in(state)
        self.written = state["length"] + 1
        self.last.copy_(last)
        if not self.last.is_cuda:
            self.log_probs = self.work()
        else:
            if self.graph is None:
                self._capture()
            assert self.graph is not None
            self.graph.replay()
        assert self.log_probs is not None
        kv_cache = self.cache.view(self.cache.shape)
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
        own = self.cache[:, layer]
        for i, new in enumerate((keys, values)):
            own[:, i].index_copy_(2, self.length, new)
        return own[:, 0], own[:, 1]

    def _copy_in(self, state: State) -> None:
        memory, there, length = state["memory"], state["there"], state["length"]
        size = memory.shape[4]
        self.memory[:, :, :, :, :size].copy_(memory)
        if there is None:
            self.seen.zero_()[..., :size] = True
        else:
            self.seen.copy_(F.pad(there, (0, self.seen.shape[-1] - size))[:, None, None, :])
        if state["kv_cache"].data_ptr() != self.cache.data_ptr():
            self.cache[:, :, :, :, :length].copy_(state["kv_cache"][:, :, :, :, :length])
        self.length.fill_(length)
        places = self.key[3]  # the distance biases may have been trained since the last text
        bias = self.network.decoder.distances(places, places)  # (H, query, key)
        later = torch.ones(places, places, dtype=torch.bool, device=bias.device).triu(1)
        self.bias.copy_(bias.masked_fill(later, float("-inf")).transpose(0, 1).unsqueeze(2))

    def _capture(self) -> None:
        length = self.length.clone()
        stream = torch.cuda.Stream(self.last.device)
        stream.wait_stream(torch.cuda.current_stream(self.last.device))
        with torch.cuda.stream(stream):
            for _ in range(2):  # initializes libraries; what it wrote is overwritten
                self.work()
                self.length.copy_(length)
        torch.cuda.current_stream(self.last.device).wait_stream(stream)
        with capture_graph() as graph:
            self.log_probs = self.work()
        self.graph = graph
        self.length.copy_(length)


class T5GraphSteps:
    """The steps captured so far, the most recently used last."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.captured: list[CapturedT5Step] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> T5GraphSteps:
        return T5GraphSteps(copy.deepcopy(self.network, memo))  # the copy captures its own

    def __call__(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        sources, length = state["memory"].shape[0], state["memory"].shape[4]
        places = LEAST
        while places < state["length"] + 1:
            places *= 2
        key = len(last), sources, -(-length // SOURCE) * SOURCE, places
        fitting = [step for step in self.captured if step.key == key and step.cache.dtype == state["kv_cache"].dtype]
        own = next((step for step in fitting if step.owns(state)), None)
        step = own or next((step for step in fitting if step.free()), None) or CapturedT5Step(self.network, key, state)
        self.captured = [*(other for other in self.captured if other is not step), step][-GRAPHS:]
        return step(last, state)
