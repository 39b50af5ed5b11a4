"""T5: an encoder and a decoder of attention blocks; every task is text in, text out.

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer" (2020). Against the
Transformer of Vaswani et al. (2017): norms before each part, that only scale; no biases; no position vectors, but a
number for each distance, added to the attention scores and shared by all layers of a stack; scores are not divided by
√K, which the weights' first values make up for. With `gated` and not `tied` it is version 1.1 (Shazeer 2020).

    source ─ E ─▶ [ x + attend(norm x) ; x + feed(norm x) ] × layers ─ norm ─▶ memory
    target ─ E ─▶ [ x + attend(norm x) ; x + look(norm x, memory) ; x + feed(norm x) ] × layers ─ norm ─▶ h

    feed     W₂ relu(W₁ x)        gated: W₂ (gelu(W₁ x) · V x)
    p        softmax(E h / √D)    not tied: softmax(W h)

A state is {"there": the source's padding or None (B, S), "memory": keys and values of the source for all layers (B, L,
2, H, S, K), "past": those of what was written (R, L, 2, H, C, K), "length": how many of its C places are in use}. In a
beam several rows share a source, so that R is a multiple of B. In a row of several pairs (batching/packing.py)
attention, also that to the source, stays within `segments`; distances within a pair are what they are.
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

from nextword.core import pytree as nest
from nextword.core.errors import NextwordError
from nextword.core.types import Inputs, State, Vocabulary
from nextword.kernels import cublaslt as lt
from nextword.kernels.cpu_matmul import Product
from nextword.kernels.cuda_graphs import T5Steps
from nextword.layers.attention import DistanceBias
from nextword.layers.kv_cache import Kept, Writing, reordered_written, shared
from nextword.layers.output.softmax import Full, Tied
from nextword.models.base import CausalNetwork, check_sizes, need_source


@dataclass(frozen=True)
class T5Config:
    width: int = 512
    layers: int = 6  # of the encoder
    decoder_layers: int = 0  # 0: as many
    heads: int = 8
    head: int = 64  # width of one
    inner: int = 2048
    gated: bool = False
    tied: bool = True  # output matrix = embedding
    buckets: int = 32
    distance: int = 128  # from here on all distances are one
    dropout: float = 0.1
    epsilon: float = 1e-6  # of the norms

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.buckets % 4:
            raise NextwordError(f"[model] buckets = {self.buckets}: they are halved twice, so a multiple of 4.")


class Attention(nn.Module):
    """No biases, no scaling."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        inner = config.heads * config.head
        self.heads, self.dropout = config.heads, config.dropout
        self.q, self.k, self.v = (Product(config.width, inner, bias=False) for _ in range(3))
        self.out = Product(inner, config.width, bias=False)

    def asked(self, x: Tensor) -> Tensor:
        """Queries (B, H, T, K)."""
        return self._split(self.q(x))

    def all(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values. A GPU makes them in one product; on a CPU to join the weights costs more."""
        if not x.is_cuda:
            return self.asked(x), self._split(self.k(x)), self._split(self.v(x))
        weight = torch.cat([self.q.weight, self.k.weight, self.v.weight])
        q, k, v = F.linear(x, weight).chunk(3, -1)
        return self._split(q), self._split(k), self._split(v)

    def forward(self, q: Tensor, kept: Kept, bias: Tensor | None) -> Tensor:
        """(B, H, T, K), keys and values (B, H, S, K), what is added to the scores (…, T, S) → (B, T, D)."""
        drop = self.dropout if self.training else 0.0
        y = shared(q, kept, attn_mask=bias, dropout_p=drop, scale=1.0)
        return self.out(y.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class Feed(nn.Module):
    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.wide = Product(config.width, config.inner, bias=False)
        self.gate = Product(config.width, config.inner, bias=False) if config.gated else None
        self.narrow = Product(config.inner, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            y = torch.relu(self.wide(x))
        else:
            y = F.gelu(self.wide(x), approximate="tanh") * self.gate(x)
        return self.narrow(F.dropout(y, self.dropout, self.training))


class Block(nn.Module):
    """Attention, in a decoder a look at the source, and the feed-forward part, each over its own norm."""

    def __init__(self, config: T5Config, decoder: bool) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.norm1, self.attend = _norm(config), Attention(config)
        self.norm2 = _norm(config) if decoder else None
        self.look = Attention(config) if decoder else None
        self.norm3, self.feed = _norm(config), Feed(config)

    def forward(
        self,
        x: Tensor,
        bias: Tensor | None,
        extended: Callable[[Tensor, Tensor], Kept] | None = None,
        memory: Kept | None = None,
        seen: Tensor | None = None,
    ) -> Tensor:
        """`extended` puts what came before x ahead of its keys and values; `memory` are those of the source, of which
        `seen` is there.
        """
        q, *kept = self.attend.all(self.norm1(x))
        x = x + self._dropped(self.attend(q, extended(*kept) if extended else kept, bias))
        if self.look is not None and self.norm2 is not None and memory is not None:
            x = x + self._dropped(self.look(self.look.asked(self.norm2(x)), memory, seen))
        return x + self._dropped(self.feed(self.norm3(x)))

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


class Stack(nn.Module):
    def __init__(self, config: T5Config, layers: int, decoder: bool) -> None:
        super().__init__()
        self.distances = DistanceBias(config.heads, config.buckets, config.distance, both=not decoder)
        self.blocks = nn.ModuleList(Block(config, decoder) for _ in range(layers))
        self.norm = _norm(config)


class T5(CausalNetwork):
    Config = T5Config
    is_conditional = True
    packs = True  # reads rows of several pairs

    def __init__(self, config: T5Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.checkpointing = False
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.encoder = Stack(config, config.layers, decoder=False)
        self.decoder = Stack(config, config.decoder_layers or config.layers, decoder=True)
        tied = Tied(self.embedding, bias=False)
        self.readout: Any = tied if config.tied else Full(config.width, vocabulary.size, bias=False)
        self.widths = [config.width] * (len(self.decoder.blocks) + 1)
        self.steps = T5Steps(self)
        self._compiled: Any = None
        self._draw()

    def _draw(self) -> None:
        """First values as the authors' code has them: they make up for the scores that nobody divides."""
        width, head = self.config.width, self.config.head
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
            elif isinstance(module, Feed):
                for part in (module.wide, module.gate):
                    if part is not None:
                        nn.init.normal_(part.weight, std=width**-0.5)
                nn.init.normal_(module.narrow.weight, std=self.config.inner**-0.5)

    def compile_training(self) -> None:
        """Let torch fuse what training computes, of each stack; all other reading stays as it is. Only the last layer
        leaves what is compiled.
        """
        lt.make_ready()
        if self._compiled is None:
            self._compiled = torch.compile(self._read), torch.compile(self._write)

    def stacks(self) -> list[nn.ModuleList]:
        """Of what reads: a head is put over that alone."""
        return [self.encoder.blocks]

    # -------------------------------------------------------------------------------------------- the source

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """The source: what enters the first block, and what leaves each; the last has its norm."""
        x = self._entered(inputs.ids)
        bias = self.encoder.distances(x.shape[1], x.shape[1]).unsqueeze(0)
        if inputs.segments is not None:
            bias = bias.masked_fill(~_same(inputs.segments, inputs.segments), float("-inf"))
        elif inputs.padding is not None:
            bias = bias.masked_fill(~inputs.padding[:, None, None, :], float("-inf"))
        if self._compiled and self.training:
            return self._compiled[0](x, _as(bias, x))[-1:], None
        return self._read(x, _as(bias, x)), None

    def _read(self, x: Tensor, bias: Tensor) -> list[Tensor]:
        outputs = [x]
        for block in self.encoder.blocks:
            outputs.append(self._through(block, outputs[-1], bias))
        outputs[-1] = self._dropped(self.encoder.norm(outputs[-1]))
        return outputs

    def start(self, batch: int, source: Inputs | None = None) -> tuple[Tensor, State]:
        return super().start(batch)[0], self.begin(source)

    def begin(self, source: Inputs | None) -> State:
        """The state after the source was read, and nothing written."""
        source = need_source(self, source)
        h = self.encode(source)[0][-1]
        looks: list[Any] = [block.look for block in self.decoder.blocks]
        weight = torch.cat([part.weight for look in looks for part in (look.k, look.v)])  # one product for all layers
        memory = F.linear(h, weight).view(*h.shape[:2], len(looks), 2, self.config.heads, -1).permute(0, 2, 3, 4, 1, 5)
        return {"there": source.padding, "memory": memory, "past": None, "length": 0}

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        """Beams change places: row i goes on from what row rows[i] has written; of the sources these remain."""
        if searches is not None:
            at = torch.tensor(searches, device=rows.device)
            kept = {name: nest.take(state[name], at) for name in ("there", "memory")}
        else:
            kept = {}
        return {**state, **kept, "past": reordered_written(state["past"], state["length"], rows)}

    # -------------------------------------------------------------------------------------------- the target

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """Where gradients are wanted and nothing came before, nothing is kept."""
        fresh = state is None
        state = self.begin(inputs.source) if fresh else state
        x, length = self._entered(inputs.ids), state["length"]
        steps = x.shape[1]
        bias = self.decoder.distances(steps, length + steps).unsqueeze(0)
        if steps > 1:
            later = torch.ones(steps, length + steps, dtype=torch.bool, device=x.device).triu(length + 1)
            bias = bias.masked_fill(later, float("-inf"))
        seen = None if state["there"] is None else state["there"][:, None, None, :]
        if inputs.segments is not None and inputs.source is not None and inputs.source.segments is not None:
            bias = bias.masked_fill(~_same(inputs.segments, inputs.segments), float("-inf"))
            seen = _same(inputs.segments, inputs.source.segments)
        bias = _as(bias, x)
        if fresh and torch.is_grad_enabled():
            if self._compiled and self.training:
                return self._compiled[1](x, bias, state["memory"], seen, None)[-1:], None
            return self._write(x, bias, state["memory"], seen, None), None
        writing = Writing(state["past"], length, steps, len(self.decoder.blocks))
        outputs = self._write(x, bias, state["memory"], seen, writing)
        return outputs, {**state, "past": writing.done(), "length": length + steps}

    def _write(
        self, x: Tensor, bias: Tensor, memory: Tensor, seen: Tensor | None, extended: Callable[..., Kept] | None
    ) -> list[Tensor]:
        outputs = [x]
        for i, block in enumerate(self.decoder.blocks):
            own = partial(extended, i) if extended else None
            outputs.append(self._through(block, outputs[-1], bias, own, memory[:, i].unbind(1), seen))
        h = self._dropped(self.decoder.norm(outputs[-1]))
        outputs[-1] = h * self.config.width**-0.5 if self.config.tied else h
        return outputs

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        if last.is_cuda and not torch.is_grad_enabled() and state["past"] is not None:
            return self.steps(last, state)
        return super().step(last, state)

    def _through(self, block: Any, *given: Any) -> Any:
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(block, *given, use_reentrant=False)
        return block(*given)

    def _entered(self, ids: Tensor) -> Tensor:
        """In 16 bits the sum that runs through all blocks is kept in 16 bits as well."""
        x = self.embedding(ids)
        return self._dropped(x.to(_kind(x)))

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)


class Norm(nn.RMSNorm):
    """Its weights in the type of what they scale: so one kernel does it all in 16 bits, too."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def _norm(config: T5Config) -> Norm:
    return Norm(config.width, config.epsilon)


def _same(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, 1, T, S): whether a token of the one (B, T) is of the same pair as one of the other (B, S)."""
    return (queries.unsqueeze(2) == keys.unsqueeze(1)).unsqueeze(1)


def _kind(x: Tensor) -> torch.dtype:
    """The type that products compute in."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _as(bias: Tensor, x: Tensor) -> Tensor:
    return bias.to(_kind(x))
