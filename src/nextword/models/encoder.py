"""Bidirectional Transformer encoders: the skeleton that BERT, RoBERTa and ALBERT share.

    ids ─ E[token] + P[position] + S[segment], norm ─▶ blocks ─▶ vectors (B, T, D) ─┬─ readout: log p of a masked token
                                                                                   └─ first vector: pooler, next
                                                                                   sentence
    post-norm block   x = norm(x + attention(x))     x = norm(x + W₂ gelu(W₁ x))          norms = "after", as in the
    papers pre-norm block    x = x + attention(norm(x))     x = x + W₂ gelu(W₁ norm(x))          norms = "before", one
    more at the end

A paper's file sets the sizes, what layers share, and the embeddings. Texts are padded, or packed end to end in one row
(layers/attention.py); no text sees another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Encoding, FramedText, Inputs, State, Vocabulary
from nextword.layers.attention import BidirectionalAttention, Layout, Padded, Ragged, choose_layout, select_positions
from nextword.layers.linear import Linear
from nextword.layers.output.softmax import LinearReadout
from nextword.models.base import Network, check_choice
from nextword.models.framing import frame_texts
from nextword.tokenizers.special_tokens import Marks

# Tokens per forward pass on a CPU without gradients. Activations then stay in the cache, in memory that the next pass
# uses again; fresh pages would take a thirtieth of the time.
MAX_TOKENS_CPU = 1536
NORMS = ("after", "before")
PREDICTED = 0.15  # share of the tokens that the readout reads in training, in all of these papers


def check_norms(config: Any) -> None:
    check_choice(config, "norms", NORMS)


# ------------------------------------------------------------------------------------------------ halves of a block


class AttentionHalf(nn.Module):
    """x = norm(x + attention(x)), or with norms "before": x + attention(norm(x))."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dropout, self.is_pre_norm = config.dropout, config.norms == "before"
        self.attention = BidirectionalAttention(config.width, config.heads, config.dropout)
        self.norm = nn.LayerNorm(config.width, config.epsilon)

    def forward(self, x: Tensor, layout: Layout, at: Tensor | None = None) -> Tensor:
        """(B, T, D) → (B, T, D), or (K, D) at the flat positions `at` only."""
        y = self.attention(self.norm(x) if self.is_pre_norm else x, layout, at)
        y = _add(F.dropout(y, self.dropout, self.training), select_positions(x, at))
        return y if self.is_pre_norm else self.norm(y)


class FeedForwardHalf(nn.Module):
    """x = norm(x + W₂ gelu(W₁ x)), or x + W₂ gelu(W₁ norm(x)). The gelu is exact ("none") or approximated ("tanh")."""

    def __init__(self, config: Any, gelu: str) -> None:
        super().__init__()
        self.dropout, self.gelu, self.is_pre_norm = config.dropout, gelu, config.norms == "before"
        inner = config.inner or 4 * config.width
        self.wide = Linear(config.width, inner)  # W₁
        self.narrow = Linear(inner, config.width)  # W₂
        self.norm = nn.LayerNorm(config.width, config.epsilon)

    def forward(self, x: Tensor) -> Tensor:
        y = self.narrow(_gelu(self.wide(self.norm(x) if self.is_pre_norm else x), self.gelu))
        y = _add(F.dropout(y, self.dropout, self.training), x)
        return y if self.is_pre_norm else self.norm(y)


class MaskedLMReadout(LinearReadout):
    """p = softmax(E · norm(gelu(W h)) + b): one more layer, then the embedding matrix."""

    def __init__(self, embedding: nn.Embedding, config: Any, gelu: str) -> None:
        super().__init__()
        self.precision, self.gelu = "fp32", gelu
        self.tied = (embedding,)  # in a tuple, so that the embedding is registered with the network only
        self.dense = Linear(config.width, embedding.embedding_dim)
        self.norm = nn.LayerNorm(embedding.embedding_dim, config.epsilon)
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings))

    @property
    def matrix(self) -> Tensor:
        return self.tied[0].weight

    def project(self, h: Tensor) -> Tensor:
        return self.norm(_gelu(self.dense(h), self.gelu))


# On a CPU, allocating memory costs more than filling it. Without gradients, results that nobody else reads are
# overwritten, which makes inference 5 % faster.


def _gelu(y: Tensor, approximate: str) -> Tensor:
    if torch.is_grad_enabled():
        return F.gelu(y, approximate=approximate)
    return torch.ops.aten.gelu_(y, approximate=approximate)


def _add(y: Tensor, x: Tensor) -> Tensor:
    return x + y if torch.is_grad_enabled() or x.dtype != y.dtype else y.add_(x)


# ------------------------------------------------------------------------------------------------ the network


class BidirectionalEncoder(Network):
    """Embeddings, `attending` and `feeding` halves (one for each layer, or one shared by all) and the output heads.

    `entry` is the width of the embeddings, `segments` how many segment embeddings there are. Networks that learn from
    `pairs` of texts have a `pooler` and `next_sentence`: two logits, class 0 if the second text belongs after the
    first.
    """

    has_hidden_states = True
    can_compile = can_checkpoint = True
    recordable = True  # with packed texts in 16 bits, nothing waits for the GPU
    window: int

    def __init__(
        self,
        config: Any,
        vocabulary: Vocabulary,
        entry: int,
        segments: int,
        attending: int,
        feeding: int,
        pairs: bool,
        gelu: str = "none",
    ) -> None:
        super().__init__(config, vocabulary)
        self.window = self.max_positions = config.window
        self.widths = [config.width] * (config.layers + 1)
        self._compiled: Any = None
        self.embedding = nn.Embedding(vocabulary.size, entry)  # E
        self.positions = nn.Embedding(config.window, entry)  # P
        self.segments = nn.Embedding(segments, entry)  # S
        self.norm = nn.LayerNorm(entry, config.epsilon)
        self.attending = nn.ModuleList(AttentionHalf(config) for _ in range(attending))
        self.feeding = nn.ModuleList(FeedForwardHalf(config, gelu) for _ in range(feeding))
        self.last = nn.LayerNorm(config.width, config.epsilon) if config.norms == "before" else None
        self.pooler = Linear(config.width, config.width) if pairs else None
        self.next_sentence = Linear(config.width, 2) if pairs else None
        self.readout = MaskedLMReadout(self.embedding, config, gelu)

    # -------------------------------------------------------------------------------------------- the architecture

    def embed(self, ids: Tensor, segments: Tensor | None, positions: Tensor | None) -> Tensor:
        """What the first block reads: (B, T) → (B, T, D). Without segments all tokens are in the first one."""
        p = self.positions.weight[: ids.shape[1]] if positions is None else self.positions(positions)
        s = self.segments.weight[0] if segments is None else self.segments(segments)
        return F.dropout(self.norm(self.embedding(ids) + (p + s)), self.config.dropout, self.training)

    def layer_halves(self) -> Iterator[tuple[AttentionHalf, FeedForwardHalf]]:
        """The two halves of each layer, shared or not."""
        for i in range(self.config.layers):
            yield self.attending[i % len(self.attending)], self.feeding[i % len(self.feeding)]  # type: ignore[misc]

    def stacks(self) -> list[nn.ModuleList]:
        return [self.attending, self.feeding]

    def pooled(self, first: Tensor) -> Tensor:
        """tanh(W h) of the last layer at the first token of each text: (B, D) → (B, D)."""
        if self.pooler is None:
            raise Unsupported(
                f"{type(self).__name__} was not trained on pairs of texts, so it has no pooler. Use the last layer's "
                "first vector, or the mean.",
                ability="pooled",
            )
        return torch.tanh(self.pooler(first))

    def _forward(
        self, ids: Tensor, segments: Tensor | None, positions: Tensor | None, layout: Layout, at: Tensor | None
    ) -> list[Tensor]:
        """All layers; given `at`, only the last one at these positions.

        Compiled, every layer that is returned would get a gradient, if need be of zeros that are written and read.
        """
        x = self.embed(ids, segments, positions)
        layers = [x]
        for i, (attend, feed) in enumerate(self.layer_halves()):
            here = at if i == self.config.layers - 1 else None
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(_run_block, attend, feed, x, layout, here, use_reentrant=False)
            else:
                x = _run_block(attend, feed, x, layout, here)
            layers.append(x)
        if self.last is not None:
            layers[-1] = self.last(x)
        return layers if at is None else layers[-1:]

    # -------------------------------------------------------------------------------------------- reading text

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """What enters the first block and what leaves each. There is no state: the whole text is read at once."""
        return self._hidden(inputs, None), None

    def hidden_at(self, inputs: Inputs, at: Tensor) -> Tensor:
        # The last block computes these positions only: with one token in seven, 5 % of the work of twelve layers
        return self._hidden(inputs, at)[-1]

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        return self.hidden(inputs, state)

    def fill(self, inputs: Inputs, at: Tensor) -> Tensor:
        """log p of every token at the flat positions `at` (K,) of the batch's B·T: (K, V)."""
        return self.readout.log_probs(self.hidden_at(inputs, at))

    def _hidden(self, inputs: Inputs, at: Tensor | None) -> list[Tensor]:
        is_large = inputs.ids.device.type == "cpu" and inputs.ids.numel() > MAX_TOKENS_CPU
        return self._in_parts(inputs, at) if is_large and not torch.is_grad_enabled() else self._at_once(inputs, at)

    def _at_once(self, inputs: Inputs, at: Tensor | None) -> list[Tensor]:
        config, ids, positions = self.config, inputs.ids, inputs.positions
        if positions is None and inputs.starts is not None:
            positions = positions_in_packed(inputs.starts, ids.shape[1])
        length = ids.shape[1] if inputs.starts is None else 0
        if positions is not None and not positions.is_cuda and positions.numel():
            length = int(positions.max()) + 1
        if length > self.window:
            raise InvalidSetting(
                f"A text has {length} tokens, but the window is {self.window}. Split it into shorter pieces.",
                key="model.window",
                value=length,
            )
        longest = min(inputs.longest or self.window, self.window)
        layout = choose_layout(inputs, config.width, config.heads, longest, self.embedding.weight.dtype)
        compiled = self._compiled if isinstance(layout, (Padded, Ragged)) else None  # other layouts change every batch
        return (compiled or self._forward)(ids, inputs.segments, positions, layout, at)

    def _in_parts(self, inputs: Inputs, at: Tensor | None) -> list[Tensor]:
        """The same, a part of the batch at a time."""
        tokens = inputs.ids.numel()
        num_parts = -(-tokens // MAX_TOKENS_CPU)
        results: list[Tensor] = []
        for here, part in split_batch(inputs, -(-tokens // num_parts)):
            places = None if at is None else ((at >= here.start) & (at < here.stop)).nonzero().squeeze(1)
            if places is not None and not len(places):
                continue
            layers = self._at_once(part, None if places is None or at is None else at[places] - here.start)
            if not results:
                results = [x.new_empty(tokens if at is None else len(at), x.shape[-1]) for x in layers]
            for result, x in zip(results, layers, strict=True):
                result[here if places is None else places] = x.reshape(-1, x.shape[-1])
        if at is not None:
            return results or [self.embedding.weight.new_empty(0, self.config.width)]
        return [result.view(*inputs.ids.shape, -1) for result in results]

    # -------------------------------------------------------------------------------------------- frames

    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText:
        """[CLS] a [SEP], or [CLS] a [SEP] b [SEP], cut to the window. The first token's vector represents the text.

        [CLS] a a a [SEP] b b [SEP]
          0   0 0 0   0   1 1   1      segments
        """
        marks = Marks.of(self.vocabulary)
        around = [marks.cls], self.separator(marks), [marks.sep]
        framed = frame_texts([a] if b is None else [a, b], around, self.window)
        segments = np.zeros(len(framed.ids), np.int64)
        if b is not None:
            segments[framed.text_spans[1][0] :] = 1
        return replace(framed, pooled_position=0, segments=segments)

    def separator(self, marks: Marks) -> Sequence[int]:
        """The ids between two texts."""
        return [marks.sep]

    # -------------------------------------------------------------------------------------------- speed

    def compile_training(self) -> None:
        if self._compiled is None:
            self._compiled = torch.compile(self._forward)

    def flops_per_token(self, length: int) -> float:
        """6 per weight and use, and 12 per layer, position and unit of width, as Chowdhery et al. (2022) count.

        The readout reads only the tokens that are predicted, and so does the last block except for its keys and values:
        what is not computed does not count.
        """
        weights = sum(p.numel() for block in self.layer_halves() for half in block for p in half.parameters())
        *_, (attend, feed) = self.layer_halves()
        last = sum(p.numel() for part in (attend.attention.out, feed) for p in part.parameters())
        head = self.embedding.weight.numel() + sum(p.numel() for p in self.readout.parameters())
        products = weights - (1 - PREDICTED) * last + PREDICTED * head
        return 6 * products + 12 * self.config.layers * self.config.width * length


def _run_block(attend: AttentionHalf, feed: FeedForwardHalf, x: Tensor, layout: Layout, at: Tensor | None) -> Tensor:
    return feed(attend(x, layout, at))


def split_batch(inputs: Inputs, max_tokens: int) -> Iterator[tuple[slice, Inputs]]:
    """Split a batch into parts of whole texts, of at most `max_tokens` unless a text is longer.

    Yields which of the batch's B·T tokens a part holds, and the part.
    """
    rows, steps = inputs.ids.shape
    fields = {
        "ids": inputs.ids,
        "token_mask": inputs.token_mask,
        "segments": inputs.segments,
        "positions": inputs.positions,
    }
    tensors: dict[str, Any] = {name: t for name, t in fields.items() if t is not None}
    if inputs.starts is None:
        many = max(1, max_tokens // steps)
        for first in range(0, rows, many):
            chosen = slice(first, min(first + many, rows))
            part = {name: t if len(t) == 1 else t[chosen] for name, t in tensors.items()}
            yield slice(chosen.start * steps, chosen.stop * steps), Inputs(**part)
        return
    starts, text = inputs.starts.tolist(), 0
    while starts[text] < steps:
        begin = starts[text]
        after = max(bisect_right(starts, begin + max_tokens) - 1, text + 1)
        chosen = slice(begin, starts[after])
        if chosen.stop > begin:
            part = {name: t[:, chosen] for name, t in tensors.items()}
            yield chosen, Inputs(**part, starts=inputs.starts[text : after + 1] - begin)
        text = after


def positions_in_packed(starts: Tensor, total: int) -> Tensor:
    """(1, N): positions in a row of packed texts, each counted from 0. Empty texts change nothing."""
    starts = starts.long()
    at = torch.arange(total, device=starts.device)
    text = torch.searchsorted(starts, at, right=True) - 1  # of equal starts the last one, whose text is not empty
    return (at - starts[text]).unsqueeze(0)
