"""AWD-LSTM: an ordinary LSTM, regularized everywhere it can be.

Merity, Keskar & Socher, "Regularizing and Optimizing LSTM Language Models" (2018).

    E → drop words → locked → LSTM 400→1150 → locked → 1150→1150 → locked → 1150→400 → locked → Eᵀ

Differences from the LSTM (rnn.py):
- DropConnect on the recurrent weights, one mask per sequence, so that the fused kernel still applies;
- locked dropout (one mask for all time steps) of the input, between layers and of the output; dropout of whole words;
- input and output matrix are one, and the last layer is as wide as the embedding;
- in the recipe: penalties on activations (AR, TAR), NT-ASGD, sequences of varying length.

Options: `input_weight_dropout` is DropConnect on the input weights. `cell = "gru"` or "qrnn" (Bradbury et al. 2016)
replaces the LSTM; a QRNN has one matrix per layer, which `weight_dropout` drops from, and its first layer sees two
inputs at a time. `last_width` is the last layer's width where the readout maps it to the embedding's, as a mixture of
softmaxes does (Yang et al. 2018). `bits = 8` stores the layers, and the embedding unless another readout is tied to it,
as int8, for inference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

from torch import Tensor, nn

from nextword.core.errors import invalid
from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers.dropout import drop_words, locked_dropout
from nextword.layers.output import make_readout
from nextword.layers.output.mixture import MixtureOfSoftmaxes
from nextword.layers.output.softmax import TiedSoftmax
from nextword.layers.qrnn import QRNN
from nextword.layers.quantized import Int8Embedding, Int8LSTM, Int8TiedSoftmax
from nextword.layers.recurrent import CellTrace, RecurrentLayer, trace_layers
from nextword.models.base import CausalNetwork, check_bits, check_choice, check_fraction, check_sizes

CELLS = ("lstm", "gru", "qrnn")
DROPOUTS = (
    "word_dropout",
    "input_dropout",
    "layer_dropout",
    "output_dropout",
    "weight_dropout",
    "input_weight_dropout",
)
PROJECTING = ("mixture",)  # kinds of readouts that map any width to that of the embedding they are tied to


@dataclass(frozen=True)
class AWDConfig:
    embedding: int = 400
    width: int = 1150
    layers: int = 3
    last_width: int = 0  # width of the last layer; 0: the embedding's where the output is tied, else `width`
    cell: str = "lstm"
    tied: bool = True
    word_dropout: float = 0.1  # dropout of whole words
    input_dropout: float = 0.4  # locked dropout of embeddings,
    layer_dropout: float = 0.25  # between layers,
    output_dropout: float = 0.4  # and of the last layer
    weight_dropout: float = 0.5  # DropConnect of the recurrent weights,
    input_weight_dropout: float = 0.0  # and of the input weights
    readout: Mapping[str, Any] = field(default_factory=dict)  # see layers/output; empty: full softmax
    backward: bool = False  # read texts from the last token to the first
    bits: int = 0  # 8: int8 weights, for inference only; 0: float32

    def __post_init__(self) -> None:
        check_sizes(self)
        check_bits(self)
        check_choice(self, "cell", CELLS)
        check_fraction(self, *DROPOUTS)
        if self.bits and self.cell != "lstm":
            raise invalid("model.bits", self.bits, f"needs cell = 'lstm', not {self.cell!r}. Leave bits out.")
        if self.cell == "qrnn" and self.input_weight_dropout:
            problem = "needs separate input weights, but a QRNN has none. Use weight_dropout instead."
            raise invalid("model.input_weight_dropout", self.input_weight_dropout, problem)
        kind = self.readout.get("kind", "full")
        if self.tied and kind not in PROJECTING and self.output_width != self.embedding:
            problem = (
                f"cannot be tied to embedding = {self.embedding} by a readout of kind '{kind}'. Leave last_width out, "
                f"set tied = false, or use a readout of kind {' or '.join(PROJECTING)}."
            )
            raise invalid("model.last_width", self.last_width, problem)

    @property
    def output_width(self) -> int:
        return self.last_width or (self.embedding if self.tied else self.width)


class AWDLSTM(CausalNetwork):
    Config = AWDConfig
    is_stateful = is_recurrent = can_quantize = True

    def __init__(self, config: AWDConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.is_backward = config.backward
        widths = [config.embedding, *[config.width] * (config.layers - 1), config.output_width]
        self.embedding = nn.Embedding(vocabulary.size, config.embedding)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.layers = nn.ModuleList(self._build_layer(i, *sizes) for i, sizes in enumerate(pairwise(widths)))
        self.readout = make_readout(
            config.output_width, vocabulary, config.readout, self.embedding if config.tied else None
        )
        self.widths = [*widths, config.output_width]
        if config.bits:
            self.quantize()

    def _build_layer(self, index: int, inputs: int, width: int) -> RecurrentLayer | QRNN:
        c = self.config
        if c.cell == "qrnn":
            return QRNN(inputs, width, window=1 if index else 2, drop=c.weight_dropout)
        return RecurrentLayer(c.cell, inputs, width, drop=(c.input_weight_dropout, c.weight_dropout))

    def initial(self, batch: int) -> State:
        return tuple(cast(RecurrentLayer, layer).start(batch) for layer in self.layers)

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """The embedding, each layer, and the last layer after dropout, which the readout reads: (B, T, D) each."""
        c = self.config
        state = self.initial(len(inputs.ids)) if state is None else state
        x = drop_words(self.embedding, inputs.ids.t(), c.word_dropout, self.training)  # (T, B, D)
        layers, new_state = [x], []
        dropouts = [c.input_dropout] + [c.layer_dropout] * (c.layers - 1)
        for layer, cell, dropout in zip(self.layers, state, dropouts, strict=True):
            x, cell = layer(locked_dropout(x, dropout, self.training), cell)
            layers.append(x)
            new_state.append(cell)
        layers.append(locked_dropout(x, c.output_dropout, self.training))
        if isinstance(self.readout, MixtureOfSoftmaxes):
            self.readout.rows = len(inputs.ids)  # so that it can lock a mask of its own
        return [y.transpose(0, 1) for y in layers], tuple(new_state)

    def trace(self, inputs: Inputs) -> tuple[list[list[CellTrace]], Tensor]:
        traces, x = trace_layers(self.layers, self.embedding(inputs.ids.t()))
        return [[trace] for trace in traces], x.transpose(0, 1)

    def regularized_activations(self, layers: list[Tensor]) -> tuple[Tensor, Tensor]:
        return layers[-2], layers[-1]

    @property
    def has_locked_dropout(self) -> bool:  # type: ignore[override]
        return any(vars(self.config)[name] for name in DROPOUTS)

    # -------------------------------------------------------------------------------------------- int8

    @property
    def is_quantized(self) -> bool:
        return bool(self.config.bits)

    def quantize(self) -> None:
        self.config = replace(self.config, bits=8)  # raises an error unless cell = "lstm"
        self._num_stored = self.num_parameters()
        self.layers = nn.ModuleList(Int8LSTM(cast(RecurrentLayer, layer)) for layer in self.layers)
        if self.config.tied and not isinstance(self.readout, TiedSoftmax):
            return  # other readouts compute with the embedding matrix itself
        embedding = Int8Embedding(self.embedding)
        if self.config.tied:
            self.readout = Int8TiedSoftmax(embedding, self.readout.bias)
        self.embedding = embedding
