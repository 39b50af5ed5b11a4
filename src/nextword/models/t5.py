"""T5: a Transformer encoder and decoder; every task is text to text.

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer" (2020).

    source ─ E ─▶ [ x + attend(norm x) ; x + feed(norm x) ] × layers ─ norm ─▶ memory
    target ─ E ─▶ [ x + attend(norm x) ; x + look(norm x, memory) ; x + feed(norm x) ] × layers ─ norm ─▶ h

    attend   softmax(Q Kᵀ + bias(distance)) V        look    the same over the memory, without a bias
    feed     W₂ relu(W₁ x)                           gated   W₂ (gelu(W₁ x) · V x)
    p        softmax(E h / √D)                       not tied    softmax(W h)

Differences from the Transformer of Vaswani et al. (2017):
- norms before each part, which only scale (RMSNorm); no biases anywhere;
- no position embeddings, but a learned number per distance bucket and head, added to the attention scores and shared by
  all layers of a stack;
- attention scores are not divided by √K; the initialization makes up for it;
- with `gated` and without `tied` it is version 1.1 (Shazeer 2020).

A state is {"there": the source's token mask (B, S) or None, "memory": keys and values of the source for all layers (B,
L, 2, H, S, K), "kv_cache": those of the target so far (R, L, 2, H, C, K) or None, "length": how many of its C slots are
in use}. In beam search several rows share a source, so R is a multiple of B. In a row of several packed pairs
(batching/seq2seq.py), attention stays within `segments`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nextword.core import pytree
from nextword.core.errors import InvalidSetting
from nextword.core.types import Inputs, State, Vocabulary
from nextword.kernels.dispatch import FastT5Decoding
from nextword.layers.attention import DistanceBias
from nextword.layers.kv_cache import KeyValues, StackedCacheUpdate, reorder_stacked, shared_attention
from nextword.layers.output.softmax import FullSoftmax, TiedSoftmax
from nextword.models.base import CausalNetwork, check_sizes


@dataclass(frozen=True)
class T5Config:
    width: int = 512
    layers: int = 6  # of the encoder
    decoder_layers: int = 0  # 0: as many as the encoder
    heads: int = 8
    head_width: int = 64  # width of a head
    ffn_width: int = 2048  # width of the feed-forward part
    gated: bool = False
    tied: bool = True  # output matrix = embedding
    distance_buckets: int = 32  # relative-position buckets
    max_distance: int = 128  # all distances from here on share a bucket
    dropout: float = 0.1
    epsilon: float = 1e-6  # of the norms

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.distance_buckets % 4:
            raise InvalidSetting(
                f"[model] distance_buckets = {self.distance_buckets} must be a multiple of 4: half of them "
                "for each direction, and half of those logarithmic.",
                key="model.distance_buckets",
                value=self.distance_buckets,
            )


class Attention(nn.Module):
    """Multi-head attention without biases and without scaling."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        inner = config.heads * config.head_width
        self.heads, self.dropout = config.heads, config.dropout
        self.q, self.k, self.v = (nn.Linear(config.width, inner, bias=False) for _ in range(3))
        self.out = nn.Linear(inner, config.width, bias=False)

    def forward(self, q: Tensor, kv: KeyValues, bias: Tensor | None) -> Tensor:
        """Queries (B, H, T, K), keys and values (B, H, S, K), bias of the scores (…, T, S) → (B, T, D)."""
        drop = self.dropout if self.training else 0.0
        y = shared_attention(q, kv, attn_mask=bias, dropout_p=drop, scale=1.0)  # (B, H, T, K)
        return self.out(y.transpose(1, 2).flatten(2))

    def queries(self, x: Tensor) -> Tensor:
        return self._split(self.q(x))  # (B, H, T, K)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # One product is faster on a GPU; on a CPU, joining the weights costs more than it saves
        if not x.is_cuda:
            return self.queries(x), self._split(self.k(x)), self._split(self.v(x))
        weight = torch.cat([self.q.weight, self.k.weight, self.v.weight])
        q, k, v = F.linear(x, weight).chunk(3, -1)
        return self._split(q), self._split(k), self._split(v)

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Module):
    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.wide = nn.Linear(config.width, config.ffn_width, bias=False)  # W₁
        self.gate = nn.Linear(config.width, config.ffn_width, bias=False) if config.gated else None  # V
        self.narrow = nn.Linear(config.ffn_width, config.width, bias=False)  # W₂

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            y = torch.relu(self.wide(x))
        else:
            y = F.gelu(self.wide(x), approximate="tanh") * self.gate(x)
        return self.narrow(F.dropout(y, self.dropout, self.training))


class Norm(nn.RMSNorm):
    """x / √(mean(x²) + ε) · weight, computed in the type of x, so that one kernel does it in 16 bits too."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config.width, config.epsilon)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class Block(nn.Module):
    """Self-attention, in a decoder attention to the source, and the feed-forward part, each after its own norm."""

    def __init__(self, config: T5Config, decoder: bool) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.norm1, self.attend = Norm(config), Attention(config)
        self.norm2 = Norm(config) if decoder else None
        self.look = Attention(config) if decoder else None
        self.norm3, self.feed = Norm(config), FeedForward(config)

    def forward(
        self,
        x: Tensor,
        bias: Tensor | None,
        append: Callable[[Tensor, Tensor], KeyValues] | None = None,
        memory: KeyValues | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """`append` puts the cached keys and values before those of x; `memory` are those of the source."""
        q, *kv = self.attend.queries_keys_values(self.norm1(x))
        x = x + self._drop(self.attend(q, append(*kv) if append else kv, bias))
        if self.look is not None and self.norm2 is not None and memory is not None:
            x = x + self._drop(self.look(self.look.queries(self.norm2(x)), memory, memory_mask))
        return x + self._drop(self.feed(self.norm3(x)))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


class Stack(nn.Module):
    """The encoder or the decoder."""

    def __init__(self, config: T5Config, layers: int, decoder: bool) -> None:
        super().__init__()
        self.distances = DistanceBias(config.heads, config.distance_buckets, config.max_distance, both=not decoder)
        self.blocks = nn.ModuleList(Block(config, decoder) for _ in range(layers))
        self.norm = Norm(config)


class T5(CausalNetwork):
    Config = T5Config
    is_conditional = is_packable = is_transformer = True
    can_compile = can_checkpoint = True
    can_join = False

    def __init__(self, config: T5Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.encoder = Stack(config, config.layers, decoder=False)
        self.decoder = Stack(config, config.decoder_layers or config.layers, decoder=True)
        tied = TiedSoftmax(self.embedding, bias=False)
        self.readout = tied if config.tied else FullSoftmax(config.width, vocabulary.size, bias=False)
        self.widths = [config.width] * (len(self.decoder.blocks) + 1)
        self.fast = FastT5Decoding(self)
        self._compiled: tuple[Any, Any] | None = None  # encoder, decoder
        self._initialize()

    def _initialize(self) -> None:
        """Draw weights as the authors' code does; small queries make up for the missing division by √K."""
        width, head = self.config.width, self.config.head_width
        nn.init.normal_(self.embedding.weight, std=1.0)
        if not self.config.tied:
            nn.init.normal_(self.readout.weight, std=1.0)
        for stack in (self.encoder, self.decoder):
            nn.init.normal_(stack.distances.weight, std=width**-0.5)
        for module in self.modules():
            if isinstance(module, Attention):
                nn.init.normal_(module.q.weight, std=(width * head) ** -0.5)
                nn.init.normal_(module.k.weight, std=width**-0.5)
                nn.init.normal_(module.v.weight, std=width**-0.5)
                nn.init.normal_(module.out.weight, std=(module.heads * head) ** -0.5)
            elif isinstance(module, FeedForward):
                for part in (module.wide, module.gate):
                    if part is not None:
                        nn.init.normal_(part.weight, std=width**-0.5)
                nn.init.normal_(module.narrow.weight, std=self.config.ffn_width**-0.5)

    def compile_training(self) -> None:
        # Only the last layer leaves a compiled stack: autograd would write and read zero gradients of the others
        if self._compiled is None:
            self._compiled = (
                torch.compile(lambda *args: self._run_encoder(*args)[-1]),
                torch.compile(lambda *args: self._run_decoder(*args)[-1]),
            )

    def stacks(self) -> list[nn.ModuleList]:
        """The encoder only: a task head reads nothing else."""
        return [self.encoder.blocks]

    # -------------------------------------------------------------------------------------------- the source

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """The source: what enters the first block, and every block's output; the last one is normalized."""
        return self._run_encoder(*self._encoder_inputs(inputs)), None

    def _encode_last(self, inputs: Inputs) -> Tensor:
        x, bias = self._encoder_inputs(inputs)
        if self._compiled and self.training:
            return self._compiled[0](x, bias)
        return self._run_encoder(x, bias)[-1]

    def _encoder_inputs(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Embeddings (B, S, D), and the bias of the attention scores: −∞ where a token must not attend."""
        x = self._embed(inputs.ids)
        bias = self.encoder.distances(x.shape[1], x.shape[1]).unsqueeze(0)  # (1, H, S, S)
        if inputs.segments is not None:
            bias = bias.masked_fill(~_same_pair(inputs.segments, inputs.segments), float("-inf"))
        elif inputs.token_mask is not None:
            bias = bias.masked_fill(~inputs.token_mask[:, None, None, :], float("-inf"))
        return x, bias.to(_compute_dtype(x))

    def _run_encoder(self, x: Tensor, bias: Tensor) -> list[Tensor]:
        layers = [x]
        for block in self.encoder.blocks:
            layers.append(self._run_block(block, layers[-1], bias))
        layers[-1] = self._drop(self.encoder.norm(layers[-1]))
        return layers

    def start(self, batch: int, source: Inputs | None = None) -> tuple[Tensor, State]:
        return super().start(batch)[0], self.begin(source)

    def begin(self, source: Inputs | None) -> State:
        """The state after reading the source, before the first target token."""
        source = self.require_source(source)
        h = self._encode_last(source)
        looks: list[Any] = [block.look for block in self.decoder.blocks]
        weight = torch.cat([part.weight for look in looks for part in (look.k, look.v)])  # one product for all layers
        memory = F.linear(h, weight).view(*h.shape[:2], len(looks), 2, self.config.heads, -1).permute(0, 2, 3, 4, 1, 5)
        return {"there": source.token_mask, "memory": memory, "kv_cache": None, "length": 0}

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        sources = {}
        if searches is not None:
            at = torch.tensor(searches, device=rows.device)
            sources = {name: pytree.take(state[name], at) for name in ("there", "memory")}
        return {**state, **sources, "kv_cache": reorder_stacked(state["kv_cache"], state["length"], rows)}

    # -------------------------------------------------------------------------------------------- the target

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """The target: what enters the first block, and every block's output, the last one as the readout reads it."""
        return self._decode(inputs, state, all_layers=True)

    def last_hidden(self, inputs: Inputs, state: State) -> tuple[Tensor, State]:
        layers, state = self._decode(inputs, state, all_layers=False)
        return layers[-1], state

    def _decode(self, inputs: Inputs, state: State, all_layers: bool) -> tuple[list[Tensor], State]:
        is_new = state is None
        state = self.begin(inputs.source) if is_new else state
        x, length = self._embed(inputs.ids), state["length"]
        steps = x.shape[1]
        bias = self.decoder.distances(steps, length + steps).unsqueeze(0)  # (1, H, T, C)
        if steps > 1:
            later = torch.ones(steps, length + steps, dtype=torch.bool, device=x.device).triu(length + 1)
            bias = bias.masked_fill(later, float("-inf"))
        memory_mask = None if state["there"] is None else state["there"][:, None, None, :]
        if inputs.segments is not None and inputs.source is not None and inputs.source.segments is not None:
            bias = bias.masked_fill(~_same_pair(inputs.segments, inputs.segments), float("-inf"))
            memory_mask = _same_pair(inputs.segments, inputs.source.segments)
        bias = bias.to(_compute_dtype(x))
        if is_new and torch.is_grad_enabled():  # training: nothing is cached
            if self._compiled and self.training and not all_layers:
                return [self._compiled[1](x, bias, state["memory"], memory_mask, None)], None
            return self._run_decoder(x, bias, state["memory"], memory_mask, None), None
        update = StackedCacheUpdate(state["kv_cache"], length, steps, len(self.decoder.blocks))
        layers = self._run_decoder(x, bias, state["memory"], memory_mask, update)
        return layers, {**state, "kv_cache": update.finish(), "length": length + steps}

    def _run_decoder(
        self,
        x: Tensor,
        bias: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None,
        append: Callable[..., KeyValues] | None,
    ) -> list[Tensor]:
        layers = [x]
        for i, block in enumerate(self.decoder.blocks):
            own = partial(append, i) if append else None
            layers.append(self._run_block(block, layers[-1], bias, own, memory[:, i].unbind(1), memory_mask))
        layers[-1] = self.final_norm(layers[-1])
        return layers

    def final_norm(self, x: Tensor) -> Tensor:
        h = self._drop(self.decoder.norm(x))
        return h * self.config.width**-0.5 if self.config.tied else h

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        return self.fast.step(last, state) or super().step(last, state)

    # -------------------------------------------------------------------------------------------- both stacks

    def _run_block(self, block: Any, *arguments: Any) -> Any:
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(block, *arguments, use_reentrant=False)
        return block(*arguments)

    def _embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        return self._drop(x.to(_compute_dtype(x)))  # under autocast the residual stream is 16-bit too

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)


def _same_pair(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, 1, T, S): whether two tokens, by their segments (B, T) and (B, S), belong to the same packed pair."""
    return (queries.unsqueeze(2) == keys.unsqueeze(1)).unsqueeze(1)


def _compute_dtype(x: Tensor) -> torch.dtype:
    """The type that matrix products compute in."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
