"""What networks have in common that look back over a window of positions, block upon block: reading, and moving on.

A state holds keys and values of what was read (layers/past.py). Positions have an end: where the window is full, its
later half is read again from the first position on. So a text of any length is read, and past the first window each
token sees at least half of one. Scoring a text in windows of `window` tokens, moved on by `stride`, gives the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nextword.core import pytree as nest
from nextword.core.errors import NextwordError
from nextword.core.types import Inputs, State, Vocabulary
from nextword.kernels import cublaslt as lt
from nextword.kernels.cpu_decode import WholeSteps
from nextword.kernels.cuda_graphs import Steps
from nextword.layers import kv_cache as past
from nextword.layers.quantized import narrow
from nextword.models.base import CausalNetwork


class DecoderLM(CausalNetwork):
    """Token and position embeddings, then `blocks` (x, reading, before) → (x, keys and values), then `finish`."""

    window: int
    blocks: nn.ModuleList
    norms_after = False  # whether a block norms the sum, and not what it takes from it

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.window = config.window
        self.stride = max(1, config.window // 2)
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.positions = nn.Embedding(config.window, config.width)
        self.widths = [config.width] * (config.layers + 1)
        self.checkpointing = False
        self._compiled: Any = None
        self.steps = Steps(self)
        self.whole_steps = WholeSteps(self)

    def compile_training(self) -> None:
        """Let torch fuse what training computes; all other reading stays as it is.

        Only the last layer leaves what is compiled: every layer that does gets a gradient, if need be of zeros, and
        they are written and read.
        """
        lt.make_ready()
        if self._compiled is None:
            self._compiled = torch.compile(self._last)

    def narrowed(self) -> None:
        """From now on with weights in eight bits."""
        self.config = replace(self.config, bits=8)
        narrow(self)
        self.whole_steps = WholeSteps(self, self.whole_steps.least)

    def work(self, length: int) -> float:
        """Floating point operations a trained token, forward and backward, in blocks of this length.

        Six for each weight that takes part in a product, and twelve for each pair of positions and unit of width, as
        Chowdhery et al. (2022) count; causal attention needs half of those, and is nevertheless counted whole.
        """
        weights = sum(p.numel() for p in self.parameters()) - self.positions.weight.numel()
        return 6 * weights + 12 * self.config.layers * self.config.width * length

    def finish(self, x: Tensor) -> Tensor:
        """What the readout reads, of the last block's output."""
        return x

    def norms(self) -> list[nn.LayerNorm | None]:
        """What stands before each block's attention and its feed-forward part, in turn, and before the readout."""
        raise NotImplementedError  # each paper's file

    def initial(self, batch: int) -> State:
        return past.empty(batch, self.device)

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """Embedding and every block, the last one finished. Without a state nothing is kept, as for training, and
        where that is compiled the last one is all there is.
        """
        ids = inputs.ids
        if state is None:
            if ids.shape[1] > self.window:
                raise NextwordError(
                    f"{ids.shape[1]} tokens at once, but the window is {self.window}: train with batches of at most "
                    "that length (--set phase.0.batches.length=…)."
                )
            return (self._compiled if self._compiled and self.training else self._train)(ids), None
        parts: list[list[Tensor]] = []
        while True:
            room = self.window - state["most"]
            if room and (ids.shape[1] or not parts):
                layers, state = self.forward_cached(ids[:, :room], state)
                parts.append(layers)
            ids = ids[:, room:]
            if not ids.shape[1]:
                return _joined(parts), state
            state = self._moved_on(state)

    def _last(self, ids: Tensor) -> list[Tensor]:
        return self._train(ids)[-1:]

    def _train(self, ids: Tensor) -> list[Tensor]:
        """A batch at once, with nothing before it and nothing kept."""
        x = self.entered(ids, torch.arange(ids.shape[1], device=ids.device))
        outputs = [x]
        for block in self.blocks:
            if self.checkpointing and torch.is_grad_enabled():
                x, _ = checkpoint(block, x, None, None, use_reentrant=False)
            else:
                x, _ = block(x, None, None)
            outputs.append(x)
        outputs[-1] = self.finish(x)
        return outputs

    def forward_cached(self, ids: Tensor, state: past.State) -> tuple[list[Tensor], State]:
        """What fits into the window after what was read."""
        reading = past.Reading(state, ids.shape[1], self.window)
        x = self.entered(ids, reading.positions)
        outputs, kept = [x], []
        for i, block in enumerate(self.blocks):
            x, now = block(x, reading, state["layers"][i] if state["layers"] else None)
            outputs.append(x)
            kept.append(now)
        outputs[-1] = self.finish(x)
        return outputs, reading.done(ids, tuple(kept))

    def entered(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self.begun(self.embedding(ids) + self.positions(positions))

    def begun(self, x: Tensor) -> Tensor:
        """What the first block reads. In 16 bits the sum that runs through all blocks is kept in 16 bits as well: what
        stands between the products waits for memory alone.
        """
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        return F.dropout(x, self.config.dropout, self.training)

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        if not torch.is_grad_enabled():
            if last.is_cuda and self.steps.suit(state):
                return self.steps(last, state)
            if last.device.type == "cpu" and self.whole_steps.suit(last, state):
                return self.whole_steps(last, state)
        return super().step(last, state)

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        """Beams change places: row i goes on from what row rows[i] has read, which is equally long."""
        return past.reordered(state, rows) if len(rows) == len(state["length"]) else nest.take(state, rows)

    def _moved_on(self, state: past.State) -> State:
        """The window is full: the later half of what was read, read again."""
        ids, lengths = past.latest(state, self.window - self.stride)
        if not ids.shape[1]:  # a window of one token
            return past.empty(len(ids), ids.device)
        _, fresh = self.forward_cached(ids, past.empty(len(ids), ids.device))
        return past.settled(fresh, lengths)

    def prompt(self, ids: Tensor, lengths: Tensor) -> State:
        """The state after rows of unequal length (B,), padded at their end."""
        if ids.device.type == "cpu" and not torch.is_grad_enabled() and self.whole_steps.suit_prompt(ids):
            return self.whole_steps.prompt(ids, lengths)
        _, state = self.hidden(Inputs(ids), self.initial(len(ids)))
        if int(lengths.max()) > state["most"]:
            raise NextwordError("Rows beyond the window are to be read one by one, for each moves on by itself.")
        return past.settled(state, lengths)


def _joined(parts: list[list[Tensor]]) -> list[Tensor]:
    return parts[0] if len(parts) == 1 else [torch.cat(same, 1) for same in zip(*parts, strict=True)]


def draw(network: nn.Module) -> None:
    """Matrices from N(0, 0.02²), biases zero, as both papers begin."""
    for module in network.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def check_heads(config: Any) -> None:
    if config.width % config.heads:
        raise NextwordError(
            f"[model] width = {config.width} cannot be cut into heads = {config.heads} of equal width: choose a "
            "multiple."
        )
