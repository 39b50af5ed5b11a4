"""XLNet: predict each token from any subset of the others, in any order, without a mask token.

Yang, Dai, Yang, Carbonell, Salakhutdinov & Le, "XLNet: Generalized Autoregressive Pretraining for Language
Understanding" (2019).

    h⁰ = E[token]    g⁰ = one learned vector       then in each block, over the rows of both h and g,
    x = norm(x + attention(x; keys from memory and h))    x = norm(x + W₂ gelu(W₁ x))        p = softmax(E · g + b)

The content stream h_i knows its token; the query stream g_i knows its position only, so it can predict the token. Who
sees whom is `Inputs.mask` (B, T, T): query i sees the content of j; content i also sees itself. Scores depend on
relative positions (layers/attention.py).

Differences from BERT: no [MASK] in the input, so that training and use read alike; predicted tokens depend on each
other. From Transformer-XL (Dai et al. 2019), whose relative positions and memory it keeps: the second stream.

Without a mask, `hidden` reads left to right, which is the order 0 1 2 …, and exact:

    read         x₀  x₁  x₂                 h_i  sees x₀ … x_i
    queries at       1   2   3              g at i + 1 sees x₀ … x_i as well, and gives p(x_{i+1} | x₀ … x_i)

There every token, in every layer, sees itself and the `memory` tokens before it, whether they were read in the same
call or come from the state. So one call over T tokens, T calls over one token, and everything in between give the same
numbers. `encode` returns the content stream, bidirectional, or left to right after a state of left-to-right reading.

A state holds the inputs of each block for the last `memory` tokens, without gradients: {"layers": (B, M, D) each,
"positions": (B, M) or None, "there": token mask (B, M) or None, "both": whether it was read bidirectionally}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core import pytree
from nextword.core.errors import InvalidSetting
from nextword.core.types import Encoding, FramedText, Inputs, State, Vocabulary
from nextword.layers.attention import RelativeAttention, RelativeView, distance_encodings
from nextword.layers.output.softmax import TiedSoftmax
from nextword.models.base import CausalNetwork, FrameMarks, check_sizes


@dataclass(frozen=True)
class XLNetConfig:
    width: int = 768
    layers: int = 12
    heads: int = 12
    ffn_width: int = 3072
    memory: int = 384  # tokens before that are cached; left to right, also how far back a layer looks
    dropout: float = 0.1  # of embeddings, distances, attention weights and what is added to the residual sum
    max_distance: int = 0  # largest distance that is told apart; 0: all are
    epsilon: float = 1e-12  # of the norms
    init_std: float = 0.02  # weights are drawn from N(0, init_std²); narrow networks need more

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.width % self.heads or self.width % 2:
            raise InvalidSetting(
                f"[model] width = {self.width} must be even (for sines and cosines) and a multiple of heads = "
                f"{self.heads}.",
                key="model.width",
                value=self.width,
            )


class Block(nn.Module):
    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        width, self.dropout = config.width, config.dropout
        self.attention = RelativeAttention(width, config.heads, config.dropout)
        self.norm1 = nn.LayerNorm(width, config.epsilon)
        self.wide = nn.Linear(width, config.ffn_width)
        self.narrow = nn.Linear(config.ffn_width, width)
        self.norm2 = nn.LayerNorm(width, config.epsilon)

    def forward(self, x: Tensor, known: Tensor, view: RelativeView) -> Tensor:
        """Rows (B, Q, D) of both streams, and the content that they may attend to (B, S, D)."""
        x = self.norm1(x + self._drop(self.attention(x, known, view)))
        return self.norm2(x + self._drop(self.narrow(self._drop(F.gelu(self.wide(x))))))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


class XLNet(CausalNetwork):
    Config = XLNetConfig
    has_query_stream = is_transformer = True

    def __init__(self, config: XLNetConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.window = config.layers * config.memory + 1  # each layer sees `memory` tokens further back
        self.widths = [config.width] * (config.layers + 1)
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.blank = nn.Parameter(torch.empty(config.width))  # g⁰
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.readout: Any = TiedSoftmax(self.embedding)
        for name, weight in self.named_parameters():
            if "norm" not in name and not name.endswith(("wide.bias", "narrow.bias", "readout.bias")):
                nn.init.normal_(weight, std=config.init_std)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    # -------------------------------------------------------------------------------------------- the public interface

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """The query stream (B, T, D): at each token's own position with a mask; else one position on, left to right."""
        _, queries, state = self.streams(inputs, state, content=False)
        return queries, state

    def queries(self, inputs: Inputs, at: Tensor, state: State) -> tuple[list[Tensor], State]:
        """The query stream under a mask, at the positions `at` (B, P) only."""
        _, queries, state = self.streams(inputs, state, at, content=False)
        return queries, state

    def stacks(self) -> list[nn.ModuleList]:
        return [self.blocks]

    def final_norm(self, x: Tensor) -> Tensor:
        """Blocks end with a norm: nothing is left to do."""
        return x

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """The content stream: bidirectional, or as the mask says, or continuing a state the way that was read."""
        both = state is None or state["both"]
        content, _, state = self.streams(inputs, state, query=False, both=both)
        return content, state

    def fill(self, inputs: Inputs, at: Tensor) -> Tensor:
        """log p (K, V) at the positions `at` (K,) of the flattened (B, T), from all tokens but these."""
        batch, steps = inputs.ids.shape
        is_given = torch.ones(batch * steps, dtype=torch.bool, device=inputs.ids.device).index_fill(0, at, False)
        mask = is_given.view(batch, 1, steps).expand(-1, steps, -1)
        if inputs.starts is not None:
            mask = mask & _same_text(inputs)
        layers, _ = self.hidden(replace(inputs, mask=mask, starts=None), None)
        return self.readout.log_probs(layers[-1].flatten(0, 1)[at])

    def frame_marks(self) -> FrameMarks:
        """Nothing before the texts, <sep> after each, <cls> at the end; or the end and begin tokens of a text."""
        special, end = self.vocabulary.special, self.vocabulary.end
        sep = next((special[name] for name in ("<sep>", "[SEP]", "</s>") if name in special), end)
        cls = next((special[name] for name in ("<cls>", "[CLS]", "<s>") if name in special), self.vocabulary.begin)
        between = () if sep is None else (sep,)
        return (), between, (*between, cls)

    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText:
        """a sep cls, or a sep b sep cls. The vector of cls represents the text. Segments are 0 and 1, and 2 for cls."""
        framed = super().frame(a, b)
        segments = np.zeros(len(framed.ids), np.int64)
        if b is not None:
            segments[framed.text_spans[1][0] :] = 1
        segments[-1] = 2
        return replace(framed, segments=segments)

    # -------------------------------------------------------------------------------------------- states

    def initial(self, batch: int) -> State:
        empty = torch.zeros(batch, 0, self.config.width, device=self.device)
        return {"layers": (empty,) * self.config.layers, "positions": None, "there": None, "both": False}

    def join(self, states: Sequence[State]) -> State:
        """Rows may have read unequally much: shorter memories are padded at their beginning."""
        lengths = [state["layers"][0].shape[1] for state in states]
        if len(set(lengths)) == 1 and all(state["there"] is None for state in states):
            return pytree.cat(states)
        longest, joined = max(lengths), []
        for state, length in zip(states, lengths, strict=True):
            short, layers, places = longest - length, state["layers"], state["positions"]
            there = state["there"]
            if there is None:
                there = torch.ones(layers[0].shape[:2], dtype=torch.bool, device=layers[0].device)
            joined.append(
                {
                    "layers": tuple(F.pad(layer, (0, 0, short, 0)) for layer in layers),
                    "positions": None if places is None else F.pad(places, (short, 0)),
                    "there": F.pad(there, (short, 0)),
                    "both": state["both"],
                }
            )
        return pytree.cat(joined)

    def _new_state(self, state: State, layers: list[Tensor], places: Tensor | None, new: Tensor, both: bool) -> State:
        """The state after reading: the last `memory` inputs of each block, of (B, S, D)."""
        most = self.config.memory
        there = state["there"]
        if there is not None:
            there = torch.cat([there, torch.ones_like(new, dtype=torch.bool)], 1)[:, -most:]
        return {
            "layers": tuple(layer[:, -most:].detach() for layer in layers),
            "positions": None if places is None else places[:, -most:],
            "there": there,
            "both": both,
        }

    # -------------------------------------------------------------------------------------------- both streams

    def streams(
        self,
        inputs: Inputs,
        state: State,
        at: Tensor | None = None,
        content: bool = True,
        query: bool = True,
        both: bool = False,
    ) -> tuple[list[Tensor], list[Tensor], State]:
        """Every layer of the content stream (B, T, D) and of the query stream (B, P, D), and the state afterwards.

        `at` (B, P): the positions of the queries, under a mask; None: all. `both`: read bidirectionally if there is no
        mask. Streams that are not wanted are not computed where that is possible. Packed texts (`starts`) come without
        a state and leave none.
        """
        ids = inputs.ids
        if state is None or inputs.starts is not None:
            state = self.initial(len(ids))
        view, positions = self._view(inputs, state, at, query, both)
        x = self._drop(self.embedding(ids))
        rows = view.seen.shape[1] - ids.shape[1]
        g = self._drop(self.blank.expand(len(ids), rows, -1))
        contents, queries, knowns = [x], [g], []
        for i, (block, memory) in enumerate(zip(self.blocks, state["layers"], strict=True)):
            known = torch.cat([memory, x], 1)  # (B, S, D)
            knowns.append(known)
            if query and not content and i == self.config.layers - 1:  # nobody attends to the last content
                g = block(g, known, view.last(rows))
            else:
                x, g = block(torch.cat([x, g], 1), known, view).split([ids.shape[1], rows], 1)
            contents.append(x)
            queries.append(g)
        contents[-1], queries[-1] = self._drop(contents[-1]), self._drop(queries[-1])
        if inputs.starts is not None:
            return contents, queries, None
        return contents, queries, self._new_state(state, knowns, positions, ids, both)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)

    def _view(
        self, inputs: Inputs, state: State, at: Tensor | None, query: bool, both: bool
    ) -> tuple[RelativeView, Tensor | None]:
        """Who sees whom, at which distance, in which segment; and the positions of all that is known, if given."""
        ids, old = inputs.ids, state["layers"][0].shape[1]
        new, size = ids.shape[1], old + ids.shape[1]
        is_causal = inputs.mask is None and not both  # then queries are one position ahead
        places = _positions(inputs, state, old)
        where = torch.arange(size, device=ids.device).unsqueeze(0) if places is None else places  # (B or 1, S)
        seen = self._seen(inputs, state, old, both)  # (B or 1, T, S), of queries
        itself = torch.eye(new, size, dtype=torch.bool, device=ids.device).roll(old, 1)
        sees, asks, parts = [seen | itself], [where[:, old:]], [inputs.segments]
        if query:
            sees.append(_pick(seen, at))
            asks.append(where[:, old:] + 1 if is_causal else _pick(where[:, old:], at))
            parts.append(None if inputs.segments is None else _pick(inputs.segments, at))
        lowest, highest = (-new, size) if places is None else (-size, size)
        near = (_cat(asks).unsqueeze(2) - where.unsqueeze(1) - lowest).clamp(0, highest - lowest)
        distances = torch.arange(lowest, highest + 1, device=ids.device)
        if self.config.max_distance:
            distances = distances.clamp(-self.config.max_distance, self.config.max_distance)
        table = self._drop(distance_encodings(distances, self.config.width).to(self.blank.dtype))
        apart = None
        if inputs.segments is not None:
            known = F.pad(inputs.segments, (old, 0))  # memory counts as the first segment
            apart = _cat([part for part in parts if part is not None]).unsqueeze(2) != known.unsqueeze(1)
        return RelativeView(_cat(sees), near, table, apart), places

    def _seen(self, inputs: Inputs, state: State, old: int, both: bool) -> Tensor:
        """(B or 1, T, S): what a query may attend to, in the memory and in the content."""
        ids, there = inputs.ids, state["there"]
        new = ids.shape[1]
        before = torch.ones(1, new, old, dtype=torch.bool, device=ids.device)
        if there is not None:
            before = before & there.unsqueeze(1)
        if inputs.mask is not None:
            now = inputs.mask
        elif inputs.starts is not None:
            now = _same_text(inputs)
        else:
            now = torch.ones(1, new, new, dtype=torch.bool, device=ids.device)
        if inputs.token_mask is not None:
            now = now & inputs.token_mask.unsqueeze(1)
        seen = _cat([before, now], 2)
        if inputs.mask is None and not both:
            back = torch.arange(old, old + new, device=ids.device).unsqueeze(1) - torch.arange(
                old + new, device=ids.device
            )
            seen = seen & (back >= 0) & (back <= self.config.memory)
        return seen


def _positions(inputs: Inputs, state: State, old: int) -> Tensor | None:
    """(B, S): positions of the memory and of the new tokens in their text; None if they simply count up.

    Positions may run backward, in rows that are read from right to left. Distances are differences of positions, at
    most the number of known tokens.
    """
    given, before = inputs.positions, state["positions"]
    if given is None and before is None:
        return None
    ahead = torch.arange(inputs.ids.shape[1], device=inputs.ids.device)
    if given is None:
        given = before[:, -1:] + 1 + ahead
    if before is None:
        before = given[:, :1] - torch.arange(old, 0, -1, device=given.device)
    return torch.cat([before, given], 1)


def _same_text(inputs: Inputs) -> Tensor:
    """(1, T, T): which tokens of a packed row belong to the same text."""
    assert inputs.starts is not None
    slots = torch.arange(inputs.ids.shape[1], device=inputs.ids.device)
    text = torch.bucketize(slots, inputs.starts.to(slots), right=True)
    return (text.unsqueeze(1) == text).unsqueeze(0)


def _pick(rows: Tensor, at: Tensor | None) -> Tensor:
    """Select the rows at (B, P) from (B or 1, T, …); None: all."""
    if at is None:
        return rows
    return rows.expand(len(at), *rows.shape[1:])[torch.arange(len(at), device=at.device).unsqueeze(1), at]


def _cat(parts: list[Tensor], axis: int = 1) -> Tensor:
    """Concatenate, where some parts may have one row for the whole batch."""
    batch = max(len(part) for part in parts)
    return torch.cat([part.expand(batch, *part.shape[1:]) for part in parts], axis)
