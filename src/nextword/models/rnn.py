"""Recurrent language models: the Elman network of Mikolov 2010 (`rnn`), the GRU (`gru`) and the LSTM (`lstm`).

    x_t = E[w_t]                       embedding
    h_t = cell(x_t, h_{t−1})           one or more layers, each reading the one below (layers/recurrent.py)
    p(w_{t+1}) = softmax(V h_t + b)

Elman, "Finding Structure in Time" (1990); Mikolov et al., "Recurrent neural network based language model" (2010); Cho
et al. (2014); Hochreiter & Schmidhuber, "Long Short-Term Memory" (1997).

Difference from NPLM (nplm.py): no window. All of the past goes through one vector, so a step costs the same at any
length.

Options: dropout as in Zaremba, Sutskever & Vinyals, "Recurrent Neural Network Regularization" (2014), between layers
and never through time. The `leak` α of the Elman network averages old and new states, h = α h' + (1 − α) f(x, h').
`direct` connects the last words to the output, past the hidden layer (Mikolov et al. 2011;
layers/output/maxent_ngram.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import InvalidSetting
from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers.char_cnn import make_embedding
from nextword.layers.output import make_readout
from nextword.layers.output.maxent_ngram import with_direct
from nextword.layers.recurrent import CellTrace, RecurrentLayer, trace_layers
from nextword.models.base import CausalNetwork, check_choice, check_fraction, check_sizes


@dataclass(frozen=True)
class RecurrentConfig:
    width: int = 200
    layers: int = 1
    embedding: int = 0  # 0: the same as width
    dropout: float = 0.0
    tied: bool = False  # output matrix = embedding (Press & Wolf 2017)
    characters: Mapping[str, Any] = field(default_factory=dict)  # word vectors from characters (char_cnn.py); empty: no
    readout: Mapping[str, Any] = field(default_factory=dict)  # see layers/output; empty: full softmax
    direct: Mapping[str, Any] = field(default_factory=dict)  # n-gram features, { size, order }; empty: none
    backward: bool = False  # read texts from the last token to the first

    def __post_init__(self) -> None:
        check_sizes(self)


@dataclass(frozen=True)
class ElmanConfig(RecurrentConfig):
    activation: str = "tanh"  # or "relu"
    leak: float = 0.0  # α

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "activation", ("tanh", "relu"))
        check_fraction(self, "leak")


class RecurrentNetwork(CausalNetwork):
    Config: ClassVar[type[RecurrentConfig]] = RecurrentConfig
    cell: ClassVar[str]  # of layers/recurrent.py
    is_stateful = is_recurrent = True

    def __init__(self, config: RecurrentConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.is_backward = config.backward
        embedding = config.embedding or config.width
        if config.tied and embedding != config.width:
            raise InvalidSetting(
                f"[model] tied = true needs embedding = width, but they are {embedding} and {config.width}. Make them "
                "equal, or set tied = false.",
                key="model.embedding",
                value=embedding,
            )
        self.embedding = make_embedding(embedding, vocabulary, config.characters)
        if config.tied and not isinstance(self.embedding, nn.Embedding):
            raise InvalidSetting(
                "[model] characters leaves no embedding matrix to tie the output to. Set tied = false.",
                key="model.tied",
                value=True,
            )
        inputs = [embedding] + [config.width] * (config.layers - 1)
        self.layers = nn.ModuleList(self.build_layer(width) for width in inputs)
        readout = make_readout(config.width, vocabulary, config.readout, self.embedding if config.tied else None)
        self.readout = with_direct(readout, vocabulary.size, config.direct)
        self.widths = [embedding] + [config.width] * config.layers

    def build_layer(self, inputs: int) -> RecurrentLayer:
        return RecurrentLayer(self.cell, inputs, self.config.width)

    def initial(self, batch: int) -> State:
        cells = tuple(cast(RecurrentLayer, layer).start(batch) for layer in self.layers)
        return {"layers": cells, "words": self.readout.begin(batch)} if self.config.direct else cells

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """The embedding and each layer (B, T, D). With `direct`, the last words are appended to the last layer."""
        drop = self.config.dropout
        state = self.initial(len(inputs.ids)) if state is None else state
        cells = state["layers"] if self.config.direct else state
        x = F.dropout(self.embedding(inputs.ids.t()), drop, self.training)  # (T, B, D): time first, as kernels want it
        layers, new_cells = [x.transpose(0, 1)], []
        for layer, cell in zip(self.layers, cells, strict=True):
            x, cell = layer(x, cell)
            x = F.dropout(x, drop, self.training)
            layers.append(x.transpose(0, 1))  # (B, T, D)
            new_cells.append(cell)
        if self.config.direct:
            layers[-1], words = self.readout.append_words(layers[-1], inputs.ids, state["words"])
            return layers, {"layers": tuple(new_cells), "words": words}
        return layers, tuple(new_cells)

    def trace(self, inputs: Inputs) -> tuple[list[list[CellTrace]], Tensor]:
        traces, x = trace_layers(self.layers, self.embedding(inputs.ids.t()))
        h = x.transpose(0, 1)
        if self.config.direct:
            h, _ = self.readout.append_words(h, inputs.ids, self.readout.begin(len(inputs.ids)))
        return [[trace] for trace in traces], h

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        layers, state = self.hidden(inputs, state)
        return [layer[..., :width] for layer, width in zip(layers, self.widths, strict=True)], state


class RNN(RecurrentNetwork):
    """h_t = tanh(W x_t + U h_{t−1} + b), or relu."""

    Config = ElmanConfig

    def build_layer(self, inputs: int) -> RecurrentLayer:
        return RecurrentLayer(self.config.activation, inputs, self.config.width, self.config.leak)


class GRU(RecurrentNetwork):
    cell = "gru"


class LSTM(RecurrentNetwork):
    cell = "lstm"
