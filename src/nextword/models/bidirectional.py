"""What networks have in common that read a text from both sides at once: entrance, blocks, heads, and files.

    ids ─ E[token] + P[position] + S[segment], norm ─▶ blocks ─▶ vectors (B, T, D) ─┬─ readout: log p of a hidden token
                                                                                   └─ the first one's: pooled, pairs
    block:   x = norm(x + attention(x))     x = norm(x + W₂ gelu(W₁ x))

Texts come padded or packed end to end (layers/full_attention.py); no text sees another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nextword.contract import Encoding, Framed, Inputs, NextwordError, State, Unsupported, Vocabulary
from nextword.layers.full_attention import FullAttention, Layout, Padded, Ragged, layout_of
from nextword.layers.products import Product
from nextword.layers.softmax import Linear
from nextword.models.causal import Saved
from nextword.models.frames import arrange, dress
from nextword.tokens.marks import Marks

PREDICTED = 0.15  # the share of tokens that the readout reads in training, by every one of these papers


# ------------------------------------------------------------------------------------------------ parts


class Attend(nn.Module):
    """The first half of a block: x = norm(x + attention(x))."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.attention = FullAttention(config.width, config.heads, config.dropout)
        self.norm = nn.LayerNorm(config.width, config.epsilon)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        return self.norm(_added(F.dropout(self.attention(x, layout), self.dropout, self.training), x))


class Feed(nn.Module):
    """The second half: x = norm(x + W₂ gelu(W₁ x)). The gelu is exact ("none"), or its approximation by "tanh"."""

    def __init__(self, config: Any, gelu: str) -> None:
        super().__init__()
        self.dropout, self.gelu = config.dropout, gelu
        inner = config.inner or 4 * config.width
        self.wide = Product(config.width, inner)
        self.narrow = Product(inner, config.width)
        self.norm = nn.LayerNorm(config.width, config.epsilon)

    def forward(self, x: Tensor) -> Tensor:
        y = self.narrow(_gelu(self.wide(x), self.gelu))
        return self.norm(_added(F.dropout(y, self.dropout, self.training), x))


class Masked(Linear):
    """The readout: a dense layer, gelu and norm, then the embedding's matrix read the other way, and a bias."""

    def __init__(self, embedding: nn.Embedding, config: Any, gelu: str) -> None:
        super().__init__()
        self.precision, self.gelu = "fp32", gelu
        self.tied = (embedding,)  # in a tuple, so that the embedding belongs to the network alone
        self.dense = Product(config.width, embedding.embedding_dim)
        self.norm = nn.LayerNorm(embedding.embedding_dim, config.epsilon)
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings))

    @property
    def matrix(self) -> Tensor:
        return self.tied[0].weight

    def lead(self, h: Tensor) -> Tensor:
        return self.norm(_gelu(self.dense(h), self.gelu))


# On a CPU fresh memory costs more than the numbers put into it: where nothing is to be learnt, results that nobody
# else reads are written over, which makes reading a twentieth faster.


def _gelu(y: Tensor, approximate: str) -> Tensor:
    if torch.is_grad_enabled():
        return F.gelu(y, approximate=approximate)
    return torch.ops.aten.gelu_(y, approximate=approximate)


def _added(y: Tensor, x: Tensor) -> Tensor:
    return x + y if torch.is_grad_enabled() or x.dtype != y.dtype else y.add_(x)


# ------------------------------------------------------------------------------------------------ the network


class Bidirectional(Saved):
    """Entrance, `attending` and `feeding` (one for each layer, or one for all) and the heads, from a paper's config.

    `entry` is the width of the embeddings, `segments` how many kinds of them there are. Networks that learn from pairs
    of texts have a pooler and `next_sentence`, which says in two logits whether the second text belongs after the
    first (class 0) or not; the others have None there.
    """

    gelu = "none"

    def __init__(
        self, config: Any, vocabulary: Vocabulary, entry: int, segments: int, attending: int, feeding: int, pairs: bool
    ) -> None:
        super().__init__(config, vocabulary)
        self.window: int = config.window
        self.widths = [config.width] * (config.layers + 1)
        self.checkpointing = False
        self._compiled: Any = None
        self.embedding = nn.Embedding(vocabulary.size, entry)
        self.positions = nn.Embedding(config.window, entry)
        self.segments = nn.Embedding(segments, entry)
        self.norm = nn.LayerNorm(entry, config.epsilon)
        self.attending = nn.ModuleList(Attend(config) for _ in range(attending))
        self.feeding = nn.ModuleList(Feed(config, self.gelu) for _ in range(feeding))
        self.pooler = Product(config.width, config.width) if pairs else None
        self.next_sentence = Product(config.width, 2) if pairs else None
        self.readout: Any = Masked(self.embedding, config, self.gelu)

    def halves(self) -> Iterator[tuple[Attend, Feed]]:
        """Layer by layer, shared or not."""
        for i in range(self.config.layers):
            yield self.attending[i % len(self.attending)], self.feeding[i % len(self.feeding)]  # type: ignore[misc]

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """What enters the first block, and what leaves each. There is no state: the whole text is there at once."""
        config, ids = self.config, inputs.ids
        positions = inputs.positions
        if positions is None and inputs.starts is not None:
            positions = counted(inputs.starts, ids.shape[1])
        steps = ids.shape[1] if inputs.starts is None else 0
        if positions is not None and not positions.is_cuda and positions.numel():
            steps = int(positions.max()) + 1
        if steps > self.window:
            raise NextwordError(
                f"A text of {steps} tokens, but the window is {self.window}: cut it into pieces of at most that length."
            )
        layout = layout_of(inputs, config.width, config.heads, self.window, self.embedding.weight.dtype)
        through = self._compiled if isinstance(layout, (Padded, Ragged)) else None  # the others change with each batch
        return (through or self._through)(ids, inputs.segments, positions, layout), None

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        return self.hidden(inputs, state)

    def fill(self, inputs: Inputs, at: Tensor) -> Tensor:
        """log p of every token at the flat positions `at` (K,) of the batch's B·T, as (K, V)."""
        h = self.hidden(inputs, None)[0][-1]
        return self.readout.log_probs(h.reshape(-1, h.shape[-1]).index_select(0, at))

    def pooled(self, first: Tensor) -> Tensor:
        """(B, D), the last layer at the first token of each text → (B, D)."""
        if self.pooler is None:
            raise Unsupported(
                f"{type(self).__name__} was not trained on pairs of texts, so it has no pooled vector. Use the last "
                "layer's first vector, or the mean."
            )
        return torch.tanh(self.pooler(first))

    def frame(self, a: Encoding, b: Encoding | None = None) -> Framed:
        """[CLS] a [SEP], or [CLS] a [SEP] b [SEP], cut to the window; the first token speaks.

        [CLS] a a a [SEP] b b [SEP]
          0   0 0 0   0   1 1   1      segments
        """
        marks = Marks.of(self.vocabulary)
        framed = dress([a] if b is None else [a, b], ([marks.cls], self.between(marks), [marks.sep]), self.window)
        segments = np.zeros(len(framed.ids), np.int64)
        if b is not None:
            segments[framed.parts[1][0] :] = 1
        return replace(framed, speaks=0, segments=segments)

    def between(self, marks: Marks) -> Sequence[int]:
        """What stands between two texts."""
        return [marks.sep]

    def frames(self, task: str, texts: Sequence[Encoding]) -> list[Framed]:
        """The frames of one example of a task: "classify", "entail", "similar" or "choose" (models/frames.py)."""
        return arrange(self.frame, task, texts)

    def compile_training(self) -> None:
        """Let torch fuse what is computed between the products, where batches have one shape."""
        if self._compiled is None:
            self._compiled = torch.compile(self._through)

    def work(self, length: int) -> float:
        """Floating point operations a trained token, forward and backward, in texts of this length.

        Six for each weight as often as it takes part in a product, and twelve for each pair of positions and unit of
        width (Chowdhery et al. 2022). The readout reads the share of the tokens that is predicted.
        """
        blocks = sum(p.numel() for block in self.halves() for half in block for p in half.parameters())
        head = self.embedding.weight.numel() + sum(p.numel() for p in self.readout.parameters())
        return 6 * (blocks + PREDICTED * head) + 12 * self.config.layers * self.config.width * length

    def enter(self, ids: Tensor, segments: Tensor | None, positions: Tensor | None) -> Tensor:
        """What the first block reads. Without segments all is the first; without positions they count from 0."""
        where = self.positions.weight[: ids.shape[1]] if positions is None else self.positions(positions)
        which = self.segments.weight[0] if segments is None else self.segments(segments)
        return F.dropout(self.norm(self.embedding(ids) + (where + which)), self.config.dropout, self.training)

    def _through(self, ids: Tensor, segments: Tensor | None, positions: Tensor | None, layout: Layout) -> list[Tensor]:
        x = self.enter(ids, segments, positions)
        outputs = [x]
        for attend, feed in self.halves():
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(_block, attend, feed, x, layout, use_reentrant=False)
            else:
                x = feed(attend(x, layout))
            outputs.append(x)
        return outputs


def _block(attend: Attend, feed: Feed, x: Tensor, layout: Layout) -> Tensor:
    return feed(attend(x, layout))


def counted(starts: Tensor, total: int) -> Tensor:
    """(1, N): positions in a row of texts that lie end to end, each counted from 0. Empty texts change nothing."""
    starts = starts.long()
    at = torch.arange(total, device=starts.device)
    text = torch.searchsorted(starts, at, right=True) - 1  # of equal starts the last: the text that is not empty
    return (at - starts[text]).unsqueeze(0)
