"""AWD-LSTM: an ordinary LSTM, regularised everywhere it can be.

Merity, Keskar & Socher, "Regularizing and Optimizing LSTM Language Models" (2018). Against `lstm`: connections from
state to state are dropped (DropConnect, one mask a sequence, so the fused kernel still serves); dropout at the input,
between layers and at the output keeps its mask over time; whole words are dropped; the input and output matrices are
one, and the last layer is as wide as they are, whatever the layers before. The objective's penalties (AR on what leaves
the dropout, TAR on what enters it), the optimizer (NT-ASGD) and the varying lengths of sequences are in the recipe.

    E → words dropped → locked → LSTM 400→1150 → locked → 1150→1150 → locked → 1150→400 → locked → Eᵀ

`input_connections` drops connections from input to state too. `core = "gru"` replaces the LSTM, and so does "qrnn"
(Bradbury et al. 2016; its first layer sees two inputs at a time), which has no connections from state to state: there
`connections` drops from the one matrix that each layer has. `last` is the last layer's width where a readout leads from
it to the embedding's, as a mixture of softmaxes does (Yang et al. 2018). `bits = 8` is for reading: the layers have
their matrices in eight bits (layers/byte_lstm.py), and so has the embedding, unless another softmax than the full one
is tied to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Inputs, State, Vocabulary
from nextword.kernels.int8_lstm import Int8LSTM
from nextword.layers.dropout import locked, words
from nextword.layers.output import make_readout
from nextword.layers.output.mixture import MixtureOfSoftmaxes
from nextword.layers.output.softmax import TiedSoftmax
from nextword.layers.qrnn import QRNN
from nextword.layers.quantized import Int8Embedding, Int8TiedSoftmax
from nextword.layers.recurrent import RecurrentLayer
from nextword.models.base import CausalNetwork, check_bits, check_sizes

CORES = ("lstm", "gru", "qrnn")
SHARES = ("words", "input", "between", "output", "connections", "input_connections")  # that are dropped
LEADING = ("mixture",)  # readouts that lead from any width to the embedding's, to which they are tied


@dataclass(frozen=True)
class AWDConfig:
    embedding: int = 400
    width: int = 1150
    layers: int = 3
    last: int = 0  # width of the last layer; 0: the embedding's where the output is tied, else as the others
    core: str = "lstm"
    tied: bool = True
    words: float = 0.1  # dropout of whole words
    input: float = 0.4  # locked dropouts: of embeddings,
    between: float = 0.25  # between layers,
    output: float = 0.4  # and of the last layer
    connections: float = 0.5  # DropConnect from state to state,
    input_connections: float = 0.0  # and from input to state
    readout: Mapping[str, Any] = field(default_factory=dict)  # layers/outputs; empty: full softmax
    backward: bool = False  # texts are read from their last token to their first
    bits: int = 0  # 8: weights in eight bits, to be read with and not trained; 0: in 32

    def __post_init__(self) -> None:
        check_sizes(self)
        check_bits(self)
        if self.bits and self.core != "lstm":
            raise NextwordError(
                f"[model] bits = {self.bits} with core = {self.core!r}: a layer in eight bits is of core = 'lstm'. "
                "Leave bits out."
            )
        if self.core not in CORES:
            raise NextwordError(f"[model] core = {self.core!r}; expected one of {', '.join(CORES)}.")
        for name in SHARES:
            if not 0 <= getattr(self, name) < 1:
                raise NextwordError(
                    f"[model] {name} = {getattr(self, name)}: it is the share that is dropped, below 1."
                )
        if self.core == "qrnn" and self.input_connections:
            raise NextwordError(
                f"[model] input_connections = {self.input_connections}, but a layer of core = 'qrnn' has one matrix, "
                "which connections drops from: leave input_connections out."
            )
        kind = self.readout.get("kind", "full")
        if self.tied and kind not in LEADING and self.ends != self.embedding:
            raise NextwordError(
                f"[model] last = {self.last} cannot be tied to embedding = {self.embedding}: a readout of kind "
                f"'{kind}' needs both alike. Leave last out (the layer then ends at {self.embedding}), set embedding = "
                f"{self.last} or tied = false, or choose a readout of kind {' or '.join(LEADING)}."
            )

    @property
    def ends(self) -> int:
        """The last layer's width."""
        return self.last or (self.embedding if self.tied else self.width)


class AWDLSTM(CausalNetwork):
    Config = AWDConfig
    is_stateful = can_quantize = True

    def __init__(self, config: AWDConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.is_backward = config.backward
        widths = [config.embedding, *[config.width] * (config.layers - 1), config.ends]
        self.embedding: nn.Embedding | Int8Embedding = nn.Embedding(vocabulary.size, config.embedding)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.layers = nn.ModuleList(self.layer(i, *sizes) for i, sizes in enumerate(pairwise(widths)))
        tied = self.embedding if config.tied else None
        self.readout: Any = make_readout(config.ends, vocabulary, config.readout, tied)
        self.widths = [*widths, config.ends]
        if config.bits:
            self.quantize()

    @property
    def has_locked_dropout(self) -> bool:
        return any(getattr(self.config, name) for name in SHARES)

    def quantize(self) -> None:
        """From now on with weights in eight bits."""
        self.config = replace(self.config, bits=8)  # or an error: not every core is read so
        self._num_stored = self.num_parameters()
        self.layers = nn.ModuleList(Int8LSTM(cast(RecurrentLayer, layer)) for layer in self.layers)
        if self.config.tied and not isinstance(self.readout, TiedSoftmax):
            return  # such a readout computes with the embedding's matrix as it is
        embedding = Int8Embedding(cast(nn.Embedding, self.embedding))
        if self.config.tied:
            self.readout = Int8TiedSoftmax(embedding, self.readout.bias)
        self.embedding = embedding

    def layer(self, place: int, inputs: int, width: int) -> RecurrentLayer | QRNN:
        c = self.config
        if c.core == "qrnn":
            return QRNN(inputs, width, window=1 if place else 2, drop=c.connections)
        return RecurrentLayer(c.core, inputs, width, drop=(c.input_connections, c.connections))

    def initial(self, batch: int) -> State:
        return tuple(cast(RecurrentLayer, layer).start(batch) for layer in self.layers)

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """Embedding, each layer as it is, and at the end the last layer after its dropout, which the readout reads."""
        c = self.config
        memories = self.initial(len(inputs.ids)) if state is None else state
        x = words(self.embedding, inputs.ids.t(), c.words, self.training)  # (T, B, D)
        outputs, after = [x], []
        shares = [c.input] + [c.between] * (c.layers - 1)
        for layer, memory, share in zip(self.layers, memories, shares, strict=True):
            x, memory = layer(locked(x, share, self.training), memory)
            outputs.append(x)
            after.append(memory)
        outputs.append(locked(x, c.output, self.training))
        if isinstance(self.readout, MixtureOfSoftmaxes):
            self.readout.rows = len(inputs.ids)  # so that it can lock a mask of its own
        return [y.transpose(0, 1) for y in outputs], tuple(after)

    def regularized_activations(self, layers: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The last layer before and after its dropout, for penalties on activations."""
        return layers[-2], layers[-1]
