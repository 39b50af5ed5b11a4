"""Writing token by token on a CPU: the whole network as one compiled step (layers/whole_step.py), where that pays.

The step reads the network's own weights, in 32 or in 8 bits, by their addresses, and writes keys and values into the
state's own slots; so it can take over from any state, and any other way to read can take over from it.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nextword.compiled import together
from nextword.layers import past
from nextword.layers.dots import LANES, ROWS, has_byte_products
from nextword.layers.eight_bits import EightBits, EightBitsEmbedding
from nextword.layers.softmax import Tied
from nextword.layers.whole_step import COLUMNS, room, walk

FEW = 8  # rows; more are better served by products for many
LEAST = 20_000_000  # weights: a smaller network fits into the cache, and to compile the step takes seconds, once


class WholeSteps:
    """The steps of one network. `least` is how many weights it must have for them to be used."""

    def __init__(self, network: Any, least: int = LEAST) -> None:
        self.network, self.least = network, least
        self._weights: list[list[Any]] | None = None
        self._numbers = 0  # how many weights there are, in whatever form
        self._room: dict[tuple[int, ...], tuple[Any, ...]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> WholeSteps:
        return WholeSteps(copy.deepcopy(self.network, memo), self.least)

    def suit(self, last: Tensor, state: past.State) -> bool:
        """Whether something was read, one token more has room in the window, and the weights are as the step reads."""
        net = self.network
        if not (0 < len(last) <= FEW and state["layers"] and 0 < state["most"] < net.window) or net.training:
            return False
        self._numbers = self._numbers or getattr(net, "stored", 0) or sum(p.numel() for p in net.parameters())
        bits, width = self._bytes(), net.config.width
        if self._numbers < self.least or width % (4 * LANES if bits else LANES) or (width // net.config.heads) % 8:
            return False
        if bits and not has_byte_products():
            return False
        kind = net.positions.weight.dtype
        share = width // torch.get_num_threads()
        return kind == torch.float32 and share >= ROWS and state["layers"][0][0].dtype == torch.float32

    def _bytes(self) -> bool:
        return isinstance(self.network.embedding, EightBitsEmbedding)

    def __call__(self, last: Tensor, state: past.State) -> tuple[Tensor, past.State]:
        net, rows = self.network, len(last)
        reading = past.Reading(state, 1, net.window)
        layers = tuple(tuple(reading.roomy(t) for t in pair) for pair in state["layers"])
        x = net.entered(last, state["length"]).float().contiguous()
        log_p = torch.empty(rows, net.vocabulary.size)
        blocks, end = self._table(layers)
        config, slots, threads = net.config, layers[0][0].shape[2], torch.get_num_threads()
        widths = rows, config.width, config.heads, 4 * config.width, net.vocabulary.size
        sizes = np.array([*widths, slots, net.norms_after, self._bytes()])
        shared, own = self._scratch(rows, slots, threads)
        gate = np.zeros(1, np.int64)
        given = (threads, gate, blocks, end, sizes, config.epsilon, state["length"].numpy(), x.numpy(), *shared[:3])
        rest = (log_p.numpy(), shared[3])
        together(threads, lambda t: walk(t, *given, *rest, *own[t]))
        return log_p, reading.done(last.unsqueeze(1), layers)

    def _scratch(self, rows: int, slots: int, threads: int) -> tuple[Any, Any]:
        """Room for what is between the products: shared, and each thread's own. Kept from step to step."""
        if (rows, slots, threads) not in self._room:
            width, inner = self.network.config.width, 4 * self.network.config.width
            shared = [np.empty((rows, n), np.float32) for n in (3 * width, width, inner)]
            shared.append(np.empty((threads, 2, rows), np.float32))
            own = [
                (
                    np.empty((rows, width), np.float32),
                    room(rows, inner),
                    np.empty(slots, np.float32),
                )
                for _ in range(threads)
            ]
            self._room = {(rows, slots, threads): (shared, own)}
        return self._room[rows, slots, threads]

    def _table(self, layers: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Addresses of the weights, and of the keys and values."""
        if self._weights is None:
            self._weights = self._gathered()
        *lines, last = ([0 if t is None else t.data_ptr() for t in line] for line in self._weights)
        table = np.zeros((len(lines), COLUMNS), np.int64)
        for i, line in enumerate(lines):
            table[i, : len(line)] = line
            table[i, len(line) :] = [*(t.data_ptr() for t in layers[i]), self.network.blocks[i].attention.band]
        return table, np.array(last, np.int64)

    def _gathered(self) -> list[list[Any]]:
        net = self.network
        norms = net.norms()  # before each part, and at the end
        lines = []
        for i, block in enumerate(net.blocks):
            line = [*_norm(norms[2 * i]), *_matrix(block.attention.join), *_matrix(block.attention.out)]
            lines.append([*line, *_norm(norms[2 * i + 1]), *_matrix(block.wide), *_matrix(block.narrow)])
        readout = net.readout
        matrix = [readout.matrix, None, None] if isinstance(readout, Tied) else _bytes(readout.tied[0])
        return [*lines, [*_norm(norms[-1]), *matrix, readout.bias]]


def _norm(norm: nn.LayerNorm | None) -> list[Any]:
    return [None, None] if norm is None else [norm.weight, norm.bias]


def _matrix(layer: Any) -> list[Any]:
    return [*(_bytes(layer) if isinstance(layer, EightBits) else [layer.weight, None, None]), layer.bias]


def _bytes(layer: Any) -> list[Any]:
    return [layer.weight, layer.scale, layer.sums(layer.weight)]
