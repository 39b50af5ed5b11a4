"""Decoder-only Transformers with learned positions: the skeleton that GPT, GPT-2 and GPT-3 share.

    x = E[token] + P[position]      blocks, each causal attention and a feed-forward part      p = softmax(E · norm(x))

A paper's file defines its `blocks`, its final norm and its initialization; this file reads text with them:

    training      `hidden(inputs, None)`: a whole batch at once, nothing cached
    scoring       `hidden(inputs, state)`: continue a KV cache (layers/kv_cache.py), any number of tokens
    generating    `step(last, state)`: one token, by the fastest path available (kernels/dispatch.py)

Positions end at `window`. When the window is full, its later half is read again from position 0 on, so a text of any
length can be read, and past the first window each token sees at least half a window. Scoring a text in windows of
`window` tokens moved on by `stride` gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nextword.core import pytree
from nextword.core.errors import InvalidSetting, invalid
from nextword.core.slices import end_slice, slice_tokens
from nextword.core.types import Inputs, State, Vocabulary
from nextword.kernels.dispatch import FastDecoding
from nextword.layers import kv_cache
from nextword.layers.quantized import quantize_network
from nextword.models.base import CausalNetwork, check_bits, check_sizes


@dataclass(frozen=True)
class DecoderConfig:
    """What all decoders have; a paper's file has its own sizes."""

    width: int = 768
    layers: int = 12
    heads: int = 12
    window: int = 1024
    dropout: float = 0.1  # of embeddings, attention weights and what is added to the residual sum
    epsilon: float = 1e-5  # of the norms
    bits: int = 0  # 8: int8 weights, for inference only; 0: float32

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self.width, self.heads)
        check_bits(self)


class DecoderLM(CausalNetwork):
    """Token and position embeddings, then `blocks`: (x, update, cache) → (x, keys and values), then `final_norm`."""

    has_sliding_window = is_transformer = True
    can_quantize = can_compile = can_checkpoint = True
    is_post_norm = False  # blocks normalize the residual sum itself (GPT), not the input of each part (GPT-2)
    config: DecoderConfig
    window: int
    blocks: nn.ModuleList

    def __init__(self, config: DecoderConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.window = self.max_positions = config.window
        self.stride = max(1, config.window // 2)
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.positions = nn.Embedding(config.window, config.width)
        self.widths = [config.width] * (config.layers + 1)
        self.fast = FastDecoding(self)
        self._compiled: Callable[[Tensor], Tensor] | None = None

    # -------------------------------------------------------------------------------------------- the architecture

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """E[token] + P[position]: what the first block reads, (B, T) → (B, T, D)."""
        return self._enter(self.embedding(ids) + self.positions(positions))

    def _enter(self, x: Tensor) -> Tensor:
        # Under autocast the residual stream is 16-bit too: between the products only memory traffic counts
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        return F.dropout(x, self.config.dropout, self.training)

    def final_norm(self, x: Tensor) -> Tensor:
        """Map a block's output to what the readout reads: the last one's, or, for the logit lens, an inner one's."""
        return x

    def layer_norms(self) -> list[nn.LayerNorm | None]:
        """The norms before each block's attention and feed-forward part in turn, then the final one (for kernels)."""
        raise NotImplementedError  # each paper's file

    def stacks(self) -> list[nn.ModuleList]:
        return [self.blocks]

    # -------------------------------------------------------------------------------------------- reading text

    def initial(self, batch: int) -> State:
        return kv_cache.empty(batch, self.device)

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """The embedding and every block's output, the last one normalized. Without a state, nothing is cached."""
        if state is None:
            return self._forward(self._check_length(inputs.ids)), None
        ids, parts = inputs.ids, list[list[Tensor]]()
        while True:
            room = self.window - state["most"]
            if room and (ids.shape[1] or not parts):
                layers, state = self.forward_cached(ids[:, :room], state)
                parts.append(layers)
            ids = ids[:, room:]
            if not ids.shape[1]:
                return parts[0] if len(parts) == 1 else [torch.cat(p, 1) for p in zip(*parts, strict=True)], state
            state = self._slide_window(state)

    def last_hidden(self, inputs: Inputs, state: State) -> tuple[Tensor, State]:
        # Only one tensor leaves the compiled function: autograd would write and read zero gradients of the others
        if state is None and self._compiled is not None and self.training:
            return self._compiled(self._check_length(inputs.ids)), None
        return super().last_hidden(inputs, state)

    def _check_length(self, ids: Tensor) -> Tensor:
        if ids.shape[1] > self.window:
            raise InvalidSetting(
                f"{ids.shape[1]} tokens at once, but the window is {self.window}. Use shorter batches "
                "(--set phase.0.batches.length=…).",
                key="phase.batches.length",
                value=ids.shape[1],
            )
        return ids

    def _forward(self, ids: Tensor) -> list[Tensor]:
        """A batch at once, with nothing before it and nothing cached."""
        x = self.embed(ids, torch.arange(ids.shape[1], device=ids.device))
        layers = [x]
        for block in self.blocks:
            if self.checkpointing and torch.is_grad_enabled():
                x, _ = checkpoint(block, x, None, None, use_reentrant=False)
            else:
                x, _ = block(x, None, None)
            layers.append(x)
        layers[-1] = self.final_norm(x)
        return layers

    def forward_cached(self, ids: Tensor, state: State) -> tuple[list[Tensor], State]:
        """Read tokens that fit into the window after those in the cache."""
        update = kv_cache.CacheUpdate(state, ids.shape[1], self.window)
        x = self.embed(ids, update.positions)
        layers, caches = [x], []
        for i, block in enumerate(self.blocks):
            x, cache = block(x, update, state["layers"][i] if state["layers"] else None)
            layers.append(x)
            caches.append(cache)
        layers[-1] = self.final_norm(x)
        return layers, update.finish(ids, tuple(caches))

    def _slide_window(self, state: State) -> State:
        """Read the later half of every full window again."""
        full = (state["length"] == self.window).nonzero().squeeze(1)
        if len(full) == len(state["length"]):
            return self._reread(state)
        rows = {**pytree.take({"ids": state["ids"], "length": state["length"]}, full), "most": self.window}
        return kv_cache.replace_rows(state, full, self._reread(rows))

    def _reread(self, state: State) -> State:
        """The state after the last tokens of full windows."""
        ids, _ = kv_cache.latest(state, self.window - self.stride)
        state = kv_cache.empty(len(ids), ids.device)
        while ids.shape[1]:  # a window of one token has none
            size = slice_tokens(ids.shape[1])
            _, state = self.forward_cached(ids[:, :size], state)
            ids = ids[:, size:]
            end_slice()
        return state

    def prompt(self, ids: Tensor, lengths: Tensor) -> State:
        """The state after rows of unequal lengths (B,), padded at their end (B, T)."""
        state = self.fast.prompt(ids, lengths)
        if state is not None:
            return state
        _, state = self.hidden(Inputs(ids), self.initial(len(ids)))
        if int(lengths.max()) > state["most"]:
            raise InvalidSetting(
                f"A prompt of {int(lengths.max())} tokens is longer than the window of {self.window}. Read such "
                "prompts one by one, because each moves its window by itself.",
                key="prompt",
                value=int(lengths.max()),
            )
        return kv_cache.with_lengths(state, lengths)

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        return self.fast.step(last, state) or super().step(last, state)

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        return kv_cache.reorder(state, rows) if len(rows) == len(state["length"]) else pytree.take(state, rows)

    def join(self, states: Sequence[State]) -> State:
        return kv_cache.join(states, self.window)

    def take(self, state: State, rows: Tensor) -> State:
        return kv_cache.take(state, rows)

    def truncate(self, state: State, read: int, count: int) -> State | None:
        """Known as long as the window did not move in between."""
        moved = read - state["most"]
        if self._num_moves(count) != self._num_moves(read) or count == moved:
            return None
        return kv_cache.truncate(state, count - moved)

    def _num_moves(self, read: int) -> int:
        """How often the window has moved after so many tokens."""
        return max(0, -(-(read - self.window) // self.stride))

    # -------------------------------------------------------------------------------------------- speed and size

    def compile_training(self) -> None:
        if self._compiled is None:
            self._compiled = torch.compile(lambda ids: self._forward(ids)[-1])

    @property
    def is_quantized(self) -> bool:
        return bool(self.config.bits)

    def quantize(self) -> None:
        self.config = replace(self.config, bits=8)
        self._num_stored = self.num_parameters()
        quantize_network(self)
        self.fast.reset()

    def flops_per_token(self, length: int) -> float:
        """6 per weight in a product, and 12 per layer, position and unit of width, as Chowdhery et al. (2022) count.

        Causal attention needs half of the latter, but is counted in full, as is usual.
        """
        weights = sum(p.numel() for p in self.parameters()) - self.positions.weight.numel()
        return 6 * weights + 12 * self.config.layers * self.config.width * length


def init_gpt_weights(network: nn.Module) -> None:
    """Draw matrices from N(0, 0.02²) and set biases to zero, as GPT and BERT do."""
    for module in network.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def check_heads(width: int, heads: int) -> None:
    if width % heads:
        raise invalid("model.width", width, f"is not a multiple of heads = {heads}")
