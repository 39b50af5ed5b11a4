"""T5: an encoder and a decoder of attention blocks; every task is text in, text out.

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer" (2020). Against the
Transformer of Vaswani et al. (2017): norms before each part, that only scale; no biases; no position vectors, but a
number for each distance, added to the attention scores and shared by all layers of a stack; scores are not divided by
√K, which the weights' first values make up for. With `gated` and not `tied` it is version 1.1 (Shazeer 2020).

    source ─ E ─▶ [ x + attend(norm x) ; x + feed(norm x) ] × layers ─ norm ─▶ memory
    target ─ E ─▶ [ x + attend(norm x) ; x + look(norm x, memory) ; x + feed(norm x) ] × layers ─ norm ─▶ h

    feed     W₂ relu(W₁ x)        gated: W₂ (gelu(W₁ x) · V x)
    p        softmax(E h / √D)    not tied: softmax(W h)

A state is {"there": the source's padding or None, "memory": keys and values of the source, layer by layer, "past":
those of what was written, layer by layer}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nextword import nest
from nextword.contract import Inputs, NextwordError, State, Unsupported, Vocabulary
from nextword.layers.buckets import DistanceBias
from nextword.layers.products import Product
from nextword.layers.softmax import Full, Tied
from nextword.models.causal import CausalNetwork, check_sizes

Kept = tuple[Tensor, Tensor]  # keys and values, (B, H, S, K) each


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

    def kept(self, x: Tensor) -> Kept:
        return self._split(self.k(x)), self._split(self.v(x))

    def forward(self, x: Tensor, kept: Kept, bias: Tensor | None) -> Tensor:
        """(B, T, D), keys and values (B, H, S, K), what is added to the scores (…, T, S) → (B, T, D)."""
        drop = self.dropout if self.training else 0.0
        q = self._split(self.q(x))
        y = F.scaled_dot_product_attention(q, *kept, attn_mask=bias, dropout_p=drop, scale=1.0)
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
        self, x: Tensor, bias: Tensor | None, past: Kept | None, memory: Kept | None, seen: Tensor | None
    ) -> tuple[Tensor, Kept]:
        """`past` are keys and values of what came before x; `memory` those of the source, of which `seen` is there."""
        y = self.norm1(x)
        kept = self.attend.kept(y)
        if past is not None:
            kept = torch.cat([past[0], kept[0]], 2), torch.cat([past[1], kept[1]], 2)
        x = x + self._dropped(self.attend(y, kept, bias))
        if self.look is not None and self.norm2 is not None and memory is not None:
            x = x + self._dropped(self.look(self.norm2(x), memory, seen))
        return x + self._dropped(self.feed(self.norm3(x))), kept

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
    conditional = True

    def __init__(self, config: T5Config, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.checkpointing = False
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.encoder = Stack(config, config.layers, decoder=False)
        self.decoder = Stack(config, config.decoder_layers or config.layers, decoder=True)
        tied = Tied(self.embedding, bias=False)
        self.readout: Any = tied if config.tied else Full(config.width, vocabulary.size, bias=False)
        self.widths = [config.width] * (len(self.decoder.blocks) + 1)
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

    # -------------------------------------------------------------------------------------------- the source

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """The source: what enters the first block, and what leaves each; the last has its norm."""
        x = self._dropped(self.embedding(inputs.ids))
        bias = self.encoder.distances(x.shape[1], x.shape[1]).unsqueeze(0)
        if inputs.padding is not None:
            bias = bias.masked_fill(~inputs.padding[:, None, None, :], float("-inf"))
        outputs, bias = [x], _as(bias, x)
        for block in self.encoder.blocks:
            x, _ = self._through(block, x, bias, None, None, None)
            outputs.append(x)
        outputs[-1] = self._dropped(self.encoder.norm(x))
        return outputs, None

    def start(self, batch: int, source: Inputs | None = None) -> tuple[Tensor, State]:
        return super().start(batch)[0], self.begin(source)

    def begin(self, source: Inputs | None) -> State:
        """The state after the source was read, and nothing written."""
        if source is None:
            raise Unsupported(
                f"{type(self).__name__} writes from a source, and none was given. To model plain text, train a model "
                "that reads it (`nextword papers`)."
            )
        memory = self.encode(source)[0][-1]
        kept = [block.look.kept(memory) for block in self.decoder.blocks]  # type: ignore[union-attr,operator]
        return {"there": source.padding, "memory": kept, "past": None}

    def reorder(self, state: State, rows: Tensor) -> State:
        """The state of these rows, each of which has the source of the row whose place it takes: that part stays."""
        return {**state, "past": nest.take(state["past"], rows)}

    # -------------------------------------------------------------------------------------------- the target

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        state = self.begin(inputs.source) if state is None else state
        past: Any = state["past"] or [None] * len(self.decoder.blocks)
        x = self._dropped(self.embedding(inputs.ids))
        steps, before = x.shape[1], past[0][0].shape[2] if past[0] is not None else 0
        bias = self.decoder.distances(steps, before + steps).unsqueeze(0)
        if steps > 1:
            later = torch.ones(steps, before + steps, dtype=torch.bool, device=x.device).triu(before + 1)
            bias = bias.masked_fill(later, float("-inf"))
        bias = _as(bias, x)
        there = state["there"]
        seen = None if there is None else there[:, None, None, :]
        outputs, after = [x], []
        for block, own, memory in zip(self.decoder.blocks, past, state["memory"], strict=True):
            x, kept = self._through(block, x, bias, own, memory, seen)
            outputs.append(x)
            after.append(kept)
        h = self._dropped(self.decoder.norm(x))
        outputs[-1] = h * self.config.width**-0.5 if self.config.tied else h
        return outputs, {**state, "past": after}

    def _through(self, block: Any, *given: Any) -> Any:
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(block, *given, use_reentrant=False)
        return block(*given)

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)


def _norm(config: T5Config) -> nn.RMSNorm:
    return nn.RMSNorm(config.width, config.epsilon)


def _as(bias: Tensor, x: Tensor) -> Tensor:
    """In the type that attention computes in."""
    kind = x.device.type
    return bias.to(torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype)
