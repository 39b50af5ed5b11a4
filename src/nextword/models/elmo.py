"""ELMo: two language models, one from each end of the text, whose hidden vectors represent words in context.

Peters, Neumann, Iyyer, Gardner, Clark, Lee & Zettlemoyer, "Deep contextualized word representations" (2018).

    characters of each word ─ CNN, highway, projection ─▶ x_k                                 shared by both models
    forward    x_1 … x_k ─▶ LSTM ─▶ LSTM, + its input ─▶ p(w_{k+1} | w_1 … w_k)               ⎫ one softmax
    backward   x_N … x_k ─▶ LSTM ─▶ LSTM, + its input ─▶ p(w_{k−1} | w_k … w_N)               ⎭

    J = −Σ_k [log p(w_k | w_1 … w_{k−1}) + log p(w_k | w_{k+1} … w_N)]

Differences from the LSTM (rnn.py):
- words are read by their characters, so that any word has a vector (layers/char_cnn.py);
- states are narrow projections of many cells, with limits on both (layers/recurrent.py);
- from the second layer on, a layer's input is added to its output;
- a second model reads from right to left. The two never see each other's states, which would reveal the answer.

`encode` concatenates both models: h_{k,0} = [x_k; x_k] and h_{k,j} = [forward; backward] of each layer j, to be mixed
by a task (layers/scalar_mix.py). `hidden`, `step` and `score` are the forward model; `backward_model()` is the other
one, over reversed texts; `both` runs the two side by side, for training. The model reads any word, but predicts only
the first `output_words` of the vocabulary; the others count as unknown (layers/output/char.py). Dropout is applied to
each layer's input and to the last layer's output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nextword.core.errors import invalid
from nextword.core.types import Encoding, FramedText, Inputs, State, Vocabulary
from nextword.layers.char_cnn import make_character_embedding, spell_words
from nextword.layers.output import make_readout
from nextword.layers.output.base import NoReadout
from nextword.layers.output.char import PartialReadout
from nextword.layers.recurrent import CellTrace, ProjectedLSTM, ProjectedState
from nextword.models.base import CausalNetwork, check_sizes
from nextword.models.framing import frame_texts

FORWARD, BACKWARD = 0, 1


@dataclass(frozen=True)
class ELMoConfig:
    width: int = 512  # of word vectors, and of each layer's output in one direction
    cell_size: int = 4096
    layers: int = 2
    cell_clip: float = 3.0  # 0: no limit
    projection_clip: float = 3.0
    residual: bool = True  # add a layer's input to its output, from the second layer on
    dropout: float = 0.1
    characters: Mapping[str, Any] = field(default_factory=dict)  # see layers/char_cnn.py; empty: as in the paper
    output_words: int = 0  # words that can be predicted, the first of the vocabulary; 0: all
    readout: Mapping[str, Any] = field(default_factory=dict)  # see layers/output; empty: full softmax
    begin_token: bool = False  # texts begin with a token of their own, as in the published weights; else the end token

    def __post_init__(self) -> None:
        check_sizes(self)
        for key, value in (("cell_clip", self.cell_clip), ("projection_clip", self.projection_clip)):
            if value < 0:
                raise invalid(f"model.{key}", value, "must be a positive limit, or 0 for none.")


class ELMo(CausalNetwork):
    Config = ELMoConfig
    is_bidirectional = True  # of `encode`
    is_open_vocabulary = has_two_directions = is_recurrent = True

    def __init__(self, config: ELMoConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        words = replace(vocabulary, pieces=_without_spaces(vocabulary.pieces))
        self.begin = vocabulary.size if config.begin_token else vocabulary.begin
        spelled = _with_begin_token(words) if config.begin_token else words
        self.embedding = make_character_embedding(config.width, spelled, config.characters)
        self.known = self.embedding.cnn.size  # ids from here on are words of `Inputs.characters`
        self.layers = nn.ModuleList(
            ProjectedLSTM(config.width, config.cell_size, config.width, 2, config.cell_clip, config.projection_clip)
            for _ in range(config.layers)
        )
        self.output_size = min(config.output_words or vocabulary.size, vocabulary.size)
        predicted = replace(words, size=self.output_size, pieces=words.pieces[: self.output_size])
        unknown = next((id for name, id in vocabulary.special.items() if "unk" in name.lower()), 0)
        readout = make_readout(config.width, predicted, config.readout)
        self.readout = PartialReadout(readout, self.output_size, vocabulary.size, unknown)
        self.has_output_layer = not isinstance(readout, NoReadout)
        self.widths = [2 * config.width] * (config.layers + 1)

    def embed(self, inputs: Inputs) -> Tensor:
        """x (B, T, width): vectors of ids, or of the characters of words without an id."""
        ids = inputs.ids
        if inputs.characters is None:
            return self.embedding(ids)
        is_new = ids >= self.known
        new = self.embedding.cnn.from_characters(inputs.characters)  # (K, width)
        x = self.embedding(ids.masked_fill(is_new, self.begin))
        return torch.where(is_new.unsqueeze(-1), F.embedding((ids - self.known).clamp(min=0), new).to(x.dtype), x)

    def spell(self, words: Sequence[bytes]) -> Tensor:
        """(K, L): the characters of words, for `Inputs.characters`. Long words are cut."""
        cnn = self.embedding.cnn
        return torch.from_numpy(spell_words([list(word) for word in words], cnn.longest, cnn.widest)).to(self.device)

    def _run_layers(
        self, x: Tensor, state: State, side: int | None, token_mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """(S, T, B, width) through the layers, of all sides or of one: x and each layer's output."""
        drop = self.config.dropout
        cells = self.initial(x.shape[0] * x.shape[2]) if state is None else state
        outputs, new_cells = [x], []
        for i, (layer, cell) in enumerate(zip(self.layers, cells, strict=True)):
            inputs = F.dropout(x, drop, self.training)
            x, cell = layer(inputs, cell, side, token_mask)
            if i and self.config.residual:
                x = x + inputs
            outputs.append(x)
            new_cells.append(cast(ProjectedState, cell))
        outputs[-1] = F.dropout(x, drop, self.training)
        return outputs, tuple(new_cells)

    # -------------------------------------------------------------------------------------------- language models

    def initial(self, batch: int) -> State:
        """The initial state for `batch` rows; for `both`, count the rows of both models."""
        return tuple(cast(ProjectedLSTM, layer).start(batch) for layer in self.layers)

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """The forward model: x and each layer (B, T, width)."""
        return self.one_side(inputs, state, FORWARD)

    def one_side(self, inputs: Inputs, state: State, side: int) -> tuple[list[Tensor], State]:
        """One of the two models. The backward one wants reversed texts."""
        x = self.embed(inputs).transpose(0, 1).unsqueeze(0)  # (1, T, B, width)
        layers, state = self._run_layers(x, state, side)
        return [layer[0].transpose(0, 1) for layer in layers], state

    def both(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        """Both models: (2B, T), B rows for the forward one, then B reversed rows for the backward one."""
        x = self.embed(inputs).unflatten(0, (2, -1)).transpose(1, 2)  # (2, T, B, width)
        layers, state = self._run_layers(x, state, None)
        return [layer.transpose(1, 2).flatten(0, 1) for layer in layers], state

    def backward_model(self) -> BackwardELMo:
        return BackwardELMo(self)

    def trace(self, inputs: Inputs) -> tuple[list[list[CellTrace]], Tensor]:
        """The forward model."""
        x, traces = self.embed(inputs).transpose(0, 1), []
        for i, layer in enumerate(self.layers):
            trace = cast(ProjectedLSTM, layer).trace(x, FORWARD)
            y = torch.stack([h for h, _ in trace.states])
            x = y + x if i and self.config.residual else y
            traces.append([trace])
        return traces, x.transpose(0, 1)

    def predicted_ids(self, ids: Tensor) -> Tensor:
        return self.readout.replace_unwritten(ids)

    # -------------------------------------------------------------------------------------------- words in context

    def encode(self, inputs: Inputs, state: State = None) -> tuple[list[Tensor], State]:
        """[x; x], and [forward; backward] of each layer: (B, T, 2 · width) each. Rows are padded at their end.

        Both models continue from a given state, as in the authors' code, although the backward one has read another
        text.
        """
        x = self.embed(inputs).transpose(0, 1)  # (T, B, width)
        token_mask = None if inputs.token_mask is None else inputs.token_mask.t()
        reverse = reversed_positions(inputs.token_mask, inputs.ids).t().unsqueeze(-1).expand_as(x)
        layers, state = self._run_layers(torch.stack([x, x.gather(0, reverse)]), state, None, token_mask)
        pairs = [torch.cat([forward, backward.gather(0, reverse)], -1) for forward, backward in layers]
        return [pair.transpose(0, 1) for pair in pairs], state

    def frame(self, a: Encoding, b: Encoding | None = None) -> FramedText:
        """begin a end: the tokens that the forward and the backward model read first."""
        end = self.vocabulary.begin if self.vocabulary.end is None else self.vocabulary.end
        return frame_texts([a] if b is None else [a, b], ((self.begin,), (end,), (end,)))


class BackwardELMo(CausalNetwork):
    """The backward model of an ELMo as a network of its own, over reversed texts. It has no weights of its own."""

    def __init__(self, network: ELMo) -> None:
        super().__init__(network.config, network.vocabulary)
        self.owner = (network,)  # in a tuple, so that the weights are registered with one network only
        object.__setattr__(self, "readout", network.readout)  # for the same reason, not registered
        self.output_size = network.output_size
        self.widths = [network.config.width] * (network.config.layers + 1)

    @property
    def device(self) -> torch.device:
        return self.owner[0].device

    def initial(self, batch: int) -> State:
        return self.owner[0].initial(batch)

    def hidden(self, inputs: Inputs, state: State) -> tuple[list[Tensor], State]:
        return self.owner[0].one_side(inputs, state, BACKWARD)


def reversed_positions(token_mask: Tensor | None, ids: Tensor) -> Tensor:
    """(B, T): positions that reverse the tokens of each row; padding stays where it is."""
    at = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    if token_mask is None:
        return at.flip(1)
    return torch.where(token_mask, token_mask.sum(1, keepdim=True) - 1 - at, at)


def _with_begin_token(vocabulary: Vocabulary) -> Vocabulary:
    """Append a token for the beginning of a text."""
    special = {**vocabulary.special, "<beginning>": vocabulary.size}
    return replace(vocabulary, size=vocabulary.size + 1, special=special, pieces=[*vocabulary.pieces, b""])


def _without_spaces(pieces: Sequence[bytes]) -> Sequence[bytes]:
    """Spellings without a leading space, unless two would become equal, as those of subwords may."""
    stripped = [piece.removeprefix(b" ") for piece in pieces]
    return stripped if len(set(stripped)) == len(stripped) else pieces
