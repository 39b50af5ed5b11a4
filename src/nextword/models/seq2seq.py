"""Sequence to sequence: one recurrent network reads a source, another writes what becomes of it.

    attention = "none"       Sutskever, Vinyals & Le, "Sequence to Sequence Learning with Neural Networks" (2014): all
                             of the source goes through the encoder's last state; `reverse` feeds it backwards
    attention = "bahdanau"   Bahdanau, Cho & Bengio, "Neural Machine Translation by Jointly Learning to Align and
                             Translate" (2015): before each step the decoder looks at every source token, and what it
                             saw goes into the step
    attention = "luong"      Luong, Pham & Manning, "Effective Approaches to Attention-based Neural Machine Translation"
                             (2015): it looks after the step; with `feeding` the next step is told what it saw

    source ─ E ─▶ encoder, from both sides ─▶ memory (B, S, M)
                                                 │ context
    target ─ E ─▶ decoder, s_t from s_{t−1} ─────┴─▶ h_t ─▶ softmax

    bahdanau   c_t = look(s_{t−1})    s_t = cell([E y_{t−1}; c_t], s_{t−1})      h_t = maxout([s_t; c_t; E y_{t−1}])
    luong      s_t = cell([E y_{t−1}; h_{t−1}], s_{t−1})    c_t = look(s_t)      h_t = tanh(W [c_t; s_t])

One embedding serves both sides, for one tokenizer does. The maxout is read after s_t, as the authors' code computes it.
A state is {"cells": the decoder's memories, and with attention: "memory", "keys", "there", "covered": what attention
each source token has had, 1 at padding; "fed": h_{t−1}}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core import pytree
from nextword.core.errors import NextwordError, Unsupported
from nextword.core.types import Inputs, State, Vocabulary
from nextword.kernels.lstm import QUICK, Deferred, backwards, each_row
from nextword.layers.attention import AdditiveAttention, Attend, luong_attention
from nextword.layers.dropout import dropped
from nextword.layers.output.softmax import FullSoftmax, TiedSoftmax
from nextword.layers.recurrent import CellState, RecurrentLayer
from nextword.models.base import CausalNetwork, check_sizes

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}
ATTENTION = ("none", "bahdanau", "luong")


@dataclass(frozen=True)
class Seq2SeqConfig:
    width: int = 512  # of the decoder
    layers: int = 1  # of the decoder
    embedding: int = 0  # 0: as width
    encoder: int = 0  # width of the encoder, in each direction; 0: as width
    encoder_layers: int = 0  # 0: as layers
    cell: str = "lstm"
    bidirectional: bool = True  # does the encoder read from both sides?
    reverse: bool = False  # the source is fed backwards
    attention: str = "bahdanau"
    score: str = "general"  # of Luong's: general, dot or concat
    scaled: bool = False  # of Luong's: times a learnt number
    feeding: bool = True  # of Luong's
    tied: bool = False  # output matrix = embedding
    dropout: float = 0.0  # of what goes up, never of what goes through time

    def __post_init__(self) -> None:
        check_sizes(self)
        for name, known in (("cell", CELLS), ("attention", ATTENTION)):
            if getattr(self, name) not in known:
                raise NextwordError(f"[model] {name} = {getattr(self, name)!r}; expected {' or '.join(known)}.")


class Encoder(nn.Module):
    """Layers over a padded batch, each direction as long as its row: padding is never read."""

    def __init__(self, inputs: int, width: int, layers: int, cell: str, both: bool, dropout: float) -> None:
        super().__init__()
        self.dropout, self.width = dropout, width * (2 if both else 1)
        sizes = [inputs] + [self.width] * (layers - 1)
        self.layers = nn.ModuleList(CELLS[cell](size, width, batch_first=True, bidirectional=both) for size in sizes)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[CellState]]:
        """(B, S, I), (B,) → each layer's vectors (B, S, M), and its memory at the end, (B, M) each."""
        outputs, ends = [], []
        lengths = lengths.cpu()
        for i, layer in enumerate(self.layers):
            x = dropped(x, self.dropout, self.training) if i else x
            x, end = each_row(layer, x, lengths)  # type: ignore[arg-type]
            ends.append(end)
            outputs.append(x)
        return outputs, ends


class Bridge(nn.Module):
    """From the encoder's memories at the end to the decoder's at the beginning, layer by layer."""

    def __init__(self, encoder: int, width: int, layers: int, memories: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.ModuleList(nn.Linear(encoder, width) for _ in range(memories)) for _ in range(layers)
        )

    def forward(self, ends: Sequence[CellState]) -> tuple[CellState, ...]:
        """A decoder with more layers than the encoder begins its upper ones with the encoder's last."""
        found = []
        for i, parts in enumerate(self.parts):
            end = ends[min(i, len(ends) - 1)]
            linear: Any = parts
            first, *rest = (part(m) for part, m in zip(linear, end, strict=True))
            found.append((torch.tanh(first), *rest))
        return tuple(found)


class Seq2Seq(CausalNetwork):
    Config = Seq2SeqConfig
    is_conditional = True  # it writes from a source, and models no text by itself

    def __init__(self, config: Seq2SeqConfig, vocabulary: Vocabulary, read: int = 0, written: int = 0) -> None:
        """`read`: width of the source's vectors, `written`: how many words can be written, where those are others."""
        super().__init__(config, vocabulary)
        width, embedding = config.width, config.embedding or config.width
        self.embedding = nn.Embedding(written or vocabulary.size, embedding)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)  # small, for the output matrix may be the same
        self.encoder = Encoder(
            read or embedding,
            config.encoder or width,
            config.encoder_layers or config.layers,
            config.cell,
            config.bidirectional,
            config.dropout,
        )
        memory = self.encoder.width
        beside = {"none": 0, "bahdanau": memory, "luong": width if config.feeding else 0}[config.attention]
        sizes = [embedding + beside] + [width] * (config.layers - 1)
        self.layers = nn.ModuleList(RecurrentLayer(config.cell, size, width) for size in sizes)
        as_it_is = memory == width and not config.bidirectional and len(self.encoder.layers) == config.layers
        self.bridge = None if as_it_is else Bridge(memory, width, config.layers, len(self._cells()[0].start(1)))
        self.look: Any = None
        if config.attention == "bahdanau":
            self.look = AdditiveAttention(width, memory, width)
            self.out = nn.Linear(width + memory + embedding, 2 * width)
        elif config.attention == "luong":
            self.look = luong_attention(width, memory, config.score, config.scaled)
            self.out = nn.Linear(memory + width, width, bias=False)
        if config.tied:
            lead = nn.Linear(width, embedding, bias=False) if embedding != width else None
            self.readout: Any = TiedSoftmax(self.embedding, projection=lead)
        else:
            self.readout = FullSoftmax(width, written or vocabulary.size)
        self.widths = [embedding, width]

    # -------------------------------------------------------------------------------------------- the source

    def of_source(self, ids: Tensor) -> Tensor:
        """(B, S) → (B, S, E): what the encoder reads."""
        return self.embedding(ids)

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """The source alone: its embedding, and each layer of the encoder."""
        x = self.of_source(inputs.ids)
        return [x, *self._encoded(x, _there(inputs))[0]], None

    def start(self, batch: int, source: Inputs | None = None) -> tuple[Tensor, State]:
        first, _ = super().start(batch)
        return first, self.begin(source)

    def begin(self, source: Inputs | None) -> State:
        """The decoder's state after the source was read."""
        source = self.require_source(source)
        there = _there(source)
        ids = backwards(source.ids, there.sum(1)) if self.config.reverse else source.ids
        outputs, ends = self._encoded(self.of_source(ids), there)
        state: dict[str, Any] = {"cells": self.bridge(ends) if self.bridge else tuple(ends)}
        if self.look is not None:
            memory = dropped(outputs[-1], self.config.dropout, self.training)
            state |= {"memory": memory, "keys": self.look.keys(memory), "there": there}
            state |= {"covered": (~there).to(memory.dtype)}
            if self.config.attention == "luong" and self.config.feeding:
                state["fed"] = memory.new_zeros(len(memory), self.config.width)
        return state

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        """Beams change places. Where all searches go on with as many rows, what is known of their sources stays."""
        before = len(next(iter(pytree.flatten(state["cells"])[0].values())))
        if searches is not None or len(rows) != before:
            return pytree.take(state, rows)
        moved = ("cells", "covered", "fed")
        return {key: pytree.take(part, rows) if key in moved else part for key, part in state.items()}

    @property
    def has_attention(self) -> bool:
        return self.look is not None

    def covered(self, state: State) -> Tensor:
        """(B, S): how much attention each token of the source has had; 1 at padding."""
        return state["covered"]

    def _encoded(self, x: Tensor, there: Tensor) -> tuple[list[Tensor], list[CellState]]:
        return self.encoder(dropped(x, self.config.dropout, self.training), there.sum(1))

    # -------------------------------------------------------------------------------------------- the target

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        layers, _, state = self._decoded(inputs, state)
        return layers, state

    def attention(self, inputs: Inputs, state: State = None) -> Tensor:
        """(B, T, S): at which tokens of the source the decoder looks while it writes each token after `inputs`."""
        if self.look is None:
            raise Unsupported('This network has no attention (attention = "none"), so nothing shows where it looks.')
        return self._decoded(inputs, state)[1]

    def _decoded(self, inputs: Inputs, state: State) -> tuple[list[Tensor], Tensor, State]:
        state = dict(self.begin(inputs.source) if state is None else state)
        x = dropped(self.embedding(inputs.ids), self.config.dropout, self.training)
        if self.config.attention == "bahdanau":
            h, weights, state["cells"] = self._looking_before(x, state)
        elif self.config.attention == "luong" and self.config.feeding:
            h, weights, state["cells"] = self._fed(x, state)
            state["fed"] = h[:, -1]
        else:
            h, weights, state["cells"] = self._at_once(x, state)
        if self.look is not None:
            state["covered"] = state["covered"] + weights.detach().sum(1)
        return [x, dropped(h, self.config.dropout, self.training)], weights, state

    def _at_once(self, x: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Nothing of the attention goes into the next step: time after time in one kernel, then one look for all."""
        s, after = self._onward(x, state["cells"])
        if self.look is None:
            return s, s.new_zeros(*s.shape[:2], 0), after
        context, weights = self._looking(state)(s)
        return torch.tanh(self.out(torch.cat([context, s], -1))), weights, after

    def _onward(self, x: Tensor, cells: Sequence[CellState]) -> tuple[Tensor, tuple[CellState, ...]]:
        """The decoder's layers alone, which look at nothing: (B, T, E) → s (B, T, D), and their memories at the end."""
        s, after = x.transpose(0, 1), []
        for i, (layer, memory) in enumerate(zip(self._cells(), cells, strict=True)):
            s, memory = layer(self._dropped(s) if i else s, memory)
            after.append(memory)
        return s.transpose(0, 1), tuple(after)

    def _looking_before(self, x: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        stepper, look, seen = _Stepper(self._cells(), x, state["cells"], self._dropped), self._looking(state), []
        for t in range(x.shape[1]):
            seen.append(look(stepper.top.unsqueeze(1)))
            stepper.step(t, seen[-1][0].squeeze(1))
        context, weights = (torch.cat(parts, 1) for parts in zip(*seen, strict=True))
        h = self.out(torch.cat([torch.stack(stepper.tops, 1), context, x], -1))
        return h.unflatten(-1, (-1, 2)).amax(-1), weights, stepper.memories

    def _fed(self, x: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        stepper, look = _Stepper(self._cells(), x, state["cells"], self._dropped), self._looking(state)
        out, fed, seen, told = Deferred(self.out.weight), state["fed"], [], []
        for t in range(x.shape[1]):
            stepper.step(t, fed)
            context, weights = look(stepper.top.unsqueeze(1))
            fed = torch.tanh(out(torch.cat([context.squeeze(1), stepper.top], -1)))
            seen.append(weights)
            told.append(fed)
        return torch.stack(told, 1), torch.cat(seen, 1), stepper.memories

    def _looking(self, state: Any) -> Attend:
        return self.look.looking(state["keys"], state["memory"], state["there"])

    def _cells(self) -> list[RecurrentLayer]:
        return list(self.layers)  # type: ignore[arg-type]

    def _dropped(self, x: Tensor) -> Tensor:
        return dropped(x, self.config.dropout, self.training)


class _Stepper:
    """The decoder's layers, one step at a time. Of the first layer's product, what the target's own tokens have in it
    is there before the first step; only what is beside them comes step by step."""

    def __init__(self, layers: list[RecurrentLayer], x: Tensor, memories: Sequence[CellState], dropped: Any) -> None:
        self.memories, self.dropped = tuple(memories), dropped
        weights = [layer.weights() for layer in layers]
        matrix, _, bias, _ = weights[0]
        own = x.shape[-1]
        self.own = F.linear(x, matrix[:, :own], bias).unbind(1)  # T times (B, G·D)
        self.inputs = [Deferred(matrix[:, own:]), *(Deferred(w[0], w[2]) for w in weights[1:])]
        self.states = [Deferred(w[1], w[3]) for w in weights]
        self.gates = QUICK[layers[0].kind.fused]
        self.tops: list[Tensor] = []

    @property
    def top(self) -> Tensor:
        return self.memories[-1][0]

    def step(self, t: int, beside: Tensor) -> None:
        new: list[CellState] = []
        for i, memory in enumerate(self.memories):
            from_input = self.inputs[i](self.dropped(new[-1][0]) if i else beside)
            from_input = from_input if i else self.own[t] + from_input
            new.append(self.gates(from_input, self.states[i](memory[0]), memory))
        self.memories = tuple(new)
        self.tops.append(self.top)


def _there(source: Inputs) -> Tensor:
    return torch.ones_like(source.ids, dtype=torch.bool) if source.token_mask is None else source.token_mask
