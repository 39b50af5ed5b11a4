"""GLM: one Transformer that reads a text with blanks in both directions and generates the missing spans.

Du, Qian, Liu, Ding, Qiu, Yang & Tang, "GLM: General Language Model Pretraining with Autoregressive Blank Infilling"
(2021).

    text         x₁ x₂ x₃ x₄ x₅ x₆           the spans x₃ and x₅ x₆ are blanked; the second is generated first
    read         x₁ x₂ M  x₄ M │ S  x₅ x₆ │ S  x₃        part A │ part B; M is a mask, S starts a span
    predicted                  │ x₅ x₆ E  │ x₃ E         E ends it
    position 1   1  2  3  4  5 │ 5  5  5  │ 3  3         in A; for B, that of the span's mask
    position 2   0  0  0  0  0 │ 1  2  3  │ 1  2         within the span; 0 in A

    x = E[token] + P₁[position 1] + P₂[position 2]
    x = x + attention(norm₁(x))         A attends to all of A; B to all of A and to what comes before it in B
    x = x + W₂ gelu(W₁ norm₂(x))        repeat both lines for each layer
    p = softmax(E · norm(x))

Differences from GPT-2, whose blocks it has: part A is bidirectional, and a token has two positions. From BERT: the
length of a blank is unknown, and its tokens depend on each other. From T5: one stack for both parts, and one mask token
for all blanks, which are told apart by position.

Part A starts with the tokenizer's begin token, at position 0. S and E are the tokenizer's begin and end; the masks are
ids beyond the vocabulary (tokenizers/special_tokens.py): [MASK], [sMASK] and [gMASK] for a few tokens, for sentences
and for the rest of a text. As a left-to-right language model, everything is in part B, at the [gMASK] of an otherwise
empty part A:

    begin [gMASK] │ S x₁ x₂ x₃ …             log p(x₁ x₂ x₃ …), exact. When the window is full, B's later half is read
    again

A state is that of layers/kv_cache.py, part A in the first slots, plus {"at": (B,) position 1 of the current span,
"begun": (B,) the slot of its S, "before": the number of slots before B if the window may slide, else None}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nextword.core import pytree
from nextword.core.errors import InvalidSetting
from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers import kv_cache
from nextword.layers.attention import PrefixAttention
from nextword.layers.kv_cache import CacheUpdate, KeyValues
from nextword.layers.output.softmax import TiedSoftmax
from nextword.models.base import CausalNetwork, check_sizes
from nextword.models.decoder import check_heads, init_gpt_weights
from nextword.models.encoder import positions_in_packed
from nextword.tokenizers.special_tokens import PieceMarks


@dataclass(frozen=True)
class GLMConfig:
    width: int = 768
    layers: int = 12
    heads: int = 12
    window: int = 512  # tokens of part A, and of a span
    dropout: float = 0.1  # of embeddings, attention weights and what is added to the residual sum
    epsilon: float = 1e-5  # of the norms

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self.width, self.heads)


class Block(nn.Module):
    def __init__(self, config: GLMConfig) -> None:
        super().__init__()
        width, self.dropout = config.width, config.dropout
        self.norm1 = nn.LayerNorm(width, config.epsilon)
        self.attention = PrefixAttention(width, config.heads, config.dropout)
        self.norm2 = nn.LayerNorm(width, config.epsilon)
        self.wide = nn.Linear(width, 4 * width)  # W₁
        self.narrow = nn.Linear(4 * width, width)  # W₂

    def forward(
        self, x: Tensor, mask: Tensor | None, update: CacheUpdate | None, cache: KeyValues | None
    ) -> tuple[Tensor, KeyValues | None]:
        y, cache = self.attention(self.norm1(x), mask, update, cache)  # (B, T, D)
        x = x + F.dropout(y, self.dropout, self.training)
        y = self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))
        return x + F.dropout(y, self.dropout, self.training), cache


class GLM(CausalNetwork):
    Config = GLMConfig
    has_sliding_window = generates_spans = can_checkpoint = is_transformer = True
    can_join = False
    window: int

    def __init__(self, config: GLMConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.window = self.max_positions = config.window
        self.stride = max(1, config.window // 2)
        self.widths = [config.width] * (config.layers + 1)
        self.pieces = PieceMarks.of(vocabulary)
        self.embedding = nn.Embedding(vocabulary.size, config.width)  # E
        self.masks = nn.Embedding(len(self.pieces.masks), config.width)  # E, beyond the vocabulary
        self.positions = nn.Embedding(config.window + 1, config.width)  # P₁
        self.inside = nn.Embedding(config.window + 1, config.width)  # P₂
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, config.epsilon)
        self.readout = TiedSoftmax(self.embedding, bias=False)
        init_gpt_weights(self)
        for name, weight in self.named_parameters():
            if name.endswith(("attention.out.weight", "narrow.weight")):  # these write into the residual sum
                nn.init.normal_(weight, std=0.02 / (2 * config.layers) ** 0.5)

    def stacks(self) -> list[nn.ModuleList]:
        return [self.blocks]

    def flops_per_token(self, length: int) -> float:
        """Counted as for GPT-2."""
        tables = self.positions.weight.numel() + self.inside.weight.numel()
        weights = sum(p.numel() for p in self.parameters()) - tables
        return 6 * weights + 12 * self.config.layers * self.config.width * length

    # -------------------------------------------------------------------------------------------- the architecture

    def _embed(self, ids: Tensor) -> Tensor:
        """E[token] of ids that may be masks, beyond the vocabulary."""
        beyond = ids - self.vocabulary.size  # at least 0 for masks
        known = self.embedding(ids.clamp(max=self.vocabulary.size - 1))
        return torch.where(beyond.unsqueeze(-1) < 0, known, self.masks(beyond.clamp(min=0)))

    def _enter(self, x: Tensor, outer: Tensor, inner: Tensor) -> Tensor:
        """E[token] + P₁[outer] + P₂[inner]: what the first block reads."""
        x = x + self.positions(outer) + self.inside(inner)
        # Under autocast the residual stream is 16-bit too
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        return F.dropout(x, self.config.dropout, self.training)

    def _run_blocks(
        self, x: Tensor, mask: Tensor | None, update: CacheUpdate | None, caches: Sequence[KeyValues] | None
    ) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Every layer (B, T, D), and the keys and values of each block."""
        layers, new_caches = [x], []
        for i, block in enumerate(self.blocks):
            arguments = (x, mask, update, caches[i] if caches else None)
            if self.checkpointing and torch.is_grad_enabled():
                x, cache = checkpoint(block, *arguments, use_reentrant=False)
            else:
                x, cache = block(*arguments)
            layers.append(x)
            new_caches.append(cache)
        layers[-1] = self.final_norm(x)
        return layers, tuple(new_caches)

    def final_norm(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def _forward(self, ids: Tensor, positions: Tensor, mask: Tensor) -> list[Tensor]:
        """Parts A and B at once: (B, T), (B, T, 2), (B or 1, T, T) → every layer."""
        if not positions.is_cuda and positions.numel() and int(positions.max()) > self.window:  # do not stall a GPU
            raise InvalidSetting(
                f"Position {int(positions.max())} is beyond the window of {self.window}: the text or a span is too "
                "long. Shorten it; in training, --set phase.0.batches.length=… (at most the window).",
                key="phase.batches.length",
                value=int(positions.max()),
            )
        x = self._enter(self._embed(ids), positions[..., 0], positions[..., 1])
        return self._run_blocks(x, mask.unsqueeze(1), None, None)[0]

    # -------------------------------------------------------------------------------------------- training, encoding

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """With `positions` (B, T, 2): parts A and B at once, without a state. Otherwise left to right from a state."""
        if inputs.positions is not None:
            mask = blank_mask(inputs.positions) if inputs.mask is None else inputs.mask
            return self._forward(inputs.ids, inputs.positions, mask), None
        ids, parts = inputs.ids, list[list[Tensor]]()
        if state is None or not state["most"]:
            state = self._begin_text(len(ids))
        while True:
            before = state["before"]
            room = max(1, ids.shape[1]) if before is None else self.window + before - state["most"]
            if room and (ids.shape[1] or not parts):
                layers, state = self._forward_cached(ids[:, :room], state)
                parts.append(layers)
            ids = ids[:, room:]
            if not ids.shape[1]:
                return parts[0] if len(parts) == 1 else [torch.cat(p, 1) for p in zip(*parts, strict=True)], state
            state = self._slide_window(state)

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """Part A alone, in both directions; or, given a state, left to right from it."""
        if state is not None:
            return self.hidden(inputs, state)
        positions, text = _positions_and_texts(inputs)
        mask = text.unsqueeze(2) == text.unsqueeze(1)  # (B, T, T)
        if inputs.token_mask is not None:
            mask = mask & inputs.token_mask.unsqueeze(1)
        return self._forward(inputs.ids, torch.stack([positions, torch.zeros_like(positions)], -1), mask), None

    def fill(self, inputs: Inputs, at: Tensor) -> Tensor:
        """log p (K, V) of the first token of a span in place of each token `at` (K,) of the flattened (B, T).

        All of these tokens are blanks at once, and no span sees another:  x₁ M x₃ M │ S │ S
        """
        ids, (rows, steps) = inputs.ids, inputs.ids.shape
        outer, text = _positions_and_texts(inputs)
        row, place = at // steps, at % steps
        count = torch.bincount(row, minlength=rows)  # blanks per row
        order = row.argsort(stable=True)
        column = torch.empty_like(at)  # which blank of its row each one is
        column[order] = torch.arange(len(at), device=at.device) - (count.cumsum(0) - count)[row[order]]
        blanks = torch.zeros(rows, int(count.max()) if len(at) else 0, dtype=torch.long, device=ids.device)
        blanks[row, column] = place
        begin = torch.full_like(blanks, self.pieces.begin)
        read = torch.cat([ids.reshape(-1).index_fill(0, at, self.pieces.masks[0]).view_as(ids), begin], 1)
        texts = torch.cat([text, text.gather(1, blanks)], 1)
        token_mask = torch.ones_like(ids, dtype=torch.bool) if inputs.token_mask is None else inputs.token_mask
        is_part_a = F.pad(token_mask, (0, blanks.shape[1]))  # visible to all of its text; an S only to itself
        itself = torch.eye(read.shape[1], dtype=torch.bool, device=ids.device)
        mask = (texts.unsqueeze(2) == texts.unsqueeze(1)) & is_part_a.unsqueeze(1) | itself
        inner = F.pad(torch.zeros_like(ids), (0, blanks.shape[1]), value=1)
        positions = torch.stack([torch.cat([outer, outer.gather(1, blanks)], 1), inner], -1)
        h = self._forward(read, positions, mask)[-1]
        return self.readout.log_probs(h[row, steps + column])

    # -------------------------------------------------------------------------------------------- generating spans

    def begin_blanks(self, ids: Tensor, lengths: Tensor) -> State:
        """The state after part A: rows (B, T) of these lengths (B,), padded at their end. No span has begun."""
        token_mask = torch.arange(ids.shape[1], device=ids.device) < lengths.unsqueeze(1)
        mask = None if bool(token_mask.all()) else token_mask[:, None, None, :]
        update = CacheUpdate(kv_cache.empty(len(ids), ids.device), ids.shape[1], self._slots)
        outer = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        x = self._enter(self._embed(ids), outer, torch.zeros_like(outer))
        _, caches = self._run_blocks(x, mask, update, None)
        state = kv_cache.with_lengths(update.finish(ids, caches), lengths)
        return {**state, "at": torch.zeros_like(lengths), "begun": state["length"], "before": None}

    def begin_span(self, state: State, rows: Tensor, at: Tensor) -> State:
        """The state in which the rows (B,) that are True begin a span at position `at` (B,) of its mask."""
        begun = torch.where(rows, state["length"], state["begun"])
        return {**state, "at": torch.where(rows, at, state["at"]), "begun": begun}

    # -------------------------------------------------------------------------------------------- left to right

    def initial(self, batch: int) -> State:
        """Nothing is read yet, not even part A, so that asking for a state runs no network."""
        none = torch.zeros(batch, dtype=torch.long, device=self.device)
        return {**kv_cache.empty(batch, self.device), "at": none, "begun": none, "before": 0}

    def _begin_text(self, batch: int) -> State:
        """The state after part A = begin [gMASK], in which the span is to begin."""
        ids = torch.tensor([[self.pieces.begin, self.pieces.masks[-1]]], device=self.device)
        state = self.begin_blanks(ids, torch.tensor([2], device=self.device))
        row = torch.ones(1, dtype=torch.bool, device=self.device)
        state = self.begin_span(state, row, row.long())
        wide = {name: state[name].expand(batch, *state[name].shape[1:]) for name in ("ids", "length", "at", "begun")}
        layers = tuple((k.expand(batch, -1, -1, -1), v.expand(batch, -1, -1, -1)) for k, v in state["layers"])
        return {**state, **wide, "layers": layers, "before": 2}

    def prompt(self, ids: Tensor, lengths: Tensor) -> State:
        """The state after rows of unequal lengths (B,), padded at their end (B, T)."""
        if int(lengths.max()) > self.window:
            raise InvalidSetting(
                f"A prompt of {int(lengths.max())} tokens is longer than the window of {self.window}. Read such "
                "prompts one by one, because each moves its window by itself.",
                key="prompt",
                value=int(lengths.max()),
            )
        _, state = self.hidden(Inputs(ids), None)
        return kv_cache.with_lengths(state, lengths + state["before"])

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        if len(rows) != len(state["length"]):
            return pytree.take(state, rows)
        return {**kv_cache.reorder(state, rows), "at": state["at"][rows], "begun": state["begun"][rows]}

    def _slide_window(self, state: State) -> State:
        """Read the later half of B again."""
        before = state["before"]
        part_b = {**state, "ids": state["ids"][:, before:], "length": state["length"] - before}
        ids, lengths = kv_cache.latest({**part_b, "most": state["most"] - before}, self.window - self.stride)
        state = self._begin_text(len(ids))
        if not ids.shape[1]:  # a window of one token
            return state
        return kv_cache.with_lengths(self._forward_cached(ids, state)[1], lengths + before)

    def _forward_cached(self, ids: Tensor, state: State) -> tuple[list[Tensor], State]:
        update = CacheUpdate(state, ids.shape[1], self._slots)
        inner = update.positions - state["begun"].unsqueeze(1) + 1  # (B, T)
        x = self._enter(self.embedding(ids), state["at"].unsqueeze(1), inner)
        layers, caches = self._run_blocks(x, update.attention_mask(), update, state["layers"])
        after = update.finish(ids, caches)
        return layers, {**after, **{name: state[name] for name in ("at", "begun", "before")}}

    @property
    def _slots(self) -> int:
        return 2 * self.window + 1  # parts A and B


def blank_mask(positions: Tensor) -> Tensor:
    """(B, T, 2) → (B, T, T): everyone sees part A, whose second position is 0; B also sees itself and what came before.

        A   B
    A   1 1 0 0
        1 1 0 0
    B   1 1 1 0
        1 1 1 1
    """
    steps = positions.shape[1]
    earlier = torch.ones(steps, steps, dtype=torch.bool, device=positions.device).tril()
    return (positions[:, None, :, 1] == 0) | (earlier & (positions[:, :, None, 1] > 0))


def _positions_and_texts(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The position of each token (B, T) in its text, and the index of that text in its row: several may be packed."""
    ids, starts = inputs.ids, inputs.starts
    slots = torch.arange(ids.shape[1], device=ids.device)
    if starts is None:
        return slots.expand_as(ids), torch.zeros_like(ids)
    return positions_in_packed(starts, ids.shape[1]), torch.bucketize(slots, starts.to(slots), right=True).unsqueeze(0)
