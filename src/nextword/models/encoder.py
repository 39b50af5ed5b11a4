"""What networks have in common that read a text from both sides at once: entrance, blocks, heads, and files.

    ids ─ E[token] + P[position] + S[segment], norm ─▶ blocks ─▶ vectors (B, T, D) ─┬─ readout: log p of a hidden token
                                                                                   └─ the first one's: pooled, pairs
    block:   x = norm(x + attention(x))     x = norm(x + W₂ gelu(W₁ x))          the norms "after" each half, or
             x = x + attention(norm(x))     x = x + W₂ gelu(W₁ norm(x))          "before" it, and one more at the end

Texts come padded or packed end to end (layers/full_attention.py); no text sees another.
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

from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import Encoding, Framed, Inputs, State, Vocabulary
from nextword.kernels.cpu_matmul import Product
from nextword.layers.attention import FullAttention, Layout, Padded, Ragged, layout_of, taken
from nextword.layers.output.softmax import Linear
from nextword.models.base import SafetensorsModule
from nextword.models.framing import arrange, frame_texts
from nextword.tokenizers.base import Marks

# Tokens read at once on a CPU where nothing is to be learnt. What blocks make in between then stays in the cache, in
# memory that serves again in the next part: fresh pages cost a thirtieth of the time, and there are many of them.
PART = 1536
NORMS = ("after", "before")
PREDICTED = 0.15  # the share of tokens that the readout reads in training, by every one of these papers


def check_norms(config: Any) -> None:
    if config.norms not in NORMS:
        raise NextwordError(f"[model] norms = {config.norms!r}: they stand {' or '.join(NORMS)} each half of a block.")


# ------------------------------------------------------------------------------------------------ parts


class Attend(nn.Module):
    """The first half of a block: x = norm(x + attention(x)), or x + attention(norm(x))."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dropout, self.first = config.dropout, config.norms == "before"
        self.attention = FullAttention(config.width, config.heads, config.dropout)
        self.norm = nn.LayerNorm(config.width, config.epsilon)

    def forward(self, x: Tensor, layout: Layout, at: Tensor | None = None) -> Tensor:
        """(B, T, D) → the same, or (K, D) at the flat positions `at`."""
        y = F.dropout(self.attention(self.norm(x) if self.first else x, layout, at), self.dropout, self.training)
        y = _added(y, taken(x, at))
        return y if self.first else self.norm(y)


class Feed(nn.Module):
    """The second half: x = norm(x + W₂ gelu(W₁ x)), or x + W₂ gelu(W₁ norm(x)). The gelu is exact ("none"), or its
    approximation by "tanh"."""

    def __init__(self, config: Any, gelu: str) -> None:
        super().__init__()
        self.dropout, self.gelu, self.first = config.dropout, gelu, config.norms == "before"
        inner = config.inner or 4 * config.width
        self.wide = Product(config.width, inner)
        self.narrow = Product(inner, config.width)
        self.norm = nn.LayerNorm(config.width, config.epsilon)

    def forward(self, x: Tensor) -> Tensor:
        y = self.narrow(_gelu(self.wide(self.norm(x) if self.first else x), self.gelu))
        y = _added(F.dropout(y, self.dropout, self.training), x)
        return y if self.first else self.norm(y)


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


class Bidirectional(SafetensorsModule):
    """Entrance, `attending` and `feeding` (one for each layer, or one for all) and the heads, from a paper's config.

    `entry` is the width of the embeddings, `segments` how many kinds of them there are. Networks that learn from pairs
    of texts have a pooler and `next_sentence`, which says in two logits whether the second text belongs after the
    first (class 0) or not; the others have None there.
    """

    recordable = True  # in 16 bits, texts end to end: nothing is asked of a GPU on the way

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
        self.window: int = config.window
        self.widths = [config.width] * (config.layers + 1)
        self.checkpointing = False
        self._compiled: Any = None
        self.embedding = nn.Embedding(vocabulary.size, entry)
        self.positions = nn.Embedding(config.window, entry)
        self.segments = nn.Embedding(segments, entry)
        self.norm = nn.LayerNorm(entry, config.epsilon)
        self.attending = nn.ModuleList(Attend(config) for _ in range(attending))
        self.feeding = nn.ModuleList(Feed(config, gelu) for _ in range(feeding))
        self.last = nn.LayerNorm(config.width, config.epsilon) if config.norms == "before" else None
        self.pooler = Product(config.width, config.width) if pairs else None
        self.next_sentence = Product(config.width, 2) if pairs else None
        self.readout: Any = Masked(self.embedding, config, gelu)

    def halves(self) -> Iterator[tuple[Attend, Feed]]:
        """Layer by layer, shared or not."""
        for i in range(self.config.layers):
            yield self.attending[i % len(self.attending)], self.feeding[i % len(self.feeding)]  # type: ignore[misc]

    def stacks(self) -> list[nn.ModuleList]:
        """Both halves of all blocks, the last one last."""
        return [self.attending, self.feeding]

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """What enters the first block, and what leaves each. There is no state: the whole text is there at once."""
        return self._hidden(inputs, None), None

    def hidden_at(self, inputs: Inputs, at: Tensor) -> Tensor:
        """(K, D): what leaves the last block at the flat positions `at` (K,) of the batch's B·T.

        The last block looks from these positions alone, and what it does to the others is never computed: where one
        token in seven is read, a twentieth of the work of twelve layers.
        """
        return self._hidden(inputs, at)[-1]

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        return self.hidden(inputs, state)

    def fill(self, inputs: Inputs, at: Tensor) -> Tensor:
        """log p of every token at the flat positions `at` (K,) of the batch's B·T, as (K, V)."""
        return self.readout.log_probs(self.hidden_at(inputs, at))

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
        framed = frame_texts([a] if b is None else [a, b], ([marks.cls], self.between(marks), [marks.sep]), self.window)
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
        width (Chowdhery et al. 2022). The readout reads the share of the tokens that is predicted, and so does the
        last block but for its keys and values: what is not computed does not count.
        """
        blocks = sum(p.numel() for block in self.halves() for half in block for p in half.parameters())
        *_, (attend, feed) = self.halves()
        last = sum(p.numel() for part in (attend.attention.out, feed) for p in part.parameters())
        head = self.embedding.weight.numel() + sum(p.numel() for p in self.readout.parameters())
        products = blocks - (1 - PREDICTED) * last + PREDICTED * head
        return 6 * products + 12 * self.config.layers * self.config.width * length

    def enter(self, ids: Tensor, segments: Tensor | None, positions: Tensor | None) -> Tensor:
        """What the first block reads. Without segments all is the first; without positions they count from 0."""
        where = self.positions.weight[: ids.shape[1]] if positions is None else self.positions(positions)
        which = self.segments.weight[0] if segments is None else self.segments(segments)
        return F.dropout(self.norm(self.embedding(ids) + (where + which)), self.config.dropout, self.training)

    def _hidden(self, inputs: Inputs, at: Tensor | None) -> list[Tensor]:
        large = inputs.ids.device.type == "cpu" and inputs.ids.numel() > PART
        return self._part_by_part(inputs, at) if large and not torch.is_grad_enabled() else self._at_once(inputs, at)

    def _at_once(self, inputs: Inputs, at: Tensor | None) -> list[Tensor]:
        config, ids, positions = self.config, inputs.ids, inputs.positions
        if positions is None and inputs.starts is not None:
            positions = counted(inputs.starts, ids.shape[1])
        steps = ids.shape[1] if inputs.starts is None else 0
        if positions is not None and not positions.is_cuda and positions.numel():
            steps = int(positions.max()) + 1
        if steps > self.window:
            raise NextwordError(
                f"A text of {steps} tokens, but the window is {self.window}: cut it into pieces of at most that length."
            )
        longest = min(inputs.longest or self.window, self.window)
        layout = layout_of(inputs, config.width, config.heads, longest, self.embedding.weight.dtype)
        through = self._compiled if isinstance(layout, (Padded, Ragged)) else None  # the others change with each batch
        return (through or self._through)(ids, inputs.segments, positions, layout, at)

    def _part_by_part(self, inputs: Inputs, at: Tensor | None) -> list[Tensor]:
        tokens = inputs.ids.numel()
        parts = -(-tokens // PART)
        results: list[Tensor] = []
        for here, part in parted(inputs, -(-tokens // parts)):
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

    def _through(
        self, ids: Tensor, segments: Tensor | None, positions: Tensor | None, layout: Layout, at: Tensor | None
    ) -> list[Tensor]:
        """All layers; or of the last one these positions, and nothing else: compiled, every layer that is given out
        gets a gradient, if need be of zeros, which are written and read."""
        x = self.enter(ids, segments, positions)
        outputs = [x]
        for i, (attend, feed) in enumerate(self.halves()):
            here = at if i == self.config.layers - 1 else None
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(_block, attend, feed, x, layout, here, use_reentrant=False)
            else:
                x = _block(attend, feed, x, layout, here)
            outputs.append(x)
        if self.last is not None:
            outputs[-1] = self.last(x)
        return outputs if at is None else outputs[-1:]


def _block(attend: Attend, feed: Feed, x: Tensor, layout: Layout, at: Tensor | None) -> Tensor:
    return feed(attend(x, layout, at))


def parted(inputs: Inputs, room: int) -> Iterator[tuple[slice, Inputs]]:
    """A batch in parts of whole texts, of no more than `room` tokens where no text is longer; and which of the batch's
    B·T tokens each part is."""
    rows, steps = inputs.ids.shape
    named = {name: getattr(inputs, name) for name in ("ids", "padding", "segments", "positions")}
    given: dict[str, Any] = {name: t for name, t in named.items() if t is not None}
    if inputs.starts is None:
        many = max(1, room // steps)
        for first in range(0, rows, many):
            of = slice(first, min(first + many, rows))
            part = {name: t if len(t) == 1 else t[of] for name, t in given.items()}
            yield slice(of.start * steps, of.stop * steps), Inputs(**part)
        return
    starts, text = inputs.starts.tolist(), 0
    while starts[text] < steps:
        begin = starts[text]
        after = max(bisect_right(starts, begin + room) - 1, text + 1)
        of = slice(begin, starts[after])
        if of.stop > begin:
            part = {name: t[:, of] for name, t in given.items()}
            yield of, Inputs(**part, starts=inputs.starts[text : after + 1] - begin)
        text = after


def counted(starts: Tensor, total: int) -> Tensor:
    """(1, N): positions in a row of texts that lie end to end, each counted from 0. Empty texts change nothing."""
    starts = starts.long()
    at = torch.arange(total, device=starts.device)
    text = torch.searchsorted(starts, at, right=True) - 1  # of equal starts the last: the text that is not empty
    return (at - starts[text]).unsqueeze(0)
