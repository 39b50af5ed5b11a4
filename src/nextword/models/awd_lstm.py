"""AWD-LSTM: an ordinary LSTM, regularised everywhere it can be.

Merity, Keskar & Socher, "Regularizing and Optimizing LSTM Language Models" (2018). Against `lstm`: connections from
state to state are dropped (DropConnect, one mask a sequence, so the fused kernel still serves); dropout at the input,
between layers and at the output keeps its mask over time; whole words are dropped; the input and output matrices are
one, and the last layer is as wide as they are, whatever the layers before. The objective's penalties (AR on what leaves
the dropout, TAR on what enters it), the optimizer (NT-ASGD) and the varying lengths of sequences are in the recipe.

    E → words dropped → locked → LSTM 400→1150 → locked → 1150→1150 → locked → 1150→400 → locked → Eᵀ

`core = "gru"` replaces the LSTM; `input_connections` drops connections from input to state too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

from torch import Tensor, nn

from nextword.contract import Inputs, NextwordError, State, Vocabulary
from nextword.layers.dropout import locked, words
from nextword.layers.outputs import make_readout
from nextword.layers.recurrent import Layer
from nextword.models.causal import CausalNetwork, check_sizes

CORES = ("lstm", "gru")


@dataclass(frozen=True)
class AWDConfig:
    embedding: int = 400
    width: int = 1150
    layers: int = 3
    core: str = "lstm"
    tied: bool = True
    words: float = 0.1  # dropout of whole words
    input: float = 0.4  # locked dropouts: of embeddings,
    between: float = 0.25  # between layers,
    output: float = 0.4  # and of the last layer
    connections: float = 0.5  # DropConnect from state to state,
    input_connections: float = 0.0  # and from input to state
    readout: Mapping[str, Any] = field(default_factory=dict)  # layers/outputs; empty: full softmax

    def __post_init__(self) -> None:
        check_sizes(self)
        if self.core not in CORES:
            raise NextwordError(f"[model] core = {self.core!r}; expected one of {', '.join(CORES)}.")
        for name in ("words", "input", "between", "output", "connections", "input_connections"):
            if not 0 <= getattr(self, name) < 1:
                raise NextwordError(
                    f"[model] {name} = {getattr(self, name)}: it is the share that is dropped, below 1."
                )


class AWDLSTM(CausalNetwork):
    Config = AWDConfig

    def __init__(self, config: AWDConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        last = config.embedding if config.tied else config.width
        widths = [config.embedding, *[config.width] * (config.layers - 1), last]
        self.embedding = nn.Embedding(vocabulary.size, config.embedding)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.layers = nn.ModuleList(
            Layer(config.core, inputs, width, drop=(config.input_connections, config.connections))
            for inputs, width in pairwise(widths)
        )
        tied = self.embedding if config.tied else None
        self.readout: Any = make_readout(last, vocabulary, config.readout, tied)
        self.widths = [*widths, last]

    def initial(self, batch: int) -> State:
        return tuple(cast(Layer, layer).start(batch) for layer in self.layers)

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
        return [y.transpose(0, 1) for y in outputs], tuple(after)

    def last(self, layers: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The last layer before and after its dropout, for penalties on activations."""
        return layers[-2], layers[-1]
