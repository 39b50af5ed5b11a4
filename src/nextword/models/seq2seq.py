"""Seq2seq: one recurrent network reads a source, another generates the target, with or without attention.

    source ─ E ─▶ encoder, in both directions ─▶ memory (B, S, M)
                                                    │ context c_t = attention(query, memory)
    target ─ E ─▶ decoder, s_t from s_{t−1} ────────┴─▶ h_t ─▶ softmax

    attention = "none"       h_t = s_t = cell(E y_{t−1}, s_{t−1}); s_0 is the encoder's last state
    attention = "bahdanau"   c_t = attention(s_{t−1})    s_t = cell([E y_{t−1}; c_t], s_{t−1})
                             h_t = maxout([s_t; c_t; E y_{t−1}])
    attention = "luong"      s_t = cell([E y_{t−1}; h_{t−1}], s_{t−1})    c_t = attention(s_t)
                             h_t = tanh(W [c_t; s_t]); without `feeding`, h_{t−1} is not fed back

"none": Sutskever, Vinyals & Le, "Sequence to Sequence Learning with Neural Networks" (2014), with `reverse` for the
source. "bahdanau": Bahdanau, Cho & Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate"
(2015); the maxout reads s_t, as the authors' code does. "luong": Luong, Pham & Manning, "Effective Approaches to
Attention-based Neural Machine Translation" (2015). The attentions are in layers/attention.py.

Difference from the LSTM language model (rnn.py): the decoder starts from a source, and looks at it while it generates.
Both sides share one embedding, because they share a tokenizer.

A state is {"cells": the decoder's states} and, with attention, "memory", "keys", "there" (token mask of the source),
"covered" (attention that each source token has received so far, 1 at padding), and "fed" (h_{t−1}).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core import pytree
from nextword.core.errors import Unsupported
from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers.attention import AdditiveAttention, SourceAttention, luong_attention
from nextword.layers.dropout import dropout
from nextword.layers.output.softmax import FullSoftmax, TiedSoftmax
from nextword.layers.recurrent import (
    GATES,
    CellState,
    CellTrace,
    RecurrentLayer,
    reverse_padded,
    run_padded,
    trace_torch_layer,
)
from nextword.models.base import CausalNetwork, check_choice, check_sizes

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}
ATTENTION = ("none", "bahdanau", "luong")


@dataclass(frozen=True)
class Seq2SeqConfig:
    width: int = 512  # of the decoder
    layers: int = 1  # of the decoder
    embedding: int = 0  # 0: as width
    encoder_width: int = 0  # width of the encoder, in each direction; 0: as width
    encoder_layers: int = 0  # 0: as layers
    cell: str = "lstm"
    bidirectional: bool = True  # the encoder reads in both directions
    reverse_source: bool = False  # the source is read backward
    attention: str = "bahdanau"
    attention_score: str = "general"  # of Luong's attention: general, dot or concat
    scaled_score: bool = False  # of Luong's: multiply scores by a learned number
    input_feeding: bool = True  # of Luong's: input feeding
    tied: bool = False  # output matrix = embedding
    dropout: float = 0.0  # between layers, never through time

    def __post_init__(self) -> None:
        check_sizes(self)
        check_choice(self, "cell", tuple(CELLS))
        check_choice(self, "attention", ATTENTION)


class Encoder(nn.Module):
    """Recurrent layers over padded rows; padding is never read."""

    def __init__(self, inputs: int, width: int, layers: int, cell: str, both: bool, dropout: float) -> None:
        super().__init__()
        self.dropout, self.width = dropout, width * (2 if both else 1)
        sizes = [inputs] + [self.width] * (layers - 1)
        self.layers = nn.ModuleList(CELLS[cell](size, width, batch_first=True, bidirectional=both) for size in sizes)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[CellState]]:
        """(B, S, I), (B,) → each layer's outputs (B, S, M), and its state at the end of each row, (B, M) each."""
        outputs, ends = [], []
        lengths = lengths.cpu()
        for i, layer in enumerate(self.layers):
            x = dropout(x, self.dropout, self.training) if i else x
            x, end = run_padded(layer, x, lengths)  # type: ignore[arg-type]
            ends.append(end)
            outputs.append(x)
        return outputs, ends


class Bridge(nn.Module):
    """Map the encoder's last states to the decoder's first, layer by layer."""

    def __init__(self, encoder: int, width: int, layers: int, tensors: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            nn.ModuleList(nn.Linear(encoder, width) for _ in range(tensors)) for _ in range(layers)
        )

    def forward(self, ends: Sequence[CellState]) -> tuple[CellState, ...]:
        """If the decoder has more layers than the encoder, its upper ones start from the encoder's last."""
        states = []
        for i, parts in enumerate(self.parts):
            end = ends[min(i, len(ends) - 1)]
            linears: Any = parts
            h, *rest = (linear(m) for linear, m in zip(linears, end, strict=True))
            states.append((torch.tanh(h), *rest))
        return tuple(states)


class StepwiseDecoder:
    """The decoder's layers one step at a time; the first one reads [x_t; extra_t].

    Its product with x is computed for all steps at once; only that with `extra` needs to wait for each step.
    """

    def __init__(
        self,
        layers: Sequence[RecurrentLayer],
        x: Tensor,
        states: Sequence[CellState],
        dropout: Callable[[Tensor], Tensor],
    ) -> None:
        """x (B, T, I), the states before the first step, and the dropout between layers."""
        self.states, self.dropout, self.gates = tuple(states), dropout, GATES[layers[0].kind.fused]
        self.weights = [layer.weights() for layer in layers]
        matrix, _, bias, _ = self.weights[0]
        width = x.shape[-1]
        self.from_x = F.linear(x, matrix[:, :width], bias).unbind(1)  # T times (B, G·D)
        self.from_extra = matrix[:, width:]
        self.outputs: list[Tensor] = []  # of the last layer, (B, D) each

    @property
    def output(self) -> Tensor:
        """h of the last layer, (B, D)."""
        return self.states[-1][0]

    def step(self, t: int, extra: Tensor) -> None:
        states: list[CellState] = []
        for i, (state, (matrix, recurrent, bias, recurrent_bias)) in enumerate(
            zip(self.states, self.weights, strict=True)
        ):
            if i:
                from_input = F.linear(self.dropout(states[-1][0]), matrix, bias)
            else:
                from_input = self.from_x[t] + F.linear(extra, self.from_extra)
            states.append(self.gates(from_input, F.linear(state[0], recurrent, recurrent_bias), state))
        self.states = tuple(states)
        self.outputs.append(self.output)


class Seq2Seq(CausalNetwork):
    Config = Seq2SeqConfig
    is_conditional = is_recurrent = True
    can_join = False

    def __init__(
        self, config: Seq2SeqConfig, vocabulary: Vocabulary, source_width: int = 0, output_size: int = 0
    ) -> None:
        """`source_width` and `output_size` are for subclasses whose source vectors or output words are others."""
        super().__init__(config, vocabulary)
        width, embedding = config.width, config.embedding or config.width
        self.output_size = output_size or vocabulary.size
        self.embedding = nn.Embedding(self.output_size, embedding)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)  # small, because it may be the output matrix too
        self.encoder = Encoder(
            source_width or embedding,
            config.encoder_width or width,
            config.encoder_layers or config.layers,
            config.cell,
            config.bidirectional,
            config.dropout,
        )
        memory = self.encoder.width
        extra = {"none": 0, "bahdanau": memory, "luong": width if config.input_feeding else 0}[config.attention]
        sizes = [embedding + extra] + [width] * (config.layers - 1)
        self.layers = nn.ModuleList(RecurrentLayer(config.cell, size, width) for size in sizes)
        is_same_shape = memory == width and not config.bidirectional and len(self.encoder.layers) == config.layers
        self.bridge = None if is_same_shape else Bridge(memory, width, config.layers, len(self._layers()[0].start(1)))
        self.source_attention: SourceAttention | None = None
        if config.attention == "bahdanau":
            self.source_attention = AdditiveAttention(width, memory, width)
            self.out = nn.Linear(width + memory + embedding, 2 * width)
        elif config.attention == "luong":
            self.source_attention = luong_attention(width, memory, config.attention_score, config.scaled_score)
            self.out = nn.Linear(memory + width, width, bias=False)
        if config.tied:
            projection = nn.Linear(width, embedding, bias=False) if embedding != width else None
            self.readout = TiedSoftmax(self.embedding, projection=projection)
        else:
            self.readout = FullSoftmax(width, self.output_size)
        self.widths = [embedding, width]

    # -------------------------------------------------------------------------------------------- the source

    def embed_source(self, ids: Tensor) -> Tensor:
        """(B, S) → (B, S, E)."""
        return self.embedding(ids)

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """The source only: its embedding, and each layer of the encoder (B, S, ·)."""
        x = self.embed_source(inputs.ids)
        return [x, *self._run_encoder(x, _token_mask(inputs))[0]], None

    def trace(self, inputs: Inputs) -> tuple[list[list[CellTrace]], Tensor]:
        """The encoder over a source without padding; the readout does not read it, so its last layer is returned."""
        x = self.embed_source(inputs.ids).transpose(0, 1)
        x, layers = (x.flip(0) if self.config.reverse_source else x), []
        for layer in self.encoder.layers:
            layers.append(trace_torch_layer(cast(nn.RNNBase, layer), x))
            steps = zip(*(trace.states for trace in layers[-1]), strict=True)
            x = torch.stack([torch.cat([state[0] for state in sides], -1) for sides in steps])
        return layers, x.transpose(0, 1)

    def start(self, batch: int, source: Inputs | None = None) -> tuple[Tensor, State]:
        first, _ = super().start(batch)
        return first, self.begin(source)

    def begin(self, source: Inputs | None) -> State:
        """The state after reading the source, before the first target token."""
        source = self.require_source(source)
        token_mask = _token_mask(source)
        ids = reverse_padded(source.ids, token_mask.sum(1)) if self.config.reverse_source else source.ids
        outputs, ends = self._run_encoder(self.embed_source(ids), token_mask)
        state: dict[str, Any] = {"cells": self.bridge(ends) if self.bridge else tuple(ends)}
        if self.source_attention is not None:
            memory = self._drop(outputs[-1])
            state |= {"memory": memory, "keys": self.source_attention.keys(memory), "there": token_mask}
            state |= {"covered": (~token_mask).to(memory.dtype)}
            if self.config.attention == "luong" and self.config.input_feeding:
                state["fed"] = memory.new_zeros(len(memory), self.config.width)
        return state

    def _run_encoder(self, x: Tensor, token_mask: Tensor) -> tuple[list[Tensor], list[CellState]]:
        return self.encoder(self._drop(x), token_mask.sum(1))

    def reorder(self, state: State, rows: Tensor, searches: list[int] | None) -> State:
        before = len(next(iter(pytree.flatten(state["cells"])[0].values())))
        if searches is not None or len(rows) != before:
            return pytree.take(state, rows)
        moved = ("cells", "covered", "fed")  # the sources stay where they are
        return {key: pytree.take(part, rows) if key in moved else part for key, part in state.items()}

    # -------------------------------------------------------------------------------------------- the target

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """The target's embedding (B, T, E), and h (B, T, D), which the readout reads."""
        layers, _, state = self._decode(inputs, state)
        return layers, state

    @property
    def has_attention(self) -> bool:  # type: ignore[override]
        return self.source_attention is not None

    def attention(self, inputs: Inputs, state: State = None) -> Tensor:
        """(B, T, S): attention weights over the source while predicting each token after `inputs`."""
        if self.source_attention is None:
            raise Unsupported(
                'This network has no attention weights ([model] attention = "none").', ability="attention"
            )
        return self._decode(inputs, state)[1]

    def covered(self, state: State) -> Tensor:
        """(B, S): how much attention each source token has received; 1 at padding."""
        return state["covered"]

    def _decode(self, inputs: Inputs, state: State) -> tuple[list[Tensor], Tensor, State]:
        """Layers, attention weights (B, T, S), and the state."""
        state = dict(self.begin(inputs.source) if state is None else state)
        x = self._drop(self.embedding(inputs.ids))  # (B, T, E)
        if self.config.attention == "bahdanau":
            h, weights, state["cells"] = self._decode_bahdanau(x, state)
        elif self.config.attention == "luong" and self.config.input_feeding:
            h, weights, state["cells"] = self._decode_luong_feeding(x, state)
            state["fed"] = h[:, -1]
        else:
            h, weights, state["cells"] = self._decode_at_once(x, state)
        if self.source_attention is not None:
            state["covered"] = state["covered"] + weights.detach().sum(1)
        return [x, self._drop(h)], weights, state

    def _decode_bahdanau(self, x: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Attend before each step: c_t goes into the step."""
        stepper, seen = self._stepper(x, state), []
        for t in range(x.shape[1]):
            seen.append(self._attend(stepper.output.unsqueeze(1), state))  # c_t (B, 1, M), weights (B, 1, S)
            stepper.step(t, seen[-1][0].squeeze(1))
        context, weights = (torch.cat(parts, 1) for parts in zip(*seen, strict=True))
        h = self.out(torch.cat([torch.stack(stepper.outputs, 1), context, x], -1))
        return h.unflatten(-1, (-1, 2)).amax(-1), weights, stepper.states

    def _decode_luong_feeding(self, x: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Attend after each step, and feed h_t into the next one."""
        stepper, h, seen, outputs = self._stepper(x, state), state["fed"], [], []
        for t in range(x.shape[1]):
            stepper.step(t, h)
            context, weights = self._attend(stepper.output.unsqueeze(1), state)
            h = torch.tanh(self.out(torch.cat([context.squeeze(1), stepper.output], -1)))
            seen.append(weights)
            outputs.append(h)
        return torch.stack(outputs, 1), torch.cat(seen, 1), stepper.states

    def _decode_at_once(self, x: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Nothing of the attention goes into the next step: all steps in one kernel, then attention for all of them."""
        s, cells = self._run_decoder(x, state["cells"])
        if self.source_attention is None:
            return s, s.new_zeros(*s.shape[:2], 0), cells
        context, weights = self._attend(s, state)
        return torch.tanh(self.out(torch.cat([context, s], -1))), weights, cells

    def _run_decoder(self, x: Tensor, cells: Sequence[CellState]) -> tuple[Tensor, tuple[CellState, ...]]:
        """The decoder's layers without attention: (B, T, E) → s (B, T, D), and their last states."""
        s, new_cells = x.transpose(0, 1), []
        for i, (layer, cell) in enumerate(zip(self._layers(), cells, strict=True)):
            s, cell = layer(self._drop(s) if i else s, cell)
            new_cells.append(cell)
        return s.transpose(0, 1), tuple(new_cells)

    def _stepper(self, x: Tensor, state: Any) -> StepwiseDecoder:
        return StepwiseDecoder(self._layers(), x, state["cells"], self._drop)

    def _attend(self, query: Tensor, state: Any) -> tuple[Tensor, Tensor]:
        """(B, T, D) → the context (B, T, M), and the weights (B, T, S)."""
        assert self.source_attention is not None
        context, weights = self.source_attention(query, state["keys"], state["memory"], state["there"])
        return context, weights

    def _layers(self) -> list[RecurrentLayer]:
        return list(self.layers)  # type: ignore[arg-type]

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.config.dropout, self.training)


def _token_mask(source: Inputs) -> Tensor:
    return torch.ones_like(source.ids, dtype=torch.bool) if source.token_mask is None else source.token_mask
