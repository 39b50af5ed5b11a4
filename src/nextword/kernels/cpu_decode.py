"""Generate token by token on a CPU, the whole network being one compiled function (`cpu_matmul.walk`).

Reference: `CausalNetwork.step` and `DecoderLM.prompt` (tests/unit/kernels/test_cpu_decode.py). Selected in dispatch.py
for networks of at least LEAST weights.

The function reads the network's own weights, float32 or int8, by address, and writes keys and values into the state's
own slots. So it can continue any state, and any other path can continue its states. It computes every row as if that
were alone, to the last bit, so that a text does not depend on what is generated beside it.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.core.jit import run_concurrently
from nextword.core.types import State
from nextword.kernels.cpu_int8 import LANES, ROWS, has_byte_products
from nextword.kernels.cpu_matmul import COLUMNS, multiply_buffers, walk
from nextword.layers import kv_cache
from nextword.layers.output.softmax import TiedSoftmax
from nextword.layers.quantized import Int8Embedding, Int8Linear

FEW = 64  # rows of a step with float32 weights; for more, ordinary matrix products are faster,
FEW_BYTES = FEW if has_byte_products() else 8  # and with int8 weights
MANY = 64  # tokens of a prompt that are read at once,
MOST = 256 if has_byte_products() else FEW_BYTES  # and in total
LEAST = 20_000_000  # weights: smaller networks fit into the cache, and compiling takes seconds


class CompiledSteps:
    """Compiled steps of one network; `least` is how many weights it must have for them to be used."""

    def __init__(self, network: Any, least: int = LEAST) -> None:
        self.network, self.least = network, least
        self._weights: list[list[Any]] | None = None
        self._numbers = 0  # how many weights there are, in whatever form
        self._room: dict[tuple[int, ...], tuple[Any, ...]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledSteps:
        return CompiledSteps(copy.deepcopy(self.network, memo), self.least)

    def applies(self, last: Tensor, state: State) -> bool:
        """Whether the state is not empty, the window has room, and the kernel reads weights of this type."""
        read = state["layers"] and 0 < state["most"] < self.network.window
        return (
            bool(read)
            and 0 < len(last) <= (FEW_BYTES if self._is_int8() else FEW)
            and self._is_supported()
            and state["layers"][0][0].dtype == torch.float32
        )

    def applies_to_prompt(self, ids: Tensor) -> bool:
        """Whether a prompt of this size is faster this way: it is with int8 weights, which need not be dequantized."""
        return (
            0 < ids.numel() <= MOST
            and 0 < ids.shape[1] <= self.network.window
            and self._is_int8()
            and self._is_supported()
        )

    def _is_supported(self) -> bool:
        net = self.network
        self._numbers = self._numbers or net.num_parameters()
        bits, width = self._is_int8(), net.config.width
        if self._numbers < self.least or width % (4 * LANES if bits else LANES) or (width // net.config.heads) % LANES:
            return False
        if net.training or net.positions.weight.dtype != torch.float32:
            return False
        return bool(width // torch.get_num_threads() >= ROWS)

    def _is_int8(self) -> bool:
        return isinstance(self.network.embedding, Int8Embedding)

    def __call__(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        update = kv_cache.CacheUpdate(state, 1, self.network.window)
        layers = tuple(tuple(update.reserve(t) for t in pair) for pair in state["layers"])
        log_p = torch.empty(len(last), self.network.vocabulary.size)
        self._walk(last, torch.stack((torch.arange(len(last)), state["length"])), layers, log_p)
        return log_p, update.finish(last.unsqueeze(1), layers)

    def prompt(self, ids: Tensor, lengths: Tensor) -> State:
        """The state after rows of unequal lengths (B,), padded at their end, reading a few tokens at a time."""
        net, (rows, most) = self.network, ids.shape
        shape = (
            rows,
            net.config.heads,
            min(max(2 * most, kv_cache.LEAST), net.window),
            net.config.width // net.config.heads,
        )
        layers = tuple((torch.zeros(shape), torch.zeros(shape)) for _ in net.blocks)
        inside = (torch.arange(most) < lengths.unsqueeze(1)).t()  # (T, B): all first tokens, all second ones, …
        at, row = inside.nonzero().unbind(1)
        for part in torch.arange(len(at)).split(MANY):
            self._walk(ids[row[part], at[part]], torch.stack((row[part], at[part])), layers, torch.empty(0, 0))
        even = bool((lengths == most).all())
        return {"ids": ids.clone(), "length": lengths.clone(), "layers": layers, "most": most, "even": even}

    def _walk(self, tokens: Tensor, where: Tensor, layers: Any, log_p: Tensor) -> None:
        net, config, threads = self.network, self.network.config, torch.get_num_threads()
        x = net.embed(tokens, where[1]).float().contiguous()
        blocks, end = self._table(layers)
        batch, _, slots, _ = layers[0][0].shape
        widths = batch, config.width, config.heads, 4 * config.width, net.vocabulary.size
        sizes = np.array([*widths, slots, net.is_post_norm, self._is_int8()])
        shared, own = self._scratch(len(tokens), slots, threads)
        gate, places = np.zeros(1, np.int64), where.contiguous().numpy()
        given = (threads, gate, blocks, end, sizes, config.epsilon, places, x.numpy(), *shared[:3])
        z = log_p.numpy()
        run_concurrently(threads, lambda t: walk(t, *given, z, shared[3], *own[t]), lambda: gate.fill(1 << 60))

    def _scratch(self, rows: int, slots: int, threads: int) -> tuple[Any, Any]:
        """Buffers between the products, shared and per thread; reused from step to step."""
        if (rows, slots, threads) not in self._room:
            width, inner = self.network.config.width, 4 * self.network.config.width
            shared = [np.empty((rows, n), np.float32) for n in (3 * width, width, inner)]
            shared.append(np.empty((threads, 2, rows), np.float32))
            own = [
                (
                    np.empty((rows, width), np.float32),
                    multiply_buffers(rows, inner),
                    np.empty(slots + width // self.network.config.heads, np.float32),
                )
                for _ in range(threads)
            ]
            self._room = {(rows, slots, threads): (shared, own)}
        return self._room[rows, slots, threads]

    def _table(self, layers: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Addresses of the weights, keys and values."""
        if self._weights is None:
            self._weights = self._collect_weights()
        *lines, last = ([0 if t is None else t.data_ptr() for t in line] for line in self._weights)
        table = np.zeros((len(lines), COLUMNS), np.int64)
        for i, line in enumerate(lines):
            table[i, : len(line)] = line
            table[i, len(line) :] = [*(t.data_ptr() for t in layers[i]), self.network.blocks[i].attention.band]
        return table, np.array(last, np.int64)

    def _collect_weights(self) -> list[list[Any]]:
        net = self.network
        norms = net.layer_norms()
        lines = []
        for i, block in enumerate(net.blocks):
            line = [*_norm(norms[2 * i]), *_matrix(block.attention.join), *_matrix(block.attention.out)]
            lines.append([*line, *_norm(norms[2 * i + 1]), *_matrix(block.wide), *_matrix(block.narrow)])
        readout = net.readout
        matrix = [readout.matrix, None, None] if isinstance(readout, TiedSoftmax) else _bytes(readout.tied[0])
        return [*lines, [*_norm(norms[-1]), *matrix, readout.bias]]


def _norm(norm: nn.LayerNorm | None) -> list[Any]:
    return [None, None] if norm is None else [norm.weight, norm.bias]


def _matrix(layer: Any) -> list[Any]:
    return [*(_bytes(layer) if isinstance(layer, Int8Linear) else [layer.weight, None, None]), layer.bias]


def _bytes(layer: Any) -> list[Any]:
    return [layer.weight, layer.scale, layer.sums(layer.weight)]
