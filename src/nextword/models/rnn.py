"""Recurrent language models: the Elman net of Mikolov 2010 (`rnn`), the GRU (`gru`) and the LSTM (`lstm`).

    x_t = E[w_t]                       embedding
    h_t = cell(x_t, h_{t−1})           one or more layers, each reading the one below
    p(w_{t+1}) = softmax(V h_t + b)

Elman, "Finding Structure in Time" (1990); Mikolov et al., "Recurrent neural network based language model" (2010);
Cho et al. (2014); Hochreiter & Schmidhuber, "Long Short-Term Memory" (1997). Dropout as Zaremba, Sutskever & Vinyals,
"Recurrent Neural Network Regularization" (2014): on what goes up, never on what goes through time. The `leak` of the
plain net is the leaky integration h = α h' + (1 − α) f(x, h'). With `direct`, the last words also speak to the output
past the hidden layer (Mikolov et al. 2011, RNNME; see layers/direct.py).

Against NPLM: no window. All of the past goes through one vector, so a step costs the same at any length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Inputs, State, Vocabulary
from nextword.layers.char_cnn import make_embedding
from nextword.layers.output import make_readout
from nextword.layers.output.maxent_ngram import with_direct
from nextword.layers.recurrent import RecurrentLayer
from nextword.models.base import CausalNetwork, check_sizes


@dataclass(frozen=True)
class RecurrentConfig:
    width: int = 200
    layers: int = 1
    embedding: int = 0  # 0: the same as width
    dropout: float = 0.0
    tied: bool = False  # output matrix = embedding (Press & Wolf 2017)
    characters: Mapping[str, Any] = field(default_factory=dict)  # vectors of words from letters; empty: from a table
    readout: Mapping[str, Any] = field(default_factory=dict)  # layers/outputs; empty: full softmax
    direct: Mapping[str, Any] = field(default_factory=dict)  # n-grams to the output, { size, order }; empty: none
    backward: bool = False  # texts are read from their last token to their first

    def __post_init__(self) -> None:
        check_sizes(self)


@dataclass(frozen=True)
class ElmanConfig(RecurrentConfig):
    activation: str = "tanh"  # or "relu"
    leak: float = 0.0  # α


class Recurrent(CausalNetwork):
    Config: ClassVar[type[RecurrentConfig]] = RecurrentConfig
    kind: ClassVar[str]
    is_stateful = True

    def __init__(self, config: RecurrentConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.is_backward = config.backward
        embedding = config.embedding or config.width
        if config.tied and embedding != config.width:
            raise NextwordError(
                f"A tied output needs embedding = width, but the recipe says {embedding} and {config.width}. "
                "Set both alike, or tied = false."
            )
        self.embedding = make_embedding(embedding, vocabulary, config.characters)
        if config.tied and not isinstance(self.embedding, nn.Embedding):
            raise NextwordError("An input by characters has no matrix to tie the output to: set tied = false.")
        inputs = [embedding] + [config.width] * (config.layers - 1)
        self.layers = nn.ModuleList(self.layer(width) for width in inputs)
        tied = self.embedding if isinstance(self.embedding, nn.Embedding) and config.tied else None
        readout = make_readout(config.width, vocabulary, config.readout, tied)
        self.readout: Any = with_direct(readout, vocabulary.size, config.direct)
        self.widths = [embedding] + [config.width] * config.layers

    def layer(self, inputs: int) -> RecurrentLayer:
        return RecurrentLayer(self.kind, inputs, self.config.width)

    def initial(self, batch: int) -> State:
        memories = tuple(cast(RecurrentLayer, layer).start(batch) for layer in self.layers)
        return {"layers": memories, "words": self.readout.begin(batch)} if self.config.direct else memories

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """With direct connections the last layer has the last words beside it, for the readout."""
        drop = self.config.dropout
        state = self.initial(len(inputs.ids)) if state is None else state
        memories = state["layers"] if self.config.direct else state
        x = F.dropout(self.embedding(inputs.ids.t()), drop, self.training)  # (T, B, D): time first, as the kernels like
        outputs, after = [x.transpose(0, 1)], []
        for layer, memory in zip(self.layers, memories, strict=True):
            x, memory = layer(x, memory)
            x = F.dropout(x, drop, self.training)
            outputs.append(x.transpose(0, 1))  # (B, T, D)
            after.append(memory)
        if self.config.direct:
            outputs[-1], words = self.readout.beside(outputs[-1], inputs.ids, state["words"])
            return outputs, {"layers": tuple(after), "words": words}
        return outputs, tuple(after)

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        layers, state = self.hidden(inputs, state)
        return [layer[..., :width] for layer, width in zip(layers, self.widths, strict=True)], state


class RNN(Recurrent):
    Config = ElmanConfig

    def layer(self, inputs: int) -> RecurrentLayer:
        config = self.config
        if config.activation not in ("tanh", "relu"):
            raise NextwordError(f"activation = '{config.activation}' is unknown. Use 'tanh' or 'relu'.")
        if not 0 <= config.leak < 1:
            raise NextwordError(f"leak = {config.leak} is not a share of the old state. Use 0 (none) up to below 1.")
        return RecurrentLayer(config.activation, inputs, config.width, config.leak)


class GRU(Recurrent):
    kind = "gru"


class LSTM(Recurrent):
    kind = "lstm"
