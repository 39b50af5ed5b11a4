"""Bidirectional Transformer encoders: the skeleton that BERT, RoBERTa and ALBERT share.

    x = norm(E[token] + P[position] + S[segment])           (B, T, D)
    x = norm(x + attention(x))                              norm_position = "after", as in the papers;
    x = norm(x + W₂ gelu(W₁ x))                             repeat both lines for each layer
    p = softmax(E · norm(gelu(W x)) + b)                    of a masked token
    pooled = tanh(W x_0)                                    of the first token; from it, whether the second text follows

With norm_position = "before": x = x + attention(norm(x)), x = x + W₂ gelu(W₁ norm(x)), and one more norm at the end.

A paper's file sets the sizes, what layers share, and the embeddings. Texts are padded, or packed end to end in one row
(layers/attention.py); no text sees another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nextword.core.errors import InvalidSetting, Unsupported
from nextword.core.types import Encoding, FramedText, Inputs, State, Vocabulary
from nextword.layers.attention import BidirectionalAttention, Layout, Padded, Ragged, choose_layout, select_positions
from nextword.layers.output.softmax import LinearReadout
from nextword.models.base import Network, check_choice, check_sizes
from nextword.models.decoder import check_heads
from nextword.models.framing import frame_texts
from nextword.tokenizers.special_tokens import Marks

NORM_POSITIONS = ("after", "before")
PREDICTED = 0.15  # share of the tokens that the readout reads in training, in all of these papers


@dataclass(frozen=True)
class EncoderConfig:
    """What all of these encoders have; a paper's file has what is its own."""

    width: int = 768
    layers: int = 12
    heads: int = 12
    window: int = 512
    ffn_width: int = 0  # width of the feed-forward part; 0: 4 · width
    dropout: float = 0.1  # of embeddings, attention weights and what is added to the residual sum
    epsilon: float = 1e-12  # of the norms
    norm_position: str = "after"  # LayerNorm after each half of a block, or "before": no warmup, higher learning rates

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self.width, self.heads)
        check_choice(self, "norm_position", NORM_POSITIONS)


# ------------------------------------------------------------------------------------------------ halves of a block


class AttentionHalf(nn.Module):
    """x = norm(x + attention(x)), or with norm_position "before": x + attention(norm(x))."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dropout, self.is_pre_norm = config.dropout, config.norm_position == "before"
        self.attention = BidirectionalAttention(config.width, config.heads, config.dropout)
        self.norm = nn.LayerNorm(config.width, config.epsilon)

    def forward(self, x: Tensor, layout: Layout, at: Tensor | None = None) -> Tensor:
        """(B, T, D) → (B, T, D), or (K, D) at the flat positions `at` only."""
        y = self.attention(self.norm(x) if self.is_pre_norm else x, layout, at)
        y = select_positions(x, at) + F.dropout(y, self.dropout, self.training)
        return y if self.is_pre_norm else self.norm(y)


class FeedForwardHalf(nn.Module):
    """x = norm(x + W₂ gelu(W₁ x)), or x + W₂ gelu(W₁ norm(x)). The gelu is exact ("none") or approximated ("tanh")."""

    def __init__(self, config: EncoderConfig, gelu: str) -> None:
        super().__init__()
        self.dropout, self.gelu, self.is_pre_norm = config.dropout, gelu, config.norm_position == "before"
        ffn_width = config.ffn_width or 4 * config.width
        self.wide = nn.Linear(config.width, ffn_width)  # W₁
        self.narrow = nn.Linear(ffn_width, config.width)  # W₂
        self.norm = nn.LayerNorm(config.width, config.epsilon)

    def forward(self, x: Tensor) -> Tensor:
        y = self.narrow(F.gelu(self.wide(self.norm(x) if self.is_pre_norm else x), approximate=self.gelu))
        y = x + F.dropout(y, self.dropout, self.training)
        return y if self.is_pre_norm else self.norm(y)


class MaskedLMReadout(LinearReadout):
    """p = softmax(E · norm(gelu(W h)) + b): one more layer, then the embedding matrix."""

    def __init__(self, embedding: nn.Embedding, config: EncoderConfig, gelu: str) -> None:
        super().__init__()
        self.precision, self.gelu = "fp32", gelu
        self.tied = (embedding,)  # in a tuple, so that the embedding is registered with the network only
        self.dense = nn.Linear(config.width, embedding.embedding_dim)
        self.norm = nn.LayerNorm(embedding.embedding_dim, config.epsilon)
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings))

    @property
    def matrix(self) -> Tensor:
        return self.tied[0].weight

    def project(self, h: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(h), approximate=self.gelu))


# ------------------------------------------------------------------------------------------------ the network


class BidirectionalEncoder(Network):
    """Embeddings, `attending` and `feeding` halves (one for each layer, or one shared by all) and the output heads.

    `entry` is the width of the embeddings, `segments` how many segment embeddings there are. Networks that learn from
    `pairs` of texts have a `pooler` and `next_sentence`: two logits, class 0 if the second text belongs after the
    first.
    """

    has_hidden_states = is_transformer = True
    can_compile = can_checkpoint = True
    recordable = True  # with packed texts in 16 bits, nothing waits for the GPU
    window: int

    def __init__(
        self,
        config: EncoderConfig,
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
        self.last = nn.LayerNorm(config.width, config.epsilon) if config.norm_position == "before" else None
        self.pooler = nn.Linear(config.width, config.width) if pairs else None
        self.next_sentence = nn.Linear(config.width, 2) if pairs else None
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

        Under torch.compile, every returned layer gets a gradient buffer, filled with zeros if unused.
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
        layers[-1] = self.final_norm(x)
        return layers if at is None else layers[-1:]

    def final_norm(self, x: Tensor) -> Tensor:
        return x if self.last is None else self.last(x)

    # -------------------------------------------------------------------------------------------- reading text

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """What enters the first block and what leaves each. There is no state: the whole text is read at once."""
        return self._hidden(inputs, None), None

    def hidden_at(self, inputs: Inputs, at: Tensor) -> Tensor:
        # The last block computes these positions only: the work on all others would be wasted
        return self._hidden(inputs, at)[-1]

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        return self.hidden(inputs, state)

    def fill(self, inputs: Inputs, at: Tensor) -> Tensor:
        """log p of every token at the flat positions `at` (K,) of the batch's B·T: (K, V)."""
        return self.readout.log_probs(self.hidden_at(inputs, at))

    def _hidden(self, inputs: Inputs, at: Tensor | None) -> list[Tensor]:
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


def positions_in_packed(starts: Tensor, total: int) -> Tensor:
    """(1, N): positions in a row of packed texts, each counted from 0. Empty texts change nothing."""
    starts = starts.long()
    at = torch.arange(total, device=starts.device)
    text = torch.searchsorted(starts, at, right=True) - 1  # of equal starts the last one, whose text is not empty
    return (at - starts[text]).unsqueeze(0)
