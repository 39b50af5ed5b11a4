"""ELMo: two language models, one from each side, whose inner vectors are words in their context.

Peters, Neumann, Iyyer, Gardner, Clark, Lee & Zettlemoyer, "Deep contextualized word representations" (2018).

    letters of each word ─ CNN, highway, projection ─▶ x_k                                    shared by both sides
    forward    x_1 … x_k ─▶ LSTM ─▶ LSTM, + its input ─▶ p(w_{k+1} | w_1 … w_k)               ⎫ one softmax
    backward   x_N … x_k ─▶ LSTM ─▶ LSTM, + its input ─▶ p(w_{k−1} | w_k … w_N)               ⎭

    J = −Σ_k log p(w_k | w_1 … w_{k−1}) + log p(w_k | w_{k+1} … w_N)

Against `lstm`: words are read by their letters, so any word has a vector; states are short projections of many cells,
and both are kept within limits (layers/projected.py); from the second layer on a layer's input is added to its output;
and there is a second model that reads from right to left. The two never see each other's states: that would be one
network which looks at the answer. Only their vectors lie side by side afterwards. `encode` gives those of a text,
h_{k,0} = [x_k; x_k] and h_{k,j} = [forward; backward] of each layer j: 2L + 1 vectors for each word, to be mixed
(layers/mix.py).

`hidden`, `step` and `score` are the forward model; `backward()` is the other one, over texts that are turned round.
`both` runs the two side by side, for training. Of the words that are read by their letters the first `written` can be
predicted; the others count as unknown there (layers/outputs/partial.py). Dropout is on what enters each layer and on
what leaves the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import NextwordError
from nextword.core.types import Encoding, FramedText, Inputs, State, Vocabulary
from nextword.layers.bilstm import ProjectedLSTM, ProjectedState
from nextword.layers.char_cnn import from_letters, spelled
from nextword.layers.output import make_readout
from nextword.layers.output.base import NoReadout
from nextword.layers.output.char import PartialReadout
from nextword.models.base import CausalNetwork, check_sizes
from nextword.models.framing import frame_texts

FORWARD, BACKWARD = 0, 1


@dataclass(frozen=True)
class ELMoConfig:
    width: int = 512  # of words and of what each layer gives, on one side
    cells: int = 4096
    layers: int = 2
    cell_clip: float = 3.0  # 0: no limit
    projection_clip: float = 3.0
    skip: bool = True  # a layer's input is added to its output, from the second layer on
    dropout: float = 0.1
    characters: Mapping[str, Any] = field(default_factory=dict)  # layers/characters.py; empty: as the paper's
    written: int = 0  # words that can be predicted, the first of the vocabulary; 0: all
    readout: Mapping[str, Any] = field(default_factory=dict)  # layers/outputs; empty: full softmax
    begins: bool = False  # a text begins with a mark of its own, as in the published weights; else with that of an end

    def __post_init__(self) -> None:
        check_sizes(self)
        for name in ("cell_clip", "projection_clip"):
            if getattr(self, name) < 0:
                raise NextwordError(f"[model] {name} = {getattr(self, name)}: it is a limit above 0, or 0 for none.")


class ELMo(CausalNetwork):
    Config = ELMoConfig
    is_bidirectional = True  # of `encode`: a word's vectors are made of all the text
    is_open_vocabulary = has_two_directions = True

    def __init__(self, config: ELMoConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        words = replace(vocabulary, pieces=bare(vocabulary.pieces))
        self.begin = vocabulary.size if config.begins else vocabulary.begin
        self.embedding = from_letters(config.width, beginning(words) if config.begins else words, config.characters)
        self.known = self.embedding.cnn.size  # ids from here on are words of `Inputs.characters`
        self.layers = nn.ModuleList(
            ProjectedLSTM(config.width, config.cells, config.width, 2, config.cell_clip, config.projection_clip)
            for _ in range(config.layers)
        )
        self.output_size = written = min(config.written or vocabulary.size, vocabulary.size)
        predicted = replace(words, size=written, pieces=words.pieces[:written])
        unknown = next((id for name, id in vocabulary.special.items() if "unk" in name.lower()), 0)
        readout = make_readout(config.width, predicted, config.readout)
        self.readout: Any = PartialReadout(readout, written, vocabulary.size, unknown)
        self.has_output_layer = not isinstance(readout, NoReadout)  # without a readout it gives vectors alone
        self.widths = [2 * config.width] * (config.layers + 1)

    def initial(self, batch: int) -> State:
        """Of so many rows; for `both`, of the rows of both sides together."""
        return tuple(cast(ProjectedLSTM, layer).start(batch) for layer in self.layers)

    # -------------------------------------------------------------------------------------------- one side, or both

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """The forward model alone: words, and each layer, (B, T, width)."""
        return self.one_side(inputs, state, FORWARD)

    def one_side(self, inputs: Inputs, state: State, side: int) -> tuple[list[Tensor], State]:
        """One model alone. To the backward one the text is given turned round."""
        layers, state = self._run(self.of_words(inputs).transpose(0, 1).unsqueeze(0), state, side)
        return [layer[0].transpose(0, 1) for layer in layers], state

    def both(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """(2B, T): B rows for the forward model, and B rows for the backward one, turned round. Each (2B, T, width)."""
        x = self.of_words(inputs).unflatten(0, (2, -1)).transpose(1, 2)  # (2, T, B, width)
        layers, state = self._run(x, state, None)
        return [layer.transpose(1, 2).flatten(0, 1) for layer in layers], state

    def of_words(self, inputs: Inputs) -> Tensor:
        """(B, T, width): words by the letters of their ids, or, past those, by the letters that come with them."""
        ids = inputs.ids
        if inputs.characters is None:
            return self.embedding(ids)
        new = ids >= self.known
        others = self.embedding.cnn.of_letters(inputs.characters)  # (K, width)
        x = self.embedding(ids.masked_fill(new, self.begin))
        return torch.where(new.unsqueeze(-1), F.embedding((ids - self.known).clamp(min=0), others).to(x.dtype), x)

    def spell(self, words: Sequence[bytes]) -> Tensor:
        """(K, L): the letters of words, for `Inputs.characters`. Of a word too long the beginning is read."""
        cnn = self.embedding.cnn
        return torch.from_numpy(spelled([list(word) for word in words], cnn.longest, cnn.widest)).to(self.device)

    def _run(
        self, x: Tensor, state: State, side: int | None, inside: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """(S, T, B, width) through the layers, of all sides or of one."""
        drop = self.config.dropout
        memories = self.initial(x.shape[0] * x.shape[2]) if state is None else state
        outputs, after = [x], []
        for i, (layer, memory) in enumerate(zip(self.layers, memories, strict=True)):
            entered = F.dropout(x, drop, self.training)
            x, memory = layer(entered, memory, side, inside)
            if i and self.config.skip:
                x = x + entered
            outputs.append(x)
            after.append(cast(ProjectedState, memory))
        outputs[-1] = F.dropout(x, drop, self.training)
        return outputs, tuple(after)

    def backward_model(self) -> Backward:
        """The model from right to left, for texts that are turned round."""
        return Backward(self)

    # -------------------------------------------------------------------------------------------- words in context

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """(B, T, 2 · width) each: [x; x], and [forward; backward] of each layer. Rows are padded at their end.

        The state, where one is given, is carried by both sides: what the forward model has read before this text, and
        the backward model too, although it read another one; so did the paper's own code from batch to batch.
        """
        x = self.of_words(inputs).transpose(0, 1)  # (T, B, width)
        inside = None if inputs.token_mask is None else inputs.token_mask.t()
        turn = turned(inputs.token_mask, inputs.ids).t().unsqueeze(-1).expand_as(x)
        layers, state = self._run(torch.stack([x, x.gather(0, turn)]), state, None, inside)
        pairs = [torch.cat([forward, back.gather(0, turn)], -1) for forward, back in layers]
        return [pair.transpose(0, 1) for pair in pairs], state

    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText:
        """A text between the marks of its beginning and its end: what the forward and the backward model read first."""
        end = self.vocabulary.begin if self.vocabulary.end is None else self.vocabulary.end
        return frame_texts([a] if b is None else [a, b], ((self.begin,), (end,), (end,)))


class Backward(CausalNetwork):
    """The backward model of an ELMo as a model of its own: it reads texts that are turned round, and has no weights."""

    def __init__(self, network: ELMo) -> None:
        super().__init__(network.config, network.vocabulary)
        self.owner = (network,)  # in a tuple, so that the weights belong to one network alone
        self.widths = [network.config.width] * (network.config.layers + 1)
        object.__setattr__(self, "readout", network.readout)  # not registered: the weights belong to one network

    @property
    def device(self) -> torch.device:
        return self.owner[0].device

    def initial(self, batch: int) -> State:
        return self.owner[0].initial(batch)

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        return self.owner[0].one_side(inputs, state, BACKWARD)


def turned(padding: Tensor | None, ids: Tensor) -> Tensor:
    """(B, T): where each row's tokens are found from its end on; padding stays where it is."""
    at = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    if padding is None:
        return at.flip(1)
    return torch.where(padding, padding.sum(1, keepdim=True) - 1 - at, at)


def beginning(vocabulary: Vocabulary) -> Vocabulary:
    """With one token more, at its end: the beginning of a text."""
    special = {**vocabulary.special, "<beginning>": vocabulary.size}
    return replace(vocabulary, size=vocabulary.size + 1, special=special, pieces=[*vocabulary.pieces, b""])


def bare(pieces: Sequence[bytes]) -> Sequence[bytes]:
    """Spellings of words without the space before them, unless that would make two of them alike, as of sub-words."""
    found = [piece.removeprefix(b" ") for piece in pieces]
    return found if len(set(found)) == len(found) else pieces
