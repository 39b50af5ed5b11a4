"""GLM: one stack of attention blocks that reads a text with blanks from both sides and writes what stands in them.

Du, Qian, Liu, Ding, Qiu, Yang & Tang, "GLM: General Language Model Pretraining with Autoregressive Blank Infilling"
(2021). Against `gpt2`, whose blocks it has (norm first, one more at the end, a tied output): part A, the text with a
mask in place of each blank, is read in both directions; part B, the pieces that are missing, in any order, from left
to right. Against `bert`: a blank has no known length, and its tokens depend on each other. Against `t5`: one stack for
both parts, and one mask for all blanks, told apart by where it stands.

    text         x₁ x₂ x₃ x₄ x₅ x₆           x₃ and x₅ x₆ are missing, and the second is written first
    read         x₁ x₂ M  x₄ M │ S  x₅ x₆ │ S  x₃        S begins a piece
    predicted                  │ x₅ x₆ E  │ x₃ E         E ends it
    position 1   1  2  3  4  5 │ 5  5  5  │ 3  3         in A, of B that of the piece's mask
    position 2   0  0  0  0  0 │ 1  2  3  │ 1  2         in the piece; 0 in A

Before part A stands what texts begin with, at position 0. S and E are the tokenizer's own begin and end, the three
masks ids beyond the vocabulary (tokens/marks.py): [MASK], [sMASK] and [gMASK] for a few tokens, sentences, and the
rest of a text. From left to right, all that there is stands in B, at the [gMASK] of an otherwise empty A:

    begin [gMASK] │ S x₁ x₂ x₃ …             log p(x₁ x₂ x₃ …), exact; where the window is full, B's later half is
                                             read again as if it began there

A state is that of layers/past.py, part A in the first slots, and {"at": (B,) position 1 of what comes, "begun": (B,)
the slot of its S, "before": slots before B where the window may move on, or None}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nextword.core import pytree as nest
from nextword.core.errors import NextwordError
from nextword.core.types import Inputs, State, Vocabulary
from nextword.kernels.cpu_matmul import Product
from nextword.kernels.cublaslt import fed
from nextword.layers import kv_cache as past
from nextword.layers.attention import Layer, PrefixAttention
from nextword.layers.output.softmax import Tied
from nextword.models.base import CausalNetwork, check_sizes
from nextword.models.decoder import check_heads, draw
from nextword.models.encoder import counted
from nextword.tokenizers.base import PieceMarks


@dataclass(frozen=True)
class GLMConfig:
    width: int = 768
    layers: int = 12
    heads: int = 12
    window: int = 512  # tokens of part A, and of a piece
    dropout: float = 0.1  # of embeddings, attention and what is added to the sum
    epsilon: float = 1e-5  # of the norms

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self)


class Block(nn.Module):
    def __init__(self, config: GLMConfig) -> None:
        super().__init__()
        width, self.dropout = config.width, config.dropout
        self.norm1 = nn.LayerNorm(width, config.epsilon)
        self.attention = PrefixAttention(width, config.heads, config.dropout)
        self.norm2 = nn.LayerNorm(width, config.epsilon)
        self.wide = Product(width, 4 * width)
        self.narrow = Product(4 * width, width)

    def forward(
        self, x: Tensor, seen: Tensor | None, reading: past.Reading | None, before: Layer | None
    ) -> tuple[Tensor, Layer | None]:
        y, now = self.attention(self.norm1(x), seen, reading, before)
        x = x + F.dropout(y, self.dropout, self.training)
        y = fed(self.norm2(x), self.wide, self.narrow)
        return x + F.dropout(y, self.dropout, self.training), now


class GLM(CausalNetwork):
    Config = GLMConfig
    window: int

    def __init__(self, config: Any, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.window = config.window
        self.stride = max(1, config.window // 2)
        self.widths = [config.width] * (config.layers + 1)
        self.checkpointing = False
        self.pieces = PieceMarks.of(vocabulary)
        self.embedding = nn.Embedding(vocabulary.size, config.width)
        self.masks = nn.Embedding(len(self.pieces.masks), config.width)
        self.positions = nn.Embedding(config.window + 1, config.width)  # in A
        self.inside = nn.Embedding(config.window + 1, config.width)  # in a piece
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, config.epsilon)
        self.readout: Any = Tied(self.embedding, bias=False)
        draw(self)
        for name, weight in self.named_parameters():
            if name.endswith(("attention.out.weight", "narrow.weight")):
                nn.init.normal_(weight, std=0.02 / (2 * config.layers) ** 0.5)

    def work(self, length: int) -> float:
        """Floating point operations a trained token, forward and backward, as `gpt2` counts them."""
        tables = self.positions.weight.numel() + self.inside.weight.numel()
        weights = sum(p.numel() for p in self.parameters()) - tables
        return 6 * weights + 12 * self.config.layers * self.config.width * length

    # -------------------------------------------------------------------------------------------- what others call

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """With `positions` (B, T, 2), parts A and B at once, and no state; else on from a state, from left to right."""
        if inputs.positions is not None:
            seen = parts_seen(inputs.positions) if inputs.mask is None else inputs.mask
            return self._at_once(inputs.ids, inputs.positions, seen), None
        ids, parts = inputs.ids, list[list[Tensor]]()
        if state is None or not state["most"]:
            state = self._begun(len(ids))
        while True:
            before = state["before"]
            room = max(1, ids.shape[1]) if before is None else self.window + before - state["most"]
            if room and (ids.shape[1] or not parts):
                layers, state = self._go_on(ids[:, :room], state)
                parts.append(layers)
            ids = ids[:, room:]
            if not ids.shape[1]:
                return [torch.cat(same, 1) for same in zip(*parts, strict=True)] if len(parts) > 1 else parts[0], state
            state = self._moved_on(state)

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """Part A alone, in both directions; or on from a state, as that was read."""
        if state is not None:
            return self.hidden(inputs, state)
        where, text = _spots(inputs)
        seen = text.unsqueeze(2) == text.unsqueeze(1)
        if inputs.padding is not None:
            seen = seen & inputs.padding.unsqueeze(1)
        return self._at_once(inputs.ids, torch.stack([where, torch.zeros_like(where)], -1), seen), None

    def fill(self, inputs: Inputs, at: Tensor) -> Tensor:
        """log p (K, V) of what a piece begins with in place of each of these tokens (K,) of the flattened (B, T).

        All of them are blanks, and none sees another's piece:  x₁ M x₃ M │ S │ S
        """
        ids, (rows, steps) = inputs.ids, inputs.ids.shape
        where, text = _spots(inputs)
        row, place = at // steps, at % steps
        count = torch.bincount(row, minlength=rows)
        order = row.argsort(stable=True)
        column = torch.empty_like(at)
        column[order] = torch.arange(len(at), device=at.device) - (count.cumsum(0) - count)[row[order]]
        asked = torch.zeros(rows, int(count.max()) if len(at) else 0, dtype=torch.long, device=ids.device)
        asked[row, column] = place
        begin = torch.full_like(asked, self.pieces.begin)
        read = torch.cat([ids.reshape(-1).index_fill(0, at, self.pieces.masks[0]).view_as(ids), begin], 1)
        both = torch.cat([text, text.gather(1, asked)], 1)
        there = torch.ones_like(ids, dtype=torch.bool) if inputs.padding is None else inputs.padding
        known = F.pad(there, (0, asked.shape[1]))  # part A is seen by all of its text; an S by itself
        itself = torch.eye(read.shape[1], dtype=torch.bool, device=ids.device)
        seen = (both.unsqueeze(2) == both.unsqueeze(1)) & known.unsqueeze(1) | itself
        inside = F.pad(torch.zeros_like(ids), (0, asked.shape[1]), value=1)
        positions = torch.stack([torch.cat([where, where.gather(1, asked)], 1), inside], -1)
        h = self._at_once(read, positions, seen)[-1]
        return self.readout.log_probs(h[row, steps + column])

    def opened(self, ids: Tensor, lengths: Tensor) -> State:
        """The state after part A, rows (B, T) of these lengths that are padded at their end. No piece is begun yet."""
        there = torch.arange(ids.shape[1], device=ids.device) < lengths.unsqueeze(1)
        seen = None if bool(there.all()) else there[:, None, None, :]
        reading = past.Reading(past.empty(len(ids), ids.device), ids.shape[1], self._slots)
        where = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        x = self._entered(self._embedded(ids), where, torch.zeros_like(where))
        _, kept = self._through(x, seen, reading, None)
        state = past.settled(reading.done(ids, kept), lengths)
        return {**state, "at": torch.zeros_like(lengths), "begun": state["length"], "before": None}

    def turned(self, state: State, rows: Tensor, at: Tensor) -> State:
        """The state in which these rows (B,) begin a piece at the position (B,) of its mask; the others go on."""
        begun = torch.where(rows, state["length"], state["begun"])
        return {**state, "at": torch.where(rows, at, state["at"]), "begun": begun}

    # -------------------------------------------------------------------------------------------- left to right

    def initial(self, batch: int) -> State:
        """Nothing was read, not even part A: whoever asks for no more than this has no network to wait for."""
        none = torch.zeros(batch, dtype=torch.long, device=self.device)
        return {**past.empty(batch, self.device), "at": none, "begun": none, "before": 0}

    def _begun(self, batch: int) -> State:
        """Part A is begin and [gMASK], and its piece is to begin."""
        ids = torch.tensor([[self.pieces.begin, self.pieces.masks[-1]]], device=self.device)
        state = self.opened(ids, torch.tensor([2], device=self.device))
        one = torch.ones(1, dtype=torch.bool, device=self.device)
        state = self.turned(state, one, one.long())
        wide = {name: state[name].expand(batch, *state[name].shape[1:]) for name in ("ids", "length", "at", "begun")}
        layers = tuple((k.expand(batch, -1, -1, -1), v.expand(batch, -1, -1, -1)) for k, v in state["layers"])
        return {**state, **wide, "layers": layers, "before": 2}

    def prompt(self, ids: Tensor, lengths: Tensor) -> State:
        """The state after rows of unequal length (B,), padded at their end."""
        if int(lengths.max()) > self.window:
            raise NextwordError("Rows beyond the window are to be read one by one, for each moves on by itself.")
        _, state = self.hidden(Inputs(ids), None)
        return past.settled(state, lengths + state["before"])

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        """Beams change places: row i goes on from what row rows[i] has read, which is equally long."""
        if len(rows) != len(state["length"]):
            return nest.take(state, rows)
        return {**past.reordered(state, rows), "at": state["at"][rows], "begun": state["begun"][rows]}

    def _moved_on(self, state: State) -> State:
        """The window is full: the later half of what was read in B, read again."""
        before = state["before"]
        own = {**state, "ids": state["ids"][:, before:], "length": state["length"] - before}
        ids, lengths = past.latest({**own, "most": state["most"] - before}, self.window - self.stride)
        fresh = self._begun(len(ids))
        if not ids.shape[1]:  # a window of one token
            return fresh
        return past.settled(self._go_on(ids, fresh)[1], lengths + before)

    def _go_on(self, ids: Tensor, state: State) -> tuple[list[Tensor], State]:
        reading = past.Reading(state, ids.shape[1], self._slots)
        inside = reading.positions - state["begun"].unsqueeze(1) + 1  # (B, T)
        x = self._entered(self.embedding(ids), state["at"].unsqueeze(1), inside)
        outputs, kept = self._through(x, reading.visible(), reading, state["layers"])
        after = reading.done(ids, kept)
        return outputs, {**after, **{name: state[name] for name in ("at", "begun", "before")}}

    @property
    def _slots(self) -> int:
        return 2 * self.window + 1  # part A and B

    # -------------------------------------------------------------------------------------------- all of it

    def _at_once(self, ids: Tensor, positions: Tensor, seen: Tensor) -> list[Tensor]:
        """(B, T), (B, T, 2), (B or 1, T, T) → every layer."""
        if not positions.is_cuda and positions.numel() and int(positions.max()) > self.window:  # a GPU is not asked
            raise NextwordError(
                f"A position of {int(positions.max())}, but the window is {self.window}: the text, or what stands in a "
                "blank, is too long. Shorten it; in training, --set phase.0.batches.length=… (at most the window)."
            )
        x = self._entered(self._embedded(ids), positions[..., 0], positions[..., 1])
        return self._through(x, seen.unsqueeze(1), None, None)[0]

    def _embedded(self, ids: Tensor) -> Tensor:
        """Of ids that may lie beyond the vocabulary: masks."""
        beyond = ids - self.vocabulary.size  # at least 0 for them
        known = self.embedding(ids.clamp(max=self.vocabulary.size - 1))
        return torch.where(beyond.unsqueeze(-1) < 0, known, self.masks(beyond.clamp(min=0)))

    def _entered(self, x: Tensor, where: Tensor, inside: Tensor) -> Tensor:
        """What the first block reads. In 16 bits the sum that runs through all blocks is kept in 16 bits as well."""
        x = x + self.positions(where) + self.inside(inside)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        return F.dropout(x, self.config.dropout, self.training)

    def _through(
        self, x: Tensor, seen: Tensor | None, reading: past.Reading | None, before: Sequence[Layer] | None
    ) -> tuple[list[Tensor], tuple[Any, ...]]:
        outputs, kept = [x], []
        for i, block in enumerate(self.blocks):
            given = (x, seen, reading, before[i] if before else None)
            if self.checkpointing and torch.is_grad_enabled():
                x, now = checkpoint(block, *given, use_reentrant=False)
            else:
                x, now = block(*given)
            outputs.append(x)
            kept.append(now)
        outputs[-1] = self.norm(x)
        return outputs, tuple(kept)


def parts_seen(positions: Tensor) -> Tensor:
    """(B, T, 2) → (B, T, T): part A, whose second position is 0, is seen by all; of B each token, and those before it.

        A   B
    A   1 1 0 0
        1 1 0 0
    B   1 1 1 0
        1 1 1 1
    """
    steps = positions.shape[1]
    earlier = torch.ones(steps, steps, dtype=torch.bool, device=positions.device).tril()
    return (positions[:, None, :, 1] == 0) | (earlier & (positions[:, :, None, 1] > 0))


def _spots(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Where each token (B, T) stands in its text, and the number of that text in its row: several may lie in one."""
    ids, starts = inputs.ids, inputs.starts
    slots = torch.arange(ids.shape[1], device=ids.device)
    if starts is None:
        return slots.expand_as(ids), torch.zeros_like(ids)
    return counted(starts, ids.shape[1]), torch.bucketize(slots, starts.to(slots), right=True).unsqueeze(0)
